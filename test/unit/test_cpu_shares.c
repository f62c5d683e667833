/*
 * test_cpu_shares.c - steps of one row per sequence, whose splits threads share evenly: wherever heads are
 * cut, and when too much would have to be kept apart, the logits are those of one thread to the bit.
 *
 * links: kernels sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define STRIDE 10
#define MAX_SEQS 10
#include "cpu_graph.h"
#include "kernels/cpu_state.h"

#define N_STEPS 4
#define LONG (MAX_TOKENS - N_STEPS)

/* Sequences that are in each step together, by the tokens that they have before. */
typedef struct Group
{
	int32_t n;
	int32_t lens[MAX_SEQS];
	bool turned; /* attention does the phase before, too */
} Group;

static const Group groups[] = {
	{1, {LONG}, true},                  /* a head is cut by many threads */
	{1, {0}, true},                     /* fewer splits than threads */
	{2, {62, 130}, true},               /* a new page comes in the steps */
	{5, {1, LONG, 127, 64, 300}, true}, /* pieces of several sequences */
	{10,
	 {70, LONG, 3, 64, 128, 200, 330, 1, 50, 400},
	 false}, /* too many rows to turn in passing */
};
#define N_GROUPS (sizeof(groups) / sizeof(groups[0]))

static const Graph kinds[] = {
	{16, LLM_DTYPE_F16, false, 0, 96},
	{24, LLM_DTYPE_F32, false, 200, 96}, /* window: the first split seen is not the first */
	{40, LLM_DTYPE_I8, false, 0, 96},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* A machine, and the logits of a group's steps on it. */
typedef struct Done
{
	Machine m;
	Run *r;
} Done;

/* Fill the pages of a sequence, up to its last step, with what no other has. */
static void
pages_fill(Run *r, int32_t seq)
{
	size_t n = (size_t) 64 * LAYERS * KV_HEADS * 2 * (size_t) r->m->graph.head_dim;
	float *page = malloc(n * sizeof(*page));
	LlmError err;

	assert_non_null(page);
	for (int32_t p = 0; p <= (r->len[seq] + N_STEPS - 1) / 64; p++)
	{
		for (size_t i = 0; i < n; i++)
			page[i] = 2.0f * llm_rng_uniform(9, (uint32_t) (seq * STRIDE + p), (uint32_t) i) - 1.0f;
		assert_int_equal(r->m->dev->ops->kv_import(r->m->dev, 0, &r->tables[seq * STRIDE + p], 1,
												   page, &err),
						 LLM_OK);
	}
	free(page);
}

/* max_parts: floats that a thread may keep apart; 0 = the device's own number. */
static void
done_make(Done *d, const Graph *graph, const char *isa, int n_threads, const Group *g,
		  int32_t max_parts)
{
	LlmCpuDevice *dev;

	machine_open(&d->m, graph, isa, n_threads);
	dev = (LlmCpuDevice *) d->m.dev;
	dev->threads.state = LLM_CPU_HOLD; /* all threads, whoever else takes cores */
	dev->threads.until = INFINITY;
	if (max_parts > 0)
		dev->max_parts = max_parts;
	d->r = run_create(&d->m, 11);
	for (int32_t s = 0; s < g->n; s++)
	{
		d->r->len[s] = g->lens[s];
		pages_fill(d->r, s);
	}
	for (int step = 0; step < N_STEPS; step++)
	{
		step_begin_batch(d->r);
		for (int32_t s = 0; s < g->n; s++)
			step_add(d->r, s, 1);
		step_run(d->r);
	}
}

static void
done_free(Done *d)
{
	free(d->r);
	machine_close(&d->m);
}

static void
assert_done_same(const Done *a, const Done *b, const Group *g)
{
	for (int32_t s = 0; s < g->n; s++)
		assert_same(a->r, b->r, s, g->lens[s] + N_STEPS);
}

/* The attention of the last step. */
static const LlmCpuOp *
attention_of(const Done *d)
{
	const LlmCpuDevice *dev = (const LlmCpuDevice *) d->m.dev;

	for (int32_t i = 0; i < dev->n_ops; i++)
		if (dev->ops[i].kind == LLM_CPU_ATTENTION)
			return &dev->ops[i];
	fail();
	return NULL;
}

/* Splits that a sequence sees in the last step. */
static int32_t
seen(const Graph *graph, int32_t len)
{
	int32_t last = len + N_STEPS - 1;
	int32_t first = graph->window > 0 && last >= graph->window ? last - graph->window + 1 : 0;

	return last / 64 - first / 64 + 1;
}

static void
test_shares_change_no_bit(void **state)
{
	static const int threads[] = {2, 3, 7};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	for (size_t k = 0; k < N_KINDS; k++)
		for (size_t i = 0; i < N_GROUPS; i++)
		{
			const Group *g = &groups[i];
			int64_t n_splits = 0;
			Done want;

			for (int32_t s = 0; s < g->n; s++)
				n_splits += (int64_t) KV_HEADS * seen(&kinds[k], g->lens[s]);
			done_make(&want, &kinds[k], "generic", 1, g, 0);
			for (int a = 0; a < n_all; a++)
				for (int t = 0; t < 3; t++)
				{
					Done got;

					done_make(&got, &kinds[k], all[a]->isa, threads[t], g, 0);
					assert_int_equal(attention_of(&got)->n_splits, n_splits);
					assert_int_equal(attention_of(&got)->turn != NULL, g->turned);
					assert_done_same(&got, &want, g);
					done_free(&got);
				}
			done_free(&want);
		}
}

/* With one float less than what could have to be kept apart, threads take items as they come; with
 * just enough, nobody writes behind it. */
static void
test_no_more_is_kept_apart_than_fits(void **state)
{
	const Group *g = &groups[0];

	(void) state;
	for (size_t k = 0; k < N_KINDS; k++)
		for (int n_threads = 2; n_threads <= 7; n_threads++)
		{
			Done one, fits, over;
			const LlmCpuDevice *dev;
			int32_t most, vectors, floats;

			done_make(&one, &kinds[k], NULL, 1, g, 0);
			/* of the splits of a head, all but the first; half of all are more */
			most = seen(&kinds[k], g->lens[0]) - 1;
			vectors = most * (HEADS / KV_HEADS);
			floats = vectors * ((const LlmCpuDevice *) one.m.dev)->kv[0].v_stride;
			done_make(&fits, &kinds[k], NULL, n_threads, g, floats);
			dev = (const LlmCpuDevice *) fits.m.dev;
			assert_true(attention_of(&fits)->n_splits > 0);
			for (int t = 0; t < n_threads; t++)
				for (int32_t i = 0; i < 4096; i++)
				{
					assert_true(dev->scratch[t].parts.o[floats + i] == 0.0f);
					assert_true(dev->scratch[t].parts.m[vectors + i] == 0.0f);
				}
			done_make(&over, &kinds[k], NULL, n_threads, g, floats - 1);
			assert_int_equal(attention_of(&over)->n_splits, 0);
			assert_null(attention_of(&over)->turn);
			assert_done_same(&fits, &one, g);
			assert_done_same(&over, &one, g);
			done_free(&one);
			done_free(&fits);
			done_free(&over);
		}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares_change_no_bit),
		cmocka_unit_test(test_no_more_is_kept_apart_than_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
