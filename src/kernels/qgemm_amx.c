/*
 * kernels/qgemm_amx.c - quantised products of many rows with AMX tiles.
 *
 * A tile product sums 32 K of 16 rows and 16 columns exactly into 32 bits, which is all that rule
 * R2 asks of the integer part; scaling and accumulating are the same operations in the same order
 * as in the other files. Work on a pair of panels, by blocks of K:
 *
 *   unpack    the block's weights to signed bytes and its scales to floats, shared by all rows
 *   multiply  one half (32 K) of 16 rows by one panel, into 32-bit sums in memory
 *   scale     those sums into 16 accumulators in registers, halves ascending
 *
 * The tile unit multiplies two halves ahead of the scaling, so that both kinds of units have work.
 * Accumulators wait in y between blocks, which loses nothing. Rows and panels that fill no tile,
 * and products of few rows, go to the AVX-512 routine.
 */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include "kernels/unpack_avx512.h"

#include "kernels/panel_ops.h"
#include "kernels/tile_config.h"

#define AMX_FN                                                                                     \
	__attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,"       \
						  "avx2,fma,f16c"))) static
#define AMX_INLINE AMX_FN inline __attribute__((always_inline))

#define AMX_ROWS 16        /* rows of a tile */
#define AMX_MIN_ROWS 16    /* fewer are faster without */
#define AMX_BLOCK_UNITS 32 /* units of a block: 2048 K, 64 KB of weights */

/* A block of K of a pair of panels, unpacked; the inner indices are half, panel. */
typedef struct Block
{
	int8_t w[AMX_BLOCK_UNITS][2][2][512]
		__attribute__((aligned(64)));   /* [8 k groups][16 columns][4 k] */
	float d[AMX_BLOCK_UNITS][2][2][16]; /* scales */
	float m[AMX_BLOCK_UNITS][2][2][16]; /* minima, if the type has them */
	int n_units;
	bool first; /* of K: accumulators begin at 0 */
} Block;

/* 16 rows of the product. */
typedef struct Rows
{
	const LlmQ8Unit *x; /* first row, first unit of the block */
	size_t ldx;         /* units between rows */
	float *y;           /* first row, first column of the pair */
	size_t ldy;         /* floats between rows */
} Rows;

/* Tiles 0-1 hold sums, 4-5 activations, 6-7 weights. */
AMX_FN void
tiles_configure(void)
{
	LlmTileConfig c = {.palette = 1};

	for (int i = 0; i < 8; i++)
	{
		c.rows[i] = i < 6 ? AMX_ROWS : 8;
		c.row_nbytes[i] = i == 4 || i == 5 ? 32 : 64;
	}
	llm_tiles_configure(&c);
}

/* Signed bytes, as the tiles' products want them. */
AMX_INLINE void
unpack_half(const LlmDtype type, const uint8_t *q, int8_t out[512])
{
	const __m512i offset =
		_mm512_set1_epi8(llm_panel_form(type).offset ? (char) LLM_PANEL_OFFSET : 0);

	for (int j = 0; j < 8; j++)
		_mm512_store_si512(out + j * 64, _mm512_sub_epi8(unpack_weights(type, q, j), offset));
}

AMX_INLINE void
unpack_typed(const LlmDtype type, const uint8_t *w, size_t panel, Block *b)
{
	const int units = llm_panel_form(type).units;
	const size_t head = llm_panel_head_nbytes(type), half = llm_panel_half_nbytes(type);

	for (int n = 0; n < b->n_units * 4; n++)
	{
		int u = n / 4, h = n / 2 % 2, p = n % 2, i = u % units * 2 + h;
		const uint8_t *record =
			w + (size_t) p * panel + (size_t) (u / units) * llm_panel_record_nbytes(type);

		unpack_half(type, record + head + (size_t) i * half, b->w[u][h][p]);
		vf_store(b->d[u][h][p], panel_scale(type, record, i));
		if (llm_panel_form(type).minimum)
			vf_store(b->m[u][h][p], panel_minimum(type, record, i));
	}
}

/* Any type with one scale for 32 K. */
AMX_FN void
unpack(LlmDtype type, const uint8_t *w, size_t panel, Block *b)
{
	switch (type)
	{
#define UNPACK_TYPED(type)                                                                         \
	case type:                                                                                     \
		unpack_typed(type, w, panel, b);                                                           \
		break;
		UNPACK_TYPED(LLM_DTYPE_Q4_0)
		UNPACK_TYPED(LLM_DTYPE_Q4_1)
		UNPACK_TYPED(LLM_DTYPE_Q5_0)
		UNPACK_TYPED(LLM_DTYPE_Q5_1)
		UNPACK_TYPED(LLM_DTYPE_Q4_K)
		UNPACK_TYPED(LLM_DTYPE_Q5_K)
#undef UNPACK_TYPED
		default:
			unpack_typed(LLM_DTYPE_Q8_0, w, panel, b);
	}
}

/* Sums of one half of 16 rows by one panel. Tile numbers must be constants: two sets take turns. */
AMX_INLINE void
multiply(const LlmQ8Unit *x, size_t ld, const int half, const int8_t *w, int32_t *sums)
{
	if (half == 0)
	{
		_tile_loadd(4, x->q, ld);
		_tile_loadd(6, w, 64);
		_tile_zero(0);
		_tile_dpbssd(0, 4, 6);
		_tile_stored(0, sums, 64);
	}
	else
	{
		_tile_loadd(5, x->q + 32, ld);
		_tile_loadd(7, w, 64);
		_tile_zero(1);
		_tile_dpbssd(1, 5, 7);
		_tile_stored(1, sums, 64);
	}
}

