/*
 * test_sched.c - scheduler, pages and packing without a model, against simple invariants.
 *
 * The "device" here is an array of token ids by slot. What a sequence should generate is a function
 * of all its tokens, and it is computed from what the batch's tables say is stored: a wrong page,
 * slot, position or length gives another token than the one that the plain list of tokens gives.
 *
 * links: sched kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "sched/pack.h"
#include "sched/sched.h"

#define SEQS_MAX 64
#define LEN_MAX 400
#define GROUPS 2

typedef struct World
{
	LlmSched *sched;
	LlmPack *pack;
	int32_t *store[GROUPS]; /* [n_pages * 64] token ids */
	int32_t n_pages;
	LlmSeq *live[SEQS_MAX]; /* NULL = free place */
	uint64_t age[SEQS_MAX]; /* step of submission */
	int n_live;
	int n_finished;
	uint64_t step;
	int64_t n_rows;
	int64_t n_cached; /* tokens that finished sequences found in the cache */
	LlmSchedOptions o;
} World;

static void
retired(void *arg, LlmSeq *seq)
{
	World *w = arg;

	assert_int_equal(seq->n_pages, 0);
	for (int i = 0; i < SEQS_MAX; i++)
		if (w->live[i] == seq)
		{
			w->live[i] = NULL;
			w->n_live--;
			llm_seq_fini(seq);
			free(seq);
			return;
		}
	fail_msg("a sequence retired twice");
}

static void
world_init_with(World *w, int32_t n_pages, int32_t max_rows, int32_t max_running,
				uint32_t preempt_every, bool prefix_cache)
{
	LlmPackSizes sizes = {max_rows, max_running, max_running, LEN_MAX, GROUPS};
	LlmError err;

	memset(w, 0, sizeof(*w));
	w->n_pages = n_pages;
	w->o = (LlmSchedOptions){.n_groups = GROUPS,
							 .n_pages = n_pages,
							 .max_rows = max_rows,
							 .max_running = max_running,
							 .prefix_cache = prefix_cache,
							 .preempt_every = preempt_every,
							 .retired = retired,
							 .arg = w};
	assert_int_equal(llm_sched_create(&w->o, &w->sched, &err), LLM_OK);
	assert_int_equal(llm_pack_create(&sizes, &w->pack, &err), LLM_OK);
	for (int g = 0; g < GROUPS; g++)
		w->store[g] = calloc((size_t) n_pages * LLM_PAGE_TOKENS, sizeof(int32_t));
}

static void
world_init(World *w, int32_t n_pages, int32_t max_rows, int32_t max_running, uint32_t preempt_every)
{
	world_init_with(w, n_pages, max_rows, max_running, preempt_every, false);
}

/* Everything must be back. */
static void
world_fini(World *w)
{
	LlmPageCounts c = llm_sched_pages(w->sched);

	assert_int_equal(w->n_live, 0);
	assert_int_equal(llm_sched_running(w->sched) + llm_sched_waiting(w->sched), 0);
	assert_int_equal(c.free + c.cached, c.total);
	assert_true(w->o.prefix_cache || c.cached == 0);
	assert_int_equal(c.total, GROUPS * (w->n_pages - 1));
	llm_sched_free(w->sched);
	llm_pack_free(w->pack);
	for (int g = 0; g < GROUPS; g++)
		free(w->store[g]);
}

/* The token that follows ids[0..n). */
static int32_t
next_token(uint32_t h)
{
	return (int32_t) (h % 50021);
}

static uint32_t
hash_token(uint32_t h, int32_t id)
{
	return (h ^ (uint32_t) id) * 0x9E3779B1u + 0x7F4A7C15u;
}

static int32_t
prompt_token(uint64_t client, uint32_t family, int32_t i)
{
	return (int32_t) (llm_rng_u32(client, family, (uint32_t) i) % 50021);
}

/* With the prefix cache, all prompts of a client begin alike. */
static LlmSeq *
seq_submit(World *w, uint64_t client, int32_t priority, int32_t n_prompt, int32_t n_new, bool alone)
{
	LlmSeq *seq = calloc(1, sizeof(*seq));
	LlmError err;
	int place = 0;

	assert_int_equal(llm_seq_init(seq, n_prompt + n_new, GROUPS, &err), LLM_OK);
	seq->client = client;
	seq->priority = priority;
	seq->alone = alone;
	seq->n_prompt = n_prompt;
	for (int32_t i = 0; i < n_prompt; i++)
		assert_true(
			llm_tokens_push(&seq->tokens,
							prompt_token(client, w->o.prefix_cache ? 0 : (uint32_t) w->step, i)));
	seq->salt = client % 2;
	while (place < SEQS_MAX && w->live[place] != NULL)
		place++;
	assert_in_range(place, 0, SEQS_MAX - 1);
	assert_int_equal(llm_sched_submit(w->sched, seq, &err), LLM_OK);
	w->live[place] = seq;
	w->age[place] = w->step;
	w->n_live++;
	return seq;
}

