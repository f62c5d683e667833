/* kernels/dispatch.h - the tables that dispatch.c chooses from. */
#ifndef LLM_KERNELS_DISPATCH_H
#define LLM_KERNELS_DISPATCH_H

#include "kernels/kernels.h"

extern const LlmKernels llm_kernels_generic;
#if defined(__x86_64__)
extern const LlmKernels llm_kernels_avx2;
extern const LlmKernels llm_kernels_avx512;
extern const LlmKernels llm_kernels_amx; /* AVX-512, with tiles for products of many rows */
#endif

#endif
