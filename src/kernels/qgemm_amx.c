/*
 * kernels/qgemm_amx.c - quantised products of many rows with AMX tiles.
 *
 * A tile product sums 32 K (16 for types with scales of 16) of 16 rows and 16 columns exactly into
 * 32 bits, which is all that rule R2 asks of the integer part; scaling and accumulating are the same
 * operations in the same order as in the other files. Work goes by blocks of K, and in a block by
 * pairs of panels:
 *
 *   unpack        the pair's weights to signed bytes and its scales to floats, for all rows
 *   multiply      one half (32 K) of 16 rows by one panel, into 32-bit sums in memory
 *   scale         those sums into 16 accumulators in registers, halves ascending
 *
 * A block is so small that the weights of a pair and 16 rows of activations share the first cache.
 * Accumulators wait in y between blocks, which loses nothing. What shapes the inner loop, as
 * measured on Granite Rapids:
 *
 *   - Near tile instructions, and for some 150 cycles after, multiplying and converting run on one port
 *     of two, adding on both; the store of a tile takes 16 turns of the other. So nothing is converted:
 *     sums begin at the bits of the float 3 * 2^22, which a product of bf16 tiles makes (exactly), and
 *     are floats then, too large by that number; subtracting it is exact, as sums are below 2^22
 *     whatever the operands. That leaves 32 multiplications (48 with minima) on the one port, as many
 *     additions and lines stored on the other, and as many cycles of tile products: 38 (48) cycles
 *     are measured for 16 x 16 x 32 from the first cache. Integer additions of the bits, or a load of
 *     them into the tile, make it 41 to 44 (50 to 52).
 *   - Vector instructions wait for tile stores, and these for them: two products before two scalings
 *     cost less than one by one.
 *   - A tile is best stored long after its product, just before the tile is needed again. So
 *     products run two blocks ahead of the scaling, across the ends of panels and rows.
 *   - The clock is at 2.6 to 2.8 GHz here, where AVX-512 alone runs at 3.2 to 3.6: compare times.
 *   - Weights that come from memory must be fetched while others are multiplied.
 *
 * What makes activations writes them in groups of 16 rows too, a unit of a group in one piece, scales
 * side by side (LlmQ8Tile): loads of the loop then follow each other in memory. What lies beyond the
 * last rows of a group is computed and dropped. A few rows, and the columns of a ragged last panel,
 * go to the AVX-512 routine.
 */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/unpack_avx512.h"

#include "kernels/panel_ops.h"
#include "kernels/tile_config.h"

#define AMX_FN                                                                                     \
	__attribute__((                                                                                \
		target("amx-tile,amx-int8,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,"         \
			   "avx2,fma,f16c"))) static
#define AMX_INLINE AMX_FN inline __attribute__((always_inline))

#define AMX_ROWS LLM_Q8_TILE_ROWS
#define AMX_LAST_ROWS 6 /* of those below the full tiles: fewer go to AVX-512 */
#define AMX_UNITS 9     /* most units of a block: 576 K, 18 KB of weights */
#define AMX_SUMS 256    /* sums of a tile */
#define AMX_TILES 32    /* most tiles of rows of a block */

#define BIAS 12582912.0f /* 3 * 2^22: the bits of floats from 2^23 on count by ones */
#define THREE 0x4040u    /* 3 in bf16, and a zero */
#define POWER 0x4A80u    /* 2^22 */

/* Some units of a pair of panels, unpacked. */
typedef struct Weights
{
	int8_t q[AMX_UNITS][2][2][512]
		__attribute__((aligned(64))); /* [half][panel]: [8 k groups][16 columns][4 k] */
	float d[AMX_UNITS][4][2][16];     /* [block of 32 or 16 K][panel]: scales */
	float m[AMX_UNITS][2][2][16];     /* [half][panel]: minima, if the type has them */
} Weights;

/* Some units of up to 512 rows. */
typedef struct Rows
{
	const LlmQ8Tile *x; /* first tile, first unit of the block */
	size_t ldx;         /* units between tiles */
	int n_rows;
	int n_tiles;
	int n_units;
	bool first; /* block of K: accumulators begin at 0 */
} Rows;

/* 16 rows by one panel: a job of the inner loop. */
typedef struct Tile
{
	const LlmQ8Tile *x;
	float *y;
	int n_rows; /* of y: what the tile has beyond them is of no account */
	int panel;
	const uint8_t *fetch;      /* the same panel of the next pair */
	int fetch_from, fetch_end; /* the lines of each of its units that this job fetches */
} Tile;

