/*
 * test_sched_random.c - a million random steps of scheduler, pages and prefix cache against plain
 * arrays, with an audit after each.
 *
 * Instead of tensors there is a shadow of every page: for each place the hash of all tokens up to the
 * one that was stored there, and of the salt. Rows of a plan and its copies write it. Before a row may
 * run, all that it reads must be in the shadow as its own tokens say; so a wrong page, a stale one, a
 * page of another salt, a hash that collided or a copy in the wrong order all show. Who holds which
 * page, who may go next and whose account pays is kept a second time, without lists or trees. What is
 * pinned is kept as texts: its pages stay as they are, and whoever begins so begins after it.
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

#ifdef __SANITIZE_ADDRESS__
#define STEPS 60000
#else
#define STEPS 1000000
#endif
#define EPISODE 4000 /* steps with one scheduler */

#define LIVE_MAX 24
#define LEN_MAX 330
#define PAGES_MAX 48
#define GROUPS_MAX 2
#define PAST_MAX 4
#define PINS_MAX 4
#define PRIORITIES 2
#define TENANTS 3
#define CLIENTS 3 /* of each tenant */

typedef struct Job
{
	LlmSeq seq;
	bool live;
	bool was_waiting;       /* before this step's plan */
	bool admitted;          /* by it, and not yet accounted for */
	int32_t got;            /* tokens computed, as the plans say */
	int32_t n_charged;      /* of its positions */
	uint32_t hash[LEN_MAX]; /* of its tokens up to each */
	int32_t n_hashed;
	uint8_t scored[LEN_MAX];
} Job;

/* A text that stays cached, and the pages of it. */
typedef struct Pin
{
	uint64_t salt;
	int32_t ids[LEN_MAX];
	uint32_t hash[LEN_MAX];
	int32_t n; /* 0 = no pin */
	int32_t table[GROUPS_MAX][LEN_MAX / LLM_PAGE_TOKENS + 1];
} Pin;

typedef struct Account
{
	uint64_t tenant, client[CLIENTS];
	int32_t n_tenant, n_client[CLIENTS]; /* sequences */
} Account;

typedef struct World
{
	uint64_t seed, draw; /* random numbers drawn */
	LlmSched *sched;
	LlmPack *pack;
	LlmSchedOptions o;
	Job jobs[LIVE_MAX];
	int32_t n_live;
	int32_t max_rows, max_running; /* in force */
	bool prefix_on;
	uint32_t shadow[GROUPS_MAX][PAGES_MAX * LLM_PAGE_TOKENS];
	int32_t holders[GROUPS_MAX][PAGES_MAX];
	Account accounts[PRIORITIES][TENANTS];
	int32_t past[PAST_MAX][LEN_MAX]; /* texts that later prompts begin with */
	int32_t past_len[PAST_MAX];
	Pin pins[PINS_MAX];
	int64_t n_steps, n_rows, n_jumps, n_copies, n_preempted, n_finished, n_failed, n_refused;
	int64_t n_pinned, n_unpinned, n_pin_full, n_from_pin;
	int64_t n_lookups[2]; /* by salt */
} World;

static uint32_t
draw(World *w, uint32_t n)
{
	return llm_rng_u32(w->seed, w->draw++, 7) % n;
}

static bool
chance(World *w, uint32_t one_in)
{
	return draw(w, one_in) == 0;
}

static Job *
job_of(const LlmSeq *seq)
{
	return seq->owner;
}

/* ---- accounts ---- */

static Account *
account_of(World *w, const Job *j)
{
	return &w->accounts[j->seq.priority][j->seq.tenant];
}

static int
client_of(const Job *j)
{
	return (int) (j->seq.client % CLIENTS);
}

static void
account_join(World *w, const Job *j)
{
	Account *all = w->accounts[j->seq.priority];
	Account *a = account_of(w, j);
	int c = client_of(j);
	uint64_t min = UINT64_MAX;

	if (a->n_tenant++ == 0)
	{
		for (int i = 0; i < TENANTS; i++)
			if (&all[i] != a && all[i].n_tenant > 0 && all[i].tenant < min)
				min = all[i].tenant;
		if (min != UINT64_MAX && a->tenant < min)
			a->tenant = min;
	}
	min = UINT64_MAX;
	if (a->n_client[c]++ == 0)
	{
		for (int i = 0; i < CLIENTS; i++)
			if (i != c && a->n_client[i] > 0 && a->client[i] < min)
				min = a->client[i];
		if (min != UINT64_MAX && a->client[c] < min)
			a->client[c] = min;
	}
}

