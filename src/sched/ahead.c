/* sched/ahead.c - who is about to compute what a sequence needs (see ahead.h). */
#include "sched/ahead.h"

#include <string.h>

#include "sched/hold.h"

/* True when both have the same tokens up to `end`, given that all full pages before token n_known are
 * the same if their hash is: a wrong guess costs a wait and no more. */
static bool
same_beginning(const LlmPrefix *p, LlmSeq *a, LlmSeq *b, int32_t n_known, int32_t end)
{
	int32_t k = n_known / LLM_PAGE_TOKENS;
	int32_t begin = k * LLM_PAGE_TOKENS;

	if (memcmp(a->tokens.ids + begin, b->tokens.ids + begin,
			   (size_t) (end - begin) * sizeof(int32_t)) != 0)
		return false;
	if (k == 0)
		return true;
	llm_sched_hold_text(p, a, begin);
	llm_sched_hold_text(p, b, begin);
	return a->hashes[k - 1].lo == b->hashes[k - 1].lo && a->hashes[k - 1].hi == b->hashes[k - 1].hi;
}

/* True when a will compute enough that seq needs, beyond what either has stored. */
static bool
saves(const LlmPrefix *p, LlmSeq *a, LlmSeq *seq)
{
	int32_t begin = seq->n_computed > a->n_stored ? seq->n_computed : a->n_stored;
	int32_t end = begin + LLM_AHEAD_TOKENS_MIN;

	return a->salt == seq->salt && !a->scores && end <= (int32_t) a->tokens.len &&
		   end < (int32_t) seq->tokens.len && same_beginning(p, a, seq, seq->n_computed, end);
}

bool
llm_sched_ahead_waits(const LlmPrefix *p, LlmSeq *const *before, int32_t n, LlmSeq *seq)
{
	if (seq->fresh || !llm_kv_prefix_on(p))
		return false;
	for (int32_t i = 0; i < n; i++)
		if (saves(p, before[i], seq))
			return true;
	return false;
}
