/*
 * test_sched_load.c - what load does to those who wait, stated in steps of the scheduler.
 *
 * links: sched kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#define SEQS_MAX 400
#define LEN_MAX 2100
#include "sched_world.h"

/* ---- gaps between tokens ---- */

/* Steps since each live sequence's last token. */
typedef struct Gaps
{
	const LlmSeq *seq[SEQS_MAX];
	size_t len[SEQS_MAX];
	uint64_t step[SEQS_MAX];
	uint64_t max; /* longest gap between two tokens of a sequence */
} Gaps;

static void
gaps_step(Gaps *g, World *w)
{
	world_step(w, NULL);
	for (int i = 0; i < SEQS_MAX; i++)
	{
		const LlmSeq *seq = w->live[i];
		bool known = seq == g->seq[i];

		if (seq == NULL || (known && seq->tokens.len == g->len[i]))
			continue;
		if (known && seq->tokens.len > (size_t) seq->n_prompt + 1 && w->step - g->step[i] > g->max)
			g->max = w->step - g->step[i];
		g->seq[i] = seq;
		g->len[i] = seq->tokens.len;
		g->step[i] = w->step;
	}
}

/* 16 requests that generate get their token in every step while 100 prompts of 2,000 tokens arrive,
 * and so do the prompts once they generate. */
static void
long_prompts_cost_nobody_a_token(void **state)
{
	static World w;
	static Gaps g;
	LlmSeq *fast[16];
	uint64_t start;

	world_init(&w, 3000, 512, 64, 0);
	for (int i = 0; i < 16; i++)
		fast[i] = seq_submit(&w, 1, 0, 5, 600, false);
	gaps_step(&g, &w);
	gaps_step(&g, &w);
	start = w.step;
	for (int i = 0; i < 100; i++)
	{
		seq_submit(&w, 2, 0, 2000, 20, false);
		if (i % 10 == 9)
			gaps_step(&g, &w);
	}
	while (w.n_finished < 100)
		gaps_step(&g, &w);
	assert_int_equal(g.max, 1);
	for (int i = 0; i < 16; i++)
		assert_int_equal(fast[i]->tokens.len, 5 + w.step);
	print_message("100 x 2,000 tokens: longest gap %d step, done after %d steps\n", (int) g.max,
				  (int) (w.step - start));
	/* 200,000 prompt rows beside 16 to 64 decodes in steps of 512 */
	assert_in_range(w.step - start, 200000 / 512, 200000 / (512 - 64) + 40);
	drain(&w, 1000);
	world_fini(&w);
}

/* n_decodes run, then a prompt of n tokens comes: steps to its first token, and the longest gap. */
static uint64_t
prefill_behind_decodes(int32_t max_rows, int n_decodes, int32_t n, uint64_t *gap)
{
	static World w;
	static Gaps g;
	LlmSeq *late;
	uint64_t start;

	memset(&g, 0, sizeof(g));
	world_init(&w, 600, 64, 32, 0);
	for (int i = 0; i < n_decodes; i++)
		seq_submit(&w, 1, 0, 2, 1000, false);
	world_step(&w, NULL);
	world_step(&w, NULL);
	llm_sched_limits_set(w.sched, max_rows, 32);
	late = seq_submit(&w, 2, 0, n, 2, false);
	start = w.step;
	while (late->tokens.len == (size_t) n)
	{
		gaps_step(&g, &w);
		assert_in_range(w.step - start, 0, 2000);
	}
	start = w.step - start;
	*gap = g.max;
	for (int i = 0; i < SEQS_MAX; i++)
		if (w.live[i] != NULL)
			llm_sched_remove(w.sched, w.live[i]);
	world_fini(&w);
	return start;
}

/* Decodes that could fill every step leave rows to a prompt, and take turns for the others. */
static void
decodes_and_a_prompt_both_go_on(void **state)
{
	static const struct
	{
		int32_t max_rows, n_decodes, n, max_steps, max_gap;
	} cases[] = {
		{16, 20, 200, 101, 2}, /* two rows of 16 for the prompt */
		{8, 20, 200, 201, 3},  /* one row of 8 */
		{2, 5, 50, 51, 5},     /* one row of 2 */
		{1, 3, 50, 101, 6},    /* every second step */
		{16, 14, 200, 101, 1}, /* as many decodes as fit beside */
		{24, 4, 200, 11, 1},   /* few decodes */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		uint64_t gap;
		uint64_t steps =
			prefill_behind_decodes(cases[i].max_rows, cases[i].n_decodes, cases[i].n, &gap);

		print_message("%d rows, %d decodes: a prompt of %d in %d steps, longest gap %d\n",
					  cases[i].max_rows, cases[i].n_decodes, cases[i].n, (int) steps, (int) gap);
		assert_in_range(steps, 1, cases[i].max_steps);
		assert_in_range(gap, 1, cases[i].max_gap);
	}
}

