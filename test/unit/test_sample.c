/*
 * test_sample.c - picks against a sort in double precision, distributions, ties, every extreme.
 * links: sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "sample/rowmath.h"
#include "sample/sample.h"
#include "sample/select.h"
#include "tensor/mathf.h"

static const LlmSampleParams plain = {1.0f, 1.0f, 0.0f, 0, 1.0f, 0.0f, 0.0f, 7};

/* Uniform numbers for test data, apart from the engine's own. */
static uint64_t lcg = 1;

static double
uniform(void)
{
	lcg = lcg * 6364136223846793005u + 1442695040888963407u;
	return ((double) (lcg >> 11) + 0.5) * 0x1p-53;
}

static void
fill(float *x, int n, double spread)
{
	for (int i = 0; i < n; i++)
		x[i] = (float) (spread * (uniform() + uniform() + uniform() - 1.5));
}

static LlmSampleOut
pick(LlmSampler *s, const float *x, LlmSampleParams p, int32_t position)
{
	LlmSampleRow row = {.p = p, .position = position};
	LlmSampleOut out;

	llm_sampler_pick(s, x, &row, &out);
	return out;
}

static LlmSampler *
sampler(int n)
{
	LlmSampler *s;
	LlmError err;

	assert_int_equal(llm_sampler_create(n, &s, &err), LLM_OK);
	return s;
}

/* ---- the reference ---- */

typedef struct Item
{
	double x;
	double w;
	int32_t id;
} Item;

static int
item_cmp(const void *a, const void *b)
{
	const Item *p = a, *q = b;

	if (p->x != q->x)
		return p->x < q->x ? 1 : -1;
	return p->id < q->id ? -1 : p->id > q->id;
}

static double
reference_logit(float x, int32_t id, const LlmSampleRow *row)
{
	double y = x;
	int all = 0, generated = 0;

	for (int i = 0; i < row->n_bias; i++)
		y += row->bias[i].token == id ? (double) row->bias[i].bias : 0;
	for (int i = 0; i < row->n_history; i++)
	{
		all += row->history[i] == id;
		generated += i >= row->n_prompt && row->history[i] == id;
	}
	if (all > 0)
		y = y > 0 ? y / (double) row->p.repetition_penalty : y * (double) row->p.repetition_penalty;
	y -= generated * (double) row->p.frequency_penalty;
	y -= generated > 0 ? (double) row->p.presence_penalty : 0;
	if (row->mask != NULL && (row->mask[id / 32] >> (id % 32) & 1) == 0)
		y = -INFINITY;
	for (int i = 0; i < row->n_banned; i++)
		y = row->banned[i] == id ? -INFINITY : y;
	return y;
}

/* Everything of rule R11 by a full sort. *fragile: the result hangs on the last digits of a float.
 * -1 when nothing can be picked. */
static int32_t
reference_pick(const float *x, int n, const LlmSampleRow *row, int *fragile)
{
	const LlmSampleParams *p = &row->p;
	Item *it = malloc((size_t) n * sizeof(*it));
	double total = 0, sum = 0, best = -INFINITY, second = -INFINITY;
	int m = 0, kept;
	int32_t id = -1;

	*fragile = 0;
	for (int i = 0; i < n; i++)
	{
		it[m] = (Item){reference_logit(x[i], i, row), 0, i};
		m += it[m].x > -INFINITY;
	}
	qsort(it, (size_t) m, sizeof(*it), item_cmp);
	if (p->temperature == 0 || m == 0)
	{
		*fragile = m > 1 && it[0].x != it[1].x && it[0].x - it[1].x < 1e-5;
		id = m > 0 ? it[0].id : -1;
		free(it);
		return id;
	}
	if (p->top_k > 0 && p->top_k < m)
		m = p->top_k;
	for (int i = 0; i < m; i++)
	{
		it[i].w = exp((it[i].x - it[0].x) / (double) p->temperature);
		total += it[i].w;
	}
	kept = m;
	for (int i = 0; i < m && p->top_p < 1; i++)
	{
		sum += it[i].w;
		*fragile |= fabs(sum / total - (double) p->top_p) < 1e-6;
		if (sum >= (double) p->top_p * total)
		{
			kept = i + 1;
			break;
		}
	}
	for (int i = 0; i < kept; i++)
	{
		double u = (double) llm_rng_uniform(p->seed, (uint32_t) row->position, (uint32_t) it[i].id);
		double score = log(it[i].w) - log(-log(u));

		*fragile |= p->min_p > 0 && fabs(it[i].w / (double) p->min_p - 1) < 1e-5 && i > 0;
		if (it[i].w < (double) p->min_p)
			continue;
		if (score > best)
		{
			second = best;
			best = score;
			id = it[i].id;
		}
		else if (score > second)
			second = score;
	}
	*fragile |= best - second < 1e-4;
	free(it);
	return id;
}

