/* kernels/gemm_generic.c - products in plain C, one output at a time: what the tiles are compared
 * with. */
#include "kernels/gemm.h"

#include <math.h>

#include "kernels/panel.h"

/* Exact sum of w * q over n k of a half from k on, with what shifted quants make it. */
static int32_t
dot_block(LlmDtype type, const uint8_t *quants, const int8_t *q, int k, int n, int c)
{
	LlmPanelForm form = llm_panel_form(type);
	int32_t offset = form.offset ? 1 << (form.bits - 1) : 0, sum = 0;

	for (int i = k; i < k + n; i++)
		sum += (llm_panel_quant(type, quants, i, c) - offset) * q[i];
	return sum * (1 << llm_panel_shift(type));
}

static float
dot_quant(const LlmGemm *g, const uint8_t *panel, const LlmQ8Unit *x, int c)
{
	LlmPanelForm form = llm_panel_form(g->type);
	int32_t n_halves = (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT * 2, n = 32 / form.blocks;
	float acc = 0.0f;

	for (int32_t h = 0; h < n_halves; h++)
	{
		const LlmQ8Unit *u = x + h / 2;
		const uint8_t *record =
			panel + (size_t) (h / (2 * form.units)) * llm_panel_record_nbytes(g->type);
		int i = h % (2 * form.units), half = h % 2;
		const uint8_t *quants =
			record + llm_panel_head_nbytes(g->type) + (size_t) i * llm_panel_half_nbytes(g->type);

		for (int b = 0; b < form.blocks; b++)
		{
			int32_t sum = dot_block(g->type, quants, u->q + 32 * half, b * n, n, c);
			float d = llm_panel_scale(g->type, record, i * form.blocks + b, c);

			acc = fmaf((float) sum, d * llm_panel_step(g->type) * u->d[half], acc);
		}
		if (form.minimum)
			acc = fmaf(llm_panel_minimum(g->type, record, i, c), u->s[half], acc);
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
		acc = fmaf(llm_panel_float(g->type, panel, (size_t) k, c), x[k], acc);
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