/* ---- waiting ---- */

/* A connection feeds n_rows rows, 256 of them at a time, with answers of n_new tokens and up to
 * `spread` more; now and then another one sends a single call. It has its first token when the next
 * place gets free, not after the queue. */
static void
call_beside_a_feed(int n_rows, int32_t n_new, int spread, uint64_t bound)
{
	static World w;
	int n_fed = 0, n_calls = 0;
	uint64_t longest = 0, sum = 0;

	world_init(&w, 400, 512, 64, 0);
	while (n_fed < n_rows || w.n_live > 0)
	{
		LlmSeq *call = NULL;
		uint64_t start = w.step;

		for (; n_fed < n_rows && w.n_live < 256; n_fed++)
			seq_submit(&w, 1, 0, 20 + n_fed % 21, n_new + n_fed % (spread + 1), false);
		if (n_fed < n_rows && w.step % 37 == 36)
			call = seq_submit(&w, 2, 0, 30, 20, false);
		while (call != NULL && call->tokens.len == 30)
		{
			world_step(&w, NULL);
			assert_in_range(w.step - start, 1, bound);
		}
		if (call != NULL)
		{
			n_calls++;
			sum += w.step - start;
			longest = w.step - start > longest ? w.step - start : longest;
		}
		world_step(&w, NULL);
	}
	print_message("%d calls beside %d rows with answers of %d to %d: first token after %.1f steps, "
				  "at most %d\n",
				  n_calls, n_rows, n_new, n_new + spread, (double) sum / n_calls, (int) longest);
	assert_true(n_calls > 10);
	assert_int_equal(w.n_finished, n_rows + n_calls);
	world_fini(&w);
}

static void
a_single_call_passes_a_feed(void **state)
{
	call_beside_a_feed(10000, 12, 16, 5);      /* 64 places: some get free in every step */
	call_beside_a_feed(1000, 100, 0, 100 + 2); /* all at once, after an answer's length */
}

/* A tenant that came first and holds every place gives the next that gets free to a newcomer. */
static void
a_newcomer_has_the_next_place(void **state)
{
	static World w;
	LlmSeq *late;

	world_init(&w, 400, 64, 8, 0);
	for (int i = 0; i < 100; i++)
		seq_submit(&w, (uint64_t) (i % 4), 0, 10, 20 + i % 8 * 5, false);
	for (int i = 0; i < 10; i++)
		world_step(&w, NULL);
	late = seq_submit(&w, 9, 0, 10, 10, false); /* of another tenant */
	while (w.n_finished == 0)
	{
		assert_int_equal(late->state, LLM_SEQ_WAITING);
		world_step(&w, NULL);
	}
	world_step(&w, NULL);
	assert_int_equal(late->state, LLM_SEQ_RUNNING);
	drain(&w, 10000);
	world_fini(&w);
}

/* ---- shares ---- */

typedef struct Feed
{
	uint64_t tenant, client;
	int n_queued; /* kept waiting or running */
	int32_t n_prompt, n_new;
	int32_t priority;
	uint64_t from, to; /* steps in which it feeds */
} Feed;

static int
count_live(const World *w, uint64_t client)
{
	int n = 0;

	for (int i = 0; i < SEQS_MAX; i++)
		n += w->live[i] != NULL && w->live[i]->client == client;
	return n;
}

#define STEPS_MAX 4000

/* rows[client][step] = rows computed for it before that step; clients are 0 .. 15. */
typedef struct Served
{
	int64_t rows[16][STEPS_MAX + 1];
} Served;

