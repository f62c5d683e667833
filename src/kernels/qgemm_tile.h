/*
 * kernels/qgemm_tile.h - one register tile of a quantised product: R rows x C panels, all of K.
 *
 * An ISA file defines before including it: the lanes (vec_*.h), the integer lanes `vi`, and
 *     vi   qtile_start(type, int32_t)           a correction in all lanes
 *     void qtile_dot(R, C, I, type, w, ...)     I += exact products of k groups j0..j1 of a half
 *                                               with its quants at w, shifted as panel.h says
 *     vf   vi_to_float(vi)
 *     QTILE_ROWS, QTILE_COLS                    most rows and panels of a tile
 *     QTILE_WIDE_ROWS                           most rows of a tile of QTILE_COLS panels
 *     QTILE_SHAPES(X)                           X(R, C) for each shape within these
 *     QTILE_SLOW_SHAPES(X)                      the same for types of 5 and 6 bits
 * Every output has one float accumulator and sees its halves in ascending order, so neither the
 * tile shape nor the number of rows can change a bit (rule R2).
 */
#ifndef LLM_KERNELS_QGEMM_TILE_H
#define LLM_KERNELS_QGEMM_TILE_H

#include <string.h>

#include "kernels/gemm.h"
#include "kernels/panel_ops.h"

/* What a tile reads and writes. */
typedef struct QTile
{
	const uint8_t *w;    /* first panel */
	const uint8_t *next; /* the panels that are read after these */
	size_t ahead; /* bytes that it fetches ahead, into the second cache; 0 = as far as its panels */
	size_t panel; /* bytes of one */
	ptrdiff_t apart;    /* bytes from panel to panel */
	const LlmQ8Unit *x; /* first row */
	size_t n_units;     /* units per row and per panel */
	float *y;           /* first output of the first row */
	size_t ldy;         /* floats between rows */
	size_t col;         /* floats from the outputs of a panel to those of the next */
	bool fetch;         /* these panels were not read before */
} QTile;

/* What makes up for the quants' offset: the first value of a block's sum. */
VEC_INLINE int32_t
qtile_correction(const LlmDtype type, const LlmQ8Unit *x, const int half, const int b)
{
	const LlmPanelForm form = llm_panel_form(type);

	if (!form.offset)
		return 0;
	if (form.blocks == 1)
		return x->corr[half];
	return b == 0 ? x->corr_low[half] : x->corr[half] - x->corr_low[half];
}

/* What a tile fetches while it reads one unit: the bytes of another, line by line, of each panel. */
typedef struct QFetch
{
	const uint8_t *near; /* into the first cache; NULL = nothing */
	const uint8_t *far;  /* into the second; NULL = nothing, and none into the first */
} QFetch;

/* What a tile reads `at` bytes after a panel's begin, in that panel or in its successor. */
VEC_INLINE const uint8_t *
qtile_ahead(const QTile *t, size_t at)
{
	return at < t->panel ? t->w + at : t->next + (at - t->panel);
}

PANEL_CONST size_t
qtile_unit_nbytes(const LlmDtype type)
{
	return llm_panel_record_nbytes(type) / (size_t) llm_panel_form(type).units;
}

/* What is ahead of the unit `at` bytes after a panel's begin: the hardware stops at the end of every 4 KB
 * and keeps too few reads in flight, so that products of few rows would read at half the speed of memory.
 * Far ahead it is the second cache that has room for many lines; from there the first is filled in time.
 * Memory is read faster from nearer than the last cache. Where many rows read the panels, their successors
 * are far ahead. It is whole units ahead, so that none lies across the end of a panel. */
VEC_INLINE QFetch
qtile_fetch_begin(const QTile *t, const LlmDtype type, const int C, size_t at)
{
	const size_t unit = qtile_unit_nbytes(type);

	if (!t->fetch)
		return (QFetch){NULL, NULL};
	if (C > 1 && t->ahead == 0)
		return (QFetch){NULL, t->w + at + C * t->apart};
	return (QFetch){qtile_ahead(t, at + (LLM_FETCH_NEAR + unit - 1) / unit * unit),
					qtile_ahead(t, at + (t->ahead + unit / 2) / unit * unit)};
}

/* Fetch the lines that fall to groups j0 .. j1 of the 16 of a unit. */
VEC_INLINE void
qtile_fetch(const QTile *t, const LlmDtype type, const int C, const QFetch *f, const int j0,
			const int j1)
{
	const int lines = (int) (qtile_unit_nbytes(type) + 63) / 64;

	if (f->far == NULL)
		return;
	VEC_UNROLL
	for (int line = lines * j0 / 16; line < lines * j1 / 16; line++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
		{
			ptrdiff_t at = c * t->apart + line * 64;

			if (f->near != NULL)
				__builtin_prefetch(f->near + at);
			__builtin_prefetch(f->far + at, 0, 2);
		}
	}
}

