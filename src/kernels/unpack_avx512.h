/*
 * kernels/unpack_avx512.h - the weights of a panel as the unsigned bytes that AVX-512 products read.
 *
 * `type` is a constant at every call, so that each routine holds one type's code alone. Quants of
 * types with an offset are shifted to 8 bits and still carry it.
 */
#ifndef LLM_KERNELS_UNPACK_AVX512_H
#define LLM_KERNELS_UNPACK_AVX512_H

#include "kernels/panel.h"
#include "kernels/vec_avx512.h"

/* Left shift of the bytes of v, or right shift; bits that cross bytes are the caller's to mask. */
VEC_INLINE __m512i
unpack_shift(__m512i v, int left)
{
	return left > 0   ? _mm512_slli_epi16(v, (unsigned) left)
		   : left < 0 ? _mm512_srli_epi16(v, (unsigned) -left)
					  : v;
}

/* k group j (4 k of 16 columns) of a half whose quants begin at q. */
VEC_INLINE __m512i
unpack_weights(const LlmDtype type, const uint8_t *q, const int j)
{
	const int bits = llm_panel_form(type).bits, shift = llm_panel_shift(type);
	__m512i v, high, mask;

	if (bits == 8)
		return _mm512_load_si512(q + j * 64);
	v = unpack_shift(_mm512_load_si512(q + j % 4 * 64), j < 4 ? shift : shift - 4);
	v = _mm512_and_si512(v, _mm512_set1_epi8((char) (15 << shift)));
	if (bits == 4)
		return v;
	if (bits == 5)
	{
		high = unpack_shift(_mm512_load_si512(q + 256), 4 + shift - j);
		mask = _mm512_set1_epi8((char) (16 << shift));
	}
	else
	{
		high = unpack_shift(_mm512_load_si512(q + 256 + j / 4 * 64), 4 + shift - j % 4 * 2);
		mask = _mm512_set1_epi8((char) (48 << shift));
	}
	return _mm512_ternarylogic_epi32(v, high, mask, 0xF8); /* v | (high & mask) */
}

#endif
