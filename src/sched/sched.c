/* sched/sched.c - the token-budget loop: pages, decodes, prefills, admissions (see sched.h). */
#include "sched/sched.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "kv/prefix.h"
#include "sched/ahead.h"
#include "sched/demand.h"
#include "sched/hold.h"
#include "sched/queue.h"

/* Steps for which what waiting sequences need of the cache is taken to be the same. */
#define DEMAND_STEPS 4

struct LlmSched
{
	LlmSchedOptions o;   /* as created: the sizes of the arrays */
	int32_t max_rows;    /* in force, <= o.max_rows */
	int32_t max_running; /* in force, <= o.max_running */
	int32_t max_out;     /* outputs in a step, >= o.max_running */
	LlmPrefix *prefix;   /* the pages of all groups, and what is cached in them */
	LlmSchedQueue queue; /* sequences that wait */
	LlmSeq **running;    /* [o.max_running] best first */
	int32_t n_running;
	int32_t cursor; /* running index at which the next step's decodes begin */
	LlmPlan plan;   /* items [o.max_running], copies [o.max_running * o.n_groups] */
	bool in_flight; /* the plan runs: between next and done */
	uint64_t n_steps;
	uint64_t demand_due; /* step from which on an eviction looks anew at what is needed */
	uint64_t n_arrivals;
	uint64_t n_tickets;
	int64_t n_preemptions;
	int32_t *held; /* [o.n_pages] scratch of the audit */
};

