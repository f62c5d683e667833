/*
 * pg/call.c - a call of one of our functions: arguments to requests, answers to a Datum.
 *
 * Each call has a memory context of its own below the caller's. It holds the requests, their texts
 * and their answers, and its reset callback takes the requests back from the client: a call whose
 * memory goes for any reason (end of a row, an error, a closed portal) never leaves anything behind.
 */
#include "postgres.h"

#include "pg/call.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pg/catalog.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/encoding.h"
#include "pg/func.h"
#include "pg/guc.h"
#include "pg/options.h"
#include "pg/result.h"
#include "pg/shmem.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

struct LlmCall
{
	MemoryContext cxt; /* own: this struct and all that it points to */
	MemoryContextCallback callback;
	const LlmFunc *func;
	LlmFailure failure;         /* of the call as a whole: nothing was sent */
	int on_error;               /* LlmOnError */
	const char *hidden;         /* first error that on_error hid, NULL = none */
	const char *model;          /* NULL until resolved */
	int n;                      /* requests; 1 but for arrays */
	LlmClientRequest *requests; /* [n] */
	bool *nulls;                /* [n] array elements without a request; NULL = none */
	int ndim;                   /* shape of the array */
	int dims[MAXDIM];
	int lbounds[MAXDIM];
};

/* ---- life ---- */

/* Reset callback of the call's context: its memory is still whole. */
static void
take_back(void *arg)
{
	LlmCall *call = arg;

	for (int i = 0; i < call->n; i++)
		llm_client_end(&call->requests[i]);
	call->n = 0;
}

static bool
check_environment(LlmFailure *f)
{
	if (!llm_client_available(f))
		return false;
	if (llm_compat_is_autovacuum())
		return llm_failure_set(f, ERRCODE_FEATURE_NOT_SUPPORTED,
							   "llm_infer functions cannot be called by autovacuum");
	return true;
}

/* Make room for n requests to one model. */
static void
prepare_requests(LlmCall *call, const LlmModel *model, int n, int timeout_ms,
				 const Llm__Submit *submit)
{
	call->requests = MemoryContextAllocExtended(call->cxt, sizeof(LlmClientRequest) * Max(n, 1),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < n; i++)
	{
		LlmClientRequest *req = &call->requests[i];

		req->cxt = call->cxt;
		req->kind = LLM_CLIENT_SUBMIT;
		req->submit = *submit;
		req->spec = &model->spec;
		req->model_name = model->name;
		req->timeout_ms = timeout_ms;
		req->submit.has_database = req->submit.has_role = true;
		req->submit.database = MyDatabaseId;
		req->submit.role = GetUserId();
	}
	call->model = model->name;
	call->n = n;
}

/* ---- arguments ---- */

/* A copy of text in UTF-8, owned by the current context. */
static bool
copy_text(const char *s, Size n, ProtobufCBinaryData *out, LlmFailure *f)
{
	const char *p;
	Size len;

	if (!llm_encoding_to_utf8(s, n, &p, &len, f))
		return false;
	out->data = (uint8_t *) p;
	out->len = len;
	if (p == s)
	{
		out->data = MemoryContextAllocHuge(CurrentMemoryContext, len + 1);
		memcpy(out->data, s, len);
	}
	return true;
}

static bool
copy_prompt(LlmClientRequest *req, Datum datum, LlmFailure *f)
{
	text *t = DatumGetTextPP(datum);

	req->submit.has_prompt = true;
	return copy_text(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t), &req->submit.prompt, f);
}

/* The options in the shape of a SUBMIT, without prompt and seed. */
static bool
fill_submit(Llm__Submit *submit, const LlmOptions *o, LlmFailure *f)
{
	*submit = o->rest;
	submit->kind = LLM__KIND__GENERATE;
	submit->has_max_tokens = o->has_max_tokens;
	submit->max_tokens = o->max_tokens;
	submit->has_temperature = o->has_temperature;
	submit->temperature = o->temperature;
	if (o->system_prompt)
	{
		submit->has_system = true;
		if (!copy_text(o->system_prompt, strlen(o->system_prompt), &submit->system, f))
			return false;
	}
	submit->stop = palloc0(sizeof(ProtobufCBinaryData) * Max(o->n_stops, 1));
	for (int i = 0; i < o->n_stops; i++)
		if (!copy_text(o->stops[i], strlen(o->stops[i]), &submit->stop[i], f))
			return false;
	submit->n_stop = (size_t) Max(o->n_stops, 0);
	return true;
}

/* The prompts of an array; its shape is kept for the result. */
static void
read_array(LlmCall *call, Datum datum, Datum **elems, bool **nulls, int *n)
{
	ArrayType *array = DatumGetArrayTypeP(datum);

	call->ndim = ARR_NDIM(array);
	memcpy(call->dims, ARR_DIMS(array), sizeof(int) * call->ndim);
	memcpy(call->lbounds, ARR_LBOUND(array), sizeof(int) * call->ndim);
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, elems, nulls, n);
}

