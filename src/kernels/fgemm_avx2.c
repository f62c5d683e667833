/* kernels/fgemm_avx2.c - products with float weights, AVX2. */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include "kernels/vec_avx2.h"

#include "kernels/fgemm_tile.h"

void
llm_gemm_float_avx2(const LlmGemm *g)
{
	ftile_drive(g);
}

#endif
