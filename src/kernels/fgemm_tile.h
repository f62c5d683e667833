/*
 * kernels/fgemm_tile.h - products with float weights: R rows x C panels, one FMA chain in k per
 * output (rule R2). Written over the lanes of a vec_*.h; include after one.
 */
#ifndef LLM_KERNELS_FGEMM_TILE_H
#define LLM_KERNELS_FGEMM_TILE_H

#include <string.h>

#include "kernels/gemm.h"

#define FTILE_ROWS 4
#define FTILE_COLS 2

typedef struct FTile
{
	const uint8_t *w; /* first panel */
	size_t panel;     /* bytes from panel to panel */
	const float *x;   /* first row */
	size_t ldx;       /* floats between rows of x */
	size_t k;         /* inputs */
	float *y;         /* first output of the first row */
	size_t ldy;       /* floats between rows of y */
} FTile;

VEC_INLINE void
ftile_run(const FTile *t, const LlmDtype type, const int R, const int C)
{
	vf acc[FTILE_ROWS][FTILE_COLS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			acc[r][c] = vf_set1(0.0f);
	}
	for (size_t k = 0; k < t->k; k++)
	{
		vf w[FTILE_COLS];

		VEC_UNROLL
		for (int c = 0; c < C; c++)
		{
			const uint8_t *p = t->w + (size_t) c * t->panel;

			w[c] = type == LLM_DTYPE_F32   ? vf_load((const float *) p + k * 16)
				   : type == LLM_DTYPE_F16 ? vf_load_half((const uint16_t *) p + k * 16)
										   : vf_load_bf16((const uint16_t *) p + k * 16);
		}
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			vf x = vf_set1(t->x[(size_t) r * t->ldx + k]);

			VEC_UNROLL
			for (int c = 0; c < C; c++)
				acc[r][c] = vf_fma(w[c], x, acc[r][c]);
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			vf_store(t->y + (size_t) r * t->ldy + c * 16, acc[r][c]);
	}
}

typedef void (*FTileFn)(const FTile *t);

#define FTILE_TYPED(T, R, C)                                                                       \
	VEC_FN void ftile_##T##_##R##_##C(const FTile *t)                                              \
	{                                                                                              \
		ftile_run(t, LLM_DTYPE_##T, R, C);                                                         \
	}
#define FTILE_FNS(R, C) FTILE_TYPED(F32, R, C) FTILE_TYPED(F16, R, C) FTILE_TYPED(BF16, R, C)
#define FTILE_ENTRIES(R, C)                                                                        \
	[0][R][C] = ftile_F32_##R##_##C, [1][R][C] = ftile_F16_##R##_##C,                              \
	[2][R][C] = ftile_BF16_##R##_##C,
#define FTILE_SHAPES(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(1, 2) X(2, 2) X(3, 2) X(4, 2)

FTILE_SHAPES(FTILE_FNS)

/* [F32, F16, BF16][rows][panels] */
static const FTileFn ftiles[3][FTILE_ROWS + 1][FTILE_COLS + 1] = {FTILE_SHAPES(FTILE_ENTRIES)};

/* One tile; padding columns go to a scratch row, never to y. */
static void
ftile_store(FTileFn fn, FTile *t, int rows, int32_t n_cols, int cols)
{
	float scratch[FTILE_ROWS * FTILE_COLS * LLM_LANES];
	size_t width = (size_t) cols * LLM_LANES, ldy = t->ldy;
	float *y = t->y;

	if ((size_t) n_cols >= width)
	{
		fn(t);
		return;
	}
	t->y = scratch;
	t->ldy = width;
	fn(t);
	for (int r = 0; r < rows; r++)
		memcpy(y + (size_t) r * ldy, scratch + (size_t) r * width, (size_t) n_cols * sizeof(float));
}

static void
ftile_drive(const LlmGemm *g)
{
	int kind = g->type == LLM_DTYPE_F32 ? 0 : g->type == LLM_DTYPE_F16 ? 1 : 2;

	for (int32_t p = 0; p < g->n_panels;)
	{
		int cols = g->n_panels - p >= FTILE_COLS ? FTILE_COLS : 1;

		for (int32_t r = 0; r < g->n_rows; r += FTILE_ROWS)
		{
			int rows = g->n_rows - r < FTILE_ROWS ? g->n_rows - r : FTILE_ROWS;
			FTile t = {.w = g->w + (size_t) p * g->panel_nbytes,
					   .panel = g->panel_nbytes,
					   .x = g->x + (size_t) r * (size_t) g->ldx,
					   .ldx = (size_t) g->ldx,
					   .k = (size_t) g->k,
					   .y = g->y + (size_t) r * (size_t) g->ldy + (size_t) p * LLM_LANES,
					   .ldy = (size_t) g->ldy};

			ftile_store(ftiles[kind][rows][cols], &t, rows, g->n_cols - p * LLM_LANES, cols);
		}
		p += cols;
	}
}

#endif
