/*
 * kernels/qgemm_avx2.c - quantised products with AVX2.
 *
 * vpmaddubsw saturates its 16-bit pair sums, so both operands are kept small enough to be exact:
 * Q8_0 multiplies |w| by x with w's sign (2 * 128 * 127 < 2^15); 4-bit weights are 0..15, and even
 * the eight pair sums of a half together stay below 2^15 (16 * 15 * 127 = 30480).
 */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/vec_avx2.h"

#define QTILE_ROWS 4
#define QTILE_COLS 1
#define QTILE_WIDE_ROWS 4
#define QTILE_SHAPES(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1)

typedef struct vi
{
	__m256i a; /* lanes 0..7 */
	__m256i b; /* lanes 8..15 */
} vi;

VEC_INLINE vf
vi_to_float(vi v)
{
	return (vf){_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)};
}

VEC_INLINE __m256i
x4(const int8_t *q)
{
	int32_t v;

	memcpy(&v, q, sizeof(v));
	return _mm256_set1_epi32(v);
}

VEC_INLINE vi
qtile_start(const LlmDtype type, const LlmQ8Unit *x, int half)
{
	int32_t v = type == LLM_DTYPE_Q4_0 ? x->corr8[half] : 0;

	return (vi){_mm256_set1_epi32(v), _mm256_set1_epi32(v)};
}

VEC_INLINE void
dot_q8(const int R, vi sum[QTILE_ROWS][QTILE_COLS], const uint8_t *w, const LlmQ8Unit *x,
	   size_t ldx, int half)
{
	const __m256i flip = _mm256_set1_epi8((char) 0x80), ones = _mm256_set1_epi16(1);

	for (int j = 0; j < 8; j++)
	{
		__m256i wa = _mm256_xor_si256(_mm256_load_si256((const __m256i *) (w + j * 64)), flip);
		__m256i wb = _mm256_xor_si256(_mm256_load_si256((const __m256i *) (w + j * 64 + 32)), flip);
		__m256i abs_a = _mm256_abs_epi8(wa), abs_b = _mm256_abs_epi8(wb);

		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			__m256i q = x4(x[(size_t) r * ldx].q + half * 32 + j * 4);
			__m256i pa = _mm256_maddubs_epi16(abs_a, _mm256_sign_epi8(q, wa));
			__m256i pb = _mm256_maddubs_epi16(abs_b, _mm256_sign_epi8(q, wb));

			sum[r][0].a = _mm256_add_epi32(sum[r][0].a, _mm256_madd_epi16(pa, ones));
			sum[r][0].b = _mm256_add_epi32(sum[r][0].b, _mm256_madd_epi16(pb, ones));
		}
	}
}

VEC_INLINE void
dot_q4(const int R, vi sum[QTILE_ROWS][QTILE_COLS], const uint8_t *w, const LlmQ8Unit *x,
	   size_t ldx, int half)
{
	const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
	__m256i pa[QTILE_ROWS], pb[QTILE_ROWS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
		pa[r] = pb[r] = _mm256_setzero_si256();
	VEC_UNROLL
	for (int j = 0; j < 8; j++) /* low nibbles of the four vectors, then their high ones */
	{
		__m256i wa = _mm256_load_si256((const __m256i *) (w + j % 4 * 64));
		__m256i wb = _mm256_load_si256((const __m256i *) (w + j % 4 * 64 + 32));

		wa = _mm256_and_si256(j < 4 ? wa : _mm256_srli_epi16(wa, 4), low);
		wb = _mm256_and_si256(j < 4 ? wb : _mm256_srli_epi16(wb, 4), low);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			__m256i q = x4(x[(size_t) r * ldx].q + half * 32 + j * 4);

			pa[r] = _mm256_add_epi16(pa[r], _mm256_maddubs_epi16(wa, q));
			pb[r] = _mm256_add_epi16(pb[r], _mm256_maddubs_epi16(wb, q));
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		sum[r][0].a = _mm256_add_epi32(sum[r][0].a, _mm256_madd_epi16(pa[r], ones));
		sum[r][0].b = _mm256_add_epi32(sum[r][0].b, _mm256_madd_epi16(pb[r], ones));
	}
}

VEC_INLINE void
qtile_dot(const int R, const int C, vi sum[QTILE_ROWS][QTILE_COLS], const LlmDtype type,
		  const uint8_t *w, size_t panel, const LlmQ8Unit *x, size_t ldx, int half)
{
	(void) C;
	(void) panel;
	if (type == LLM_DTYPE_Q8_0)
		dot_q8(R, sum, w, x, ldx, half);
	else
		dot_q4(R, sum, w, x, ldx, half);
}

#include "kernels/qgemm_tile.h"

void
llm_gemm_quant_avx2(const LlmGemm *g)
{
	qtile_drive(g);
}

#endif
