/* kernels/linear.h - weights of the CPU device: fused parts, each repacked into panels. */
#ifndef LLM_KERNELS_LINEAR_H
#define LLM_KERNELS_LINEAR_H

#include <stdbool.h>

#include "core/pool.h"
#include "kernels/kernels.h"
#include "tensor/device.h"

#define LLM_LINEAR_PARTS_MAX 8

typedef struct LlmLinearPart
{
	LlmDtype type;
	int32_t n;           /* outputs */
	int32_t first_col;   /* output column of the linear */
	int32_t n_panels;    /* ceil(n / 16) */
	int32_t first_panel; /* counted over all parts */
	size_t panel_nbytes;
	uint8_t *w; /* [n_panels][panel_nbytes] owned by the weight store */
} LlmLinearPart;

struct LlmLinear
{
	struct LlmLinear *next; /* list of the store */
	int32_t k;              /* inputs */
	int32_t n;              /* outputs of all parts */
	int32_t n_panels;
	int32_t n_parts;
	int32_t forms; /* LLM_ACT_* bits that the input must have */
	bool is_embedding;
	LlmLinearRole role;
	size_t nbytes; /* of all panels */
	LlmLinearPart parts[LLM_LINEAR_PARTS_MAX];
};

/* Memory of all linears of a model: few big blocks, so that huge pages can back them. */
typedef struct LlmWeightStore
{
	struct LlmWeightChunk *chunks; /* newest first */
	struct LlmLinear *linears;     /* newest first */
	int64_t nbytes;                /* handed out */
} LlmWeightStore;

/* Check shapes (LLM_E_MODEL naming the weight), repack on all threads of the pool. */
LlmStatus llm_linear_create(LlmWeightStore *store, LlmPool *pool, const LlmWeightView *parts,
							int n_parts, const LlmLinearSpec *spec, LlmLinear **out, LlmError *err);
/* Whether huge pages lie behind all weights, as far as the system can tell; they are asked for again. */
bool llm_weight_store_huge(const LlmWeightStore *store);
/* How far ahead products of few rows fetch weights of so many bytes in all: LLM_FETCH_FAR, or
 * LLM_FETCH_MEMORY when the last cache does not hold them. */
size_t llm_weight_ahead(size_t nbytes);
/* Free all linears of the store; it can be used again. */
void llm_weight_store_fini(LlmWeightStore *store);

/* Row `row` of a one-part linear, dequantised: out [k]. */
void llm_linear_row(const LlmLinear *l, int32_t row, float *out);

/* Rows that a product reads. q or x may be NULL when no part reads it; rows are the units of k, or
 * ldx floats, apart. */
typedef struct LlmLinearInput
{
	const LlmQ8Unit *q;
	const LlmQ8Tile *tiles; /* see LlmGemm */
	const float *x;
	int32_t ldx;
	int32_t n_rows;
	const uint8_t *next; /* see LlmGemm */
	size_t ahead;        /* see LlmGemm */
} LlmLinearInput;

/* First panel of a thread's share, for products of all panels: shares are contiguous and static, so
 * that a thread reads the same weights in every step. */
int32_t llm_linear_share(const LlmLinear *l, int tid, int n_threads);

/* Weights of a panel, counted over all parts. */
const uint8_t *llm_linear_panel(const LlmLinear *l, int32_t panel);

/* y[m][ldy] = x W^T for panels begin..end, counted over all parts; y is column 0 of the linear. */
void llm_linear_run(const LlmKernels *kernels, const LlmLinear *l, const LlmLinearInput *in,
					int32_t begin, int32_t end, float *y, int32_t ldy);
/* The same for panels begin..end of both parts of a linear of gate and up, of which none has padding: gate
 * and up are the first columns of panel `begin`, in rows of one array. */
void llm_linear_gate_run(const LlmKernels *kernels, const LlmLinear *l, const LlmLinearInput *in,
						 int32_t begin, int32_t end, float *gate, float *up, int32_t ldy);

#endif
