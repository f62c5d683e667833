/*
 * kernels/attn_ops.h - one split of attention: 64 positions of one KV head (rule R7).
 *
 * Written over the 16 lanes of a vec_*.h; include after one.
 *
 *   load     the value that the store's type stands for, exactly (tensor/kv_spec.h)
 *   scores   lanes run along positions, FMA ascending in d, then scale, softcap, mask to -inf
 *   weights  exp(score - maximum); exactly 0 where masked; sum in 16 lanes and the fixed tree
 *   values   lanes run along the head's values, FMA ascending in position
 *   fold     (m, l, o) of the splits before, with this split's, in this order
 *
 * Each query vector has its own accumulators, so grouping query vectors changes nothing. Positions
 * that a vector must not see take part with weight 0: their values are finite, and a sum that ends
 * in -0 is made +0, so they cannot change a bit.
 */
#ifndef LLM_KERNELS_ATTN_OPS_H
#define LLM_KERNELS_ATTN_OPS_H

#include <math.h>

#include "kernels/kernels.h"
#include "kernels/vec_math.h"

#define ATTN_SPLIT LLM_PAGE_TOKENS

/* The query vectors of one pass. */
typedef struct AttnPass
{
	int index[VEC_ATTN_ROWS];           /* of the vector in the split's arrays */
	float p[VEC_ATTN_ROWS][ATTN_SPLIT]; /* scores, then weights */
	float m[VEC_ATTN_ROWS];             /* maximum of this split */
	float l[VEC_ATTN_ROWS];             /* sum of weights */
	float keep[VEC_ATTN_ROWS];          /* factor for the splits before */
	float take[VEC_ATTN_ROWS];          /* factor for this split */
	bool fetch;                         /* all vectors of the item in one pass: memory bound */
	int lo;                             /* first position that any vector sees */
	int hi;                             /* one past the last */
} AttnPass;

/* 16 values of a page from value i on; scale is of their tokens, for I8 alone. */
VEC_INLINE vf
attn_load(const void *p, size_t i, vf scale, const LlmDtype type)
{
	if (type == LLM_DTYPE_I8)
		return vf_mul(vf_load_int8((const int8_t *) p + i), scale);
	return type == LLM_DTYPE_F16 ? vf_load_half((const uint16_t *) p + i)
								 : vf_load((const float *) p + i);
}

/* Scales [64] of a page's vectors of n values; only I8 has them. */
VEC_INLINE const float *
attn_scales(const void *p, int32_t n)
{
	return (const float *) ((const int8_t *) p + (size_t) ATTN_SPLIT * (size_t) n);
}

/* Bytes to fetch per turn so that n turns fetch all: whole cache lines. */
static inline size_t
attn_fetch_step(size_t nbytes, size_t n)
{
	return ((nbytes + n - 1) / n + 63) / 64 * 64;
}

/* Turn i of fetching a run of bytes. A page lies anywhere in memory, and few query vectors compute
 * faster than the hardware finds out: V is fetched during the scores, the next split's K during the
 * values. */
VEC_INLINE void
attn_fetch(const void *p, size_t nbytes, size_t step, size_t i)
{
	for (size_t b = i * step; b < (i + 1) * step && b < nbytes; b += 64)
		__builtin_prefetch((const char *) p + b, 0, 2);
}