static void
account_leave(World *w, const Job *j)
{
	Account *all = w->accounts[j->seq.priority];
	Account *a = account_of(w, j);
	int n = 0;

	a->n_client[client_of(j)]--;
	if (--a->n_tenant == 0)
		memset(a->client, 0, sizeof(a->client));
	for (int i = 0; i < TENANTS; i++)
		n += all[i].n_tenant;
	if (n == 0)
		memset(all, 0, TENANTS * sizeof(*all));
}

static void
account_charge(World *w, Job *j, int32_t begin, int32_t n)
{
	for (int32_t p = begin; p < begin + n; p++)
		if (p >= j->n_charged)
		{
			account_of(w, j)->tenant++;
			account_of(w, j)->client[client_of(j)]++;
			j->n_charged = p + 1;
		}
}

/* True when a waits before b. */
static bool
goes_before(World *w, const Job *a, const Job *b)
{
	const Account *x = account_of(w, a), *y = account_of(w, b);

	if (a->seq.priority != b->seq.priority)
		return a->seq.priority > b->seq.priority;
	if (a->seq.n_preempted > 0 || b->seq.n_preempted > 0)
		return a->seq.n_preempted > 0 && (b->seq.n_preempted == 0 || a->seq.ticket < b->seq.ticket);
	if (x != y && x->tenant != y->tenant)
		return x->tenant < y->tenant;
	if (x == y && x->client[client_of(a)] != y->client[client_of(b)])
		return x->client[client_of(a)] < y->client[client_of(b)];
	return a->seq.arrival < b->seq.arrival;
}

/* Of equal accounts goes whose own best came first: so first the best of each tenant. */
static Job *
best_waiting(World *w)
{
	Job *best_of[TENANTS] = {NULL};
	Job *best = NULL;

	for (int t = 0; t < TENANTS; t++)
		for (int i = 0; i < LIVE_MAX; i++)
		{
			Job *j = &w->jobs[i];

			if (j->live && j->seq.tenant == (uint64_t) t &&
				(j->admitted || j->seq.state == LLM_SEQ_WAITING) && j->was_waiting &&
				(best_of[t] == NULL || goes_before(w, j, best_of[t])))
				best_of[t] = j;
		}
	for (int t = 0; t < TENANTS; t++)
		if (best_of[t] != NULL && (best == NULL || goes_before(w, best_of[t], best)))
			best = best_of[t];
	return best;
}

/* ---- pins ---- */

/* Pages that are pinned, as the cache counts them. */
static int32_t
pinned_pages(const World *w)
{
	LlmPrefixStat stats[2];
	int32_t n = llm_sched_prefix_stats(w->sched, stats, 2);
	int64_t n_pages = 0;

	for (int32_t i = 0; i < n; i++)
		n_pages += stats[i].pinned;
	return (int32_t) n_pages;
}

static bool
pin_is_of(const Pin *pin, const LlmSeq *seq, int32_t n)
{
	return pin->n >= n && pin->salt == seq->salt && (int32_t) seq->tokens.len >= n &&
		   memcmp(pin->ids, seq->tokens.ids, (size_t) n * sizeof(int32_t)) == 0;
}

/* Whoever was accepted fits beside what is pinned. */
static void
check_room(const World *w)
{
	for (int i = 0; i < LIVE_MAX; i++)
	{
		const LlmSeq *seq = &w->jobs[i].seq;
		int32_t most = seq->max_len > seq->n_prompt ? seq->max_len - 1 : seq->n_prompt;

		if (w->jobs[i].live && seq->state != LLM_SEQ_DONE)
			assert_true(llm_seq_pages(most) <= w->o.n_pages - 1 - pinned_pages(w));
	}
}

