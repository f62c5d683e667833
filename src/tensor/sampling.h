/* tensor/sampling.h - how the outputs of a step become tokens; read by every device. */
#ifndef LLM_TENSOR_SAMPLING_H
#define LLM_TENSOR_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

/* Parameters of one output row. The pick is a function of (logits, these, history): never of the
 * batch. Order (rule R11): bias, penalties, mask, temperature, top-k, top-p, min-p, noise. */
typedef struct LlmSampleParams
{
	float temperature;        /* 0 = greedy: highest logit, ties to the lower id */
	float top_p;              /* (0, 1], 1 = off */
	float min_p;              /* [0, 1], 0 = off */
	int32_t top_k;            /* 0 = off */
	float repetition_penalty; /* > 0, 1 = off; over prompt and generated tokens */
	float presence_penalty;   /* 0 = off; over generated tokens */
	float frequency_penalty;  /* 0 = off; over generated tokens */
	uint64_t seed;            /* noise = f(seed, position, id) */
} LlmSampleParams;

#define LLM_TOP_LOGPROBS_MAX 20

/* Added to the logit of one token before everything else. */
typedef struct LlmTokenBias
{
	int32_t token;
	float bias; /* finite */
} LlmTokenBias;

/* A token and its log-probability under the raw logits. */
typedef struct LlmLogprob
{
	int32_t token; /* -1 = none */
	float logprob;
} LlmLogprob;

/* One output row: what to do and what came before. */
typedef struct LlmSampleRow
{
	LlmSampleParams p;
	const int32_t *history; /* [n_history] the sequence's tokens: prompt, then generated */
	int32_t n_history;
	int32_t n_prompt;      /* tokens of history that are prompt */
	int32_t position;      /* position of the token to be picked = n_history */
	const uint32_t *mask;  /* NULL, or bits [vocab_size]: 1 = allowed (grammars) */
	const int32_t *banned; /* [n_banned] ids that must not be picked (ignore_eos) */
	int32_t n_banned;
	const LlmTokenBias *bias; /* [n_bias] each token once */
	int32_t n_bias;
	const int32_t *target; /* NULL, or the token that follows: nothing is picked, `token` is it and
							  only its log-probability and the top ones are computed */
	int32_t n_top;         /* log-probabilities wanted of the likeliest tokens, 0 .. 20 */
	bool unscored; /* no log-probability is wanted: n_top is 0, the answer's `logprob` too */
} LlmSampleRow;

/* All output rows of a step, in out_row order. */
typedef struct LlmSampling
{
	const LlmSampleRow *rows; /* [n_out] borrowed until the step has been waited for */
	int32_t n_out;
} LlmSampling;

/* Result of one output row. A row can fail by itself (NaN logits, everything masked). */
typedef struct LlmSampleOut
{
	int32_t token;    /* -1 when status is not LLM_OK */
	float logprob;    /* log-probability of token under the raw logits */
	LlmStatus status; /* LLM_OK, or why this row has no token */
	char message[80]; /* when status is not LLM_OK */
	int32_t n_top;    /* filled entries of top: as many as asked for, at most vocab_size */
	LlmLogprob top[LLM_TOP_LOGPROBS_MAX]; /* by (logit descending, id ascending), raw logits */
} LlmSampleOut;

/* What a step gave back. */
typedef struct LlmStepOut
{
	LlmSampleOut *rows;  /* [n_out] caller's memory, filled by step_wait */
	const float *logits; /* [n_out * ld_logits] device's memory, valid until the next step_begin */
	int32_t ld_logits;   /* floats between rows; the first vocab_size are logits */
	const uint8_t
		*spoiled; /* NULL, or [n_seqs] device's memory, as long as logits: 1 = a row of the
							   sequence had a NaN in K or V, so nothing may be built on its pages */
} LlmStepOut;

#endif