LlmStatus
llm_sched_create(const LlmSchedOptions *o, LlmSched **out, LlmError *err)
{
	LlmPrefixOptions po = {.n_groups = o->n_groups,
						   .n_pages = o->n_pages,
						   .on = o->prefix_cache,
						   .numerics = o->numerics,
						   .hash_bits = o->hash_bits,
						   .idle_limit = o->idle_limit};
	LlmSched *s;
	LlmStatus st;

	if (o->n_groups < 1 || o->n_groups > LLM_KV_GROUPS_MAX || o->max_rows < 1 || o->max_running < 1)
		return llm_error_set(err, LLM_E_INVALID, "a scheduler of %d rows, %d sequences, %d groups",
							 o->max_rows, o->max_running, o->n_groups);
	if (o->max_out != 0 && o->max_out < o->max_running)
		return llm_error_set(err, LLM_E_INVALID, "a scheduler of %d sequences, but %d outputs",
							 o->max_running, o->max_out);
	if ((s = calloc(1, sizeof(*s))) == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the scheduler");
	s->o = *o;
	s->max_rows = o->max_rows;
	s->max_running = o->max_running;
	s->max_out = o->max_out;
	if (o->max_out == 0)
		s->max_out = o->max_rows > o->max_running ? o->max_rows : o->max_running;
	s->running = calloc((size_t) o->max_running, sizeof(*s->running));
	s->plan.items = calloc((size_t) o->max_running, sizeof(*s->plan.items));
	s->plan.copies =
		calloc((size_t) o->max_running * (size_t) o->n_groups, sizeof(*s->plan.copies));
	st = llm_kv_prefix_create(&po, &s->prefix, err);
	if (st == LLM_OK)
		s->held = calloc((size_t) o->n_pages, sizeof(*s->held));
	if (st == LLM_OK &&
		(s->running == NULL || s->plan.items == NULL || s->plan.copies == NULL || s->held == NULL))
		st = llm_error_set(err, LLM_E_MEMORY, "out of memory for a scheduler of %d sequences",
						   o->max_running);
	if (st == LLM_OK)
		*out = s;
	else
		llm_sched_free(s);
	return st;
}

void
llm_sched_free(LlmSched *s)
{
	if (s == NULL)
		return;
	llm_kv_prefix_free(s->prefix);
	free(s->running);
	free(s->plan.items);
	free(s->plan.copies);
	free(s->held);
	free(s);
}

static int32_t
clamp(int32_t v, int32_t max)
{
	return v < 1 ? 1 : v > max ? max : v;
}

void
llm_sched_limits_set(LlmSched *s, int32_t max_rows, int32_t max_running)
{
	s->max_rows = clamp(max_rows, s->o.max_rows);
	s->max_running = clamp(max_running, s->o.max_running);
}

void
llm_sched_prefix_set(LlmSched *s, bool on)
{
	llm_kv_prefix_switch(s->prefix, on);
}

/* ---- the running list ---- */

/* Returns its place. */
static int32_t
running_insert(LlmSched *s, LlmSeq *seq)
{
	int32_t i = s->n_running;

	while (i > 0 && llm_sched_queue_before(seq, s->running[i - 1]))
	{
		s->running[i] = s->running[i - 1];
		i--;
	}
	s->running[i] = seq;
	s->n_running++;
	if (i < s->cursor)
		s->cursor++;
	seq->state = LLM_SEQ_RUNNING;
	return i;
}

static void
running_remove(LlmSched *s, LlmSeq *seq)
{
	int32_t i = 0;

	while (s->running[i] != seq)
		i++;
	s->n_running--;
	memmove(&s->running[i], &s->running[i + 1], (size_t) (s->n_running - i) * sizeof(*s->running));
	if (i < s->cursor)
		s->cursor--;
}

static void
preempt(LlmSched *s, LlmSeq *seq)
{
	running_remove(s, seq);
	llm_sched_hold_drop(s->prefix, seq);
	seq->state = LLM_SEQ_WAITING;
	seq->n_preempted++;
	seq->stepped = false;
	llm_sched_queue_push(&s->queue, seq);
	s->plan.n_preempted++;
	s->n_preemptions++;
}

/* Tests: preempt one running sequence, chosen by the step's number. One that was preempted before
 * must have got a token since, or a prefill longer than preempt_every steps would never end. */
static void
preempt_forced(LlmSched *s)
{
	uint32_t first;

	if (s->o.preempt_every == 0 || s->n_steps % s->o.preempt_every != 0 || s->n_running == 0)
		return;
	first = llm_rng_u32(s->n_steps, 0, 0) % (uint32_t) s->n_running;
	for (int32_t k = 0; k < s->n_running; k++)
	{
		LlmSeq *seq = s->running[((int32_t) first + k) % s->n_running];

		if (seq->stepped || seq->n_preempted == 0)
		{
			preempt(s, seq);
			return;
		}
	}
}

/* ---- one step ---- */

static int32_t
rest(const LlmSeq *seq)
{
	return (int32_t) seq->tokens.len - seq->n_computed;
}

/* Output rows among the next n rows of seq. */
static int32_t
outputs(const LlmSeq *seq, int32_t n)
{
	int32_t begin = seq->n_computed > seq->n_scored ? seq->n_computed : seq->n_scored;
	int32_t end = seq->n_computed + n;

	end = end < seq->n_prompt - 1 ? end : seq->n_prompt - 1;
	return (n == rest(seq)) + (seq->scores && begin < end ? end - begin : 0);
}

/* n pages are about to be taken: when some of them must be evicted, know what is needed. */
static void
expect_pages(LlmSched *s, int32_t n)
{
	if (n <= llm_kv_prefix_empty(s->prefix) || s->n_steps < s->demand_due)
		return;
	s->demand_due = s->n_steps + DEMAND_STEPS;
	llm_sched_demand_mark(s->prefix, &s->queue);
}

/* The next n rows of seq; not in this step when pages that it was promised are not there: then the
 * next step preempts somebody. */
static void
schedule(LlmSched *s, LlmSeq *seq, int32_t n)
{
	LlmPlanItem *it;

	expect_pages(s, llm_seq_pages(seq->n_computed + n) - seq->n_pages);
	if (!llm_sched_hold_fill(s->prefix, seq, seq->n_computed + n))
		return;
	it = &s->plan.items[s->plan.n_items++];
	it->seq = seq;
	it->begin = seq->n_computed;
	it->n = n;
	it->completes = n == rest(seq);
	s->plan.n_out += outputs(seq, n);
	llm_sched_queue_charge(seq, n);
	seq->n_computed += n;
	seq->stepped |= it->completes;
	seq->in_flight++;
	s->plan.n_rows += n;
}

static int32_t
budget(const LlmSched *s)
{
	return s->max_rows - s->plan.n_rows;
}

/* Pages for the next token of every running sequence, best first; the victim is always the last,
 * so it is never one that was served before. */
static void
step_pages(LlmSched *s)
{
	for (int32_t i = 0; i < s->n_running; i++)
		while (i < s->n_running && !llm_sched_hold_grow(s->prefix, s->running[i]))
			preempt(s, s->running[s->n_running - 1]);
}

/* Rows of this step that decodes leave to who is behind with a prefill, or could be admitted. */
static int32_t
rows_for_prefill(const LlmSched *s)
{
	bool behind = s->queue.n_waiting > 0 && s->n_running < s->max_running;

	for (int32_t i = 0; i < s->n_running && !behind; i++)
		behind = rest(s->running[i]) > 1;
	if (!behind)
		return 0;
	if (s->max_rows == 1)
		return (int32_t) (s->n_steps % 2);
	return s->max_rows / 8 > 1 ? s->max_rows / 8 : 1;
}

/* A row for each decode that has none yet, as long as more than n_left are left. (A chunk that the
 * outputs cut off before the last row leaves no output, so it is not taken for a decode.) */
static void
step_decodes(LlmSched *s, int32_t n_left)
{
	int32_t start = s->cursor < s->n_running ? s->cursor : 0;

	s->cursor = 0;
	for (int32_t k = 0; k < s->n_running; k++)
	{
		int32_t i = (start + k) % s->n_running;

		if (rest(s->running[i]) != 1)
			continue;
		if (budget(s) <= n_left || s->plan.n_out == s->max_out)
		{
			s->cursor = i; /* the first that had no room begins the next step */
			return;
		}
		schedule(s, s->running[i], 1);
	}
}

/* Outputs that one more sequence may take: each that has no rows yet keeps one, so that who scores
 * holds nobody up. Only who was admitted in this very step may find none left. */
static int32_t
outputs_left(const LlmSched *s)
{
	return s->max_out - s->plan.n_out - (s->n_running - s->plan.n_items - 1);
}

/* The next chunk of running[i], as long as rows and outputs are left: scores, and at times the row that
 * completes, wait for a later step. */
static void
step_prefill(LlmSched *s, int32_t i)
{
	LlmSeq *seq = s->running[i];
	int32_t n = rest(seq) < budget(s) ? rest(seq) : budget(s);

	if (n > 0 && llm_sched_ahead_waits(s->prefix, s->running, i, seq))
		return;
	while (n > 0 && outputs(seq, n) > outputs_left(s))
		n--;
	if (n > 0)
		schedule(s, seq, n);
}

/* A prefill goes on, from the pages that another sequence has entered meanwhile if that is further. */
static void
step_prefill_on(LlmSched *s, int32_t i)
{
	LlmPrefixHit hit = llm_sched_hold_find(s->prefix, s->running[i]);

	expect_pages(s, hit.n_copy > 0);
	llm_sched_hold_take(s->prefix, s->running[i], &hit, &s->plan);
	step_prefill(s, i);
}

/* Free pages that must remain after an admission, so that running sequences can grow for a while
 * without preempting anybody. */
static int32_t
watermark(const LlmSched *s)
{
	return s->n_running == 0 ? 0 : 1 + (s->o.n_pages - 1) / 128 + s->n_running / 4;
}

static void
step_admit(LlmSched *s)
{
	while (budget(s) > 0 && s->n_running < s->max_running)
	{
		LlmSeq *seq = llm_sched_queue_best(&s->queue);
		LlmPrefixHit hit;
		int32_t need;

		if (seq == NULL || (s->n_running > 0 && (seq->alone || s->running[0]->alone)))
			return;
		hit = llm_sched_hold_find(s->prefix, seq);
		need = llm_seq_pages((int32_t) seq->tokens.len) - hit.n_pages;
		if (need + watermark(s) > llm_kv_prefix_available(s->prefix) - hit.n_idle)
			return;
		expect_pages(s, hit.n_copy > 0);
		if (seq->ticket == 0 && !seq->fresh)
			llm_kv_prefix_looked(s->prefix, seq->salt);
		llm_sched_hold_take(s->prefix, seq, &hit, &s->plan); /* there are pages: see above */
		llm_sched_queue_unlink(&s->queue, seq);
		if (seq->ticket == 0)
			seq->ticket = ++s->n_tickets;
		step_prefill(s, running_insert(s, seq));
	}
}

const LlmPlan *
llm_sched_next(LlmSched *s)
{
	s->n_steps++;
	s->plan.n_copies = 0;
	s->plan.n_items = 0;
	s->plan.n_rows = 0;
	s->plan.n_out = 0;
	s->plan.n_preempted = 0;
	preempt_forced(s);
	step_pages(s);
	step_decodes(s, rows_for_prefill(s));
	for (int32_t i = 0; i < s->n_running && budget(s) > 0; i++)
		if (rest(s->running[i]) > 1)
			step_prefill_on(s, i);
	if (s->plan.n_preempted == 0)
		step_admit(s);
	step_decodes(s, 0);
	s->in_flight = true;
	return &s->plan;
}

/* The last step of a removed sequence's life with the scheduler. */
static void
retire(LlmSched *s, LlmSeq *seq)
{
	llm_sched_hold_drop(s->prefix, seq);
	llm_sched_queue_leave(&s->queue, seq);
	s->o.retired(s->o.arg, seq);
}

void
llm_sched_done(LlmSched *s, bool stored)
{
	if (!s->in_flight)
		return;
	s->in_flight = false;
	for (int32_t i = 0; i < s->plan.n_items; i++)
	{
		LlmSeq *seq = s->plan.items[i].seq;

		if (stored)
		{
			llm_sched_hold_enter(s->prefix, seq);
			seq->n_scored = seq->n_scored > seq->n_computed ? seq->n_scored : seq->n_computed;
		}
		if (--seq->in_flight == 0 && seq->state == LLM_SEQ_DONE)
		{
			s->plan.items[i].seq = NULL;
			retire(s, seq);
		}
	}
}

/* ---- coming and going ---- */

/* Pages that sequences can have. */
static int32_t
pool(const LlmSched *s)
{
	return s->o.n_pages - 1 - llm_kv_prefix_pinned(s->prefix);
}

int32_t
llm_sched_longest(const LlmSched *s)
{
	int64_t n = (int64_t) pool(s) * LLM_PAGE_TOKENS + 1;

	return n < INT32_MAX ? (int32_t) n : INT32_MAX;
}

/* Pages of a sequence that is as long as it can get: all its tokens are stored but the last that is
 * generated. */
static int32_t
pages_most(int32_t n_prompt, int32_t max_len)
{
	return llm_seq_pages(max_len > n_prompt ? max_len - 1 : n_prompt);
}

LlmStatus
llm_sched_check(const LlmSched *s, int32_t n_prompt, int32_t max_len, LlmError *err)
{
	int32_t need = pages_most(n_prompt, max_len);
	int32_t n_pinned = llm_kv_prefix_pinned(s->prefix);

	if (need <= pool(s))
		return LLM_OK;
	llm_error_set(err, LLM_E_KV_MEMORY,
				  "the request needs %d KV pages for up to %d tokens, but there are %d%s", need,
				  max_len, pool(s), n_pinned > 0 ? " that are not pinned" : "");
	llm_error_hint(err, "Ask for fewer tokens, or raise the KV cache memory.");
	llm_error_numbers(err, need, pool(s));
	return LLM_E_KV_MEMORY;
}

LlmStatus
llm_sched_submit(LlmSched *s, LlmSeq *seq, LlmError *err)
{
	LlmStatus st = llm_sched_check(s, seq->n_prompt, seq->max_len, err);

	if (st != LLM_OK)
		return st;
	if (!llm_sched_queue_join(&s->queue, seq))
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a client's queue");
	seq->state = LLM_SEQ_WAITING;
	seq->arrival = ++s->n_arrivals;
	llm_sched_queue_push(&s->queue, seq);
	return LLM_OK;
}

void
llm_sched_assign(LlmSched *s, LlmSeq *seq, uint64_t tenant, uint64_t client, int32_t priority)
{
	LlmSeqState state = seq->state;

	if (seq->tenant == tenant && seq->client == client && seq->priority == priority)
		return;
	if (state == LLM_SEQ_WAITING)
		llm_sched_queue_unlink(&s->queue, seq);
	else if (state == LLM_SEQ_RUNNING)
		running_remove(s, seq);
	else
		return;
	llm_sched_queue_move(&s->queue, seq, tenant, client, priority);
	if (state == LLM_SEQ_WAITING)
		llm_sched_queue_push(&s->queue, seq);
	else
		running_insert(s, seq);
}

void
llm_sched_remove(LlmSched *s, LlmSeq *seq)
{
	if (seq->state == LLM_SEQ_WAITING)
		llm_sched_queue_unlink(&s->queue, seq);
	else if (seq->state == LLM_SEQ_RUNNING)
		running_remove(s, seq);
	else
		return;
	seq->state = LLM_SEQ_DONE;
	if (seq->in_flight == 0)
		retire(s, seq);
}

/* ---- pins ---- */

static void
see_longest(void *arg, LlmSeq *seq)
{
	int32_t *most = arg;
	int32_t need = pages_most(seq->n_prompt, seq->max_len);

	*most = need > *most ? need : *most;
}

/* Half of the pool, less when a sequence that was accepted needs more than the other half. */
static int32_t
max_pinned(const LlmSched *s)
{
	int32_t total = s->o.n_pages - 1;
	int32_t longest = 0;

	llm_sched_queue_visit(&s->queue, see_longest, &longest);
	for (int32_t i = 0; i < s->n_running; i++)
		see_longest(&longest, s->running[i]);
	return total / 2 < total - longest ? total / 2 : total - longest;
}

LlmStatus
llm_sched_pin_check(const LlmSched *s, int32_t n, LlmError *err)
{
	int32_t need = llm_seq_pages(n);
	int32_t most = (s->o.n_pages - 1) / 2;

	if (!llm_kv_prefix_on(s->prefix))
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "nothing can be pinned while the prefix cache is off");
	if (need <= most)
		return LLM_OK;
	llm_error_set(err, LLM_E_KV_MEMORY,
				  "a prefix of %d tokens needs %d KV pages, but only %d of %d may be pinned", n,
				  need, most, s->o.n_pages - 1);
	llm_error_hint(err, "Pin a shorter prefix, or raise the KV cache memory.");
	llm_error_numbers(err, need, most);
	return LLM_E_KV_MEMORY;
}

