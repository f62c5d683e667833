/*
 * engine/prompt.h - a request's text to the ids that the model reads.
 *
 * Control tokens come from the template's own text only. BOS stands at the beginning exactly once
 * when the model adds it, whether the template writes it too or not.
 */
#ifndef LLM_ENGINE_PROMPT_H
#define LLM_ENGINE_PROMPT_H

#include "core/status.h"
#include "core/str.h"
#include "engine/llm.h"
#include "engine/loader.h"
#include "engine/think.h"

/* Zero-initialise. */
typedef struct LlmPrompt
{
	LlmTokens ids;       /* owned */
	LlmThinkState think; /* how its answer begins */
	bool dated;          /* the template asked for the time */
} LlmPrompt;

/*
 * Append the prompt of a GENERATE request to out: at most context_length - 1 tokens, so that there
 * is room for an answer. A longer one is LLM_E_CONTEXT with both numbers, or is truncated as the
 * request says: tokens are dropped at the beginning or the end of the *user's* text - of messages,
 * that of the user's last one - never of what stands around it, until there is room for max_tokens
 * (half the context at most; a quarter when max_tokens is open).
 *
 * Other errors: LLM_E_ENCODING, the template's own, those of llm_talk_init, LLM_E_INVALID for what
 * only a template can take where there is none.
 */
LlmStatus llm_prompt_encode(const LlmLoaded *m, const LlmRequest *r, LlmPrompt *out, LlmError *err);
void llm_prompt_fini(LlmPrompt *p);

/* Ids of plain text: no template, no BOS, no control tokens. */
LlmStatus llm_prompt_tokenize(const LlmLoaded *m, LlmStr text, LlmTokens *out, LlmError *err);

/* Text of ids, with that of control tokens; an incomplete character at the end is dropped.
 * LLM_E_INVALID naming an id that is not in the vocabulary. */
LlmStatus llm_prompt_detokenize(const LlmLoaded *m, const int32_t *ids, int32_t n, LlmBuf *out,
								LlmError *err);

/* The ids must be in the vocabulary and fewer than the context holds: LLM_E_INVALID,
 * LLM_E_CONTEXT. */
LlmStatus llm_prompt_check(const LlmLoaded *m, const int32_t *ids, int32_t n, LlmError *err);

#endif
