/* tokenizer/detok.h - ids to whole UTF-8 characters: bytes wait until their character is complete. */
#ifndef LLM_TOKENIZER_DETOK_H
#define LLM_TOKENIZER_DETOK_H

#include "tokenizer/tokenizer.h"

/* State of one stream of ids. Zero-initialise; nothing to free. */
typedef struct LlmDetok
{
	char wait[4]; /* bytes of an incomplete character */
	int n_wait;
} LlmDetok;

/* Append the characters that id completes. Bytes that can never become a character are replaced by
 * U+FFFD; NUL bytes are dropped (PostgreSQL text cannot hold them). with_control: control tokens
 * give their text (llm_detokenize does; generation does not). False when memory is out. */
bool llm_detok_push(LlmDetok *d, const LlmTokenizer *tok, int32_t id, bool with_control,
					LlmBuf *out);

/* End of the stream: an incomplete character is dropped. */
void llm_detok_end(LlmDetok *d);

#endif