/* Tiles 0-1 hold sums, 2-3 activations, 4-5 weights, 6-7 the factors of the bias. */
AMX_FN void
tiles_configure(LlmDtype type)
{
	static const uint32_t three = THREE;
	static const uint32_t powers[LLM_LANES] = {POWER, POWER, POWER, POWER, POWER, POWER,
											   POWER, POWER, POWER, POWER, POWER, POWER,
											   POWER, POWER, POWER, POWER};
	int blocks = llm_panel_form(type).blocks;
	LlmTileConfig c = {.palette = 1,
					   .rows = {[6] = AMX_ROWS, [7] = 1},
					   .row_nbytes = {[6] = sizeof(three), [7] = sizeof(powers)}};

	for (int i = 0; i < 6; i++)
	{
		c.rows[i] = (uint8_t) (i < 4 ? AMX_ROWS : 8 / blocks);
		c.row_nbytes[i] = (uint16_t) (i == 2 || i == 3 ? 32 / blocks : 64);
	}
	llm_tiles_configure(&c);
	_tile_loadd(6, &three, 0);
	_tile_loadd(7, powers, sizeof(powers));
}

/* Signed bytes, as the tiles' products want them. */
AMX_INLINE void
unpack_half(const LlmDtype type, const uint8_t *q, int8_t out[512])
{
	const __m512i offset =
		_mm512_set1_epi8(llm_panel_form(type).offset ? (char) LLM_PANEL_OFFSET : 0);

	VEC_UNROLL
	for (int j = 0; j < 8; j++)
		_mm512_store_si512(out + j * 64, _mm512_sub_epi8(unpack_weights(type, q, j), offset));
}

AMX_INLINE void
unpack_typed(const LlmDtype type, const uint8_t *w, size_t panel, int n_units, Weights *b)
{
	const LlmPanelForm form = llm_panel_form(type);
	const size_t head = llm_panel_head_nbytes(type), half = llm_panel_half_nbytes(type);

	for (int n = 0; n < n_units * 4; n++)
	{
		int u = n / 4, p = n / 2 % 2, h = n % 2, i = u % form.units * 2 + h;
		const uint8_t *record =
			w + (size_t) p * panel + (size_t) (u / form.units) * llm_panel_record_nbytes(type);

		unpack_half(type, record + head + (size_t) i * half, b->q[u][h][p]);
		VEC_UNROLL
		for (int j = 0; j < form.blocks; j++)
			vf_store(b->d[u][h * form.blocks + j][p],
					 panel_scale(type, record, i * form.blocks + j));
		if (form.minimum)
			vf_store(b->m[u][h][p], panel_minimum(type, record, i));
	}
}

AMX_FN void
unpack(LlmDtype type, const uint8_t *w, size_t panel, int n_units, Weights *b)
{
	switch (type)
	{
#define UNPACK_TYPED(type)                                                                         \
	case type:                                                                                     \
		unpack_typed(type, w, panel, n_units, b);                                                  \
		break;
		UNPACK_TYPED(LLM_DTYPE_Q4_0)
		UNPACK_TYPED(LLM_DTYPE_Q4_1)
		UNPACK_TYPED(LLM_DTYPE_Q5_0)
		UNPACK_TYPED(LLM_DTYPE_Q5_1)
		UNPACK_TYPED(LLM_DTYPE_Q4_K)
		UNPACK_TYPED(LLM_DTYPE_Q5_K)
		UNPACK_TYPED(LLM_DTYPE_Q6_K)
#undef UNPACK_TYPED
		default:
			unpack_typed(LLM_DTYPE_Q8_0, w, panel, n_units, b);
	}
}

/* Store what waits in the tile of sums, and make the next product there, on top of the bias. */
#define MULTIPLY(SUMS, X, W, x, w, sums)                                                           \
	do                                                                                             \
	{                                                                                              \
		_tile_loadd(X, x, LLM_Q8_UNIT);                                                            \
		_tile_loadd(W, w, 64);                                                                     \
		_tile_stored(SUMS, sums, 64);                                                              \
		_tile_zero(SUMS);                                                                          \
		_tile_dpbf16ps(SUMS, 6, 7);                                                                \
		_tile_dpbssd(SUMS, X, W);                                                                  \
	} while (0)

/* Products of block j of a unit: its K of 16 rows by one panel. q is the panel's first half. sums take
 * those of two blocks before. */
AMX_INLINE void
multiply(const LlmQ8Tile *x, const int8_t *q, const int blocks, const int j, int32_t *sums)
{
	const int8_t *xj = x->q[0] + j * 32 / blocks;
	const int8_t *qj = q + j / blocks * 1024 + j % blocks * 256;

	if (j % 2 == 0)
		MULTIPLY(0, 2, 4, xj, qj, sums);
	else
		MULTIPLY(1, 3, 5, xj, qj, sums);
}

