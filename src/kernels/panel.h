/*
 * kernels/panel.h - weights repacked into panels of 16 columns (outputs).
 *
 * A unit holds 64 K of 16 columns; units ascend along K, panels along N; a unit's parts and a
 * panel's length are multiples of 64 bytes. Columns beyond N and K beyond the row are zeros.
 *
 *   Q8_0 (1088 bytes)  half d[2][16] | u8 q + 128 [2 halves][8 vectors][16 columns][4 k]
 *   Q4_0 ( 576 bytes)  half d[2][16] | nibbles [2 halves][4 vectors][16 columns][4 bytes]
 *   Q4_1 ( 640 bytes)  half d[2][16] | half m[2][16] | nibbles as Q4_0
 *   nibbles: byte e of vector j holds k = 4j + e low and k = 16 + 4j + e high, raw 0..15
 *   F32, F16           per k 16 values, no units
 */
#ifndef LLM_KERNELS_PANEL_H
#define LLM_KERNELS_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"
#include "tensor/weight.h"

#define LLM_PANEL_SCALES 64 /* bytes of d (or m) in a unit */

static inline size_t
llm_panel_unit_nbytes(LlmDtype type)
{
	return type == LLM_DTYPE_Q8_0 ? 1088 : type == LLM_DTYPE_Q4_0 ? 576 : 640;
}

/* Bytes of a unit before its quants. */
static inline size_t
llm_panel_head_nbytes(LlmDtype type)
{
	return type == LLM_DTYPE_Q4_1 ? 2 * LLM_PANEL_SCALES : LLM_PANEL_SCALES;
}

/* Bytes of the quants of one half. */
static inline size_t
llm_panel_half_nbytes(LlmDtype type)
{
	return type == LLM_DTYPE_Q8_0 ? 512 : 256;
}

/* What is to be subtracted from a quant. */
static inline int
llm_panel_offset(LlmDtype type)
{
	return type == LLM_DTYPE_Q8_0 ? 128 : type == LLM_DTYPE_Q4_0 ? 8 : 0;
}

static inline bool
llm_panel_has_minimum(LlmDtype type)
{
	return type == LLM_DTYPE_Q4_1;
}

/* Bytes of one panel of k inputs. */
size_t llm_panel_nbytes(LlmDtype type, int32_t k);

/* Repack rows 16 * panel .. of w into out, which is zeroed. */
void llm_panel_pack(const LlmWeightView *w, int32_t panel, uint8_t *out);

/* Dequantise column `col` (0..15) of a panel: out [k], exactly the file's values. */
void llm_panel_column(LlmDtype type, const uint8_t *panel, int32_t k, int32_t col, float *out);

#endif