static LlmSampleParams
random_params(void)
{
	LlmSampleParams p = plain;

	p.seed = (uint64_t) (uniform() * 1e15);
	p.temperature = uniform() < 0.2 ? 0.0f : (float) (0.05 + 2 * uniform());
	if (uniform() < 0.5)
		p.top_p = (float) uniform();
	if (uniform() < 0.4)
		p.min_p = (float) (uniform() * uniform());
	if (uniform() < 0.5)
		p.top_k = 1 + (int32_t) (uniform() * 60);
	if (uniform() < 0.4)
		p.repetition_penalty = (float) (0.5 + uniform());
	if (uniform() < 0.4)
		p.presence_penalty = (float) (4 * uniform() - 2);
	if (uniform() < 0.4)
		p.frequency_penalty = (float) (4 * uniform() - 2);
	return p;
}

static void
test_against_sort(void **state)
{
	static const int sizes[] = {1, 2, 7, 16, 17, 33, 320, 1000};
	int n_fragile = 0;

	for (int round = 0; round < 3000; round++)
	{
		int n = sizes[round % 8];
		float *x = malloc((size_t) n * sizeof(float));
		uint32_t mask[32];
		int32_t history[40], banned[3];
		LlmTokenBias bias[2];
		LlmSampleRow row = {.p = random_params(), .history = history, .position = round};
		LlmSampler *s = sampler(n);
		LlmSampleOut out;
		int fragile;
		int32_t want;

		fill(x, n, round % 3 == 0 ? 1 : 8);
		for (int i = 0; i < n && round % 5 == 0; i++)
			x[i] = rintf(x[i]); /* many ties */
		row.n_history = (int32_t) (uniform() * 40);
		row.n_prompt = (int32_t) (uniform() * (row.n_history + 1));
		for (int i = 0; i < row.n_history; i++)
			history[i] = (int32_t) (uniform() * n);
		for (int i = 0; i < 32; i++)
			mask[i] = (uint32_t) (uniform() * 0x1p32);
		row.mask = round % 4 == 0 ? mask : NULL;
		for (int i = 0; i < 3; i++)
			banned[i] = (int32_t) (uniform() * (n + 2)) - 1;
		row.banned = banned;
		row.n_banned = round % 3;
		for (int i = 0; i < 2; i++)
			bias[i] = (LlmTokenBias){(int32_t) (uniform() * n / 2) + i * (n / 2),
									 (float) (20 * uniform() - 10)};
		row.bias = bias;
		row.n_bias = n < 2 ? 0 : round % 7 % 3;
		want = reference_pick(x, n, &row, &fragile);
		llm_sampler_pick(s, x, &row, &out);
		if (want < 0)
			assert_int_equal(out.status, LLM_E_INVALID);
		else
			assert_int_equal(out.status, LLM_OK);
		n_fragile += fragile;
		if (!fragile)
			assert_int_equal(out.token, want);
		llm_sampler_free(s);
		free(x);
	}
	assert_true(n_fragile < 60);
}

static void
test_logprob(void **state)
{
	int n = 5003;
	float *x = malloc((size_t) n * sizeof(float));
	LlmSampler *s = sampler(n);

	for (int round = 0; round < 20; round++)
	{
		LlmSampleParams p = plain;
		LlmSampleOut out;
		double sum = 0;

		fill(x, n, 6);
		p.temperature = round % 2 == 0 ? 0.0f : 1.5f; /* of the raw logits, whatever T */
		out = pick(s, x, p, round);
		assert_int_equal(out.status, LLM_OK);
		for (int i = 0; i < n; i++)
			sum += exp((double) x[i]);
		assert_float_equal(out.logprob, (double) x[out.token] - log(sum), 1e-5);
	}
	llm_sampler_free(s);
	free(x);
}