static void
feed_all(World *w, const Feed *feeds, int n_feeds, int n_steps, Served *out)
{
	for (int t = 0; t <= n_steps; t++)
	{
		for (int c = 0; c < 16; c++)
			out->rows[c][t] = w->client_rows[c];
		if (t == n_steps)
			break;
		for (int i = 0; i < n_feeds; i++)
			for (int n = count_live(w, feeds[i].client);
				 n < feeds[i].n_queued && w->step >= feeds[i].from && w->step < feeds[i].to; n++)
			{
				LlmSeq *seq = seq_new(w, feeds[i].client, feeds[i].n_prompt, feeds[i].n_new);

				seq->tenant = feeds[i].tenant;
				seq->priority = feeds[i].priority;
				world_submit(w, seq);
			}
		world_step(w, NULL);
	}
	for (int i = 0; i < SEQS_MAX; i++)
		if (w->live[i] != NULL)
			llm_sched_remove(w->sched, w->live[i]);
}

/* Rows of the clients [first, last] between two steps. */
static int64_t
rows_of(const Served *s, int first, int last, int from, int to)
{
	int64_t n = 0;

	for (int c = first; c <= last; c++)
		n += s->rows[c][to] - s->rows[c][from];
	return n;
}

/* The largest difference of a's and b's rows over any window of steps within [from, to]. */
static int64_t
largest_drift(const Served *s, int a_last, int b, int from, int to)
{
	int64_t min = INT64_MAX, max = INT64_MIN;

	for (int t = from; t <= to; t++)
	{
		int64_t d = rows_of(s, 0, a_last, from, t) - rows_of(s, b, b, from, t);

		min = d < min ? d : min;
		max = d > max ? d : max;
	}
	return max - min;
}

/* The smallest and largest share of b among a's and b's rows over windows of `width` steps. */
static void
shares_of(const Served *s, int a_last, int b, int from, int to, int width, double *min, double *max)
{
	*min = 1;
	*max = 0;
	for (int t = from; t + width <= to; t++)
	{
		double share = (double) rows_of(s, b, b, t, t + width);

		share /= (double) (rows_of(s, 0, a_last, t, t + width) + rows_of(s, b, b, t, t + width));
		*min = fmin(*min, share);
		*max = fmax(*max, share);
	}
}

/* Role 0 has eight connections, role 1 one; their rows have lengths a and b. Whatever the lengths,
 * each gets half of the tokens: over any window they drift apart by no more than what one can have
 * running. */
static void
halves_for_two_roles(int32_t a_prompt, int32_t a_new, int32_t b_prompt, int32_t b_new)
{
	static World w;
	static Served s;
	Feed feeds[9];
	int64_t drift, bound;
	double min, max;

	for (int i = 0; i < 9; i++)
		feeds[i] = (Feed){.tenant = i / 8,
						  .client = (uint64_t) i,
						  .n_queued = i < 8 ? 4 : 32,
						  .n_prompt = i < 8 ? a_prompt : b_prompt,
						  .n_new = i < 8 ? a_new : b_new,
						  .to = STEPS_MAX};
	world_init(&w, 200, 64, 16, 0);
	feed_all(&w, feeds, 9, 3000, &s);
	drift = largest_drift(&s, 7, 8, 0, 3000);
	shares_of(&s, 7, 8, 0, 3000, 600, &min, &max);
	bound =
		16 * (int64_t) (a_prompt + a_new > b_prompt + b_new ? a_prompt + a_new : b_prompt + b_new);
	print_message("rows of %d+%d in 8 connections, %d+%d in one: share of the one %.3f to %.3f in "
				  "windows of 600 steps, drift %d of %d tokens\n",
				  a_prompt, a_new, b_prompt, b_new, min, max, (int) drift, (int) bound);
	assert_in_range(drift, 0, bound);
	assert_true(min > 0.4 && max < 0.6);
	assert_int_equal(llm_sched_preemptions(w.sched), 0);
	world_fini(&w);
}

static void
two_roles_get_half_each(void **state)
{
	halves_for_two_roles(20, 10, 20, 10);
	halves_for_two_roles(100, 30, 10, 5);
	halves_for_two_roles(10, 5, 100, 30);
	halves_for_two_roles(100, 2, 5, 60);
}

