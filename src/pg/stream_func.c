/*
 * pg/stream_func.c - llm_generate_stream: a row per piece of text, as they come.
 *
 * Value per call. The call lives in the memory of the set, which the executor frees at the end of the
 * set, and also when nobody wants more of it (LIMIT, a closed cursor, an error): the call's reset
 * callback then cancels the request.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/func.h"
#include "pg/hidden.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_generate_stream);
LLM_EXPORTS_END

static LlmCall *
begin(FunctionCallInfo fcinfo, MemoryContext cxt)
{
	LlmCall *call =
		llm_call_create(llm_func_of(LLM_FUNC_GENERATE_STREAM), PG_NARGS(), fcinfo->args, cxt);

	if (call)
		(void) llm_call_submit(call, true);
	return call;
}

/* llm_generate_stream(prompt text, ...): no rows for a NULL prompt; an error that on_error hides is a
 * last row that is NULL */
Datum
llm_generate_stream(PG_FUNCTION_ARGS)
{
	FuncCallContext *set;
	LlmCall *call;
	Datum piece;
	bool isnull;
	bool failed;

	if (SRF_IS_FIRSTCALL())
	{
		llm_declared_check(fcinfo, &llm_func_of(LLM_FUNC_GENERATE_STREAM)->declared);
		set = SRF_FIRSTCALL_INIT();
		set->user_fctx = begin(fcinfo, set->multi_call_memory_ctx);
	}
	set = SRF_PERCALL_SETUP();
	call = set->user_fctx;
	if (call == NULL)
		SRF_RETURN_DONE(set);
	if (llm_call_next_piece(call, &piece))
		SRF_RETURN_NEXT(set, piece);
	(void) llm_call_result(call, &isnull, &failed);
	if (!failed)
		SRF_RETURN_DONE(set);
	llm_hidden_note(fcinfo->flinfo->fn_mcxt, llm_call_error_text(call));
	llm_call_free(call);
	set->user_fctx = NULL;
	SRF_RETURN_NEXT_NULL(set);
}
