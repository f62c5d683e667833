/*
 * kernels/vec_avx2.h - 16 lanes as two AVX2 registers; the names of vec_generic.h, the same bits.
 *
 * Functions carry target attributes; the build has no -m flags.
 */
#ifndef LLM_KERNELS_VEC_AVX2_H
#define LLM_KERNELS_VEC_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define VEC_TARGET __attribute__((target("avx2,fma,f16c")))
#define VEC_FN VEC_TARGET static
#define VEC_INLINE VEC_TARGET static inline __attribute__((always_inline))
#define VEC_UNROLL _Pragma("GCC unroll 16")
#define VEC_ATTN_ROWS 2
#define VEC_ATTN_GROUPS 2
#define VEC_INT_GROUPS 1
#define VEC_INT_PARTS 4

typedef struct vf
{
	__m256 a; /* lanes 0..7 */
	__m256 b; /* lanes 8..15 */
} vf;

VEC_INLINE vf
vf_set1(float x)
{
	return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

VEC_INLINE vf
vf_load(const float *p)
{
	return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

/* All ones in the first n lanes of eight. */
VEC_INLINE __m256i
vec_mask(int n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

VEC_INLINE vf
vf_load_n(const float *p, int n)
{
	return (vf){_mm256_maskload_ps(p, vec_mask(n)), _mm256_maskload_ps(p + 8, vec_mask(n - 8))};
}

VEC_INLINE vf
vf_load_half(const uint16_t *p)
{
	return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)),
				_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (p + 8)))};
}

VEC_INLINE __m256
vec_load_bf16(const uint16_t *p)
{
	__m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p));

	return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
}

VEC_INLINE vf
vf_load_bf16(const uint16_t *p)
{
	return (vf){vec_load_bf16(p), vec_load_bf16(p + 8)};
}

VEC_INLINE vf
vf_load_int8(const int8_t *p)
{
	__m128i q = _mm_loadu_si128((const __m128i *) p);

	return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
				_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))};
}

VEC_INLINE void
vf_store(float *p, vf v)
{
	_mm256_storeu_ps(p, v.a);
	_mm256_storeu_ps(p + 8, v.b);
}

VEC_INLINE void
vf_store_n(float *p, vf v, int n)
{
	_mm256_maskstore_ps(p, vec_mask(n), v.a);
	_mm256_maskstore_ps(p + 8, vec_mask(n - 8), v.b);
}

VEC_INLINE void
vf_store_half(uint16_t *p, vf v)
{
	_mm_storeu_si128((__m128i *) p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
	_mm_storeu_si128((__m128i *) (p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}

#define VEC_BOTH(op)                                                                               \
	return (vf)                                                                                    \
	{                                                                                              \
		op(a.a, b.a), op(a.b, b.b)                                                                 \
	}

VEC_INLINE vf
vf_add(vf a, vf b)
{
	VEC_BOTH(_mm256_add_ps);
}

VEC_INLINE vf
vf_sub(vf a, vf b)
{
	VEC_BOTH(_mm256_sub_ps);
}

VEC_INLINE vf
vf_mul(vf a, vf b)
{
	VEC_BOTH(_mm256_mul_ps);
}

VEC_INLINE vf
vf_div(vf a, vf b)
{
	VEC_BOTH(_mm256_div_ps);
}

VEC_INLINE vf
vf_max(vf a, vf b)
{
	VEC_BOTH(_mm256_max_ps);
}

VEC_INLINE vf
vf_min(vf a, vf b)
{
	VEC_BOTH(_mm256_min_ps);
}

#undef VEC_BOTH

VEC_INLINE vf
vf_fma(vf a, vf b, vf c)
{
	return (vf){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}

VEC_INLINE vf
vf_if_less(vf x, vf bound, vf b, vf a)
{
	return (vf){_mm256_blendv_ps(a.a, b.a, _mm256_cmp_ps(x.a, bound.a, _CMP_LT_OQ)),
				_mm256_blendv_ps(a.b, b.b, _mm256_cmp_ps(x.b, bound.b, _CMP_LT_OQ))};
}

VEC_INLINE vf
vf_between(vf v, int lo, int hi, vf other)
{
	__m256i ma = _mm256_andnot_si256(vec_mask(lo), vec_mask(hi));
	__m256i mb = _mm256_andnot_si256(vec_mask(lo - 8), vec_mask(hi - 8));

	return (vf){_mm256_blendv_ps(other.a, v.a, _mm256_castsi256_ps(ma)),
				_mm256_blendv_ps(other.b, v.b, _mm256_castsi256_ps(mb))};
}

VEC_INLINE __m256
vec_scale2(__m256 a, __m256 n)
{
	__m256i e = _mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127));

	return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}

VEC_INLINE vf
vf_scale2(vf a, vf n)
{
	return (vf){vec_scale2(a.a, n.a), vec_scale2(a.b, n.b)};
}

VEC_INLINE vf
vf_swap_pairs(vf a)
{
	return (vf){_mm256_permute_ps(a.a, 0xB1), _mm256_permute_ps(a.b, 0xB1)};
}

VEC_INLINE float
vf_sum(vf v)
{
	__m256 s8 = _mm256_add_ps(v.a, v.b);
	__m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
	__m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));

	return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

VEC_INLINE float
vf_max_lane(vf v)
{
	__m256 s8 = _mm256_max_ps(v.a, v.b);
	__m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
	__m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));

	return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

