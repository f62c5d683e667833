/*
 * kernels/attn_int8.h - one split of attention over I8 pages: 64 positions of one KV head (rule R7).
 *
 * Keys and values are whole numbers of a byte with a scale per token, so both products of attention
 * can be sums of whole numbers, which are exact in any order: tiles, vectors and plain C agree without
 * agreeing on an order. The other operand is rounded to whole numbers of 14 bits (LLM_ATTN_FIXED): a
 * query vector once per step (attn_query), and the weights of each split.
 *
 *   scores   sum of q k, as a float, times the key's scale; mask to -inf. The query's and the layer's scale
 *            are one factor, applied to what is left of the maximum; before it with a softcap
 *   weights  exp(score - maximum), within 4e-6 of itself: far less than what rounding to 14 bits does. A
 *            weight times its value's scale, in units of the largest such / LLM_ATTN_FIXED, is the
 *            whole number that takes part. Masked ones are 0
 *   values   sum of these numbers times v, as a float, times the unit
 *   fold     as in attn_ops.h
 *
 * (INT8 products in attention: SageAttention, arXiv 2410.02367, which keeps 8 bits of q and halves of
 * the weights. With 14 bits of both, what int8 keys and values cost is what perplexity can see:
 * docs/benchmarks.md.)
 *
 * Written over the 16 lanes of a vec_*.h; include after one.
 */
#ifndef LLM_KERNELS_ATTN_INT8_H
#define LLM_KERNELS_ATTN_INT8_H

#include <float.h>

#include "kernels/attn_ops.h"

#define ATTN_INT_UNIT_MIN                                                                          \
	1e-30f /* weights times scales below are 0: their unit's inverse is a float */

/* The vectors of one pass. A plane of a vector's weights has ATTN_SPLIT bytes. */
typedef struct AttnInts
{
	_Alignas(64) int32_t dots[2][ATTN_ROWS_MAX][ATTN_SPLIT]; /* products, in one plane or two */
	_Alignas(64) float x[ATTN_ROWS_MAX][ATTN_SPLIT];         /* scores, then weights times scales */
	_Alignas(64) int8_t fixed[ATTN_ROWS_MAX][2 * ATTN_SPLIT]; /* weights as whole numbers */
	_Alignas(64) float tops[ATTN_ROWS_MAX][16];               /* maxima of lanes */
	_Alignas(64) float unit[ATTN_ROWS_MAX];  /* what one of the whole numbers stands for */
	_Alignas(64) float scale[ATTN_ROWS_MAX]; /* what a score is to be multiplied by */
	_Alignas(64) float max[ATTN_ROWS_MAX];   /* of the scores before that */
	AttnRows rows;
} AttnInts;

/* Scales [64] behind a page's vectors of n values. */
VEC_INLINE const float *
attn_int_scales(const void *p, int32_t n)
{
	return (const float *) ((const uint8_t *) p + llm_kv_block_nbytes(LLM_DTYPE_I8, n)) -
		   ATTN_SPLIT;
}

VEC_INLINE const LlmAttnQuery *
attn_int_query(const LlmAttnSplit *s, int i)
{
	return (const LlmAttnQuery *) ((const uint8_t *) s->queries +
								   (size_t) i * llm_attn_query_nbytes(s->k_dim));
}

/* The place of vector r in a tile, whose first vector is `first`. */
VEC_INLINE int
attn_int_place(const AttnInts *a, int r, int first, const bool tiles)
{
	return tiles ? a->rows.index[r] - first : r;
}

