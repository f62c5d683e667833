/* server/spec.c - reference-counted model specs. */
#include "server/spec.h"

#include <stdlib.h>
#include <string.h>

static void
spec_free(LlmSpec *s)
{
	free((char *) s->spec.path);
	free((char *) s->spec.chat_template);
	free((char *) s->spec.kv_type);
	free(s);
}

static bool
text_equal(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

LlmStatus
llm_spec_create(const Llm__ModelSpec *m, LlmSpec **out, LlmError *err)
{
	LlmSpec *s;

	if (m->has_context_length && m->context_length > INT32_MAX)
		return llm_error_set(err, LLM_E_PROTOCOL, "context length %u is out of range",
							 m->context_length);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a model spec");
	atomic_init(&s->refs, 1);
	s->spec.path = strdup(m->path);
	s->spec.chat_template = m->chat_template == NULL ? NULL : strdup(m->chat_template);
	s->spec.kv_type = m->kv_type == NULL ? NULL : strdup(m->kv_type);
	s->spec.context_length = m->has_context_length ? (int32_t) m->context_length : 0;
	if (s->spec.path == NULL || (m->chat_template != NULL && s->spec.chat_template == NULL) ||
		(m->kv_type != NULL && s->spec.kv_type == NULL))
	{
		spec_free(s);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a model spec");
	}
	*out = s;
	return LLM_OK;
}

LlmSpec *
llm_spec_retain(LlmSpec *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void
llm_spec_release(LlmSpec *s)
{
	if (s != NULL && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
		spec_free(s);
}

bool
llm_spec_equal(const LlmSpec *a, const LlmSpec *b)
{
	return a == b || (strcmp(a->spec.path, b->spec.path) == 0 &&
					  a->spec.context_length == b->spec.context_length &&
					  text_equal(a->spec.chat_template, b->spec.chat_template) &&
					  text_equal(a->spec.kv_type, b->spec.kv_type));
}
