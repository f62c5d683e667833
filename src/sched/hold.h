/*
 * sched/hold.h - the pages that one sequence holds: new ones, cached ones, and giving them back.
 *
 * Of a sequence's n_pages pages the first n_entered are full entries of the prefix cache, in one
 * chain; the rest are its own, and the first of these may be known to the cache as a tail.
 * n_entered <= n_stored / 64: nothing is entered before it is stored. A running sequence has the pages
 * for all its known tokens, but those for tokens that no step computes yet only as a promise.
 */
#ifndef LLM_SCHED_HOLD_H
#define LLM_SCHED_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/prefix.h"
#include "sched/sched.h"
#include "sched/seq.h"

/* Promise seq pages for all its known tokens; false (and nothing promised) when there are not enough,
 * or fewer than were promised before. */
bool llm_sched_hold_grow(LlmPrefix *p, LlmSeq *seq);
/* Hand out those for the first n tokens; false (and nothing taken) when more was promised than there
 * is. */
bool llm_sched_hold_fill(LlmPrefix *p, LlmSeq *seq, int32_t n);
/* Give all pages back, the last first; nothing of the sequence is computed any more. */
void llm_sched_hold_drop(LlmPrefix *p, LlmSeq *seq);

/* Its first n known tokens as the cache wants them; hashes that are not known yet are made. */
LlmPrefixText llm_sched_hold_text(const LlmPrefix *p, LlmSeq *seq, int32_t n);
/* The longest cached prefix of its known tokens; none for a fresh sequence. */
LlmPrefixHit llm_sched_hold_find(const LlmPrefix *p, LlmSeq *seq);
/* Go on from the hit when it is longer than what is computed, and grow as above. What must be copied
 * is added to the plan; no step may be in flight. */
void llm_sched_hold_take(LlmPrefix *p, LlmSeq *seq, const LlmPrefixHit *hit, LlmPlan *plan);
/* The computed tokens are stored now: enter them. */
void llm_sched_hold_enter(LlmPrefix *p, LlmSeq *seq);

#endif
