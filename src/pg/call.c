/*
 * pg/call.c - a call of one of our functions: arguments to requests, answers to a Datum.
 *
 * Each call has a memory context of its own below the caller's. It holds the requests, their texts
 * and their answers, and its reset callback takes the requests back from the client: a call whose
 * memory goes for any reason (end of a row, an error, a closed portal) never leaves anything behind.
 */
#include "postgres.h"

#include "pg/call.h"

#include <limits.h>

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pg/catalog.h"
#include "pg/chat.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/distinct.h"
#include "pg/encoding.h"
#include "pg/func.h"
#include "pg/guc.h"
#include "pg/memo/memo_key.h"
#include "pg/memo/memo_model.h"
#include "pg/options.h"
#include "pg/result.h"
#include "pg/shmem.h"
#include "pg/spend.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Of one call: each request takes about 1 kB of memory before it is sent. */
#define MAX_ANSWERS 1000000

/* Of answers that have not come. */
#define BYTES_PER_TOKEN 4
#define ROOM_TOKENS 1024 /* for max_tokens -1: the room left in the context */
#define MOST_TOKENS 8192 /* for more: who wants no end may give any number */

/* A request that a call shares with others of its statement. */
typedef struct Share
{
	LlmDistinct *request; /* NULL = the call has one of its own */
	bool first;           /* made for this call: its tokens are on its bill */
} Share;

struct LlmCall
{
	MemoryContext cxt; /* own: this struct and all that it points to */
	MemoryContextCallback callback;
	const LlmFunc *func;
	LlmFailure failure;         /* of the call as a whole: nothing was sent */
	int on_error;               /* LlmOnError */
	const char *hidden;         /* first error that on_error hid, NULL = none */
	const char *model;          /* NULL until resolved */
	int n;                      /* requests: prompts, each n_answers times; 1 but for arrays */
	bool repeatable;            /* answers are a function of the requests */
	bool memo;                  /* they may be kept ones, and will be kept */
	int n_answers;              /* per prompt, 1 and up */
	LlmClientRequest *requests; /* [n] the answers of a prompt side by side */
	Share *shares;              /* [n] NULL = requests are the call's own */
	bool *nulls;                /* [n / n_answers] elements without a request; NULL = none */
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
	{
		if (call->shares && call->shares[i].request)
			llm_distinct_release(call->shares[i].request);
		llm_client_end(&call->requests[i]);
	}
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

static bool
is_null_element(const LlmCall *call, int i)
{
	return call->nulls && call->nulls[i / call->n_answers];
}

/* Request i, which may be shared. */
static LlmClientRequest *
request_at(const LlmCall *call, int i)
{
	return call->shares && call->shares[i].request ? llm_distinct_request(call->shares[i].request)
												   : &call->requests[i];
}

/* Requests that are filled in and give what others of the statement give are those others. */
static void
share_requests(LlmCall *call)
{
	call->shares = MemoryContextAllocExtended(call->cxt, sizeof(Share) * Max(call->n, 1),
											  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < call->n; i++)
	{
		LlmClientRequest *req = &call->requests[i];
		Share *share = &call->shares[i];

		CHECK_FOR_INTERRUPTS();
		if (is_null_element(call, i))
			continue;
		share->request = llm_distinct_hold(req, &share->first);
		if (share->request == NULL || call->n_answers > 1 || req->submit.prompt.data == NULL)
			continue;
		/* the shared one has a copy of it */
		pfree(req->submit.prompt.data);
		req->submit.prompt = (ProtobufCBinaryData){0};
	}
}

/* Make room for n requests to one model. */
static void
prepare_requests(LlmCall *call, LlmModel *model, int n, int timeout_ms, const Llm__Submit *submit)
{
	call->requests = MemoryContextAllocHuge(call->cxt, sizeof(LlmClientRequest) * (Size) Max(n, 1));
	call->model = model->name;
	for (int i = 0; i < n; i++)
	{
		LlmClientRequest *req = &call->requests[i];

		CHECK_FOR_INTERRUPTS();
		memset(req, 0, sizeof(*req));
		req->cxt = call->cxt;
		req->kind = LLM_CLIENT_SUBMIT;
		req->submit = *submit;
		req->model = model;
		req->timeout_ms = timeout_ms;
		req->submit.has_database = req->submit.has_role = true;
		req->submit.database = MyDatabaseId;
		req->submit.role = GetUserId();
		call->n = i + 1; /* what take_back may look at */
	}
}

/* ---- arguments ---- */

/* Free what an argument was detoasted to: it would stay as long as the call. */
static void
free_copy(Datum datum, void *copy)
{
	if ((Pointer) copy != DatumGetPointer(datum))
		pfree(copy);
}

static bool
copy_prompt(LlmClientRequest *req, Datum datum, LlmFailure *f)
{
	text *t = DatumGetTextPP(datum);
	bool ok =
		llm_encoding_copy_to_utf8(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t), &req->submit.prompt, f);

