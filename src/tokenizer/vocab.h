/*
 * tokenizer/vocab.h - the tokens of a byte-level vocabulary: id to bytes and bytes to id.
 *
 * A normal token is written in the file with the 256 printable stand-ins for bytes of GPT-2; what it
 * stands for is kept beside it. Tokens of every other type stand for their own text.
 */
#ifndef LLM_TOKENIZER_VOCAB_H
#define LLM_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"
#include "core/status.h"
#include "core/str.h"
#include "tokenizer/tokenizer.h"

/* No published vocabulary comes near it; the longest runs of spaces and dashes take some 500. */
#define LLM_VOCAB_TOKEN_NBYTES_MAX 4096

/* One past the highest stand-in: the 68 bytes that are not printable follow code point 255. */
#define LLM_VOCAB_STAND_INS 324

/* A slot of the table from bytes to id. */
typedef struct LlmVocabSlot
{
	uint32_t tag; /* upper half of the hash: spares most comparisons */
	int32_t id;   /* -1 = free */
} LlmVocabSlot;

/* Zero-initialise; immutable after llm_vocab_init. */
typedef struct LlmVocab
{
	LlmArena arena;         /* owns everything below */
	int32_t n;              /* number of tokens, at least 1 */
	LlmStr *text;           /* [n] as the file writes it */
	LlmStr *bytes;          /* [n] what it stands for */
	uint8_t *type;          /* [n] LLM_TOKEN_* */
	bool *mapped;           /* [n] written in stand-ins: encoding may produce it */
	int32_t byte_id[256];   /* normal token of each single byte, -1 = the vocabulary has none */
	LlmVocabSlot *by_bytes; /* [mask + 1] open addressing, linear probing */
	uint32_t mask;
	int16_t map[LLM_VOCAB_STAND_INS]; /* byte of each code point, -1 = no stand-in */
} LlmVocab;

/* Copy and check the tokens of spec. LLM_E_MODEL: none at all, an overlong token, one that is not
 * UTF-8, a type that byte-level vocabularies do not have, two tokens of one text. Empty texts are
 * legal (published files have them): such a token is never produced. After an error too the vocabulary
 * may only be handed to llm_vocab_fini. */
LlmStatus llm_vocab_init(LlmVocab *v, const LlmVocabSpec *spec, LlmError *err);
void llm_vocab_fini(LlmVocab *v);

/* The token that stands for these bytes, -1 when there is none. When several do, a normal one goes
 * before a user-defined one, and that before any other. */
int32_t llm_vocab_find(const LlmVocab *v, const char *p, size_t n);

/* GPT-2's stand-ins to bytes: at most s.len bytes into out, their number into *n. False when a
 * character is no stand-in. s must be valid UTF-8. */
bool llm_vocab_unmap(const LlmVocab *v, LlmStr s, char *out, size_t *n);

#endif
