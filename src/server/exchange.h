/*
 * server/exchange.h - everything that the I/O thread and the engine thread share.
 *
 * I/O -> engine: a list of commands, handed over after each round of socket events, so that requests
 * that come together are taken together. The engine thread takes all of it at once, sleeps on `wake`
 * when there is neither a command nor work, and owns what it took.
 * engine -> I/O: encoded frames, each behind a record that says whose they are, collected without a
 * lock during a step and handed over once per step; then the eventfd is written, unless earlier ones
 * lie there still. The I/O thread
 * moves them to their connections and drops those whose client has gone: the engine thread never
 * sees a connection. What STATS and STATE tell is published at the same time, before the frames, so
 * that a client that has its answer finds it counted. Prefix caches are told on demand alone, by a
 * command: their rows are too many to be copied at every step.
 *
 * Lock: `mutex` guards every field marked (m); it is held for list splices and copies only, never
 * while calling the engine, reading or writing a socket, or allocating more than a buffer's growth.
 * There is no second lock, so there is no order.
 *
 * How much can pile up: commands, tickets and frames belong to unanswered requests, whose number and
 * bytes the connection bounds by its credits (conn.h).
 */
#ifndef LLM_SERVER_EXCHANGE_H
#define LLM_SERVER_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/str.h"
#include "server/server_stats.h"
#include "server/ticket.h"

typedef enum LlmCommandKind
{
	LLM_COMMAND_SETTINGS = 0, /* the first ones, later others */
	LLM_COMMAND_TICKET = 1,
	LLM_COMMAND_CANCEL = 2, /* key */
	LLM_COMMAND_CLOSE = 3,  /* key.client and all its tickets */
	LLM_COMMAND_STOP = 4,   /* leave the loop after the step */
	LLM_COMMAND_STATS = 5   /* answer key with STATS_REPLY and prefix caches */
} LlmCommandKind;

/* Settings as the engine wants them; strings owned. */
typedef struct LlmServerSettings
{
	LlmEngineOptions options;
	char *model_dir; /* options.model_dir */
	char *devices;   /* options.devices */
} LlmServerSettings;

typedef struct LlmCommand
{
	struct LlmCommand *next;
	LlmCommandKind kind;
	LlmRequestKey key;
	uint64_t connection;         /* CLOSE: the backend's own number */
	bool last;                   /* CLOSE: no other connection has that number */
	bool all_prefixes;           /* STATS: of everybody, else of database and role */
	uint32_t database;           /* STATS */
	uint32_t role;               /* STATS */
	LlmTicket *ticket;           /* TICKET: owned */
	LlmServerSettings *settings; /* SETTINGS: owned */
} LlmCommand;

/* In order of arrival. */
typedef struct LlmCommandList
{
	LlmCommand *first; /* NULL = none */
	LlmCommand *last;
} LlmCommandList;

/* Before each frame in the output buffer. */
typedef struct LlmOutRecord
{
	LlmRequestKey key;
	bool final;      /* this frame answers the request */
	uint32_t nbytes; /* of the frame that follows, header included */
} LlmOutRecord;

/* Whether the engine is there, for STATE. */
typedef struct LlmServerState
{
	bool ready;
	bool failed;       /* the engine could not be created, see message */
	char message[420]; /* '' when all is well */
	uint32_t version;  /* counts changes */
} LlmServerState;

typedef struct LlmExchange
{
	pthread_mutex_t mutex;
	pthread_cond_t wake;    /* engine thread: a command has come; CLOCK_MONOTONIC */
	int event_fd;           /* I/O thread: output or state has come */
	LlmCommandList posted;  /* I/O thread: commands that it has not handed over */
	LlmCommandList given;   /* (m) commands */
	LlmBuf output;          /* (m) records and frames */
	LlmServerStats *stats;  /* (m) owned */
	LlmServerState state;   /* (m) */
	bool working;           /* (m) the engine thread is not asleep */
	_Atomic bool ended;     /* the engine thread has left its loop by itself: it cannot go on */
	_Atomic uint64_t beats; /* moves with every turn of the engine thread's loop */
	LlmEngine *engine;      /* (m) the one at work, or that was last; NULL = none; borrowed */
} LlmExchange;

LlmStatus llm_exchange_init(LlmExchange *x, LlmError *err);
void llm_exchange_fini(LlmExchange *x);

/* ---- I/O thread ---- */

/* Take a command (owned); the engine thread gets all that were posted with the next hand-over. */
void llm_exchange_post(LlmExchange *x, LlmCommand *c);
void llm_exchange_hand_over(LlmExchange *x);
/* Swap the collected output for the empty buffer *out. */
void llm_exchange_take_output(LlmExchange *x, LlmBuf *out);
/* A copy; the caller clears it. */
void llm_exchange_stats(LlmExchange *x, LlmServerStats *out);
void llm_exchange_state(LlmExchange *x, LlmServerState *out);
/* True when the engine thread has something to do; *progress moves while it does it. */
bool llm_exchange_busy(LlmExchange *x, uint64_t *progress);

/* ---- engine thread ---- */

/* All commands, oldest first. Sleeps until there is one, at most timeout_ms; 0 = don't, -1 = no end. */
LlmCommand *llm_exchange_take(LlmExchange *x, int timeout_ms);
/* Publish *stats, which is swapped for those that were published before, and append out, which is
 * emptied. False when memory is out. */
bool llm_exchange_publish(LlmExchange *x, LlmServerStats **stats, LlmBuf *out);
/* Whose progress llm_exchange_busy tells from now on; and not any more, before it is freed. */
void llm_exchange_show_engine(LlmExchange *x, LlmEngine *e);
void llm_exchange_forget_engine(LlmExchange *x, const LlmEngine *e);
/* Publish a change of state. message NULL = ready, else failed. */
void llm_exchange_set_state(LlmExchange *x, const char *message);
/* Tell the I/O thread that nothing will come any more. */
void llm_exchange_end(LlmExchange *x);

/* ---- either ---- */

LlmCommand *llm_command_create(LlmCommandKind kind); /* zeroed; NULL when memory is out */
void llm_command_free(LlmCommand *c);                /* with what it owns */
void llm_settings_free(LlmServerSettings *s);        /* NULL is fine */

#endif
