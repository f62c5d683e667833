/* sched/hold.c - pages come to a sequence and go from it, new ones and cached ones. */
#include "sched/hold.h"

bool
llm_sched_hold_grow(LlmPrefix *p, LlmSeq *seq)
{
	int32_t need = llm_seq_pages((int32_t) seq->tokens.len);

	if (need > seq->cap_pages || need - seq->n_pages > llm_kv_prefix_available(p))
		return false;
	for (; seq->n_pages < need; seq->n_pages++)
		llm_kv_prefix_alloc(p, seq->table, seq->n_pages);
	return true;
}

void
llm_sched_hold_drop(LlmPrefix *p, LlmSeq *seq)
{
	while (seq->n_pages > 0)
		llm_kv_prefix_release(p, seq->table, --seq->n_pages);
	seq->n_computed = 0;
	seq->n_entered = 0;
}

LlmPrefixHit
llm_sched_hold_find(const LlmPrefix *p, const LlmSeq *seq)
{
	return llm_kv_prefix_find(p, seq->salt, seq->tokens.ids, (int32_t) seq->tokens.len);
}

void
llm_sched_hold_take(LlmPrefix *p, LlmSeq *seq, const LlmPrefixHit *hit)
{
	int32_t n = hit->n_pages * LLM_PAGE_TOKENS;

	if (n <= seq->n_computed)
		return;
	llm_kv_prefix_take(p, hit, seq->n_entered, seq->n_pages, seq->table);
	if (seq->n_preempted == 0)
		seq->n_cached += n - seq->n_computed;
	seq->n_computed = n;
	seq->n_entered = hit->n_pages;
	seq->n_pages = seq->n_pages > hit->n_pages ? seq->n_pages : hit->n_pages;
}

void
llm_sched_hold_enter(LlmPrefix *p, LlmSeq *seq)
{
	while (!seq->spoiled && (seq->n_entered + 1) * LLM_PAGE_TOKENS <= seq->n_computed &&
		   llm_kv_prefix_enter(p, seq->salt, seq->tokens.ids, seq->n_entered, seq->table))
		seq->n_entered++;
}
