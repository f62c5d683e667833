/* pg/funcs.c - the scalar path: one call, submitted and waited for. */
#include "postgres.h"

#include "fmgr.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/func.h"
#include "pg/hidden.h"

static Datum
run(FunctionCallInfo fcinfo, LlmFuncKind kind)
{
	const LlmFunc *func = llm_func_of(kind);
	LlmCall *call;
	Datum result;
	bool failed;

	llm_declared_check(fcinfo, &func->declared);
	call = llm_call_create(func, PG_NARGS(), fcinfo->args, CurrentMemoryContext);
	if (call == NULL)
		PG_RETURN_NULL();
	llm_call_wait(call);
	result = llm_call_result(call, &fcinfo->isnull, &failed);
	if (failed)
		llm_hidden_note(fcinfo->flinfo->fn_mcxt, llm_call_error_text(call));
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
PG_FUNCTION_INFO_V1(llm_chat);
PG_FUNCTION_INFO_V1(llm_pin_prefix);
PG_FUNCTION_INFO_V1(llm_unpin_prefix);
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

/* llm_chat(messages jsonb, ...) */
Datum
llm_chat(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_CHAT);
}

/* llm_pin_prefix(text text, model text) */
Datum
llm_pin_prefix(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_PIN_PREFIX);
}

/* llm_unpin_prefix(text text, model text) */
Datum
llm_unpin_prefix(PG_FUNCTION_ARGS)
{
	return run(fcinfo, LLM_FUNC_UNPIN_PREFIX);
}