	free_copy(datum, t);
	return ok;
}

static bool
copy_messages(Datum datum, Llm__Submit *submit, LlmFailure *f)
{
	Jsonb *messages = DatumGetJsonbP(datum);
	bool ok = llm_chat_read(messages, submit, f);

	free_copy(datum, messages);
	return ok;
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
		if (!llm_encoding_copy_to_utf8(o->system_prompt, strlen(o->system_prompt), &submit->system,
									   f))
			return false;
	}
	if (o->template_kwargs)
	{
		submit->has_template_kwargs = true;
		if (!llm_encoding_copy_to_utf8(o->template_kwargs, strlen(o->template_kwargs),
									   &submit->template_kwargs, f))
			return false;
	}
	submit->stop = palloc0(sizeof(ProtobufCBinaryData) * Max(o->n_stops, 1));
	for (int i = 0; i < o->n_stops; i++)
		if (!llm_encoding_copy_to_utf8(o->stops[i], strlen(o->stops[i]), &submit->stop[i], f))
			return false;
	submit->n_stop = (size_t) Max(o->n_stops, 0);
	return true;
}

/* The prompts of an array; its shape is kept for the result. */
static void
read_array(LlmCall *call, ArrayType *array, Datum **elems, bool **nulls, int *n)
{
	call->ndim = ARR_NDIM(array);
	memcpy(call->dims, ARR_DIMS(array), sizeof(int) * call->ndim);
	memcpy(call->lbounds, ARR_LBOUND(array), sizeof(int) * call->ndim);
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, elems, nulls, n);
}

/* Where llm_chat has the common arguments: it has no system_prompt. */
static void
spread_chat_arguments(const NullableDatum *args, NullableDatum *out)
{
	out[0] = args[0];
	out[LLM_ARG_MODEL] = args[LLM_ARG_MODEL];
	out[LLM_ARG_SYSTEM_PROMPT] = (NullableDatum){.isnull = true};
	memcpy(&out[LLM_ARG_SYSTEM_PROMPT + 1], &args[LLM_ARG_SYSTEM_PROMPT],
		   sizeof(NullableDatum) * (LLM_ARG_COUNT - LLM_ARG_SYSTEM_PROMPT - 1));
}

/* What some of the functions have no use for. */
static bool
check_options(const LlmCall *call, LlmOptions *o, LlmFailure *f)
{
	LlmFuncKind kind = call->func->kind;

	if (o->n > 1 && kind != LLM_FUNC_GENERATE_ARRAY && kind != LLM_FUNC_CHAT)
	{
		llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE, "%s gives one answer, but n is %d",
						call->func->name, o->n);
		llm_failure_hint(f,
						 "Use llm_generate with an array of prompts: it gives n answers to each.");
		return false;
	}
	if (kind == LLM_FUNC_CHAT && (o->system_prompt || o->rest.raw))
		return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
							   "option \"%s\" cannot be used with messages",
							   o->rest.raw ? "raw" : "system_prompt");
	/* Only the composite shows them. */
	if (kind != LLM_FUNC_GENERATE_RESULT)
		o->rest.logprobs = o->rest.prompt_logprobs = false;
	if (!o->rest.logprobs && !o->rest.prompt_logprobs)
		o->rest.has_top_logprobs = false;
	o->rest.has_stream = o->rest.stream = kind == LLM_FUNC_GENERATE_STREAM;
	return true;
}

