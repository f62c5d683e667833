/*
 * engine/pinned.h - beginnings of prompts that stay in the prefix cache.
 *
 * A PIN names a text. Its ids are those that all prompts share whose user's message begins with the
 * text: the common beginning of the encodings of the text with several things that may follow. A PIN
 * runs as a request that has these as its prompt; when they are stored the scheduler pins them, and it
 * ends without an answer's tokens.
 */
#ifndef LLM_ENGINE_PINNED_H
#define LLM_ENGINE_PINNED_H

#include "core/status.h"
#include "engine/engine.h"

/* Append the ids that a PIN or UNPIN names. Errors: those of llm_prompt_encode, LLM_E_INVALID when
 * there are none, LLM_E_MEMORY. */
LlmStatus llm_pinned_encode(const LlmLoaded *m, const LlmRequest *q, LlmPrompt *out, LlmError *err);

/* What a PIN runs as. */
LlmRequest llm_pinned_request(const LlmRequest *q);

/* The prompt of a PIN is stored: pin it and end the request. */
void llm_pinned_end(LlmEngine *e, LlmReq *r);

#endif
