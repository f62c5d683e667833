/*
 * engine/talk.h - a request's words as a conversation, and the variables that its template sees.
 *
 * Prompt and system prompt are a conversation of one or two messages. Of a longer one, the last
 * message of the user is the part that truncation may shorten.
 */
#ifndef LLM_ENGINE_TALK_H
#define LLM_ENGINE_TALK_H

#include <jansson.h>
#include <stddef.h>

#include "core/status.h"
#include "core/str.h"
#include "engine/llm.h"
#include "engine/loader.h"
#include "template/template.h"

#define LLM_KWARGS_NBYTES_MAX ((size_t) 64 << 10)

/* Zero-initialise. */
typedef struct LlmTalk
{
	LlmMessage *messages; /* [n] owned; the text is the request's */
	size_t n;
	LlmStr *user;   /* content of the last message of the user, NULL = there is none */
	json_t *kwargs; /* NULL = none; owned */
} LlmTalk;

/*
 * Check and arrange a templated request. LLM_E_INVALID: no messages or too many, a role that is not
 * known, messages beside a prompt or a system prompt, template_kwargs that are no JSON object, too
 * long, or name a variable that the engine sets itself. LLM_E_UNSUPPORTED: messages of a tool.
 * LLM_E_MEMORY. On failure there is nothing to free.
 */
LlmStatus llm_talk_init(LlmTalk *t, const LlmRequest *r, LlmError *err);
void llm_talk_fini(LlmTalk *t);

/* By the model's template, with the beginning of an answer; appended to out. */
LlmStatus llm_talk_render(const LlmTalk *t, const LlmLoaded *m, LlmMarkedText *out, LlmError *err);

#endif