/* Fold block j's sums of 16 rows into their accumulators. */
AMX_INLINE void
scale(const LlmQ8Tile *x, const Weights *b, int u, int panel, const int blocks, const int j,
	  const int32_t *sums, vf acc[AMX_ROWS])
{
	vf d = vf_load(b->d[u][j][panel]), bias = vf_set1(-BIAS);

	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
	{
		vf sum = _mm512_castsi512_ps(_mm512_load_si512(sums + i * LLM_LANES));

		acc[i] = vf_fma(vf_add(sum, bias), vf_mul(d, vf_set1(x->d[j / blocks][i])), acc[i]);
	}
}

/* Add what the minima of one half make. */
AMX_INLINE void
add_minima(const LlmQ8Tile *x, vf m, const int half, vf acc[AMX_ROWS])
{
	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
		acc[i] = vf_fma(m, vf_set1(x->s[half][i]), acc[i]);
}

/* Fetch this job's part of a unit of weights. */
AMX_INLINE void
fetch(const Tile *t, const uint8_t *unit)
{
	for (int i = t->fetch_from; i < t->fetch_end; i++)
		_mm_prefetch((const char *) unit + i * 64, _MM_HINT_T1);
}

/* A job whose first two blocks are in the tiles already; the next job's first two take their place. The
 * ring of sums is 4 KB for most types, so that no load meets a store 4 KB apart. */
AMX_INLINE void
tile_run(const Weights *b, const Rows *r, const Tile *t, const Tile *next, size_t ldy,
		 size_t unit_nbytes, const int blocks, const bool minimum)
{
	int32_t ring[2 * 4 * AMX_SUMS] __attribute__((aligned(4096)));
	const LlmQ8Tile *x = t->x;
	vf acc[AMX_ROWS];

	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
		acc[i] = r->first || i >= t->n_rows ? vf_set1(0.0f) : vf_load(t->y + (size_t) i * ldy);
	for (int i = 0; i < next->n_rows; i++)
		_mm_prefetch((const char *) (next->y + (size_t) i * ldy), _MM_HINT_T0);
	for (int u = 0; u < r->n_units; u++)
	{
		const bool more = u + 1 < r->n_units;
		const LlmQ8Tile *x1 = more ? x + u + 1 : next->x;
		const int8_t *q = b->q[u][0][t->panel];
		const int8_t *q1 = more ? b->q[u + 1][0][t->panel] : b->q[0][0][next->panel];
		int32_t *sums = ring + u % 2 * 2 * blocks * AMX_SUMS;

		fetch(t, t->fetch + (size_t) u * unit_nbytes);
		VEC_UNROLL
		for (int first = 0; first < 2 * blocks; first += 2)
		{
			const bool here = first + 2 < 2 * blocks;

			VEC_UNROLL
			for (int j = first; j < first + 2; j++)
				multiply(here ? x + u : x1, here ? q : q1, blocks, (j + 2) % (2 * blocks),
						 sums + j * AMX_SUMS);
			VEC_UNROLL
			for (int j = first; j < first + 2; j++)
			{
				scale(x + u, b, u, t->panel, blocks, j, sums + j * AMX_SUMS, acc);
				if (minimum)
					add_minima(x + u, vf_load(b->m[u][j][t->panel]), j, acc);
			}
		}
	}
	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
	{
		if (i < t->n_rows)
			vf_store(t->y + (size_t) i * ldy, acc[i]);
	}
}

/* Where a pair's products go and what is to be fetched meanwhile. */
typedef struct Pair
{
	float *y;             /* first row, first column */
	size_t ldy;           /* floats between rows */
	int n_panels;         /* 1 or 2 */
	const uint8_t *fetch; /* the next pair's first unit of the block */
	size_t panel_nbytes;
	size_t unit_nbytes;
} Pair;

AMX_INLINE Tile
pair_tile(const Rows *r, const Pair *pair, int i)
{
	int n = i / pair->n_panels % r->n_tiles, p = i % pair->n_panels, row = n * AMX_ROWS;
	int lines = (int) (pair->unit_nbytes + 63) / 64;
	bool full = r->n_rows - row >= AMX_ROWS;

	return (Tile){.x = r->x + (size_t) n * r->ldx,
				  .y = pair->y + (size_t) row * pair->ldy + p * LLM_LANES,
				  .n_rows = full ? AMX_ROWS : r->n_rows - row,
				  .panel = p,
				  .fetch = pair->fetch + (size_t) p * pair->panel_nbytes,
				  .fetch_from = lines * n / r->n_tiles,
				  .fetch_end = lines * (n + 1) / r->n_tiles};
}

