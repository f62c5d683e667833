/*
 * kernels/cpu_state.h - the CPU device inside: its objects, the arena and the list of a step.
 *
 * Recording (cpu_step.c, cpu_record.c) runs on the caller's thread and appends to `ops`; each entry
 * is one parallel phase. step_end gives the list to the pool in one run: every thread executes
 * every phase on its share (cpu_ops.c, cpu_attn.c), with a barrier behind those of which others read
 * what it wrote (llm_cpu_waits). A share never changes a bit: columns, rows or heads are whole, and no
 * sum crosses threads.
 */
#ifndef LLM_KERNELS_CPU_STATE_H
#define LLM_KERNELS_CPU_STATE_H

#include <stdatomic.h>

#include "core/pool.h"
#include "kernels/cpu_threads.h"
#include "kernels/kernels.h"
#include "kernels/kv_pages.h"
#include "kernels/linear.h"
#include "sample/sample.h"
#include "tensor/device.h"

#define LLM_CPU_ACTS_MAX 128
#define LLM_CPU_OPS_MAX 16384         /* phases of a step: 512 layers of up to 32 */
#define LLM_CPU_BLOCK_ROWS 64         /* most rows in one attention item */
#define LLM_CPU_PART_FLOATS (1 << 19) /* value sums of single splits that a thread can keep */

/* An activation of the step. */
typedef struct LlmCpuAct
{
	float *f;         /* [rows][ld]; always there */
	LlmQ8Unit *q;     /* [rows][n_units] when forms has LLM_ACT_Q8 */
	LlmQ8Tile *tiles; /* the same as [ceil(rows / 16)][n_units] where products want it, else NULL */
	int32_t rows;
	int32_t cols;
	int32_t ld;      /* llm_cpu_act_ld(cols) */
	int32_t n_units; /* ceil(cols / 64) */
	int32_t forms;   /* LLM_ACT_* bits */
} LlmCpuAct;

typedef enum LlmCpuOpKind
{
	LLM_CPU_EMBED = 0,
	LLM_CPU_NORM,
	LLM_CPU_LINEAR, /* and the LlmLinearRole */
	LLM_CPU_LINEAR_LAST = LLM_CPU_LINEAR + LLM_LINEAR_N_ROLES - 1,
	LLM_CPU_GATE,
	LLM_CPU_ROPE,
	LLM_CPU_ATTENTION,
	LLM_CPU_QUANTISE,
	LLM_CPU_GATHER,
	LLM_CPU_SAMPLE,
	LLM_CPU_RECORD, /* no phase: the caller's thread between step_begin and the run */
	LLM_CPU_N_KINDS
} LlmCpuOpKind;

struct LlmCpuDevice;
struct LlmCpuOp;
typedef void (*LlmCpuOpFn)(struct LlmCpuDevice *dev, struct LlmCpuOp *op, int tid, int n_threads);

/* One phase: what it reads and writes; fields that its kind does not need are NULL. */
typedef struct LlmCpuOp
{
	LlmCpuOpFn run; /* NULL: another phase does it too */
	LlmCpuOpKind kind;
	LlmCpuAct *in;
	LlmCpuAct *in2; /* norm: what is added; rope: the table */
	LlmCpuAct *out;
	const LlmLinear *linear;
	const LlmNorm *norm;
	const LlmRope *rope; /* the table phase */
	LlmAttn attn;
	LlmKvPages *kv;
	const LlmSampling *sampling;
	const struct LlmCpuOp *then;  /* the next phase of the step, or NULL */
	const struct LlmCpuOp *after; /* the next product, or NULL */
	bool odd;                     /* phases of the step are even and odd in turn */
	_Atomic int32_t next;         /* work items taken, where threads take them as they come */
	int32_t block0;               /* attention: its blocks, in the device's list */
	int32_t n_blocks;
	int64_t n_splits; /* attention in even shares: of all heads; 0 = items as they come */
	const struct LlmCpuOp *turn; /* attention: the turning and storing that it does too, or NULL */
	double nbytes;               /* weights and KV read */
	double ops;                  /* multiply-adds counted as two */
} LlmCpuOp;

