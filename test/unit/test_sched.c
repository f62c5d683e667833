/*
 * test_sched.c - scheduler, pages and packing without a model, against simple invariants.
 *
 * links: sched kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "sched_world.h"

/* A step that fails after it has left nonsense in the pages it was to fill; what ran is given up. */
static void
world_step_fails(World *w)
{
	const LlmPlan *plan = llm_sched_next(w->sched);
	LlmError err;

	w->step++;
	if (plan->n_rows > 0)
	{
		const LlmBatch *b = llm_pack_fill(w->pack, plan, false, false);

		for (int g = 0; g < GROUPS; g++)
			for (int32_t r = 0; r < b->n_rows; r++)
				w->store[g][b->slot[g][r]] = -1;
	}
	llm_sched_done(w->sched, false);
	for (int i = 0; i < SEQS_MAX; i++)
		if (w->live[i] != NULL && w->live[i]->state == LLM_SEQ_RUNNING)
			llm_sched_remove(w->sched, w->live[i]);
	if (!llm_sched_audit(w->sched, &err))
		fail_msg("after a failed step: %s", err.text);
}

/* Random arrivals, lengths, priorities, clients and cancels, in a pool that is often too small; with
 * the prefix cache also failed steps, and the cache goes off and on under what runs. */
static void
storm_with(uint64_t seed, int n_steps, int32_t n_pages, int32_t max_rows, int32_t max_running,
		   uint32_t preempt_every, bool prefix_cache)
{
	World w;
	uint32_t n_submitted = 0;

	world_init_with(&w, n_pages, max_rows, max_running, preempt_every, prefix_cache);
	for (int i = 0; i < n_steps; i++)
	{
		uint32_t r = llm_rng_u32(seed, (uint32_t) i, 0);
		LlmSeq *cancel = NULL;

		if (r % 4 == 0 && w.n_live < 40)
		{
			int32_t room = (n_pages - 1) * LLM_PAGE_TOKENS;
			int32_t n_prompt = 1 + (int32_t) ((r >> 4) % 200);
			int32_t n_new = 1 + (int32_t) ((r >> 14) % 90);

			room = room < LEN_MAX ? room : LEN_MAX;
			n_prompt = n_prompt < room ? n_prompt : room - 1;
			n_new = n_prompt + n_new <= room ? n_new : room - n_prompt;
			seq_submit(&w, r >> 29, (r >> 24) % 16 == 0, n_prompt, n_new, (r >> 20) % 64 == 0);
			n_submitted++;
		}
		if (llm_rng_u32(seed, (uint32_t) i, 1) % 50 == 0)
			cancel = w.live[llm_rng_u32(seed, (uint32_t) i, 2) % SEQS_MAX];
		if (cancel != NULL && r % 2 == 0)
		{
			llm_sched_remove(w.sched, cancel); /* between two steps: gone at once */
			cancel = NULL;
		}
		if (prefix_cache && r % 97 == 0)
			llm_sched_prefix_set(w.sched, r % 4 != 0);
		world_step(&w, cancel);
		if (prefix_cache && r % 61 == 0)
			world_step_fails(&w);
		if (i % 1000 == 999)
			drain(&w, 60000); /* nobody starves: what waits or runs now ends by itself */
	}
	drain(&w, 60000);
	assert_true(n_submitted > 0 && w.n_finished > 0);
	assert_int_equal(w.n_cached > 0, prefix_cache);
	if (preempt_every != 0)
		assert_true(llm_sched_preemptions(w.sched) > 0);
	world_fini(&w);
}

static void
storm(uint64_t seed, int n_steps, int32_t n_pages, int32_t max_rows, int32_t max_running,
	  uint32_t preempt_every)
{
	storm_with(seed, n_steps, n_pages, max_rows, max_running, preempt_every, false);
}

static void
storm_in_a_wide_pool(void **state)
{
	storm(1, 20000, 400, 128, 32, 0);
}

static void
storm_in_a_narrow_pool(void **state)
{
	storm(2, 20000, 9, 64, 16, 0);
	storm(3, 10000, 8, 7, 16, 0);
}

static void
storm_with_one_row_per_step(void **state)
{
	storm(4, 10000, 40, 1, 8, 0);
}

static void
storm_with_more_decodes_than_rows(void **state)
{
	storm(5, 20000, 200, 5, 32, 0);
}

static void
storm_with_forced_preemption(void **state)
{
	storm(6, 10000, 60, 64, 16, 3);
	storm(7, 4000, 12, 64, 16, 1);
	storm(8, 4000, 60, 32, 16, 2);
}

