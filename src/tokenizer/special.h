/* tokenizer/special.h - finds the tokens that are recognised as text: control and user-defined. */
#ifndef LLM_TOKENIZER_SPECIAL_H
#define LLM_TOKENIZER_SPECIAL_H

#include "tokenizer/vocab.h"

/* Zero-initialise; immutable after llm_special_init. */
typedef struct LlmSpecials
{
	const LlmVocab *vocab; /* borrowed */
	int32_t *ids;          /* [first[256]] sorted by the bytes of their text; owned */
	int32_t first[257];    /* ids[first[c]..first[c + 1]) begin with byte c */
} LlmSpecials;

/* LLM_E_MEMORY only. The vocabulary must outlive s. */
LlmStatus llm_special_init(LlmSpecials *s, const LlmVocab *v, LlmError *err);
void llm_special_fini(LlmSpecials *s);

/* The longest token whose text begins at text[pos], -1 = none. Control and unknown tokens count only
 * when they end at or before trust_end; user-defined ones anywhere. */
int32_t llm_special_match(const LlmSpecials *s, LlmStr text, size_t pos, size_t trust_end);

#endif