/* Store the rows of a batch, then compute each output from the store alone. */
static void
device_run(World *w, const LlmBatch *b, int32_t *picked)
{
	for (int g = 0; g < GROUPS; g++)
		for (int32_t r = 0; r < b->n_rows; r++)
		{
			int32_t slot = b->slot[g][r];
			const int32_t *table = b->table[g] + (int64_t) b->row_seq[r] * b->table_stride;

			assert_in_range(slot, LLM_PAGE_TOKENS, w->n_pages * LLM_PAGE_TOKENS - 1);
			assert_int_equal(slot / LLM_PAGE_TOKENS, table[b->pos[r] / LLM_PAGE_TOKENS]);
			w->store[g][slot] = b->token[r];
		}
	for (int32_t o = 0; o < b->n_out; o++)
	{
		int32_t r = b->out_row[o];
		int32_t s = b->row_seq[r];
		uint32_t h[GROUPS] = {0};

		assert_int_equal(b->want[o], LLM_WANT_TOKEN);
		assert_int_equal(r, b->q_start[s + 1] - 1);
		assert_int_equal(b->kv_len[s], b->pos[r] + 1);
		for (int g = 0; g < GROUPS; g++)
			for (int32_t p = 0; p <= b->pos[r]; p++)
			{
				int32_t page = b->table[g][(int64_t) s * b->table_stride + p / LLM_PAGE_TOKENS];

				h[g] = hash_token(h[g], w->store[g][page * LLM_PAGE_TOKENS + p % LLM_PAGE_TOKENS]);
			}
		assert_int_equal(h[0], h[1]);
		picked[o] = next_token(h[0]);
	}
}

/* The list that the sequence should hold, made from its prompt alone. */
static void
check_tokens(const LlmSeq *seq)
{
	uint32_t h = 0;

	for (int32_t i = 0; i < (int32_t) seq->tokens.len; i++)
	{
		if (i >= seq->n_prompt)
			assert_int_equal(seq->tokens.ids[i], next_token(h));
		h = hash_token(h, seq->tokens.ids[i]);
	}
}

/* One step; cancel is removed while the step is in flight. Returns the rows that ran. */
static int32_t
world_step(World *w, LlmSeq *cancel)
{
	int32_t n_waiting = llm_sched_waiting(w->sched);
	const LlmPlan *plan = llm_sched_next(w->sched);
	LlmSeq *completed[SEQS_MAX];
	int32_t picked[SEQS_MAX];
	int32_t n_rows = plan->n_rows;
	int32_t n_out = 0;
	bool alone = false;
	LlmError err;

	w->step++;
	w->n_rows += n_rows;
	assert_true(n_rows <= w->o.max_rows);
	assert_true(llm_sched_running(w->sched) <= w->o.max_running);
	if (plan->n_preempted > 0) /* nothing is admitted where somebody had to go */
		assert_int_equal(llm_sched_waiting(w->sched), n_waiting + plan->n_preempted);
	for (int32_t i = 0; i < plan->n_items; i++)
		alone |= plan->items[i].seq->alone;
	assert_true(!alone || plan->n_items == 1);
	if (n_rows > 0)
	{
		const LlmBatch *b = llm_pack_fill(w->pack, plan, false, false);

		assert_int_equal(b->n_rows, n_rows);
		device_run(w, b, picked);
		for (; n_out < b->n_out; n_out++)
			completed[n_out] = plan->items[llm_pack_outputs(w->pack)[n_out].item].seq;
	}
	for (int32_t i = 0; cancel != NULL && i < n_out; i++)
		if (completed[i] == cancel)
			completed[i] = NULL;
	if (cancel != NULL)
	{
		llm_sched_remove(w->sched, cancel);
		if (llm_sched_audit(w->sched, &err) == false)
			fail_msg("in flight: %s", err.text);
	}
	llm_sched_done(w->sched, true);
	for (int32_t i = 0; i < n_out; i++)
	{
		LlmSeq *seq = completed[i];

		if (seq == NULL)
			continue;
		assert_true(llm_tokens_push(&seq->tokens, picked[i]));
		if ((int32_t) seq->tokens.len == seq->max_len)
		{
			check_tokens(seq);
			w->n_finished++;
			w->n_cached += seq->n_cached;
			llm_sched_remove(w->sched, seq);
		}
	}
	if (!llm_sched_audit(w->sched, &err))
		fail_msg("step %llu: %s", (unsigned long long) w->step, err.text);
	return n_rows;
}

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

static void
drain(World *w, int max_steps)
{
	for (int i = 0; w->n_live > 0; i++)
	{
		assert_in_range(i, 0, max_steps);
		world_step(w, NULL);
	}
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
		cmocka_unit_test(storm_in_a_wide_pool),
		cmocka_unit_test(storm_in_a_narrow_pool),
		cmocka_unit_test(storm_with_one_row_per_step),
		cmocka_unit_test(storm_with_more_decodes_than_rows),
		cmocka_unit_test(storm_with_forced_preemption),
		cmocka_unit_test(storm_with_the_prefix_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