static bool
create_generate(LlmCall *call, const NullableDatum *args, LlmFailure *f)
{
	LlmOptions o;
	LlmModel *model;
	Llm__Submit submit;
	Datum one = args[0].value;
	Datum *prompts = &one;
	bool *nulls = NULL;
	int n = 1;

	if (!llm_options_read(&o, args, f))
		return false;
	call->on_error = o.on_error;
	model = llm_catalog_find_model(o.model, true, f);
	if (model == NULL || !fill_submit(&submit, &o, f))
		return false;
	if (call->func->kind == LLM_FUNC_GENERATE_ARRAY)
		read_array(call, args[0].value, &prompts, &nulls, &n);
	prepare_requests(call, model, n, o.timeout_ms, &submit);
	call->nulls = nulls;
	for (int i = 0; i < n; i++)
	{
		LlmClientRequest *req = &call->requests[i];

		if (nulls && nulls[i])
			continue;
		if (!copy_prompt(req, prompts[i], f))
			return false;
		/* Drawn here, so that a resubmission after a crash gives the same text. */
		req->submit.has_seed = true;
		req->submit.seed = o.has_seed ? (uint64) o.seed : pg_prng_uint64(&pg_global_prng_state);
	}
	return true;
}

static bool
copy_tokens(LlmClientRequest *req, Datum datum, LlmFailure *f)
{
	Datum *elems;
	bool *nulls;
	int n;

	deconstruct_array(DatumGetArrayTypeP(datum), INT4OID, sizeof(int32), true, TYPALIGN_INT, &elems,
					  &nulls, &n);
	req->submit.tokens = palloc(sizeof(int32) * Max(n, 1));
	req->submit.n_tokens = (size_t) n;
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
								   "tokens must not contain nulls");
		req->submit.tokens[i] = DatumGetInt32(elems[i]);
	}
	return true;
}

static bool
create_tokens(LlmCall *call, const NullableDatum *args, LlmFailure *f)
{
	bool detokenize = call->func->kind == LLM_FUNC_DETOKENIZE;
	Llm__Submit submit = LLM__SUBMIT__INIT;
	LlmModel *model;

	call->on_error = LLM_ON_ERROR_ERROR;
	model =
		llm_catalog_find_model(args[1].isnull ? NULL : TextDatumGetCString(args[1].value), true, f);
	if (model == NULL)
		return false;
	submit.kind = detokenize ? LLM__KIND__DETOKENIZE : LLM__KIND__TOKENIZE;
	prepare_requests(call, model, 1, llm_guc_timeout, &submit);
	if (detokenize)
		return copy_tokens(&call->requests[0], args[0].value, f);
	return copy_prompt(&call->requests[0], args[0].value, f);
}

