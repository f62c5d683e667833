/*
 * sample/sample.h - logits of one row to a token.
 *
 * Order (rule R11): bias, penalties, mask and bans, temperature, top-k, top-p, min-p, then Gumbel-max with
 * noise = f(seed, position, token id). Candidates are sorted by (logit descending, id ascending);
 * sums run over 16 lanes and one fixed tree (R4). Penalties: repetition divides positive logits and
 * multiplies negative ones (Keskar et al. 2019); presence and frequency subtract as in OpenAI's API.
 *
 * Log-probabilities are those of the logits as they came, whatever is done to them for the pick.
 */
#ifndef LLM_SAMPLE_SAMPLE_H
#define LLM_SAMPLE_SAMPLE_H

#include "sample/rowmath.h"
#include "tensor/sampling.h"

typedef struct LlmSampler LlmSampler; /* scratch of one thread; sized once */

LlmStatus llm_sampler_create(int32_t vocab_size, LlmSampler **out, LlmError *err);
void llm_sampler_free(LlmSampler *s);
/* Another instruction set than the best: the bits are the same. */
void llm_sampler_use(LlmSampler *s, const LlmRowMath *math);

/* Pick for one row, or score the token that is known to follow it; fills out. logits [vocab_size] is
 * read only. A row with a NaN logit, or with nothing left to pick, fails by itself with
 * LLM_E_INTERNAL or LLM_E_INVALID. */
void llm_sampler_pick(LlmSampler *s, const float *logits, const LlmSampleRow *row,
					  LlmSampleOut *out);

#endif
