/*
 * kernels/panel.h - weights repacked into panels of 16 columns (outputs).
 *
 * A unit holds 64 K of 16 columns, a record 1 unit or, for types with blocks of 256, 4. Records ascend
 * along K, panels along N; a record's parts and a panel's length are multiples of 64 bytes. Columns
 * beyond N and K beyond the row are zeros.
 *
 *           record bytes
 *   Q8_0    1088  half d[2][16] | bytes
 *   Q4_0     576  half d[2][16] | nibbles
 *   Q4_1     640  half d[2][16] | half m[2][16] | nibbles
 *   Q5_0     704  half d[2][16] | nibbles and fifth bits
 *   Q5_1     768  half d[2][16] | half m[2][16] | nibbles and fifth bits
 *   Q4_K    2368  half d[16] | half -m[16] | u8 dd[8][16] | u8 mm[8][16] | nibbles
 *   Q5_K    2880  the same | nibbles and fifth bits
 *   Q6_K    3392  half d[16] | 32 unused bytes | s8 dd[16][16] | nibbles and upper pairs
 *   F32, F16, BF16   per k 16 values, no records
 *
 * Quants lie by halves (32 K) of units; group j of a half is k = 4j .. 4j + 3, and every vector has
 * 4 bytes for each of the 16 columns, one for each k of a group:
 *
 *   bytes         8 vectors: group j in vector j, q + 128
 *   nibbles       4 vectors: groups j (low) and 4 + j (high) in vector j, raw 0..15
 *   fifth bits    1 vector:  group j in bit j
 *   upper pairs   2 vectors: group j in the pair of bits j % 4 of vector j / 4
 *
 * The weight is scale * (quant - offset) or scale * quant + minimum, where scale is d, or d * dd of
 * the block, and minimum m, or -m * mm. Products see the quants of a type with an offset shifted to
 * 8 bits, so that the offset is 128 whatever the type, and the scale made smaller to match: exact,
 * and one correction of the activations serves all.
 */
#ifndef LLM_KERNELS_PANEL_H
#define LLM_KERNELS_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/weight.h"

#define LLM_PANEL_SCALES 64 /* bytes of d, or m, of a unit; of d and m of a record of 4 */
#define LLM_PANEL_OFFSET 128

/* Products unroll by these, so they must be constants in their callers before loops are looked at. */
#define PANEL_CONST static inline __attribute__((always_inline))

/* Constants of a quantised type. */
typedef struct LlmPanelForm
{
	int units;    /* of a record */
	int blocks;   /* with scales of their own, of a half */
	int bits;     /* of a quant */
	bool offset;  /* quants carry one: 2^(bits - 1) */
	bool minimum; /* weights have one */
} LlmPanelForm;

PANEL_CONST LlmPanelForm
llm_panel_form(LlmDtype type)
{
	switch (type)
	{
		case LLM_DTYPE_Q4_0:
			return (LlmPanelForm){1, 1, 4, true, false};
		case LLM_DTYPE_Q4_1:
			return (LlmPanelForm){1, 1, 4, false, true};
		case LLM_DTYPE_Q5_0:
			return (LlmPanelForm){1, 1, 5, true, false};
		case LLM_DTYPE_Q5_1:
			return (LlmPanelForm){1, 1, 5, false, true};
		case LLM_DTYPE_Q4_K:
			return (LlmPanelForm){4, 1, 4, false, true};
		case LLM_DTYPE_Q5_K:
			return (LlmPanelForm){4, 1, 5, false, true};
		case LLM_DTYPE_Q6_K:
			return (LlmPanelForm){4, 2, 6, true, false};
		default:
			return (LlmPanelForm){1, 1, 8, true, false};
	}
}

/* Bytes of the quants of one half. */
PANEL_CONST size_t
llm_panel_half_nbytes(LlmDtype type)
{
	return (size_t) llm_panel_form(type).bits * 64;
}

