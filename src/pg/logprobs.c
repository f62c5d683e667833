/*
 * pg/logprobs.c - log-probabilities of an answer as jsonb.
 *
 * An element is {"token": text, "id": number, "logprob": number, "top": [...]}; top when it was asked
 * for. Numbers are the shortest that read back as the same float, so that equal bits are equal here
 * too. JSON has no infinities: what has no finite logarithm is null.
 */
#include "postgres.h"

#include "pg/logprobs.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "miscadmin.h"
#include "pg/encoding.h"
#include "pg/json_value.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

static void
push_int(JsonbParseState **state, int32 n)
{
	JsonbValue v = {.type = jbvNumeric};

	v.val.numeric = int64_to_numeric(n);
	(void) pushJsonbValue(state, WJB_VALUE, &v);
}

static void
push_float(JsonbParseState **state, float f)
{
	JsonbValue v = {.type = jbvNull};
	char digits[FLOAT_SHORTEST_DECIMAL_LEN];

	if (isfinite(f))
	{
		float_to_shortest_decimal_buf(f, digits);
		v.type = jbvNumeric;
		v.val.numeric =
			DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(digits),
												ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	}
	(void) pushJsonbValue(state, WJB_VALUE, &v);
}

static void
push_fields(JsonbParseState **state, const Llm__TokenLogprob *p)
{
	Size n;
	char *text = llm_encoding_show_utf8((const char *) p->text.data, p->text.len, &n);

	llm_json_push_key(state, "token");
	llm_json_push_string(state, text, n);
	llm_json_push_key(state, "id");
	push_int(state, p->token);
	llm_json_push_key(state, "logprob");
	push_float(state, p->logprob);
}

/* The first of a list, with those behind it that are its top; gives back how many that were. */
static size_t
push_element(JsonbParseState **state, Llm__TokenLogprob **list, size_t n)
{
	size_t i = 1;

	(void) pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	push_fields(state, list[0]);
	if (n > 1 && list[1]->top)
	{
		llm_json_push_key(state, "top");
		(void) pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
		for (; i < n && list[i]->top; i++)
		{
			(void) pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
			push_fields(state, list[i]);
			(void) pushJsonbValue(state, WJB_END_OBJECT, NULL);
		}
		(void) pushJsonbValue(state, WJB_END_ARRAY, NULL);
	}
	(void) pushJsonbValue(state, WJB_END_OBJECT, NULL);
	return i;
}

static void
push_list(JsonbParseState **state, const char *key, Llm__TokenLogprob **list, size_t n)
{
	llm_json_push_key(state, key);
	(void) pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	for (size_t i = 0; i < n;)
	{
		CHECK_FOR_INTERRUPTS();
		i += push_element(state, list + i, n - i);
	}
	(void) pushJsonbValue(state, WJB_END_ARRAY, NULL);
}

Datum
llm_logprobs_json(const LlmClientAnswer *answer)
{
	const Llm__Done *done = answer->logprobs;
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	if (answer->has_logprobs)
		push_list(&state, "content", done->logprobs, done->n_logprobs);
	if (done->n_prompt_logprobs > 0)
		push_list(&state, "prompt", done->prompt_logprobs, done->n_prompt_logprobs);
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}