/* Fold block b of one half: 32 K, or half of them. Two panels are fetched line by line between their
 * products, since lines that are asked for all at once wait for each other; one panel leaves the reads in
 * flight room enough. */
VEC_INLINE void
qtile_block(const QTile *t, const LlmDtype type, const int R, const int C, const uint8_t *record,
			int i, const int half, const int b, const QFetch *f, const LlmQ8Unit *x,
			vf acc[QTILE_ROWS][QTILE_COLS])
{
	const LlmPanelForm form = llm_panel_form(type);
	const int n = 8 / form.blocks, step = C > 1 ? 1 : n; /* k groups */
	const uint8_t *quants =
		record + llm_panel_head_nbytes(type) + (size_t) i * llm_panel_half_nbytes(type);
	vi sum[QTILE_ROWS][QTILE_COLS];
	vf d[QTILE_COLS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		const LlmQ8Unit *xr = x + (size_t) r * t->n_units;
		vi start = qtile_start(type, qtile_correction(type, xr, half, b));

		VEC_UNROLL
		for (int c = 0; c < C; c++)
			sum[r][c] = start;
	}
	VEC_UNROLL
	for (int j = b * n; j < b * n + n; j += step)
	{
		qtile_fetch(t, type, C, f, half * 8 + j, half * 8 + j + step);
		qtile_dot(R, C, sum, type, quants, t->apart, x->q + half * 32, t->n_units * sizeof(*x), j,
				  j + step);
	}
	VEC_UNROLL
	for (int c = 0; c < C; c++)
		d[c] = panel_scale(type, record + c * t->apart, i * form.blocks + b);
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		vf dx = vf_set1(x[(size_t) r * t->n_units].d[half]);

		VEC_UNROLL
		for (int c = 0; c < C; c++)
			acc[r][c] = vf_fma(vi_to_float(sum[r][c]), vf_mul(d[c], dx), acc[r][c]);
	}
}

/* Add what the minima of one half make. */
VEC_INLINE void
qtile_minimum(const QTile *t, const LlmDtype type, const int R, const int C, const uint8_t *record,
			  int i, const int half, const LlmQ8Unit *x, vf acc[QTILE_ROWS][QTILE_COLS])
{
	vf m[QTILE_COLS];

	VEC_UNROLL
	for (int c = 0; c < C; c++)
		m[c] = panel_minimum(type, record + c * t->apart, i);
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		vf s = vf_set1(x[(size_t) r * t->n_units].s[half]);

		VEC_UNROLL
		for (int c = 0; c < C; c++)
			acc[r][c] = vf_fma(m[c], s, acc[r][c]);
	}
}

VEC_INLINE void
qtile_run(const QTile *t, const LlmDtype type, const int R, const int C)
{
	const LlmPanelForm form = llm_panel_form(type);
	const size_t units = (size_t) form.units, unit = qtile_unit_nbytes(type);
	const uint8_t *record = t->w;
	const LlmQ8Unit *x = t->x;
	vf acc[QTILE_ROWS][QTILE_COLS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			acc[r][c] = vf_set1(0.0f);
	}
	for (size_t u = 0; u < t->n_units; u++, x++)
	{
		QFetch f = qtile_fetch_begin(t, type, C, u * unit);

		VEC_UNROLL
		for (int half = 0; half < 2; half++)
		{
			int i = (int) (u % units) * 2 + half;

			VEC_UNROLL
			for (int b = 0; b < form.blocks; b++)
				qtile_block(t, type, R, C, record, i, half, b, &f, x, acc);
			if (form.minimum)
				qtile_minimum(t, type, R, C, record, i, half, x, acc);
		}
		if ((u + 1) % units == 0)
			record += llm_panel_record_nbytes(type);
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			vf_store(t->y + (size_t) r * t->ldy + (size_t) c * t->col, acc[r][c]);
	}
}

typedef void (*QTileFn)(const QTile *t);

/* Types that are quick to unpack, and those whose panels are unpacked for as many rows as possible. */
#define QTILE_QUICK(X, R, C) X(Q8_0, R, C) X(Q4_0, R, C) X(Q4_1, R, C) X(Q4_K, R, C)
#define QTILE_SLOW(X, R, C) X(Q5_0, R, C) X(Q5_1, R, C) X(Q5_K, R, C) X(Q6_K, R, C)

