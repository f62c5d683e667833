/*
 * kernels/vec_generic.h - 16 lanes in plain C.
 *
 * vec_*.h define the same names for other instruction sets; the op files (*_ops.h) are written once
 * over them. vf = 16 floats, lane j holds elements j mod 16. Include one of them per .c file.
 */
#ifndef LLM_KERNELS_VEC_GENERIC_H
#define LLM_KERNELS_VEC_GENERIC_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tensor/half.h"

#define VEC_FN static
#define VEC_INLINE static inline
#define VEC_UNROLL _Pragma("GCC unroll 16")
#define VEC_ATTN_ROWS 2   /* query vectors per pass over a page */
#define VEC_ATTN_GROUPS 1 /* groups of 16 positions, or of 16 values, per pass */
#define VEC_INT_GROUPS 1  /* the same of whole numbers */
#define VEC_INT_PARTS 1   /* registers that hold 16 sums of them */

typedef struct vf
{
	float f[16];
} vf;

#define VEC_EACH(expr)                                                                             \
	vf r;                                                                                          \
	for (int i = 0; i < 16; i++)                                                                   \
		r.f[i] = (expr);                                                                           \
	return r

VEC_INLINE vf
vf_set1(float x)
{
	VEC_EACH(x);
}

VEC_INLINE vf
vf_load(const float *p)
{
	VEC_EACH(p[i]);
}

/* The first n lanes; the others are 0. */
VEC_INLINE vf
vf_load_n(const float *p, int n)
{
	VEC_EACH(i < n ? p[i] : 0.0f);
}

VEC_INLINE vf
vf_load_half(const uint16_t *p)
{
	VEC_EACH(llm_half_to_f32(p[i]));
}

VEC_INLINE vf
vf_load_bf16(const uint16_t *p)
{
	VEC_EACH(llm_bf16_to_f32(p[i]));
}

VEC_INLINE vf
vf_load_int8(const int8_t *p)
{
	VEC_EACH((float) p[i]);
}

VEC_INLINE void
vf_store(float *p, vf v)
{
	memcpy(p, v.f, sizeof(v.f));
}

VEC_INLINE void
vf_store_n(float *p, vf v, int n)
{
	memcpy(p, v.f, (size_t) n * sizeof(float));
}

VEC_INLINE void
vf_store_half(uint16_t *p, vf v)
{
	for (int i = 0; i < 16; i++)
		p[i] = llm_half_from_f32(v.f[i]);
}

VEC_INLINE vf
vf_add(vf a, vf b)
{
	VEC_EACH(a.f[i] + b.f[i]);
}

VEC_INLINE vf
vf_sub(vf a, vf b)
{
	VEC_EACH(a.f[i] - b.f[i]);
}

VEC_INLINE vf
vf_mul(vf a, vf b)
{
	VEC_EACH(a.f[i] * b.f[i]);
}

VEC_INLINE vf
vf_div(vf a, vf b)
{
	VEC_EACH(a.f[i] / b.f[i]);
}

/* a * b + c, rounded once. */
VEC_INLINE vf
vf_fma(vf a, vf b, vf c)
{
	VEC_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
}

/* a > b ? a : b, so b when either is NaN; as the hardware does. */
VEC_INLINE vf
vf_max(vf a, vf b)
{
	VEC_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}

VEC_INLINE vf
vf_min(vf a, vf b)
{
	VEC_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}

/* Lanes of b where x < bound, of a elsewhere (also where x is NaN). */
VEC_INLINE vf
vf_if_less(vf x, vf bound, vf b, vf a)
{
	VEC_EACH(x.f[i] < bound.f[i] ? b.f[i] : a.f[i]);
}

/* v in lanes lo <= lane < hi, other elsewhere. */
VEC_INLINE vf
vf_between(vf v, int lo, int hi, vf other)
{
	VEC_EACH(i >= lo && i < hi ? v.f[i] : other.f[i]);
}

/* a * 2^n for whole -126 <= n <= 127 and normal results; NaN where a is NaN. */
VEC_INLINE vf
vf_scale2(vf a, vf n)
{
	for (int i = 0; i < 16; i++)
	{
		int32_t e = n.f[i] == n.f[i] ? (int32_t) n.f[i] : 0;
		uint32_t bits = (uint32_t) (e + 127) << 23;
		float power;

		memcpy(&power, &bits, sizeof(bits));
		a.f[i] *= power;
	}
	return a;
}

/* Lanes 2i and 2i + 1 change places. */
VEC_INLINE vf
vf_swap_pairs(vf a)
{
	VEC_EACH(a.f[i ^ 1]);
}

/* The fixed tree of rule R4: lane j + lane j + 8, then + 4, + 2, + 1. */
VEC_INLINE float
vf_sum(vf v)
{
	for (int step = 8; step > 0; step /= 2)
		for (int i = 0; i < step; i++)
			v.f[i] = v.f[i] + v.f[i + step];
	return v.f[0];
}

VEC_INLINE float
vf_max_lane(vf v)
{
	for (int step = 8; step > 0; step /= 2)
		for (int i = 0; i < step; i++)
			v.f[i] = v.f[i] > v.f[i + step] ? v.f[i] : v.f[i + step];
	return v.f[0];
}

