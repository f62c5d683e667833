/*
 * sched/sched.h - which tokens of which sequences run in the next step.
 *
 * One loop for everything: a sequence's n_computed chases its number of known tokens under a budget
 * of rows per step. A decode is a sequence that lacks one token, a prefill one that lacks more; a
 * preempted sequence is a prefill again. (The unified loop is that of vLLM's V1 scheduler.)
 *
 * A step takes, in this order:
 *   1. pages for the next token of every running sequence; when none is free, the running sequence
 *      of lowest priority and latest first admission is preempted: it gives its pages back, keeps
 *      its tokens, and queues again before all that were never admitted;
 *   2. one row for each decode, in rotation when the budget is smaller than their number. While
 *      somebody is behind with a prefill or waits for a place that is free, an eighth of the rows,
 *      at least one, is left for 3 and 4 (of a budget of one row: every second step);
 *   3. chunks of unfinished prefills, best first;
 *   4. when nobody was preempted in this step: waiting sequences, in the order of sched/queue.h:
 *      priority, then fair shares of tenants and of their clients. A sequence is admitted only when
 *      pages for all its known tokens are free and a watermark of free pages remains (the watermark
 *      is waived for the only sequence). They are promised to it, and handed out when a step writes
 *      them (kv/prefix.h). Nobody is let past the best one that waits, so none
 *      starves;
 *   5. the rows that 3 and 4 did not need: decodes that had none.
 *
 * Free means free or cached: pages that hold a prefix nobody uses now are taken when none is empty,
 * those that waiting sequences would find last (sched/demand.h).
 * An admitted sequence starts after its longest cached prefix, and each later step of its prefill
 * jumps to the end of what others have entered meanwhile; that changes what is computed, never a
 * bit. What is stored is entered by llm_sched_done, prompt and generated tokens alike
 * (kv/prefix.h). What a sequence before it is about to compute a prefill waits for (sched/ahead.h).
 *
 * A prefix may end within a page: then the beginning of the page is copied into the sequence's own.
 * A plan's copies are done in order before its rows, and each was planned when its source was intact:
 * whatever the source's page is given to later in the same step is written after the copy.
 *
 * Bounds in steps for what is not preempted, with R = max_rows, r = max(1, R / 8) and D decodes:
 *   - a decode has a row in every step while D <= R - r, whatever arrives; else at least one in
 *     ceil(D / (R - r)) steps (R = 1: in 2 D);
 *   - the best unfinished prefill of n rows ends within ceil(n / max(r, R - D)) steps (R = 1: 2 n).
 *     One that scores also needs an output per row: it has those that nobody else who runs could
 *     need, at least max_out - running + 1 in a step;
 *   - an admission needs rows that no running prefill takes. So a newcomer with the smallest account
 *     waits for a place and for one unfinished prefill: for more only where a step had rows left while
 *     prefills had not ended, because they scored or waited for what another computes. Those were
 *     all admitted before it came.
 *
 * Progress: the running sequence of highest priority and earliest ticket is never preempted for
 * want of pages, and llm_sched_submit refuses what the whole pool could not hold.
 *
 * Knows no tensors, text or time. Nothing here allocates after submit. Not thread-safe.
 */
#ifndef LLM_SCHED_SCHED_H
#define LLM_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "sched/seq.h"

typedef struct LlmSched LlmSched;

typedef struct LlmSchedOptions
{
	int32_t n_groups;       /* KV groups; each has its own page ids */
	int32_t n_pages;        /* pages of each group, with page 0 */
	int32_t max_rows;       /* rows in a step */
	int32_t max_out;        /* output rows in a step, >= max_running; 0 = any number */
	int32_t max_running;    /* running sequences */
	bool prefix_cache;      /* pages are kept and found by their tokens */
	uint64_t numerics;      /* of the stored bits: part of the key of cached pages */
	uint32_t hash_bits;     /* 0 = all; tests: so few that cached pages collide */
	int32_t idle_limit;     /* 0 = by n_pages; see llm_kv_prefix_idle_limit */
	uint32_t preempt_every; /* 0 = never; tests: preempt some running sequence every n steps */
	/* A removed sequence is out of the scheduler's hands: its pages are back, its owner may free
	 * it. Called from llm_sched_remove, or from llm_sched_done when a step was in flight. */
	void (*retired)(void *arg, LlmSeq *seq);
	void *arg;
} LlmSchedOptions;

