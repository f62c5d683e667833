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

/* One block of 32 K of column c into its half of a unit. */
static void
pack_block(LlmDtype type, const uint8_t *block, uint8_t *unit, int half, int c)
{
	const uint8_t *q;
	uint8_t *out = unit + llm_panel_head_nbytes(type);

	memcpy(unit + half * 32 + c * 2, block, 2);
	if (type == LLM_DTYPE_Q8_0)
	{
		q = block + offsetof(LlmBlockQ8_0, q);
		for (int k = 0; k < 32; k++)
			out[half * 512 + (k / 4) * 64 + c * 4 + k % 4] = q[k] ^ 0x80;
		return;
	}
	if (type == LLM_DTYPE_Q4_1)
	{
		memcpy(unit + LLM_PANEL_SCALES + half * 32 + c * 2, block + offsetof(LlmBlockQ4_1, m), 2);
		q = block + offsetof(LlmBlockQ4_1, q);
	}
	else
		q = block + offsetof(LlmBlockQ4_0, q);
	for (int j = 0; j < 4; j++)
		memcpy(out + half * 256 + j * 64 + c * 4, q + 4 * j, 4);
}

static void
pack_quant_row(const LlmWeightView *w, const uint8_t *row, int c, uint8_t *out)
{
	size_t block_nbytes = (size_t) llm_dtype_info(w->type)->block_nbytes;

	for (int32_t b = 0; b < w->cols / LLM_BLOCK; b++)
		pack_block(w->type, row + (size_t) b * block_nbytes,
				   out + (size_t) (b / 2) * llm_panel_unit_nbytes(w->type), b % 2, c);
}

void
llm_panel_pack(const LlmWeightView *w, int32_t panel, uint8_t *out)
{
	size_t row_nbytes = llm_dtype_row_nbytes(w->type, w->cols);

	for (int c = 0; c < LLM_LANES && panel * LLM_LANES + c < w->rows; c++)
	{
		const uint8_t *row = w->data + (size_t) (panel * LLM_LANES + c) * row_nbytes;
		size_t size = w->type == LLM_DTYPE_F32 ? 4 : 2;

		if (llm_dtype_info(w->type)->block == 1)
			for (int32_t k = 0; k < w->cols; k++)
				memcpy(out + ((size_t) k * LLM_LANES + (size_t) c) * size, row + (size_t) k * size,
					   size);
		else
			pack_quant_row(w, row, c, out);
	}
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
