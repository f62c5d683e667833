/*
 * test_cpu_bits.c - a small graph on the CPU device gives the same logits, to the bit, for every
 * instruction set and number of threads and every way of cutting and mixing the work.
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
#include "kernels/kernels.h"

/* Chunk sizes, threads, page order and instruction set never change a bit. */
static void
test_bits_alone(void **state)
{
	static const int32_t chunks[][4] = {{1, 0}, {64, 0}, {3, 5, 17, 0}, {63, 2, 1, 0}};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	for (size_t g = 0; g < N_GRAPHS; g++)
	{
		Machine base;
		Run *want;

		machine_open(&base, &graphs[g], "generic", 1);
		want = run_create(&base, 1);
		run_alone(want, 0, MAX_TOKENS, (int32_t[]){32, 0});
		for (int i = 0; i < n_all; i++)
			for (int n_threads = 1; n_threads <= 3; n_threads += 2) /* 3 share the 2 KV heads */
			{
				Machine m;

				machine_open(&m, &graphs[g], all[i]->isa, n_threads);
				for (int c = 0; c < 4; c++)
				{
					Run *r = run_create(&m, 3 + 2 * c);

					run_alone(r, 0, MAX_TOKENS, chunks[c]);
					assert_same(r, want, 0, MAX_TOKENS);
					free(r);
				}
				machine_close(&m);
			}
		free(want);
		machine_close(&base);
	}
}

/* Behind what do the threads of the last step wait? Turning (t), attention (a), gathering (g), sampling (s) and
 * everything else (.), in order; phases behind which nobody waits are left out. */
static const char *
waits_text(const Machine *m, int n_threads, char *text)
{
	static const char letters[LLM_CPU_N_KINDS] = {[LLM_CPU_ROPE] = 't',
												  [LLM_CPU_ATTENTION] = 'a',
												  [LLM_CPU_GATHER] = 'g',
												  [LLM_CPU_SAMPLE] = 's'};
	const LlmCpuDevice *dev = (const LlmCpuDevice *) m->dev;
	char *to = text;

	for (int32_t i = 0; i < dev->n_ops; i++)
	{
		const LlmCpuOp *op = &dev->ops[i];

		if (op->run != NULL && llm_cpu_waits(op, n_threads))
			*to++ = letters[op->kind] != '\0' ? letters[op->kind] : '.';
	}
	*to = '\0';
	return text;
}

/* Threads that have rows of their own wait where they read others' alone; with fewer rows everywhere. */
static void
test_waits(void **state)
{
	Machine m;
	Run *r;
	char text[100];

	(void) state;
	machine_open(&m, &graphs[2], NULL, 2);
	r = run_create(&m, 1);
	r->every = 4;
	step_begin_batch(r);
	for (int32_t s = 0; s < MAX_SEQS; s++)
		step_add(r, s, MAX_ROWS / MAX_SEQS);
	step_run(r);
	/* the wanted rows are too few */
	assert_string_equal(waits_text(&m, 2, text), "tatagg......s");
	assert_true(strlen(waits_text(&m, 4, text)) > 20);
	free(r);
	machine_close(&m);
}

/* Steps of so many rows that each thread has some to itself, with all or some of them wanted: each sequence as
 * if it were alone. */
static void
test_bits_own_rows(void **state)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	for (size_t g = 0; g < N_GRAPHS; g++)
		for (int i = 0; i < n_all; i++)
			for (int n_threads = 1; n_threads <= (i == n_all - 1 ? 2 : 3);
				 n_threads++) /* generic is slow */
			{
				int32_t n = MAX_ROWS / MAX_SEQS, every = n_threads % 2 == 0 ? 3 : 0;
				Machine m;
				Run *r, *alone;

				machine_open(&m, &graphs[g], all[i]->isa, n_threads);
				r = run_create(&m, 7);
				alone = run_create(&m, 11);
				r->every = every;
				assert_true(llm_cpu_rows_own(MAX_ROWS, n_threads));
				while (r->len[0] + n <= MAX_TOKENS)
				{
					step_begin_batch(r);
					for (int32_t s = 0; s < MAX_SEQS; s++)
						step_add(r, s, n);
					step_run(r);
				}
				for (int32_t s = 0; s < MAX_SEQS; s += 3)
				{
					alone->every = every;
					run_alone(alone, s, r->len[s], (int32_t[]){64, 0});
					assert_same(r, alone, s, r->len[s]);
				}
				free(r);
				free(alone);
				machine_close(&m);
			}
}

/* Four sequences of different ages in every step: each as if it were alone. */
static void
test_bits_mixed(void **state)
{
	static const int32_t lens[MAX_SEQS] = {90, 33, 140, 64};

	(void) state;
	for (size_t g = 0; g < N_GRAPHS; g++)
	{
		Machine m;
		Run *mixed, *alone;

		machine_open(&m, &graphs[g], NULL, 2);
		mixed = run_create(&m, 7);
		alone = run_create(&m, 11);
		for (int32_t turn = 0; mixed->len[2] < lens[2]; turn++)
		{
			step_begin_batch(mixed);
			for (int32_t s = 0; s < MAX_SEQS; s++)
			{
				int32_t n = 1 + (turn * 5 + s * 3) % 16;

				n = n < lens[s] - mixed->len[s] ? n : lens[s] - mixed->len[s];
				if (n > 0)
					step_add(mixed, s, n);
			}
			step_run(mixed);
		}
		/* Alone afterwards: the pages hold what the others left behind. */
		for (int32_t s = 0; s < MAX_SEQS; s++)
		{
			run_alone(alone, s, mixed->len[s], (int32_t[]){29, 0});
			assert_same(mixed, alone, s, mixed->len[s]);
		}
		free(mixed);
		free(alone);
		machine_close(&m);
	}
}

