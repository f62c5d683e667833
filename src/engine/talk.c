/* engine/talk.c - messages, template variables, and their rendering. */
#include "engine/talk.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- messages ---- */

static LlmStatus
role_check(LlmStr role, size_t i, LlmError *err)
{
	if (llm_str_eq(role, "user") || llm_str_eq(role, "assistant") || llm_str_eq(role, "system"))
		return LLM_OK;
	if (llm_str_eq(role, "tool"))
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "message %zu is of a tool, which is not supported yet", i + 1);
	llm_error_set(err, LLM_E_INVALID, "message %zu has an unknown role", i + 1);
	if (role.len > 0 && llm_utf8_valid(role.p, role.len))
		llm_error_detail(err, "The role is \"%.*s\".",
						 (int) llm_utf8_complete(role.p, role.len < 64 ? role.len : 64), role.p);
	llm_error_hint(err, "Roles are system, user and assistant.");
	return LLM_E_INVALID;
}

static LlmStatus
messages_check(const LlmRequest *r, LlmError *err)
{
	LlmStatus st = LLM_OK;

	if (r->n_messages < 1 || r->n_messages > LLM_MESSAGES_MAX)
	{
		llm_error_set(err, LLM_E_INVALID, "a conversation of %d messages, not 1 to %d",
					  r->n_messages, LLM_MESSAGES_MAX);
		llm_error_numbers(err, r->n_messages, LLM_MESSAGES_MAX);
		return LLM_E_INVALID;
	}
	if (r->prompt.len > 0 || r->system.p != NULL)
		return llm_error_set(err, LLM_E_INVALID,
							 "messages and a %s exclude each other: give that as a message, too",
							 r->prompt.len > 0 ? "prompt" : "system prompt");
	for (int32_t i = 0; st == LLM_OK && i < r->n_messages; i++)
		st = role_check(r->messages[i].role, (size_t) i, err);
	return st;
}

/* t->messages has room. */
static void
message_add(LlmTalk *t, LlmStr role, LlmStr content)
{
	LlmMessage *m = &t->messages[t->n++];

	*m = (LlmMessage){role, content};
	if (llm_str_eq(role, "user"))
		t->user = &m->content;
}

static LlmStatus
messages_arrange(LlmTalk *t, const LlmRequest *r, LlmError *err)
{
	size_t cap = r->messages != NULL ? (size_t) r->n_messages : 2;

	t->messages = malloc(cap * sizeof(*t->messages));
	if (t->messages == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a conversation");
	for (int32_t i = 0; r->messages != NULL && i < r->n_messages; i++)
		message_add(t, r->messages[i].role, r->messages[i].content);
	if (r->system.p != NULL)
		message_add(t, llm_str("system"), r->system);
	if (r->messages == NULL)
		message_add(t, llm_str("user"), r->prompt);
	return LLM_OK;
}

/* ---- variables ---- */

/* What the engine says itself, always or when `reasoning` is set. */
static const char *const own_names[] = {"messages",  "tools",     "add_generation_prompt",
										"bos_token", "eos_token", NULL};
static const char *const reasoning_names[] = {"enable_thinking", "thinking", "reasoning_effort",
											  NULL};

static LlmStatus
names_check(const json_t *kwargs, const char *const *names, const char *who, LlmError *err)
{
	for (; *names != NULL; names++)
		if (json_object_get(kwargs, *names) != NULL)
			return llm_error_set(err, LLM_E_INVALID, "template_kwargs may not set \"%s\": %s does",
								 *names, who);
	return LLM_OK;
}

/* JSON knows no bounds, its readers do. */
static const char *
kwargs_fault(const json_error_t *e)
{
	switch (json_error_code(e))
	{
		case json_error_numeric_overflow:
			return "template_kwargs has a number that is too large";
		case json_error_stack_overflow:
			return "template_kwargs is nested too deeply";
		default:
			return "template_kwargs is not a JSON object";
	}
}

static LlmStatus
kwargs_parse(LlmTalk *t, LlmStr text, LlmError *err)
{
	json_error_t e;

	if (text.len > LLM_KWARGS_NBYTES_MAX)
	{
		llm_error_set(err, LLM_E_INVALID, "template_kwargs has %zu bytes, more than %zu", text.len,
					  LLM_KWARGS_NBYTES_MAX);
		llm_error_numbers(err, (int64_t) text.len, (int64_t) LLM_KWARGS_NBYTES_MAX);
		return LLM_E_INVALID;
	}
	t->kwargs = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, &e);
	if (t->kwargs == NULL)
	{
		llm_error_set(err, LLM_E_INVALID, "%s", kwargs_fault(&e));
		llm_error_detail(err, "The fault is at byte %d.", e.position);
		return LLM_E_INVALID;
	}
	if (!json_is_object(t->kwargs))
		return llm_error_set(err, LLM_E_INVALID, "template_kwargs is not a JSON object");
	return names_check(t->kwargs, own_names, "the engine", err);
}

/* The names under which published templates ask: enable_thinking (Qwen 3, SmolLM3, GLM), thinking
 * (DeepSeek, Granite), reasoning_effort (gpt-oss). */
static LlmStatus
reasoning_set(LlmTalk *t, LlmReasoning reasoning, LlmError *err)
{
	static const char *const efforts[] = {[LLM_REASONING_LOW] = "low",
										  [LLM_REASONING_MEDIUM] = "medium",
										  [LLM_REASONING_HIGH] = "high"};
	bool on = reasoning != LLM_REASONING_OFF;
	LlmStatus st;

	if (reasoning == LLM_REASONING_DEFAULT)
		return LLM_OK;
	if (t->kwargs == NULL)
		t->kwargs = json_object();
	if ((st = names_check(t->kwargs, reasoning_names, "reasoning", err)) != LLM_OK)
		return st;
	if (json_object_set_new(t->kwargs, "enable_thinking", json_boolean(on)) != 0 ||
		json_object_set_new(t->kwargs, "thinking", json_boolean(on)) != 0 ||
		(reasoning >= LLM_REASONING_LOW &&
		 json_object_set_new(t->kwargs, "reasoning_effort", json_string(efforts[reasoning])) != 0))
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a conversation");
	return LLM_OK;
}

/* ---- the whole ---- */

LlmStatus
llm_talk_init(LlmTalk *t, const LlmRequest *r, LlmError *err)
{
	LlmStatus st = r->messages != NULL ? messages_check(r, err) : LLM_OK;

	memset(t, 0, sizeof(*t));
	if (st == LLM_OK)
		st = messages_arrange(t, r, err);
	if (st == LLM_OK && r->template_kwargs.p != NULL)
		st = kwargs_parse(t, r->template_kwargs, err);
	if (st == LLM_OK)
		st = reasoning_set(t, r->reasoning, err);
	if (st != LLM_OK)
		llm_talk_fini(t);
	return st;
}

void
llm_talk_fini(LlmTalk *t)
{
	free(t->messages);
	json_decref(t->kwargs);
	memset(t, 0, sizeof(*t));
}

LlmStatus
llm_talk_render(const LlmTalk *t, const LlmLoaded *m, LlmMarkedText *out, LlmError *err)
{
	LlmTemplateInput in = {.messages = t->messages,
						   .n_messages = t->n,
						   .kwargs = t->kwargs,
						   .bos_token = llm_tokenizer_text(m->tok, llm_tokenizer_bos(m->tok)),
						   .eos_token = llm_tokenizer_text(m->tok, llm_tokenizer_eos(m->tok)),
						   .add_generation_prompt = true,
						   .now = time(NULL)};

	return llm_template_render(m->tmpl, &in, out, err);
}