/* Pin what a completed sequence has stored. */
static void
pin(World *w, const Job *j)
{
	Pin *pin = &w->pins[draw(w, PINS_MAX)];
	int32_t n = (int32_t) j->seq.tokens.len, before = pinned_pages(w);
	bool known = false;
	LlmError err;
	LlmStatus st;

	for (int i = 0; i < PINS_MAX; i++)
		known |= w->pins[i].n == n && pin_is_of(&w->pins[i], &j->seq, n);
	if (pin->n > 0 && !known)
		return;
	st = llm_sched_pin(w->sched, (LlmSeq *) &j->seq, &err);
	if (!w->prefix_on)
		assert_int_equal(st, LLM_E_UNSUPPORTED);
	else if (known)
		assert_int_equal(st, LLM_OK);
	else if (st != LLM_OK)
		assert_int_equal(st, LLM_E_KV_MEMORY);
	if (st != LLM_OK || known)
	{
		assert_int_equal(pinned_pages(w), before);
		w->n_pin_full += st == LLM_E_KV_MEMORY;
		return;
	}
	assert_true(pinned_pages(w) <= (w->o.n_pages - 1) / 2);
	check_room(w);
	*pin = (Pin){.salt = j->seq.salt, .n = n};
	memcpy(pin->ids, j->seq.tokens.ids, (size_t) n * sizeof(int32_t));
	memcpy(pin->hash, j->hash, (size_t) n * sizeof(uint32_t));
	for (int g = 0; g < w->o.n_groups; g++)
		memcpy(pin->table[g], j->seq.table[g], (size_t) (n / LLM_PAGE_TOKENS) * sizeof(int32_t));
	w->n_pinned++;
}

static void
unpin(World *w, Pin *pin)
{
	assert_int_equal(llm_sched_unpin(w->sched, pin->salt, pin->ids, pin->n), pin->n > 0);
	assert_false(llm_sched_unpin(w->sched, pin->salt, pin->ids, pin->n));
	w->n_unpinned += pin->n > 0;
	pin->n = 0;
}

/* The pages of pins are as they were. The last one of a pin, which is not full, is known to the cache
 * alone. Full ones are added to the holders; *n_tails gets the number of others. */
static void
check_pins(World *w, int32_t *n_tails)
{
	*n_tails = 0;
	for (int i = 0; i < PINS_MAX; i++)
	{
		const Pin *pin = &w->pins[i];
		int32_t n_full = pin->n / LLM_PAGE_TOKENS;

		*n_tails += pin->n % LLM_PAGE_TOKENS != 0;
		for (int g = 0; g < w->o.n_groups; g++)
			for (int32_t p = 0; p < n_full; p++)
			{
				int32_t page = pin->table[g][p];

				assert_memory_equal(&w->shadow[g][page * LLM_PAGE_TOKENS],
									&pin->hash[p * LLM_PAGE_TOKENS],
									LLM_PAGE_TOKENS * sizeof(uint32_t));
				w->holders[g][page]++;
			}
	}
}

/* What begins with pinned pages begins after them. */
static void
check_begins_after_pins(World *w, const LlmPlanItem *it)
{
	int32_t len = (int32_t) it->seq->tokens.len;

	for (int i = 0; i < PINS_MAX && !it->seq->fresh; i++)
	{
		const Pin *pin = &w->pins[i];
		int32_t n = (pin->n < len ? pin->n : len - 1) / LLM_PAGE_TOKENS * LLM_PAGE_TOKENS;

		if (n > 0 && pin_is_of(pin, it->seq, n))
		{
			assert_true(it->begin >= n);
			w->n_from_pin += it->begin < it->seq->n_prompt;
		}
	}
}

/* ---- jobs ---- */

static void
past_keep(World *w, const LlmSeq *seq)
{
	int32_t to = (int32_t) draw(w, PAST_MAX);

	w->past_len[to] = (int32_t) seq->tokens.len;
	memcpy(w->past[to], seq->tokens.ids, seq->tokens.len * sizeof(int32_t));
}

static void
retired(void *arg, LlmSeq *seq)
{
	World *w = arg;
	Job *j = job_of(seq);

	assert_true(j->live);
	assert_int_equal(seq->n_pages, 0);
	account_leave(w, j);
	if (chance(w, 3))
		past_keep(w, seq);
	llm_seq_fini(seq);
	j->live = false;
	w->n_live--;
}

