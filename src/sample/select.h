/*
 * sample/select.h - cut a list at a place of its sorted order, without sorting it.
 *
 * The order is (value descending, id ascending), as for a full sort of the candidates.
 */
#ifndef LLM_SAMPLE_SELECT_H
#define LLM_SAMPLE_SELECT_H

#include <stdint.h>

#include "tensor/sampling.h"

/* Candidates as parallel arrays in ascending order of id. Owned by the caller. */
typedef struct LlmCandidates
{
	int32_t *id; /* [n] */
	float *x;    /* [n] what the order is by; no NaN */
	float *z;    /* [n] scaled logit: at most 0 */
	uint64_t *w; /* [n] weight; valid only where a step says so */
	int32_t n;
} LlmCandidates;

/* Keep the shortest prefix of the sorted order whose weights (w, or 1 each when by_count) add up to
 * at least target, and all when they never do; target 0 keeps one. Stable; O(n). */
void llm_select_prefix(LlmCandidates *c, int by_count, uint64_t target);

/* The k-th highest of x [n], 1 <= k <= n; no NaN in x. */
float llm_select_value(const float *x, int32_t n, int32_t k);

/* The first n_top of x [n] by (logit descending, id ascending) into top; no NaN in x. The field
 * logprob holds the logit. Returns how many: the smaller of n_top and n. */
int32_t llm_select_likeliest(const float *x, int32_t n, int32_t n_top, LlmLogprob *top);

#endif
