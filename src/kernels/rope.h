/*
 * kernels/rope.h - cosines and sines of the rotary embedding, made once per step.
 *
 * A pair (a, b) turns to (a cos - b sin, b cos + a sin). The table holds per value of a head the
 * cosine and the sine with the sign that its partner takes, so that every value is one
 * y = fma(x, cos, partner * sin), in both pair orders.
 */
#ifndef LLM_KERNELS_ROPE_H
#define LLM_KERNELS_ROPE_H

#include "tensor/kv_spec.h"

/* Fill cs [n_dims] and sn [n_dims] for one position. angle = (float) pos * inv_freq, as published
 * models were trained with; exact to 1 ulp or so for |angle| < 2^22. */
void llm_rope_table(const LlmRope *rope, int32_t pos, float *cs, float *sn);

/* sin and cos of x, |x| < 2^22, by reduction with pi/2 in three parts (Cody and Waite) and the
 * polynomials of the Cephes library (S. Moshier). */
void llm_sincosf(float x, float *sin_x, float *cos_x);

#endif
