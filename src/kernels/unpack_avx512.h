/*
 * kernels/unpack_avx512.h - the weights of a panel as the unsigned bytes that AVX-512 products read.
 *
 * `type` is a constant at every call, so that each routine holds one type's code alone. Weights of
 * the types with an offset still carry it: llm_panel_offset.
 */
#ifndef LLM_KERNELS_UNPACK_AVX512_H
#define LLM_KERNELS_UNPACK_AVX512_H

#include "kernels/panel.h"
#include "kernels/vec_avx512.h"

/* k group j (4 k of 16 columns) of a half whose quants begin at q. */
VEC_INLINE __m512i
unpack_weights(const LlmDtype type, const uint8_t *q, int j)
{
	__m512i v;

	if (type == LLM_DTYPE_Q8_0)
		return _mm512_load_si512(q + j * 64);
	v = _mm512_load_si512(q + j % 4 * 64);
	return _mm512_and_si512(j < 4 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

#endif