/* Scores of R vectors but for their scales, which are not negative, and their maxima. */
VEC_INLINE void
attn_int_maxima(const LlmAttnSplit *s, AttnInts *a, const int R, int first, const bool tiles)
{
	const float *scales = attn_int_scales(s->k, s->k_dim);
	const bool capped = s->softcap != 0.0f;
	vf none = vf_set1(-INFINITY);

	vf_store(a->scale, vf_set1(0.0f)); /* of vectors that are not there too */
	for (int r = 0; r < R; r++)
	{
		int i = a->rows.index[r], lo = s->lo[i], hi = s->hi[i];
		int at = attn_int_place(a, r, first, tiles);
		int32_t sum = tiles ? 0 : attn_int_query(s, i)->sum; /* tiles take signed columns */
		bool all = lo == 0 && hi == ATTN_SPLIT;
		float scale = attn_int_query(s, i)->scale * s->scale;
		vf max = none;

		a->scale[r] = capped ? 1.0f : scale;
		VEC_UNROLL
		for (int g = 0; g < 4; g++)
		{
			vf x = vf_load_dots(&a->dots[0][at][g * 16], &a->dots[1][at][g * 16], sum);

			x = vf_mul(x, vf_load(scales + g * 16));
			if (capped)
				x = attn_softcap(vf_mul(x, vf_set1(scale)), s->softcap);
			if (!all)
				x = vf_between(x, lo - g * 16, hi - g * 16, none);
			max = vf_max(max, x);
			vf_store(a->x[r] + g * 16, x);
		}
		vf_store(a->tops[r], max);
	}
	vf_store(a->max, vf_max_rows(a->tops, R));
	vf_store(a->rows.m, vf_mul(vf_load(a->max), vf_load(a->scale)));
}

/* e^(x by), for -70 <= x by <= 0: not less than e^-70, which no sum that has an e^0 can see. low by is -70,
 * power is by in powers of two. By a polynomial of 2^-r for -1/2 <= r <= 1/2 of least relative error (fitted by
 * iterated least squares). */
VEC_INLINE vf
attn_int_exp(vf x, vf power, vf low)
{
	vf magic = vf_set1(LLM_ROUND_MAGIC);
	vf c = vf_max(low, x); /* gives its second operand for NaN, so that NaN passes */
	vf n = vf_sub(vf_fma(c, power, magic), magic);
	vf r = vf_fma(c, vf_sub(vf_set1(0.0f), power), n);
	vf p = vf_fma(vf_set1(9.570102207e-3f), r, vf_set1(-5.591786280e-2f));

	p = vf_fma(p, r, vf_set1(2.402474433e-1f));
	p = vf_fma(p, r, vf_set1(-6.931217909e-1f));
	p = vf_fma(p, r, vf_set1(9.999992847e-1f));
	return vf_scale2(p, n);
}

/* Weights of R vectors before they are rounded, times the scales of V, and what belongs to them: sums of
 * weights, and maxima of lanes. Masked ones must not take part, not even in the unit: they are 0. */
VEC_INLINE void
attn_int_exps(const LlmAttnSplit *s, AttnInts *a, const int R)
{
	_Alignas(64) float sums[ATTN_ROWS_MAX][16], lows[ATTN_ROWS_MAX];
	const float *scales = attn_int_scales(s->v, s->v_stride);
	vf zero = vf_set1(0.0f), least = vf_set1(-FLT_MAX); /* so that no masked one asks for 2^-inf */

	vf_store(lows, vf_max(least, vf_div(vf_set1(-70.0f), vf_load(a->scale))));
	for (int r = 0; r < R; r++)
	{
		int lo = s->lo[a->rows.index[r]], hi = s->hi[a->rows.index[r]];
		bool all = lo == 0 && hi == ATTN_SPLIT;
		vf max = vf_set1(a->max[r]), low = vf_set1(lows[r]), sum = zero, top = zero;
		vf power = vf_set1(a->scale[r] * LLM_LOG2E);

		VEC_UNROLL
		for (int g = 0; g < 4; g++)
		{
			vf p = attn_int_exp(vf_sub(vf_load(a->x[r] + g * 16), max), power, low), w;

			if (!all)
				p = vf_between(p, lo - g * 16, hi - g * 16, zero);
			w = vf_mul(p, vf_load(scales + g * 16));
			sum = vf_add(sum, p);
			top = vf_max(top, w);
			vf_store(a->x[r] + g * 16, w);
		}
		vf_store(sums[r], sum);
		vf_store(a->tops[r], top);
	}
	vf_store(a->rows.l, vf_sum_rows(sums, R));
}

