/*
 * kernels/attn_amx.h - one split of attention over I8 pages by AMX tiles: 16 query vectors at a time.
 *
 * K of 16 positions is a tile as it lies in its page (64 values of each), and so is V of 64 positions
 * (16 values of each). Both planes of the vectors' bytes are signed operands. The sums are whole
 * numbers, so the bits are those of attn_int8.h, which has all that is not a product.
 *
 * Tiles: 0 - 3 sums, 4 and 5 the two planes of the vectors, 6 and 7 K or V. Include after
 * vec_avx512.h.
 */
#ifndef LLM_KERNELS_ATTN_AMX_H
#define LLM_KERNELS_ATTN_AMX_H

#include "kernels/attn_int8.h"
#include "kernels/tile_config.h"

#define TILE_FN                                                                                    \
	__attribute__((target(                                                                         \
		"amx-tile,amx-int8,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))) static
#define TILE_ROWS 16
#define TILE_ROWS_LEAST 7 /* vectors for which a tile is worth it */

/* Vectors as rows of tiles 0 - 5. */
TILE_FN void
attn_tiles_begin(int n_rows)
{
	LlmTileConfig c = {.palette = 1};

	for (int i = 0; i < 8; i++)
	{
		c.row_nbytes[i] = 64;
		c.rows[i] = (uint8_t) (i < 6 ? n_rows : TILE_ROWS);
	}
	llm_tiles_configure(&c);
}

/* Sums of two pairs of tiles of 16 columns: n steps of 64 numbers. a: of the first vector, stride
 * a_nbytes; its planes a_plane apart. b: columns, b_nbytes from row to row, b_step from step to step,
 * the second tile b_next later. Leaves 32 columns of both planes at high and low. */
TILE_FN inline __attribute__((always_inline)) void
attn_tiles_dots(const int8_t *a, size_t a_nbytes, size_t a_plane, const int8_t *b, size_t b_nbytes,
				size_t b_step, size_t b_next, int32_t *high, int32_t *low, size_t n)
{
	/* gcc 12's _tile_loadd does not say that it reads memory: what it reads must be there */
	__asm__ volatile("" : : : "memory");
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (size_t i = 0; i < n; i++)
	{
		_tile_loadd(4, a + i * 64, a_nbytes);
		_tile_loadd(6, b + i * b_step, b_nbytes);
		_tile_dpbssd(0, 4, 6);
		_tile_loadd(7, b + i * b_step + b_next, b_nbytes);
		_tile_dpbssd(1, 4, 7);
		_tile_loadd(5, a + a_plane + i * 64, a_nbytes);
		_tile_dpbssd(2, 5, 6);
		_tile_dpbssd(3, 5, 7);
	}
	_tile_stored(0, high, ATTN_SPLIT * sizeof(int32_t));
	_tile_stored(1, high + 16, ATTN_SPLIT * sizeof(int32_t));
	_tile_stored(2, low, ATTN_SPLIT * sizeof(int32_t));
	_tile_stored(3, low + 16, ATTN_SPLIT * sizeof(int32_t));
}

/* attn_rows_next of vectors first .. first + n, at most a tile of them. Returns a bit for each that sees
 * something. */
TILE_FN inline __attribute__((always_inline)) __mmask16
attn_tile_rows(const LlmAttnSplit *s, AttnRows *rows, int first, int n)
{
	__mmask16 all = (__mmask16) ((1u << n) - 1);
	__m512i lo = _mm512_maskz_loadu_epi32(all, s->lo + first);
	__m512i hi = _mm512_maskz_loadu_epi32(all, s->hi + first);
	__mmask16 see = _mm512_mask_cmplt_epi32_mask(all, lo, hi);
	__m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

	index = _mm512_add_epi32(index, _mm512_set1_epi32(first));
	_mm512_storeu_si512(rows->index, _mm512_maskz_compress_epi32(see, index));
	rows->n = __builtin_popcount(see);
	rows->lo = _mm512_mask_reduce_min_epi32(see, lo);
	rows->hi = _mm512_mask_reduce_max_epi32(see, hi);
	return see;
}

/* attn_fold of all that see something. */
TILE_FN inline __attribute__((always_inline)) void
attn_tile_fold(const LlmAttnSplit *s, AttnRows *rows, int first, __mmask16 see)
{
	float *m = s->m + first, *l = s->l + first;
	vf before = _mm512_maskz_compress_ps(see, _mm512_maskz_loadu_ps(see, m));
	vf here = vf_load(rows->m), top = vf_max(before, here);
	vf keep = vf_exp(vf_sub(before, top)), take = vf_exp(vf_sub(here, top)), sum;

	sum = _mm512_maskz_compress_ps(see, _mm512_maskz_loadu_ps(see, l));
	sum = vf_fma(sum, keep, vf_mul(vf_load(rows->l), take));
	vf_store(rows->keep, keep);
	vf_store(rows->take, take);
	_mm512_mask_storeu_ps(m, see, _mm512_maskz_expand_ps(see, top));
	_mm512_mask_storeu_ps(l, see, _mm512_maskz_expand_ps(see, sum));
}

/* Vectors first .. of one tile: those of a->rows see something. */
TILE_FN void
attn_tile_pass(const LlmAttnSplit *s, AttnInts *a, int first, __mmask16 see)
{
	size_t k_dim = (size_t) s->k_dim, q_nbytes = llm_attn_query_nbytes(s->k_dim);
	size_t v_nbytes = 4 * (size_t) s->v_stride, group = 16 * k_dim;
	const int8_t *k = s->k, *v = s->v, *q = attn_int_query(s, first)->v;
	int R = a->rows.n;

	for (int g = 0; g * 16 < a->rows.hi; g += 2)
		attn_tiles_dots(q, q_nbytes, k_dim, k + (size_t) g * group, 64, 1024, group,
						&a->dots[0][0][g * 16], &a->dots[1][0][g * 16], k_dim / 64);
	attn_int_weights(s, a, R, first, true);
	attn_tile_fold(s, &a->rows, first, see);
	for (int j = 0; j < s->v_stride / 16; j += 4)
	{
		for (int c = 0; c < 4; c += 2)
			attn_tiles_dots(a->fixed[0], sizeof(a->fixed[0]), ATTN_SPLIT, v + (size_t) (j + c) * 64,
							v_nbytes, 0, 64, &a->dots[0][0][c * 16], &a->dots[1][0][c * 16], 1);
		attn_int_fold(s, a, R, j, 4, first, true);
	}
}

/* All vectors of a split. */
TILE_FN void
attn_tile_passes(const LlmAttnSplit *s)
{
	AttnInts a;
	int n_rows = 0;

	attn_fetch(s->v, (size_t) ATTN_SPLIT * (size_t) s->v_stride,
			   (size_t) ATTN_SPLIT * (size_t) s->v_stride, 0);
	for (int i = 0; i < s->n_q; i += TILE_ROWS)
	{
		int n = s->n_q - i < TILE_ROWS ? s->n_q - i : TILE_ROWS;
		__mmask16 see = attn_tile_rows(s, &a.rows, i, n);

		if (see == 0)
			continue;
		if (n != n_rows)
			attn_tiles_begin(n_rows = n);
		attn_tile_pass(s, &a, i, see);
	}
	if (n_rows > 0)
		_tile_release();
	if (s->next_k != NULL)
		attn_fetch(s->next_k, s->next_k_nbytes, s->next_k_nbytes, 0);
}

VEC_FN void
op_attn_split_amx(const LlmAttnSplit *s)
{
	if (s->k_type == LLM_DTYPE_I8 && s->n_q >= TILE_ROWS_LEAST && s->k_dim % 64 == 0 &&
		s->v_stride % 64 == 0)
		attn_tile_passes(s);
	else
		op_attn_split(s);
}

#endif
