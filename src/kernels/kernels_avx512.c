/* kernels/kernels_avx512.c - the tables of avx512 and amx: row ops and attention over 16 lanes in one
 * register. */
#include "kernels/dispatch.h"

#if defined(__x86_64__)

#include "kernels/vec_avx512.h"

#include "kernels/attn_amx.h"
#include "kernels/gemm.h"
#include "kernels/row_ops.h"

const LlmKernels llm_kernels_avx512 = {
	.isa = "avx512",
	.n_streams = 1,
	.gemm_quant = llm_gemm_quant_avx512,
	.gemm_float = llm_gemm_float_avx512,
	.attn_split = op_attn_split,
	ROW_KERNELS,
};

const LlmKernels llm_kernels_amx = {
	.isa = "amx",
	.tile_rows = LLM_GEMM_AMX_ROWS,
	.n_streams = 2,
	.gemm_quant = llm_gemm_quant_amx,
	.gemm_float = llm_gemm_float_avx512,
	.attn_split = op_attn_split_amx,
	ROW_KERNELS,
};

#endif
