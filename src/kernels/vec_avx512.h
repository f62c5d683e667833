/* kernels/vec_avx512.h - 16 lanes as one AVX-512 register; the names of vec_generic.h, the same
 * bits. */
#ifndef LLM_KERNELS_VEC_AVX512_H
#define LLM_KERNELS_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define VEC_TARGET                                                                                 \
	__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")))
#define VEC_FN VEC_TARGET static
#define VEC_INLINE VEC_TARGET static inline __attribute__((always_inline))
#define VEC_UNROLL _Pragma("GCC unroll 16")
#define VEC_ATTN_ROWS 6
#define VEC_ATTN_GROUPS 4
#define VEC_INT_GROUPS 2
#define VEC_INT_PARTS 2

typedef __m512 vf;

VEC_INLINE __mmask16
vec_mask(int n)
{
	return n >= 16 ? (__mmask16) 0xFFFF : n <= 0 ? (__mmask16) 0 : (__mmask16) ((1u << n) - 1);
}

VEC_INLINE vf
vf_set1(float x)
{
	return _mm512_set1_ps(x);
}

VEC_INLINE vf
vf_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

VEC_INLINE vf
vf_load_n(const float *p, int n)
{
	return _mm512_maskz_loadu_ps(vec_mask(n), p);
}

VEC_INLINE vf
vf_load_half(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
}

VEC_INLINE vf
vf_load_bf16(const uint16_t *p)
{
	__m256i h = _mm256_loadu_si256((const __m256i *) p);

	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

VEC_INLINE vf
vf_load_int8(const int8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p)));
}

VEC_INLINE void
vf_store(float *p, vf v)
{
	_mm512_storeu_ps(p, v);
}

VEC_INLINE void
vf_store_n(float *p, vf v, int n)
{
	_mm512_mask_storeu_ps(p, vec_mask(n), v);
}

VEC_INLINE void
vf_store_half(uint16_t *p, vf v)
{
	_mm256_storeu_si256((__m256i *) p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

VEC_INLINE vf
vf_add(vf a, vf b)
{
	return _mm512_add_ps(a, b);
}

VEC_INLINE vf
vf_sub(vf a, vf b)
{
	return _mm512_sub_ps(a, b);
}

VEC_INLINE vf
vf_mul(vf a, vf b)
{
	return _mm512_mul_ps(a, b);
}

VEC_INLINE vf
vf_div(vf a, vf b)
{
	return _mm512_div_ps(a, b);
}

VEC_INLINE vf
vf_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

VEC_INLINE vf
vf_min(vf a, vf b)
{
	return _mm512_min_ps(a, b);
}

VEC_INLINE vf
vf_fma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

VEC_INLINE vf
vf_if_less(vf x, vf bound, vf b, vf a)
{
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, bound, _CMP_LT_OQ), a, b);
}

VEC_INLINE vf
vf_between(vf v, int lo, int hi, vf other)
{
	return _mm512_mask_blend_ps((__mmask16) (vec_mask(hi) & ~vec_mask(lo)), other, v);
}

VEC_INLINE vf
vf_scale2(vf a, vf n)
{
	return _mm512_scalef_ps(a, n);
}

VEC_INLINE vf
vf_swap_pairs(vf a)
{
	return _mm512_permute_ps(a, 0xB1);
}

VEC_INLINE __m256
vec_high_half(__m512 v)
{
	return _mm512_extractf32x8_ps(v, 1);
}

VEC_INLINE float
vf_sum(vf v)
{
	__m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), vec_high_half(v));
	__m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
	__m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));

	return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

VEC_INLINE float
vf_max_lane(vf v)
{
	__m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(v), vec_high_half(v));
	__m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
	__m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));

	return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

/* One level of the tree of rows: op of lanes of two vectors, each cut in two. */
#define VEC_LEVEL(op, shuffle, a, b, first, second) op(shuffle(a, b, first), shuffle(a, b, second))

/* The trees of 16 rows side by side: halves, quarters, pairs and lanes of two, four, eight, 16 rows. */
#define VEC_TREE(op)                                                                               \
	vf a[8], b[4], c[2], d;                                                                        \
	VEC_UNROLL                                                                                     \
	for (int i = 0; i < 8; i++)                                                                    \
		a[i] = VEC_LEVEL(op, _mm512_shuffle_f32x4, vf_load(rows[2 * i]), vf_load(rows[2 * i + 1]), \
						 0x44, 0xEE);                                                              \
	VEC_UNROLL                                                                                     \
	for (int i = 0; i < 4; i++)                                                                    \
		b[i] = VEC_LEVEL(op, _mm512_shuffle_f32x4, a[2 * i], a[2 * i + 1], 0x88, 0xDD);            \
	VEC_UNROLL                                                                                     \
	for (int i = 0; i < 2; i++)                                                                    \
		c[i] = VEC_LEVEL(op, _mm512_shuffle_ps, b[2 * i], b[2 * i + 1], 0x44, 0xEE);               \
	d = VEC_LEVEL(op, _mm512_shuffle_ps, c[0], c[1], 0x88, 0xDD);                                  \
	return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7,   \
												   11, 15),                                        \
								 d)

