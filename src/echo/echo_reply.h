/* echo/echo_reply.h - what the echo device answers: a pure function of the prompt's tokens. */
#ifndef LLM_ECHO_ECHO_REPLY_H
#define LLM_ECHO_ECHO_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

/* Directives and reply of one prompt. */
typedef struct LlmEchoReply
{
	const char *text;   /* [len] in the caller's scratch, or seed_text: do not copy the struct */
	int32_t len;        /* bytes of text; may be 0 */
	int32_t n_bytes;    /* bytes to say before the end token */
	int32_t delay_ms;   /* before the first token */
	int32_t slow_ms;    /* per token */
	bool nan;           /* fail as NaN logits do */
	bool crash;         /* abort the process */
	bool hang;          /* never return */
	LlmStatus status;   /* not LLM_OK: the row fails */
	char message[80];   /* with this */
	char seed_text[24]; /* the text of @seed */
} LlmEchoReply;

/* Read prompt [n]. scratch [n] bytes keep the text. Directives that are unknown or out of range make
 * the row fail with LLM_E_INVALID. */
void llm_echo_reply_parse(const int32_t *prompt, int32_t n, uint64_t seed, char *scratch,
						  LlmEchoReply *out);

/* Token i of the reply; LLM_ECHO_EOS at its end, or the text again and again when endless. */
int32_t llm_echo_reply_token(const LlmEchoReply *r, int32_t i, bool endless);

#endif
