/*
 * sample/rowmath.h - the vector work of sampling: maximum, sums of exponentials, noise.
 *
 * Every routine exists once in plain C and is compiled twice, for any CPU and for AVX2 with FMA;
 * both give the same bits (rules R4 and R5): 16 logical lanes by index mod 16, folded 8, 4, 2, 1
 * apart, and the polynomials of tensor/mathf.h.
 */
#ifndef LLM_SAMPLE_ROWMATH_H
#define LLM_SAMPLE_ROWMATH_H

#include <stdbool.h>
#include <stdint.h>

/* The highest value of a row. */
typedef struct LlmRowTop
{
	float max;  /* -inf when nothing is above it */
	int32_t id; /* lowest index that holds max; -1 when max is -inf */
	bool bad;   /* a NaN or +inf is in the row; max and id then mean nothing */
} LlmRowTop;

/* Rows are float [n], n >= 0, unaligned; outputs may be the input. */
typedef struct LlmRowMath
{
	const char *isa;
	LlmRowTop (*top)(const float *x, int32_t n);
	/* Sum of exp(x[i] - max). */
	float (*sumexp)(const float *x, int32_t n, float max);
	/* z[i] = (x[i] - max) / temperature: at most 0, -inf where it overflows; temperature > 0. */
	void (*scale)(const float *x, int32_t n, float max, float temperature, float *z);
	/* w[i] = exp(z[i]) in units of 2^-40, rounded down, for z <= 0: integers sum to the same value
	 * in any order. */
	void (*weights)(const float *z, int32_t n, uint64_t *w);
	/* g[i] = Gumbel noise of token ids[i]: -log(-log(u)), u uniform by (seed, position, id). Within
	 * (-2.9, LLM_GUMBEL_MAX). */
	void (*gumbel)(uint64_t seed, uint32_t position, const int32_t *ids, int32_t n, float *g);
} LlmRowMath;

#define LLM_GUMBEL_MAX 17.0f                /* above every noise that llm_rng_uniform can give */
#define LLM_WEIGHT_ONE ((uint64_t) 1 << 40) /* weight of the highest candidate */

const LlmRowMath *llm_rowmath_generic(void);
/* The fastest that this CPU has. */
const LlmRowMath *llm_rowmath_best(void);

#endif
