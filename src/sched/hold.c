/* sched/hold.c - pages come to a sequence and go from it, new ones and cached ones. */
#include "sched/hold.h"

static void
promise(LlmPrefix *p, LlmSeq *seq, int32_t n)
{
	llm_kv_prefix_promise(p, n);
	seq->n_promised += n;
}

bool
llm_sched_hold_grow(LlmPrefix *p, LlmSeq *seq)
{
	int32_t n_pages = llm_seq_pages((int32_t) seq->tokens.len);
	int32_t n_more = n_pages - seq->n_pages - seq->n_promised;

	if (n_pages > seq->cap_pages || (n_more >= 0 && n_more > llm_kv_prefix_available(p)))
		return false;
	promise(p, seq, n_more);
	return true;
}

bool
llm_sched_hold_fill(LlmPrefix *p, LlmSeq *seq, int32_t n)
{
	int32_t n_pages = llm_seq_pages(n);

	if (n_pages > seq->n_pages && llm_kv_prefix_available(p) < 0)
		return false;
	for (; seq->n_pages < n_pages; seq->n_pages++)
	{
		llm_kv_prefix_alloc(p, seq->table, seq->n_pages);
		promise(p, seq, -1);
	}
	return true;
}

void
llm_sched_hold_drop(LlmPrefix *p, LlmSeq *seq)
{
	while (seq->n_pages > 0)
		llm_kv_prefix_release(p, seq->table, --seq->n_pages);
	promise(p, seq, -seq->n_promised);
	seq->n_computed = 0;
	seq->n_stored = 0;
	seq->n_entered = 0;
}

LlmPrefixText
llm_sched_hold_text(const LlmPrefix *p, LlmSeq *seq, int32_t n)
{
	int32_t n_full = n / LLM_PAGE_TOKENS;

	if (n_full > seq->n_hashed)
	{
		llm_kv_prefix_hash(p, seq->salt, seq->tokens.ids, n, seq->hashes, seq->n_hashed);
		seq->n_hashed = n_full;
	}
	return (LlmPrefixText){seq->salt, seq->tokens.ids, n, seq->hashes};
}

LlmPrefixHit
llm_sched_hold_find(const LlmPrefix *p, LlmSeq *seq)
{
	LlmPrefixText text;

	if (seq->fresh || !llm_kv_prefix_on(p))
		return (LlmPrefixHit){0};
	text = llm_sched_hold_text(p, seq, (int32_t) seq->tokens.len);
	return llm_kv_prefix_find(p, &text);
}

/* Note what going on from token n saves, of which n_full are in pages of the cache. The tokens of a
 * sequence that was preempted are its own. */
static void
count(LlmPrefix *p, LlmSeq *seq, int32_t n, int32_t n_full)
{
	if (seq->n_preempted > 0)
		return;
	llm_kv_prefix_saved(p, seq->salt, n - seq->n_computed, seq->n_cached == 0);
	seq->n_cached += n - seq->n_computed;
	seq->n_copied += n - (n_full > seq->n_computed ? n_full : seq->n_computed);
}

void
llm_sched_hold_take(LlmPrefix *p, LlmSeq *seq, const LlmPrefixHit *hit, LlmPlan *plan)
{
	int32_t from[LLM_KV_GROUPS_MAX];
	int32_t n_full = hit->n_pages * LLM_PAGE_TOKENS;
	int32_t n = llm_kv_prefix_hit_tokens(hit);

	if (n <= seq->n_computed)
	{
		llm_sched_hold_grow(p, seq);
		return;
	}
	for (int g = 0; g < seq->n_groups; g++)
		from[g] = hit->source == 0 ? 0 : llm_kv_prefix_page(p, g, hit->source);
	llm_kv_prefix_take(p, hit, seq->n_entered, seq->n_pages, seq->table);
	seq->n_entered = hit->n_pages;
	seq->n_pages = seq->n_pages > hit->n_pages ? seq->n_pages : hit->n_pages;
	llm_sched_hold_grow(p, seq);
	if (!llm_sched_hold_fill(p, seq, n))
		n = n_full;
	count(p, seq, n, n_full);
	seq->n_computed = n;
	seq->n_stored = n;
	for (int g = 0; g < seq->n_groups && n > n_full; g++)
		if (from[g] != seq->table[g][hit->n_pages]) /* else it was evicted for this very place */
			plan->copies[plan->n_copies++] =
				(LlmPlanCopy){g, from[g], seq->table[g][hit->n_pages], hit->n_copy};
}

void
llm_sched_hold_enter(LlmPrefix *p, LlmSeq *seq)
{
	LlmPrefixText text;

	if (seq->spoiled)
		return;
	seq->n_stored = seq->n_computed;
	if (!llm_kv_prefix_on(p))
		return;
	text = llm_sched_hold_text(p, seq, seq->n_stored);
	while ((seq->n_entered + 1) * LLM_PAGE_TOKENS <= seq->n_stored &&
		   llm_kv_prefix_enter(p, &text, seq->n_entered, seq->table))
		seq->n_entered++;
	if (seq->n_entered == seq->n_stored / LLM_PAGE_TOKENS)
		llm_kv_prefix_enter_tail(p, &text, seq->table);
}
