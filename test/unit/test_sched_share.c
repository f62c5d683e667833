/*
 * test_sched_share.c - what prompts that run together share is computed once: rows are counted.
 *
 * links: sched kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define SEQS_MAX 400
#define LEN_MAX 400
#include "sched_world.h"

#define N 64

/* A prompt whose first n_shared tokens are everybody's and whose n_own others are its own. */
static LlmSeq *
submit(World *w, int32_t n_shared, int32_t n_own, int32_t own, bool fresh)
{
	LlmSeq *seq = seq_new(w, 1, n_shared + n_own, 1);

	for (int32_t i = n_shared; i < n_shared + n_own; i++)
		seq->tokens.ids[i] = 100000 + own * 1000 + i;
	seq->fresh = fresh;
	world_submit(w, seq);
	return seq;
}

/* Rows that N prompts take together. */
static int64_t
rows_of(int32_t n_shared, int32_t n_own, int32_t max_rows, bool cache, bool fresh)
{
	int64_t n_rows;
	World w;

	world_init_with(&w, 1000, max_rows, N, 0, cache);
	for (int32_t i = 0; i < N; i++)
		submit(&w, n_shared, n_own, i, fresh);
	drain(&w, 4000);
	assert_int_equal(w.n_finished, N);
	n_rows = w.n_rows;
	world_fini(&w);
	return n_rows;
}

static void
shared_tokens_are_computed_once(void **state)
{
	static const int32_t n[] = {16, 40, 63, 64, 65, 127, 128, 129, 200, 370};

	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
	{
		assert_int_equal(rows_of(n[i], 20, 8192, true, false), n[i] + N * 20);
		assert_int_equal(rows_of(n[i], 20, 8192, true, true), N * (n[i] + 20));
		assert_int_equal(rows_of(n[i], 20, 8192, false, false), N * (n[i] + 20));
	}
}

/* In chunks, what is left of the shared tokens may be too little to be waited for. */
static void
in_chunks_they_are_computed_once_but_for_crumbs(void **state)
{
	static const int32_t rows[] = {7, 64, 100, 333};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_in_range(rows_of(370, 20, rows[i], true, false), 370 + N * 20,
						370 + N * (20 + 15) - 1);
}

/* The same prompt many times: all but the last token of it is computed once. */
static void
equal_prompts_compute_one_token_each(void **state)
{
	static const int32_t n[] = {17, 20, 64, 65, 300};

	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		assert_int_equal(rows_of(n[i], 0, 8192, true, false), n[i] + N - 1);
	assert_int_equal(rows_of(16, 0, 8192, true, false), N * 16); /* 15 are not waited for */
}

/* What is shared only by some is computed once by these: a tree of beginnings. */
static void
a_tree_of_prefixes_is_computed_once(void **state)
{
	World w;

	world_init_with(&w, 1000, 8192, N, 0, true);
	for (int32_t i = 0; i < N; i++)
	{
		LlmSeq *seq = seq_new(&w, 1, 300, 1);

		for (int32_t k = 100; k < 300; k++)
			seq->tokens.ids[k] = 100000 + (k < 230 ? i / 8 : i) * 1000 + k;
		world_submit(&w, seq);
	}
	drain(&w, 100);
	assert_int_equal(w.n_rows, 100 + 130 * (N / 8) + 70 * N);
	world_fini(&w);
}

/* Who was to compute it goes in the middle: another does it, and nobody waits for ever. */
static void
a_producer_may_be_cancelled(void **state)
{
	for (int n_steps = 0; n_steps < 4; n_steps++)
	{
		LlmSeq *first;
		World w;

		world_init_with(&w, 1000, 100, N, 0, true);
		first = submit(&w, 370, 20, 0, false);
		for (int32_t i = 1; i < N; i++)
			submit(&w, 370, 20, i, false);
		for (int i = 0; i < n_steps; i++)
			world_step(&w, NULL);
		world_step(&w, first);
		drain(&w, 4000);
		assert_int_equal(w.n_finished, N - 1);
		assert_in_range(w.n_rows, 370 + (N - 1) * 20, 370 + 100 + N * (20 + 15));
		world_fini(&w);
	}
}

