/* pg/option_keys.c - keys of the options jsonb: a table of names and readers. */
#include "postgres.h"

#include "pg/option_keys.h"

#include <limits.h>
#include <math.h>

#include "pg/guc.h"
#include "pg/json_value.h"
#include "pg/token_keys.h"
#include "utils/formatting.h"
#include "utils/guc.h"
#include "utils/varlena.h"

static bool
key_int_range(const char *key, const JsonbValue *v, int64 low, int64 high, int64 *out,
			  LlmFailure *f)
{
	if (llm_json_int(v, out) && *out >= low && *out <= high)
		return true;
	return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
						   "option \"%s\" must be a whole number between " INT64_FORMAT
						   " and " INT64_FORMAT,
						   key, low, high);
}

/* ---- one reader per key ---- */

static bool
read_model(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	if (v->type != jbvString)
		return llm_options_refuse(f, key, "a string");
	if (o->model == NULL)
		o->model = llm_json_string(v);
	return true;
}

static bool
read_system_prompt(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	if (v->type != jbvString)
		return llm_options_refuse(f, key, "a string");
	if (o->system_prompt == NULL)
		o->system_prompt = llm_json_string(v);
	return true;
}

static bool
read_max_tokens(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int64 n;

	if (!key_int_range(key, v, 0, INT_MAX, &n, f))
		return false;
	return o->has_max_tokens || llm_options_set_max_tokens(o, key, n, f);
}

static bool
read_temperature(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	double d;

	if (!llm_json_real(v, &d))
		return llm_options_refuse(f, key, "a number");
	return o->has_temperature || llm_options_set_temperature(o, key, d, f);
}

static bool
read_seed(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int64 n;

	if (!key_int_range(key, v, PG_INT64_MIN, PG_INT64_MAX, &n, f))
		return false;
	if (!o->has_seed)
		o->seed = n;
	o->has_seed = true;
	return true;
}

static bool
read_stop_array(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int n;
	JsonbIterator *it = llm_json_array(v, &n);
	JsonbValue elem;

	if (it == NULL)
		return llm_options_refuse(f, key, "a string or an array of strings");
	if (!llm_options_begin_stops(o, key, n, f))
		return false;
	while (llm_json_next_element(&it, &elem))
	{
		if (elem.type != jbvString)
			return llm_options_refuse(f, key, "a string or an array of strings");
		if (!llm_options_add_stop(o, key, llm_json_string(&elem), f))
			return false;
	}
	return true;
}

static bool
read_stop(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	if (o->n_stops >= 0)
		return true;
	if (v->type == jbvString)
		return llm_options_begin_stops(o, key, 1, f) &&
			   llm_options_add_stop(o, key, llm_json_string(v), f);
	return read_stop_array(o, key, v, f);
}

static bool
read_on_error(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	if (v->type != jbvString)
		return llm_options_refuse(f, key, "error or null");
	return o->has_on_error || llm_options_set_on_error(o, key, llm_json_string(v), f);
}

/* Milliseconds, or a string with a unit. */
static bool
read_timeout(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int64 n = -1;
	int ms;

	if (v->type == jbvString && parse_int(llm_json_string(v), &ms, GUC_UNIT_MS, NULL))
		n = ms;
	else if (!llm_json_int(v, &n))
		n = -1;
	if (n < 0 || n > INT_MAX)
		return llm_options_refuse(f, key, "milliseconds or a string such as \"30s\"");
	o->has_timeout = true;
	o->timeout_ms = (int) n;
	return true;
}

static bool
read_truncate(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	const char *s = v->type == jbvString ? llm_json_string(v) : "";

	o->rest.has_truncate = true;
	if (strcmp(s, "error") == 0)
		o->rest.truncate = LLM__TRUNCATE__TRUNCATE_ERROR;
	else if (strcmp(s, "left") == 0)
		o->rest.truncate = LLM__TRUNCATE__TRUNCATE_LEFT;
	else if (strcmp(s, "right") == 0)
		o->rest.truncate = LLM__TRUNCATE__TRUNCATE_RIGHT;
	else
		return llm_options_refuse(f, key, "error, left or right");
	return true;
}