static void
storm_with_the_prefix_cache(void **state)
{
	storm_with(21, 10000, 400, 128, 32, 0, true);
	storm_with(22, 10000, 9, 64, 16, 0, true);
	storm_with(23, 5000, 40, 1, 8, 0, true);
	storm_with(24, 5000, 60, 64, 16, 3, true);
	storm_with(25, 5000, 12, 64, 16, 1, true);
}

static void
what_never_fits_is_refused_with_numbers(void **state)
{
	World w;
	LlmSeq seq;
	LlmError err;

	world_init(&w, 5, 64, 8, 0);
	assert_int_equal(llm_seq_init(&seq, 4 * LLM_PAGE_TOKENS + 2, GROUPS, &err), LLM_OK);
	assert_int_equal(llm_sched_submit(w.sched, &seq, &err), LLM_E_KV_MEMORY);
	assert_int_equal(err.got, 5);
	assert_int_equal(err.limit, 4);
	assert_non_null(strstr(err.text, "5 KV pages"));
	llm_seq_fini(&seq);

	/* One token less fits to the last page, alone and beside others. */
	seq_submit(&w, 1, 0, 100, 20, false);
	seq_submit(&w, 2, 0, 4 * LLM_PAGE_TOKENS, 1, false);
	seq_submit(&w, 3, 0, 1, 4 * LLM_PAGE_TOKENS, false);
	drain(&w, 2000);
	assert_int_equal(w.n_finished, 3);
	world_fini(&w);
}

static void
a_chunk_of_a_prefill_wants_no_output(void **state)
{
	World w;
	const LlmPlan *plan;

	world_init(&w, 40, 16, 8, 0);
	seq_submit(&w, 1, 0, 40, 3, false);
	for (int i = 0; i < 2; i++)
	{
		plan = llm_sched_next(w.sched);
		assert_int_equal(plan->n_rows, 16);
		assert_int_equal(plan->items[0].begin, 16 * i);
		assert_false(plan->items[0].completes);
		assert_int_equal(llm_pack_fill(w.pack, plan, false, false)->n_out, 0);
		llm_sched_done(w.sched, true);
	}
	plan = llm_sched_next(w.sched);
	assert_int_equal(plan->n_rows, 8);
	assert_true(plan->items[0].completes);
	assert_int_equal(llm_pack_fill(w.pack, plan, false, false)->n_out, 1);
	llm_sched_done(w.sched, true);
	llm_sched_remove(w.sched, plan->items[0].seq);
	world_fini(&w);
}

static void
decodes_go_before_a_long_prefill(void **state)
{
	World w;
	LlmSeq *fast;
	size_t len;

	world_init(&w, 40, 16, 8, 0);
	fast = seq_submit(&w, 1, 0, 2, 30, false);
	world_step(&w, NULL);
	seq_submit(&w, 2, 0, 350, 2, false);
	len = fast->tokens.len;
	for (int i = 0; i < 20; i++)
	{
		assert_int_equal(world_step(&w, NULL), 16);
		assert_int_equal(fast->tokens.len, ++len);
	}
	drain(&w, 100);
	world_fini(&w);
}

/* Ten decodes and three rows: every one gets a row within four steps, all the time. */
static void
decodes_beyond_the_budget_take_turns(void **state)
{
	World w;
	size_t len[10];

	world_init(&w, 100, 16, 10, 0);
	for (int i = 0; i < 10; i++)
		seq_submit(&w, (uint64_t) i, 0, 2, 60, false);
	world_step(&w, NULL);
	world_step(&w, NULL);
	llm_sched_limits_set(w.sched, 3, 10);
	for (int round = 0; round < 10; round++)
	{
		for (int i = 0; i < 10; i++)
			len[i] = w.live[i] == NULL ? 0 : w.live[i]->tokens.len;
		for (int i = 0; i < 4; i++)
			assert_int_equal(world_step(&w, NULL), 3);
		for (int i = 0; i < 10; i++)
			if (w.live[i] != NULL)
				assert_in_range(w.live[i]->tokens.len, len[i] + 1, len[i] + 2);
		if (round % 3 == 2) /* a departure must not cost anybody a turn */
			llm_sched_remove(w.sched, w.live[round]);
	}
	drain(&w, 1000);
	world_fini(&w);
}

