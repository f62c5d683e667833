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
#define ATTN_WIDE_MAX 256 /* values of a head that are turned to floats for all passes at once */

#define ATTN_ROWS_MAX 16

/* The query vectors of one pass. */
typedef struct AttnRows
{
	_Alignas(64) float m[ATTN_ROWS_MAX]; /* maximum of this split */
	float l[ATTN_ROWS_MAX];              /* sum of weights */
	float keep[ATTN_ROWS_MAX];           /* factor for the splits before */
	float take[ATTN_ROWS_MAX];           /* factor for this split */
	int index[ATTN_ROWS_MAX];            /* of the vector in the split's arrays */
	int n;
	int lo; /* first position that any vector sees */
	int hi; /* one past the last */
} AttnRows;

typedef struct AttnPass
{
	_Alignas(64) float p[VEC_ATTN_ROWS][ATTN_SPLIT]; /* scores, then weights */
	AttnRows rows;
	bool fetch; /* all vectors of the item in one pass: memory bound */
} AttnPass;

/* 16 values of a page from value i on. */
VEC_INLINE vf
attn_load(const void *p, size_t i, const LlmDtype type)
{
	return type == LLM_DTYPE_F16 ? vf_load_half((const uint16_t *) p + i)
								 : vf_load((const float *) p + i);
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

/* p[r][t] = q[r] . k[t] for R vectors and the positions of C groups from group g on. */
VEC_INLINE void
attn_scores(const LlmAttnSplit *s, AttnPass *pass, const int R, int g, const int C,
			const LlmDtype type, const bool fetch)
{
	const float *q[VEC_ATTN_ROWS];
	size_t group = (size_t) s->k_dim * 16;
	size_t v_nbytes = (size_t) pass->rows.hi * (size_t) s->v_stride * llm_kv_type_nbytes(s->v_type);
	size_t step =
		attn_fetch_step(v_nbytes, (size_t) ((pass->rows.hi + 16 * C - 1) / (16 * C) * s->k_dim));
	vf acc[VEC_ATTN_ROWS][VEC_ATTN_GROUPS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
		q[r] = s->q[pass->rows.index[r]];
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			acc[r][c] = vf_set1(0.0f);
	}
	for (int d = 0; d < s->k_dim; d++)
	{
		vf k[VEC_ATTN_GROUPS];

		if (fetch)
			attn_fetch(s->v, v_nbytes, step, (size_t) (g / C * s->k_dim + d));
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			k[c] = attn_load(s->k, (size_t) (g + c) * group + (size_t) d * 16, type);
		VEC_UNROLL
		for (int r = 0; r < R; r++)
		{
			vf x = vf_set1(q[r][d]);

			VEC_UNROLL
			for (int c = 0; c < C; c++)
				acc[r][c] = vf_fma(k[c], x, acc[r][c]);
		}
	}
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < C; c++)
			vf_store(pass->p[r] + (g + c) * 16, acc[r][c]);
	}
}

/* The groups up to the last position that any vector sees. */
VEC_INLINE void
attn_all_scores(const LlmAttnSplit *s, AttnPass *pass, const int R, const LlmDtype type,
				const bool fetch)
{
	const int half = (VEC_ATTN_GROUPS + 1) / 2;

	if (pass->rows.hi <= half * 16)
		attn_scores(s, pass, R, 0, half, type, fetch);
	else
		for (int g = 0; g * 16 < pass->rows.hi; g += VEC_ATTN_GROUPS)
			attn_scores(s, pass, R, g, VEC_ATTN_GROUPS, type, fetch);
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

/* Scores of R vectors, scaled, capped and masked, and their maxima. */
VEC_INLINE void
attn_maxima(const LlmAttnSplit *s, AttnPass *pass, const int R)
{
	vf none = vf_set1(-INFINITY), scale = vf_set1(s->scale);

	for (int r = 0; r < R; r++)
	{
		int lo = s->lo[pass->rows.index[r]], hi = s->hi[pass->rows.index[r]];
		bool all = lo == 0 && hi == ATTN_SPLIT;
		vf max = none;

		VEC_UNROLL
		for (int g = 0; g < 4; g++)
		{
			vf x = vf_mul(vf_load(pass->p[r] + g * 16), scale);

			if (s->softcap != 0.0f)
				x = attn_softcap(x, s->softcap);
			if (!all)
				x = vf_between(x, lo - g * 16, hi - g * 16, none);
			max = vf_max(max, x);
			vf_store(pass->p[r] + g * 16, x);
		}
		pass->rows.m[r] = vf_max_lane(max);
	}
}

/* Scores to weights, and their sums. A score of -inf has weight 0. Steps of many vectors one after the
 * other, each step for all vectors: so that none waits for the result of the one before. */
VEC_INLINE void
attn_weights(const LlmAttnSplit *s, AttnPass *pass, const int R)
{
	_Alignas(64) float sums[VEC_ATTN_ROWS][16];

	attn_maxima(s, pass, R);
	for (int r = 0; r < R; r++)
	{
		vf max = vf_set1(pass->rows.m[r]), sum = vf_set1(0.0f);

		VEC_UNROLL
		for (int g = 0; g < 4; g++)
		{
			vf p = vf_exp(vf_sub(vf_load(pass->p[r] + g * 16), max));

			sum = vf_add(sum, p);
			vf_store(pass->p[r] + g * 16, p);
		}
		vf_store(sums[r], sum);
	}
	for (int r = 0; r < R; r++)
		pass->rows.l[r] = vf_sum(vf_load(sums[r]));
}

/* Factors of the fold, and the folded m and l, of at most 8 vectors. */
VEC_INLINE void
attn_fold(const LlmAttnSplit *s, AttnRows *rows, const int R)
{
	_Alignas(64) float x[16] = {0};

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		float m = s->m[rows->index[r]];
		float top = m > rows->m[r] ? m : rows->m[r];

		x[r] = m - top;
		x[8 + r] = rows->m[r] - top;
		s->m[rows->index[r]] = top;
	}
	vf_store(x, vf_exp(vf_load(x)));
	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		float *l = &s->l[rows->index[r]];

		rows->keep[r] = x[r];
		rows->take[r] = x[8 + r];
		*l = fmaf(*l, x[r], rows->l[r] * x[8 + r]);
	}
}