/* All rows by a pair of panels, over one block of K. */
AMX_INLINE void
pair_run(const Weights *b, const Rows *r, const Pair *pair, const int blocks, const bool minimum)
{
	Tile t = pair_tile(r, pair, 0);
	int32_t none[AMX_SUMS];

	/* gcc 12's tile loads do not say that they read memory: keep what was unpacked before them */
	__asm__ volatile("" : : : "memory");
	VEC_UNROLL
	for (int j = 0; j < 2; j++)
		multiply(t.x, b->q[0][0][0], blocks, j, none);
	for (int i = 0; i < r->n_tiles * pair->n_panels; i++)
	{
		Tile next = pair_tile(r, pair, i + 1);

		tile_run(b, r, &t, &next, pair->ldy, pair->unit_nbytes, blocks, minimum);
		t = next;
	}
}

AMX_FN void
pair_run_plain(const Weights *b, const Rows *r, const Pair *pair)
{
	pair_run(b, r, pair, 1, false);
}

AMX_FN void
pair_run_minimum(const Weights *b, const Rows *r, const Pair *pair)
{
	pair_run(b, r, pair, 1, true);
}

AMX_FN void
pair_run_blocks(const Weights *b, const Rows *r, const Pair *pair)
{
	pair_run(b, r, pair, 2, false);
}

/* Some rows by all panels, over one block of K that begins at unit u. */
AMX_FN void
block_run(const LlmGemm *g, Rows *r, int u)
{
	LlmPanelForm form = llm_panel_form(g->type);
	size_t record = llm_panel_record_nbytes(g->type);
	const uint8_t *w = g->w + (size_t) (u / form.units) * record;
	void (*run)(const Weights *, const Rows *, const Pair *) = form.blocks > 1 ? pair_run_blocks
															   : form.minimum  ? pair_run_minimum
																			   : pair_run_plain;
	Weights b;

	for (int32_t p = 0; p < g->n_panels; p += 2)
	{
		Pair pair = {.y = g->y + p * LLM_LANES,
					 .ldy = (size_t) g->ldy,
					 .n_panels = p + 1 < g->n_panels ? 2 : 1,
					 .fetch = w + 2 * g->panel_nbytes,
					 .panel_nbytes = g->panel_nbytes,
					 .unit_nbytes = record / (size_t) form.units};

		unpack(g->type, w, pair.n_panels == 2 ? g->panel_nbytes : 0, r->n_units, &b);
		run(&b, r, &pair);
		w += 2 * g->panel_nbytes;
	}
}

/* Rows in chunks, whose part of a block stays in the second cache. */
AMX_FN void
tiles_run(const LlmGemm *g)
{
	int n_units = (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT, row_max = AMX_TILES * AMX_ROWS;
	int units = AMX_UNITS / llm_panel_form(g->type).units * llm_panel_form(g->type).units;
	Rows r;

	tiles_configure(g->type);
	for (int32_t row = 0; row < g->n_rows; row += row_max)
	{
		LlmGemm part = *g;

		part.y += (size_t) row * (size_t) g->ldy;
		r.ldx = (size_t) n_units;
		r.n_rows = g->n_rows - row < row_max ? g->n_rows - row : row_max;
		r.n_tiles = (r.n_rows + AMX_ROWS - 1) / AMX_ROWS;
		for (int u = 0; u < n_units; u += units)
		{
			r.x = g->tiles + (size_t) (row / AMX_ROWS) * r.ldx + u;
			r.n_units = n_units - u < units ? n_units - u : units;
			r.first = u == 0;
			block_run(&part, &r, u);
		}
	}
	_tile_release();
}

void
llm_gemm_quant_amx(const LlmGemm *g)
{
	size_t n_units = (size_t) (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;
	int32_t left = g->n_rows % AMX_ROWS, cols = g->n_cols / LLM_LANES * LLM_LANES;
	LlmGemm part = *g;

	part.n_rows = g->tiles == NULL || g->n_rows < LLM_GEMM_AMX_ROWS ? 0
				  : left < AMX_LAST_ROWS                            ? g->n_rows - left
																	: g->n_rows;
	part.n_panels = cols / LLM_LANES;
	part.n_cols = cols;
	if (part.n_rows > 0 && cols > 0)
		tiles_run(&part);
	else
		part.n_rows = 0;
	if (part.n_rows < g->n_rows)
	{
		LlmGemm below = *g;

		below.n_rows -= part.n_rows;
		below.q += (size_t) part.n_rows * n_units;
		below.y += (size_t) part.n_rows * (size_t) g->ldy;
		llm_gemm_quant_avx512_pairs(&below);
	}
	if (part.n_rows > 0 && cols < g->n_cols)
	{
		LlmGemm beside = *g;

		beside.w += (size_t) part.n_panels * g->panel_nbytes;
		beside.y += cols;
		beside.n_panels -= part.n_panels;
		beside.n_cols -= cols;
		beside.n_rows = part.n_rows;
		llm_gemm_quant_avx512_pairs(&beside);
	}
}

#endif
