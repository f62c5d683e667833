/* kernels/qgemm_avx512.c - quantised products with AVX-512 VNNI: vpdpbusd sums four products of an
 * unsigned weight and a signed activation into 32 bits without saturation, so it is exact. */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/unpack_avx512.h"

#define QTILE_ROWS 12
_Static_assert(2 * QTILE_ROWS == LLM_GEMM_FEW_ROWS, "few rows are two tiles of one panel");
#define QTILE_COLS 2
#define QTILE_WIDE_ROWS 6
#define QTILE_SHAPES_LOW(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1)
#define QTILE_SHAPES_HIGH(X) X(9, 1) X(10, 1) X(11, 1) X(12, 1)
#define QTILE_SHAPES_WIDE(X) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
#define QTILE_SLOW_SHAPES(X) QTILE_SHAPES_LOW(X) QTILE_SHAPES_HIGH(X)
#define QTILE_SHAPES(X) QTILE_SHAPES_LOW(X) QTILE_SHAPES_HIGH(X) QTILE_SHAPES_WIDE(X)

typedef __m512i vi;

VEC_INLINE vf
vi_to_float(vi v)
{
	return _mm512_cvtepi32_ps(v);
}

VEC_INLINE __m512i
x4(const int8_t *q)
{
	int32_t v;

	memcpy(&v, q, sizeof(v));
	return _mm512_set1_epi32(v);
}

VEC_INLINE vi
qtile_start(const LlmDtype type, int32_t v)
{
	(void) type;
	return _mm512_set1_epi32(v);
}

VEC_INLINE void
qtile_dot(const int R, const int C, vi sum[QTILE_ROWS][QTILE_COLS], const LlmDtype type,
		  const uint8_t *w, ptrdiff_t apart, const int8_t *x, size_t ldx, const int j0,
		  const int j1)
{
	VEC_UNROLL
	for (int j = j0; j < j1; j++)
	{
		vi v[QTILE_COLS];

		VEC_UNROLL
		for (int c = 0; c < C; c++)
			v[c] = unpack_weights(type, w + c * apart, j);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			vi q = x4(x + (size_t) r * ldx + j * 4);

			VEC_UNROLL
			for (int c = 0; c < C; c++)
				sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], v[c], q);
		}
	}
}

#include "kernels/qgemm_tile.h"

void
llm_gemm_quant_avx512(const LlmGemm *g)
{
	qtile_drive(g, 1);
}

void
llm_gemm_quant_avx512_pairs(const LlmGemm *g)
{
	qtile_drive(g, 2);
}

#endif
