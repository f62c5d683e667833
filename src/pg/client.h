/*
 * pg/client.h - a backend's requests to the engine: many in flight on one socket.
 *
 * A request is memory of its owner (a call), zero-initialised and filled in before
 * llm_client_begin; while it is unanswered the client keeps it in a list, so the owner must call
 * llm_client_end before the memory goes (calls do that from a memory context callback). Answers are
 * copied into the request's context. Nothing here raises a request's failure: it is kept in it. Only
 * interrupts, a statement that costs too much (spend.h) and out-of-memory leave a wait by an error.
 *
 * Life of a request:   begin -> QUEUED -> SENT -> FINISHED -> end
 *   lost connection    SENT -> QUEUED: sent again to the next engine, same id, same seed
 *   subtransaction abort   -> DORMANT: cancelled; an owner that is still there (an outer cursor) and
 *                          waits for it makes it QUEUED again under a new id
 *   top-level abort        -> DEAD: its owner is about to vanish
 *
 * The client's state is the connection (connection.c, link.c), the lists and credits (inflight.c)
 * and the clock of the outage (traffic.c): statics of one process. Who may touch it, and how:
 *
 *   process          from where                        what
 *   backend          functions and the node            all below: may wait, may raise an error
 *   backend          reset callbacks of contexts       llm_client_end: never waits
 *   backend          callbacks of subtransactions      cancel own requests, or give them to the parent
 *   backend          callbacks of transactions         close the connection, kill all requests
 *   any              signal handlers                   nothing: they set the latch
 *   parallel worker  -                                 nothing: the functions are PARALLEL RESTRICTED
 *   supervisor       -                                 nothing: its link to the engine is its own
 *
 * The callbacks run while an error is handled: they raise nothing but out-of-memory.
 */
#ifndef LLM_PG_CLIENT_H
#define LLM_PG_CLIENT_H

#include "postgres.h"

#include "lib/ilist.h"
#include "llm.pb-c.h"
#include "pg/catalog.h"
#include "pg/error.h"
#include "pg/memo/memo.h"
#include "pg/pieces.h"
#include "pg/usage.h"

typedef enum LlmClientKind
{
	LLM_CLIENT_SUBMIT,
	LLM_CLIENT_LOAD,
	LLM_CLIENT_UNLOAD,
	LLM_CLIENT_STATS
} LlmClientKind;

typedef enum LlmClientState
{
	LLM_CLIENT_NEW = 0,
	LLM_CLIENT_QUEUED,
	LLM_CLIENT_SENT,
	LLM_CLIENT_FINISHED,
	LLM_CLIENT_DORMANT,
	LLM_CLIENT_DEAD
} LlmClientState;

/* A DONE, in memory of the request. */
typedef struct LlmClientAnswer
{
	char *text;    /* [n_text] UTF-8, not terminated */
	Size n_text;   /* bytes */
	int32 *tokens; /* [n_tokens] of TOKENIZE */
	int n_tokens;
	Llm__Finish finish;
	int32 prompt_tokens;
	int32 cached_tokens;
	int32 completion_tokens;
	double queue_ms;
	double first_token_ms;
	double total_ms;
	uint64 numerics_key;
	bool dated;                /* the prompt told the time */
	char *reasoning;           /* [n_reasoning] UTF-8, not part of text; NULL = none */
	Size n_reasoning;          /* bytes */
	bool has_logprobs;         /* of the generated tokens, perhaps none of them */
	const Llm__Done *logprobs; /* NULL, or a DONE with the log-probabilities that were asked for */
} LlmClientAnswer;

typedef struct LlmClientRequest
{
	/* filled by the owner */
	MemoryContext cxt; /* of the answer */
	LlmClientKind kind;
	Llm__Submit submit;         /* SUBMIT: all but id and model; what it points to stays */
	Llm__StatsRequest question; /* STATS: all but id */
	LlmModel *model;            /* all but STATS; held by the owner */
	int timeout_ms;             /* from begin to the answer, 0 = none */

	/* of pg/memo/memo_key.c */
	bool memo;           /* memo_key is there, and the answer is to be kept */
	bool remembered;     /* the answer is a kept one: it was never begun */
	LlmMemoKey memo_key; /* but for the numerics key */

	/* the answer, when FINISHED */
	LlmFailure failure; /* sqlstate 0 = none */
	LlmClientAnswer answer;
	LlmPieces pieces;       /* of a SUBMIT with stream, as they come */
	Llm__StatsReply *stats; /* of STATS */

	/* the client's own */
	MemoryContextCallback callback; /* of begin_owned */
	LlmClientState state;
	dlist_node node;        /* in the queue or the sent list */
	uint64 id;              /* new with every begin or revival, kept over a resubmission */
	SubTransactionId subid; /* that began it, or that took it over */
	bool counted;           /* among its role's usage, when sent */
	bool held;              /* QUEUED because its role has as many in flight as it may */
	int32 max_in_flight;    /* of the role, 0 = any number */
	LlmUsage *usage;        /* of the role, while it is counted in flight; else NULL */
	int64 n_charged;        /* of its generated tokens, to usage */
	bool urgent;            /* somebody waits: goes first, may use the last credit */
	int n_sent;             /* times it was sent */
	int64 begun_us;         /* TimestampTz of begin */
	Size nbytes;            /* of its frame, for flow control */
} LlmClientRequest;

/* True when there can be an engine: before anything else. False and f set (55000) when the library
 * was not preloaded. */
extern bool llm_client_available(LlmFailure *f);

/* Queue a request. It goes out with the next call below. */
extern void llm_client_begin(LlmClientRequest *req);
/* The same, and llm_client_end comes by itself when req->cxt, where req lives, is reset. */
extern void llm_client_begin_owned(LlmClientRequest *req);

/* Send what flow control allows; true when req is out of the queue (in the send buffer, or finished):
 * llm_client_poll, or a wait, writes what many of these calls have gathered. Waits only for an engine
 * to connect to. */
extern bool llm_client_send(LlmClientRequest *req);
/* Block until req is out of the queue, until it is finished. */
extern void llm_client_wait_sent(LlmClientRequest *req);
extern void llm_client_wait(LlmClientRequest *req);
/* Block until req->pieces has one that was not taken, or req is finished. */
extern void llm_client_wait_piece(LlmClientRequest *req);
/* As llm_client_wait, but at most timeout_ms: false when it is still unanswered. */
extern bool llm_client_wait_at_most(LlmClientRequest *req, int timeout_ms);
/* Read again how many requests its role may have in flight, and fail req when that has held what is
 * queued for too long; in a transaction. Waits within one do it. */
extern void llm_client_renew(LlmClientRequest *req);

/* Receive and send what goes without blocking. */
extern void llm_client_poll(void);

/* Forget req; an unanswered one is cancelled. Safe in any state, and twice. */
extern void llm_client_end(LlmClientRequest *req);

#endif