/* p[r][t] = q[r] . k[t] for R vectors and all positions. */
VEC_INLINE void
attn_scores(const LlmAttnSplit *s, AttnPass *pass, const int R, const LlmDtype type)
{
	const float *q[VEC_ATTN_ROWS], *scales = attn_scales(s->k, s->k_dim);
	size_t group = (size_t) s->k_dim * 16;
	size_t v_nbytes = llm_kv_block_nbytes(s->v_type, s->v_stride);
	size_t step = attn_fetch_step(v_nbytes, (size_t) (4 / VEC_ATTN_GROUPS * s->k_dim));

	VEC_UNROLL
	for (int r = 0; r < R; r++)
		q[r] = s->q[pass->index[r]];
	for (int g = 0; g < 4; g += VEC_ATTN_GROUPS)
	{
		vf acc[VEC_ATTN_ROWS][VEC_ATTN_GROUPS], scale[VEC_ATTN_GROUPS];

		VEC_UNROLL
		for (int c = 0; c < VEC_ATTN_GROUPS; c++)
			scale[c] = type == LLM_DTYPE_I8 ? vf_load(scales + (g + c) * 16) : vf_set1(1.0f);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			VEC_UNROLL
			for (int c = 0; c < VEC_ATTN_GROUPS; c++)
				acc[r][c] = vf_set1(0.0f);
		}
		for (int d = 0; d < s->k_dim; d++)
		{
			vf k[VEC_ATTN_GROUPS];

			if (pass->fetch)
				attn_fetch(s->v, v_nbytes, step, (size_t) (g / VEC_ATTN_GROUPS * s->k_dim + d));
			VEC_UNROLL
			for (int c = 0; c < VEC_ATTN_GROUPS; c++)
				k[c] = attn_load(s->k, (size_t) (g + c) * group + (size_t) d * 16, scale[c], type);
			VEC_UNROLL
			for (int r = 0; r < R; r++)
			{
				vf x = vf_set1(q[r][d]);

				VEC_UNROLL
				for (int c = 0; c < VEC_ATTN_GROUPS; c++)
					acc[r][c] = vf_fma(k[c], x, acc[r][c]);
			}
		}
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			VEC_UNROLL
			for (int c = 0; c < VEC_ATTN_GROUPS; c++)
				vf_store(pass->p[r] + (g + c) * 16, acc[r][c]);
		}
	}
}

/* cap * tanh(x / cap), tanh(y) = 1 - 2 / (e^2y + 1). */
VEC_INLINE vf
attn_softcap(vf x, float cap)
{
	vf y = vf_div(x, vf_set1(cap));
	vf e = vf_exp(vf_add(y, y));
	vf t = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));

	return vf_mul(t, vf_set1(cap));
}

/* Scores of one vector to weights, their maximum and sum. */
VEC_INLINE void
attn_weights(const LlmAttnSplit *s, AttnPass *pass, int r)
{
	int lo = s->lo[pass->index[r]], hi = s->hi[pass->index[r]];
	vf none = vf_set1(-INFINITY);
	vf max = none, sum = vf_set1(0.0f), x[4];
	vf scale = vf_set1(s->scale);

	VEC_UNROLL
	for (int g = 0; g < 4; g++)
	{
		x[g] = vf_mul(vf_load(pass->p[r] + g * 16), scale);
		if (s->softcap != 0.0f)
			x[g] = attn_softcap(x[g], s->softcap);
		x[g] = vf_between(x[g], lo - g * 16, hi - g * 16, none);
		max = vf_max(max, x[g]);
	}
	pass->m[r] = vf_max_lane(max);
	max = vf_set1(pass->m[r]);
	VEC_UNROLL
	for (int g = 0; g < 4; g++)
	{
		vf p = vf_exp(vf_sub(x[g], max));

		p = vf_between(p, lo - g * 16, hi - g * 16, vf_set1(0.0f));
		sum = vf_add(sum, p);
		vf_store(pass->p[r] + g * 16, p);
	}
	pass->l[r] = vf_sum(sum);
}

/* Factors of the fold, and the folded m and l. */
VEC_INLINE void
attn_fold(const LlmAttnSplit *s, AttnPass *pass, const int R)
{
	float x[16] = {0};

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		float m = s->m[pass->index[r]];
		float top = m > pass->m[r] ? m : pass->m[r];

		x[r] = m - top;
		x[8 + r] = pass->m[r] - top;
		s->m[pass->index[r]] = top;
	}
	vf_store(x, vf_exp(vf_load(x)));
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		float *l = &s->l[pass->index[r]];

		pass->keep[r] = x[r];
		pass->take[r] = x[8 + r];
		*l = fmaf(*l, pass->keep[r], pass->l[r] * pass->take[r]);
	}
}