/* Adjacent rows of one sequence. */
typedef struct LlmCpuRun
{
	int32_t seq;
	int32_t row0;
	int32_t n_rows;
} LlmCpuRun;

/* Rows that attention treats together. */
typedef struct LlmCpuBlock
{
	int32_t run0; /* first of its runs in the device's list */
	int32_t n_runs;
	int32_t n_rows;                      /* of all runs, 1 .. LLM_CPU_BLOCK_ROWS */
	int32_t n_shared[LLM_KV_GROUPS_MAX]; /* leading pages that all runs have in common; 0 for one */
	int64_t cost;                        /* about what it takes: rows times pages */
} LlmCpuBlock;

/* Running sums of query vectors (rule R7). */
typedef struct LlmCpuSums
{
	float *m; /* maxima */
	float *l; /* sums of weights */
	float *o; /* [][v_stride] value sums */
} LlmCpuSums;

/* Scratch of one thread. */
typedef struct LlmCpuScratch
{
	LlmSampler *sampler;
	double waited[LLM_CPU_N_KINDS]; /* seconds at the barriers after phases of each kind */
	float *row;                     /* [max_cols] one row between two operations */
	LlmCpuSums sums;                /* [n_q] of an attention item */
	LlmCpuSums parts;               /* of single splits that await their fold */
	_Atomic int32_t n_done;         /* splits done of the head that the thread began last */
	_Atomic uint64_t taken[2]; /* items of its share of an even and an odd phase, see cpu_ops.c */
	int32_t *lo;               /* [n_q] visible range in a split */
	int32_t *hi;               /* [n_q] */
	const float **q;           /* [n_q] query vectors */
	uint8_t *queries;          /* [n_q] LlmAttnQuery: the same for I8 pages */
} LlmCpuScratch;

typedef struct LlmCpuDevice
{
	LlmDevice base;
	LlmPool *pool;         /* borrowed */
	LlmCpuThreads threads; /* how many of the pool's a step gets */
	const LlmKernels *kernels;
	LlmWeightStore weights;
	size_t ahead; /* bytes of weights that products of few rows fetch ahead */
	LlmKvPages kv[LLM_KV_GROUPS_MAX];
	int n_groups;

	LlmDeviceLimits limits; /* max_rows 0 before limits_set */
	uint8_t *arena;         /* [arena_nbytes] activations of a step */
	size_t arena_nbytes;
	size_t arena_used;
	uint8_t *scratch_data; /* memory of all scratch */
	size_t scratch_nbytes;
	int32_t max_q;             /* query vectors of an attention item that scratch can hold */
	int32_t max_o;             /* floats of scratch o */
	int32_t max_parts;         /* floats of scratch parts.o */
	LlmCpuScratch *scratch;    /* [n_threads] */
	LlmSampleOut *picks;       /* [max_out] */
	LlmCpuOp *ops;             /* [LLM_CPU_OPS_MAX] */
	LlmCpuBlock *blocks;       /* [2 * max_rows] of all rows, then of the wanted ones */
	LlmCpuRun *runs;           /* [2 * max_rows] likewise */
	uint8_t *wanted_rows;      /* [max_rows] */
	int32_t *order;            /* [max_seqs] sequences by their tables */
	bool share;                /* blocks may span sequences that share pages */
	atomic_bool *spoiled_rows; /* [max_rows] a K or V of the row had a NaN */
	uint8_t *spoiled_seqs;     /* [max_seqs] filled by step_wait */

	const LlmBatch *batch; /* borrowed from step_begin to step_wait; NULL outside */
	LlmCpuAct acts[LLM_CPU_ACTS_MAX];
	int32_t n_acts;
	int32_t n_ops;
	int32_t n_blocks; /* of all rows */
	int32_t n_runs;
	int32_t n_wanted_blocks; /* behind those; none when all rows are wanted */
	bool all_wanted;
	const LlmRope *rope;   /* whose table this step has made */
	LlmCpuAct *rope_table; /* [n_rows][2 * n_dims] cosines, signed sines */
	LlmCpuAct *gate;       /* gate | up between two phases; the next one may reuse it */
	LlmCpuAct *logits;     /* of the last sample op */
	uint64_t step;         /* number of the last step */
	LlmStatus status;      /* first failure while recording */
	LlmError error;

	LlmOpStat stats[LLM_CPU_N_KINDS]; /* waited comes from scratch */
	bool timed;                       /* stats have times, not counts alone */
	double begun;                     /* when the step began, if timed */
} LlmCpuDevice;