/* Scores and likeliest tokens against a full sort, and that asking for them changes no pick. */
static void
test_likeliest(void **state)
{
	static const int sizes[] = {1, 2, 19, 20, 21, 31, 32, 33, 64, 500, 4999};

	for (int round = 0; round < 220; round++)
	{
		int n = sizes[round % 11];
		float *x = malloc((size_t) n * sizeof(float));
		Item *it = malloc((size_t) n * sizeof(*it));
		LlmSampler *s = sampler(n);
		int32_t target = (int32_t) (uniform() * n);
		LlmSampleRow row = {.p = random_params(), .position = round};
		LlmSampleOut bare, out, score;
		double sum = 0;

		row.p.repetition_penalty = 1;
		fill(x, n, round % 2 == 0 ? 1 : 8);
		for (int i = 0; i < n; i++)
		{
			if (round % 4 == 1)
				x[i] = rintf(x[i]); /* ties, -0 and +0 among them */
			if (round % 8 == 2)
				x[i] = (float) i; /* each beats all before it */
			if (round % 8 == 6)
				x[i] = (float) -i;
		}
		for (int i = 0; i < n; i++)
		{
			it[i] = (Item){x[i], 0, i};
			sum += exp((double) x[i]);
		}
		qsort(it, (size_t) n, sizeof(*it), item_cmp);
		llm_sampler_pick(s, x, &row, &bare);
		assert_int_equal(bare.status, LLM_OK);
		assert_int_equal(bare.n_top, 0);
		row.unscored = true;
		llm_sampler_pick(s, x, &row, &out);
		assert_int_equal(out.token, bare.token);
		assert_float_equal(out.logprob, 0, 0);
		row.unscored = false;
		row.n_top = round % (LLM_TOP_LOGPROBS_MAX + 1);
		llm_sampler_pick(s, x, &row, &out);
		assert_int_equal(out.token, bare.token);
		assert_memory_equal(&out.logprob, &bare.logprob, sizeof(float));
		row.target = &target;
		llm_sampler_pick(s, x, &row, &score);
		assert_int_equal(score.status, LLM_OK);
		assert_int_equal(score.token, target);
		assert_float_equal(score.logprob, (double) x[target] - log(sum), 1e-5);
		assert_int_equal(score.n_top, row.n_top < n ? row.n_top : n);
		assert_int_equal(out.n_top, score.n_top);
		assert_memory_equal(out.top, score.top, sizeof(out.top));
		for (int i = 0; i < score.n_top; i++)
		{
			assert_int_equal(score.top[i].token, it[i].id);
			assert_float_equal(score.top[i].logprob, it[i].x - log(sum), 1e-5);
			if (score.top[i].token == target)
				assert_memory_equal(&score.top[i].logprob, &score.logprob, sizeof(float));
		}
		llm_sampler_free(s);
		free(it);
		free(x);
	}
}

static void
test_bias(void **state)
{
	float x[5] = {1.0f, 2.0f, -INFINITY, 0.5f, 0.0f};
	const LlmTokenBias up = {3, 1.6f}, down = {1, -1e30f}, dead = {2, 1e30f}, most = {4, FLT_MAX};
	const LlmTokenBias bad[] = {{5, 1.0f}, {-1, 1.0f}, {0, NAN}, {0, INFINITY}, {0, -INFINITY}};
	int32_t history[] = {3, 3};
	LlmSampler *s = sampler(5);
	LlmSampleRow row = {.p = plain, .bias = &up, .n_bias = 1, .n_top = 1};
	LlmSampleOut out;

	row.p.temperature = 0;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 3);
	assert_int_equal(out.top[0].token, 1); /* the raw logits do not know of the bias */
	assert_true(out.logprob < out.top[0].logprob);
	row.history = history;
	row.n_history = 2;
	row.p.presence_penalty = 0.5f; /* after the bias: 2.1 - 0.5 */
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 1);
	row.p.presence_penalty = 0;
	row.p.repetition_penalty = 2.0f; /* 2.1 / 2, where 0.5 / 2 + 1.6 would have won against 1 */
	x[1] = 1.5f;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 1);
	row.bias = &down;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 0);
	row.bias = &dead; /* what cannot come stays so */
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 1);
	x[4] = FLT_MAX;
	row.bias = &most;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_OK);
	assert_int_equal(out.token, 4);
	for (int i = 0; i < 5; i++)
	{
		row.bias = &bad[i];
		llm_sampler_pick(s, x, &row, &out);
		assert_int_equal(out.status, LLM_E_INTERNAL);
		assert_int_equal(out.token, -1);
	}
	llm_sampler_free(s);
}