static void
job_hash(Job *j)
{
	uint32_t h =
		j->n_hashed > 0 ? j->hash[j->n_hashed - 1] : (uint32_t) j->seq.salt * 2654435761u + 17;

	for (; j->n_hashed < (int32_t) j->seq.tokens.len; j->n_hashed++)
	{
		h = (h ^ (uint32_t) j->seq.tokens.ids[j->n_hashed]) * 0x9E3779B1u + 0x7F4A7C15u;
		h ^= h >> 15;
		j->hash[j->n_hashed] = h;
	}
}

/* Random tokens, few different ones; or pages of one token each, so that equal pages lie under
 * different parents. */
static void
text_fill(World *w, LlmSeq *seq, int32_t n)
{
	bool plain = chance(w, 3);
	int32_t id = 0;

	while ((int32_t) seq->tokens.len < n)
	{
		if (!plain || seq->tokens.len % LLM_PAGE_TOKENS == 0)
			id = (int32_t) draw(w, plain ? 2 : 5);
		assert_true(llm_tokens_push(&seq->tokens, id));
	}
}

/* A prompt: the beginning of something known or pinned, then something new. */
static void
prompt_fill(World *w, LlmSeq *seq, int32_t n)
{
	int32_t from = (int32_t) draw(w, PAST_MAX);
	const Pin *pin = &w->pins[draw(w, PINS_MAX)];
	bool pinned = pin->n > 0 && chance(w, 3);
	int32_t n_known = chance(w, 4) ? 0 : pinned ? pin->n : w->past_len[from];

	if (n_known > 0 && chance(w, 2))
		n_known = 1 + (int32_t) draw(w, (uint32_t) n_known);
	n_known = n_known < n ? n_known : n;
	assert_true(
		llm_tokens_append(&seq->tokens, pinned ? pin->ids : w->past[from], (size_t) n_known));
	text_fill(w, seq, n);
	seq->n_prompt = n;
}

/* A sequence that may be too long for the pool; of some only the prompt is wanted. */
static void
submit(World *w)
{
	bool no_answer = chance(w, 12);
	int32_t n_prompt = 1 + (int32_t) draw(w, chance(w, 3) ? 250 : 90);
	int32_t n_new = no_answer ? 0 : 1 + (int32_t) draw(w, chance(w, 4) ? 80 : 20);
	int32_t n_pages = w->o.n_pages - 1 - pinned_pages(w);
	int32_t room = n_pages * LLM_PAGE_TOKENS + !no_answer;
	Job *j = w->jobs;
	LlmError err;
	LlmStatus st;

	while (j->live)
		j++;
	memset(j, 0, sizeof(*j));
	if (n_prompt + n_new > room && !chance(w, 2)) /* just so long that it fits, or does not */
	{
		int32_t len = room + chance(w, 4);

		n_prompt = n_prompt < len ? n_prompt : len - !no_answer;
		n_new = len - n_prompt;
	}
	assert_int_equal(llm_seq_init(&j->seq, n_prompt + n_new, w->o.n_groups, &err), LLM_OK);
	j->seq.owner = j;
	j->seq.tenant = draw(w, TENANTS);
	j->seq.client = j->seq.tenant * CLIENTS + draw(w, CLIENTS);
	j->seq.priority = chance(w, 8);
	j->seq.salt = chance(w, 6);
	j->seq.alone = chance(w, 40);
	j->seq.fresh = chance(w, 6);
	j->seq.scores = j->seq.fresh && chance(w, 2);
	if (no_answer)
		j->seq.fresh = j->seq.scores = true;
	prompt_fill(w, &j->seq, n_prompt);
	st = llm_sched_submit(w->sched, &j->seq, &err);
	if (n_prompt + n_new > room)
	{
		assert_int_equal(st, LLM_E_KV_MEMORY);
		assert_int_equal(err.limit, n_pages);
		llm_seq_fini(&j->seq);
		w->n_refused++;
		return;
	}
	assert_int_equal(st, LLM_OK);
	j->live = true;
	w->n_live++;
	account_join(w, j);
	job_hash(j);
}

/* One of those with the scheduler, or NULL. */
static Job *
some_job(World *w)
{
	Job *j = &w->jobs[draw(w, LIVE_MAX)];

	return j->live && j->seq.state != LLM_SEQ_DONE ? j : NULL;
}