LlmStatus
llm_sched_pin(LlmSched *s, LlmSeq *seq, LlmError *err)
{
	LlmPrefixText text = llm_sched_hold_text(s->prefix, seq, seq->n_stored);

	return llm_kv_prefix_pin(s->prefix, &text, max_pinned(s), err);
}

bool
llm_sched_unpin(LlmSched *s, uint64_t salt, const int32_t *ids, int32_t n)
{
	LlmPrefixText text = {.salt = salt, .ids = ids, .n = n};

	return llm_kv_prefix_unpin(s->prefix, &text);
}

/* ---- watching ---- */

int32_t
llm_sched_running(const LlmSched *s)
{
	return s->n_running;
}

int32_t
llm_sched_waiting(const LlmSched *s)
{
	return s->queue.n_waiting;
}

int64_t
llm_sched_preemptions(const LlmSched *s)
{
	return s->n_preemptions;
}

int32_t
llm_sched_prefix_stats(const LlmSched *s, LlmPrefixStat *out, int32_t n)
{
	return llm_kv_prefix_stats(s->prefix, out, n);
}

LlmPageCounts
llm_sched_pages(const LlmSched *s)
{
	return llm_kv_prefix_counts(s->prefix);
}

/* The pages that seq holds in group g, counted into held, and those that it was promised; false when
 * it holds too few or too many for its tokens. */