#define QTILE_TYPED(T, R, C)                                                                       \
	VEC_FN void qtile_##T##_##R##_##C(const QTile *t)                                              \
	{                                                                                              \
		qtile_run(t, LLM_DTYPE_##T, R, C);                                                         \
	}
#define QTILE_AT(type, R, C, fn) [type][R][C] = fn,
#define QTILE_ENTRY(T, R, C) QTILE_AT(LLM_DTYPE_##T, R, C, qtile_##T##_##R##_##C)
#define QTILE_FNS(R, C) QTILE_QUICK(QTILE_TYPED, R, C)
#define QTILE_SLOW_FNS(R, C) QTILE_SLOW(QTILE_TYPED, R, C)
#define QTILE_ENTRIES(R, C) QTILE_QUICK(QTILE_ENTRY, R, C)
#define QTILE_SLOW_ENTRIES(R, C) QTILE_SLOW(QTILE_ENTRY, R, C)

QTILE_SHAPES(QTILE_FNS)
QTILE_SLOW_SHAPES(QTILE_SLOW_FNS)

/* [type][rows][panels] */
static const QTileFn qtiles[LLM_DTYPE_Q6_K + 1][QTILE_ROWS + 1][QTILE_COLS + 1] = {
	QTILE_SHAPES(QTILE_ENTRIES) QTILE_SLOW_SHAPES(QTILE_SLOW_ENTRIES)};

/* One tile whose last panel may be ragged: padding columns go to a scratch row, never to y. */
static void
qtile_store(const LlmGemm *g, QTileFn fn, QTile *t, int rows, int32_t n_cols)
{
	float scratch[QTILE_ROWS * QTILE_COLS * LLM_LANES];
	int32_t width = (n_cols + LLM_LANES - 1) / LLM_LANES * LLM_LANES;
	float *y = t->y;

	if (n_cols == width)
	{
		fn(t);
		return;
	}
	t->y = scratch;
	t->ldy = (size_t) width;
	fn(t);
	for (int r = 0; r < rows; r++)
		memcpy(y + (size_t) r * (size_t) g->ldy, scratch + r * width,
			   (size_t) n_cols * sizeof(float));
}

/* All rows in nearly equal tiles, panels outermost so that a panel is read from memory once. Two tiles of
 * one panel beat four of two; but where n_streams is 2 a single tile reads two panels side by side: those
 * of two parts, each of them in order, or else neighbours. */
static void
qtile_drive(const LlmGemm *g, int n_streams)
{
	bool has_wide = qtiles[g->type][1][QTILE_COLS] != NULL;
	bool many = has_wide && g->n_rows > 2 * QTILE_ROWS;
	bool wide = many || (has_wide && n_streams > 1 && g->n_rows <= QTILE_WIDE_ROWS);
	bool twins = wide && g->twin != 0;
	int max_rows = wide ? QTILE_WIDE_ROWS : QTILE_ROWS;
	int n_tiles = (g->n_rows + max_rows - 1) / max_rows;
	QTile t = {.panel = g->panel_nbytes,
			   .apart = twins ? g->twin : (ptrdiff_t) g->panel_nbytes,
			   .n_units = (size_t) (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT};

	for (int32_t p = 0; p < g->n_panels;)
	{
		int step = wide && !twins && g->n_panels - p >= QTILE_COLS ? QTILE_COLS : 1;
		int cols = twins ? 2 : step;
		int32_t left = g->n_cols - p * LLM_LANES;

		for (int i = 0; i < n_tiles; i++)
		{
			int32_t r0 = (int32_t) ((int64_t) g->n_rows * i / n_tiles);
			int rows = (int) ((int64_t) g->n_rows * (i + 1) / n_tiles) - r0;

			t.w = g->w + (size_t) p * g->panel_nbytes;
			t.ahead = many && cols > 1 ? 0 : g->ahead > 0 ? g->ahead : LLM_FETCH_FAR;
			t.next = t.w + (size_t) step * g->panel_nbytes;
			if (p + step >= g->n_panels && g->next != NULL)
				t.next = g->next;
			t.x = g->q + (size_t) r0 * t.n_units;
			t.y = g->y + (size_t) r0 * (size_t) g->ldy + (size_t) p * LLM_LANES;
			t.ldy = (size_t) g->ldy;
			t.col = twins ? (size_t) g->twin_col : LLM_LANES;
			t.fetch = i == 0;
			qtile_store(g, qtiles[g->type][rows][cols], &t, rows,
						left < step * LLM_LANES ? left : step * LLM_LANES);
		}
		p += step;
	}
	if (g->twin != 0 && !twins)
	{
		LlmGemm other = *g;

		other.twin = 0;
		other.w += g->twin;
		other.y += g->twin_col;
		qtile_drive(&other, n_streams);
	}
}

#endif
