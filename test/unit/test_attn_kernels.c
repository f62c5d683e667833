/*
 * test_attn_kernels.c - attention splits of every instruction set against generic, to the bit, in
 * any grouping of queries, and generic against a softmax in double.
 *
 * links: kernels sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "kernel_data.h"
#include "tensor/half.h"

#define N_SPLITS 10
#define MAX_Q 37

/* Some splits, their queries, and the folded state. */
typedef struct Attention
{
	LlmAttnSplit s;
	void *k[N_SPLITS], *v[N_SPLITS];
	float *q;
	const float *qp[MAX_Q];
	uint8_t *queries; /* the same for I8 */
	int32_t pos[MAX_Q], window;
	int32_t lo[MAX_Q], hi[MAX_Q];
	float m[MAX_Q], l[MAX_Q];
	float *o;
} Attention;

/* Element of value d of token t: of K of n values, of V of n values. */
static size_t
k_at(LlmDtype type, int32_t n, int32_t t, int32_t d)
{
	int32_t run = type == LLM_DTYPE_I8 ? 4 : 1, padded = (n + run - 1) / run * run;

	return (size_t) (t / 16 * 16 * padded + d / run * run * 16 + t % 16 * run + d % run);
}

static size_t
v_at(LlmDtype type, int32_t n, int32_t t, int32_t d)
{
	int32_t run = type == LLM_DTYPE_I8 ? 4 : 1;

	return (size_t) (t / run * run * n + d * run + t % run);
}

typedef size_t (*At)(LlmDtype type, int32_t n, int32_t t, int32_t d);

static float *
scales_of(void *p, int32_t n)
{
	return (float *) ((uint8_t *) p + llm_kv_block_nbytes(LLM_DTYPE_I8, n)) - 64;
}

/* The vector of token t as the store holds it, of n values of up to `size`. */
static void
put_vector(void *p, LlmDtype type, int32_t n, At at, int32_t t, float size)
{
	int32_t run = type == LLM_DTYPE_I8 && at == k_at ? 4 : 1;
	int32_t stride = (int32_t) (at(type, n, 0, run) - at(type, n, 0, 0));
	uint8_t *values = (uint8_t *) p + at(type, n, t, 0) * llm_kv_type_nbytes(type);
	LlmKvVector to = {values, scales_of(p, n) + t, run, stride};
	float x[128];

	for (int32_t d = 0; d < n; d++)
		x[d] = size == 0.0f ? 0.0f : size * uniform();
	assert_true(llm_kernels_generic.kv_store(x, n, type, to));
}

static void
put_vectors(void *p, LlmDtype type, int32_t n, At at, float size)
{
	for (int32_t t = 0; t < 64; t++)
		put_vector(p, type, n, at, t, size);
}

static void
put(void *p, size_t i, LlmDtype type, float x)
{
	if (type == LLM_DTYPE_F16)
		((uint16_t *) p)[i] = llm_half_from_f32(x);
	else
		((float *) p)[i] = x;
}

/* Value d of token t. */
static float
take(const void *p, LlmDtype type, int32_t n, At at, int32_t t, int32_t d)
{
	size_t i = at(type, n, t, d);

	if (type == LLM_DTYPE_I8)
		return (float) ((const int8_t *) p)[i] * scales_of((void *) p, n)[t];
	return type == LLM_DTYPE_F16 ? llm_half_to_f32(((const uint16_t *) p)[i])
								 : ((const float *) p)[i];
}

