/*
 * kernels/row_ops.h - what is done to one row: quantising, norm, gate, rotary turn, KV rounding.
 *
 * Written over the 16 lanes of a vec_*.h; include after one. A row's result depends on that row
 * alone. Tails read zeros, which change no sum.
 */
#ifndef LLM_KERNELS_ROW_OPS_H
#define LLM_KERNELS_ROW_OPS_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/vec_math.h"
#include "tensor/half.h"

/* One half (32 values) of a unit, n of them present. */
VEC_INLINE void
quantise_half(const float *x, int n, LlmQ8Unit *u, int half)
{
	uint32_t bits = n > 0 ? vec_absmax_bits(x, n) : 0;
	int8_t *q = u->q + 32 * half;
	int32_t sum = 0;
	float d, amax;

	memcpy(&amax, &bits, sizeof(amax));
	d = amax / 127.0f;
	if (bits >= 0x7F800000u) /* not finite: let it be seen in every output */
	{
		memset(q, 0, 32);
		d = NAN;
	}
	else if (d < FLT_MIN) /* a subnormal scale is too coarse for 7 bits */
	{
		memset(q, 0, 32);
		d = 0.0f;
	}
	else
		sum = vec_quantise(x, n, d, q);
	u->d[half] = d;
	u->s[half] = d * (float) sum;
	u->corr8[half] = -8 * sum;
	u->corr128[half] = -128 * sum;
}

VEC_FN void
op_quantise(const float *x, int32_t n, LlmQ8Unit *out)
{
	for (int32_t i = 0; i < n; i += LLM_Q8_UNIT, out++)
	{
		int32_t left = n - i;

		quantise_half(x + i, left < 32 ? left : 32, out, 0);
		quantise_half(x + i + 32, left < 32 ? 0 : left < 64 ? left - 32 : 32, out, 1);
	}
}

VEC_FN void
op_rms_norm(float *res, const float *add, const float *w, float eps, int32_t n, float *out)
{
	vf sum = vf_set1(0.0f);
	vf inv;
	int32_t full = n & ~15;

	for (int32_t i = 0; i < n; i += 16)
	{
		int left = n - i;
		vf x = i < full ? vf_load(res + i) : vf_load_n(res + i, left);

		if (add != NULL)
		{
			x = vf_add(x, i < full ? vf_load(add + i) : vf_load_n(add + i, left));
			if (i < full)
				vf_store(res + i, x);
			else
				vf_store_n(res + i, x, left);
		}
		sum = vf_fma(x, x, sum);
	}
	inv = vf_set1(1.0f / sqrtf(vf_sum(sum) / (float) n + eps));
	for (int32_t i = 0; i < full; i += 16)
		vf_store(out + i, vf_mul(vf_mul(vf_load(res + i), inv), vf_load(w + i)));
	if (full < n)
	{
		vf x = vf_mul(vf_load_n(res + full, n - full), inv);

		vf_store_n(out + full, vf_mul(x, vf_load_n(w + full, n - full)), n - full);
	}
}

/* gate / (1 + e^-gate) * up */
VEC_INLINE vf
vec_silu_gate(vf gate, vf up)
{
	vf one = vf_set1(1.0f);
	vf e = vf_exp(vf_sub(vf_set1(0.0f), gate));

	return vf_mul(vf_div(gate, vf_add(one, e)), up);
}

VEC_FN void
op_silu_gate(const float *gate, const float *up, int32_t n, float *out)
{
	int32_t full = n & ~15;

	for (int32_t i = 0; i < full; i += 16)
		vf_store(out + i, vec_silu_gate(vf_load(gate + i), vf_load(up + i)));
	if (full < n)
		vf_store_n(out + full,
				   vec_silu_gate(vf_load_n(gate + full, n - full), vf_load_n(up + full, n - full)),
				   n - full);
}

/* y = fma(x, cos, partner * signed sin). */
VEC_FN void
op_rope(const float *x, const float *cs, const float *sn, int32_t n, int32_t n_dims,
		bool interleaved, float *out)
{
	int32_t half = n_dims / 2;

	if (interleaved)
	{
		int32_t full = n_dims & ~15;

		for (int32_t i = 0; i < n_dims; i += 16)
		{
			int left = n_dims - i;
			vf a = i < full ? vf_load(x + i) : vf_load_n(x + i, left);
			vf c = i < full ? vf_load(cs + i) : vf_load_n(cs + i, left);
			vf s = i < full ? vf_load(sn + i) : vf_load_n(sn + i, left);
			vf y = vf_fma(a, c, vf_mul(vf_swap_pairs(a), s));

			if (i < full)
				vf_store(out + i, y);
			else
				vf_store_n(out + i, y, left);
		}
	}
	else
	{
		for (int32_t i = 0; i < half; i += 16)
		{
			int left = half - i < 16 ? half - i : 16;
			vf a = vf_load_n(x + i, left);
			vf b = vf_load_n(x + half + i, left);
			vf c = vf_load_n(cs + i, left);

			vf_store_n(out + i, vf_fma(a, c, vf_mul(b, vf_load_n(sn + i, left))), left);
			vf_store_n(out + half + i, vf_fma(b, c, vf_mul(a, vf_load_n(sn + half + i, left))),
					   left);
		}
	}
	for (int32_t i = n_dims; i < n; i++)
		out[i] = x[i];
}

/* Clamp to the finite range; NaN becomes -max (max gives its second operand). */
VEC_INLINE vf
vec_saturate(vf x, float max)
{
	return vf_min(vf_max(x, vf_set1(-max)), vf_set1(max));
}

VEC_FN void
op_kv_store(const float *x, int32_t n, LlmDtype type, int32_t stride, void *out)
{
	for (int32_t i = 0; i < n; i += 16)
	{
		int left = n - i < 16 ? n - i : 16;
		float max = type == LLM_DTYPE_F16 ? LLM_HALF_MAX : FLT_MAX;
		vf v = vec_saturate(left == 16 ? vf_load(x + i) : vf_load_n(x + i, left), max);

		if (type == LLM_DTYPE_F16)
		{
			uint16_t h[16];
			uint16_t *o = (uint16_t *) out + (size_t) i * (size_t) stride;

			vf_store_half(h, v);
			for (int j = 0; j < left; j++)
				o[(size_t) j * (size_t) stride] = h[j];
		}
		else
		{
			float f[16];
			float *o = (float *) out + (size_t) i * (size_t) stride;

			vf_store(f, v);
			for (int j = 0; j < left; j++)
				o[(size_t) j * (size_t) stride] = f[j];
		}
	}
}

VEC_FN void
op_attn_finish(const float *o, float l, int32_t n, float *out)
{
	vf d = vf_set1(l);

	for (int32_t i = 0; i < n; i += 16)
	{
		if (n - i >= 16)
			vf_store(out + i, vf_div(vf_load(o + i), d));
		else
			vf_store_n(out + i, vf_div(vf_load_n(o + i, n - i), d), n - i);
	}
}

#endif