static bool
audit_seq(const LlmSched *s, const LlmSeq *seq, int g, int32_t *n_promised)
{
	*n_promised += seq->n_promised;
	if (seq->n_computed < 0 || seq->n_computed > (int32_t) seq->tokens.len ||
		seq->n_pages < llm_seq_pages(seq->n_computed) || seq->n_stored > seq->n_computed ||
		seq->n_entered > seq->n_stored / LLM_PAGE_TOKENS || seq->n_promised < 0 ||
		seq->n_pages + seq->n_promised > llm_seq_pages((int32_t) seq->tokens.len))
		return false;
	for (int32_t i = 0; i < seq->n_pages; i++)
	{
		int32_t page = seq->table[g][i];

		if (page < 1 || page >= s->o.n_pages)
			return false;
		s->held[page]++;
	}
	return true;
}

bool
llm_sched_audit(const LlmSched *s, LlmError *err)
{
	bool ok = true;

	for (int g = 0; g < s->o.n_groups && ok; g++)
	{
		int32_t n_promised = 0;

		memset(s->held, 0, (size_t) s->o.n_pages * sizeof(*s->held));
		for (int32_t i = 0; i < s->n_running && ok; i++)
			ok = s->running[i]->state == LLM_SEQ_RUNNING &&
				 audit_seq(s, s->running[i], g, &n_promised);
		for (int32_t i = 0; s->in_flight && i < s->plan.n_items && ok; i++)
			if (s->plan.items[i].seq->state == LLM_SEQ_DONE)
				ok = audit_seq(s, s->plan.items[i].seq, g, &n_promised);
		ok = ok && n_promised == llm_kv_prefix_promised(s->prefix);
		if (ok && !llm_kv_prefix_audit_pages(s->prefix, g, s->held, err))
			return false;
	}
	if (ok && !llm_kv_prefix_audit(s->prefix, err))
		return false;
	if (!ok || !llm_sched_queue_audit(&s->queue))
	{
		llm_error_set(err, LLM_E_INTERNAL, "a sequence is queued wrongly or holds a wrong page");
		return false;
	}
	return true;
}