/* A score needs finite logits and a token of the vocabulary; nothing else of the row counts. */
static void
test_refused_scores(void **state)
{
	static const int32_t bad[] = {-1, 8, INT32_MAX};
	float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	const int32_t target = 2;
	LlmSampler *s = sampler(8);
	LlmSampleRow row = {.target = &target, .n_top = 3}; /* no parameters */
	LlmSampleOut out;

	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_OK);
	assert_int_equal(out.token, 2);
	assert_int_equal(out.top[2].token, 5);
	for (int i = 0; i < 3; i++)
	{
		row.target = &bad[i];
		llm_sampler_pick(s, x, &row, &out);
		assert_int_equal(out.status, LLM_E_INTERNAL);
	}
	row.target = &target;
	for (int i = 0; i < 2; i++)
	{
		row.n_top = i == 0 ? -1 : LLM_TOP_LOGPROBS_MAX + 1;
		llm_sampler_pick(s, x, &row, &out);
		assert_int_equal(out.status, LLM_E_INTERNAL);
	}
	row.n_top = 0;
	x[7] = NAN;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_E_INTERNAL);
	llm_sampler_free(s);
}

static void
test_distribution(void **state)
{
	enum
	{
		N = 20,
		DRAWS = 40000
	};
	float x[N];
	LlmSampler *s = sampler(N);

	fill(x, N, 2);
	for (int variant = 0; variant < 3; variant++)
	{
		LlmSampleParams p = plain;
		double w[N], total = 0, distance = 0;
		int count[N] = {0};

		p.temperature = variant == 1 ? 0.6f : 1.3f;
		p.top_k = variant == 2 ? 5 : 0;
		for (int i = 0; i < N; i++)
		{
			int above = 0;

			for (int j = 0; j < N; j++)
				above += x[j] > x[i];
			w[i] = variant == 2 && above >= 5 ? 0 : exp((double) x[i] / (double) p.temperature);
			total += w[i];
		}
		for (int i = 0; i < DRAWS; i++)
		{
			p.seed = (uint64_t) (i % 200) * 0x100000001u; /* both halves of the seed count */
			count[pick(s, x, p, i / 200).token]++;
		}
		for (int i = 0; i < N; i++)
			distance += fabs((double) count[i] / DRAWS - w[i] / total) / 2;
		/* The expected distance of a fair sampler is about sqrt(N / (2 pi DRAWS)) = 0.009. */
		assert_true(distance < 0.015);
	}
	llm_sampler_free(s);
}

/* Over a whole large vocabulary no draw may reach a token that is all but impossible. */
static void
test_no_wild_pick(void **state)
{
	enum
	{
		N = 49152
	};
	float *x = calloc(N, sizeof(float));
	LlmSampler *s = sampler(N);

	x[4711] = 80.0f;
	for (int i = 0; i < 800; i++)
		assert_int_equal(pick(s, x, plain, i).token, 4711);
	assert_true(llm_rng_uniform(1, 2, 3) > 0.0f);
	for (uint32_t i = 0; i < 3000000; i++)
	{
		float u = llm_rng_uniform(9, 1, i);

		if (!(u > 0.0f && u < 1.0f))
			fail_msg("id %u gives %a", i, (double) u);
	}
	llm_sampler_free(s);
	free(x);
}

static void
test_greedy_and_ties(void **state)
{
	static const float temperatures[] = {0.0f, 1e-40f, 1e-30f, 1e-7f};
	float x[100];
	LlmSampler *s = sampler(100);

	for (int first = 0; first < 100; first += 9)
	{
		for (int i = 0; i < 100; i++)
			x[i] = -1.0f;
		for (int i = first; i < 100; i += 3)
			x[i] = first == 0 ? 0.0f : 2.5f;
		if (first == 0)
			x[0] = -0.0f; /* equal to 0 */
		for (int t = 0; t < 4; t++)
		{
			LlmSampleParams p = plain;

			p.temperature = temperatures[t];
			for (int i = 0; i < 20; i++)
				assert_int_equal(pick(s, x, p, i).token, first);
		}
	}
	llm_sampler_free(s);
}

