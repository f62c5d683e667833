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
	int32_t sum = 0, low = 0;
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
		sum = vec_quantise(x, n, d, q, &low);
	u->d[half] = d;
	u->s[half] = d * (float) sum;
	u->corr[half] = -128 * sum;
	u->corr_low[half] = -128 * low;
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

/* Clamp numbers to a finite range. */
VEC_INLINE vf
vec_saturate(vf x, float max)
{
	return vf_min(vf_max(x, vf_set1(-max)), vf_set1(max));
}

/* amax / 127 with 16 significant bits; 0 where that is not a normal float. */
static inline float
kv_scale(float amax)
{
	float d = amax / 127.0f;
	uint32_t bits;

	memcpy(&bits, &d, sizeof(bits));
	bits = (bits + 0x7F + (bits >> 8 & 1)) & ~0xFFu;
	memcpy(&d, &bits, sizeof(d));
	return d < FLT_MIN ? 0.0f : d;
}

/* n <= 32 numbers of a vector as int8 in units of d. */
VEC_INLINE void
kv_store_int8(const float *x, int n, float d, int32_t stride, int8_t *out)
{
	float y[32];
	int8_t q[32] = {0};
	int32_t low;

	vf_store(y, vec_saturate(vf_load_n(x, n), LLM_KV_MAX));
	vf_store(y + 16, vec_saturate(vf_load_n(x + 16, n - 16), LLM_KV_MAX));
	if (d > 0.0f)
		vec_quantise(y, n, d, q, &low);
	if (stride == 1)
		memcpy(out, q, (size_t) n);
	else
		for (int j = 0; j < n; j++)
			out[(size_t) j * (size_t) stride] = q[j];
}

/* n <= 16 numbers of a vector as halves or floats. */
VEC_INLINE void
kv_store_float(const float *x, int n, LlmDtype type, int32_t stride, void *out)
{
	float max = type == LLM_DTYPE_F16 ? LLM_HALF_MAX : LLM_KV_MAX;
	vf v = vec_saturate(n == 16 ? vf_load(x) : vf_load_n(x, n), max);

	if (type == LLM_DTYPE_F16 && stride == 1 && n == 16)
		vf_store_half(out, v);
	else if (type == LLM_DTYPE_F16)
	{
		uint16_t h[16];

		vf_store_half(h, v);
		for (int j = 0; j < n; j++)
			((uint16_t *) out)[(size_t) j * (size_t) stride] = h[j];
	}
	else if (stride == 1)
		vf_store_n(out, v, n);
	else
	{
		float f[16];

		vf_store(f, v);
		for (int j = 0; j < n; j++)
			((float *) out)[(size_t) j * (size_t) stride] = f[j];
	}
}

VEC_FN bool
op_kv_store(const float *x, int32_t n, LlmDtype type, int32_t stride, void *out, float *scale)
{
	static const float zeros[32];
	size_t step = (size_t) stride * llm_kv_type_nbytes(type);
	int32_t span = type == LLM_DTYPE_I8 ? 32 : 16;
	uint32_t bits = 0;
	float amax, d;
	bool good;

	for (int32_t i = 0; i < n; i += 32)
	{
		uint32_t b = vec_absmax_bits(x + i, n - i < 32 ? n - i : 32);

		bits = b > bits ? b : bits;
	}
	good = bits <= 0x7F800000u; /* above infinity there are only NaNs */
	if (!good)
		bits = 0;
	memcpy(&amax, &bits, sizeof(amax));
	d = kv_scale(amax < LLM_KV_MAX ? amax : LLM_KV_MAX);
	if (type == LLM_DTYPE_I8)
		*scale = d;
	for (int32_t i = 0; i < n; i += span)
	{
		int left = n - i < span ? n - i : span;
		uint8_t *to = (uint8_t *) out + (size_t) i * step;

		if (type == LLM_DTYPE_I8)
			kv_store_int8(good ? x + i : zeros, left, d, stride, (int8_t *) to);
		else
			kv_store_float(good ? x + i : zeros, left, type, stride, to);
	}
	return good;
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

/* The members of an LlmKernels that this file and attn_ops.h give. */
#define ROW_KERNELS                                                                                \
	.quantise = op_quantise, .rms_norm = op_rms_norm, .silu_gate = op_silu_gate, .rope = op_rope,  \
	.kv_store = op_kv_store, .attn_split = op_attn_split, .attn_fold = op_attn_fold,               \
	.attn_finish = op_attn_finish

#endif
