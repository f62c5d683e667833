/* kernels/panel.c - packing weights into panels, and reading a column back. */
#include "kernels/panel.h"

#include <string.h>

#include "kernels/kernels.h"
#include "tensor/block.h"

size_t
llm_panel_nbytes(LlmDtype type, int32_t k)
{
	size_t span = (size_t) llm_panel_form(type).units * LLM_Q8_UNIT;

	if (type == LLM_DTYPE_F32)
		return (size_t) k * LLM_LANES * sizeof(float);
	if (type == LLM_DTYPE_F16 || type == LLM_DTYPE_BF16)
		return ((size_t) k * LLM_LANES * sizeof(uint16_t) + 63) & ~(size_t) 63;
	return ((size_t) k + span - 1) / span * llm_panel_record_nbytes(type);
}

/* Four quants are moved at a time. */
PANEL_CONST uint32_t
word_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Four bits of a mask, from bit `at` on, to the lowest bits of four bytes. */
PANEL_CONST uint32_t
word_of_bits(uint32_t mask, int at)
{
	return ((mask >> at & 15) * 0x00204081u) & 0x01010101u;
}

/* Nibble vector j of a half: groups j and 4 + j of the block's half s. */
PANEL_CONST uint32_t
pack_nibbles(LlmDtype type, const uint8_t *block, int s, int j)
{
	const uint8_t *q;
	int shift;

	switch (type)
	{
		case LLM_DTYPE_Q4_0:
			return word_at(block + offsetof(LlmBlockQ4_0, q) + 4 * j);
		case LLM_DTYPE_Q4_1:
			return word_at(block + offsetof(LlmBlockQ4_1, q) + 4 * j);
		case LLM_DTYPE_Q5_0:
			return word_at(block + offsetof(LlmBlockQ5_0, q) + 4 * j);
		case LLM_DTYPE_Q5_1:
			return word_at(block + offsetof(LlmBlockQ5_1, q) + 4 * j);
		case LLM_DTYPE_Q6_K:
			q = block + offsetof(LlmBlockQ6_K, low) + s / 4 * 64 + s % 2 * 32;
			shift = s % 4 / 2 * 4;
			break;
		default:
			q = block +
				(type == LLM_DTYPE_Q4_K ? offsetof(LlmBlockQ4_K, q) : offsetof(LlmBlockQ5_K, q)) +
				s / 2 * 32;
			shift = s % 2 * 4;
	}
	return (word_at(q + 4 * j) >> shift & 0x0F0F0F0Fu) |
		   (word_at(q + 4 * (4 + j)) >> shift & 0x0F0F0F0Fu) << 4;
}

/* The bits above the nibble of group j of the block's half s. */
PANEL_CONST uint32_t
upper_bits(LlmDtype type, const uint8_t *block, int s, int j)
{
	switch (type)
	{
		case LLM_DTYPE_Q5_0:
			return word_of_bits(word_at(block + offsetof(LlmBlockQ5_0, high)), 4 * j);
		case LLM_DTYPE_Q5_1:
			return word_of_bits(word_at(block + offsetof(LlmBlockQ5_1, high)), 4 * j);
		case LLM_DTYPE_Q5_K:
			return word_at(block + offsetof(LlmBlockQ5_K, high) + 4 * j) >> s & 0x01010101u;
		default:
			return word_at(block + offsetof(LlmBlockQ6_K, high) + s / 4 * 32 + 4 * j) >> s % 4 * 2 &
				   0x03030303u;
	}
}

/* Quants of the block's half s to column's place `out` in the vectors of a half. */
PANEL_CONST void
pack_quants(LlmDtype type, const uint8_t *block, int s, uint8_t *out)
{
	const int bits = llm_panel_form(type).bits, words = bits == 8 ? 8 : 4;

#pragma GCC unroll 8
	for (int j = 0; j < words; j++)
	{
		uint32_t v = bits == 8 ? word_at(block + offsetof(LlmBlockQ8_0, q) + 4 * j) ^ 0x80808080u
							   : pack_nibbles(type, block, s, j);

		memcpy(out + 64 * j, &v, sizeof(v));
	}
	for (int plane = 0; plane < (bits == 5 || bits == 6 ? bits - 4 : 0); plane++)
	{
		int n = bits == 5 ? 8 : 4; /* groups of a vector */
		uint32_t v = 0;

#pragma GCC unroll 8
		for (int j = 0; j < n; j++)
			v |= upper_bits(type, block, s, plane * n + j) << j * (8 / n);
		memcpy(out + 256 + 64 * plane, &v, sizeof(v));
	}
}