/* Nobody waits for a prompt of another salt. */
static void
salts_do_not_wait_for_each_other(void **state)
{
	World w;

	world_init_with(&w, 1000, 8192, N, 0, true);
	for (int32_t i = 0; i < 8; i++)
	{
		LlmSeq *seq = seq_new(&w, 1, 100, 1);

		seq->salt = (uint64_t) i;
		world_submit(&w, seq);
	}
	assert_int_equal(world_step(&w, NULL), 8 * 100);
	world_fini(&w);
}

/* What is evicted for one that runs is not what another that waits would find, though that is the
 * oldest: three pages of one client stay, those of a client who does not wait go. */
static void
what_is_waited_for_is_evicted_last(void **state)
{
	for (int waits = 0; waits < 2; waits++)
	{
		World w;

		world_init_with(&w, 11, 512, 1, 0, true);
		seq_submit(&w, 1, 0, 150, 1, false);
		drain(&w, 10);
		seq_submit(&w, 2, 0, 180, 1, false);
		drain(&w, 10);
		seq_submit(&w, 4, 1, 370, 25, false); /* six pages, then a seventh: three must go */
		if (waits)
			seq_submit(&w, 1, 0, 160, 1, false);
		drain(&w, 100);
		if (!waits)
			seq_submit(&w, 1, 0, 160, 1, false);
		drain(&w, 100);
		assert_int_equal(w.n_cached, waits ? 150 : 0);
		world_fini(&w);
	}
}

/* However much one client has waiting, what another's first needs is seen. */
static void
a_long_queue_hides_nobody(void **state)
{
	World w;

	world_init_with(&w, 11, 512, 1, 0, true);
	seq_submit(&w, 1, 0, 150, 1, false);
	drain(&w, 10);
	seq_submit(&w, 2, 0, 180, 1, false);
	drain(&w, 10);
	seq_submit(&w, 4, 1, 370, 25, false); /* evicts, as above */
	seq_submit(&w, 1, 0, 160, 1, false);
	for (int i = 0; i < 300; i++)
		seq_submit(&w, 5, 0, 10, 1, false);
	while (w.n_finished < 4)
		world_step(&w, NULL);
	assert_int_equal(w.n_cached, 150);
	drain(&w, 1000);
	world_fini(&w);
}

static int32_t
n_touched(const World *w)
{
	LlmPageCounts c = llm_sched_pages(w->sched);

	return (c.total - c.untouched) / GROUPS;
}

/* Who waits for what another computes takes no page for itself, and who has ended leaves his pages to
 * those that come; still what all share is computed once. */
static void
a_table_touches_few_pages(void **state)
{
	static World w;

	world_init_with(&w, 2000, 8192, 16, 0, true);
	for (int32_t i = 0; i < 300; i++)
		submit(&w, 200, 100, i, false);
	world_step(&w, NULL);
	assert_int_equal(n_touched(&w), 5);
	drain(&w, 1000);
	assert_int_equal(w.n_rows, 200 + 300 * 100);
	assert_in_range(n_touched(&w), 3 + 16 * 2, 3 + 16 * 2 + 2000 / 8 + 2);
	world_fini(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_tokens_are_computed_once),
		cmocka_unit_test(in_chunks_they_are_computed_once_but_for_crumbs),
		cmocka_unit_test(equal_prompts_compute_one_token_each),
		cmocka_unit_test(a_tree_of_prefixes_is_computed_once),
		cmocka_unit_test(a_producer_may_be_cancelled),
		cmocka_unit_test(salts_do_not_wait_for_each_other),
		cmocka_unit_test(what_is_waited_for_is_evicted_last),
		cmocka_unit_test(a_long_queue_hides_nobody),
		cmocka_unit_test(a_table_touches_few_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
