/*
 * test_cpu_shared.c - sequences whose tables begin with the same pages: attention goes through these
 * once for all, and no bit of anybody's logits changes.
 *
 * links: kernels sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu_graph.h"
#include "kernels/cpu_state.h"

#define N_STEPS 3

/* A sequence that begins with pages of another one. */
typedef struct Kin
{
	int32_t of;      /* sequence whose pages it begins with */
	int32_t n_pages; /* that many */
	int32_t len;     /* tokens before the steps */
	int32_t n;       /* rows in each step */
} Kin;

/* Two families, one with branches at two depths, a loner, and rows of all numbers. */
static const Kin kins[MAX_SEQS] = {
	{0, 0, 128, 1}, {0, 2, 128, 1}, {6, 1, 70, 1}, {0, 1, 100, 1},
	{0, 2, 131, 3}, {3, 1, 64, 4},  {6, 0, 90, 2}, {7, 0, 20, 1},
};

/* All sequences up to where the steps begin. */
static void
run_start(Run *r)
{
	static const int32_t order[MAX_SEQS] = {0, 6, 7, 3, 1, 2, 4, 5};

	for (int i = 0; i < MAX_SEQS; i++)
	{
		int32_t s = order[i];
		const Kin *k = &kins[s];

		memcpy(r->tables + s * STRIDE, r->tables + k->of * STRIDE,
			   (size_t) k->n_pages * sizeof(*r->tables));
		r->len[s] = k->n_pages * 64;
		run_alone(r, s, k->len, (int32_t[]){64, 0});
	}
}

/* The steps, all sequences in each; first: which one leads the batch. */
static void
run_steps(Run *r, int32_t first)
{
	for (int step = 0; step < N_STEPS; step++)
	{
		step_begin_batch(r);
		for (int32_t i = 0; i < MAX_SEQS; i++)
		{
			int32_t s = (first + i * 3) % MAX_SEQS;

			step_add(r, s, kins[s].n);
		}
		step_run(r);
	}
}

/* The logits that a has are those of b. */
static void
assert_steps_same(const Run *a, const Run *b)
{
	for (int32_t s = 0; s < MAX_SEQS; s++)
		for (int32_t pos = kins[s].len; pos < kins[s].len + kins[s].n * N_STEPS; pos++)
			if (a->every == 0 || pos % a->every == 0)
				assert_memory_equal(a->logits[s][pos], b->logits[s][pos], VOCAB * sizeof(float));
}

/* Blocks of the last step that span sequences; the costly ones come first. */
static int
blocks_shared(const Machine *m)
{
	const LlmCpuDevice *dev = (const LlmCpuDevice *) m->dev;
	int n = 0;

	for (int32_t i = 0; i < dev->n_blocks; i++)
	{
		n += dev->blocks[i].n_runs > 1;
		assert_true(i == 0 || dev->blocks[i - 1].cost >= dev->blocks[i].cost);
	}
	return n;
}

/* Wanted rows of the last step that its blocks for them hold; all rows when all are wanted. */
static int32_t
wanted_rows(const Machine *m)
{
	const LlmCpuDevice *dev = (const LlmCpuDevice *) m->dev;
	int32_t first = dev->all_wanted ? 0 : dev->n_blocks, n = 0;
	int32_t end = dev->all_wanted ? dev->n_blocks : first + dev->n_wanted_blocks;

	for (int32_t i = first; i < end; i++)
		for (int32_t k = 0; k < dev->blocks[i].n_runs; k++)
		{
			const LlmCpuRun *run = &dev->runs[dev->blocks[i].run0 + k];

			for (int32_t row = run->row0; row < run->row0 + run->n_rows; row++)
				n += dev->wanted_rows[row];
		}
	return n;
}

static void
softcap_set(Machine *m, float softcap)
{
	for (int i = 0; i < LAYERS; i++)
		m->layers[i].attn.softcap = softcap;
}

static void
check_graph(const Graph *graph, float softcap)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);
	Machine base;
	Run *want;

	machine_open(&base, graph, "generic", 1);
	softcap_set(&base, softcap);
	want = run_create(&base, 1);
	run_start(want);
	for (int32_t s = 0; s < MAX_SEQS; s++)
		run_alone(want, s, kins[s].len + kins[s].n * N_STEPS, (int32_t[]){1, 0});
	for (int i = 0; i < n_all; i++)
		for (int way = 0; way < (i == n_all - 1 ? 1 : 4); way++) /* generic is slow */
		{
			Machine m;
			Run *r;

			machine_open(&m, graph, all[i]->isa, 1 + way / 2);
			softcap_set(&m, softcap);
			llm_cpu_device_share(m.dev, way % 2 == 0);
			for (int32_t every = 0; every <= 4; every += 2) /* no row is wanted in some steps */
			{
				r = run_create(&m, 7);
				r->every = every;
				run_start(r);
				run_steps(r, way);
				assert_int_equal(blocks_shared(&m) > 0, way % 2 == 0);
				assert_int_equal(wanted_rows(&m), r->b.n_out);
				assert_steps_same(r, want);
				free(r);
			}
			machine_close(&m);
		}
	free(want);
	machine_close(&base);
}

static void
test_shared_pages_change_no_bit(void **state)
{
	(void) state;
	check_graph(&graphs[0], 0.0f);
	check_graph(&graphs[3], 2.0f); /* window */
	check_graph(&graphs[4], 2.0f); /* int8 */
	check_graph(&graphs[5], 0.0f); /* both */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared_pages_change_no_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
