/* tensor/dtype.c - the table of element types. Sizes: GGUF specification, ggml block formats. */
#include "tensor/dtype.h"

#include "tensor/block.h"

static const LlmDtypeInfo infos[] = {
	[LLM_DTYPE_F32] = {"F32", 1, 4},
	[LLM_DTYPE_F16] = {"F16", 1, 2},
	[LLM_DTYPE_Q4_0] = {"Q4_0", LLM_BLOCK, sizeof(LlmBlockQ4_0)},
	[LLM_DTYPE_Q4_1] = {"Q4_1", LLM_BLOCK, sizeof(LlmBlockQ4_1)},
	[LLM_DTYPE_Q5_0] = {"Q5_0", LLM_BLOCK, sizeof(LlmBlockQ5_0)},
	[LLM_DTYPE_Q5_1] = {"Q5_1", LLM_BLOCK, sizeof(LlmBlockQ5_1)},
	[LLM_DTYPE_Q8_0] = {"Q8_0", LLM_BLOCK, sizeof(LlmBlockQ8_0)},
	[LLM_DTYPE_Q4_K] = {"Q4_K", LLM_BLOCK_K, sizeof(LlmBlockQ4_K)},
	[LLM_DTYPE_Q5_K] = {"Q5_K", LLM_BLOCK_K, sizeof(LlmBlockQ5_K)},
	[LLM_DTYPE_Q6_K] = {"Q6_K", LLM_BLOCK_K, sizeof(LlmBlockQ6_K)},
	[LLM_DTYPE_BF16] = {"BF16", 1, 2},
};

const LlmDtypeInfo *
llm_dtype_info(uint32_t gguf_type)
{
	if (gguf_type >= sizeof(infos) / sizeof(infos[0]) || infos[gguf_type].name == NULL)
		return NULL;
	return &infos[gguf_type];
}

const char *
llm_dtype_gguf_name(uint32_t gguf_type)
{
	static const char *const names[] = {
		[0] = "F32",     [1] = "F16",      [2] = "Q4_0",   [3] = "Q4_1",    [6] = "Q5_0",
		[7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",   [10] = "Q2_K",   [11] = "Q3_K",
		[12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
		[17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
		[22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
		[27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
		[35] = "TQ2_0",  [39] = "MXFP4",
	};

	if (gguf_type >= sizeof(names) / sizeof(names[0]) || names[gguf_type] == NULL)
		return "unknown";
	return names[gguf_type];
}

size_t
llm_dtype_row_nbytes(LlmDtype type, int64_t k)
{
	const LlmDtypeInfo *info = &infos[type];

	return (size_t) (k / info->block) * (size_t) info->block_nbytes;
}
