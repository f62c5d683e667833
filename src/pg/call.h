/*
 * pg/call.h - one evaluated call of one of our SQL functions: from Datums to requests and back.
 *
 * The scalar function and the batch node share this: the scalar function submits and waits, the
 * node submits many and waits for the oldest. A call is memory of the context it was created in.
 * Errors of a call (a bad option, a refused prompt, a dead engine) are kept in it and raised by
 * llm_call_result alone, so that the node can raise them at their own row.
 */
#ifndef LLM_PG_CALL_H
#define LLM_PG_CALL_H

#include "postgres.h"

#include "fmgr.h"
#include "pg/error.h"

typedef struct LlmFunc LlmFunc; /* one of our SQL functions; static data */
typedef struct LlmCall LlmCall;

/* The function behind an oid, or NULL when it is not one of ours that can be batched. Recognised by
 * extension membership and C symbol, never by name; cached, invalidated with the catalog. */
extern const LlmFunc *llm_func_find(Oid funcid);

/* Counters of one or many calls, for EXPLAIN. */
typedef struct LlmCallUsage
{
	int64 requests;      /* asked for */
	int64 distinct;      /* of them: the others share an answer (distinct.h) */
	int64 remembered;    /* of distinct: answered by the memo, the others were sent to the engine */
	int64 prompt_tokens; /* of those sent */
	int64 cached_tokens;
	int64 completion_tokens;
	double queue_ms; /* sums over those sent */
	double first_token_ms;
	uint64 numerics_key; /* of the last answer, 0 = none */
} LlmCallUsage;

/* Bytes of a call, not terminated. */
typedef struct LlmCallBytes
{
	const uint8 *data; /* NULL = none */
	Size len;
} LlmCallBytes;

/* What a call's prompt is made of, the shared parts first; memory of the call. */
typedef struct LlmCallPrompt
{
	const char *model;
	LlmCallBytes system;
	LlmCallBytes prompt;
} LlmCallPrompt;

/* Evaluate the arguments (all of the function's, in order, after defaults were expanded) into a
 * call. NULL when the answer is NULL without a request (the first argument is NULL). Values are
 * copied into cxt. The current user's right on the model is checked here. */
extern LlmCall *llm_call_create(const LlmFunc *func, int nargs, const NullableDatum *args,
								MemoryContext cxt);

/* Send what flow control allows. True when everything has been sent (or the call has failed). With
 * wait, blocks interruptibly until that is so. One credit is always left for calls with wait. */
extern bool llm_call_submit(LlmCall *call, bool wait);

/* Queue the requests without sending or waiting: for callers that wait outside of a transaction,
 * which llm_call_wait_at_most allows; the rest of this header needs one. They renew calls from
 * time to time: quotas change, and hold nothing for ever. */
extern void llm_call_begin(LlmCall *call);
/* Before that, in a transaction: block until the memo can answer calls with these arguments, so that it
 * is not passed by while their model is loaded. */
extern void llm_call_know_model(const NullableDatum *args);
extern void llm_call_renew(LlmCall *call);

/* Block until finished, at most timeout_ms: false when it is not. Interruptible. */
extern bool llm_call_wait_at_most(LlmCall *call, int timeout_ms);

/* Why the finished call has no result; NULL when it has one. For calls of a single request. */
extern const LlmFailure *llm_call_failure(const LlmCall *call);

/* True when the result or the error is there; never blocks. */
extern bool llm_call_finished(const LlmCall *call);

/* Block until finished; checks interrupts. Answers of other calls are drained meanwhile. */
extern void llm_call_wait(LlmCall *call);

/* Block until the next piece of a streamed text is here and give it out, in CurrentMemoryContext. False
 * at the end: llm_call_result then says whether it is a good one. */
extern bool llm_call_next_piece(LlmCall *call, Datum *piece);

/* The result in CurrentMemoryContext; raises the call's error unless its on_error is null, then
 * *isnull and *failed are set and the caller counts it (pg/hidden.h). */
extern Datum llm_call_result(LlmCall *call, bool *isnull, bool *failed);

/* Add this finished call to usage. */
extern void llm_call_usage(const LlmCall *call, LlmCallUsage *usage);

/* Name of the model that the call goes to; NULL before llm_call_create has resolved one. */
extern const char *llm_call_model(const LlmCall *call);

/* The prompt of the call's first request; false when it makes none. */
extern bool llm_call_prompt(const LlmCall *call, LlmCallPrompt *out);

/* Cancel what is unanswered and free. */
extern void llm_call_free(LlmCall *call);

/* Bytes that the call holds in memory, for windows bounded by work_mem. */
extern Size llm_call_nbytes(const LlmCall *call);

/* Bytes that its answers may add to that, guessed from what it asks for. */
extern Size llm_call_answer_nbytes(const LlmCall *call);

/* Receive what has arrived for any call, without blocking. */
extern void llm_call_poll(void);

/* Text of the error that llm_call_result hid; '' when none. */
extern const char *llm_call_error_text(const LlmCall *call);

#endif