/* The seed of answer i to a prompt: that of the call for the first. */
static uint64
seed_of_answer(uint64 seed, int i)
{
	uint64 x = seed + (uint64) i * UINT64CONST(0x9E3779B97F4A7C15);

	if (i == 0)
		return seed;
	/* The finalizer of splitmix64: seeds of neighbouring calls do not meet. */
	x = (x ^ (x >> 30)) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64CONST(0x94D049BB133111EB);
	return x ^ (x >> 31);
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
	ArrayType *array = NULL;
	bool greedy;
	int n = 1;

	if (!llm_options_read(&o, args, f))
		return false;
	greedy = o.has_temperature && o.temperature == 0;
	call->on_error = o.on_error;
	if (!check_options(call, &o, f))
		return false;
	model = llm_catalog_find_model(o.model, true, f);
	if (model == NULL || !fill_submit(&submit, &o, f))
		return false;
	if (call->func->kind == LLM_FUNC_CHAT && !copy_messages(one, &submit, f))
		return false;
	if (call->func->kind == LLM_FUNC_GENERATE_ARRAY)
	{
		array = DatumGetArrayTypeP(one);
		read_array(call, array, &prompts, &nulls, &n);
	}
	if (n > MAX_ANSWERS / o.n)
		return llm_failure_set(f, ERRCODE_PROGRAM_LIMIT_EXCEEDED,
							   "%d prompts with n = %d are more than the %d answers of a call", n,
							   o.n, MAX_ANSWERS);
	call->nulls = nulls;
	call->n_answers = o.n;
	prepare_requests(call, model, n * o.n, o.timeout_ms, &submit);
	for (int i = 0; i < n * o.n; i++)
	{
		LlmClientRequest *req = &call->requests[i];

		CHECK_FOR_INTERRUPTS();
		if (is_null_element(call, i))
			continue;
		if (i % o.n > 0)
			req->submit.prompt = req[-1].submit.prompt;
		else if (call->func->kind != LLM_FUNC_CHAT && !copy_prompt(req, prompts[i / o.n], f))
			return false;
		req->submit.has_prompt = call->func->kind != LLM_FUNC_CHAT;
		/* Drawn here, so that a resubmission after a crash gives the same text. Without noise there
		 * is nothing to draw. */
		req->submit.has_seed = true;
		if (greedy)
			req->submit.seed = 0;
		else
			req->submit.seed = o.has_seed ? seed_of_answer((uint64) o.seed, i % o.n)
										  : pg_prng_uint64(&pg_global_prng_state);
	}
	if (array)
	{
		pfree(prompts);
		free_copy(one, array);
	}
	call->repeatable = (greedy || o.has_seed) && !submit.stream;
	call->memo =
		call->repeatable && !submit.logprobs && !submit.prompt_logprobs && llm_memo_enabled();
	return true;
}

static bool
copy_tokens(LlmClientRequest *req, Datum datum, LlmFailure *f)
{
	ArrayType *array = DatumGetArrayTypeP(datum);
	Datum *elems;
	bool *nulls;
	int n;

	deconstruct_array(array, INT4OID, sizeof(int32), true, TYPALIGN_INT, &elems, &nulls, &n);
	req->submit.tokens = palloc(sizeof(int32) * Max(n, 1));
	req->submit.n_tokens = (size_t) n;
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
								   "tokens must not contain nulls");
		req->submit.tokens[i] = DatumGetInt32(elems[i]);
	}
	pfree(elems);
	pfree(nulls);
	free_copy(datum, array);
	return true;
}