static void
test_top_k_ties(void **state)
{
	float x[64];
	LlmSampler *s = sampler(64);
	LlmSampleParams p = plain;
	int seen[64] = {0};

	for (int i = 0; i < 64; i++)
		x[i] = i == 50 ? 1.0f : i % 2 == 0 ? -0.0f : 0.0f; /* one best, the rest tie */
	p.top_k = 4;
	for (int i = 0; i < 2000; i++)
		seen[pick(s, x, p, i).token]++;
	for (int i = 0; i < 64; i++)
		assert_int_equal(seen[i] > 0, i == 50 || i < 3);
	llm_sampler_free(s);
}

static void
test_extremes(void **state)
{
	enum
	{
		N = 300
	};
	float x[N];
	LlmSampler *s = sampler(N);
	LlmSampleParams p;
	int32_t best;
	int seen = 0;

	fill(x, N, 5);
	p = plain;
	p.temperature = 0;
	best = pick(s, x, p, 0).token;
	for (int i = 0; i < 50; i++)
	{
		p = plain;
		p.top_k = 1;
		assert_int_equal(pick(s, x, p, i).token, best);
		p = plain;
		p.top_p = 1e-30f;
		assert_int_equal(pick(s, x, p, i).token, best);
		p = plain;
		p.min_p = 1.0f;
		assert_int_equal(pick(s, x, p, i).token, best);
		p = plain;
		p.temperature = 1e-4f;
		assert_int_equal(pick(s, x, p, i).token, best);
		p = plain;
		p.temperature = FLT_MAX; /* all alike */
		seen += pick(s, x, p, i).token == best;
		p.top_p = 1.0f - 0x1p-24f;
		p.min_p = 1e-45f;
		p.top_k = INT32_MAX;
		assert_int_equal(pick(s, x, p, i).status, LLM_OK);
	}
	assert_true(seen < 5);
	/* Off values change nothing. */
	for (int i = 0; i < 50; i++)
	{
		p = plain;
		p.top_k = N;
		assert_int_equal(pick(s, x, p, i).token, pick(s, x, plain, i).token);
	}
	x[3] = FLT_MAX;
	x[4] = -FLT_MAX;
	x[5] = -INFINITY;
	p = plain;
	p.temperature = 1e-5f;
	assert_int_equal(pick(s, x, p, 0).token, 3);
	assert_float_equal(pick(s, x, p, 0).logprob, 0.0f, 0.0f);
	llm_sampler_free(s);
}

static void
test_refused_params(void **state)
{
	static const float bad_t[] = {-1.0f, NAN, INFINITY};
	static const float bad_p[] = {0.0f, -0.5f, 1.5f, NAN};
	static const float bad_m[] = {-0.1f, 1.1f, NAN};
	static const float bad_r[] = {0.0f, -1.0f, INFINITY, NAN};
	float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	LlmSampler *s = sampler(8);
	LlmSampleParams p;
	LlmSampleOut out;

#define REFUSED(field, value)                                                                      \
	p = plain;                                                                                     \
	p.field = value;                                                                               \
	out = pick(s, x, p, 0);                                                                        \
	assert_int_equal(out.status, LLM_E_INVALID);                                                   \
	assert_int_equal(out.token, -1);                                                               \
	assert_string_equal(out.message, #field " is out of range")

	for (int i = 0; i < 3; i++)
	{
		REFUSED(temperature, bad_t[i]);
		REFUSED(min_p, bad_m[i]);
	}
	for (int i = 0; i < 4; i++)
	{
		REFUSED(top_p, bad_p[i]);
		REFUSED(repetition_penalty, bad_r[i]);
	}
	REFUSED(top_k, -1);
	REFUSED(presence_penalty, NAN);
	REFUSED(frequency_penalty, INFINITY);
	llm_sampler_free(s);
	assert_int_equal(llm_sampler_create(0, &s, NULL), LLM_E_INVALID);
}

static void
test_penalties(void **state)
{
	float x[4] = {2.0f, 1.9f, -1.0f, -1.1f};
	int32_t history[] = {0, 0, 0};
	LlmSampler *s = sampler(4);
	LlmSampleRow row = {.p = plain, .history = history, .n_history = 3, .n_prompt = 3};
	LlmSampleOut out;

	row.p.temperature = 0;
	row.p.presence_penalty = 2;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 0); /* the prompt does not count */
	row.n_prompt = 2;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 1);
	row.p.presence_penalty = 0;
	row.p.repetition_penalty = 1.2f;
	row.n_prompt = 3;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 1); /* it does here */
	x[0] = -1.0f;
	x[1] = x[3] = -50.0f;
	x[2] = -1.05f;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 2); /* a negative logit moves down, not up */
	row.p.repetition_penalty = 1e9f;
	x[0] = -FLT_MAX;
	x[1] = x[2] = x[3] = -INFINITY;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 0); /* still finite */
	history[1] = 4;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_E_INTERNAL);
	history[1] = 0;
	x[0] = 1e-3f;
	row.p.repetition_penalty = 1e-44f;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 0);
	llm_sampler_free(s);
}