/* Weights of R vectors as whole numbers, and their units. Steps of many vectors one after the other, each
 * step for all vectors, as in attn_ops.h. */
VEC_INLINE void
attn_int_weights(const LlmAttnSplit *s, AttnInts *a, const int R, int first, const bool tiles)
{
	_Alignas(64) float back[ATTN_ROWS_MAX];
	vf top, some;

	attn_int_maxima(s, a, R, first, tiles);
	attn_int_exps(s, a, R);
	top = vf_max_rows(a->tops, R);
	some = vf_if_less(top, vf_set1(ATTN_INT_UNIT_MIN), vf_set1(0.0f), vf_set1(1.0f));
	vf_store(a->unit, vf_mul(vf_mul(top, vf_set1(1.0f / (float) LLM_ATTN_FIXED)), some));
	top = vf_max(top, vf_set1(ATTN_INT_UNIT_MIN));
	vf_store(back, vf_mul(vf_div(vf_set1((float) LLM_ATTN_FIXED), top), some));
	for (int r = 0; r < R; r++)
		vec_fixed_store64(a->x[r], vf_set1(back[r]), a->fixed[attn_int_place(a, r, first, tiles)],
						  0, ATTN_SPLIT);
}

/* Products of J groups of 16 values, folded into o from group j on. */
VEC_INLINE void
attn_int_fold(const LlmAttnSplit *s, const AttnInts *a, const int R, int j, const int J, int first,
			  const bool tiles)
{
	for (int r = 0; r < R; r++)
	{
		int at = attn_int_place(a, r, first, tiles);
		float *o = s->o + (size_t) a->rows.index[r] * (size_t) s->v_stride + (size_t) j * 16;
		vf keep = vf_set1(a->rows.keep[r]), take = vf_set1(a->rows.take[r]);
		vf unit = vf_set1(a->unit[r]);

		VEC_UNROLL
		for (int c = 0; c < J; c++)
		{
			vf x = vf_load_dots(&a->dots[0][at][c * 16], &a->dots[1][at][c * 16], 0);

			x = vf_mul(vf_mul(x, unit), take);
			vf_store(o + c * 16, vf_fma(vf_load(o + c * 16), keep, x));
		}
	}
}

/* Products of R vectors with the keys of C groups of 16 positions from group g on. */
VEC_INLINE void
attn_int_scores(const LlmAttnSplit *s, AttnInts *a, const int R, int g, const int C)
{
	size_t quads = ((size_t) s->k_dim + 3) / 4, plane = llm_attn_query_plane(s->k_dim);
	size_t v_nbytes = (size_t) (a->rows.hi + 3) / 4 * 4 * (size_t) s->v_stride;
	size_t turns = (size_t) ((a->rows.hi + 16 * C - 1) / (16 * C)) * quads;
	size_t step = attn_fetch_step(v_nbytes, turns);
	const int8_t *k = (const int8_t *) s->k + (size_t) g * quads * 64;
	const LlmAttnQuery *q[VEC_ATTN_ROWS];
	vs acc[VEC_ATTN_ROWS][VEC_INT_GROUPS][VEC_INT_PARTS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		q[r] = attn_int_query(s, a->rows.index[r]);
		VEC_UNROLL
		for (int c = 0; c < C; c++)
		{
			VEC_UNROLL
			for (int p = 0; p < VEC_INT_PARTS; p++)
				acc[r][c][p] = vs_zero();
		}
	}
	for (size_t i = 0; i < quads; i++)
	{
		vcol cols[VEC_INT_GROUPS];

		attn_fetch(s->v, v_nbytes, step, (size_t) (g / C) * quads + i);
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			cols[c] = vcol_load(k + ((size_t) c * quads + i) * 64, true);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			vfour four = vfour_load(q[r]->v, i, plane);

			VEC_UNROLL
			for (int c = 0; c < C; c++)
			{
				VEC_UNROLL
				for (int p = 0; p < VEC_INT_PARTS; p++)
					acc[r][c][p] = vs_dot(acc[r][c][p], cols[c], four, p, true);
			}
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			vs_store(&a->dots[0][r][(g + c) * 16], &a->dots[1][r][(g + c) * 16], acc[r][c]);
	}
}

