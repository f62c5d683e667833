/*
 * sample/rowmath.h - the vector work of sampling: maximum, sums of exponentials, noise.
 *
 * Every routine exists once in plain C and is compiled for any CPU, for AVX2 with FMA and for
 * AVX-512; all give the same bits (rules R4 and R5): 16 logical lanes by index mod 16, folded 8, 4, 2, 1
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

#define LLM_ROW_LANES 16
#define LLM_ROW_BLOCK 1024 /* values that have one maximum per lane */

/* Maxima that top() leaves for a row of n. */
static inline int32_t
llm_row_n_maxima(int32_t n)
{
	return (n + LLM_ROW_BLOCK - 1) / LLM_ROW_BLOCK * LLM_ROW_LANES;
}

/* Rows are float [n], n >= 0, unaligned; outputs may be the input. */
typedef struct LlmRowMath
{
	const char *isa;
	/* maxima [llm_row_n_maxima(n)]: those of each block by lane, each of other values; -inf where
	 * there are none. */
	LlmRowTop (*top)(const float *x, int32_t n, float *maxima);
	/* Sum of exp(x[i] - max). */
	float (*sumexp)(const float *x, int32_t n, float max);
	/* Values of at least `least` and above -inf, with their indices, in order; returns how many. id
	 * and out have room for n + LLM_ROW_LANES. */
	int32_t (*collect)(const float *x, int32_t n, float least, int32_t *id, float *out);
	/* z[i] = (x[i] - max) / temperature: at most 0, -inf where it overflows; temperature > 0. */
	void (*scale)(const float *x, int32_t n, float max, float temperature, float *z);
	/* w[i] = exp(z[i]) in units of 2^-40, rounded down, for z <= 0: integers sum to the same value
	 * in any order. */
	void (*weights)(const float *z, int32_t n, uint64_t *w);
	/* Sum of the weights of scale(x). */
	uint64_t (*weight_sum)(const float *x, int32_t n, float max, float temperature);
	/* g[i] = Gumbel noise of token ids[i]: -log(-log(u)), u uniform by (seed, position, id). Within
	 * (-2.9, LLM_GUMBEL_MAX). */
	void (*gumbel)(uint64_t seed, uint32_t position, const int32_t *ids, int32_t n, float *g);
} LlmRowMath;

#define LLM_GUMBEL_MAX 17.0f /* above every noise that llm_rng_uniform can give */
#define LLM_WEIGHT_BITS 40
#define LLM_WEIGHT_ONE ((uint64_t) 1 << LLM_WEIGHT_BITS) /* weight of the highest candidate */
#define LLM_WEIGHT_MIN_Z (-28.0f)                        /* what is below has weight 0 */

/* All that this CPU can run, best first; returns how many. The last one is plain C. */
#define LLM_ROWMATH_MAX 3
int llm_rowmath_list(const LlmRowMath *out[LLM_ROWMATH_MAX]);

#endif