static void
test_nothing_to_pick(void **state)
{
	float x[40];
	uint32_t mask[2] = {0, 0};
	int32_t banned[] = {7, -1, 40, 1000000};
	LlmSampler *s = sampler(40);
	LlmSampleRow row = {.p = plain, .mask = mask};
	LlmSampleOut out;

	fill(x, 40, 1);
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_E_INVALID);
	assert_int_equal(out.token, -1);
	mask[1] = 1u << 3; /* token 35 alone */
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.token, 35);
	x[35] = -INFINITY;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_E_INVALID);
	mask[0] = 1u << 7;
	row.banned = banned;
	row.n_banned = 4;
	llm_sampler_pick(s, x, &row, &out);
	assert_int_equal(out.status, LLM_E_INVALID);
	for (int i = 0; i < 40; i++)
		x[i] = -INFINITY;
	for (int t = 0; t < 2; t++)
	{
		LlmSampleParams p = plain;

		p.temperature = (float) t;
		out = pick(s, x, p, 0);
		assert_int_equal(out.status, LLM_E_INTERNAL);
		assert_string_equal(out.message, "logits are not finite");
		for (int i = 0; i < 40; i += 13)
		{
			float y[40] = {0};

			y[i] = i == 13 ? INFINITY : NAN;
			assert_int_equal(pick(s, y, p, 0).status, LLM_E_INTERNAL);
		}
	}
	llm_sampler_free(s);
}

/* A row's pick does not depend on what the scratch was used for before. */
static void
test_scratch(void **state)
{
	enum
	{
		N = 777,
		ROWS = 60
	};
	static float x[ROWS][N];
	int32_t history[100];
	LlmSampleRow rows[ROWS];
	LlmSampleOut fresh[ROWS], out;
	LlmSampler *shared = sampler(N);

	for (int i = 0; i < 100; i++)
		history[i] = (int32_t) (uniform() * 30);
	for (int r = 0; r < ROWS; r++)
	{
		LlmSampler *s = sampler(N);

		fill(x[r], N, 4);
		if (r % 7 == 3)
			x[r][5] = NAN;
		rows[r] = (LlmSampleRow){.p = random_params(), .history = history, .position = r};
		rows[r].n_history = (int32_t) (uniform() * 100);
		rows[r].n_prompt = rows[r].n_history / 2;
		llm_sampler_pick(s, x[r], &rows[r], &fresh[r]);
		llm_sampler_free(s);
	}
	for (int i = 0; i < 600; i++)
	{
		int r = (int) (uniform() * ROWS);

		llm_sampler_pick(shared, x[r], &rows[r], &out);
		assert_memory_equal(&out, &fresh[r], sizeof(out));
	}
	llm_sampler_free(shared);
}

/* All that a table computes of a row, side by side. */
typedef struct RowResults
{
	LlmRowTop top;
	float sumexp;
	int32_t n_kept;
	uint64_t weight_sum;
	float *maxima, *kept, *z, *noise;
	int32_t *id;
	uint64_t *w;
} RowResults;

static RowResults
row_results(const LlmRowMath *m, const float *x, const int32_t *ids, int32_t n)
{
	size_t room = (size_t) n + LLM_ROW_LANES;
	RowResults r = {.maxima = calloc((size_t) llm_row_n_maxima(n) + 1, sizeof(float)),
					.kept = calloc(room, sizeof(float)),
					.z = calloc(room, sizeof(float)),
					.noise = calloc(room, sizeof(float)),
					.id = calloc(room, sizeof(int32_t)),
					.w = calloc(room, sizeof(uint64_t))};

	r.top = m->top(x, n, r.maxima);
	r.sumexp = m->sumexp(x, n, r.top.max);
	r.n_kept = m->collect(x, n, r.top.max - 20.0f, r.id, r.kept);
	m->scale(x, n, r.top.max, 0.7f, r.z);
	m->weights(r.z, n, r.w);
	r.weight_sum = m->weight_sum(x, n, r.top.max, 0.7f);
	m->gumbel(0x63000000000F1E2D, 5, ids, n, r.noise);
	return r;
}

