/* sample/likeliest.h - the n highest logits of a row, in order. */
#ifndef LLM_SAMPLE_LIKELIEST_H
#define LLM_SAMPLE_LIKELIEST_H

#include <stdint.h>

#include "tensor/sampling.h"

/* The first n_top of x [n] by (logit descending, id ascending) into top; no NaN in x. The field
 * logprob holds the logit. Returns how many: the smaller of n_top and n. */
int32_t llm_sample_likeliest(const float *x, int32_t n, int32_t n_top, LlmLogprob *top);

#endif
