/* kernels/gemm_generic.c - products in plain C, one output at a time: what the tiles are compared
 * with. */
#include "kernels/gemm.h"

#include <math.h>
#include <string.h>

#include "kernels/panel.h"
#include "tensor/half.h"

static float
half_at(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, sizeof(h));
	return llm_half_to_f32(h);
}

/* sum of w * q over one half of a unit: exact */
static int32_t
dot_half(LlmDtype type, const uint8_t *quants, const LlmQ8Unit *x, int half, int c)
{
	const int8_t *q = x->q + 32 * half;
	int32_t sum = 0;

	if (type == LLM_DTYPE_Q8_0)
	{
		for (int k = 0; k < 32; k++)
			sum += (quants[half * 512 + k / 4 * 64 + c * 4 + k % 4] - 128) * q[k];
		return sum;
	}
	for (int k = 0; k < 16; k++)
	{
		int byte = quants[half * 256 + k / 4 * 64 + c * 4 + k % 4];

		sum += (byte & 15) * q[k] + (byte >> 4) * q[16 + k];
	}
	return type == LLM_DTYPE_Q4_0 ? sum + x->corr8[half] : sum;
}

static float
dot_quant(const LlmGemm *g, const uint8_t *panel, const LlmQ8Unit *x, int c)
{
	int32_t n_units = (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;
	float acc = 0.0f;

	for (int32_t u = 0; u < n_units; u++, panel += llm_panel_unit_nbytes(g->type), x++)
	{
		for (int half = 0; half < 2; half++)
		{
			int32_t i = dot_half(g->type, panel + llm_panel_head_nbytes(g->type), x, half, c);

			acc = fmaf((float) i, half_at(panel + half * 32 + c * 2) * x->d[half], acc);
			if (g->type == LLM_DTYPE_Q4_1)
				acc = fmaf(half_at(panel + LLM_PANEL_SCALES + half * 32 + c * 2), x->s[half], acc);
		}
	}
	return acc;
}

void
llm_gemm_quant_generic(const LlmGemm *g)
{
	int32_t n_units = (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;

	for (int32_t r = 0; r < g->n_rows; r++)
		for (int32_t n = 0; n < g->n_cols; n++)
			g->y[(size_t) r * (size_t) g->ldy + (size_t) n] =
				dot_quant(g, g->w + (size_t) (n / LLM_LANES) * g->panel_nbytes,
						  g->q + (size_t) r * (size_t) n_units, n % LLM_LANES);
}

static float
dot_float(const LlmGemm *g, const uint8_t *panel, const float *x, int c)
{
	float acc = 0.0f;

	for (int32_t k = 0; k < g->k; k++)
	{
		size_t at = (size_t) k * LLM_LANES + (size_t) c;
		float w;

		if (g->type == LLM_DTYPE_F16)
			w = half_at(panel + at * sizeof(uint16_t));
		else
			memcpy(&w, panel + at * sizeof(float), sizeof(w));
		acc = fmaf(w, x[k], acc);
	}
	return acc;
}

void
llm_gemm_float_generic(const LlmGemm *g)
{
	for (int32_t r = 0; r < g->n_rows; r++)
		for (int32_t n = 0; n < g->n_cols; n++)
			g->y[(size_t) r * (size_t) g->ldy + (size_t) n] =
				dot_float(g, g->w + (size_t) (n / LLM_LANES) * g->panel_nbytes,
						  g->x + (size_t) r * (size_t) g->ldx, n % LLM_LANES);
}
