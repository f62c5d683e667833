/* pg/token_keys.c - logit_bias, allowed_tokens, forbidden_tokens and stop_token_ids. */
#include "postgres.h"

#include "pg/token_keys.h"

#include <limits.h>

#include "pg/json_value.h"
#include "pg/option_keys.h"

#define BIAS_MAX 100.0 /* more than any logit is apart from another */

static bool
check_count(const char *key, int n, LlmFailure *f)
{
	return n <= LLM_TOKEN_KEYS_MAX ||
		   llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
						   "option \"%s\" has %d tokens, at most %d are allowed", key, n,
						   LLM_TOKEN_KEYS_MAX);
}

/* A list of token ids, palloc'd [n]. */
static bool
read_tokens(const char *key, const JsonbValue *v, int32 **ids, size_t *n, LlmFailure *f)
{
	int count;
	JsonbIterator *it = llm_json_array(v, &count);
	JsonbValue element;
	int64 id;

	if (it == NULL)
		return llm_options_refuse(f, key, "an array of token ids");
	if (!check_count(key, count, f))
		return false;
	*ids = palloc(sizeof(int32) * Max(count, 1));
	*n = 0;
	while (llm_json_next_element(&it, &element))
	{
		if (!llm_json_int(&element, &id) || id < 0 || id > INT_MAX)
			return llm_options_refuse(f, key, "an array of token ids");
		(*ids)[(*n)++] = (int32) id;
	}
	return true;
}

/* A token id as the name of a member: decimal digits, as to_char would write them. */
static bool
token_of_name(const JsonbValue *name, int32 *id)
{
	char *s = llm_json_string(name);
	Size n = strlen(s);
	long v;

	if (n < 1 || n > 10 || strspn(s, "0123456789") != n || (n > 1 && s[0] == '0'))
		return false;
	v = strtol(s, NULL, 10);
	*id = (int32) v;
	return v <= INT_MAX;
}

bool
llm_token_keys_bias(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int count;
	JsonbIterator *it = llm_json_object(v, &count);
	Llm__Submit *m = &o->rest;
	JsonbValue name;
	JsonbValue value;
	double bias;

	if (it == NULL)
		return llm_options_refuse(f, key, "an object of biases by token id");
	if (!check_count(key, count, f))
		return false;
	m->bias_token = palloc(sizeof(int32) * Max(count, 1));
	m->bias = palloc(sizeof(float) * Max(count, 1));
	while (llm_json_next_member(&it, &name, &value))
	{
		if (!token_of_name(&name, &m->bias_token[m->n_bias_token]))
			return llm_options_refuse(f, key, "an object of biases by token id");
		if (!llm_json_real(&value, &bias) || bias < -BIAS_MAX || bias > BIAS_MAX)
			return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
								   "bias of token %d in option \"%s\" must be between %g and %g",
								   m->bias_token[m->n_bias_token], key, -BIAS_MAX, BIAS_MAX);
		m->bias[m->n_bias++] = (float) bias;
		m->n_bias_token++;
	}
	return true;
}

bool
llm_token_keys_allowed(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	if (!read_tokens(key, v, &o->rest.allowed, &o->rest.n_allowed, f))
		return false;
	/* For the engine an empty list is none. */
	return o->rest.n_allowed > 0 || llm_options_refuse(f, key, "an array of at least one token id");
}

bool
llm_token_keys_forbidden(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	return read_tokens(key, v, &o->rest.forbidden, &o->rest.n_forbidden, f);
}

bool
llm_token_keys_stop(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	return read_tokens(key, v, &o->rest.stop_token, &o->rest.n_stop_token, f);
}