/* Fold one half's sums of 16 rows into their accumulators. */
AMX_INLINE void
scale(const LlmQ8Unit *x, size_t ldx, const int half, vf d, vf m, const bool min,
	  const int32_t *sums, vf acc[AMX_ROWS])
{
	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
	{
		const LlmQ8Unit *xi = (const LlmQ8Unit *) ((const uint8_t *) x + (size_t) i * ldx);
		vf sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * 16));

		acc[i] = vf_fma(sum, vf_mul(d, vf_set1(xi->d[half])), acc[i]);
		if (min)
			acc[i] = vf_fma(m, vf_set1(xi->s[half]), acc[i]);
	}
}

/* 16 rows by one panel over one block of K. Sums go round a ring of four tiles, two halves ahead of
 * their scaling; the ring is 4 KB so that no load meets a younger store 4 KB apart. */
AMX_INLINE void
rows_run(const Block *b, const Rows *r, const int p, const bool min)
{
	int32_t ring[4][AMX_ROWS * 16] __attribute__((aligned(4096)));
	const size_t ld = r->ldx * sizeof(LlmQ8Unit);
	const LlmQ8Unit *x = r->x;
	float *y = r->y + p * 16;
	vf acc[AMX_ROWS];

	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
		acc[i] = b->first ? vf_set1(0.0f) : vf_load(y + (size_t) i * r->ldy);
	multiply(x, ld, 0, b->w[0][0][p], ring[0]);
	multiply(x, ld, 1, b->w[0][1][p], ring[1]);
	for (int u = 0; u < b->n_units; u++, x++)
	{
		int32_t(*now)[AMX_ROWS * 16] = ring + u % 2 * 2,
								 (*next)[AMX_ROWS * 16] = ring + (u + 1) % 2 * 2;
		bool more = u + 1 < b->n_units;

		if (more)
			multiply(x + 1, ld, 0, b->w[u + 1][0][p], next[0]);
		scale(x, ld, 0, vf_load(b->d[u][0][p]), vf_load(b->m[u][0][p]), min, now[0], acc);
		if (more)
			multiply(x + 1, ld, 1, b->w[u + 1][1][p], next[1]);
		scale(x, ld, 1, vf_load(b->d[u][1][p]), vf_load(b->m[u][1][p]), min, now[1], acc);
	}
	VEC_UNROLL
	for (int i = 0; i < AMX_ROWS; i++)
		vf_store(y + (size_t) i * r->ldy, acc[i]);
}

/* All rows of the tiles by one pair of panels. */
AMX_FN void
pair_run(const LlmGemm *g, int32_t pair, int n_tiles)
{
	int n_units = (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;
	int units = llm_panel_form(g->type).units; /* of a record; a block holds whole ones */
	const uint8_t *w = g->w + (size_t) (2 * pair) * g->panel_nbytes;
	Block b;

	for (int u = 0; u < n_units; u += AMX_BLOCK_UNITS)
	{
		Rows r = {g->q + u, (size_t) n_units, g->y + 2 * pair * LLM_LANES, (size_t) g->ldy};

		b.n_units = n_units - u < AMX_BLOCK_UNITS ? n_units - u : AMX_BLOCK_UNITS;
		b.first = u == 0;
		unpack(g->type, w + (size_t) (u / units) * llm_panel_record_nbytes(g->type),
			   g->panel_nbytes, &b);
		for (int t = 0; t < n_tiles; t++)
		{
			for (int p = 0; p < 2; p++)
			{
				if (llm_panel_form(g->type).minimum)
					rows_run(&b, &r, p, true);
				else
					rows_run(&b, &r, p, false);
			}
			r.x += AMX_ROWS * r.ldx;
			r.y += AMX_ROWS * r.ldy;
		}
	}
}

AMX_FN void
pairs_run(const LlmGemm *g, int n_pairs, int n_tiles)
{
	tiles_configure();
	for (int i = 0; i < n_pairs; i++)
		pair_run(g, i, n_tiles);
	_tile_release();
}

void
llm_gemm_quant_amx(const LlmGemm *g)
{
	bool by_tiles = g->n_rows >= AMX_MIN_ROWS && llm_panel_form(g->type).blocks == 1;
	int n_tiles = by_tiles ? g->n_rows / AMX_ROWS : 0;
	int n_pairs = n_tiles > 0 ? g->n_cols / (2 * LLM_LANES) : 0;
	size_t n_units = (size_t) (g->k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;
	LlmGemm rest = *g;

	if (n_pairs > 0)
		pairs_run(g, n_pairs, n_tiles);
	/* columns beside the pairs, all rows */
	rest.w += (size_t) (2 * n_pairs) * g->panel_nbytes;
	rest.y += 2 * n_pairs * LLM_LANES;
	rest.n_panels -= 2 * n_pairs;
	rest.n_cols -= 2 * n_pairs * LLM_LANES;
	if (rest.n_panels > 0)
		llm_gemm_quant_avx512(&rest);
	/* rows below the tiles, columns of the pairs */
	rest = *g;
	rest.n_rows -= n_tiles * AMX_ROWS;
	rest.q += (size_t) (n_tiles * AMX_ROWS) * n_units;
	rest.y += (size_t) (n_tiles * AMX_ROWS) * (size_t) g->ldy;
	rest.n_panels = 2 * n_pairs;
	rest.n_cols = 2 * n_pairs * LLM_LANES;
	if (n_pairs > 0 && rest.n_rows > 0)
		llm_gemm_quant_avx512(&rest);
}

#endif
