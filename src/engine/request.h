/*
 * engine/request.h - a GENERATE request from submit to its end, who asked it, and the table of all.
 *
 *     waiting -> running -> ended         (the sequence's state, see sched/seq.h)
 *
 * A request owns its sequence. It is in the table until it ends; its memory goes when the scheduler
 * retires the sequence.
 *
 * Mostly one asker stands behind a request; several when they asked for the same at the same time
 * (flight.h). The first of them leads: the scheduler and the `step` callback know the request by
 * the leader's key, client and tenant. The others follow: they cost no step, and are answered when
 * the request ends. Whoever leaves before that leaves alone; the next in line then leads.
 */
#ifndef LLM_ENGINE_REQUEST_H
#define LLM_ENGINE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"
#include "engine/choice.h"
#include "engine/llm.h"
#include "engine/prompt.h"
#include "engine/scores.h"
#include "engine/stop.h"
#include "engine/think.h"
#include "sched/seq.h"
#include "tokenizer/detok.h"

/* One who asked, known by key. */
typedef struct LlmAsker
{
	LlmRequestKey key;
	struct LlmReq *req;
	bool stream;
	size_t n_shown;     /* bytes of the text handed to the text callback */
	int32_t timeout_ms; /* 0 = none */
	int32_t priority;
	uint64_t tenant;
	int64_t submitted;     /* microseconds, monotonic */
	int64_t deadline;      /* the same; INT64_MAX = none */
	struct LlmAsker *prev; /* of the request, in order of submission */
	struct LlmAsker *next;
	struct LlmAsker *chain; /* of the table */
} LlmAsker;

typedef struct LlmReq
{
	LlmAsker *askers; /* never empty while the request is in the table; the first leads */
	LlmAsker *last_asker;
	LlmSeq seq;             /* owner points back here */
	LlmSampleParams sample; /* with the model's defaults filled in */
	int32_t n_new;          /* tokens generated */
	bool dated;             /* the prompt of any asker tells the time */
	bool pin;               /* its prompt is to be pinned; it has no answer (pinned.h) */
	LlmChoice choice;       /* what may be picked, and what ends the answer */
	LlmScores scores;       /* log-probabilities that are wanted */
	LlmThink think;
	LlmDetok detok;
	LlmStop stop;
	LlmBuf text;                /* whole characters; after a stop, without the stop string */
	int64_t first_step;         /* microseconds, monotonic; 0 = not yet */
	int64_t first_token;        /* 0 = not yet */
	LlmBuf name;                /* flight.h; empty = never shared */
	uint64_t name_hash;         /* of name and prompt */
	struct LlmReq *flight_next; /* of flight.h */
	struct LlmReq *prev, *next; /* all live requests, in order of submission */
} LlmReq;

#define LLM_REQ_BUCKETS 1024

/* All live requests and askers. Zero-initialise. */
typedef struct LlmReqTable
{
	LlmReq *first, *last;
	int64_t n;                         /* askers */
	LlmAsker *bucket[LLM_REQ_BUCKETS]; /* by key */
} LlmReqTable;

LlmAsker *llm_req_find(const LlmReqTable *t, LlmRequestKey key);
/* A new request, whose only asker's key must not be there. */
void llm_req_insert(LlmReqTable *t, LlmReq *r);
/* Make `from`, which is not in the table, free of its asker, who now follows those of r. */
void llm_req_join(LlmReqTable *t, LlmReq *r, LlmReq *from);
/* An asker leaves its request, which leaves the table with the last one; frees the asker. */
void llm_req_leave(LlmReqTable *t, LlmAsker *a);

/* A request of one asker, with room for its tokens, text, stop strings and log-probabilities; max_new
 * 0 = only those of the prompt are wanted. The prompt is copied. Everything of `from` but the prompt
 * and the sampling defaults is taken over; submitted and deadline are the caller's to set. Errors:
 * those of llm_choice_init, llm_scores_init and llm_stop_init, LLM_E_MEMORY. */
LlmStatus llm_req_create(const LlmLoaded *m, const LlmRequest *from, const LlmPrompt *prompt,
						 int32_t max_new, LlmReq **out, LlmError *err);
/* The sequence must hold no page. Frees an asker too, if there is one; NULL is allowed. */
void llm_req_free(LlmReq *r);

/* What a new token does to a request: text or thinking grows. *finish is set and true returned when
 * it ends. LLM_E_MEMORY in *status when the text cannot grow. */
bool llm_req_token(LlmReq *r, const LlmTokenizer *tok, int32_t token, LlmFinish *finish,
				   LlmStatus *status);

/* Bytes of text that may be shown while the request goes on. */
size_t llm_req_safe(const LlmReq *r);

#endif