static void
attention_init(Attention *a, LlmDtype type, int32_t k_dim, int32_t v_dim, int32_t n_q)
{
	*a = (Attention){.s = {.k_type = type,
						   .v_type = type,
						   .k_dim = k_dim,
						   .v_stride = (v_dim + 15) / 16 * 16,
						   .scale = 0.3f,
						   .n_q = n_q}};
	a->q = random_floats((size_t) (n_q * k_dim), 1.0f);
	a->queries = aligned((size_t) n_q * llm_attn_query_nbytes(k_dim));
	a->o = aligned((size_t) (n_q * a->s.v_stride) * 4);
	for (int i = 0; i < N_SPLITS; i++)
	{
		a->k[i] = aligned(llm_kv_block_nbytes(type, k_dim) + 256);
		a->v[i] = aligned(llm_kv_block_nbytes(type, a->s.v_stride) + 256);
		put_vectors(a->k[i], type, k_dim, k_at, 3.0f);
		put_vectors(a->v[i], type, a->s.v_stride, v_at, 5.0f);
	}
	for (int32_t i = 0; i < n_q; i++)
	{
		a->qp[i] = a->q + i * k_dim;
		a->pos[i] = (i * 53 + 7) % (64 * N_SPLITS);
	}
}

static void
attention_fini(Attention *a)
{
	for (int i = 0; i < N_SPLITS; i++)
	{
		free(a->k[i]);
		free(a->v[i]);
	}
	free(a->q);
	free(a->queries);
	free(a->o);
}

/* Splits j0 .. j1 of query vectors begin..end, folded into m, l, o. */
static void
attention_splits(Attention *a, const LlmKernels *kernels, int32_t begin, int32_t end, int j0,
				 int j1)
{
	LlmAttnSplit s = a->s;

	s.n_q = end - begin;
	s.q = a->qp + begin;
	s.queries = a->queries + (size_t) begin * llm_attn_query_nbytes(s.k_dim);
	for (int32_t i = begin; i < end; i++)
		kernels->attn_query(a->qp[i], s.k_dim,
							(LlmAttnQuery *) (a->queries +
											  (size_t) i * llm_attn_query_nbytes(s.k_dim)));
	s.lo = a->lo + begin;
	s.hi = a->hi + begin;
	s.m = a->m + begin;
	s.l = a->l + begin;
	s.o = a->o + begin * s.v_stride;
	for (int j = j0; j < j1; j++)
	{
		s.k = a->k[j];
		s.v = a->v[j];
		for (int32_t i = begin; i < end; i++)
		{
			int32_t first = a->window > 0 ? a->pos[i] - a->window + 1 : 0;

			a->lo[i] = first > j * 64 ? first - j * 64 : 0;
			a->hi[i] = a->pos[i] + 1 - j * 64 < 64 ? a->pos[i] + 1 - j * 64 : 64;
		}
		kernels->attn_split(&s);
	}
}

/* No sums yet. */
static void
attention_begin(Attention *a, int32_t begin, int32_t end)
{
	for (int32_t i = begin; i < end; i++)
	{
		a->m[i] = -INFINITY;
		a->l[i] = 0.0f;
		memset(a->o + i * a->s.v_stride, 0, (size_t) a->s.v_stride * 4);
	}
}

/* All splits, query vectors begin..end; results stay in m, l, o. */
static void
attention_run(Attention *a, const LlmKernels *kernels, int32_t begin, int32_t end)
{
	attention_begin(a, begin, end);
	attention_splits(a, kernels, begin, end, 0, N_SPLITS);
}

/* The same with the splits from j0 on made apart and folded afterwards. */
static void
attention_run_apart(Attention *a, const LlmKernels *kernels, int j0)
{
	int32_t n_q = a->s.n_q, stride = a->s.v_stride;
	float m[N_SPLITS * MAX_Q], l[N_SPLITS * MAX_Q];
	float *o = aligned((size_t) (N_SPLITS * n_q * stride) * 4);

	for (int j = j0; j < N_SPLITS; j++)
	{
		attention_begin(a, 0, n_q);
		attention_splits(a, kernels, 0, n_q, j, j + 1);
		memcpy(m + j * n_q, a->m, (size_t) n_q * 4);
		memcpy(l + j * n_q, a->l, (size_t) n_q * 4);
		memcpy(o + j * n_q * stride, a->o, (size_t) (n_q * stride) * 4);
	}
	attention_begin(a, 0, n_q);
	attention_splits(a, kernels, 0, n_q, 0, j0);
	for (int32_t i = 0; i < n_q; i++)
	{
		int32_t at = j0 * n_q + i, n = a->pos[i] / 64 + 1 - j0; /* splits that it sees */
		LlmAttnParts p = {n < 0 ? 0 : n, n_q, stride, m + at, l + at, o + at * stride};

		kernels->attn_fold(&p, a->m + i, a->l + i, a->o + i * stride);
	}
	free(o);
}