/* A client with one request behind a client with thirty is served in its turn, not after them. */
static void
clients_take_turns(void **state)
{
	World w;
	LlmSeq *lone;
	int steps = 0;

	world_init(&w, 40, 64, 2, 0);
	for (int i = 0; i < 30; i++)
		seq_submit(&w, 1, 0, 10, 10, false);
	world_step(&w, NULL);
	lone = seq_submit(&w, 2, 0, 10, 10, false);
	while (lone->state == LLM_SEQ_WAITING && steps < 1000)
	{
		world_step(&w, NULL);
		steps++;
	}
	assert_in_range(steps, 1, 12);
	drain(&w, 1000);
	world_fini(&w);
}

/* Three clients with unlike loads get the same number of admissions while all have work. */
static void
turns_are_fair_over_clients(void **state)
{
	World w;
	int n[3] = {0};

	world_init(&w, 200, 64, 1, 0);
	for (int i = 0; i < 60; i++)
		seq_submit(&w, i < 40 ? 0 : i < 50 ? 1 : 2, 0, 5, 1, false);
	for (int i = 0; i < 30; i++)
	{
		const LlmPlan *plan = llm_sched_next(w.sched);
		LlmSeq *seq = plan->items[0].seq;

		n[seq->client]++;
		llm_sched_done(w.sched, true);
		llm_sched_remove(w.sched, seq);
	}
	assert_int_equal(n[0], 10);
	assert_int_equal(n[1], 10);
	assert_int_equal(n[2], 10);
	drain(&w, 1000);
	world_fini(&w);
}

static void
priority_goes_first_and_arrival_decides_within(void **state)
{
	World w;
	LlmSeq *order[4];
	int n = 0;

	world_init(&w, 200, 64, 1, 0);
	order[2] = seq_submit(&w, 1, 0, 5, 1, false);
	order[3] = seq_submit(&w, 1, 0, 5, 1, false);
	order[0] = seq_submit(&w, 1, 7, 5, 1, false);
	order[1] = seq_submit(&w, 1, 7, 5, 1, false);
	while (w.n_live > 0)
	{
		const LlmPlan *plan = llm_sched_next(w.sched);
		LlmSeq *seq = plan->items[0].seq;

		assert_ptr_equal(seq, order[n++]);
		llm_sched_done(w.sched, true);
		llm_sched_remove(w.sched, seq);
	}
	world_fini(&w);
}

/* Out of pages, the later sequence yields; nothing is admitted in that step, and the earlier one
 * runs through without being preempted. */
static void
the_latest_is_preempted_and_nothing_admitted(void **state)
{
	World w;
	LlmSeq *first, *third;
	int n_preempted = 0;

	world_init(&w, 7, 256, 8, 0);
	first = seq_submit(&w, 1, 0, 60, 120, false);
	seq_submit(&w, 2, 0, 60, 120, false);
	third = seq_submit(&w, 3, 0, 60, 120, false);
	while (w.n_live > 0)
	{
		bool third_waits = w.live[2] == third && third->state == LLM_SEQ_WAITING;
		int64_t before = llm_sched_preemptions(w.sched);

		world_step(&w, NULL);
		if (llm_sched_preemptions(w.sched) > before)
		{
			n_preempted++;
			if (third_waits && w.live[2] == third)
				assert_int_equal(third->state, LLM_SEQ_WAITING);
		}
		if (w.live[0] == first)
			assert_int_equal(first->n_preempted, 0);
		assert_in_range(w.step, 0, 2000);
	}
	assert_in_range(n_preempted, 1, 6);
	assert_int_equal(w.n_finished, 3);
	world_fini(&w);
}

/* A priority request that comes late takes the pages of one that is less urgent. */
static void
a_lower_priority_is_the_victim(void **state)
{
	World w;
	LlmSeq *low, *high;

	world_init(&w, 7, 256, 8, 0);
	low = seq_submit(&w, 1, 0, 120, 200, false);
	world_step(&w, NULL);
	high = seq_submit(&w, 2, 5, 60, 300, false);
	while (w.live[1] == high)
	{
		world_step(&w, NULL);
		if (w.live[1] == high)
			assert_int_equal(high->n_preempted, 0);
		assert_in_range(w.step, 0, 2000);
	}
	assert_ptr_equal(w.live[0], low);
	assert_true(low->n_preempted > 0);
	drain(&w, 2000);
	world_fini(&w);
}