/* ---- cpu_step.c ---- */

LlmStatus llm_cpu_limits_set(LlmDevice *d, const LlmDeviceLimits *limits, LlmError *err);
void llm_cpu_arena_free(LlmCpuDevice *dev);
/* Floats between rows: whole lines of the cache, and an odd number of them, so that a column's rows lie
 * in different sets of the caches. */
int32_t llm_cpu_act_ld(int32_t cols);
/* Tiles per unit that an activation of some rows has; 0 = none. */
int32_t llm_cpu_act_n_tiles(const LlmCpuDevice *dev, int32_t rows);
LlmStatus llm_cpu_step_begin(LlmDevice *d, const LlmBatch *batch, LlmError *err);
LlmStatus llm_cpu_step_end(LlmDevice *d, uint64_t *step, LlmError *err);
LlmStatus llm_cpu_step_wait(LlmDevice *d, uint64_t step, LlmStepOut *out, LlmError *err);
/* Whether threads wait for each other behind a phase: the next one may read what others wrote in it.
 * Turning stores K and V for all. */
bool llm_cpu_waits(const LlmCpuOp *op, int n_threads);

/* ---- cpu_blocks.c ---- */

/* Cut a checked batch into blocks and runs; blocks cost less and less. The wanted rows follow in blocks and
 * runs of their own, unless they are all. */
void llm_cpu_blocks_set(LlmCpuDevice *dev, const LlmBatch *b);

/* ---- cpu_record.c: the recording half of LlmDeviceOps ---- */

LlmAct llm_cpu_act_create(LlmDevice *d, int32_t forms, int32_t rows, int32_t cols);
void llm_cpu_embed(LlmDevice *d, const LlmLinear *l, LlmAct out);
void llm_cpu_norm(LlmDevice *d, LlmAct residual, LlmAct add, const LlmNorm *norm, LlmAct out);
void llm_cpu_linear(LlmDevice *d, LlmAct x, const LlmLinear *l, LlmEpilogue epilogue, LlmAct out);
void llm_cpu_rope_kv_write(LlmDevice *d, LlmAct qkv, const LlmAttn *attn, LlmAct q);
void llm_cpu_attention(LlmDevice *d, LlmAct q, const LlmAttn *attn, LlmAct out);
void llm_cpu_gather_rows(LlmDevice *d, LlmAct x, LlmAct out);
void llm_cpu_sample(LlmDevice *d, LlmAct logits, const LlmSampling *sampling);

/* ---- cpu_ops.c: the phases ---- */

/* Whether in phases that work row by row each thread has the same rows to itself. */
bool llm_cpu_rows_own(int64_t n_rows, int n_threads);
/* First of a thread's rows; whole tiles when they are its own. */
int64_t llm_cpu_rows_share(int64_t n_rows, int tid, int n_threads);

/* Quantise n values of row r that begin at column c, a multiple of 64, in all forms that a has. */
void llm_cpu_quantise(const LlmCpuDevice *dev, const LlmCpuAct *a, int64_t r, int32_t c,
					  const float *x, int32_t n);

void llm_cpu_run_embed(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_norm(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_linear(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_linear_gate(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_gate(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_quantise(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_gather(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_sample(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);

/* ---- cpu_rope.c, cpu_attn.c, cpu_attn_shares.c: the phases of attention ---- */

void llm_cpu_run_rope_table(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
void llm_cpu_run_rope(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
/* Turn head h of q of row r, by a rope op. */
void llm_cpu_rope_q(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r, int32_t h, float *out);
/* Turn and store K of a head of row r, and store V. tmp [head_dim] */
void llm_cpu_rope_kv(LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r, int32_t kv_head, float *tmp);
void llm_cpu_run_attention(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads);
/* Let threads have even shares of an attention phase where they can, and let it do the phase before,
 * when that is its rope op. */
void llm_cpu_attention_share(LlmCpuDevice *dev, LlmCpuOp *op);

#endif
