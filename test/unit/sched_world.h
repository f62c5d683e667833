/*
 * sched_world.h - a scheduler under test with a device that is an array of token ids by slot.
 *
 * What a sequence should generate is a function of all its tokens, and it is computed from what the
 * batch's tables say is stored: a wrong page, slot, position or length gives another token than the
 * one that the plain list of tokens gives.
 */
#ifndef LLM_TEST_SCHED_WORLD_H
#define LLM_TEST_SCHED_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "sched/pack.h"
#include "sched/sched.h"

#ifndef SEQS_MAX
#define SEQS_MAX 64
#define LEN_MAX 400
#endif
#define GROUPS 2

typedef struct World
{
	LlmSched *sched;
	LlmPack *pack;
	int32_t *store[GROUPS]; /* [n_pages * 64] token ids */
	int32_t n_pages;
	LlmSeq *live[SEQS_MAX];            /* NULL = free place */
	uint64_t age[SEQS_MAX];            /* step of submission */
	uint8_t scored[SEQS_MAX][LEN_MAX]; /* times that a position of live[i] gave a score */
	int n_live;
	int n_finished;
	uint64_t step;
	int64_t n_rows;
	int64_t client_rows[16]; /* by client */
	int64_t n_cached;        /* tokens that finished sequences found in the cache */
	LlmSchedOptions o;
} World;

static inline void
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

static inline void
world_create(World *w)
{
	const LlmSchedOptions *o = &w->o;
	LlmPackSizes sizes = {o->max_rows, o->max_running,
						  o->max_out != 0 ? o->max_out : o->max_running, LEN_MAX, GROUPS};
	LlmError err;

	assert_int_equal(llm_sched_create(o, &w->sched, &err), LLM_OK);
	assert_int_equal(llm_pack_create(&sizes, &w->pack, &err), LLM_OK);
	for (int g = 0; g < GROUPS; g++)
		w->store[g] = calloc((size_t) w->n_pages * LLM_PAGE_TOKENS, sizeof(int32_t));
}

static inline void
world_init_with(World *w, int32_t n_pages, int32_t max_rows, int32_t max_running,
				uint32_t preempt_every, bool prefix_cache)
{
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
	world_create(w);
}

static inline void
world_init(World *w, int32_t n_pages, int32_t max_rows, int32_t max_running, uint32_t preempt_every)
{
	world_init_with(w, n_pages, max_rows, max_running, preempt_every, false);
}

/* Everything must be back. */
static inline void
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
static inline int32_t
next_token(uint32_t h)
{
	return (int32_t) (h % 50021);
}

static inline uint32_t
hash_token(uint32_t h, int32_t id)
{
	return (h ^ (uint32_t) id) * 0x9E3779B1u + 0x7F4A7C15u;
}

static inline int32_t
prompt_token(uint64_t client, uint32_t family, int32_t i)
{
	return (int32_t) (llm_rng_u32(client, family, (uint32_t) i) % 50021);
}

/* With the prefix cache, all prompts of a client begin alike. */
static inline LlmSeq *
seq_new(World *w, uint64_t client, int32_t n_prompt, int32_t n_new)
{
	LlmSeq *seq = calloc(1, sizeof(*seq));
	LlmError err;

	assert_int_equal(llm_seq_init(seq, n_prompt + n_new, GROUPS, &err), LLM_OK);
	seq->client = client;
	seq->tenant = client / 4;
	seq->n_prompt = n_prompt;
	for (int32_t i = 0; i < n_prompt; i++)
		assert_true(
			llm_tokens_push(&seq->tokens,
							prompt_token(client, w->o.prefix_cache ? 0 : (uint32_t) w->step, i)));
	seq->salt = client % 2;
	return seq;
}

/* Returns its place in live. */
static inline int
world_submit(World *w, LlmSeq *seq)
{
	LlmError err;
	int place = 0;

	while (place < SEQS_MAX && w->live[place] != NULL)
		place++;
	assert_in_range(place, 0, SEQS_MAX - 1);
	assert_int_equal(llm_sched_submit(w->sched, seq, &err), LLM_OK);
	w->live[place] = seq;
	w->age[place] = w->step;
	memset(w->scored[place], 0, sizeof(w->scored[place]));
	w->n_live++;
	return place;
}

