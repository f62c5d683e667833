/* pg/result.c - text and llm.result from an answer. */
#include "postgres.h"

#include "pg/result.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tupdesc.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/encoding.h"
#include "pg/logprobs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* Columns of llm.result, in order. */
enum
{
	RESULT_TEXT,
	RESULT_REASONING,
	RESULT_FINISH_REASON,
	RESULT_PROMPT_TOKENS,
	RESULT_CACHED_TOKENS,
	RESULT_COMPLETION_TOKENS,
	RESULT_LOGPROBS,
	RESULT_QUEUE_MS,
	RESULT_FIRST_TOKEN_MS,
	RESULT_TOTAL_MS,
	RESULT_MODEL,
	RESULT_ERROR,
	RESULT_COUNT
};

static const Oid result_types[RESULT_COUNT] = {
	[RESULT_TEXT] = TEXTOID,
	[RESULT_REASONING] = TEXTOID,
	[RESULT_FINISH_REASON] = TEXTOID,
	[RESULT_PROMPT_TOKENS] = INT4OID,
	[RESULT_CACHED_TOKENS] = INT4OID,
	[RESULT_COMPLETION_TOKENS] = INT4OID,
	[RESULT_LOGPROBS] = JSONBOID,
	[RESULT_QUEUE_MS] = FLOAT8OID,
	[RESULT_FIRST_TOKEN_MS] = FLOAT8OID,
	[RESULT_TOTAL_MS] = FLOAT8OID,
	[RESULT_MODEL] = TEXTOID,
	[RESULT_ERROR] = TEXTOID,
};

Datum
llm_result_utf8(const char *utf8, Size n_utf8)
{
	Size n;
	char *s = llm_encoding_from_utf8(utf8, n_utf8, &n);
	text *t = cstring_to_text_with_len(s, (int) n);

	pfree(s);
	return PointerGetDatum(t);
}

Datum
llm_result_text(const LlmClientAnswer *answer)
{
	return llm_result_utf8(answer->text, answer->n_text);
}

static const char *
finish_reason(Llm__Finish finish)
{
	switch (finish)
	{
		case LLM__FINISH__FINISH_LENGTH:
			return "length";
		case LLM__FINISH__FINISH_CANCELLED:
			return "cancelled";
		case LLM__FINISH__FINISH_ERROR:
			return "error";
		default:
			return "stop";
	}
}

/* By name within schema llm, which the extension owns: search_path has no say. */
static TupleDesc
result_tupdesc(void)
{
	Oid schema = get_namespace_oid("llm", false);
	Oid type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("result"),
							   ObjectIdGetDatum(schema));
	Oid relid = OidIsValid(type) ? get_typ_typrelid(type) : InvalidOid;
	Relation rel;
	TupleDesc desc;

	/* Under the lock it cannot go; what a cache has remembered may be gone already. */
	rel = OidIsValid(relid) ? try_relation_open(relid, AccessShareLock) : NULL;
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("type \"llm.result\" does not exist"),
				 errhint("Install the extension llm_infer again.")));
	desc = lookup_rowtype_tupdesc(type, -1);
	relation_close(rel, AccessShareLock);
	llm_declared_check_columns("type llm.result", desc, result_types, RESULT_COUNT);
	return desc;
}

static void
fill_answer(Datum *values, bool *nulls, const LlmClientAnswer *a)
{
	values[RESULT_TEXT] = llm_result_text(a);
	if (a->reasoning)
	{
		values[RESULT_REASONING] = llm_result_utf8(a->reasoning, a->n_reasoning);
		nulls[RESULT_REASONING] = false;
	}
	if (a->logprobs)
	{
		values[RESULT_LOGPROBS] = llm_logprobs_json(a);
		nulls[RESULT_LOGPROBS] = false;
	}
	values[RESULT_FINISH_REASON] = CStringGetTextDatum(finish_reason(a->finish));
	values[RESULT_PROMPT_TOKENS] = Int32GetDatum(a->prompt_tokens);
	values[RESULT_CACHED_TOKENS] = Int32GetDatum(a->cached_tokens);
	values[RESULT_COMPLETION_TOKENS] = Int32GetDatum(a->completion_tokens);
	values[RESULT_QUEUE_MS] = Float8GetDatum(a->queue_ms);
	values[RESULT_FIRST_TOKEN_MS] = Float8GetDatum(a->first_token_ms);
	values[RESULT_TOTAL_MS] = Float8GetDatum(a->total_ms);
	nulls[RESULT_TEXT] = nulls[RESULT_FINISH_REASON] = false;
	nulls[RESULT_PROMPT_TOKENS] = nulls[RESULT_CACHED_TOKENS] = false;
	nulls[RESULT_COMPLETION_TOKENS] = nulls[RESULT_QUEUE_MS] = nulls[RESULT_TOTAL_MS] = false;
	/* Nothing was generated: there was no first token. */
	nulls[RESULT_FIRST_TOKEN_MS] = a->first_token_ms <= 0;
}

Datum
llm_result_composite(const LlmClientAnswer *answer, const char *model, const char *error)
{
	TupleDesc desc = result_tupdesc();
	Datum values[RESULT_COUNT] = {0};
	bool nulls[RESULT_COUNT];
	Datum result;

	memset(nulls, true, sizeof(nulls));
	if (answer)
		fill_answer(values, nulls, answer);
	else
	{
		values[RESULT_FINISH_REASON] = CStringGetTextDatum(error ? "error" : "cancelled");
		nulls[RESULT_FINISH_REASON] = false;
	}
	if (model)
	{
		values[RESULT_MODEL] = CStringGetTextDatum(model);
		nulls[RESULT_MODEL] = false;
	}
	if (error)
	{
		values[RESULT_ERROR] = CStringGetTextDatum(error);
		nulls[RESULT_ERROR] = false;
	}
	result = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
	ReleaseTupleDesc(desc);
	return result;
}