/* J groups of 16 values from group j on: this split's value sum, folded into o. */
VEC_INLINE void
attn_values(const LlmAttnSplit *s, AttnPass *pass, const int R, int j, const int J,
			const LlmDtype type)
{
	const float *scales = attn_scales(s->v, s->v_stride);
	size_t k_nbytes = llm_kv_block_nbytes(s->k_type, s->k_dim);
	size_t step = attn_fetch_step(k_nbytes, ATTN_SPLIT);
	vf acc[VEC_ATTN_ROWS][VEC_ATTN_GROUPS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < J; c++)
			acc[r][c] = vf_set1(0.0f);
	}
	for (int t = pass->lo; t < pass->hi; t++)
	{
		vf v[VEC_ATTN_GROUPS], scale = vf_set1(type == LLM_DTYPE_I8 ? scales[t] : 1.0f);

		if (pass->fetch && j == 0 && s->next_k != NULL)
			attn_fetch(s->next_k, k_nbytes, step, (size_t) t);
		VEC_UNROLL
		for (int c = 0; c < J; c++)
			v[c] = attn_load(s->v, (size_t) t * (size_t) s->v_stride + (size_t) (j + c) * 16, scale,
							 type);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			vf p = vf_set1(pass->p[r][t]);

			VEC_UNROLL
			for (int c = 0; c < J; c++)
				acc[r][c] = vf_fma(p, v[c], acc[r][c]);
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		float *o = s->o + (size_t) pass->index[r] * (size_t) s->v_stride + (size_t) j * 16;
		vf keep = vf_set1(pass->keep[r]), take = vf_set1(pass->take[r]);

		VEC_UNROLL
		for (int c = 0; c < J; c++)
		{
			vf x = vf_mul(vf_add(acc[r][c], vf_set1(0.0f)), take);

			vf_store(o + c * 16, vf_fma(vf_load(o + c * 16), keep, x));
		}
	}
}

/* All groups of values. */
VEC_INLINE void
attn_all_values(const LlmAttnSplit *s, AttnPass *pass, const int R, const LlmDtype type)
{
	int n = s->v_stride / 16, j = 0;

	for (; j + VEC_ATTN_GROUPS <= n; j += VEC_ATTN_GROUPS)
		attn_values(s, pass, R, j, VEC_ATTN_GROUPS, type);
	for (; j < n; j++)
		attn_values(s, pass, R, j, 1, type);
}

/* R vectors over one split. */
VEC_INLINE void
attn_pass(const LlmAttnSplit *s, AttnPass *pass, const int R)
{
	if (s->k_type == LLM_DTYPE_F16)
		attn_scores(s, pass, R, LLM_DTYPE_F16);
	else if (s->k_type == LLM_DTYPE_I8)
		attn_scores(s, pass, R, LLM_DTYPE_I8);
	else
		attn_scores(s, pass, R, LLM_DTYPE_F32);
	for (int r = 0; r < R; r++)
		attn_weights(s, pass, r);
	attn_fold(s, pass, R);
	if (s->v_type == LLM_DTYPE_F16)
		attn_all_values(s, pass, R, LLM_DTYPE_F16);
	else if (s->v_type == LLM_DTYPE_I8)
		attn_all_values(s, pass, R, LLM_DTYPE_I8);
	else
		attn_all_values(s, pass, R, LLM_DTYPE_F32);
}

#define ATTN_PASS(R)                                                                               \
	VEC_FN __attribute__((noinline)) void attn_pass_##R(const LlmAttnSplit *s, AttnPass *pass)     \
	{                                                                                              \
		attn_pass(s, pass, R);                                                                     \
	}

ATTN_PASS(1)
ATTN_PASS(2)
#if VEC_ATTN_ROWS > 2
ATTN_PASS(3)
ATTN_PASS(4)
ATTN_PASS(5)
ATTN_PASS(6)
#endif

static void (*const attn_passes[])(const LlmAttnSplit *, AttnPass *) = {
	NULL,        attn_pass_1, attn_pass_2,
#if VEC_ATTN_ROWS > 2
	attn_pass_3, attn_pass_4, attn_pass_5, attn_pass_6,
#endif
};

VEC_FN void
op_attn_split(const LlmAttnSplit *s)
{
	AttnPass pass = {.fetch = s->n_q <= VEC_ATTN_ROWS};
	int n = 0;

	for (int i = 0; i < s->n_q; i++)
	{
		if (s->lo[i] < s->hi[i])
		{
			if (n == 0)
			{
				pass.lo = ATTN_SPLIT;
				pass.hi = 0;
			}
			pass.index[n++] = i;
			pass.lo = s->lo[i] < pass.lo ? s->lo[i] : pass.lo;
			pass.hi = s->hi[i] > pass.hi ? s->hi[i] : pass.hi;
		}
		if (n == VEC_ATTN_ROWS || (n > 0 && i == s->n_q - 1))
		{
			attn_passes[n](s, &pass);
			n = 0;
		}
	}
}

#endif