/* The functions of one text, or of token ids, and a model. */
static bool
create_tokens(LlmCall *call, const NullableDatum *args, LlmFailure *f)
{
	static const Llm__Kind kinds[] = {
		[LLM_FUNC_TOKENIZE] = LLM__KIND__TOKENIZE,
		[LLM_FUNC_COUNT_TOKENS] = LLM__KIND__TOKENIZE,
		[LLM_FUNC_DETOKENIZE] = LLM__KIND__DETOKENIZE,
		[LLM_FUNC_PIN_PREFIX] = LLM__KIND__PIN,
		[LLM_FUNC_UNPIN_PREFIX] = LLM__KIND__UNPIN,
	};
	Llm__Submit submit = LLM__SUBMIT__INIT;
	LlmModel *model;

	call->on_error = LLM_ON_ERROR_ERROR;
	model =
		llm_catalog_find_model(args[1].isnull ? NULL : TextDatumGetCString(args[1].value), true, f);
	if (model == NULL)
		return false;
	submit.kind = kinds[call->func->kind];
	prepare_requests(call, model, 1, llm_guc_timeout, &submit);
	if (submit.kind == LLM__KIND__DETOKENIZE)
		return copy_tokens(&call->requests[0], args[0].value, f);
	call->requests[0].submit.has_prompt = true;
	return copy_prompt(&call->requests[0], args[0].value, f);
}

static bool
create_requests(LlmCall *call, const NullableDatum *args, LlmFailure *f)
{
	NullableDatum spread[LLM_ARG_COUNT];

	if (call->func->declared.nargs == 2)
		return create_tokens(call, args, f);
	if (call->func->kind == LLM_FUNC_CHAT)
	{
		spread_chat_arguments(args, spread);
		args = spread;
	}
	return create_generate(call, args, f);
}

LlmCall *
llm_call_create(const LlmFunc *func, int nargs, const NullableDatum *args, MemoryContext cxt)
{
	MemoryContext own;
	MemoryContext old;
	LlmCall *call;

	if (nargs != func->declared.nargs)
		elog(ERROR, "%s was called with %d arguments instead of %d", func->name, nargs,
			 func->declared.nargs);
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
	call->n_answers = 1;
	if (check_environment(&call->failure) && create_requests(call, args, &call->failure) &&
		call->repeatable)
		share_requests(call);
	MemoryContextSwitchTo(old);
	return call;
}

void
llm_call_free(LlmCall *call)
{
	MemoryContextDelete(call->cxt);
}

/* ---- running ---- */

/* What nobody has begun is asked of the memo first, then of the engine. */
static void
begin_request(const LlmCall *call, LlmClientRequest *req, bool patient)
{
	if (!call->memo || !llm_memo_key_answer(req, patient))
		llm_client_begin(req);
}

bool
llm_call_submit(LlmCall *call, bool wait)
{
	if (call->failure.sqlstate != 0)
		return true;
	for (int i = 0; i < call->n; i++)
	{
		LlmClientRequest *req = request_at(call, i);

		CHECK_FOR_INTERRUPTS();
		if (is_null_element(call, i) || req->state == LLM_CLIENT_SENT ||
			req->state == LLM_CLIENT_FINISHED)
			continue;
		if (req->state == LLM_CLIENT_NEW)
			begin_request(call, req, true);
		if (req->state == LLM_CLIENT_FINISHED)
			continue;
		if (wait)
			llm_client_wait_sent(req);
		else if (!llm_client_send(req))
			return false;
	}
	return true;
}

void
llm_call_begin(LlmCall *call)
{
	for (int i = 0; call->failure.sqlstate == 0 && i < call->n; i++)
		if (!is_null_element(call, i) && request_at(call, i)->state == LLM_CLIENT_NEW)
			begin_request(call, request_at(call, i), false);
}

