/*
 * tensor/mathf.h - exp and log as fused multiply-add polynomials: the same bits on every CPU.
 *
 * Scalar libm differs between builds and machines, so it is never called on a path that reaches a
 * logit or a pick (rule R5). A vector version of these must do the same operations in the same order
 * on every lane. Method: argument reduction by powers of two with a two-part ln 2 (Cody and Waite),
 * minimax polynomials of the Cephes library (S. Moshier) evaluated by Horner's rule with fmaf.
 */
#ifndef LLM_TENSOR_MATHF_H
#define LLM_TENSOR_MATHF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LLM_EXP_MIN (-87.0f) /* below: exactly 0 */
#define LLM_EXP_MAX 88.0f    /* above: exp(88) */
#define LLM_LOG2E 1.44269504088896341f
#define LLM_LN2_HI 0.693359375f
#define LLM_LN2_LO (-2.12194440e-4f)
#define LLM_ROUND_MAGIC                                                                            \
	12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to nearest even */

/* Both are written without branches, and choose by bit masks, so that a loop over them becomes
 * vectors: a compiler may not evaluate in vain what stands behind a condition. */

/* a where mask is all ones, b where it is 0. */
static inline float
llm_mathf_choose(uint32_t mask, float a, float b)
{
	uint32_t x, y;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	x = (x & mask) | (y & ~mask);
	memcpy(&a, &x, sizeof(a));
	return a;
}

/* e^x within 2 ulp for LLM_EXP_MIN <= x <= LLM_EXP_MAX; 0 below (also for -inf), exp(88) above; NaN
 * gives NaN. */
static inline float
llm_expf(float x)
{
	float c = x > LLM_EXP_MAX ? LLM_EXP_MAX : x;
	float t, n, r, p;
	uint32_t bits;

	c = c < LLM_EXP_MIN ? LLM_EXP_MIN : c;
	t = fmaf(c, LLM_LOG2E, LLM_ROUND_MAGIC); /* its low bits hold the rounded integer */
	n = t - LLM_ROUND_MAGIC;
	r = fmaf(n, -LLM_LN2_HI, c);
	r = fmaf(n, -LLM_LN2_LO, r);
	p = 1.9875691500e-4f;
	p = fmaf(p, r, 1.3981999507e-3f);
	p = fmaf(p, r, 8.3334519073e-3f);
	p = fmaf(p, r, 4.1665795894e-2f);
	p = fmaf(p, r, 1.6666665459e-1f);
	p = fmaf(p, r, 5.0000001201e-1f);
	p = fmaf(p, r * r, r + 1.0f);
	memcpy(&bits, &t, sizeof(bits));
	bits = (bits + 127u) << 23;
	memcpy(&r, &bits, sizeof(r));
	return llm_mathf_choose(0u - (uint32_t) (x < LLM_EXP_MIN), 0.0f, p * r);
}

/* Natural logarithm within 2 ulp for normal x > 0; -inf for x <= 0 and for subnormals; inf and NaN
 * give themselves. */
static inline float
llm_logf(float x)
{
	uint32_t raw, bits;
	float e, m, z, p;
	int32_t low;

	memcpy(&raw, &x, sizeof(raw));
	bits = (raw & 0x007FFFFFu) | 0x3F000000u; /* mantissa in [0.5, 1) */
	low = bits < 0x3F3504F3u;                 /* below sqrt(1/2): use twice the mantissa */
	bits += (uint32_t) low << 23;
	memcpy(&m, &bits, sizeof(m));
	e = (float) ((int32_t) (raw >> 23) - 126 - low);
	m -= 1.0f;
	z = m * m;
	p = 7.0376836292e-2f;
	p = fmaf(p, m, -1.1514610310e-1f);
	p = fmaf(p, m, 1.1676998740e-1f);
	p = fmaf(p, m, -1.2420140846e-1f);
	p = fmaf(p, m, 1.4249322787e-1f);
	p = fmaf(p, m, -1.6668057665e-1f);
	p = fmaf(p, m, 2.0000714765e-1f);
	p = fmaf(p, m, -2.4999993993e-1f);
	p = fmaf(p, m, 3.3333331174e-1f);
	p = p * m * z;
	p = fmaf(e, LLM_LN2_LO, p);
	p = fmaf(z, -0.5f, p);
	p = fmaf(e, LLM_LN2_HI, m + p);
	p = llm_mathf_choose(0u - (uint32_t) ((int32_t) raw < 0x00800000), -INFINITY, p);
	return llm_mathf_choose(0u - (uint32_t) ((raw & 0x7FFFFFFFu) >= 0x7F800000u), x, p);
}

#endif