/* Another one pays for it from now on. */
static void
move(World *w, Job *j)
{
	Job former = *j;
	uint64_t tenant = draw(w, TENANTS);

	llm_sched_assign(w->sched, &j->seq, tenant, tenant * CLIENTS + draw(w, CLIENTS), chance(w, 3));
	account_join(w, j);
	account_leave(w, &former);
}

/* ---- what a plan may do ---- */

/* Count who holds which page; the scheduler's own counts must agree. */
static void
check_holders(World *w)
{
	LlmPageCounts c = llm_sched_pages(w->sched);
	int32_t n = 0, n_tails;

	memset(w->holders, 0, sizeof(w->holders));
	for (int i = 0; i < LIVE_MAX; i++)
		for (int g = 0; w->jobs[i].live && g < w->o.n_groups; g++)
			for (int32_t p = 0; p < w->jobs[i].seq.n_pages; p++)
			{
				int32_t page = w->jobs[i].seq.table[g][p];

				assert_in_range(page, 1, w->o.n_pages - 1);
				w->holders[g][page]++;
			}
	check_pins(w, &n_tails);
	for (int g = 0; g < w->o.n_groups; g++)
		for (int32_t page = 1; page < w->o.n_pages; page++)
			n += w->holders[g][page] > 0;
	assert_in_range(c.referenced, n, n + w->o.n_groups * n_tails);
	assert_int_equal(c.total, w->o.n_groups * (w->o.n_pages - 1));
	assert_int_equal(c.free + c.cached + c.referenced, c.total);
	assert_true(w->prefix_on || c.cached == 0);
}

static void
run_copies(World *w, const LlmPlan *plan)
{
	for (int32_t i = 0; i < plan->n_copies; i++)
	{
		const LlmPlanCopy *c = &plan->copies[i];
		uint32_t *shadow = w->shadow[c->group];

		assert_in_range(c->n_tokens, 1, LLM_PAGE_TOKENS - 1);
		assert_in_range(c->from, 1, w->o.n_pages - 1);
		assert_int_not_equal(c->from, c->to);
		assert_int_equal(w->holders[c->group][c->to], 1);
		memcpy(&shadow[c->to * LLM_PAGE_TOKENS], &shadow[c->from * LLM_PAGE_TOKENS],
			   (size_t) c->n_tokens * sizeof(*shadow));
		w->n_copies++;
	}
}

/* What the item's rows read from before this step is what its tokens say. */
static void
check_reads(const World *w, const LlmPlanItem *it)
{
	const Job *j = job_of(it->seq);

	for (int g = 0; g < w->o.n_groups; g++)
		for (int32_t p = 0; p < it->begin; p += LLM_PAGE_TOKENS)
		{
			int32_t n = it->begin - p < LLM_PAGE_TOKENS ? it->begin - p : LLM_PAGE_TOKENS;
			int32_t page = it->seq->table[g][p / LLM_PAGE_TOKENS];

			if (memcmp(&w->shadow[g][page * LLM_PAGE_TOKENS], &j->hash[p],
					   (size_t) n * sizeof(uint32_t)) != 0)
				fail_msg("step %lld: page %d of group %d is not what position %d needs",
						 (long long) w->n_steps, page, g, p);
		}
}

/* Store the rows: what they mean, or nonsense. Nobody else may hold a page that is written. */
static void
run_rows(World *w, const LlmPlanItem *it, bool fails)
{
	const Job *j = job_of(it->seq);

	for (int g = 0; g < w->o.n_groups; g++)
		for (int32_t p = it->begin; p < it->begin + it->n; p++)
		{
			int32_t page = it->seq->table[g][p / LLM_PAGE_TOKENS];

			assert_int_equal(w->holders[g][page], 1);
			w->shadow[g][page * LLM_PAGE_TOKENS + p % LLM_PAGE_TOKENS] = fails ? 1 : j->hash[p];
		}
}

