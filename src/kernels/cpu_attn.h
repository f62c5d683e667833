/*
 * kernels/cpu_attn.h - attention inside: the walk over splits, for items that threads take as they come
 * and for even shares.
 */
#ifndef LLM_KERNELS_CPU_ATTN_H
#define LLM_KERNELS_CPU_ATTN_H

#include "kernels/cpu_state.h"

/* One item, or piece of an even share, at work. */
typedef struct LlmCpuItem
{
	LlmCpuDevice *dev;
	const LlmCpuOp *op;
	LlmCpuScratch *s; /* of the thread; vectors in the order of the block's rows */
	int32_t kv_head;
	int32_t per_row; /* query vectors of a row */
	int32_t next;    /* the item after this one, or -1: most likely the thread's own next */
} LlmCpuItem;

/* What attention fetches ahead: K of a page of a head. */
typedef struct LlmCpuAhead
{
	const uint8_t *k; /* NULL = nothing */
	size_t nbytes;
} LlmCpuAhead;

/* Splits first .. last of a sequence's table for the query vectors of some runs. */
typedef struct LlmCpuWalk
{
	const LlmCpuRun *runs;
	int32_t n_runs;
	int32_t first;
	int32_t last;
	int32_t v; /* first of the n_q vectors */
	int32_t n_q;
	LlmCpuSums sums;   /* of them */
	int32_t apart;     /* vectors from one split's sums to the next one's; 0 = they are folded */
	LlmCpuAhead after; /* what comes after the last split */
} LlmCpuWalk;

/* The sums of vectors from v on. */
static inline LlmCpuSums
llm_cpu_attn_sums_at(const LlmCpuSums *s, int32_t v, int32_t v_stride)
{
	return (LlmCpuSums){s->m + v, s->l + v, s->o + (size_t) v * (size_t) v_stride};
}

/* ---- cpu_attn.c ---- */

/* First and last split that any row of the run sees. */
void llm_cpu_attn_splits(const LlmCpuDevice *dev, const LlmAttn *a, const LlmCpuRun *run,
						 int32_t *first, int32_t *last);
/* q is query vector v. */
void llm_cpu_attn_query_set(const LlmCpuItem *it, int32_t v, const float *q);
/* The query vectors of a run, unless they are turned here, and their empty sums, from vector v on. */
void llm_cpu_attn_begin(const LlmCpuItem *it, const LlmCpuRun *run, int32_t v);
/* o / l of a run's vectors from v on, in out's forms. */
void llm_cpu_attn_finish(const LlmCpuItem *it, const LlmCpuRun *run, int32_t v);
/* Split i of a sequence. */
LlmCpuAhead llm_cpu_attn_ahead(const LlmCpuItem *it, int32_t seq, int32_t i, int32_t kv_head);
/* Go through the splits, fetching each before its turn. */
void llm_cpu_attn_walk(const LlmCpuItem *it, const LlmCpuWalk *w);

/* ---- cpu_attn_shares.c ---- */

/* A thread's range of the splits of all heads. */
void llm_cpu_attn_range(LlmCpuDevice *dev, const LlmCpuOp *op, int tid, int n_threads);

#endif