static bool
refuse_unbuilt(const char *key, LlmFailure *f)
{
	return llm_failure_set(f, ERRCODE_FEATURE_NOT_SUPPORTED, "option \"%s\" is not supported yet",
						   key);
}

/* llm_job_submit has taken it out. */
static bool
refuse_job_key(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE, "option \"%s\" is for jobs alone", key);
	llm_failure_hint(f, "Give it to llm_job_submit.");
	return false;
}

static bool
read_reasoning(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	static const struct
	{
		const char *name;
		Llm__Reasoning value;
	} names[] = {
		{"off", LLM__REASONING__REASONING_OFF},   {"on", LLM__REASONING__REASONING_ON},
		{"low", LLM__REASONING__REASONING_LOW},   {"medium", LLM__REASONING__REASONING_MEDIUM},
		{"high", LLM__REASONING__REASONING_HIGH},
	};

	for (Size i = 0; i < lengthof(names); i++)
		if (llm_json_string_is(v, names[i].name))
		{
			o->rest.has_reasoning = true;
			o->rest.reasoning = names[i].value;
			return true;
		}
	return llm_options_refuse(f, key, "off, on, low, medium or high");
}

static bool
read_n(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int64 n;

	if (!key_int_range(key, v, 1, LLM_OPTIONS_N_MAX, &n, f))
		return false;
	o->n = (int) n;
	return true;
}

static bool
read_top_logprobs(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	int64 n;

	if (!key_int_range(key, v, 0, LLM_OPTIONS_TOP_LOGPROBS_MAX, &n, f))
		return false;
	o->rest.has_top_logprobs = true;
	o->rest.top_logprobs = (int32) n;
	return true;
}

static bool
read_template_kwargs(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	if (llm_json_object(v, NULL) == NULL)
		return llm_options_refuse(f, key, "a JSON object");
	o->template_kwargs = JsonbToCString(NULL, v->val.binary.data, v->val.binary.len);
	return true;
}

typedef struct OptionKey
{
	const char *name;
	/* NULL = known, but not built */
	bool (*read)(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f);
} OptionKey;

static const OptionKey keys[] = {
	{"model", read_model},
	{"system_prompt", read_system_prompt},
	{"max_tokens", read_max_tokens},
	{"temperature", read_temperature},
	{"seed", read_seed},
	{"stop", read_stop},
	{"response_format", NULL},
	{"on_error", read_on_error},
	{"truncate", read_truncate},
	{"timeout", read_timeout},
	{"reasoning", read_reasoning},
	{"n", read_n},
	{"top_logprobs", read_top_logprobs},
	{"logit_bias", llm_token_keys_bias},
	{"allowed_tokens", llm_token_keys_allowed},
	{"forbidden_tokens", llm_token_keys_forbidden},
	{"stop_token_ids", llm_token_keys_stop},
	{"template_kwargs", read_template_kwargs},
	{"not_before", refuse_job_key},
	{"max_attempts", refuse_job_key},
	{"adapter", NULL},
	{"tools", NULL},
	{"tool_choice", NULL},
};

/* Values that go to the engine as they are. */
typedef struct PlainKey
{
	const char *name;
	enum
	{
		PLAIN_BOOL,
		PLAIN_INT,  /* int32, low .. high */
		PLAIN_REAL, /* float, low .. high */
		PLAIN_ABOVE /* float, above low .. high */
	} type;
	double low;
	double high;
	Size value_offset; /* in Llm__Submit */
	Size has_offset;   /* of its protobuf_c_boolean */
} PlainKey;

#define PLAIN_KEY(field, type, low, high)                                                          \
	{                                                                                              \
#field, type, low, high, offsetof(Llm__Submit, field), offsetof(Llm__Submit, has_##field)  \
	}