/* One sequence's rows in a step: tokens [begin, begin + n) at those positions. */
typedef struct LlmPlanItem
{
	LlmSeq *seq;
	int32_t begin;
	int32_t n;
	bool completes; /* the last row's output is the next token */
} LlmPlanItem;

/* The first n_tokens of a page, to be copied before the step's rows are computed. Source and target
 * are never the same. */
typedef struct LlmPlanCopy
{
	int32_t group;
	int32_t from; /* pages of the group */
	int32_t to;
	int32_t n_tokens;
} LlmPlanCopy;

/* What one step runs. Owned by the scheduler, valid until the next llm_sched_next. */
typedef struct LlmPlan
{
	LlmPlanCopy *copies; /* [n_copies] in this order, also when there are no rows */
	int32_t n_copies;
	LlmPlanItem *items; /* [n_items] */
	int32_t n_items;
	int32_t n_rows;
	int32_t n_out;       /* output rows, without those that only a test's hook wants */
	int32_t n_preempted; /* sequences that lost their pages in this step */
} LlmPlan;

LlmStatus llm_sched_create(const LlmSchedOptions *o, LlmSched **out, LlmError *err);
/* No sequence may be with the scheduler. */
void llm_sched_free(LlmSched *s);

/* Lower or raise the budget; values are kept within 1 .. what llm_sched_create got. */
void llm_sched_limits_set(LlmSched *s, int32_t max_rows, int32_t max_running);

/* Turn the prefix cache on or off; off drops what is cached. */
void llm_sched_prefix_set(LlmSched *s, bool on);

/* Tokens of the longest sequence that the pool can hold beside what is pinned: the last token that is
 * generated is never stored. */
int32_t llm_sched_longest(const LlmSched *s);
/* LLM_E_KV_MEMORY with both numbers when it can not hold a sequence that grows to max_len tokens. */
LlmStatus llm_sched_check(const LlmSched *s, int32_t n_prompt, int32_t max_len, LlmError *err);

/* Queue a sequence. Errors: those of llm_sched_check, LLM_E_MEMORY. */
LlmStatus llm_sched_submit(LlmSched *s, LlmSeq *seq, LlmError *err);

/* Take a sequence out, in whatever state; it leaves scheduling at once, and its pages go back when
 * no step refers to them. A second call does nothing. */
void llm_sched_remove(LlmSched *s, LlmSeq *seq);

/* From now on seq belongs to this client, with this priority; it keeps its order of arrival and its
 * ticket. When memory is out for the client, nothing changes. */
void llm_sched_assign(LlmSched *s, LlmSeq *seq, uint64_t tenant, uint64_t client, int32_t priority);

/* Plan the next step. No rows with sequences left means: everyone was preempted; call again. The
 * step before must have been given to llm_sched_done. */
const LlmPlan *llm_sched_next(LlmSched *s);

/* The step has run or failed: its pages are no longer in use by it. stored = it ran well, so its rows
 * are in their pages and may be cached. Call before tokens are appended or sequences removed. After a
 * failure every running sequence must be removed: copies may be missing. */
void llm_sched_done(LlmSched *s, bool stored);

/* ---- pins: prefixes that stay cached ---- */

/* Whether a prefix of n tokens could be pinned at all: LLM_E_KV_MEMORY with both numbers,
 * LLM_E_UNSUPPORTED when the cache is off. */
LlmStatus llm_sched_pin_check(const LlmSched *s, int32_t n, LlmError *err);
/* Pin what a sequence has stored, between llm_sched_done and its removal. At most half of the pool is
 * pinned over all, and never so much that an accepted sequence could not run; errors: those of
 * llm_kv_prefix_pin. */
LlmStatus llm_sched_pin(LlmSched *s, LlmSeq *seq, LlmError *err);
/* False when this was not pinned. */
bool llm_sched_unpin(LlmSched *s, uint64_t salt, const int32_t *ids, int32_t n);

/* ---- watching ---- */

int32_t llm_sched_running(const LlmSched *s);
int32_t llm_sched_waiting(const LlmSched *s);
int64_t llm_sched_preemptions(const LlmSched *s); /* since creation */
LlmPageCounts llm_sched_pages(const LlmSched *s); /* sum over groups */
/* See llm_kv_prefix_stats. */
int32_t llm_sched_prefix_stats(const LlmSched *s, LlmPrefixStat *out, int32_t n);

/* True when every page is free, cached or held by exactly the sequences that should hold it, the
 * cache is sound, and the queues agree with their counts. */
bool llm_sched_audit(const LlmSched *s, LlmError *err);

#endif