/* Few rows one by one, more by the trees. */
#define VEC_ROWS(name, one, op)                                                                    \
	VEC_INLINE vf name(const float(*rows)[16], int n)                                              \
	{                                                                                              \
		_Alignas(64) float x[16];                                                                  \
                                                                                                   \
		if (n > 6)                                                                                 \
		{                                                                                          \
			VEC_TREE(op);                                                                          \
		}                                                                                          \
		for (int i = 0; i < n; i++)                                                                \
			x[i] = one(vf_load(rows[i]));                                                          \
		return vf_load_n(x, n);                                                                    \
	}

VEC_ROWS(vf_sum_rows, vf_sum, _mm512_add_ps)
VEC_ROWS(vf_max_rows, vf_max_lane, _mm512_max_ps)

#undef VEC_ROWS
#undef VEC_TREE
#undef VEC_LEVEL

VEC_INLINE uint32_t
vec_absmax_bits(const float *x, int n)
{
	__m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
	__m512i lo = _mm512_castps_si512(vf_load_n(x, n));
	__m512i hi = _mm512_castps_si512(vf_load_n(x + 16, n - 16));
	__m512i m = _mm512_max_epi32(_mm512_and_si512(lo, mask), _mm512_and_si512(hi, mask));

	return (uint32_t) _mm512_reduce_max_epi32(m);
}

/* Sum of 16 signed bytes. */
VEC_INLINE int32_t
vec_sum_int8(__m128i q)
{
	__m128i s = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8((char) 0x80)), _mm_setzero_si128());

	return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 2) - 16 * 128;
}

VEC_INLINE int32_t
vec_quantise(const float *x, int n, float d, int8_t *q, int32_t *low)
{
	vf vd = vf_set1(d);
	__m128i lo = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_div_ps(vf_load_n(x, n), vd)));
	__m128i hi =
		_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_div_ps(vf_load_n(x + 16, n - 16), vd)));

	_mm_storeu_si128((__m128i *) q, lo);
	_mm_storeu_si128((__m128i *) (q + 16), hi);
	*low = vec_sum_int8(lo);
	return *low + vec_sum_int8(hi);
}

/* x / d, correctly rounded, from y, which is 1 / d correctly rounded: two steps, the first of which brings the
 * quotient to within a unit of its last place (P. Markstein, IBM Journal of Research and Development 34(1), 1990). */
VEC_INLINE __m512
vec_quotient(__m512 x, __m512 d, __m512 y)
{
	__m512 q = _mm512_mul_ps(x, y);

	q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, d, x), y, q);
	return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, d, x), y, q);
}

/* The largest magnitudes of values 0 .. 31 and 32 .. 63, as bits, in the first two lanes. */
VEC_INLINE __m128i
vec_absmax_halves(const __m512 v[4])
{
	__m512i mask = _mm512_set1_epi32(0x7FFFFFFF), m[2];

	for (int h = 0; h < 2; h++)
		m[h] = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[2 * h]), mask),
								_mm512_and_si512(_mm512_castps_si512(v[2 * h + 1]), mask));
	m[0] = _mm512_max_epi32(_mm512_shuffle_i64x2(m[0], m[1], 0x44),
							_mm512_shuffle_i64x2(m[0], m[1], 0xEE));
	m[0] = _mm512_max_epi32(m[0], _mm512_shuffle_i64x2(m[0], m[0], 0xB1));
	m[0] = _mm512_max_epi32(m[0], _mm512_shuffle_epi32(m[0], (_MM_PERM_ENUM) 0x4E));
	m[0] = _mm512_max_epi32(m[0], _mm512_shuffle_epi32(m[0], (_MM_PERM_ENUM) 0xB1));
	return _mm_unpacklo_epi32(_mm512_castsi512_si128(m[0]), _mm512_extracti32x4_epi32(m[0], 2));
}

/* d, s, corr and corr_low of a unit from its scales and bytes. */
VEC_INLINE void
vec_unit_sums(__m128 d, __m512i bytes, LlmQ8Unit *u)
{
	const __m512i fours = _mm512_setr_epi32(0, 8, 4, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	__m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
	__m128i low, all, corr;

	s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, (_MM_PERM_ENUM) 0x4E));
	s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, (_MM_PERM_ENUM) 0xB1));
	low = _mm512_castsi512_si128(_mm512_permutexvar_epi32(fours, s)); /* then the second 16 */
	all = _mm_add_epi32(low, _mm_shuffle_epi32(low, 0x4E));
	corr = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(_mm_unpacklo_epi64(all, low), 7));
	_mm_storeu_ps(u->d, _mm_movelh_ps(d, _mm_mul_ps(d, _mm_cvtepi32_ps(all))));
	_mm_storeu_si128((__m128i *) u->corr, corr);
}

