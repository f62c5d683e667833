/*
 * engine/choice.h - which tokens a request lets the sampler pick, and which of them end its answer.
 *
 * Never picked: what the vocabulary marks as unused, what `forbidden` names, and with `allowed` all
 * that it does not name - end tokens too, so that such an answer goes on to its length unless they
 * are allowed. Before min_tokens tokens are there, end tokens and stop tokens are not picked either;
 * with ignore_eos end tokens never are. Otherwise both end the answer and are no part of its text.
 *
 * Everything is checked and laid out at submit; a step only points to it.
 */
#ifndef LLM_ENGINE_CHOICE_H
#define LLM_ENGINE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "engine/llm.h"
#include "engine/loader.h"

/* Zero-initialise: everything may be picked and nothing ends the answer. */
typedef struct LlmChoice
{
	const LlmTokenBias *bias; /* [n_bias] */
	int32_t n_bias;
	const uint32_t *mask;       /* NULL = all, or bits [vocabulary of the model] */
	const int32_t *banned;      /* the model's own list, or a longer one: unused, end, stop ids */
	int32_t n_banned;           /* of banned, at every token */
	int32_t n_banned_early;     /* of banned, before min_tokens */
	const int32_t *stop_tokens; /* [n_stop_tokens] */
	int32_t n_stop_tokens;
	int32_t min_tokens;
	bool ignore_eos;
	void *memory; /* owned: all lists but the model's */
} LlmChoice;

/* From the lists of a request, which are copied. LLM_E_INVALID with the id and the vocabulary's size
 * for a token that is not in it, for a bias given twice or not finite, for a list over its bound, for
 * min_tokens over max_tokens, and when no token is left to begin with; LLM_E_MEMORY. On failure there
 * is nothing to free. */
LlmStatus llm_choice_init(LlmChoice *c, const LlmLoaded *m, const LlmRequest *r, LlmError *err);
void llm_choice_fini(LlmChoice *c);

/* Set bias, mask and bans of the row that picks token n_new of the answer, from 0. */
void llm_choice_row(const LlmChoice *c, int32_t n_new, LlmSampleRow *row);

/* True when a picked token ends the answer. */
bool llm_choice_ends(const LlmChoice *c, const LlmTokenizer *tok, int32_t token);

#endif
