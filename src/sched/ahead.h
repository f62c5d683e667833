/*
 * sched/ahead.h - prefixes that somebody is about to compute are not computed beside it.
 *
 * A sequence waits for a running one that is ordered before it when that one will compute tokens in
 * this or later steps that both begin with. It keeps its pages, gets no rows, and goes on from the
 * cache once the tokens are stored. The first in order never waits, and who waits does so only for
 * tokens that are not stored yet, so all make progress; somebody that was cancelled or preempted is
 * not before it any more. Nobody waits for one that scores: few rows of it may run in a step.
 */
#ifndef LLM_SCHED_AHEAD_H
#define LLM_SCHED_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/prefix.h"
#include "sched/seq.h"

/* Fewer tokens than this are not waited for. */
#define LLM_AHEAD_TOKENS_MIN 16

/* True when seq should wait for one of before[0..n). */
bool llm_sched_ahead_waits(const LlmPrefix *p, LlmSeq *const *before, int32_t n, LlmSeq *seq);

#endif
