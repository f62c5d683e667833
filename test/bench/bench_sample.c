/*
 * bench_sample.c - time of one pick by what a row asks for, vocabulary and instruction set.
 *
 *     bench_sample [ROUNDS]
 *
 * Logits are bell-shaped noise (standard deviation 2.5) below a dozen likely tokens; eight rows take turns, so
 * small vocabularies come from the second-level cache. A line gives the best of ROUNDS (default 200) in
 * microseconds per row.
 *
 * links: sample tensor core
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/rng.h"
#include "sample/rowmath.h"
#include "sample/sample.h"

#define N_ROWS 8
#define N_HISTORY 600

static const LlmSampleParams off = {.top_p = 1.0f, .repetition_penalty = 1.0f, .seed = 3};

typedef struct Case
{
	const char *name;
	LlmSampleParams p;
	bool scored;
	int32_t n_top;
} Case;

static void
logits_fill(float *x, int32_t n, uint32_t row)
{
	for (int32_t i = 0; i < n; i++)
	{
		float sum = 0.0f;

		for (uint32_t k = 0; k < 4; k++)
			sum += llm_rng_uniform(k, row, (uint32_t) i);
		x[i] = 4.33f * (sum - 2.0f);
	}
	for (uint32_t i = 0; i < 12; i++)
		x[llm_rng_u32(9, row, i) % (uint32_t) n] = 8.0f + 8.0f * llm_rng_uniform(8, row, i);
}

/* Best time of one pick in microseconds. */
static double
case_time(LlmSampler *s, const Case *c, const float *x, int32_t n, int rounds)
{
	static int32_t history[N_HISTORY];
	double best = 1e9;

	for (uint32_t i = 0; i < N_HISTORY; i++)
		history[i] = (int32_t) (llm_rng_u32(5, 0, i) % (uint32_t) n);
	for (int r = 0; r < rounds; r++)
	{
		LlmSampleRow row = {.p = c->p,
							.history = history,
							.n_history = N_HISTORY,
							.n_prompt = N_HISTORY - 100,
							.position = r,
							.n_top = c->n_top,
							.unscored = !c->scored};
		LlmSampleOut out;
		double t = llm_clock_seconds();

		for (size_t i = 0; i < N_ROWS; i++)
			llm_sampler_pick(s, x + i * (size_t) n, &row, &out);
		t = (llm_clock_seconds() - t) / N_ROWS;
		best = t < best ? t : best;
		if (out.status != LLM_OK)
			return -1.0;
	}
	return best * 1e6;
}

int
main(int argc, char **argv)
{
	static const int32_t sizes[] = {49152, 262144};
	Case cases[] = {{"greedy", off},
					{"greedy, logprob", off, true},
					{"greedy, 5 logprobs", off, true, 5},
					{"greedy, penalties", off},
					{"temperature", off},
					{"top-k 40", off},
					{"top-p 0.95", off},
					{"top-k 40, top-p 0.95", off},
					{"min-p 0.05", off}};
	int rounds = argc > 1 ? atoi(argv[1]) : 200;
	const LlmRowMath *all[LLM_ROWMATH_MAX];
	int n_all = llm_rowmath_list(all);

	cases[3].p.repetition_penalty = 1.1f;
	cases[3].p.presence_penalty = 0.5f;
	for (size_t i = 4; i < sizeof(cases) / sizeof(cases[0]); i++)
		cases[i].p.temperature = 0.8f;
	cases[5].p.top_k = cases[7].p.top_k = 40;
	cases[6].p.top_p = cases[7].p.top_p = 0.95f;
	cases[8].p.min_p = 0.05f;
	for (size_t v = 0; v < sizeof(sizes) / sizeof(sizes[0]); v++)
	{
		int32_t n = sizes[v];
		float *x = malloc((size_t) n * N_ROWS * sizeof(*x));
		LlmSampler *s;
		LlmError err;

		if (x == NULL || llm_sampler_create(n, &s, &err) != LLM_OK)
			return 1;
		for (uint32_t i = 0; i < N_ROWS; i++)
			logits_fill(x + (size_t) i * (size_t) n, n, i);
		printf("%d tokens, us a row", n);
		for (int k = 0; k < n_all; k++)
			printf("%10s", all[k]->isa);
		printf("\n");
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		{
			printf("  %-22s", cases[i].name);
			for (int k = 0; k < n_all; k++)
			{
				llm_sampler_use(s, all[k]);
				printf("%10.1f", case_time(s, &cases[i], x, n, rounds / (k < 2 ? 1 : 8) + 1));
			}
			printf("\n");
		}
		llm_sampler_free(s);
		free(x);
	}
	return 0;
}
