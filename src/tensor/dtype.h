/* tensor/dtype.h - element types of weights and KV: sizes, names, GGUF numbers. */
#ifndef LLM_TENSOR_DTYPE_H
#define LLM_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* Values are GGUF type numbers, so a file's number is checked, never translated. */
typedef enum LlmDtype
{
	LLM_DTYPE_F32 = 0,
	LLM_DTYPE_F16 = 1,
	LLM_DTYPE_Q4_0 = 2,
	LLM_DTYPE_Q4_1 = 3,
	LLM_DTYPE_Q5_0 = 6,
	LLM_DTYPE_Q5_1 = 7,
	LLM_DTYPE_Q8_0 = 8,
	LLM_DTYPE_Q4_K = 12,
	LLM_DTYPE_Q5_K = 13,
	LLM_DTYPE_Q6_K = 14,
	LLM_DTYPE_I8 = 24, /* KV only: weights of this type are refused */
	LLM_DTYPE_BF16 = 30
} LlmDtype;

/* One row of traits per supported type. */
typedef struct LlmDtypeInfo
{
	const char *name;     /* "Q4_1" */
	int32_t block;        /* elements per block along K: 1, 32 or 256 */
	int32_t block_nbytes; /* bytes of one block in the file */
} LlmDtypeInfo;

/* NULL when the type is not supported here. */
const LlmDtypeInfo *llm_dtype_info(uint32_t gguf_type);

/* Name of any GGUF type, also of those not supported (for errors); "unknown" otherwise. */
const char *llm_dtype_gguf_name(uint32_t gguf_type);

/* Bytes of a row of k elements; k must be a multiple of the block. */
size_t llm_dtype_row_nbytes(LlmDtype type, int64_t k);

#endif