/* Who was admitted was the best that waited, at that time; accounts are charged on the way. */
static void
check_admissions(World *w, const LlmPlan *plan)
{
	int32_t n = 0;

	for (int i = 0; i < LIVE_MAX; i++)
	{
		Job *j = &w->jobs[i];

		j->admitted = j->live && j->was_waiting && j->seq.state == LLM_SEQ_RUNNING;
		n += j->admitted;
		w->n_lookups[j->seq.salt] +=
			j->admitted && w->prefix_on && !j->seq.fresh && j->seq.n_preempted == 0;
	}
	assert_true(n == 0 ||
				(plan->n_preempted == 0 && llm_sched_running(w->sched) <= w->max_running));
	for (int32_t i = 0; i < plan->n_items; i++)
	{
		Job *j = job_of(plan->items[i].seq);

		while (j->admitted)
		{
			Job *best = best_waiting(w);

			assert_non_null(best);
			assert_true(best->admitted);
			best->admitted = best->was_waiting = false;
		}
		account_charge(w, j, plan->items[i].begin, plan->items[i].n);
	}
}

/* Who lost its pages has nothing computed; unless a test forces it, nobody worse keeps his. */
static void
check_preemptions(World *w, const LlmPlan *plan, const bool *was_running)
{
	int32_t n = 0;

	for (int i = 0; i < LIVE_MAX; i++)
	{
		Job *j = &w->jobs[i];

		if (!was_running[i] || j->seq.state != LLM_SEQ_WAITING)
			continue;
		n++;
		j->got = 0;
		for (int k = 0; w->o.preempt_every == 0 && k < LIVE_MAX; k++)
		{
			const LlmSeq *other = &w->jobs[k].seq;

			if (was_running[k] && other->state == LLM_SEQ_RUNNING)
				assert_true(other->priority > j->seq.priority ||
							(other->priority == j->seq.priority && other->ticket < j->seq.ticket));
		}
	}
	assert_int_equal(n, plan->n_preempted);
	w->n_preempted += n;
}

static void
check_item(World *w, const LlmPlan *plan, int32_t i)
{
	const LlmPlanItem *it = &plan->items[i];
	Job *j = job_of(it->seq);

	assert_true(j->live && it->seq->state == LLM_SEQ_RUNNING);
	assert_true(!it->seq->alone || plan->n_items == 1);
	assert_true(it->n > 0 && it->begin >= j->got);
	assert_true(it->begin + it->n <= (int32_t) it->seq->tokens.len);
	assert_int_equal(it->completes, it->begin + it->n == (int32_t) it->seq->tokens.len);
	check_begins_after_pins(w, it);
	for (int32_t k = 0; k < i; k++)
		assert_ptr_not_equal(plan->items[k].seq, it->seq);
	if (it->begin > j->got) /* to what is or was cached: it may be off since the admission */
	{
		assert_false(it->seq->fresh);
		w->n_jumps++;
	}
	j->got = it->begin + it->n;
}

static void
check_outputs(World *w, const LlmPlan *plan)
{
	const LlmBatch *b;
	const LlmPackOut *out;
	int32_t n_tokens = 0;

	if (plan->n_rows == 0)
		return;
	b = llm_pack_fill(w->pack, plan, false, false);
	out = llm_pack_outputs(w->pack);
	assert_int_equal(b->n_rows, plan->n_rows);
	assert_int_equal(b->n_out, plan->n_out);
	for (int32_t i = 0; i < b->n_out; i++)
	{
		const LlmPlanItem *it = &plan->items[out[i].item];

		n_tokens += b->want[i] == LLM_WANT_TOKEN;
		if (b->want[i] == LLM_WANT_SCORE)
			job_of(it->seq)->scored[out[i].position]++;
		else
			assert_int_equal(out[i].position, it->seq->tokens.len - 1);
	}
	for (int32_t i = 0; i < plan->n_items; i++)
		n_tokens -= plan->items[i].completes;
	assert_int_equal(n_tokens, 0);
}

/* ---- steps ---- */

static void
finish(World *w, Job *j)
{
	for (int32_t p = 0; p < j->seq.n_prompt && j->seq.scores; p++)
		assert_int_equal(j->scored[p], p < j->seq.n_prompt - 1);
	llm_sched_remove(w->sched, &j->seq);
	w->n_finished++;
}