static void
row_results_free(RowResults *r)
{
	free(r->maxima);
	free(r->kept);
	free(r->z);
	free(r->noise);
	free(r->id);
	free(r->w);
}

/* Plain C against what the routines promise. */
static void
check_row(const RowResults *r, const float *x, int32_t n)
{
	int32_t n_kept = 0;
	uint64_t sum = 0;

	for (int32_t i = 0; i < n; i++)
	{
		int32_t at = i / LLM_ROW_BLOCK * LLM_ROW_LANES + i % LLM_ROW_LANES;

		assert_true(x[i] <= r->top.max && x[i] <= r->maxima[at]);
		assert_true(i >= r->top.id || x[i] < r->top.max);
		if (x[i] > -INFINITY && x[i] >= r->top.max - 20.0f)
		{
			assert_int_equal(r->id[n_kept], i);
			assert_true(r->kept[n_kept++] == x[i]);
		}
		assert_true(r->w[i] <= LLM_WEIGHT_ONE);
		assert_true(r->w[i] == (uint64_t) (llm_expf(r->z[i]) * (float) LLM_WEIGHT_ONE));
		assert_true(r->z[i] >= LLM_WEIGHT_MIN_Z || r->w[i] == 0);
		sum += r->w[i];
		assert_true(r->noise[i] < LLM_GUMBEL_MAX && r->noise[i] > -2.9f);
	}
	assert_int_equal(r->n_kept, n_kept);
	assert_true(r->weight_sum == sum);
}

static void
test_isa_bits(void **state)
{
	static const int sizes[] = {0, 1, 15, 16, 17, 31, 100, 1023, 1024, 1025, 2064, 4099};
	const LlmRowMath *all[LLM_ROWMATH_MAX];
	int n_all = llm_rowmath_list(all);

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
	{
		size_t n = (size_t) sizes[k];
		float *x = calloc(n + 1, sizeof(float));
		int32_t *ids = calloc(n + 1, sizeof(int32_t));
		RowResults want;

		fill(x, (int) n, 30);
		for (size_t i = 0; i < n; i++)
			ids[i] = (int32_t) (uniform() * 1e6);
		if (n > 20)
			x[11] = -INFINITY;
		want = row_results(all[n_all - 1], x, ids, (int32_t) n);
		check_row(&want, x, (int32_t) n);
		for (int v = 0; v + 1 < n_all; v++)
		{
			RowResults r = row_results(all[v], x, ids, (int32_t) n);

			assert_int_equal(r.top.id, want.top.id);
			assert_true(r.top.max == want.top.max && r.top.bad == want.top.bad);
			assert_memory_equal(&r.sumexp, &want.sumexp, sizeof(float));
			assert_int_equal(r.n_kept, want.n_kept);
			assert_memory_equal(r.id, want.id, (size_t) want.n_kept * sizeof(int32_t));
			assert_memory_equal(r.kept, want.kept, (size_t) want.n_kept * sizeof(float));
			assert_memory_equal(r.maxima, want.maxima,
								(size_t) llm_row_n_maxima((int32_t) n) * sizeof(float));
			assert_memory_equal(r.z, want.z, n * sizeof(float));
			assert_memory_equal(r.w, want.w, n * sizeof(uint64_t));
			assert_true(r.weight_sum == want.weight_sum);
			assert_memory_equal(r.noise, want.noise, n * sizeof(float));
			row_results_free(&r);
		}
		row_results_free(&want);
		free(ids);
		free(x);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_sort),    cmocka_unit_test(test_logprob),
		cmocka_unit_test(test_likeliest),       cmocka_unit_test(test_bias),
		cmocka_unit_test(test_refused_scores),  cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_no_wild_pick),    cmocka_unit_test(test_greedy_and_ties),
		cmocka_unit_test(test_top_k_ties),      cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_refused_params),  cmocka_unit_test(test_penalties),
		cmocka_unit_test(test_nothing_to_pick), cmocka_unit_test(test_scratch),
		cmocka_unit_test(test_isa_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