/* The head of a record of 4 units, column c. */
PANEL_CONST void
pack_head(LlmDtype type, const uint8_t *block, uint8_t *record, int c)
{
	const uint8_t *packed = block + offsetof(LlmBlockQ4_K, scales); /* and of Q5_K */
	uint8_t *scales = record + LLM_PANEL_SCALES + c;

	if (type == LLM_DTYPE_Q6_K)
	{
		memcpy(record + c * 2, block + offsetof(LlmBlockQ6_K, d), 2);
		for (int i = 0; i < 16; i++)
			scales[i * 16] = block[offsetof(LlmBlockQ6_K, scales) + (size_t) i];
		return;
	}
	memcpy(record + c * 2, block, 2);
	memcpy(record + 32 + c * 2, block + offsetof(LlmBlockQ4_K, m), 2);
	record[32 + c * 2 + 1] ^= 0x80;
	for (int i = 0; i < 4; i++)
	{
		scales[i * 16] = packed[i] & 63;
		scales[(4 + i) * 16] = (uint8_t) ((packed[8 + i] & 15) | packed[i] >> 6 << 4);
		scales[(8 + i) * 16] = packed[4 + i] & 63;
		scales[(12 + i) * 16] = (uint8_t) (packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
	}
}

/* Block b of column c into its half of a unit, or its record of 4. */
PANEL_CONST void
pack_block(LlmDtype type, const uint8_t *block, int32_t b, int c, uint8_t *out)
{
	const size_t head = llm_panel_head_nbytes(type), half = llm_panel_half_nbytes(type);

	if (llm_panel_form(type).units == 1)
	{
		uint8_t *record = out + (size_t) (b / 2) * llm_panel_record_nbytes(type);

		memcpy(record + b % 2 * 32 + c * 2, block, 2);
		if (llm_panel_form(type).minimum)
			memcpy(record + LLM_PANEL_SCALES + b % 2 * 32 + c * 2, block + 2, 2);
		pack_quants(type, block, 0, record + head + (size_t) (b % 2) * half + c * 4);
	}
	else
	{
		uint8_t *record = out + (size_t) b * llm_panel_record_nbytes(type);

		pack_head(type, block, record, c);
#pragma GCC unroll 8
		for (int s = 0; s < 8; s++)
			pack_quants(type, block, s, record + head + (size_t) s * half + c * 4);
	}
}

/* n columns, block by block: what is written stays in the first-level cache. */
PANEL_CONST void
pack_quant(LlmDtype type, const uint8_t *rows, size_t row_nbytes, int n, int32_t k, uint8_t *out)
{
	const LlmDtypeInfo *info = llm_dtype_info(type);

	for (int32_t b = 0; b < k / info->block; b++)
		for (int c = 0; c < n; c++)
			pack_block(type,
					   rows + (size_t) c * row_nbytes + (size_t) b * (size_t) info->block_nbytes, b,
					   c, out);
}

/* n columns of k values of `size` bytes, a constant where this is called. */
PANEL_CONST void
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

	switch (w->type)
	{
		case LLM_DTYPE_F32:
			pack_float(4, rows, row_nbytes, n, w->cols, out);
			break;
		case LLM_DTYPE_F16:
		case LLM_DTYPE_BF16:
			pack_float(2, rows, row_nbytes, n, w->cols, out);
			break;
#define PACK_QUANT(type)                                                                           \
	case type:                                                                                     \
		pack_quant(type, rows, row_nbytes, n, w->cols, out);                                       \
		break;
			PACK_QUANT(LLM_DTYPE_Q4_0)
			PACK_QUANT(LLM_DTYPE_Q4_1)
			PACK_QUANT(LLM_DTYPE_Q5_0)
			PACK_QUANT(LLM_DTYPE_Q5_1)
			PACK_QUANT(LLM_DTYPE_Q8_0)
			PACK_QUANT(LLM_DTYPE_Q4_K)
			PACK_QUANT(LLM_DTYPE_Q5_K)
			PACK_QUANT(LLM_DTYPE_Q6_K)
#undef PACK_QUANT
		case LLM_DTYPE_I8: /* no weight has it */
			break;
	}
}

/* Element k of column c in a record of quantised weights. */
static float
quant_element(LlmDtype type, const uint8_t *record, int k, int c)
{
	LlmPanelForm form = llm_panel_form(type);
	int i = k / (32 / form.blocks);
	const uint8_t *half =
		record + llm_panel_head_nbytes(type) + (size_t) (k / 32) * llm_panel_half_nbytes(type);
	int q = llm_panel_quant(type, half, k % 32, c) - (form.offset ? 1 << (form.bits - 1) : 0);
	float x = (float) q * llm_panel_scale(type, record, i, c);

	return form.minimum ? x + llm_panel_minimum(type, record, i, c) : x;
}

void
llm_panel_column(LlmDtype type, const uint8_t *panel, int32_t k, int32_t col, float *out)
{
	bool is_float = llm_dtype_info((uint32_t) type)->block == 1;
	int32_t span = llm_panel_form(type).units * LLM_Q8_UNIT;

	for (int32_t i = 0; i < k; i++)
		out[i] =
			is_float
				? llm_panel_float(type, panel, (size_t) i, col)
				: quant_element(type, panel + (size_t) (i / span) * llm_panel_record_nbytes(type),
								i % span, col);
}
