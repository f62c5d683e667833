/* pg/funcs.c - the scalar path: one call, submitted and waited for. */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/func.h"
#include "utils/memutils.h"

/*
 * Errors that on_error => 'null' hid in this statement. The WARNING is due when the memory of the
 * calling expression goes (the end of the executor), or at the end of the transaction for expressions
 * that live longer than their statement, such as PL/pgSQL's.
 */
static int64 n_hidden = 0;
static char first_hidden[256];

static void
warn_hidden(void)
{
	int64 n = n_hidden;

	n_hidden = 0;
	if (n > 0)
		llm_call_warn_failed(n, first_hidden);
}

static void
expression_ends(void *arg)
{
	if (IsTransactionState() && !IsAbortedTransactionBlockState())
		warn_hidden();
}

static void
transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		warn_hidden();
	else if (event == XACT_EVENT_ABORT)
		n_hidden = 0;
}

static void
note_hidden(FunctionCallInfo fcinfo, const LlmCall *call)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(transaction_ends, NULL);
		registered = true;
	}
	if (fcinfo->flinfo->fn_extra == NULL)
	{
		MemoryContextCallback *callback =
			MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(MemoryContextCallback));

		callback->func = expression_ends;
		MemoryContextRegisterResetCallback(fcinfo->flinfo->fn_mcxt, callback);
		fcinfo->flinfo->fn_extra = callback;
	}
	if (n_hidden++ == 0)
		strlcpy(first_hidden, llm_call_error_text(call), sizeof(first_hidden));
}

static Datum
run(FunctionCallInfo fcinfo, LlmFuncKind kind)
{
	LlmCall *call =
		llm_call_create(llm_func_of(kind), PG_NARGS(), fcinfo->args, CurrentMemoryContext);
	Datum result;
	bool failed;

	if (call == NULL)
		PG_RETURN_NULL();
	llm_call_wait(call);
	result = llm_call_result(call, &fcinfo->isnull, &failed);
	if (failed)
		note_hidden(fcinfo, call);
	llm_call_free(call);
	return result;
}

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_generate_text);
PG_FUNCTION_INFO_V1(llm_generate_array);
PG_FUNCTION_INFO_V1(llm_generate_result);
PG_FUNCTION_INFO_V1(llm_tokenize);
PG_FUNCTION_INFO_V1(llm_detokenize);
PG_FUNCTION_INFO_V1(llm_count_tokens);
LLM_EXPORTS_END

/* llm_generate(prompt text, ...) */
Datum
llm_generate_text(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_GENERATE);
}

/* llm_generate(prompts text[], ...) */
Datum
llm_generate_array(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_GENERATE_ARRAY);
}

/* llm_generate_result(prompt text, ...) */
Datum
llm_generate_result(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_GENERATE_RESULT);
}

/* llm_tokenize(input text, model text) */
Datum
llm_tokenize(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_TOKENIZE);
}

/* llm_detokenize(tokens int[], model text) */
Datum
llm_detokenize(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_DETOKENIZE);
}

/* llm_count_tokens(input text, model text) */
Datum
llm_count_tokens(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_COUNT_TOKENS);
}
