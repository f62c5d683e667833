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

		if (left >= LLM_Q8_UNIT && vec_quantise_unit(x + i, out))
			continue;
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

/* n <= 32 numbers of a vector, from value i on, as int8 in units of d. */
VEC_INLINE void
kv_store_int8(const float *x, int n, float d, LlmKvVector to, int32_t i)
{
	int8_t *out = (int8_t *) to.values + (size_t) (i / to.run) * (size_t) to.stride;
	float y[32];
	int8_t q[32] = {0}, *from = q;
	int32_t low;

	vf_store(y, vec_saturate(vf_load_n(x, n), LLM_KV_MAX));
	vf_store(y + 16, vec_saturate(vf_load_n(x + 16, n - 16), LLM_KV_MAX));
	if (d > 0.0f)
		vec_quantise(y, n, d, q, &low);
	if (to.run == 1)
		for (int j = 0; j < n; j++)
			out[(size_t) j * (size_t) to.stride] = q[j];
	else
	{
		for (; n >= 4; n -= 4, from += 4, out += to.stride)
			memcpy(out, from, 4);
		for (int j = 0; j < n; j++)
			out[j] = from[j];
	}
}

/* n <= 16 numbers of a vector, from value i on, as halves or floats. */
VEC_INLINE void
kv_store_float(const float *x, int n, LlmDtype type, LlmKvVector to, int32_t i)
{
	float max = type == LLM_DTYPE_F16 ? LLM_HALF_MAX : LLM_KV_MAX;
	vf v = vec_saturate(n == 16 ? vf_load(x) : vf_load_n(x, n), max);
	uint16_t *halves = (uint16_t *) to.values + (size_t) i * (size_t) to.stride;
	float *floats = (float *) to.values + (size_t) i * (size_t) to.stride;

	if (type == LLM_DTYPE_F16 && to.stride == 1 && n == 16)
		vf_store_half(halves, v);
	else if (type == LLM_DTYPE_F16)
	{
		uint16_t h[16];

		vf_store_half(h, v);
		for (int j = 0; j < n; j++)
			halves[(size_t) j * (size_t) to.stride] = h[j];
	}
	else if (to.stride == 1)
		vf_store_n(floats, v, n);
	else
	{
		float f[16];

		vf_store(f, v);
		for (int j = 0; j < n; j++)
			floats[(size_t) j * (size_t) to.stride] = f[j];
	}
}

/* Largest |x| of a vector as bits. */
VEC_INLINE uint32_t
vec_largest_bits(const float *x, int32_t n)
{
	uint32_t bits = 0;

	for (int32_t i = 0; i < n; i += 32)
	{
		uint32_t b = vec_absmax_bits(x + i, n - i < 32 ? n - i : 32);

		bits = b > bits ? b : bits;
	}
	return bits;
}

VEC_FN bool
op_kv_store(const float *x, int32_t n, LlmDtype type, LlmKvVector to)
{
	static const float zeros[32];
	int32_t span = type == LLM_DTYPE_I8 ? 32 : 16;
	uint32_t bits = vec_largest_bits(x, n);
	bool good = bits <= 0x7F800000u; /* above infinity there are only NaNs */
	float amax, d;

	if (!good)
		bits = 0;
	memcpy(&amax, &bits, sizeof(amax));
	d = kv_scale(amax < LLM_KV_MAX ? amax : LLM_KV_MAX);
	if (type == LLM_DTYPE_I8)
		*to.scale = d;
	for (int32_t i = 0; i < n; i += span)
	{
		int left = n - i < span ? n - i : span;

		if (type == LLM_DTYPE_I8)
			kv_store_int8(good ? x + i : zeros, left, d, to, i);
		else
			kv_store_float(good ? x + i : zeros, left, type, to, i);
	}
	return good;
}

VEC_FN void
op_attn_query(const float *q, int32_t n, LlmAttnQuery *out)
{
	size_t plane = llm_attn_query_plane(n);
	uint32_t bits = vec_largest_bits(q, n);
	float amax, d;

	memcpy(&amax, &bits, sizeof(amax));
	d = amax / (float) LLM_ATTN_FIXED;
	out->scale = bits >= 0x7F800000u ? NAN : d < FLT_MIN ? 0.0f : d;
	out->sum = 0;
	if (!(out->scale > 0.0f))
	{
		memset(out->v, 0, 2 * plane);
		return;
	}
	for (int32_t i = 0; i < n; i += 64)
	{
		_Alignas(64) float y[64];

		VEC_UNROLL
		for (int32_t j = 0; j < 64; j += 16)
			vf_store(y + j, vf_div(vf_load_n(q + i + j, n - i - j), vf_set1(d)));
		out->sum += vec_fixed_store64(y, vf_set1(1.0f), out->v, (size_t) i, plane);
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

/* The members of an LlmKernels that this file and attn_ops.h give. */
#define ROW_KERNELS                                                                                \
	.quantise = op_quantise, .rms_norm = op_rms_norm, .silu_gate = op_silu_gate, .rope = op_rope,  \
	.kv_store = op_kv_store, .attn_query = op_attn_query, .attn_fold = op_attn_fold,               \
	.attn_finish = op_attn_finish

#endif
