/* pg/options.c - a call's arguments: named ones first, then keys, then settings. */
#include "postgres.h"

#include "pg/options.h"

#include <limits.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "pg/guc.h"
#include "pg/json_value.h"
#include "pg/option_keys.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

bool
llm_options_refuse(LlmFailure *f, const char *key, const char *expected)
{
	return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE, "option \"%s\" must be %s", key,
						   expected);
}

/* ---- checks shared by arguments and keys ---- */

bool
llm_options_set_max_tokens(LlmOptions *o, const char *key, int64 v, LlmFailure *f)
{
	if (v < 0 || v > INT_MAX)
		return llm_options_refuse(f, key, "between 0 and 2147483647");
	o->has_max_tokens = true;
	o->max_tokens = (int32) v;
	return true;
}

bool
llm_options_set_temperature(LlmOptions *o, const char *key, double v, LlmFailure *f)
{
	if (isnan(v) || v < 0 || v > 100)
		return llm_options_refuse(f, key, "between 0 and 100");
	o->has_temperature = true;
	o->temperature = v < LLM_TEMPERATURE_GREEDY ? 0 : (float) v;
	return true;
}

bool
llm_options_set_on_error(LlmOptions *o, const char *key, const char *v, LlmFailure *f)
{
	if (strcmp(v, "error") == 0)
		o->on_error = LLM_ON_ERROR_ERROR;
	else if (strcmp(v, "null") == 0)
		o->on_error = LLM_ON_ERROR_NULL;
	else
		return llm_options_refuse(f, key, "error or null");
	o->has_on_error = true;
	return true;
}

bool
llm_options_begin_stops(LlmOptions *o, const char *key, int n, LlmFailure *f)
{
	if (n > LLM_OPTIONS_STOPS_MAX)
	{
		llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
						"option \"%s\" has %d strings, at most %d are allowed", key, n,
						LLM_OPTIONS_STOPS_MAX);
		return false;
	}
	o->stops = palloc(sizeof(char *) * Max(n, 1));
	o->n_stops = 0;
	return true;
}

bool
llm_options_add_stop(LlmOptions *o, const char *key, char *v, LlmFailure *f)
{
	Size n = v ? strlen(v) : 0;

	if (n < 1 || n > LLM_OPTIONS_STOP_NBYTES_MAX)
		return llm_options_refuse(f, key, "strings of 1 to 1024 bytes");
	o->stops[o->n_stops++] = v;
	return true;
}

/* ---- arguments ---- */

static bool
read_stop_argument(LlmOptions *o, Datum datum, LlmFailure *f)
{
	Datum *elems;
	bool *nulls;
	int n;

	deconstruct_array(DatumGetArrayTypeP(datum), TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls,
					  &n);
	if (!llm_options_begin_stops(o, "stop", n, f))
		return false;
	for (int i = 0; i < n; i++)
		if (!llm_options_add_stop(o, "stop", nulls[i] ? NULL : TextDatumGetCString(elems[i]), f))
			return false;
	return true;
}

static bool
read_arguments(LlmOptions *o, const NullableDatum *args, LlmFailure *f)
{
	if (!args[LLM_ARG_MODEL].isnull)
		o->model = TextDatumGetCString(args[LLM_ARG_MODEL].value);
	if (!args[LLM_ARG_SYSTEM_PROMPT].isnull)
		o->system_prompt = TextDatumGetCString(args[LLM_ARG_SYSTEM_PROMPT].value);
	if (!args[LLM_ARG_MAX_TOKENS].isnull &&
		!llm_options_set_max_tokens(o, "max_tokens", DatumGetInt32(args[LLM_ARG_MAX_TOKENS].value),
									f))
		return false;
	if (!args[LLM_ARG_TEMPERATURE].isnull &&
		!llm_options_set_temperature(o, "temperature",
									 DatumGetFloat8(args[LLM_ARG_TEMPERATURE].value), f))
		return false;
	if (!args[LLM_ARG_SEED].isnull)
	{
		o->has_seed = true;
		o->seed = DatumGetInt64(args[LLM_ARG_SEED].value);
	}
	if (!args[LLM_ARG_STOP].isnull && !read_stop_argument(o, args[LLM_ARG_STOP].value, f))
		return false;
	if (!args[LLM_ARG_RESPONSE_FORMAT].isnull)
		return llm_failure_set(f, ERRCODE_FEATURE_NOT_SUPPORTED,
							   "option \"response_format\" is not supported yet");
	return args[LLM_ARG_ON_ERROR].isnull ||
		   llm_options_set_on_error(o, "on_error",
									TextDatumGetCString(args[LLM_ARG_ON_ERROR].value), f);
}

