/* tokenizer/pretok.h - cuts text into the words inside which byte pairs are merged. */
#ifndef LLM_TOKENIZER_PRETOK_H
#define LLM_TOKENIZER_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/* What the name tokenizer.ggml.pre stands for. */
typedef struct LlmPretokKind
{
	const char *pattern; /* PCRE2; matches at every position, so nothing lies between two words */
	bool ignore_merges;  /* a word that is a token is that token, whatever the merges say */
	bool adds_bos;       /* when the file does not say */
} LlmPretokKind;

/* NULL when the name is not known. */
const LlmPretokKind *llm_pretok_find(const char *name);

typedef struct LlmPretok LlmPretok; /* a compiled pattern; immutable, shared by threads */

LlmStatus llm_pretok_create(const LlmPretokKind *kind, LlmPretok **out, LlmError *err);
void llm_pretok_free(LlmPretok *t);

/* One walk over one piece of text; made for a call, used by one thread. */
typedef struct LlmPretokWalk LlmPretokWalk;

/* NULL when memory is out. max_len: the longest piece that will be walked, in bytes. */
LlmPretokWalk *llm_pretok_walk_create(const LlmPretok *t, size_t max_len);
void llm_pretok_walk_free(LlmPretokWalk *w);

/* End of the word that begins at p[begin], begin < len; p[0..len) is valid UTF-8 and begin a
 * character's first byte. LLM_E_INTERNAL or LLM_E_MEMORY when the matcher gives up. */
LlmStatus llm_pretok_next(LlmPretokWalk *w, const char *p, size_t len, size_t begin, size_t *end,
						  LlmError *err);

#endif