static void
removal_is_idempotent_in_every_state(void **state)
{
	World w;
	LlmSeq *seq;

	world_init(&w, 40, 16, 8, 0);
	seq = seq_submit(&w, 1, 0, 40, 3, false);
	llm_sched_remove(w.sched, seq); /* waiting: freed by the callback */
	assert_int_equal(w.n_live, 0);

	seq = seq_submit(&w, 1, 0, 40, 3, false);
	llm_sched_next(w.sched);
	llm_sched_remove(w.sched, seq); /* in flight: stays until the step is done */
	llm_sched_remove(w.sched, seq);
	assert_int_equal(w.n_live, 1);
	assert_true(seq->n_pages > 0);
	llm_sched_done(w.sched, true);
	assert_int_equal(w.n_live, 0);
	llm_sched_done(w.sched, true);
	world_fini(&w);
}

static void
limits_can_be_lowered_and_stay_in_range(void **state)
{
	World w;

	world_init(&w, 100, 32, 8, 0);
	for (int i = 0; i < 8; i++)
		seq_submit(&w, (uint64_t) i, 0, 100, 4, false);
	llm_sched_limits_set(w.sched, 4, 2);
	assert_int_equal(world_step(&w, NULL), 4);
	assert_int_equal(llm_sched_running(w.sched), 1);
	llm_sched_limits_set(w.sched, 100000, 100000);
	assert_int_equal(world_step(&w, NULL), 32);
	llm_sched_limits_set(w.sched, 0, -1);
	assert_int_equal(world_step(&w, NULL), 1);
	llm_sched_limits_set(w.sched, 32, 8);
	drain(&w, 1000);
	world_fini(&w);
}

/* Two long prompts that score, in steps of few outputs, beside short requests: every position but the
 * last scores once, and who does not score is never more than one step late. */
static void
score_beside_others(uint32_t preempt_every)
{
	World w = {.n_pages = 60};
	int place[2];
	bool over[2] = {false, false};

	w.o = (LlmSchedOptions){.n_groups = GROUPS,
							.n_pages = 60,
							.max_rows = 48,
							.max_out = 8,
							.max_running = 8,
							.preempt_every = preempt_every,
							.retired = retired,
							.arg = &w};
	world_create(&w);
	for (int i = 0; i < 2; i++)
	{
		LlmSeq *seq = seq_new(&w, (uint64_t) i, i == 0 ? 300 : 130, 20);

		seq->scores = seq->fresh = true;
		place[i] = world_submit(&w, seq);
	}
	for (int steps = 0; w.n_live > 0; steps++)
	{
		LlmSeq *fast = NULL;

		assert_in_range(steps, 0, 3000);
		if (steps < 30 && steps % 5 == 0)
			fast = seq_submit(&w, 9, 1, 3, 2, false);
		for (int i = 0; i < 2; i++)
		{
			int32_t n = i == 0 ? 300 : 130;

			if (over[i] || w.live[place[i]]->tokens.len < (size_t) n + 19)
				continue;
			for (int32_t p = 0; p < n; p++)
				assert_int_equal(w.scored[place[i]][p], p < n - 1);
			over[i] = true;
		}
		world_step(&w, NULL);
		if (fast == NULL || preempt_every != 0)
			continue;
		world_step(&w, NULL); /* two steps for its two tokens, and one that it may be late */
		world_step(&w, NULL);
		assert_null(w.live[2]);
	}
	assert_true(over[0] && over[1]);
	world_fini(&w);
}

static void
prompts_score_within_the_outputs_of_a_step(void **state)
{
	score_beside_others(0);
	score_beside_others(3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_never_fits_is_refused_with_numbers),
		cmocka_unit_test(a_chunk_of_a_prefill_wants_no_output),
		cmocka_unit_test(decodes_go_before_a_long_prefill),
		cmocka_unit_test(decodes_beyond_the_budget_take_turns),
		cmocka_unit_test(clients_take_turns),
		cmocka_unit_test(turns_are_fair_over_clients),
		cmocka_unit_test(priority_goes_first_and_arrival_decides_within),
		cmocka_unit_test(the_latest_is_preempted_and_nothing_admitted),
		cmocka_unit_test(a_lower_priority_is_the_victim),
		cmocka_unit_test(removal_is_idempotent_in_every_state),
		cmocka_unit_test(limits_can_be_lowered_and_stay_in_range),
		cmocka_unit_test(prompts_score_within_the_outputs_of_a_step),
		cmocka_unit_test(storm_in_a_wide_pool),
		cmocka_unit_test(storm_in_a_narrow_pool),
		cmocka_unit_test(storm_with_one_row_per_step),
		cmocka_unit_test(storm_with_more_decodes_than_rows),
		cmocka_unit_test(storm_with_forced_preemption),
		cmocka_unit_test(storm_with_the_prefix_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
