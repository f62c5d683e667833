/*
 * engine/scores.h - the log-probabilities of an answer and of its prompt.
 *
 * They are stored by position, so what is computed again after a preemption changes nothing. Their
 * memory is a request's largest part, hence bounded, and there before the first step.
 */
#ifndef LLM_ENGINE_SCORES_H
#define LLM_ENGINE_SCORES_H

#include <stdint.h>

#include "core/status.h"
#include "core/str.h"
#include "engine/llm.h"

#define LLM_SCORES_NBYTES_MAX ((size_t) 64 << 20) /* of one request */

/* Zero-initialise: none are wanted. */
typedef struct LlmScores
{
	LlmLogprob *answer; /* NULL, or [max_new][1 + n_top]; owned, as is prompt */
	LlmLogprob *prompt; /* NULL, or [n_prompt][1 + n_top] */
	int32_t n_top;
} LlmScores;

/* Room for what r wants. LLM_E_INVALID for n_top out of range or without any log-probabilities, and
 * with both numbers for a request over the bound; LLM_E_MEMORY. On failure there is nothing to free. */
LlmStatus llm_scores_init(LlmScores *s, const LlmRequest *r, const LlmTokens *prompt,
						  int32_t max_new, LlmError *err);
void llm_scores_fini(LlmScores *s);

/* Keep what the sampler said of token i of the answer / of the prompt, when it is wanted. */
void llm_scores_answer(LlmScores *s, int32_t i, const LlmSampleOut *out);
void llm_scores_prompt(LlmScores *s, int32_t i, const LlmSampleOut *out);

#endif