/* Lane r = vf_sum of row r, for n <= 16 rows of 16. The other lanes are not said. */
VEC_INLINE vf
vf_sum_rows(const float (*rows)[16], int n)
{
	VEC_EACH(i < n ? vf_sum(vf_load(rows[i])) : 0.0f);
}

VEC_INLINE vf
vf_max_rows(const float (*rows)[16], int n)
{
	VEC_EACH(i < n ? vf_max_lane(vf_load(rows[i])) : 0.0f);
}

/* Largest |x| of n <= 32 values as bits, so that NaN counts above infinity. */
VEC_INLINE uint32_t
vec_absmax_bits(const float *x, int n)
{
	uint32_t max = 0;

	for (int i = 0; i < n; i++)
	{
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bits &= 0x7FFFFFFFu;
		max = bits > max ? bits : max;
	}
	return max;
}

/* A whole unit at once, where that is faster than halves one after the other: the same results. False: nothing is
 * done, for want of such a way or because a scale is too small for it. */
VEC_INLINE bool
vec_quantise_unit(const float *x, LlmQ8Unit *u)
{
	return false;
}

/* q = x / d rounded to nearest even for n <= 32 finite values, |q| <= 127; zeros up to 32. Returns
 * sum(q), and in *low that of the first 16. */
VEC_INLINE int32_t
vec_quantise(const float *x, int n, float d, int8_t *q, int32_t *low)
{
	int32_t sum = 0;

	for (int i = 0; i < 32; i++)
	{
		int32_t v = 0;

		if (i < n)
		{
			float y = x[i] / d;

			v = (int32_t) ((y + 12582912.0f) - 12582912.0f);
		}
		q[i] = (int8_t) v;
		sum += v;
		if (i == 15)
			*low = sum;
	}
	return sum;
}

/* ---- whole numbers: 16 sums of products of int8 columns with a vector of 14 bits ---- */

/* 16 columns, four adjacent numbers of each. */
typedef struct vcol
{
	const int8_t *p;
} vcol;

/* Four numbers of the vector. */
typedef struct vfour
{
	int32_t v[4];
} vfour;

/* A part of 16 sums: VEC_INT_PARTS of them, one register each. */
typedef struct vs
{
	int32_t s[16];
} vs;

/* Columns as the first operand of vs_dot: of signed numbers, or shifted by 128 where the hardware
 * wants that of columns with a vector that may be negative; vf_load_dots takes it off. */
VEC_INLINE vcol
vcol_load(const int8_t *p, const bool shifted)
{
	(void) shifted;
	return (vcol){p};
}

/* Numbers 4 i .. 4 i + 3 of a vector as vec_fixed_store left it. */
VEC_INLINE vfour
vfour_load(const int8_t *fixed, size_t i, size_t plane)
{
	vfour r;

	(void) plane;
	for (size_t k = 0; k < 4; k++)
	{
		int16_t v;

		memcpy(&v, fixed + 2 * (4 * i + k), sizeof(v));
		r.v[k] = v;
	}
	return r;
}

VEC_INLINE vs
vs_zero(void)
{
	return (vs){{0}};
}

/* Part `part` of the sums, with four products more. */
VEC_INLINE vs
vs_dot(vs acc, vcol c, vfour q, const int part, const bool shifted)
{
	(void) part;
	(void) shifted;
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 4; k++)
			acc.s[i] += c.p[4 * i + k] * q.v[k];
	return acc;
}

/* Leave the sums where vf_load_dots finds them: two planes, or the first alone. */
VEC_INLINE void
vs_store(int32_t *high, int32_t *low, const vs *acc)
{
	(void) low;
	memcpy(high, acc->s, sizeof(acc->s));
}

/* 16 sums as floats; sum: of the vector's numbers if columns were shifted, else 0. */
VEC_INLINE vf
vf_load_dots(const int32_t *high, const int32_t *low, int32_t sum)
{
	(void) low;
	(void) sum;
	VEC_EACH((float) high[i]);
}

/* Round 16 numbers of at most 127 * 128 to nearest even and store them as numbers at.. of a vector of
 * 2 * plane bytes. Returns their sum. What a NaN becomes is not said. */
VEC_INLINE int32_t
vec_fixed_store(vf x, int8_t *fixed, size_t at, size_t plane)
{
	int32_t sum = 0;

	(void) plane;
	for (size_t i = 0; i < 16; i++)
	{
		float y = x.f[i] + 12582912.0f;
		int32_t bits;
		int16_t v;

		memcpy(&bits, &y, sizeof(bits));
		v = (int16_t) (bits - 0x4B400000);
		memcpy(fixed + 2 * (at + i), &v, sizeof(v));
		sum += v;
	}
	return sum;
}

/* The same for 64 numbers, x times by. */
VEC_INLINE int32_t
vec_fixed_store64(const float *x, vf by, int8_t *fixed, size_t at, size_t plane)
{
	int32_t sum = 0;

	for (size_t i = 0; i < 64; i += 16)
		sum += vec_fixed_store(vf_mul(vf_load(x + i), by), fixed, at + i, plane);
	return sum;
}

#undef VEC_EACH

#endif
