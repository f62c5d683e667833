/*
 * tensor/device.h - the table that every device fills.
 *
 * A device owns weights in its own layout, the KV store, and an arena for the activations of a step.
 * A model's forward *records* ops between step_begin and step_end; nothing is computed that the
 * caller may read before step_wait. A CPU runs the list on its threads, a GPU captures it.
 *
 *     step_begin(batch)  embed  [norm linear rope_kv_write attention linear ...] gather_rows
 *                        linear  sample  step_end -> step id  ...  step_wait(step id, out)
 *
 * What holds for every device:
 *   - An output row is a function of its own input row and its own sequence's KV: fixed K order, no
 *     split that depends on the batch, no atomics (design rules R1-R8).
 *   - K and V are rounded to the store's type and stored before attention; attention reads the store
 *     alone.
 *   - Page 0 is all zeros and is never written; slots never point into it.
 *   - What is stored is finite. A row whose K or V has a NaN spoils its sequence, and nobody else's:
 *     zeros are stored and step_wait names the sequence.
 *   - No allocation between step_begin and step_wait. Failures inside a step surface at step_end or
 *     step_wait.
 *   - One thread calls a device. Objects of one device never meet another's.
 */
#ifndef LLM_TENSOR_DEVICE_H
#define LLM_TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "tensor/batch.h"
#include "tensor/kv_spec.h"
#include "tensor/sampling.h"
#include "tensor/weight.h"

/* Forms in which an activation is kept; a set, because fused weights of several types may want more
 * than one. */
enum
{
	LLM_ACT_F32 = 1, /* float */
	LLM_ACT_Q8 = 2   /* int8 with a float scale and a sum per 32 values of one row (rule R3) */
};

/* Handle of an activation in the step's arena: [rows, cols]. Valid from act_create to the next
 * step_begin. */
typedef struct LlmAct
{
	int32_t slot;  /* the device's own index */
	int32_t forms; /* LLM_ACT_* bits */
	int32_t rows;
	int32_t cols;
} LlmAct;

typedef struct LlmLinear LlmLinear; /* opaque; owned by the device that created it */
typedef struct LlmDevice LlmDevice; /* first member of every device's own struct */

/* What follows a product inside one op; fixed per op, never chosen by the number of rows (R8). */
typedef enum LlmEpilogue
{
	LLM_EPI_NONE = 0,
	LLM_EPI_SILU_GATE = 1 /* linear gives gate | up; out = silu(gate) * up, half as wide */
} LlmEpilogue;

/* What a linear is in its model: products are counted and timed apart by it. */
typedef enum LlmLinearRole
{
	LLM_LINEAR_OTHER = 0,
	LLM_LINEAR_QKV,
	LLM_LINEAR_ATTN_OUT,
	LLM_LINEAR_GATE_UP,
	LLM_LINEAR_DOWN,
	LLM_LINEAR_HEAD, /* gives logits */
	LLM_LINEAR_N_ROLES
} LlmLinearRole;

typedef struct LlmLinearSpec
{
	bool is_embedding; /* rows will be read by embed (a tied head is read by both) */
	LlmLinearRole role;
} LlmLinearSpec;

/* Root-mean-square norm over a row: x / sqrt(mean(x^2) + eps) * weight. */
typedef struct LlmNorm
{
	const float *weight; /* [cols] host memory, borrowed for the life of the model */
	float eps;
} LlmNorm;

/* Limits fixed when the device is opened for a model, so that a step never allocates. */
typedef struct LlmDeviceLimits
{
	int32_t max_rows; /* rows in a step */
	int32_t max_out;  /* output rows in a step */
	int32_t max_seqs; /* sequences in a step */
	int32_t max_cols; /* widest activation: largest of qkv, gate | up, dim; head aside */
	int32_t vocab_size;
	int32_t max_pos; /* positions are below this */
	int32_t n_acts;  /* activations of max_rows x max_cols alive in one step */
} LlmDeviceLimits;

/* What a device is and did, for EXPLAIN, views and benchmarks. */
typedef struct LlmDeviceInfo
{
	const char *kind; /* "cpu", "echo" */
	const char *isa;  /* "generic", "avx2", ... */
	int32_t n_threads;
	int32_t n_used; /* threads that a step gets now: fewer while other processes have the cores */
	int64_t weight_nbytes;  /* device memory of weights */
	int64_t kv_page_nbytes; /* device memory of one page over all groups and layers */
} LlmDeviceInfo;

/* Work and time of one op kind since the last reset; for the benchmark. */
typedef struct LlmOpStat
{
	const char *name; /* "qkv", "attention", ... */
	int64_t calls;
	double seconds; /* from the first thread's start to the last one's end */
	double waited;  /* of seconds, the mean thread waited for the others */
	double nbytes;  /* weights and KV read */
	double ops;     /* multiply-adds counted as two */
} LlmOpStat;

