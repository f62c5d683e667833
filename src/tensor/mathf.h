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

/* e^x within 2 ulp for LLM_EXP_MIN <= x <= LLM_EXP_MAX; 0 below (also for -inf), exp(88) above; NaN
 * gives NaN. */
static inline float
llm_expf(float x)
{
	float n, r, p;
	uint32_t bits;

	if (x < LLM_EXP_MIN)
		return 0.0f;
	if (x > LLM_EXP_MAX)
		x = LLM_EXP_MAX;
	if (x != x)
		return x;
	n = fmaf(x, LLM_LOG2E, LLM_ROUND_MAGIC) - LLM_ROUND_MAGIC;
	r = fmaf(n, -LLM_LN2_HI, x);
	r = fmaf(n, -LLM_LN2_LO, r);
	p = 1.9875691500e-4f;
	p = fmaf(p, r, 1.3981999507e-3f);
	p = fmaf(p, r, 8.3334519073e-3f);
	p = fmaf(p, r, 4.1665795894e-2f);
	p = fmaf(p, r, 1.6666665459e-1f);
	p = fmaf(p, r, 5.0000001201e-1f);
	p = fmaf(p, r * r, r + 1.0f);
	bits = (uint32_t) ((int32_t) n + 127) << 23;
	memcpy(&r, &bits, sizeof(r));
	return p * r;
}

/* Natural logarithm within 2 ulp for normal x > 0; -inf for x <= 0 and for subnormals. */
static inline float
llm_logf(float x)
{
	uint32_t bits;
	float e, m, z, p;

	if (!(x >= 0x1p-126f))
		return x != x ? x : -INFINITY;
	memcpy(&bits, &x, sizeof(bits));
	if (bits == 0x7F800000u)
		return x;
	e = (float) ((int32_t) (bits >> 23) - 126);
	bits = (bits & 0x007FFFFFu) | 0x3F000000u; /* mantissa in [0.5, 1) */
	memcpy(&m, &bits, sizeof(m));
	if (m < 0.707106781186547524f)
	{
		e -= 1.0f;
		m = m + m;
	}
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
	return fmaf(e, LLM_LN2_HI, m + p);
}

#endif