/* The step went well: completed sequences get a token and may end; or all that ran is given up. */
static void
step_ends(World *w, Job *const *completed, int32_t n_completed, bool fails)
{
	llm_sched_done(w->sched, !fails);
	for (int i = 0; fails && i < LIVE_MAX; i++)
		if (w->jobs[i].live && w->jobs[i].seq.state == LLM_SEQ_RUNNING)
			llm_sched_remove(w->sched, &w->jobs[i].seq);
	for (int32_t i = 0; !fails && i < n_completed; i++)
	{
		Job *j = completed[i];

		if (!j->live || j->seq.state == LLM_SEQ_DONE)
			continue;
		if (chance(w, 50))
			pin(w, j);
		if (j->seq.max_len == j->seq.n_prompt)
		{
			finish(w, j);
			continue;
		}
		assert_true(llm_tokens_push(&j->seq.tokens, (int32_t) draw(w, 3)));
		job_hash(j);
		if ((int32_t) j->seq.tokens.len == j->seq.max_len)
			finish(w, j);
	}
	w->n_failed += fails;
}

static void
audit(World *w)
{
	LlmPrefixStat stats[2];
	int32_t n = llm_sched_prefix_stats(w->sched, stats, 2);
	LlmError err;

	if (!llm_sched_audit(w->sched, &err))
		fail_msg("step %lld: %s", (long long) w->n_steps, err.text);
	for (int32_t i = 0; i < n; i++)
		assert_int_equal(stats[i].lookups, w->n_lookups[stats[i].salt]);
}

static void
step(World *w, bool calm)
{
	bool fails = !calm && chance(w, 150);
	bool was_running[LIVE_MAX];
	Job *completed[LIVE_MAX];
	int32_t n_completed = 0;
	const LlmPlan *plan;
	Job *gone;

	for (int i = 0; i < LIVE_MAX; i++)
	{
		was_running[i] = w->jobs[i].live && w->jobs[i].seq.state == LLM_SEQ_RUNNING;
		w->jobs[i].was_waiting = w->jobs[i].live && w->jobs[i].seq.state == LLM_SEQ_WAITING;
	}
	plan = llm_sched_next(w->sched);
	w->n_steps++;
	w->n_rows += plan->n_rows;
	assert_in_range(plan->n_rows, 0, w->max_rows);
	assert_true(plan->n_out <= w->o.max_out);
	check_preemptions(w, plan, was_running);
	check_admissions(w, plan);
	check_holders(w);
	if (!fails || chance(w, 2))
		run_copies(w, plan);
	for (int32_t i = 0; i < plan->n_items; i++)
	{
		check_item(w, plan, i);
		if (!fails)
			check_reads(w, &plan->items[i]);
		if (plan->items[i].completes)
			completed[n_completed++] = job_of(plan->items[i].seq);
	}
	check_outputs(w, plan);
	for (int32_t i = 0; i < plan->n_items; i++)
		run_rows(w, &plan->items[i], fails);
	gone = !calm && chance(w, 60) ? some_job(w) : NULL;
	if (gone != NULL)
		llm_sched_remove(w->sched, &gone->seq); /* in flight */
	step_ends(w, completed, n_completed, fails);
	audit(w);
}

/* What comes between two steps. */
static void
disturb(World *w)
{
	Job *j;

	for (int n = (int) draw(w, 3); n > 0 && w->n_live < LIVE_MAX - 2 && chance(w, 3); n--)
		submit(w);
	if (chance(w, 60) && (j = some_job(w)) != NULL)
	{
		llm_sched_remove(w->sched, &j->seq);
		llm_sched_remove(w->sched, &j->seq); /* does nothing */
	}
	if (chance(w, 60) && (j = some_job(w)) != NULL)
		move(w, j);
	if (chance(w, 200))
	{
		w->max_rows = 1 + (int32_t) draw(w, (uint32_t) w->o.max_rows);
		w->max_running = 1 + (int32_t) draw(w, (uint32_t) w->o.max_running);
		llm_sched_limits_set(w->sched, w->max_rows, w->max_running);
	}
	if (chance(w, 80))
		unpin(w, &w->pins[draw(w, PINS_MAX)]);
	if (chance(w, 300))
	{
		w->prefix_on = !w->prefix_on;
		llm_sched_prefix_set(w->sched, w->prefix_on);
		for (int i = 0; i < PINS_MAX && !w->prefix_on; i++)
			w->pins[i].n = 0;
	}
}

