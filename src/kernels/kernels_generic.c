/* kernels/kernels_generic.c - the table of generic: row ops and attention in plain C. */
#include "kernels/dispatch.h"

#include "kernels/vec_generic.h"

#include "kernels/attn_int8.h"
#include "kernels/gemm.h"
#include "kernels/row_ops.h"

const LlmKernels llm_kernels_generic = {
	.isa = "generic",
	.n_streams = 1,
	.gemm_quant = llm_gemm_quant_generic,
	.gemm_float = llm_gemm_float_generic,
	.attn_split = op_attn_split,
	ROW_KERNELS,
};