VEC_INLINE vf
vf_sum_rows(const float (*rows)[16], int n)
{
	_Alignas(32) float x[16] = {0};

	for (int i = 0; i < n; i++)
		x[i] = vf_sum(vf_load(rows[i]));
	return vf_load(x);
}

VEC_INLINE vf
vf_max_rows(const float (*rows)[16], int n)
{
	_Alignas(32) float x[16] = {0};

	for (int i = 0; i < n; i++)
		x[i] = vf_max_lane(vf_load(rows[i]));
	return vf_load(x);
}

VEC_INLINE __m256i
vec_abs_bits(__m256 x)
{
	return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
}

VEC_INLINE uint32_t
vec_absmax_bits(const float *x, int n)
{
	vf lo = n >= 16 ? vf_load(x) : vf_load_n(x, n);
	vf hi = n >= 32 ? vf_load(x + 16) : vf_load_n(x + 16, n - 16);
	__m256i m = _mm256_max_epi32(_mm256_max_epi32(vec_abs_bits(lo.a), vec_abs_bits(lo.b)),
								 _mm256_max_epi32(vec_abs_bits(hi.a), vec_abs_bits(hi.b)));
	__m128i m4 = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));

	m4 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0x4E));
	m4 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0xB1));
	return (uint32_t) _mm_cvtsi128_si32(m4);
}

/* Sum of 16 signed bytes. */
VEC_INLINE int32_t
vec_sum_int8(__m128i q)
{
	__m128i s = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8((char) 0x80)), _mm_setzero_si128());

	return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 2) - 16 * 128;
}

/* There is none. */
VEC_INLINE bool
vec_quantise_unit(const float *x, LlmQ8Unit *u)
{
	return false;
}

VEC_INLINE int32_t
vec_quantise(const float *x, int n, float d, int8_t *q, int32_t *low)
{
	vf lo = n >= 16 ? vf_load(x) : vf_load_n(x, n);
	vf hi = n >= 32 ? vf_load(x + 16) : vf_load_n(x + 16, n - 16);
	__m256 vd = _mm256_set1_ps(d);
	__m256i i0 = _mm256_cvtps_epi32(_mm256_div_ps(lo.a, vd));
	__m256i i1 = _mm256_cvtps_epi32(_mm256_div_ps(lo.b, vd));
	__m256i i2 = _mm256_cvtps_epi32(_mm256_div_ps(hi.a, vd));
	__m256i i3 = _mm256_cvtps_epi32(_mm256_div_ps(hi.b, vd));
	__m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));

	packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	_mm256_storeu_si256((__m256i *) q, packed);
	*low = vec_sum_int8(_mm256_castsi256_si128(packed));
	return *low + vec_sum_int8(_mm256_extracti128_si256(packed, 1));
}

/* ---- whole numbers: vectors are int16, columns become it ---- */

typedef struct vcol
{
	__m256i x[4]; /* four columns each, four numbers of each column */
} vcol;

typedef __m256i vfour; /* four numbers, four times */

typedef __m256i vs; /* two sums of each of four columns */

VEC_INLINE vcol
vcol_load(const int8_t *p, const bool shifted)
{
	vcol r;

	(void) shifted;
	VEC_UNROLL
	for (int i = 0; i < 4; i++)
		r.x[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) (p + 16 * i)));
	return r;
}

VEC_INLINE vfour
vfour_load(const int8_t *fixed, size_t i, size_t plane)
{
	(void) plane;
	return _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *) (fixed + 8 * i)));
}

VEC_INLINE vs
vs_zero(void)
{
	return _mm256_setzero_si256();
}

VEC_INLINE vs
vs_dot(vs acc, vcol c, vfour q, const int part, const bool shifted)
{
	(void) shifted;
	return _mm256_add_epi32(acc, _mm256_madd_epi16(c.x[part], q));
}

VEC_INLINE void
vs_store(int32_t *high, int32_t *low, const vs *acc)
{
	(void) low;
	VEC_UNROLL
	for (int i = 0; i < 4; i += 2)
	{
		__m256i s = _mm256_hadd_epi32(acc[i], acc[i + 1]);

		_mm256_storeu_si256((__m256i *) (high + 4 * i), _mm256_permute4x64_epi64(s, 0xD8));
	}
}

VEC_INLINE vf
vf_load_dots(const int32_t *high, const int32_t *low, int32_t sum)
{
	(void) low;
	(void) sum;
	return (vf){_mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *) high)),
				_mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *) (high + 8)))};
}

VEC_INLINE int32_t
vec_fixed_store(vf x, int8_t *fixed, size_t at, size_t plane)
{
	__m256i a = _mm256_cvtps_epi32(x.a), b = _mm256_cvtps_epi32(x.b);
	__m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
	__m256i sum = _mm256_add_epi32(a, b);
	__m128i s4 = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));

	(void) plane;
	_mm256_storeu_si256((__m256i *) (fixed + 2 * at), v);
	s4 = _mm_add_epi32(s4, _mm_shuffle_epi32(s4, 0x4E));
	s4 = _mm_add_epi32(s4, _mm_shuffle_epi32(s4, 0xB1));
	return _mm_cvtsi128_si32(s4);
}

VEC_INLINE int32_t
vec_fixed_store64(const float *x, vf by, int8_t *fixed, size_t at, size_t plane)
{
	int32_t sum = 0;

	VEC_UNROLL
	for (size_t i = 0; i < 64; i += 16)
		sum += vec_fixed_store(vf_mul(vf_load(x + i), by), fixed, at + i, plane);
	return sum;
}

#endif
