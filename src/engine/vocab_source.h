/* engine/vocab_source.h - where a tokenizer's vocabulary comes from: a GGUF file, or a token per byte. */
#ifndef LLM_ENGINE_VOCAB_SOURCE_H
#define LLM_ENGINE_VOCAB_SOURCE_H

#include <stdint.h>

#include "core/status.h"
#include "model/gguf.h"
#include "tokenizer/tokenizer.h"

/* Tokenizer from the keys tokenizer.ggml.* of the file. Errors name the key. */
LlmStatus llm_vocab_source_gguf(const LlmGguf *g, LlmTokenizer **tok, LlmError *err);

/* Ids of a vocabulary with a token per byte, 0 .. 255, and three control tokens. */
typedef struct LlmByteVocab
{
	int32_t begin, end, turn; /* "<|begin|>", "<|im_end|>", "<|im_start|>" */
	int32_t n_vocab;          /* the ids that are left are unused */
} LlmByteVocab;

/* Tokenizer of a byte vocabulary. */
LlmStatus llm_vocab_source_bytes(const LlmByteVocab *b, LlmTokenizer **tok, LlmError *err);

/* Its chat template: turns of <|im_start|>role, content, <|im_end|>; an answer begins in <think>
 * when enable_thinking is true, after an empty thought when it is false. */
const char *llm_vocab_source_bytes_template(void);

#endif
