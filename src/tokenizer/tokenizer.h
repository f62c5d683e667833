/*
 * tokenizer/tokenizer.h - text to token ids and back.
 *
 * Knows no file format: a loader hands it the vocabulary as arrays. A tokenizer is immutable after
 * creation. Two rules that callers rely on: a control token is recognised only inside a trusted span
 * (text that the chat template wrote), so user text never yields one; and pre-tokenisation runs over
 * the text as a whole, so the ids equal those of the reference for the joined text.
 */
#ifndef LLM_TOKENIZER_TOKENIZER_H
#define LLM_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"

/* Token types as GGUF numbers them. */
enum
{
	LLM_TOKEN_NORMAL = 1,
	LLM_TOKEN_UNKNOWN = 2,
	LLM_TOKEN_CONTROL = 3,
	LLM_TOKEN_USER_DEFINED = 4,
	LLM_TOKEN_UNUSED = 5,
	LLM_TOKEN_BYTE = 6
};

/* A vocabulary as its file gives it; borrowed for the call of llm_tokenizer_create. */
typedef struct LlmVocabSpec
{
	const char *model; /* tokenizer.ggml.model: "gpt2" is supported */
	const char
		*pre; /* tokenizer.ggml.pre: gpt-2, smollm, starcoder, llama-bpe, ...; NULL when absent */
	int32_t n_vocab;
	const LlmStr *text;   /* [n_vocab] */
	const int32_t *type;  /* NULL = all normal, or [n_vocab] LLM_TOKEN_* */
	const LlmStr *merges; /* [n_merges] "left right", best first */
	int32_t n_merges;
	int64_t bos, eos, eot, eom; /* ids, -1 = the model has none */
	int32_t add_bos;            /* 1, 0, or -1 when the file does not say */
} LlmVocabSpec;

typedef struct LlmTokenizer LlmTokenizer;

/* Checks everything: LLM_E_MODEL naming the key for an unknown model or pre-tokeniser (never a
 * guess), ids out of range, merges that name no token, duplicate or overlong tokens. */
LlmStatus llm_tokenizer_create(const LlmVocabSpec *spec, LlmTokenizer **out, LlmError *err);
void llm_tokenizer_free(LlmTokenizer *tok);

/* Append the ids of text to out; no BOS or EOS is added. spans (ascending, covering the text) say
 * which pieces are trusted; n_spans 0 = nothing is. LLM_E_ENCODING for invalid UTF-8. Time is
 * O(n log n) in the length of a pre-token. */
LlmStatus llm_tokenizer_encode(const LlmTokenizer *tok, LlmStr text, const LlmSpan *spans,
							   size_t n_spans, LlmTokens *out, LlmError *err);

/* The bytes that a token stands for; empty for control tokens unless with_control. Borrowed. An id
 * out of range gives the empty string. */
LlmStr llm_tokenizer_piece(const LlmTokenizer *tok, int32_t id, bool with_control);

int32_t llm_tokenizer_vocab_size(const LlmTokenizer *tok);
int32_t llm_tokenizer_bos(const LlmTokenizer *tok); /* -1 = none */
int32_t llm_tokenizer_eos(const LlmTokenizer *tok); /* -1 = none */
bool llm_tokenizer_adds_bos(const LlmTokenizer *tok);
/* Marked as unused by the file: never to be generated. id within the vocabulary. */
bool llm_tokenizer_is_unused(const LlmTokenizer *tok, int32_t id);
/* Text of the token as the vocabulary writes it (for bos_token, eos_token in templates). */
LlmStr llm_tokenizer_text(const LlmTokenizer *tok, int32_t id);

/* Ids that end a turn: eos, eot, eom and the known end-of-turn control tokens of the vocabulary.
 * Borrowed; ascending. */
const int32_t *llm_tokenizer_end_ids(const LlmTokenizer *tok, int32_t *n);
bool llm_tokenizer_is_end(const LlmTokenizer *tok, int32_t id);

#endif