/* Products of R vectors' weights with J groups of 16 values from group j on, folded. */
VEC_INLINE void
attn_int_values(const LlmAttnSplit *s, AttnInts *a, const int R, int j, const int J)
{
	int begin = a->rows.lo / 4, end = (a->rows.hi + 3) / 4; /* fours of positions */
	size_t step = attn_fetch_step(s->next_k_nbytes, (size_t) (end - begin));
	const int8_t *v = (const int8_t *) s->v + (size_t) j * 64;
	vs acc[VEC_ATTN_ROWS][VEC_INT_GROUPS][VEC_INT_PARTS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < J; c++)
		{
			VEC_UNROLL
			for (int p = 0; p < VEC_INT_PARTS; p++)
				acc[r][c][p] = vs_zero();
		}
	}
	for (int t = begin; t < end; t++)
	{
		vcol cols[VEC_INT_GROUPS];

		if (j == 0 && s->next_k != NULL)
			attn_fetch(s->next_k, s->next_k_nbytes, step, (size_t) (t - begin));
		VEC_UNROLL
		for (int c = 0; c < J; c++)
			cols[c] =
				vcol_load(v + ((size_t) t * (size_t) s->v_stride + (size_t) c * 16) * 4, false);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			vfour four = vfour_load(a->fixed[r], (size_t) t, ATTN_SPLIT);

			VEC_UNROLL
			for (int c = 0; c < J; c++)
			{
				VEC_UNROLL
				for (int p = 0; p < VEC_INT_PARTS; p++)
					acc[r][c][p] = vs_dot(acc[r][c][p], cols[c], four, p, false);
			}
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < J; c++)
			vs_store(&a->dots[0][r][c * 16], &a->dots[1][r][c * 16], acc[r][c]);
	}
	attn_int_fold(s, a, R, j, J, 0, false);
}

/* R vectors over one split. */
VEC_INLINE void
attn_int_pass(const LlmAttnSplit *s, AttnInts *a, const int R)
{
	int n = s->v_stride / 16, j = 0;

	for (int g = 0; g * 16 < a->rows.hi; g += VEC_INT_GROUPS)
		attn_int_scores(s, a, R, g, VEC_INT_GROUPS);
	attn_int_weights(s, a, R, 0, false);
	attn_fold(s, &a->rows, R);
	for (; j + VEC_INT_GROUPS <= n; j += VEC_INT_GROUPS)
		attn_int_values(s, a, R, j, VEC_INT_GROUPS);
	for (; j < n; j++)
		attn_int_values(s, a, R, j, 1);
}

#define ATTN_INT_PASS(R)                                                                           \
	VEC_FN __attribute__((noinline)) void attn_int_pass_##R(const LlmAttnSplit *s, AttnInts *a)    \
	{                                                                                              \
		attn_int_pass(s, a, R);                                                                    \
	}

#define ATTN_INT_PASS_NAME(R) attn_int_pass_##R,

ATTN_EACH_ROWS(ATTN_INT_PASS)

static void (*const attn_int_passes[])(const LlmAttnSplit *,
									   AttnInts *) = {NULL, ATTN_EACH_ROWS(ATTN_INT_PASS_NAME)};

/* All passes over one split. */
VEC_FN __attribute__((noinline)) void
attn_int_split(const LlmAttnSplit *s)
{
	AttnInts a;

	for (int i = 0; i < s->n_q;)
	{
		i = attn_rows_next(s, &a.rows, i, s->n_q, VEC_ATTN_ROWS);
		if (a.rows.n > 0)
			attn_int_passes[a.rows.n](s, &a);
	}
}

VEC_FN void
op_attn_split(const LlmAttnSplit *s)
{
	if (s->k_type == LLM_DTYPE_I8)
		attn_int_split(s);
	else
		attn_float_split(s);
}

#endif