/* J groups of 16 values from group j on: this split's value sum, folded into o. */
VEC_INLINE void
attn_values(const LlmAttnSplit *s, AttnPass *pass, const int R, int j, const int J,
			const LlmDtype type, const bool fetch)
{
	size_t step = attn_fetch_step(s->next_k_nbytes, (size_t) (pass->rows.hi - pass->rows.lo));
	vf acc[VEC_ATTN_ROWS][VEC_ATTN_GROUPS];

	VEC_UNROLL
	for (int r = 0; r < R; r++)
	{
		VEC_UNROLL
		for (int c = 0; c < J; c++)
			acc[r][c] = vf_set1(0.0f);
	}
	for (int t = pass->rows.lo; t < pass->rows.hi; t++)
	{
		vf v[VEC_ATTN_GROUPS];

		if (fetch && j == 0 && s->next_k != NULL)
			attn_fetch(s->next_k, s->next_k_nbytes, step, (size_t) (t - pass->rows.lo));
		VEC_UNROLL
		for (int c = 0; c < J; c++)
			v[c] = attn_load(s->v, (size_t) t * (size_t) s->v_stride + (size_t) (j + c) * 16, type);
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
		float *o = s->o + (size_t) pass->rows.index[r] * (size_t) s->v_stride + (size_t) j * 16;
		vf keep = vf_set1(pass->rows.keep[r]), take = vf_set1(pass->rows.take[r]);

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
attn_all_values(const LlmAttnSplit *s, AttnPass *pass, const int R, const LlmDtype type,
				const bool fetch)
{
	int n = s->v_stride / 16, j = 0;

	for (; j + VEC_ATTN_GROUPS <= n; j += VEC_ATTN_GROUPS)
		attn_values(s, pass, R, j, VEC_ATTN_GROUPS, type, fetch);
	for (; j < n; j++)
		attn_values(s, pass, R, j, 1, type, fetch);
}

/* R vectors over one split. */
VEC_INLINE void
attn_pass(const LlmAttnSplit *s, AttnPass *pass, const int R)
{
	if (s->k_type == LLM_DTYPE_F16)
		attn_all_scores(s, pass, R, LLM_DTYPE_F16, true);
	else if (pass->fetch)
		attn_all_scores(s, pass, R, LLM_DTYPE_F32, true);
	else
		attn_all_scores(s, pass, R, LLM_DTYPE_F32, false);
	attn_weights(s, pass, R);
	attn_fold(s, &pass->rows, R);
	if (s->v_type == LLM_DTYPE_F16)
		attn_all_values(s, pass, R, LLM_DTYPE_F16, true);
	else if (pass->fetch)
		attn_all_values(s, pass, R, LLM_DTYPE_F32, true);
	else
		attn_all_values(s, pass, R, LLM_DTYPE_F32, false);
}

/* M of each number of vectors that a pass may have. */
#if VEC_ATTN_ROWS > 2
#define ATTN_EACH_ROWS(M) M(1) M(2) M(3) M(4) M(5) M(6)
#else
#define ATTN_EACH_ROWS(M) M(1) M(2)
#endif

#define ATTN_PASS(R)                                                                               \
	VEC_FN __attribute__((noinline)) void attn_pass_##R(const LlmAttnSplit *s, AttnPass *pass)     \
	{                                                                                              \
		attn_pass(s, pass, R);                                                                     \
	}

#define ATTN_PASS_NAME(R) attn_pass_##R,

ATTN_EACH_ROWS(ATTN_PASS)

static void (*const attn_passes[])(const LlmAttnSplit *,
								   AttnPass *) = {NULL, ATTN_EACH_ROWS(ATTN_PASS_NAME)};

/* The vectors i .. end that see anything of the split, at most n_max of them. Returns where to go on. */
VEC_INLINE int
attn_rows_next(const LlmAttnSplit *s, AttnRows *rows, int i, int end, int n_max)
{
	rows->n = 0;
	rows->lo = ATTN_SPLIT;
	rows->hi = 0;
	for (; i < end && rows->n < n_max; i++)
		if (s->lo[i] < s->hi[i])
		{
			rows->index[rows->n++] = i;
			rows->lo = s->lo[i] < rows->lo ? s->lo[i] : rows->lo;
			rows->hi = s->hi[i] > rows->hi ? s->hi[i] : rows->hi;
		}
	return i;
}

/* All passes over one split. */
VEC_INLINE void
attn_all_passes(const LlmAttnSplit *s)
{
	AttnPass pass = {.fetch = s->n_q <= VEC_ATTN_ROWS};

	for (int i = 0; i < s->n_q;)
	{
		i = attn_rows_next(s, &pass.rows, i, s->n_q, VEC_ATTN_ROWS);
		if (pass.rows.n > 0)
			attn_passes[pass.rows.n](s, &pass);
	}
}

/* Values begin .. end of halves as floats, 16 at a time. */
VEC_INLINE void
attn_widen(const void *p, size_t begin, size_t end, float *out)
{
	for (size_t i = begin; i < end; i += 16)
		vf_store(out + i, attn_load(p, i, LLM_DTYPE_F16));
}

/* All passes over one split whose values are turned to floats first: once for all passes instead of
 * at every load. What attention reads is the same, so this changes no bit. */
VEC_FN __attribute__((noinline)) void
attn_wide_passes(const LlmAttnSplit *s)
{
	_Alignas(64) float k[ATTN_SPLIT * ATTN_WIDE_MAX], v[ATTN_SPLIT * ATTN_WIDE_MAX];
	LlmAttnSplit wide = *s;
	int lo = ATTN_SPLIT, hi = 0;

	for (int i = 0; i < s->n_q; i++)
	{
		lo = s->lo[i] < lo ? s->lo[i] : lo;
		hi = s->hi[i] > hi ? s->hi[i] : hi;
	}
	if (s->k_type == LLM_DTYPE_F16) /* groups up to the one of position hi */
		attn_widen(s->k, 0, (size_t) ((hi + 15) / 16 * 16) * (size_t) s->k_dim, k);
	if (s->v_type == LLM_DTYPE_F16)
		attn_widen(s->v, (size_t) lo * (size_t) s->v_stride, (size_t) hi * (size_t) s->v_stride, v);
	wide.k = s->k_type == LLM_DTYPE_F32 ? s->k : k;
	wide.v = s->v_type == LLM_DTYPE_F32 ? s->v : v;
	wide.k_type = wide.v_type = LLM_DTYPE_F32;
	attn_all_passes(&wide);
}

VEC_INLINE void
attn_float_split(const LlmAttnSplit *s)
{
	bool narrow = s->k_type != LLM_DTYPE_F32 || s->v_type != LLM_DTYPE_F32;

	if (narrow && s->n_q > VEC_ATTN_ROWS && s->k_dim <= ATTN_WIDE_MAX &&
		s->v_stride <= ATTN_WIDE_MAX)
		attn_wide_passes(s);
	else
		attn_all_passes(s);
}

VEC_FN void
op_attn_fold(const LlmAttnParts *p, float *m, float *l, float *o)
{
	for (int32_t i = 0; i < p->n; i += 8)
	{
		int32_t n = p->n - i < 8 ? p->n - i : 8;
		size_t at = (size_t) i * (size_t) p->apart, next = (size_t) p->apart;
		_Alignas(64) float x[16] = {0};

		for (int32_t k = 0; k < n; k++)
		{
			float part = p->m[at + (size_t) k * next], top = *m > part ? *m : part;

			x[k] = *m - top;
			x[8 + k] = part - top;
			*m = top;
		}
		vf_store(x, vf_exp(vf_load(x)));
		for (int32_t k = 0; k < n; k++)
			*l = fmaf(*l, x[k], p->l[at + (size_t) k * next] * x[8 + k]);
		for (int32_t c = 0; c < p->v_stride; c += 16)
		{
			vf sum = vf_load(o + c);

			for (int32_t k = 0; k < n; k++)
			{
				const float *part = p->o + (at + (size_t) k * next) * (size_t) p->v_stride + c;

				sum = vf_fma(sum, vf_set1(x[k]), vf_mul(vf_load(part), vf_set1(x[8 + k])));
			}
			vf_store(o + c, sum);
		}
	}
}

#endif