typedef struct LlmDeviceOps
{
	/* ---- life; all required ---- */

	void (*free)(LlmDevice *);
	LlmDeviceInfo (*info)(const LlmDevice *);
	/* Size the step arena. Called once per model, before the first step. */
	LlmStatus (*limits_set)(LlmDevice *, const LlmDeviceLimits *, LlmError *);
	/* Free linears, KV and arena of the model; the device can then take another. */
	void (*model_clear)(LlmDevice *);

	/* ---- weights; required ---- */

	/* Repack 1..8 views with equal cols, fused along N in the order given. The views are not read
	 * after the call. */
	LlmStatus (*linear_create)(LlmDevice *, const LlmWeightView *parts, int n_parts,
							   const LlmLinearSpec *, LlmLinear **, LlmError *);
	/* The LLM_ACT_* forms that the linear's input must have. */
	int32_t (*linear_forms)(const LlmDevice *, const LlmLinear *);

	/* ---- KV store; required. kv/store.c is the caller. ---- */

	/* n_pages includes page 0. Zeroes everything. Once per model. */
	LlmStatus (*kv_create)(LlmDevice *, const LlmKvGroup *groups, int n_groups, int32_t n_pages,
						   LlmError *);
	/* Bytes of one page over all layers of the group. */
	int64_t (*kv_page_nbytes)(const LlmDevice *, const LlmKvGroup *);
	/* Copy the first n_tokens of page `from` to page `to` in one group, all layers. */
	void (*kv_copy)(LlmDevice *, int group, int32_t from, int32_t to, int32_t n_tokens);
	/* Token-major f32 [n_pages * 64, n_layers, n_kv_heads, k_dim + v_dim] of whole pages: the values
	 * that attention reads, exactly, for all KV types; imported into the same type they give the
	 * same bits. A NaN is LLM_E_INVALID (and stored as zeros). For hand-off and tests. */
	LlmStatus (*kv_export)(LlmDevice *, int group, const int32_t *pages, int n_pages, float *out,
						   LlmError *);
	LlmStatus (*kv_import)(LlmDevice *, int group, const int32_t *pages, int n_pages,
						   const float *in, LlmError *);

	/* ---- a step; required. Recording functions cannot fail by themselves. ---- */

	LlmStatus (*step_begin)(LlmDevice *, const LlmBatch *, LlmError *);
	/* Activation of this step. rows <= max_rows (or max_out), cols <= max_cols (or vocab_size). */
	LlmAct (*act_create)(LlmDevice *, int32_t forms, int32_t rows, int32_t cols);
	/* out[r] = row token[r] of the embedding (or the row's own vector), as F32. */
	void (*embed)(LlmDevice *, const LlmLinear *, LlmAct out);
	/* residual += add (when add.cols > 0); out = norm(residual) in out's forms. */
	void (*norm)(LlmDevice *, LlmAct residual, LlmAct add, const LlmNorm *, LlmAct out);
	/* out = epilogue(x W^T), in out's forms. */
	void (*linear)(LlmDevice *, LlmAct x, const LlmLinear *, LlmEpilogue, LlmAct out);
	/* qkv [rows, (n_heads + 2 n_kv_heads) * head_dim]: turn q and k, round and store k and v at the
	 * batch's slots; q out as F32 [rows, n_heads * head_dim], which only the attention of the same
	 * layer, the next op, may read: a device may do both in one. */
	void (*rope_kv_write)(LlmDevice *, LlmAct qkv, const LlmAttn *, LlmAct q);
	/* out [rows, n_heads * v_dim], causal over the row's own sequence, in out's forms. */
	void (*attention)(LlmDevice *, LlmAct q, const LlmAttn *, LlmAct out);
	/* out[i] = x[out_row[i]]. */
	void (*gather_rows)(LlmDevice *, LlmAct x, LlmAct out);
	/* Pick tokens for rows that want one; keeps the logits for LlmStepOut. sampling is borrowed
	 * until step_wait. */
	void (*sample)(LlmDevice *, LlmAct logits, const LlmSampling *sampling);
	LlmStatus (*step_end)(LlmDevice *, uint64_t *step, LlmError *);
	/* Fill out->rows [n_out] and out->logits. */
	LlmStatus (*step_wait)(LlmDevice *, uint64_t step, LlmStepOut *out, LlmError *);

	/* ---- measuring; optional (both NULL = nothing is measured) ---- */

	/* Copy up to n rows; returns how many. reset: start again from zero. */
	int (*op_stats)(LlmDevice *, LlmOpStat *out, int n, bool reset);
	/* Measure times as well from the next step on (off at first: the clock is not free). */
	void (*op_times)(LlmDevice *, bool on);
} LlmDeviceOps;

struct LlmDevice
{
	const LlmDeviceOps *ops;
};

#endif