/* What neither an argument nor a key said comes from the settings. */
static void
fill_from_settings(LlmOptions *o)
{
	if (!o->has_max_tokens && llm_guc_max_tokens >= 0)
	{
		o->has_max_tokens = true;
		o->max_tokens = llm_guc_max_tokens;
	}
	if (!o->has_temperature && llm_guc_temperature >= 0)
	{
		o->has_temperature = true;
		o->temperature =
			llm_guc_temperature < LLM_TEMPERATURE_GREEDY ? 0 : (float) llm_guc_temperature;
	}
	if (!o->has_on_error)
		o->on_error = llm_guc_on_error;
	if (!o->has_timeout)
		o->timeout_ms = llm_guc_timeout;
}

/* Whoever goes first makes all others wait, so how far one may go ahead is a superuser's to say. */
static bool
may_have_priority(const LlmOptions *o, LlmFailure *f)
{
	if (!o->rest.has_priority || o->rest.priority <= llm_guc_max_priority)
		return true;
	llm_failure_set(f, ERRCODE_INSUFFICIENT_PRIVILEGE,
					"priority %d is above the highest one allowed, which is %d", o->rest.priority,
					llm_guc_max_priority);
	llm_failure_hint(f, "A superuser can raise llm_infer.max_priority, also for a single role.");
	return false;
}

bool
llm_options_read(LlmOptions *o, const NullableDatum *args, LlmFailure *f)
{
	memset(o, 0, sizeof(*o));
	o->n_stops = -1;
	o->n = 1;
	o->rest = (Llm__Submit) LLM__SUBMIT__INIT;
	if (!read_arguments(o, args, f))
		return false;
	if (!args[LLM_ARG_OPTIONS].isnull &&
		!llm_option_keys_read(o, DatumGetJsonbP(args[LLM_ARG_OPTIONS].value), f))
		return false;
	if (!may_have_priority(o, f))
		return false;
	fill_from_settings(o);
	/* Those of the likeliest stand beside those of the picked, unless these are refused. */
	if (o->rest.has_top_logprobs && !o->rest.has_logprobs)
		o->rest.has_logprobs = o->rest.logprobs = true;
	return true;
}

/* ---- what calls do not know ---- */

void
llm_options_set(NullableDatum *arg, Datum value)
{
	arg->value = value;
	arg->isnull = false;
}

JsonbValue *
llm_options_take(NullableDatum *options, const char *key)
{
	Jsonb *json = options->isnull ? NULL : DatumGetJsonbP(options->value);
	JsonbValue *value;

	if (json == NULL || !JB_ROOT_IS_OBJECT(json))
		return NULL;
	value = getKeyJsonValueFromContainer(&json->root, key, (int) strlen(key), NULL);
	if (value != NULL)
		options->value = DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(json),
											 PointerGetDatum(cstring_to_text(key)));
	return value != NULL && value->type != jbvNull ? value : NULL;
}

int
llm_options_take_attempts(NullableDatum *options, int without, int max)
{
	const JsonbValue *value = llm_options_take(options, "max_attempts");
	int64 n = without;

	if (value != NULL && (!llm_json_int(value, &n) || n < 1 || n > max))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"max_attempts\" must be an integer from 1 to %d", max)));
	return (int) n;
}