/* The same within a role: two connections share its half, while another role has the other half. */
static void
two_connections_of_a_role_get_half_each(void **state)
{
	static World w;
	static Served s;
	Feed feeds[] = {
		{.tenant = 0, .client = 0, .n_queued = 20, .n_prompt = 60, .n_new = 30, .to = 4000},
		{.tenant = 0, .client = 1, .n_queued = 20, .n_prompt = 8, .n_new = 6, .to = 4000},
		{.tenant = 1, .client = 2, .n_queued = 20, .n_prompt = 20, .n_new = 9, .to = 4000}};
	double min, max;

	world_init(&w, 200, 64, 16, 0);
	feed_all(&w, feeds, 3, 3000, &s);
	shares_of(&s, 0, 1, 0, 3000, 600, &min, &max);
	print_message("two connections: share of the second %.3f to %.3f\n", min, max);
	assert_true(min > 0.4 && max < 0.6);
	shares_of(&s, 1, 2, 0, 3000, 600, &min, &max);
	print_message("the other role %.3f to %.3f\n", min, max);
	assert_true(min > 0.4 && max < 0.6);
	world_fini(&w);
}

/* Who was idle for a thousand steps has no claim on them, and who sends one request after the other
 * is not kept behind who feeds. */
static void
idling_earns_nothing(void **state)
{
	static World w;
	static Served s;
	Feed feeds[] = {
		{.tenant = 0, .client = 0, .n_queued = 40, .n_prompt = 30, .n_new = 20, .to = 4000},
		{.tenant = 1, .client = 1, .n_queued = 40, .n_prompt = 30, .n_new = 20, .to = 300},
		{.tenant = 1,
		 .client = 2,
		 .n_queued = 40,
		 .n_prompt = 30,
		 .n_new = 20,
		 .from = 1300,
		 .to = 4000},
		{.tenant = 2, .client = 3, .n_queued = 1, .n_prompt = 30, .n_new = 20, .to = 4000}};
	double min, max;

	world_init(&w, 200, 64, 16, 0);
	feed_all(&w, feeds, 4, 2500, &s);
	shares_of(&s, 0, 2, 1300, 2500, 300, &min, &max);
	print_message("after a thousand idle steps: %.3f to %.3f\n", min, max);
	assert_true(min > 0.4 && max < 0.6);
	/* One request of 50 tokens at a time takes 20 steps, and never waits longer than for a place. */
	assert_in_range(rows_of(&s, 3, 3, 0, 2500), 2500 / 24 * 49, 2500 / 20 * 50);
	world_fini(&w);
}

/* Two clients that come with one request at a time and leave in between, in one place: who asks for
 * more is not served more. */
static void
coming_and_going_pays_too(void **state)
{
	static World w;
	static Served s;
	Feed feeds[] = {
		{.tenant = 0, .client = 0, .n_queued = 9, .n_prompt = 10, .n_new = 5, .to = 4000},
		{.tenant = 1, .client = 1, .n_queued = 1, .n_prompt = 200, .n_new = 5, .to = 4000}};
	double min, max;

	world_init(&w, 200, 64, 1, 0);
	feed_all(&w, feeds, 2, 3000, &s);
	shares_of(&s, 0, 1, 0, 3000, 600, &min, &max);
	print_message("one long request at a time beside short ones: %.3f to %.3f\n", min, max);
	assert_true(min > 0.4 && max < 0.6);
	world_fini(&w);
}

/* Priority is above shares, and what one had at a low priority is no claim at a high one. */
static void
priority_beats_shares(void **state)
{
	static World w;
	static Served s;
	Feed feeds[] = {
		{.tenant = 0,
		 .client = 0,
		 .n_queued = 20,
		 .n_prompt = 20,
		 .n_new = 10,
		 .priority = 1,
		 .to = 500},
		{.tenant = 1, .client = 1, .n_queued = 20, .n_prompt = 20, .n_new = 10, .to = 4000},
		{.tenant = 0,
		 .client = 2,
		 .n_queued = 20,
		 .n_prompt = 20,
		 .n_new = 10,
		 .from = 600,
		 .to = 4000}};
	double min, max;

	world_init(&w, 200, 64, 4, 0);
	feed_all(&w, feeds, 3, 2000, &s);
	assert_int_equal(rows_of(&s, 1, 1, 0, 500), 0);
	assert_true(rows_of(&s, 0, 0, 0, 500) > 500);
	shares_of(&s, 1, 2, 650, 2000, 400, &min, &max);
	print_message("after having had priority: %.3f to %.3f\n", min, max);
	assert_true(min > 0.4 && max < 0.6);
	world_fini(&w);
}