/* o / l of one query vector in double. */
static void
attention_reference(const Attention *a, int32_t i, double *out)
{
	double p[64 * N_SPLITS], max = -INFINITY, sum = 0.0;
	int32_t first = a->window > 0 && a->pos[i] >= a->window ? a->pos[i] - a->window + 1 : 0;

	for (int32_t t = first; t <= a->pos[i]; t++)
	{
		p[t] = 0.0;
		for (int32_t d = 0; d < a->s.k_dim; d++)
			p[t] += a->qp[i][d] * take(a->k[t / 64], a->s.k_type, a->s.k_dim, k_at, t % 64, d);
		p[t] *= a->s.scale;
		if (a->s.softcap != 0.0f)
			p[t] = a->s.softcap * tanh(p[t] / a->s.softcap);
		max = fmax(max, p[t]);
	}
	memset(out, 0, (size_t) a->s.v_stride * sizeof(*out));
	for (int32_t t = first; t <= a->pos[i]; t++)
	{
		double w = exp(p[t] - max);

		sum += w;
		for (int32_t d = 0; d < a->s.v_stride; d++)
			out[d] += w * take(a->v[t / 64], a->s.v_type, a->s.v_stride, v_at, t % 64, d);
	}
	for (int32_t d = 0; d < a->s.v_stride; d++)
		out[d] /= sum;
}

static void
check_attention(Attention *a)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = others(all);
	int32_t n_q = a->s.n_q, stride = a->s.v_stride;
	float *o = aligned((size_t) (n_q * stride) * 4), l[MAX_Q], m[MAX_Q];

	attention_run(a, &llm_kernels_generic, 0, n_q);
	memcpy(o, a->o, (size_t) (n_q * stride) * 4);
	memcpy(l, a->l, sizeof(l));
	memcpy(m, a->m, sizeof(m));
	for (int32_t i = 0; i < n_q; i++)
	{
		double want[256];
		float got[256];

		attention_reference(a, i, want);
		llm_kernels_generic.attn_finish(o + i * stride, l[i], stride, got);
		for (int32_t d = 0; d < stride; d++)
			assert_true(fabs(got[d] - want[d]) < (a->s.k_type == LLM_DTYPE_I8 ? 2e-3 : 2e-5));
	}
	for (int j = 0; j < n_all; j++)
	{
		attention_run(a, all[j], 0, n_q);
		assert_memory_equal(a->o, o, (size_t) (n_q * stride) * 4);
		assert_memory_equal(a->l, l, (size_t) n_q * 4);
		assert_memory_equal(a->m, m, (size_t) n_q * 4);
		for (int32_t i = 0; i < n_q; i++) /* alone as in company */
			attention_run(a, all[j], i, i + 1);
		assert_memory_equal(a->o, o, (size_t) (n_q * stride) * 4);
		assert_memory_equal(a->l, l, (size_t) n_q * 4);
		for (int j0 = 0; a->window == 0 && j0 < N_SPLITS; j0++)
		{
			attention_run_apart(a, all[j], j0);
			assert_memory_equal(a->o, o, (size_t) (n_q * stride) * 4);
			assert_memory_equal(a->l, l, (size_t) n_q * 4);
			assert_memory_equal(a->m, m, (size_t) n_q * 4);
		}
	}
	free(o);
}

