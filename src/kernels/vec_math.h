/* kernels/vec_math.h - exp over 16 lanes: the operations of tensor/mathf.h in the same order.
 * Include after one vec_*.h. */
#ifndef LLM_KERNELS_VEC_MATH_H
#define LLM_KERNELS_VEC_MATH_H

#include "tensor/mathf.h"

VEC_INLINE vf
vf_exp(vf x)
{
	vf magic = vf_set1(LLM_ROUND_MAGIC);
	vf low = vf_set1(LLM_EXP_MIN);
	/* min and max give their second operand for NaN, so that NaN passes through. */
	vf c = vf_max(low, vf_min(vf_set1(LLM_EXP_MAX), x));
	vf n = vf_sub(vf_fma(c, vf_set1(LLM_LOG2E), magic), magic);
	vf r = vf_fma(n, vf_set1(-LLM_LN2_HI), c);
	vf p = vf_set1(1.9875691500e-4f);

	r = vf_fma(n, vf_set1(-LLM_LN2_LO), r);
	p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
	p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
	p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
	p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
	p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
	p = vf_fma(p, vf_mul(r, r), vf_add(r, vf_set1(1.0f)));
	return vf_if_less(x, low, vf_set1(0.0f), vf_scale2(p, n));
}

#endif