/* A copied or moved page serves as the original does. */
static void
test_kv_pages(void **state)
{
	(void) state;
	for (size_t g = 0; g < N_GRAPHS; g++)
	{
		Machine m;
		Run *r, *s;
		LlmError err;
		int32_t page, to = N_PAGES - 1, zero = 0;
		size_t n = (size_t) 64 * LAYERS * KV_HEADS * 2 * (size_t) graphs[g].head_dim;
		float *one = calloc(n, 4), *two = calloc(n, 4);

		machine_open(&m, &graphs[g], NULL, 1);
		r = run_create(&m, 1);
		s = run_create(&m, 1);
		run_alone(r, 0, 50, (int32_t[]){50, 0});
		page = r->tables[0];
		m.dev->ops->kv_copy(m.dev, 0, page, to, 50);
		assert_int_equal(m.dev->ops->kv_export(m.dev, 0, &page, 1, one, &err), LLM_OK);
		assert_int_equal(m.dev->ops->kv_export(m.dev, 0, &to, 1, two, &err), LLM_OK);
		assert_memory_equal(one, two, n * 4);
		/* and through floats into a third page */
		to = N_PAGES - 2;
		assert_int_equal(m.dev->ops->kv_import(m.dev, 0, &to, 1, one, &err), LLM_OK);
		s->tables[0] = to;
		s->len[0] = 50;
		run_alone(r, 0, 80, (int32_t[]){7, 0});
		run_alone(s, 0, 80, (int32_t[]){30, 0});
		assert_memory_equal(r->logits[0][50], s->logits[0][50], 30 * VOCAB * sizeof(float));
		/* page 0 is zeros and refuses to be written */
		m.dev->ops->kv_copy(m.dev, 0, page, 0, 64);
		assert_int_equal(m.dev->ops->kv_import(m.dev, 0, &zero, 1, one, &err), LLM_E_INTERNAL);
		assert_int_equal(m.dev->ops->kv_export(m.dev, 0, &zero, 1, two, &err), LLM_OK);
		for (size_t i = 0; i < n; i++)
			assert_true(two[i] == 0.0f);
		free(one);
		free(two);
		free(r);
		free(s);
		machine_close(&m);
	}
}

/* A row of NaN fails, its sequence is named, and nobody else sees anything of it: not the rows before
 * it, not the neighbour in the step, not the next owner of its pages. */
static void
test_nan_stays_alone(void **state)
{
	(void) state;
	for (size_t g = 0; g < N_GRAPHS; g++)
	{
		const float *vectors[64] = {NULL};
		float nan_row[DIM];
		size_t n = (size_t) 64 * LAYERS * KV_HEADS * 2 * (size_t) graphs[g].head_dim;
		float *page = calloc(n, sizeof(*page));
		const uint8_t *spoiled;
		Machine m;
		Run *r, *alone;
		LlmError err;

		for (int i = 0; i < DIM; i++)
			nan_row[i] = NAN;
		machine_open(&m, &graphs[g], NULL, 2);
		alone = run_create(&m, 1);
		run_alone(alone, 0, 60, (int32_t[]){60, 0});
		run_alone(alone, 1, 60, (int32_t[]){60, 0});
		r = run_create(&m, 1);
		step_begin_batch(r);
		step_add(r, 0, 20);
		step_add(r, 1, 20);
		vectors[20 + 10] = nan_row;
		r->b.embed = vectors;
		spoiled = step_run_any(r).spoiled;
		assert_non_null(spoiled);
		assert_int_equal(spoiled[0], 0);
		assert_int_equal(spoiled[1], 1);
		assert_same(r, alone, 0, 20);
		assert_same(r, alone, 1, 10);
		assert_int_equal(r->picks[20 + 10].status, LLM_E_INTERNAL);
		assert_int_equal(r->picks[20 + 9].status, LLM_OK);
		assert_int_equal(m.dev->ops->kv_export(m.dev, 0, &r->tables[STRIDE], 1, page, &err),
						 LLM_OK);
		for (size_t i = 0; i < n; i++)
			assert_true(isfinite(page[i]));
		/* the same pages serve others, while position 10 of the page is still masked */
		r->len[1] = 0;
		for (int32_t at = 0; at < 60; at += 6)
		{
			step_begin_batch(r);
			step_add(r, 1, 6);
			assert_null(step_run_any(r).spoiled);
		}
		assert_same(r, alone, 1, 60);
		page[n / 2] = NAN;
		assert_int_equal(m.dev->ops->kv_import(m.dev, 0, &r->tables[STRIDE], 1, page, &err),
						 LLM_E_INVALID);
		free(page);
		free(r);
		free(alone);
		machine_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits_alone), cmocka_unit_test(test_bits_own_rows),
		cmocka_unit_test(test_waits),      cmocka_unit_test(test_bits_mixed),
		cmocka_unit_test(test_kv_pages),   cmocka_unit_test(test_nan_stays_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