/* An attention over the same values as floats gives the same bits. */
static void
check_as_floats(Attention *a)
{
	int32_t n_q = a->s.n_q, stride = a->s.v_stride;
	float *o = aligned((size_t) (n_q * stride) * 4);

	attention_run(a, &llm_kernels_generic, 0, n_q);
	memcpy(o, a->o, (size_t) (n_q * stride) * 4);
	for (int i = 0; i < N_SPLITS; i++)
	{
		float *k = aligned(llm_kv_block_nbytes(LLM_DTYPE_F32, a->s.k_dim));
		float *v = aligned(llm_kv_block_nbytes(LLM_DTYPE_F32, stride));

		for (int32_t t = 0; t < 64; t++)
		{
			for (int32_t d = 0; d < a->s.k_dim; d++)
				k[k_at(LLM_DTYPE_F32, a->s.k_dim, t, d)] =
					take(a->k[i], a->s.k_type, a->s.k_dim, k_at, t, d);
			for (int32_t d = 0; d < stride; d++)
				v[t * stride + d] = take(a->v[i], a->s.v_type, stride, v_at, t, d);
		}
		free(a->k[i]);
		free(a->v[i]);
		a->k[i] = k;
		a->v[i] = v;
	}
	a->s.k_type = a->s.v_type = LLM_DTYPE_F32;
	attention_run(a, &llm_kernels_generic, 0, n_q);
	assert_memory_equal(a->o, o, (size_t) (n_q * stride) * 4);
	free(o);
}

static void
test_attention(void **state)
{
	static const LlmDtype types[] = {LLM_DTYPE_F32, LLM_DTYPE_F16, LLM_DTYPE_I8};
	static const int32_t dims[][2] = {{64, 64}, {16, 16}, {20, 24}, {128, 128}, {80, 8}, {7, 80}};

	(void) state;
	for (size_t c = 0; c < sizeof(dims) / sizeof(dims[0]); c++)
		for (int32_t n_q = 1; n_q <= MAX_Q; n_q += n_q < 3 ? 1 : n_q < 13 ? 5 : 8)
			for (int kind = 0; kind < 9; kind++)
			{
				Attention a;

				attention_init(&a, types[kind % 3], dims[c][0], dims[c][1], n_q);
				a.window = kind / 3 == 1 ? 30 : 0;
				a.s.softcap = kind / 3 == 2 ? 2.0f : 0.0f;
				check_attention(&a);
				if (a.s.k_type != LLM_DTYPE_I8)
					check_as_floats(&a);
				attention_fini(&a);
			}
}

/* What lies at positions that a query must not see changes no bit, of any sign and size, with every
 * instruction set, alone and in company; also where all that is seen is 0 and the rest is not. */
static void
check_masked(LlmDtype type, float size)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all), n_q = 20;
	size_t nbytes = (size_t) n_q * 64 * 4;
	float *o = aligned(nbytes);
	Attention a;

	attention_init(&a, type, 64, 64, n_q);
	for (int32_t i = 0; i < n_q; i++)
		a.pos[i] = 64 + i;
	for (int32_t t = 0; t < 64; t++)
	{
		put_vector(a.v[0], type, 64, v_at, t, size);
		put_vector(a.v[1], type, 64, v_at, t, size);
	}
	attention_run(&a, &llm_kernels_generic, 0, n_q);
	memcpy(o, a.o, nbytes);
	for (int32_t t = n_q; t < 64; t++)
	{
		put_vector(a.k[1], type, 64, k_at, t, INFINITY);
		put_vector(a.v[1], type, 64, v_at, t, t % 2 ? 500.0f : INFINITY);
	}
	for (int j = 0; j < n_all; j++)
	{
		attention_run(&a, all[j], 0, n_q);
		assert_memory_equal(a.o, o, nbytes);
		for (int32_t i = 0; i < n_q; i++)
			attention_run(&a, all[j], i, i + 1);
		assert_memory_equal(a.o, o, nbytes);
	}
	free(o);
	attention_fini(&a);
}

static void
test_attention_masked(void **state)
{
	static const LlmDtype types[] = {LLM_DTYPE_F32, LLM_DTYPE_F16, LLM_DTYPE_I8};

	(void) state;
	for (int i = 0; i < 3; i++)
	{
		check_masked(types[i], 5.0f);
		check_masked(types[i], 0.0f);
	}
}