static const PlainKey plain_keys[] = {
	PLAIN_KEY(top_p, PLAIN_ABOVE, 0, 1),
	PLAIN_KEY(min_p, PLAIN_REAL, 0, 1),
	PLAIN_KEY(repetition_penalty, PLAIN_ABOVE, 0, 100),
	PLAIN_KEY(presence_penalty, PLAIN_REAL, -2, 2),
	PLAIN_KEY(frequency_penalty, PLAIN_REAL, -2, 2),
	PLAIN_KEY(top_k, PLAIN_INT, 0, INT_MAX),
	PLAIN_KEY(priority, PLAIN_INT, -100, 100),
	PLAIN_KEY(raw, PLAIN_BOOL, 0, 1),
	PLAIN_KEY(ignore_eos, PLAIN_BOOL, 0, 1),
	PLAIN_KEY(min_tokens, PLAIN_INT, 0, INT_MAX),
	PLAIN_KEY(logprobs, PLAIN_BOOL, 0, 1),
	PLAIN_KEY(prompt_logprobs, PLAIN_BOOL, 0, 1),
};

static bool
read_plain_real(const PlainKey *k, const JsonbValue *v, float *out, LlmFailure *f)
{
	bool above = k->type == PLAIN_ABOVE;
	double d;

	if (llm_json_real(v, &d) && d >= k->low && d <= k->high && !(above && (float) d <= k->low))
	{
		*out = (float) d;
		return true;
	}
	return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
						   above ? "option \"%s\" must be above %g and at most %g"
								 : "option \"%s\" must be between %g and %g",
						   k->name, k->low, k->high);
}

static bool
read_plain(LlmOptions *o, const PlainKey *k, const JsonbValue *v, LlmFailure *f)
{
	void *value = (char *) &o->rest + k->value_offset;
	int64 n;

	*(protobuf_c_boolean *) ((char *) &o->rest + k->has_offset) = true;
	switch (k->type)
	{
		case PLAIN_BOOL:
			if (v->type != jbvBool)
				return llm_options_refuse(f, k->name, "true or false");
			*(protobuf_c_boolean *) value = v->val.boolean;
			return true;
		case PLAIN_INT:
			if (!key_int_range(k->name, v, (int64) k->low, (int64) k->high, &n, f))
				return false;
			*(int32 *) value = (int32) n;
			return true;
		default:
			return read_plain_real(k, v, value, f);
	}
}

/* Letters to change from what was written to a name; n_most + 1 when they are more. */
static int
distance(const char *written, const char *name, int n_most)
{
	return varstr_levenshtein_less_equal(written, strlen(written), name, strlen(name), 1, 1, 1,
										 n_most, false);
}

/* With a hint when a known name is near: at most every second letter differs. */
static bool
refuse_unknown(const char *key, LlmFailure *f)
{
	const char *nearest = NULL;
	int most = Min(strlen(key) / 2, 3);

	llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE, "unknown option \"%s\"", key);
	if (strlen(key) > NAMEDATALEN)
		return false;
	key = asc_tolower(key, strlen(key));
	for (Size i = 0; i < lengthof(keys) + lengthof(plain_keys); i++)
	{
		const char *name = i < lengthof(keys) ? keys[i].name : plain_keys[i - lengthof(keys)].name;
		int d = distance(key, name, most);

		if (d > most)
			continue;
		nearest = name;
		most = d - 1;
	}
	if (nearest)
		llm_failure_hint(f, "Perhaps you meant \"%s\".", nearest);
	return false;
}

static bool
read_key(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f)
{
	/* null is what a key that is not there is, as for an argument. */
	for (Size i = 0; i < lengthof(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return v->type == jbvNull ||
				   (keys[i].read ? keys[i].read(o, keys[i].name, v, f) : refuse_unbuilt(key, f));
	for (Size i = 0; i < lengthof(plain_keys); i++)
		if (strcmp(plain_keys[i].name, key) == 0)
			return v->type == jbvNull || read_plain(o, &plain_keys[i], v, f);
	return refuse_unknown(key, f);
}

bool
llm_option_keys_read(LlmOptions *o, Jsonb *json, LlmFailure *f)
{
	JsonbIterator *it;
	JsonbValue root;
	JsonbValue key;
	JsonbValue value;

	JsonbToJsonbValue(json, &root);
	if (!JB_ROOT_IS_OBJECT(json))
		return llm_options_refuse(f, "options", "a JSON object");
	it = llm_json_object(&root, NULL);
	while (llm_json_next_member(&it, &key, &value))
		if (!read_key(o, llm_json_string(&key), &value, f))
			return false;
	return true;
}
