/*
 * sched/hold.h - the pages that one sequence holds: new ones, cached ones, and giving them back.
 *
 * Of a sequence's n_pages pages the first n_entered are entries of the prefix cache, in one chain;
 * the rest are its own. n_entered <= n_computed / 64: nothing is entered before it is stored.
 */
#ifndef LLM_SCHED_HOLD_H
#define LLM_SCHED_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/prefix.h"
#include "sched/seq.h"

/* Give seq pages for all its known tokens; false (and nothing taken) when there are not enough. */
bool llm_sched_hold_grow(LlmPrefix *p, LlmSeq *seq);
/* Give all pages back, the last first; nothing of the sequence is computed any more. */
void llm_sched_hold_drop(LlmPrefix *p, LlmSeq *seq);

/* The longest cached prefix of its known tokens; changes nothing. */
LlmPrefixHit llm_sched_hold_find(const LlmPrefix *p, const LlmSeq *seq);
/* Go on from the hit when it is longer than what is computed; no step may be in flight. */
void llm_sched_hold_take(LlmPrefix *p, LlmSeq *seq, const LlmPrefixHit *hit);
/* Enter the full pages among the computed tokens, which must all be stored. */
void llm_sched_hold_enter(LlmPrefix *p, LlmSeq *seq);

#endif
