/*
 * sched/pack.h - a plan as the flat arrays of a batch.
 *
 * Arrays are sized once. Only what a row may read is filled: positions of a table beyond a
 * sequence's pages hold page 0.
 */
#ifndef LLM_SCHED_PACK_H
#define LLM_SCHED_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "sched/sched.h"
#include "tensor/batch.h"

typedef struct LlmPack LlmPack;

typedef struct LlmPackSizes
{
	int32_t max_rows; /* rows of a plan */
	int32_t max_seqs; /* items of a plan */
	int32_t max_out;  /* output rows */
	int32_t max_len;  /* tokens of a sequence: gives the stride of the tables */
	int32_t n_groups;
} LlmPackSizes;

/* Which item of the plan an output row belongs to. */
typedef struct LlmPackOut
{
	int32_t item;     /* index into plan->items */
	int32_t position; /* of the row */
} LlmPackOut;

LlmStatus llm_pack_create(const LlmPackSizes *sizes, LlmPack **out, LlmError *err);
void llm_pack_free(LlmPack *p);

/* The batch of a plan with at least one row; borrowed until the next call. A row that completes its
 * sequence wants a token, and one that scores wants the log-probability of tokens[position + 1];
 * with all_logits every row wants its logits (the plan's rows must then be <= max_out), and with
 * logits the completing ones do. */
const LlmBatch *llm_pack_fill(LlmPack *p, const LlmPlan *plan, bool logits, bool all_logits);

/* [n_out] of the last batch. */
const LlmPackOut *llm_pack_outputs(const LlmPack *p);

#endif
