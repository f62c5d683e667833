/*
 * fuzz_gguf.c - libFuzzer target: any bytes as a GGUF file, read as far as a loader would.
 *
 * links: model tensor core
 *
 * Build with -fsanitize=fuzzer,address,undefined. The input is handed over as the exact block that
 * libFuzzer allocated, so that a read past its end is seen.
 */
#include <stddef.h>
#include <stdint.h>

#include "model/gguf.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

volatile uint64_t llm_fuzz_sink; /* keeps the reads from being optimised away */

/* Touch what a key of the vocabulary points at. */
static uint64_t
arrays_read(const LlmGguf *g)
{
	const LlmStr *tokens;
	const int32_t *types;
	LlmStr text = {0};
	uint64_t n = 0, sum = 0;

	if (llm_gguf_str_array(g, "tokenizer.ggml.tokens", true, &tokens, &n, NULL) == LLM_OK)
		for (uint64_t i = 0; i < n; i++)
			sum += tokens[i].len > 0 ? (uint8_t) tokens[i].p[tokens[i].len - 1] : 0;
	if (llm_gguf_i32_array(g, "tokenizer.ggml.token_type", true, &types, &n, NULL) == LLM_OK)
		for (uint64_t i = 0; i < n; i++)
			sum += (uint64_t) types[i];
	if (llm_gguf_str(g, "tokenizer.chat_template", false, &text, NULL) == LLM_OK && text.len > 0)
		sum += (uint8_t) text.p[text.len - 1];
	return sum;
}

/* First and last byte of every tensor. */
static uint64_t
tensors_read(const LlmGguf *g)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < llm_gguf_n_tensors(g); i++)
	{
		LlmWeightView v;

		if (!llm_gguf_tensor(g, llm_gguf_tensor_name(g, i), &v))
			continue;
		sum += v.data[0];
		sum += v.data[(size_t) v.rows * llm_dtype_row_nbytes(v.type, v.cols) - 1];
	}
	return sum;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	LlmModelConfig config;
	LlmError err;
	LlmGguf *g;

	if (llm_gguf_open_memory(data, nbytes, &g, &err) != LLM_OK)
		return 0;
	llm_fuzz_sink += arrays_read(g) + tensors_read(g);
	if (llm_model_config_read(g, &config, &err) == LLM_OK)
		llm_fuzz_sink += (uint64_t) config.dim;
	llm_gguf_close(g);
	return 0;
}