void
llm_call_know_model(const NullableDatum *args)
{
	MemoryContext cxt;
	MemoryContext old;
	LlmModel *model;
	LlmFailure f = {0};

	if (!llm_memo_enabled())
		return;
	cxt = AllocSetContextCreate(CurrentMemoryContext, "llm_infer model", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	model = llm_catalog_find_model(args[LLM_ARG_MODEL].isnull
									   ? NULL
									   : TextDatumGetCString(args[LLM_ARG_MODEL].value),
								   true, &f);
	/* What fails here, the calls will say. */
	if (model != NULL)
		(void) llm_memo_model_numerics(model, true, 0, &f);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

void
llm_call_renew(LlmCall *call)
{
	for (int i = 0; call->failure.sqlstate == 0 && i < call->n; i++)
		if (!is_null_element(call, i))
			llm_client_renew(request_at(call, i));
}

bool
llm_call_wait_at_most(LlmCall *call, int timeout_ms)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);

	for (int i = 0; !llm_call_finished(call) && i < call->n; i++)
	{
		LlmClientRequest *req = request_at(call, i);
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		if (!is_null_element(call, i) && req->state != LLM_CLIENT_FINISHED &&
			!llm_client_wait_at_most(req, (int) left))
			return false;
	}
	return true;
}

const LlmFailure *
llm_call_failure(const LlmCall *call)
{
	const LlmFailure *f =
		call->failure.sqlstate != 0 ? &call->failure : &request_at(call, 0)->failure;

	return f->sqlstate != 0 ? f : NULL;
}

bool
llm_call_finished(const LlmCall *call)
{
	if (call->failure.sqlstate != 0)
		return true;
	for (int i = 0; i < call->n; i++)
		if (!is_null_element(call, i) && request_at(call, i)->state != LLM_CLIENT_FINISHED)
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
		if (!is_null_element(call, i) && request_at(call, i)->state != LLM_CLIENT_FINISHED)
			llm_client_wait(request_at(call, i));
}

void
llm_call_poll(void)
{
	if (llm_shmem_attached())
		llm_client_poll();
}

static LlmCallBytes
bytes_of(ProtobufCBinaryData b)
{
	LlmCallBytes bytes = {.data = b.data, .len = b.len};

	return bytes;
}

bool
llm_call_prompt(const LlmCall *call, LlmCallPrompt *out)
{
	const Llm__Submit *m;
	int i = 0;

	while (i < call->n && is_null_element(call, i))
		i++;
	if (i == call->n || call->failure.sqlstate != 0)
		return false;
	m = &request_at(call, i)->submit;
	out->model = call->model;
	out->system = bytes_of(m->system);
	out->prompt = bytes_of(m->prompt);
	/* The first two turns of a conversation say enough. */
	if (m->n_messages > 0)
		out->system = bytes_of(m->messages[0]->content);
	if (m->n_messages > 1)
		out->prompt = bytes_of(m->messages[1]->content);
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

/* The answer of request i, or NULL when it has none: no prompt, or an error that was hidden. */
static const LlmClientAnswer *
answer_or_null(LlmCall *call, int i)
{
	LlmClientRequest *req = request_at(call, i);

	if (is_null_element(call, i))
		return NULL;
	if (req->failure.sqlstate == 0)
		return &req->answer;
	raise_or_hide(call, &req->failure);
	return NULL;
}

/* The shape of the prompts with one answer each; with more, one row of all. */
static Datum
array_result(LlmCall *call)
{
	Datum *texts = palloc(sizeof(Datum) * Max(call->n, 1));
	bool *nulls = palloc(sizeof(bool) * Max(call->n, 1));
	int one = 1;
	bool flat = call->n_answers > 1;

	if (call->ndim == 0)
		return PointerGetDatum(construct_empty_array(TEXTOID));
	for (int i = 0; i < call->n; i++)
	{
		const LlmClientAnswer *answer = answer_or_null(call, i);

		CHECK_FOR_INTERRUPTS();
		nulls[i] = answer == NULL;
		texts[i] = answer ? llm_result_text(answer) : (Datum) 0;
	}
	return PointerGetDatum(
		construct_md_array(texts, nulls, flat ? 1 : call->ndim, flat ? &call->n : call->dims,
						   flat ? &one : call->lbounds, TEXTOID, -1, false, TYPALIGN_INT));
}

static Datum
chat_result(LlmCall *call)
{
	const LlmClientAnswer **answers = palloc(sizeof(LlmClientAnswer *) * call->n);

	for (int i = 0; i < call->n; i++)
		answers[i] = answer_or_null(call, i);
	return llm_chat_messages(answers, call->n);
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
		case LLM_FUNC_CHAT:
			return llm_chat_message(answer);
		case LLM_FUNC_PIN_PREFIX:
			return Int32GetDatum(answer->prompt_tokens);
		case LLM_FUNC_UNPIN_PREFIX:
			return (Datum) 0;
		default:
			return llm_result_text(answer);
	}
}

