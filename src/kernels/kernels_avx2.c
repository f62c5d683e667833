/* kernels/kernels_avx2.c - the table of avx2: row ops and attention over two registers. */
#include "kernels/dispatch.h"

#if defined(__x86_64__)

#include "kernels/vec_avx2.h"

#include "kernels/attn_int8.h"
#include "kernels/gemm.h"
#include "kernels/row_ops.h"

const LlmKernels llm_kernels_avx2 = {
	.isa = "avx2",
	.n_streams = 1,
	.gemm_quant = llm_gemm_quant_avx2,
	.gemm_float = llm_gemm_float_avx2,
	.attn_split = op_attn_split,
	ROW_KERNELS,
};

#endif
