/* server/cli_prompts.c - read prompts from JSON lines, refusing what is not understood. */
#include "server/cli_prompts.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

LlmCliPrompt *
llm_cli_prompts_add(LlmCliPrompts *p, const LlmCliPrompt *base)
{
	LlmCliPrompt *q;

	if (p->n == p->cap)
	{
		size_t cap = p->cap == 0 ? 16 : p->cap * 2;
		LlmCliPrompt *list = realloc(p->list, cap * sizeof(*list));

		if (list == NULL)
			return NULL;
		p->list = list;
		p->cap = cap;
	}
	q = &p->list[p->n++];
	*q = *base;
	q->text = q->system = (LlmBuf){0};
	q->ids = (LlmTokens){0};
	q->has_system = false;
	return q;
}

static LlmStatus
text_read(const json_t *value, LlmBuf *out, LlmError *err)
{
	if (!json_is_string(value))
		return llm_error_set(err, LLM_E_INVALID, "a text is expected");
	if (!llm_buf_append(out, json_string_value(value), json_string_length(value)))
		return llm_error_set(err, LLM_E_MEMORY, "out of memory");
	return LLM_OK;
}

static LlmStatus
int_read(const json_t *value, int64_t min, int64_t max, int64_t *out, LlmError *err)
{
	if (!json_is_integer(value) || json_integer_value(value) < min ||
		json_integer_value(value) > max)
		return llm_error_set(err, LLM_E_INVALID, "a whole number between %lld and %lld is expected",
							 (long long) min, (long long) max);
	*out = json_integer_value(value);
	return LLM_OK;
}

static LlmStatus
bool_read(const json_t *value, bool *out, LlmError *err)
{
	if (!json_is_boolean(value))
		return llm_error_set(err, LLM_E_INVALID, "true or false is expected");
	*out = json_is_true(value);
	return LLM_OK;
}

static LlmStatus
ids_read(const json_t *value, LlmTokens *out, LlmError *err)
{
	LlmStatus status = LLM_OK;
	int64_t id = 0;

	if (!json_is_array(value) || json_array_size(value) == 0)
		return llm_error_set(err, LLM_E_INVALID, "a list of token ids is expected");
	for (size_t i = 0; status == LLM_OK && i < json_array_size(value); i++)
	{
		status = int_read(json_array_get(value, i), 0, INT32_MAX, &id, err);
		if (status == LLM_OK && !llm_tokens_push(out, (int32_t) id))
			status = llm_error_set(err, LLM_E_MEMORY, "out of memory");
	}
	return status;
}

static LlmStatus
field_read(LlmCliPrompt *q, const char *key, const json_t *value, LlmError *err)
{
	LlmStatus status;
	int64_t v = 0;

	if (strcmp(key, "prompt") == 0)
		return text_read(value, &q->text, err);
	if (strcmp(key, "system") == 0)
	{
		q->has_system = true;
		return text_read(value, &q->system, err);
	}
	if (strcmp(key, "ids") == 0)
		return ids_read(value, &q->ids, err);
	if (strcmp(key, "ignore_eos") == 0)
		return bool_read(value, &q->ignore_eos, err);
	if (strcmp(key, "raw") == 0)
		return bool_read(value, &q->raw, err);
	if (strcmp(key, "temperature") == 0)
	{
		if (!json_is_number(value) || json_number_value(value) < 0)
			return llm_error_set(err, LLM_E_INVALID, "a number of 0 or more is expected");
		q->temperature = (float) json_number_value(value);
		return LLM_OK;
	}
	if (strcmp(key, "max_tokens") == 0)
	{
		status = int_read(value, 0, INT32_MAX, &v, err);
		q->max_tokens = (int32_t) v;
		return status;
	}
	if (strcmp(key, "seed") == 0)
	{
		status = int_read(value, 0, INT64_MAX, &v, err);
		q->seed = (uint64_t) v;
		return status;
	}
	return llm_error_set(err, LLM_E_INVALID, "it is not known");
}

static LlmStatus
line_read(LlmCliPrompts *p, const char *line, size_t len, const LlmCliPrompt *base, LlmError *err)
{
	json_error_t e;
	json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, &e);
	LlmStatus status = LLM_OK;
	LlmCliPrompt *q;
	const char *key;
	json_t *value;

	if (!json_is_object(object))
	{
		json_decref(object);
		return llm_error_set(err, LLM_E_INVALID, "not a JSON object: %s",
							 object == NULL ? e.text : "another kind of value");
	}
	q = llm_cli_prompts_add(p, base);
	if (q == NULL)
		status = llm_error_set(err, LLM_E_MEMORY, "out of memory");
	json_object_foreach(object, key, value)
	{
		LlmError why;

		if (status == LLM_OK && (status = field_read(q, key, value, &why)) != LLM_OK)
			llm_error_set(err, status, "key \"%s\": %s", key, why.text);
	}
	if (status == LLM_OK && q->ids.len == 0 && json_object_get(object, "prompt") == NULL)
		status = llm_error_set(err, LLM_E_INVALID, "neither \"prompt\" nor \"ids\" is given");
	json_decref(object);
	return status;
}

LlmStatus
llm_cli_prompts_read(LlmCliPrompts *p, const char *path, const LlmCliPrompt *base, LlmError *err)
{
	FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	LlmStatus status = LLM_OK;
	size_t n_before = p->n, cap = 0;
	char *line = NULL;
	ssize_t len;

	if (f == NULL)
		return llm_error_set(err, LLM_E_IO, "could not open \"%s\": %s", path, strerror(errno));
	while (status == LLM_OK && (len = getline(&line, &cap, f)) >= 0)
	{
		LlmError why;

		p->n_lines++;
		if (line[strspn(line, " \t\r\n")] == '\0')
		{
			if (f == stdin && p->n > n_before)
				break;
			continue;
		}
		status = line_read(p, line, (size_t) len, base, &why);
		if (status != LLM_OK)
			llm_error_set(err, status, "%s, line %d: %s", path, p->n_lines, why.text);
	}
	if (status == LLM_OK && ferror(f))
		status = llm_error_set(err, LLM_E_IO, "could not read \"%s\"", path);
	free(line);
	if (f != stdin)
		fclose(f);
	return status;
}

void
llm_cli_prompts_fini(LlmCliPrompts *p)
{
	for (size_t i = 0; i < p->n; i++)
	{
		llm_buf_fini(&p->list[i].text);
		llm_buf_fini(&p->list[i].system);
		llm_tokens_fini(&p->list[i].ids);
	}
	free(p->list);
	memset(p, 0, sizeof(*p));
}
