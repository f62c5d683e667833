/*
 * engine/request.h - a GENERATE request from submit to its end, and the table of all of them.
 *
 *     waiting -> running -> ended         (the sequence's state, see sched/seq.h)
 *
 * A request owns its sequence. It is in the table until it ends; its memory goes when the scheduler
 * retires the sequence.
 */
#ifndef LLM_ENGINE_REQUEST_H
#define LLM_ENGINE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"
#include "engine/llm.h"
#include "engine/stop.h"
#include "sched/seq.h"
#include "tokenizer/detok.h"

typedef struct LlmReq
{
	LlmRequestKey key;
	LlmSeq seq;             /* owner points back here */
	LlmSampleParams sample; /* with the model's defaults filled in */
	int32_t n_new;          /* tokens generated */
	bool ignore_eos;
	bool stream;
	LlmDetok detok;
	LlmStop stop;
	LlmBuf text;                /* whole characters; after a stop, without the stop string */
	size_t n_shown;             /* bytes of text handed to the text callback */
	int32_t timeout_ms;         /* 0 = none */
	int64_t submitted;          /* all times: microseconds, monotonic */
	int64_t deadline;           /* INT64_MAX = none */
	int64_t first_step;         /* 0 = not yet */
	int64_t first_token;        /* 0 = not yet */
	struct LlmReq *prev, *next; /* all live requests, in order of submission */
	struct LlmReq *chain;       /* of the table */
} LlmReq;

#define LLM_REQ_BUCKETS 1024

/* All live requests. Zero-initialise. */
typedef struct LlmReqTable
{
	LlmReq *first, *last;
	int64_t n;
	LlmReq *bucket[LLM_REQ_BUCKETS];
} LlmReqTable;

LlmReq *llm_req_find(const LlmReqTable *t, LlmRequestKey key);
/* The key must not be there. */
void llm_req_insert(LlmReqTable *t, LlmReq *r);
void llm_req_remove(LlmReqTable *t, LlmReq *r);

/* A request with room for its tokens and stop strings; text_nbytes is reserved for its text. prompt
 * is copied. Everything of `from` but the prompt and the sampling defaults is taken over. Errors:
 * LLM_E_INVALID, LLM_E_ENCODING (stop strings), LLM_E_MEMORY. */
LlmStatus llm_req_create(const LlmRequest *from, const LlmTokens *prompt, int32_t max_new,
						 int32_t n_groups, size_t text_nbytes, LlmReq **out, LlmError *err);
/* The sequence must hold no page; NULL is allowed. */
void llm_req_free(LlmReq *r);

/* What a new token does to a request: text grows. *finish is set and true returned when it ends.
 * LLM_E_MEMORY in *status when the text cannot grow. */
bool llm_req_token(LlmReq *r, const LlmTokenizer *tok, int32_t token, LlmFinish *finish,
				   LlmStatus *status);

/* Bytes of text that may be shown while the request goes on. */
size_t llm_req_safe(const LlmReq *r);

#endif
