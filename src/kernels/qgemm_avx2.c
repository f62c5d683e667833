/*
 * kernels/qgemm_avx2.c - quantised products with AVX2.
 *
 * vpmaddubsw saturates its 16-bit pair sums, so both operands are kept small enough to be exact:
 * Q8_0 multiplies |w| by x with w's sign (2 * 128 * 127 < 2^15); quants of 4, 5 and 6 bits are taken
 * unsigned and not shifted, and 8, 4 and 2 pair sums of them together stay below 2^15 (16 * 15 * 127,
 * 8 * 31 * 127, 4 * 63 * 127).
 */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/panel.h"
#include "kernels/vec_avx2.h"

#define QTILE_ROWS 4
#define QTILE_COLS 1
#define QTILE_WIDE_ROWS 4
#define QTILE_SHAPES(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#define QTILE_SLOW_SHAPES QTILE_SHAPES

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

/* Q8_0 is used without its offset. */
VEC_INLINE vi
qtile_start(const LlmDtype type, int32_t v)
{
	__m256i all = _mm256_set1_epi32(type == LLM_DTYPE_Q8_0 ? 0 : v);

	return (vi){all, all};
}

VEC_INLINE void
dot_bytes(const int R, vi sum[QTILE_ROWS][QTILE_COLS], const uint8_t *w, const int8_t *x,
		  size_t ldx)
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
			__m256i q = x4(x + (size_t) r * ldx + j * 4);
			__m256i pa = _mm256_maddubs_epi16(abs_a, _mm256_sign_epi8(q, wa));
			__m256i pb = _mm256_maddubs_epi16(abs_b, _mm256_sign_epi8(q, wb));

			sum[r][0].a = _mm256_add_epi32(sum[r][0].a, _mm256_madd_epi16(pa, ones));
			sum[r][0].b = _mm256_add_epi32(sum[r][0].b, _mm256_madd_epi16(pb, ones));
		}
	}
}

/* Left shift of the bytes of v, or right shift; bits that cross bytes are the caller's to mask. */
VEC_INLINE __m256i
shift_bytes(__m256i v, int left)
{
	return left > 0 ? _mm256_slli_epi16(v, left) : left < 0 ? _mm256_srli_epi16(v, -left) : v;
}

/* k group j (4 k of 8 columns), unsigned and not shifted. */
VEC_INLINE __m256i
small_weights(const LlmDtype type, const uint8_t *w, const int j)
{
	const int bits = llm_panel_form(type).bits, plane = bits == 6 ? j / 4 : 0;
	__m256i v = _mm256_load_si256((const __m256i *) (w + j % 4 * 64)), high;

	v = _mm256_and_si256(shift_bytes(v, j < 4 ? 0 : -4), _mm256_set1_epi8(15));
	if (bits == 4)
		return v;
	high = _mm256_load_si256((const __m256i *) (w + 256 + plane * 64));
	high = shift_bytes(high, bits == 5 ? 4 - j : 4 - j % 4 * 2);
	high = _mm256_and_si256(high, _mm256_set1_epi8(bits == 5 ? 16 : 48));
	return _mm256_or_si256(v, high);
}

/* Groups j0..j1, few enough that 16 bits hold the sums of pairs. */
VEC_INLINE void
dot_small(const int R, vi sum[QTILE_ROWS][QTILE_COLS], const LlmDtype type, const uint8_t *w,
		  const int8_t *x, size_t ldx, const int j0, const int j1)
{
	const __m256i ones = _mm256_set1_epi16(1);
	__m256i pa[QTILE_ROWS], pb[QTILE_ROWS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
		pa[r] = pb[r] = _mm256_setzero_si256();
	VEC_UNROLL
	for (int j = j0; j < j1; j++)
	{
		__m256i wa = small_weights(type, w, j), wb = small_weights(type, w + 32, j);

		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			__m256i q = x4(x + (size_t) r * ldx + j * 4);

			pa[r] = _mm256_add_epi16(pa[r], _mm256_maddubs_epi16(wa, q));
			pb[r] = _mm256_add_epi16(pb[r], _mm256_maddubs_epi16(wb, q));
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		__m256i a = _mm256_madd_epi16(pa[r], ones), b = _mm256_madd_epi16(pb[r], ones);

		sum[r][0].a = _mm256_add_epi32(sum[r][0].a, _mm256_slli_epi32(a, llm_panel_shift(type)));
		sum[r][0].b = _mm256_add_epi32(sum[r][0].b, _mm256_slli_epi32(b, llm_panel_shift(type)));
	}
}

VEC_INLINE void
qtile_dot(const int R, const int C, vi sum[QTILE_ROWS][QTILE_COLS], const LlmDtype type,
		  const uint8_t *w, ptrdiff_t apart, const int8_t *x, size_t ldx, const int j0,
		  const int j1)
{
	const int bits = llm_panel_form(type).bits;
	const int step = bits == 4 ? 8 : bits == 5 ? 4 : 2;

	(void) C;
	(void) apart;
	if (bits == 8)
	{
		dot_bytes(R, sum, w, x, ldx);
		return;
	}
	VEC_UNROLL
	for (int j = j0; j < j1; j += step)
		dot_small(R, sum, type, w, x, ldx, j, j + step);
}

#include "kernels/qgemm_tile.h"

void
llm_gemm_quant_avx2(const LlmGemm *g)
{
	qtile_drive(g, 1);
}

#endif
