/* kernels/panel.c - packing weights into panels, and reading a column back. */
#include "kernels/panel.h"

#include <string.h>

#include "kernels/kernels.h"
#include "tensor/block.h"
#include "tensor/half.h"

size_t
llm_panel_nbytes(LlmDtype type, int32_t k)
{
	size_t units = ((size_t) k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;

	if (type == LLM_DTYPE_F32)
		return (size_t) k * LLM_LANES * sizeof(float);
	if (type == LLM_DTYPE_F16)
		return ((size_t) k * LLM_LANES * sizeof(uint16_t) + 63) & ~(size_t) 63;
	return units * llm_panel_unit_nbytes(type);
}

/* Bytes that hold a block's quants: n groups of 4, group j at 64 j of the vectors, flipped by `flip`. */
static inline void
pack_quants(const uint8_t *q, int n, uint32_t flip, uint8_t *out)
{
	for (int j = 0; j < n; j++)
	{
		uint32_t v;

		memcpy(&v, q + 4 * j, sizeof(v));
		v ^= flip;
		memcpy(out + 64 * j, &v, sizeof(v));
	}
}

/* One block of 32 K of column c into its half of a unit. */
static inline void
pack_block(LlmDtype type, const uint8_t *block, uint8_t *unit, int half, int c)
{
	uint8_t *out = unit + llm_panel_head_nbytes(type) + c * 4;

	memcpy(unit + half * 32 + c * 2, block, 2);
	if (type == LLM_DTYPE_Q8_0)
		pack_quants(block + offsetof(LlmBlockQ8_0, q), 8, 0x80808080u, out + half * 512);
	else if (type == LLM_DTYPE_Q4_0)
		pack_quants(block + offsetof(LlmBlockQ4_0, q), 4, 0, out + half * 256);
	else
	{
		memcpy(unit + LLM_PANEL_SCALES + half * 32 + c * 2, block + offsetof(LlmBlockQ4_1, m), 2);
		pack_quants(block + offsetof(LlmBlockQ4_1, q), 4, 0, out + half * 256);
	}
}

/* n columns, unit by unit: what is written stays in the first-level cache. */
static inline void
pack_quant(LlmDtype type, const uint8_t *rows, size_t row_nbytes, int n, int32_t n_blocks,
		   uint8_t *out)
{
	size_t block_nbytes = (size_t) llm_dtype_info(type)->block_nbytes;

	for (int32_t b = 0; b < n_blocks; b++)
		for (int c = 0; c < n; c++)
			pack_block(type, rows + (size_t) c * row_nbytes + (size_t) b * block_nbytes,
					   out + (size_t) (b / 2) * llm_panel_unit_nbytes(type), b % 2, c);
}

/* n columns of k values of `size` bytes, a constant where this is called. */
static inline void
pack_float(size_t size, const uint8_t *rows, size_t row_nbytes, int n, int32_t k, uint8_t *out)
{
	for (size_t i = 0; i < (size_t) k; i++)
		for (size_t c = 0; c < (size_t) n; c++)
			memcpy(out + (i * LLM_LANES + c) * size, rows + c * row_nbytes + i * size, size);
}

void
llm_panel_pack(const LlmWeightView *w, int32_t panel, uint8_t *out)
{
	size_t row_nbytes = llm_dtype_row_nbytes(w->type, w->cols);
	const uint8_t *rows = w->data + (size_t) panel * LLM_LANES * row_nbytes;
	int n = w->rows - panel * LLM_LANES < LLM_LANES ? w->rows - panel * LLM_LANES : LLM_LANES;

	if (w->type == LLM_DTYPE_F32)
		pack_float(4, rows, row_nbytes, n, w->cols, out);
	else if (w->type == LLM_DTYPE_F16)
		pack_float(2, rows, row_nbytes, n, w->cols, out);
	else
		pack_quant(w->type, rows, row_nbytes, n, w->cols / LLM_BLOCK, out);
}

static float
read_half(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, sizeof(h));
	return llm_half_to_f32(h);
}

/* Element k of column c in a unit of quantised weights. */
static float
quant_element(LlmDtype type, const uint8_t *unit, int k, int c)
{
	int half = k / 32, i = k % 32;
	float d = read_half(unit + half * 32 + c * 2);
	const uint8_t *q = unit + llm_panel_head_nbytes(type);
	int nibble;

	if (type == LLM_DTYPE_Q8_0)
		return (float) (q[half * 512 + (i / 4) * 64 + c * 4 + i % 4] - 128) * d;
	nibble = q[half * 256 + (i % 16 / 4) * 64 + c * 4 + i % 4];
	nibble = i < 16 ? nibble & 15 : nibble >> 4;
	if (type == LLM_DTYPE_Q4_0)
		return (float) (nibble - 8) * d;
	return (float) nibble * d + read_half(unit + LLM_PANEL_SCALES + half * 32 + c * 2);
}

void
llm_panel_column(LlmDtype type, const uint8_t *panel, int32_t k, int32_t col, float *out)
{
	for (int32_t i = 0; i < k; i++)
	{
		size_t at = (size_t) i * LLM_LANES + (size_t) col;

		if (type == LLM_DTYPE_F32)
			memcpy(&out[i], panel + at * sizeof(float), sizeof(float));
		else if (type == LLM_DTYPE_F16)
			out[i] = read_half(panel + at * sizeof(uint16_t));
		else
			out[i] = quant_element(type,
								   panel + (size_t) (i / LLM_Q8_UNIT) * llm_panel_unit_nbytes(type),
								   i % LLM_Q8_UNIT, col);
	}
}