static inline LlmSeq *
seq_submit(World *w, uint64_t client, int32_t priority, int32_t n_prompt, int32_t n_new, bool alone)
{
	LlmSeq *seq = seq_new(w, client, n_prompt, n_new);

	seq->priority = priority;
	seq->alone = alone;
	world_submit(w, seq);
	return seq;
}

/* What the plan copies is the device's first work. */
static inline void
device_copy(World *w, const LlmPlan *plan)
{
	for (int32_t i = 0; i < plan->n_copies; i++)
	{
		const LlmPlanCopy *c = &plan->copies[i];

		assert_in_range(c->from, 1, w->n_pages - 1);
		assert_in_range(c->to, 1, w->n_pages - 1);
		assert_in_range(c->n_tokens, 1, LLM_PAGE_TOKENS);
		assert_int_not_equal(c->from, c->to);
		memcpy(w->store[c->group] + c->to * LLM_PAGE_TOKENS,
			   w->store[c->group] + c->from * LLM_PAGE_TOKENS,
			   (size_t) c->n_tokens * sizeof(int32_t));
	}
}

/* Store the rows of a batch, then compute each output from the store alone. */
static inline void
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

		if (b->want[o] == LLM_WANT_SCORE)
			continue;
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
static inline void
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

/* Count the scores of a batch; the completed sequences, and their tokens moved to the front of
 * picked. */
static inline int32_t
world_outputs(World *w, const LlmPlan *plan, const LlmBatch *b, LlmSeq **completed, int32_t *picked)
{
	int32_t n = 0;

	assert_true(w->o.max_out == 0 || b->n_out <= w->o.max_out);
	for (int32_t i = 0; i < b->n_out; i++)
	{
		const LlmPackOut *out = &llm_pack_outputs(w->pack)[i];
		LlmSeq *seq = plan->items[out->item].seq;
		int place = 0;

		if (b->want[i] == LLM_WANT_TOKEN)
		{
			completed[n] = seq;
			picked[n++] = picked[i];
			continue;
		}
		while (w->live[place] != seq)
			place++;
		assert_int_equal(b->token[b->out_row[i]], seq->tokens.ids[out->position]);
		w->scored[place][out->position]++;
	}
	return n;
}

/* One step; cancel is removed while the step is in flight. Returns the rows that ran. */
static inline int32_t
world_step(World *w, LlmSeq *cancel)
{
	int32_t n_waiting = llm_sched_waiting(w->sched);
	const LlmPlan *plan = llm_sched_next(w->sched);
	LlmSeq *completed[SEQS_MAX];
	int32_t picked[SEQS_MAX];
	int32_t n_rows = plan->n_rows;
	int32_t n_completed = 0;
	bool alone = false;
	LlmError err;

	w->step++;
	w->n_rows += n_rows;
	assert_true(n_rows <= w->o.max_rows);
	assert_true(llm_sched_running(w->sched) <= w->o.max_running);
	if (plan->n_preempted > 0) /* nothing is admitted where somebody had to go */
		assert_int_equal(llm_sched_waiting(w->sched), n_waiting + plan->n_preempted);
	for (int32_t i = 0; i < plan->n_items; i++)
	{
		const LlmPlanItem *it = &plan->items[i];

		alone |= it->seq->alone;
		w->client_rows[it->seq->client % 16] += it->n;
	}
	assert_true(!alone || plan->n_items == 1);
	device_copy(w, plan);
	if (n_rows > 0)
	{
		const LlmBatch *b = llm_pack_fill(w->pack, plan, false, false);

		assert_int_equal(b->n_rows, n_rows);
		device_run(w, b, picked);
		assert_int_equal(b->n_out, plan->n_out);
		n_completed = world_outputs(w, plan, b, completed, picked);
	}
	for (int32_t i = 0; cancel != NULL && i < n_completed; i++)
		if (completed[i] == cancel)
			completed[i] = NULL;
	if (cancel != NULL)
	{
		llm_sched_remove(w->sched, cancel);
		if (llm_sched_audit(w->sched, &err) == false)
			fail_msg("in flight: %s", err.text);
	}
	llm_sched_done(w->sched, true);
	for (int32_t i = 0; i < n_completed; i++)
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

static inline void
drain(World *w, int max_steps)
{
	for (int i = 0; w->n_live > 0; i++)
	{
		assert_in_range(i, 0, max_steps);
		world_step(w, NULL);
	}
}

#endif
