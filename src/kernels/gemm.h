/* kernels/gemm.h - the products of each instruction set; see LlmKernels for what they do. */
#ifndef LLM_KERNELS_GEMM_H
#define LLM_KERNELS_GEMM_H

#include "kernels/kernels.h"

void llm_gemm_quant_generic(const LlmGemm *g);
void llm_gemm_float_generic(const LlmGemm *g);
#if defined(__x86_64__)
void llm_gemm_quant_avx2(const LlmGemm *g);
void llm_gemm_float_avx2(const LlmGemm *g);
void llm_gemm_quant_avx512(const LlmGemm *g);
/* The same, but up to 6 rows read two panels at once, where the type has such tiles. */
void llm_gemm_quant_avx512_pairs(const LlmGemm *g);
void llm_gemm_float_avx512(const LlmGemm *g);
/* Rows from which on products read tiles; fewer are one or two AVX-512 tiles, and faster so. */
#define LLM_GEMM_AMX_ROWS (LLM_GEMM_FEW_ROWS + 1)
/* The system must have granted the tile registers to this process. */
void llm_gemm_quant_amx(const LlmGemm *g);
#endif

#endif
