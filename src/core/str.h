/* core/str.h - borrowed text, growable bytes, and text whose pieces remember who wrote them. */
#ifndef LLM_CORE_STR_H
#define LLM_CORE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Borrowed bytes; not NUL-terminated, may hold any byte. p may be NULL when len is 0. */
typedef struct LlmStr
{
	const char *p;
	size_t len;
} LlmStr;

LlmStr llm_str(const char *z); /* borrows a C string; NULL gives the empty string */
bool llm_str_eq(LlmStr a, const char *z);

/* Growable bytes in malloc memory. Zero-initialise; llm_buf_fini frees. data is NUL-terminated
 * after every successful append, so it can be printed; data may be NULL while len is 0. */
typedef struct LlmBuf
{
	char *data; /* [cap] owned */
	size_t len; /* used bytes, without the terminator */
	size_t cap; /* allocated bytes */
} LlmBuf;

/* Append; false when memory is out (the content is unchanged). */
bool llm_buf_append(LlmBuf *b, const void *p, size_t n);
bool llm_buf_reserve(LlmBuf *b, size_t n_more);
void llm_buf_clear(LlmBuf *b); /* len = 0, memory kept */
void llm_buf_fini(LlmBuf *b);  /* frees; b may be used again */

/* A piece [begin, end) of a text. trusted = written by the template, so that its special tokens
 * may be recognised; user text is never trusted. Spans are ascending and cover the text. */
typedef struct LlmSpan
{
	size_t begin;
	size_t end;
	bool trusted;
} LlmSpan;

/* Text with spans: what a chat template renders and a tokenizer reads. Zero-initialise. */
typedef struct LlmMarkedText
{
	LlmBuf text;
	LlmSpan *spans; /* [n_spans] owned; adjacent spans differ in trusted */
	size_t n_spans;
	size_t cap_spans;
	bool dated; /* tells when it was made: another day's is another one */
} LlmMarkedText;

bool llm_marked_append(LlmMarkedText *m, const void *p, size_t n, bool trusted);
void llm_marked_fini(LlmMarkedText *m);

/* Growable int32 list: token ids. Zero-initialise. */
typedef struct LlmTokens
{
	int32_t *ids; /* [cap] owned */
	size_t len;
	size_t cap;
} LlmTokens;

bool llm_tokens_push(LlmTokens *t, int32_t id);
bool llm_tokens_append(LlmTokens *t, const int32_t *ids, size_t n);
void llm_tokens_fini(LlmTokens *t);

/* True when the bytes are valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool llm_utf8_valid(const char *p, size_t n);

/* Length of the longest prefix of p[0..n) that ends at a whole character; n itself when the tail
 * cannot become valid by more bytes (the caller then replaces it). */
size_t llm_utf8_complete(const char *p, size_t n);

#endif
