/* tokenizer/bpe.h - byte pair encoding of one word: merges by rank. */
#ifndef LLM_TOKENIZER_BPE_H
#define LLM_TOKENIZER_BPE_H

#include <stdatomic.h>

#include "tokenizer/vocab.h"

/* A word (a run that the pre-tokeniser does not cut) takes 32 bytes of scratch per byte; one longer
 * than this is refused. No context holds the tokens of such a word. */
#define LLM_BPE_WORD_NBYTES_MAX ((size_t) 8 << 20)

/* A merge: pair of ids -> rank and the id of both together. */
typedef struct LlmBpePair
{
	uint64_t key;  /* left << 32 | right; all ones = free */
	uint32_t rank; /* 0 = best */
	int32_t id;
} LlmBpePair;

/* Zero-initialise. After llm_bpe_init only `direct` changes: it learns, and any thread may teach it. */
typedef struct LlmBpe
{
	const LlmVocab *vocab; /* borrowed */
	LlmBpePair *pairs;     /* [mask + 1] open addressing; owned */
	uint64_t mask;
	int shift; /* of the 64-bit hash, down to the table's size */
	/* [vocab->n] 1 = a word of these bytes is known to be this token; owned */
	_Atomic uint8_t *direct;
} LlmBpe;

/* merges: [n_merges] "left right", best first. LLM_E_MODEL naming the rule for one without two parts,
 * with a part or a result that is no token, or a repeated one. A rule about a token that is neither
 * normal nor user-defined is left out: merging never makes a control token. The vocabulary must
 * outlive b. */
LlmStatus llm_bpe_init(LlmBpe *b, const LlmVocab *v, const LlmStr *merges, int32_t n_merges,
					   bool ignore_merges, LlmError *err);
void llm_bpe_fini(LlmBpe *b);

/* A symbol of the word while it is merged; the first of a pair carries the pair's rank. */
typedef struct LlmBpeNode
{
	int32_t id;
	uint32_t prev; /* index of the neighbours, UINT32_MAX = none */
	uint32_t next;
	uint32_t rank; /* of (this, next), UINT32_MAX = no merge, or this symbol is gone */
} LlmBpeNode;

/* Memory of one caller, kept from word to word. Zero-initialise. */
typedef struct LlmBpeScratch
{
	LlmBpeNode *nodes; /* [cap] */
	uint64_t *heap;    /* [2 * cap] rank << 32 | index, smallest first */
	size_t cap;
} LlmBpeScratch;

void llm_bpe_scratch_fini(LlmBpeScratch *s);

/* Append the ids of a word of n >= 1 bytes: O(n log n). LLM_E_ENCODING when the vocabulary lacks a
 * token for one of its bytes (out is then unchanged), LLM_E_INVALID for a word over the limit. */
LlmStatus llm_bpe_encode(const LlmBpe *b, LlmBpeScratch *s, const char *p, size_t n, LlmTokens *out,
						 LlmError *err);

#endif
