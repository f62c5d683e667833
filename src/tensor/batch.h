/*
 * tensor/batch.h - everything one step needs, as flat arrays.
 *
 * The scheduler packs it, the model's forward and the device read it. All arrays belong to the
 * packer and stay unchanged until the step has been waited for. A row is one token of one sequence;
 * the rows of a sequence are adjacent and ascend in position.
 */
#ifndef LLM_TENSOR_BATCH_H
#define LLM_TENSOR_BATCH_H

#include <stdint.h>

#include "tensor/kv_spec.h"

/* What the caller wants of an output row. */
enum
{
	LLM_WANT_TOKEN = 1,  /* sample the next token */
	LLM_WANT_LOGITS = 2, /* leave the logits readable until the next step_begin */
	LLM_WANT_SCORE = 4   /* log-probability of the known next token; no pick */
};

/* Numerics class of a row, where a device needs two (rule R9). */
enum
{
	LLM_PHASE_PROMPT = 0,
	LLM_PHASE_GENERATED = 1
};

typedef struct LlmBatch
{
	int32_t n_rows;
	int32_t n_seqs;
	int32_t n_out;
	int32_t n_groups;     /* KV groups in table and slot */
	int32_t table_stride; /* pages per sequence in table */
	const int32_t *token; /* [n_rows] ids, all >= 0; ~i is reserved for "what output i of the step
							   before sampled" and refused by devices that cannot do it */
	const float *const *embed; /* NULL, or [n_rows] pointers: a row given as a vector [dim] */
	const int32_t *pos;        /* [n_rows] absolute position */
	const uint8_t *phase;      /* [n_rows] LLM_PHASE_* */
	const int32_t *row_seq;    /* [n_rows] index of the row's sequence */
	const int32_t *q_start;    /* [n_seqs + 1] first row of each sequence */
	const int32_t *kv_len;     /* [n_seqs] positions readable after this step's rows are stored */
	const int32_t *table[LLM_KV_GROUPS_MAX]; /* [n_seqs * table_stride] page ids; page of position p
												is table[s * stride + p / 64] */
	const int32_t
		*slot[LLM_KV_GROUPS_MAX]; /* [n_rows] page * 64 + p % 64: where the row is stored */
	const int32_t *adapter;       /* NULL, or [n_seqs] LoRA slot, -1 = none */
	const int32_t *out_row;       /* [n_out] rows whose output is wanted */
	const uint8_t *want;          /* [n_out] LLM_WANT_* bits */
} LlmBatch;

#endif