/* Bytes of a record before its quants. */
PANEL_CONST size_t
llm_panel_head_nbytes(LlmDtype type)
{
	LlmPanelForm f = llm_panel_form(type);

	if (f.units == 1)
		return f.minimum ? 2 * LLM_PANEL_SCALES : LLM_PANEL_SCALES;
	return LLM_PANEL_SCALES + (f.minimum ? 2 : 1) * 8 * (size_t) f.blocks * 16;
}

PANEL_CONST size_t
llm_panel_record_nbytes(LlmDtype type)
{
	return llm_panel_head_nbytes(type) +
		   2 * (size_t) llm_panel_form(type).units * llm_panel_half_nbytes(type);
}

/* Left shift that brings a quant with an offset to 8 bits. */
PANEL_CONST int
llm_panel_shift(LlmDtype type)
{
	return llm_panel_form(type).offset ? 8 - llm_panel_form(type).bits : 0;
}

/* What products multiply scales by to make up for the shift: exact. */
PANEL_CONST float
llm_panel_step(LlmDtype type)
{
	return 1.0f / (float) (1 << llm_panel_shift(type));
}

/* ---- one element, for those who need no speed ---- */

static inline float
llm_panel_half_at(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, sizeof(h));
	return llm_half_to_f32(h);
}

/* Value k of column c of a panel of floats. */
static inline float
llm_panel_float(LlmDtype type, const uint8_t *panel, size_t k, int c)
{
	size_t at = k * 16 + (size_t) c;
	uint16_t h;
	float f;

	if (type == LLM_DTYPE_F32)
	{
		memcpy(&f, panel + at * sizeof(f), sizeof(f));
		return f;
	}
	memcpy(&h, panel + at * sizeof(h), sizeof(h));
	return type == LLM_DTYPE_F16 ? llm_half_to_f32(h) : llm_bf16_to_f32(h);
}

/* Quant k (0..31) of column c of a half whose quants begin at q, unsigned and not shifted. */
static inline int
llm_panel_quant(LlmDtype type, const uint8_t *q, int k, int c)
{
	int j = k / 4, at = c * 4 + k % 4, bits = llm_panel_form(type).bits, low;

	if (bits == 8)
		return q[j * 64 + at];
	low = q[j % 4 * 64 + at] >> j / 4 * 4 & 15;
	if (bits == 4)
		return low;
	if (bits == 5)
		return low | (q[256 + at] >> j & 1) << 4;
	return low | (q[256 + j / 4 * 64 + at] >> j % 4 * 2 & 3) << 4;
}

/* Scale of block i of a record, column c. */
static inline float
llm_panel_scale(LlmDtype type, const uint8_t *record, int i, int c)
{
	if (llm_panel_form(type).units == 1)
		return llm_panel_half_at(record + i * 32 + c * 2);
	return llm_panel_half_at(record + c * 2) *
		   (float) (int8_t) record[LLM_PANEL_SCALES + i * 16 + c];
}

/* Minimum of block i of a record, column c; for types that have it. */
static inline float
llm_panel_minimum(LlmDtype type, const uint8_t *record, int i, int c)
{
	if (llm_panel_form(type).units == 1)
		return llm_panel_half_at(record + LLM_PANEL_SCALES + i * 32 + c * 2);
	return llm_panel_half_at(record + 32 + c * 2) *
		   (float) record[LLM_PANEL_SCALES + 8 * 16 + i * 16 + c];
}

/* Bytes of one panel of k inputs. */
size_t llm_panel_nbytes(LlmDtype type, int32_t k);

/* Repack rows 16 * panel .. of w into out, which is zeroed. */
void llm_panel_pack(const LlmWeightView *w, int32_t panel, uint8_t *out);

/* Dequantise column `col` (0..15) of a panel: out [k], exactly the file's values. */
void llm_panel_column(LlmDtype type, const uint8_t *panel, int32_t k, int32_t col, float *out);

#endif
