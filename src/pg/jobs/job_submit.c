/*
 * pg/jobs/job_submit.c - llm_job_submit: the arguments of a call become a row, at COMMIT a job.
 *
 * The arguments are read by the code that reads those of llm_generate, so they fail here or never.
 * What the settings say is resolved now: the model's name, lengths, the temperature, the timeout. A
 * seed is drawn now, so that the text is the same however often the job begins again.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/encoding.h"
#include "pg/func.h"
#include "pg/jobs/job_commit.h"
#include "pg/jobs/job_limit.h"
#include "pg/jobs/job_table.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_job_submit);
PG_FUNCTION_INFO_V1(llm_job_submit_array);
LLM_EXPORTS_END

#define ATTEMPTS_DEFAULT 5
#define ATTEMPTS_MAX 1000

/* ---- arguments ---- */

static void
read_job_keys(LlmJobOrder *order)
{
	NullableDatum *options = &order->args[LLM_ARG_OPTIONS];
	JsonbValue *due = llm_options_take(options, "not_before");

	order->due = GetCurrentTimestamp();
	if (due != NULL && due->type != jbvString)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"not_before\" must be a time as a string")));
	if (due != NULL)
		order->due = DatumGetTimestampTz(
			DirectFunctionCall3(timestamptz_in,
								CStringGetDatum(pnstrdup(due->val.string.val, due->val.string.len)),
								ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	if (TIMESTAMP_NOT_FINITE(order->due))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"not_before\" must be finite")));
	order->max_attempts = llm_options_take_attempts(options, ATTEMPTS_DEFAULT, ATTEMPTS_MAX);
}

/* Raise what a call with these arguments would raise. Its model's name. */
static char *
check_call(const NullableDatum *args)
{
	LlmCall *call = llm_call_create(llm_func_of(LLM_FUNC_GENERATE_RESULT), LLM_ARG_COUNT, args,
									CurrentMemoryContext);
	const LlmFailure *f = llm_call_failure(call);
	char *model;

	if (f != NULL)
		llm_failure_raise(f);
	model = pstrdup(llm_call_model(call));
	llm_call_free(call);
	return model;
}

/* All of an order but the prompt. */
static void
read_arguments(LlmJobOrder *order, const NullableDatum *args)
{
	LlmOptions o;
	LlmFailure f;
	char *model;

	memset(order, 0, sizeof(*order));
	memcpy(order->args, args, sizeof(order->args));
	order->owner = GetUserId();
	read_job_keys(order);
	llm_options_set(&order->args[0], PointerGetDatum(cstring_to_text("")));
	if (!llm_options_read(&o, order->args, &f))
		llm_failure_raise(&f);
	if (o.n > 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("llm_job_submit gives one answer, but n is %d", o.n),
						errhint("Submit a job for each answer.")));
	model = check_call(order->args);
	order->rank = o.rest.has_priority ? -o.rest.priority : 0;
	llm_options_set(&order->args[LLM_ARG_MODEL], CStringGetTextDatum(model));
	if (o.has_max_tokens)
		llm_options_set(&order->args[LLM_ARG_MAX_TOKENS], Int32GetDatum(o.max_tokens));
	if (o.has_temperature)
		llm_options_set(&order->args[LLM_ARG_TEMPERATURE], Float8GetDatum(o.temperature));
	if (o.has_seed)
		llm_options_set(&order->args[LLM_ARG_SEED], Int64GetDatum(o.seed));
	if (o.timeout_ms > 0)
	{
		NullableDatum *options = &order->args[LLM_ARG_OPTIONS];
		Datum timeout =
			DirectFunctionCall1(jsonb_in,
								CStringGetDatum(psprintf("{\"timeout\": %d}", o.timeout_ms)));

		llm_options_set(options, options->isnull
									 ? timeout
									 : DirectFunctionCall2(jsonb_concat, options->value, timeout));
	}
}

/* One job for a prompt, not null. */
static int64
insert(LlmJobOrder *order, Datum prompt)
{
	text *t = DatumGetTextPP(prompt);
	bool has_seed = !order->args[LLM_ARG_SEED].isnull;
	const char *utf8;
	LlmFailure f;
	Size n;
	int64 id;

	if (!llm_encoding_to_utf8(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t), &utf8, &n, &f))
		llm_failure_raise(&f);
	llm_options_set(&order->args[0], PointerGetDatum(t));
	if (!has_seed)
		llm_options_set(&order->args[LLM_ARG_SEED],
						Int64GetDatum((int64) pg_prng_uint64(&pg_global_prng_state)));
	id = llm_job_table_insert(order);
	order->args[LLM_ARG_SEED].isnull = !has_seed;
	llm_job_commit_note(order->owner, 0, false);
	return id;
}

/* llm_job_submit(prompt text, ...) */
Datum
llm_job_submit(PG_FUNCTION_ARGS)
{
	LlmDeclared as_submit = llm_func_of(LLM_FUNC_GENERATE)->declared;
	LlmJobOrder order;
	LlmOwnedUser before;
	int64 id;

	as_submit.result = INT8OID;
	llm_declared_check(fcinfo, &as_submit);
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	read_arguments(&order, fcinfo->args);
	llm_job_limit_admit(order.owner, 1);
	llm_job_table_enter(&before);
	id = insert(&order, PG_GETARG_DATUM(0));
	llm_owned_leave(&before);
	PG_RETURN_INT64(id);
}

/* llm_job_submit(prompts text[], ...) */
Datum
llm_job_submit_array(PG_FUNCTION_ARGS)
{
	LlmDeclared as_submit = llm_func_of(LLM_FUNC_GENERATE_ARRAY)->declared;
	ReturnSetInfo *rsinfo;
	LlmJobOrder order;
	LlmOwnedUser before;
	Datum *prompts;
	bool *nulls;
	int n;
	int n_jobs = 0;

	as_submit.result = INT8OID;
	as_submit.set = true;
	llm_declared_check(fcinfo, &as_submit);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (PG_ARGISNULL(0))
		return (Datum) 0;
	rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	read_arguments(&order, fcinfo->args);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false, TYPALIGN_INT, &prompts, &nulls,
					  &n);
	for (int i = 0; i < n; i++)
		n_jobs += !nulls[i];
	llm_job_limit_admit(order.owner, n_jobs);
	llm_job_table_enter(&before);
	for (int i = 0; i < n; i++)
	{
		Datum id = nulls[i] ? (Datum) 0 : Int64GetDatum(insert(&order, prompts[i]));

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &id, &nulls[i]);
	}
	llm_owned_leave(&before);
	return (Datum) 0;
}