Datum
llm_call_result(LlmCall *call, bool *isnull, bool *failed)
{
	const LlmFailure *f = &call->failure;
	Datum result = (Datum) 0;

	/* What it took to get here, rows ahead of this one included. */
	llm_spend_check();
	*isnull = false;
	if (f->sqlstate == 0 && call->func->kind == LLM_FUNC_GENERATE_ARRAY)
		result = array_result(call);
	else if (f->sqlstate == 0 && call->n_answers > 1)
		result = chat_result(call);
	else
	{
		if (f->sqlstate == 0)
			f = &request_at(call, 0)->failure;
		if (f->sqlstate == 0)
			result = one_result(call, &request_at(call, 0)->answer);
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

bool
llm_call_next_piece(LlmCall *call, Datum *piece)
{
	LlmClientRequest *req = request_at(call, 0);
	const char *utf8;
	Size n;

	if (call->failure.sqlstate != 0)
		return false;
	llm_client_wait_piece(req);
	llm_spend_check();
	if (!llm_pieces_any(&req->pieces))
		return false;
	utf8 = llm_pieces_take(&req->pieces, &n);
	*piece = llm_result_utf8(utf8, n);
	return true;
}

void
llm_call_usage(const LlmCall *call, LlmCallUsage *usage)
{
	for (int i = 0; i < call->n; i++)
	{
		const LlmClientRequest *req = request_at(call, i);
		const LlmClientAnswer *a = &req->answer;

		if (req->n_sent > 0 || req->remembered)
			usage->requests++;
		if (call->shares && call->shares[i].request && !call->shares[i].first)
			continue;
		if (req->n_sent > 0 || req->remembered)
			usage->distinct++;
		if (req->remembered)
			usage->remembered++;
		if (req->state != LLM_CLIENT_FINISHED || req->failure.sqlstate != 0)
			continue;
		if (a->numerics_key != 0)
			usage->numerics_key = a->numerics_key;
		if (req->remembered)
			continue;
		usage->prompt_tokens += a->prompt_tokens;
		usage->cached_tokens += a->cached_tokens;
		usage->completion_tokens += a->completion_tokens;
		usage->queue_ms += a->queue_ms;
		usage->first_token_ms += a->first_token_ms;
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
	Size n = MemoryContextMemAllocated(call->cxt, true);

	for (int i = 0; call->shares && i < call->n; i++)
		if (call->shares[i].request)
			n += llm_distinct_nbytes(call->shares[i].request);
	return n;
}

Size
llm_call_answer_nbytes(const LlmCall *call)
{
	const Llm__Submit *m;
	Size tokens;

	if (call->n == 0 || call->failure.sqlstate != 0)
		return 0;
	m = &request_at(call, 0)->submit;
	switch (m->kind)
	{
		case LLM__KIND__GENERATE:
			tokens = m->has_max_tokens ? (Size) m->max_tokens : ROOM_TOKENS;
			return (Size) call->n * BYTES_PER_TOKEN * Min(tokens, MOST_TOKENS);
		case LLM__KIND__TOKENIZE:
			return m->prompt.len; /* an id takes as much as a usual token's text */
		case LLM__KIND__DETOKENIZE:
			return m->n_tokens * BYTES_PER_TOKEN;
		default:
			return 0;
	}
}

const char *
llm_call_error_text(const LlmCall *call)
{
	return call->hidden ? call->hidden : "";
}