/* Many who come once are remembered only up to a bound, and the tree is empty when all are gone. */
static void
passers_by_leave_nothing(void **state)
{
	static World w;

	world_init(&w, 200, 64, 8, 0);
	seq_submit(&w, 0, 0, 2, 1500, false);
	for (uint64_t i = 1; i < 1000; i++)
	{
		LlmSeq *seq = seq_new(&w, i * 1000, 20, 2);

		seq->tenant = i % 3;
		world_submit(&w, seq);
		world_step(&w, NULL); /* audits the shares */
	}
	drain(&w, 2000);
	assert_int_equal(w.n_finished, 1000);
	world_fini(&w);
}

/* ---- no thrash ---- */

/* Forty sequences of five pages in a pool for four: rows that were computed over rows that were of
 * use, and preemptions. */
static void
work_in_a_pool_for_four(bool prefix_cache, int32_t n_prompt, int32_t n_new)
{
	static World w;
	int64_t useful = 40 * (int64_t) (n_prompt + n_new - 1);
	int32_t pages = (n_prompt + n_new - 1 + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS;

	world_init_with(&w, 4 * pages + 1, 256, 32, 0, prefix_cache);
	for (int i = 0; i < 40; i++)
		seq_submit(&w, (uint64_t) i * 1000, 0, n_prompt, n_new, false);
	drain(&w, 20000);
	print_message(
		"%d+%d tokens in a pool for 4, cache %s: %d preemptions of 40, %.3f rows per useful "
		"row\n",
		n_prompt, n_new, prefix_cache ? "on" : "off", (int) llm_sched_preemptions(w.sched),
		(double) w.n_rows / (double) useful);
	assert_in_range(llm_sched_preemptions(w.sched), 0, 80);
	assert_true(w.n_rows * 2 <= useful * 3);
	world_fini(&w);
}

static void
a_small_pool_does_not_thrash(void **state)
{
	work_in_a_pool_for_four(false, 100, 200);
	work_in_a_pool_for_four(true, 100, 200);
	work_in_a_pool_for_four(false, 10, 300);
	work_in_a_pool_for_four(true, 10, 300);
	work_in_a_pool_for_four(false, 1000, 60);
}

/* A prompt of 400 tokens that scores takes an output for each: who comes meanwhile has his first token
 * one step later at most, and who begins with the same tokens computes them himself. */
static void
a_prompt_that_scores_holds_nobody_up(void **state)
{
	for (int same = 0; same < 2; same++)
	{
		static World w;
		LlmSeq *scorer, *other[6];

		memset(&w, 0, sizeof(w));
		w.n_pages = 100;
		w.o = (LlmSchedOptions){.n_groups = GROUPS,
								.n_pages = 100,
								.max_rows = 512,
								.max_out = 16,
								.max_running = 8,
								.prefix_cache = true,
								.retired = retired,
								.arg = &w};
		world_create(&w);
		scorer = seq_new(&w, 1, 400, 1);
		scorer->scores = scorer->fresh = true;
		world_submit(&w, scorer);
		world_step(&w, NULL);
		for (int i = 0; i < 6; i++)
			other[i] = seq_submit(&w, same ? 1 : 2, 0, 100, 20, false);
		for (int i = 0; i < 2; i++)
			world_step(&w, NULL);
		for (int i = 0; i < 6; i++)
			assert_true(other[i]->tokens.len > 100);
		/* It has what the 7 that run do not need themselves, and its own. */
		assert_in_range(scorer->n_computed, 2 * 10, 399);
		drain(&w, 400 / 8 + 10);
		world_fini(&w);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_prompts_cost_nobody_a_token),
		cmocka_unit_test(decodes_and_a_prompt_both_go_on),
		cmocka_unit_test(a_single_call_passes_a_feed),
		cmocka_unit_test(a_newcomer_has_the_next_place),
		cmocka_unit_test(two_roles_get_half_each),
		cmocka_unit_test(two_connections_of_a_role_get_half_each),
		cmocka_unit_test(idling_earns_nothing),
		cmocka_unit_test(coming_and_going_pays_too),
		cmocka_unit_test(priority_beats_shares),
		cmocka_unit_test(passers_by_leave_nothing),
		cmocka_unit_test(a_small_pool_does_not_thrash),
		cmocka_unit_test(a_prompt_that_scores_holds_nobody_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