/* ---- episodes ---- */

static void
episode_init(World *w)
{
	static const uint32_t hash_bits[] = {0, 0, 2, 6};
	LlmPackSizes sizes;
	LlmError err;

	w->prefix_on = !chance(w, 5);
	w->o = (LlmSchedOptions){.n_groups = 1 + (int32_t) draw(w, GROUPS_MAX),
							 .n_pages = 4 + (int32_t) draw(w, chance(w, 2) ? 6 : PAGES_MAX - 3),
							 .max_rows = 1 + (int32_t) draw(w, chance(w, 3) ? 8 : 128),
							 .max_running = 1 + (int32_t) draw(w, 12),
							 .prefix_cache = w->prefix_on,
							 .hash_bits = hash_bits[draw(w, 4)],
							 .idle_limit = chance(w, 2) ? 1 + (int32_t) draw(w, 8) : 0,
							 .preempt_every = chance(w, 4) ? 1 + draw(w, 6) : 0,
							 .retired = retired,
							 .arg = w};
	w->o.max_out = w->o.max_running + (int32_t) draw(w, 20);
	w->max_rows = w->o.max_rows;
	w->max_running = w->o.max_running;
	sizes = (LlmPackSizes){w->o.max_rows, w->o.max_running, w->o.max_out, LEN_MAX, w->o.n_groups};
	memset(w->shadow, 0, sizeof(w->shadow));
	memset(w->n_lookups, 0, sizeof(w->n_lookups));
	assert_int_equal(llm_sched_create(&w->o, &w->sched, &err), LLM_OK);
	assert_int_equal(llm_pack_create(&sizes, &w->pack, &err), LLM_OK);
}

/* All that is left ends by itself, and everything is back. */
static void
episode_fini(World *w)
{
	LlmPageCounts c;

	llm_sched_limits_set(w->sched, w->o.max_rows, w->o.max_running);
	w->max_rows = w->o.max_rows;
	w->max_running = w->o.max_running;
	for (int i = 0; w->n_live > 0; i++)
	{
		assert_in_range(i, 0, 60000);
		step(w, true);
	}
	assert_int_equal(llm_sched_pages(w->sched).referenced, w->o.n_groups * pinned_pages(w));
	for (int i = 0; i < PINS_MAX; i++)
		unpin(w, &w->pins[i]);
	c = llm_sched_pages(w->sched);
	assert_int_equal(c.free + c.cached, c.total);
	for (int p = 0; p < PRIORITIES; p++)
		for (int t = 0; t < TENANTS; t++)
			assert_int_equal(w->accounts[p][t].n_tenant, 0);
	llm_sched_free(w->sched);
	llm_pack_free(w->pack);
}

static void
random_steps_agree_with_plain_arrays(void **state)
{
	static World w = {.seed = 20};

	while (w.n_steps < STEPS)
	{
		int64_t end = w.n_steps + EPISODE;

		episode_init(&w);
		while (w.n_steps < end)
		{
			disturb(&w);
			step(&w, false);
		}
		episode_fini(&w);
	}
	print_message(
		"%lld steps, %lld rows, %lld sequences finished, %lld jumps to cached tokens, %lld "
		"copies, %lld preemptions, %lld failed steps, %lld refused, %lld pins (%lld too many), "
		"%lld "
		"prefills from a pin on\n",
		(long long) w.n_steps, (long long) w.n_rows, (long long) w.n_finished,
		(long long) w.n_jumps, (long long) w.n_copies, (long long) w.n_preempted,
		(long long) w.n_failed, (long long) w.n_refused, (long long) w.n_pinned,
		(long long) w.n_pin_full, (long long) w.n_from_pin);
	assert_true(w.n_finished > STEPS / 100 && w.n_jumps > STEPS / 100);
	assert_true(w.n_preempted > STEPS / 100 && w.n_failed > STEPS / 1000);
	assert_true(w.n_refused > 0);
	assert_true(w.n_pinned > STEPS / 1000 && w.n_pin_full > STEPS / 10000);
	assert_true(w.n_unpinned > STEPS / 2000 && w.n_from_pin > STEPS / 10000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps_agree_with_plain_arrays)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
