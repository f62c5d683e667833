/* kernels/fgemm_avx512.c - products with float weights, AVX-512. */
#include "kernels/gemm.h"

#if defined(__x86_64__)

#include "kernels/vec_avx512.h"

#include "kernels/fgemm_tile.h"

void
llm_gemm_float_avx512(const LlmGemm *g)
{
	ftile_drive(g);
}

#endif