/* Queries for I8 pages: zero and tiny ones give even weights, one that is not finite gives NaN. */
static void
test_attention_odd_queries(void **state)
{
	static const float odd[] = {0.0f, 1e-39f, NAN, INFINITY};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	for (int j = 0; j < n_all; j++)
	{
		Attention a;
		float even[64], got[64];

		attention_init(&a, LLM_DTYPE_I8, 64, 64, 9);
		for (int i = 0; i < 9; i++)
			a.pos[i] = 64 * N_SPLITS - 21; /* the last 20 are masked */
		for (int d = 0; d < 64; d++)       /* of vectors 2 .. 5 */
			for (int i = 0; i < 4; i++)
				a.q[(2 + i) * 64 + d] = d == 7 || i < 2 ? odd[i] : 0.5f;
		attention_run(&a, all[j], 0, 9);
		for (int i = 0; i < 9; i++)
		{
			all[j]->attn_finish(a.o + i * 64, a.l[i], 64, got);
			for (int d = 0; d < 64; d++)
				assert_true(i == 4 || i == 5 ? isnan(got[d]) : isfinite(got[d]));
			if (i == 2)
				memcpy(even, got, sizeof(even));
			else if (i == 3)
				assert_memory_equal(got, even, sizeof(even));
		}
		assert_true(fabsf(a.l[2] / (64.0f * N_SPLITS - 20.0f) - 1.0f) < 1e-5f);
		attention_fini(&a);
	}
}

/* Sums that round to -0 must not take the sign of a masked position's value. The first split's sum
 * is tiny and negative; the second, of far higher scores, makes it -0; the third adds a sum of
 * products that round to -0. Two vectors in one pass: the first sees 6 positions of the third split,
 * the second more. */
static void
test_attention_minus_zero(void **state)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	for (int j = 0; j < n_all; j++)
	{
		Attention a;
		float o[16];

		attention_init(&a, LLM_DTYPE_F32, 1, 16, 2);
		a.pos[0] = 128 + 5;
		a.pos[1] = 128 + 40;
		a.q[0] = a.q[1] = 1.0f;
		for (int sign = -1; sign <= 1; sign += 2)
		{
			for (int32_t t = 0; t < 3 * 64; t++)
			{
				bool high = t == 64 || t == 128;
				float v = t < 64 || (t > 128 && t < 134) ? -1e-30f : 0.0f;

				put(a.k[t / 64], (size_t) (t % 64), LLM_DTYPE_F32,
					high ? 0.0f : -86.0f / a.s.scale);
				for (int32_t d = 0; d < 16; d++)
					put(a.v[t / 64], (size_t) (t % 64 * 16 + d), LLM_DTYPE_F32,
						t < 134 ? v : 3.0f * (float) sign);
			}
			attention_run(&a, all[j], 0, 2);
			if (sign < 0)
				memcpy(o, a.o, sizeof(o));
		}
		assert_memory_equal(a.o, o, sizeof(o));
		attention_fini(&a);
	}
}

/* Saturated keys and values of every type: enormous scores still give finite weights and values, the
 * same bits from every instruction set. */
static void
test_attention_huge(void **state)
{
	static const LlmDtype types[] = {LLM_DTYPE_F32, LLM_DTYPE_F16, LLM_DTYPE_I8};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	for (int i = 0; i < 3; i++)
	{
		Attention a;
		float want[3 * 64];

		attention_init(&a, types[i], 64, 64, 3);
		put_vectors(a.k[0], types[i], 64, k_at, INFINITY);
		put_vectors(a.v[0], types[i], 64, v_at, INFINITY);
		put_vectors(a.v[1], types[i], 64, v_at, INFINITY);
		attention_run(&a, &llm_kernels_generic, 0, 3);
		memcpy(want, a.o, sizeof(want));
		for (int j = 0; j < 3 * 64; j++)
			assert_true(isfinite(want[j]) && fabsf(want[j]) > 60000.0f);
		for (int j = 0; j < n_all; j++)
		{
			attention_run(&a, all[j], 0, 3);
			assert_memory_equal(a.o, want, sizeof(want));
		}
		attention_fini(&a);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_attention_masked),
		cmocka_unit_test(test_attention_odd_queries),
		cmocka_unit_test(test_attention_minus_zero),
		cmocka_unit_test(test_attention_huge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