LlmCall *
llm_call_create(const LlmFunc *func, int nargs, const NullableDatum *args, MemoryContext cxt)
{
	MemoryContext own;
	MemoryContext old;
	LlmCall *call;

	if (nargs != func->nargs)
		elog(ERROR, "%s was called with %d arguments instead of %d", func->name, nargs,
			 func->nargs);
	if (args[0].isnull)
		return NULL;
	own = AllocSetContextCreate(cxt, "llm_infer call", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(own);
	call = palloc0(sizeof(LlmCall));
	call->cxt = own;
	call->func = func;
	call->on_error = llm_guc_on_error;
	call->callback.func = take_back;
	call->callback.arg = call;
	MemoryContextRegisterResetCallback(own, &call->callback);
	if (check_environment(&call->failure))
	{
		if (func->nargs == LLM_ARG_COUNT)
			(void) create_generate(call, args, &call->failure);
		else
			(void) create_tokens(call, args, &call->failure);
	}
	MemoryContextSwitchTo(old);
	return call;
}

void
llm_call_free(LlmCall *call)
{
	MemoryContextDelete(call->cxt);
}

/* ---- running ---- */

static bool
is_null_element(const LlmCall *call, int i)
{
	return call->nulls && call->nulls[i];
}

bool
llm_call_submit(LlmCall *call, bool wait)
{
	if (call->failure.sqlstate != 0)
		return true;
	for (int i = 0; i < call->n; i++)
	{
		LlmClientRequest *req = &call->requests[i];

		if (is_null_element(call, i) || req->state == LLM_CLIENT_SENT ||
			req->state == LLM_CLIENT_FINISHED)
			continue;
		if (req->state == LLM_CLIENT_NEW)
			llm_client_begin(req);
		if (wait)
			llm_client_wait_sent(req);
		else if (!llm_client_send(req))
			return false;
	}
	return true;
}

bool
llm_call_finished(const LlmCall *call)
{
	if (call->failure.sqlstate != 0)
		return true;
	for (int i = 0; i < call->n; i++)
		if (!is_null_element(call, i) && call->requests[i].state != LLM_CLIENT_FINISHED)
			return false;
	return true;
}

void
llm_call_wait(LlmCall *call)
{
	(void) llm_call_submit(call, true);
	if (call->failure.sqlstate != 0)
		return;
	for (int i = 0; i < call->n; i++)
		if (!is_null_element(call, i) && call->requests[i].state != LLM_CLIENT_FINISHED)
			llm_client_wait(&call->requests[i]);
}

void
llm_call_poll(void)
{
	if (llm_shmem_attached())
		llm_client_poll();
}

bool
llm_call_prompt(const LlmCall *call, LlmCallPrompt *out)
{
	int i = 0;

	while (i < call->n && is_null_element(call, i))
		i++;
	if (i == call->n || call->failure.sqlstate != 0)
		return false;
	out->model = call->model;
	out->system.data = call->requests[i].submit.system.data;
	out->system.len = call->requests[i].submit.system.len;
	out->prompt.data = call->requests[i].submit.prompt.data;
	out->prompt.len = call->requests[i].submit.prompt.len;
	return true;
}

/* ---- results ---- */

/* Raise f, unless on_error hides it: then remember it. */
static void
raise_or_hide(LlmCall *call, const LlmFailure *f)
{
	if (call->on_error != LLM_ON_ERROR_NULL || !llm_failure_hideable(f))
		llm_failure_raise(f);
	if (call->hidden == NULL)
		call->hidden = f->message;
}

static Datum
array_result(LlmCall *call)
{
	Datum *texts = palloc(sizeof(Datum) * Max(call->n, 1));
	bool *nulls = palloc(sizeof(bool) * Max(call->n, 1));

	if (call->ndim == 0)
		return PointerGetDatum(construct_empty_array(TEXTOID));
	for (int i = 0; i < call->n; i++)
	{
		LlmClientRequest *req = &call->requests[i];

		texts[i] = (Datum) 0;
		nulls[i] = is_null_element(call, i);
		if (nulls[i])
			continue;
		if (req->failure.sqlstate != 0)
		{
			raise_or_hide(call, &req->failure);
			nulls[i] = true;
			continue;
		}
		texts[i] = llm_result_text(&req->answer);
	}
	return PointerGetDatum(construct_md_array(texts, nulls, call->ndim, call->dims, call->lbounds,
											  TEXTOID, -1, false, TYPALIGN_INT));
}

static Datum
tokens_result(const LlmClientAnswer *answer)
{
	Datum *ids = palloc(sizeof(Datum) * Max(answer->n_tokens, 1));

	for (int i = 0; i < answer->n_tokens; i++)
		ids[i] = Int32GetDatum(answer->tokens[i]);
	return PointerGetDatum(
		construct_array(ids, answer->n_tokens, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

static Datum
one_result(const LlmCall *call, const LlmClientAnswer *answer)
{
	switch (call->func->kind)
	{
		case LLM_FUNC_GENERATE_RESULT:
			return llm_result_composite(answer, call->model, NULL);
		case LLM_FUNC_TOKENIZE:
			return tokens_result(answer);
		case LLM_FUNC_COUNT_TOKENS:
			return Int32GetDatum(answer->n_tokens);
		default:
			return llm_result_text(answer);
	}
}

Datum
llm_call_result(LlmCall *call, bool *isnull, bool *failed)
{
	const LlmFailure *f = &call->failure;
	Datum result = (Datum) 0;

	*isnull = false;
	if (f->sqlstate == 0 && call->func->kind == LLM_FUNC_GENERATE_ARRAY)
		result = array_result(call);
	else
	{
		if (f->sqlstate == 0)
			f = &call->requests[0].failure;
		if (f->sqlstate == 0)
			result = one_result(call, &call->requests[0].answer);
		else
		{
			raise_or_hide(call, f);
			/* The composite has a place for the error; the others are NULL. */
			if (call->func->kind == LLM_FUNC_GENERATE_RESULT)
				result = llm_result_composite(NULL, call->model, f->message);
			else
				*isnull = true;
		}
	}
	*failed = call->hidden != NULL;
	return result;
}

void
llm_call_usage(const LlmCall *call, LlmCallUsage *usage)
{
	for (int i = 0; i < call->n; i++)
	{
		const LlmClientRequest *req = &call->requests[i];
		const LlmClientAnswer *a = &req->answer;

		if (req->n_sent > 0)
			usage->requests++;
		if (req->state != LLM_CLIENT_FINISHED || req->failure.sqlstate != 0)
			continue;
		usage->prompt_tokens += a->prompt_tokens;
		usage->cached_tokens += a->cached_tokens;
		usage->completion_tokens += a->completion_tokens;
		usage->queue_ms += a->queue_ms;
		usage->first_token_ms += a->first_token_ms;
		if (a->numerics_key != 0)
			usage->numerics_key = a->numerics_key;
	}
}

const char *
llm_call_model(const LlmCall *call)
{
	return call->model;
}

Size
llm_call_nbytes(const LlmCall *call)
{
	return MemoryContextMemAllocated(call->cxt, true);
}

const char *
llm_call_error_text(const LlmCall *call)
{
	return call->hidden ? call->hidden : "";
}