/* Both halves of a whole unit at once, without dividing every value. False, with nothing done, when a scale is not one
 * with which the residuals of quotients are exact. */
VEC_INLINE bool
vec_quantise_unit(const float *x, LlmQ8Unit *u)
{
	const __m512i second = _mm512_set1_epi32(1);
	/* packing goes by lanes of 16 bytes: the fours of each vector apart */
	const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m512 v[4] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16), _mm512_loadu_ps(x + 32),
						 _mm512_loadu_ps(x + 48)};
	__m128i amax = vec_absmax_halves(v);
	__m128 scale = _mm_div_ps(_mm_castsi128_ps(amax), _mm_set1_ps(127.0f));
	__m128 inverse = _mm_div_ps(_mm_set1_ps(1.0f), scale);
	__m512 d[2] = {_mm512_broadcastss_ps(scale),
				   _mm512_permutexvar_ps(second, _mm512_castps128_ps512(scale))};
	__m512 y[2] = {_mm512_broadcastss_ps(inverse),
				   _mm512_permutexvar_ps(second, _mm512_castps128_ps512(inverse))};
	__m512i q[4], bytes;

	if (_mm_movemask_ps(_mm_cmplt_ps(scale, _mm_set1_ps(0x1p-100f))) != 0 ||
		_mm_movemask_epi8(_mm_cmpgt_epi32(amax, _mm_set1_epi32(0x7F7FFFFF))) != 0)
		return false;
	VEC_UNROLL
	for (int i = 0; i < 4; i++)
		q[i] = _mm512_cvtps_epi32(vec_quotient(v[i], d[i / 2], y[i / 2]));
	bytes = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
	bytes = _mm512_permutexvar_epi32(fours, bytes);
	_mm512_storeu_si512(u->q, bytes);
	vec_unit_sums(scale, bytes, u);
	return true;
}

/* ---- whole numbers: a vector v is two planes of bytes, v = 128 high + low, low 0 .. 127 ---- */

typedef __m512i vcol;

typedef struct vfour
{
	__m512i high, low; /* four numbers, 16 times */
} vfour;

typedef __m512i vs; /* of one plane, the high one first */

VEC_INLINE vcol
vcol_load(const int8_t *p, const bool shifted)
{
	__m512i c = _mm512_loadu_si512(p);

	return shifted ? _mm512_xor_si512(c, _mm512_set1_epi8((char) 0x80)) : c;
}

VEC_INLINE vfour
vfour_load(const int8_t *fixed, size_t i, size_t plane)
{
	int32_t high, low;

	memcpy(&high, fixed + 4 * i, sizeof(high));
	memcpy(&low, fixed + plane + 4 * i, sizeof(low));
	return (vfour){_mm512_set1_epi32(high), _mm512_set1_epi32(low)};
}

VEC_INLINE vs
vs_zero(void)
{
	return _mm512_setzero_si512();
}

/* The instruction wants one operand without sign: shifted columns, or a vector without negatives. */
VEC_INLINE vs
vs_dot(vs acc, vcol c, vfour q, const int part, const bool shifted)
{
	__m512i v = part == 0 ? q.high : q.low;

	return shifted ? _mm512_dpbusd_epi32(acc, c, v) : _mm512_dpbusd_epi32(acc, v, c);
}

VEC_INLINE void
vs_store(int32_t *high, int32_t *low, const vs *acc)
{
	_mm512_storeu_si512(high, acc[0]);
	_mm512_storeu_si512(low, acc[1]);
}

VEC_INLINE vf
vf_load_dots(const int32_t *high, const int32_t *low, int32_t sum)
{
	__m512i h = _mm512_slli_epi32(_mm512_loadu_si512(high), 7);
	__m512i l = _mm512_sub_epi32(_mm512_loadu_si512(low), _mm512_set1_epi32(128 * sum));

	return _mm512_cvtepi32_ps(_mm512_add_epi32(h, l));
}

/* Packed within 128 bits, then put in order. */
VEC_INLINE int32_t
vec_fixed_store64(const float *x, vf by, int8_t *fixed, size_t at, size_t plane)
{
	__m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m512i v[4], a, b, low = _mm512_set1_epi16(127);

	VEC_UNROLL
	for (int i = 0; i < 4; i++)
		v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(vf_load(x + 16 * i), by));
	a = _mm512_packs_epi32(v[0], v[1]);
	b = _mm512_packs_epi32(v[2], v[3]);
	_mm512_storeu_si512(fixed + at,
						_mm512_permutexvar_epi32(order,
												 _mm512_packs_epi16(_mm512_srai_epi16(a, 7),
																	_mm512_srai_epi16(b, 7))));
	_mm512_storeu_si512(fixed + plane + at,
						_mm512_permutexvar_epi32(order,
												 _mm512_packs_epi16(_mm512_and_si512(a, low),
																	_mm512_and_si512(b, low))));
	return _mm512_reduce_add_epi32(
		_mm512_add_epi32(_mm512_add_epi32(v[0], v[1]), _mm512_add_epi32(v[2], v[3])));
}

#endif
