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

/*
 * Append the prompt of a GENERATE request to out: at most context_length - 1 tokens, so that there
 * is room for an answer. A longer one is LLM_E_CONTEXT with both numbers, or is truncated as the
 * request says: tokens are dropped at the beginning or the end of the *user's* text, never of what
 * the template puts around it, until there is room for max_tokens (half the context at most; a
 * quarter when max_tokens is open).
 *
 * Other errors: LLM_E_ENCODING, the template's own, LLM_E_INVALID for a system prompt where no
 * template can take it.
 */
LlmStatus llm_prompt_encode(const LlmLoaded *m, const LlmRequest *r, LlmTokens *out, LlmError *err);

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
