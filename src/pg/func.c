/* pg/func.c - recognise our functions by extension membership and C symbol. */
#include "postgres.h"

#include "pg/func.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "pg/call.h"
#include "pg/options.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Arguments after the first one, of all that generate. */
#define COMMON                                                                                     \
	TEXTOID, TEXTOID, INT4OID, FLOAT8OID, INT8OID, TEXTARRAYOID, JSONBOID, TEXTOID, JSONBOID

static const Oid generate_args[LLM_ARG_COUNT] = {TEXTOID, COMMON};
static const Oid array_args[LLM_ARG_COUNT] = {TEXTARRAYOID, COMMON};
static const Oid chat_args[LLM_ARG_COUNT - 1] = {JSONBOID,  TEXTOID, INT4OID,
												 FLOAT8OID, INT8OID, TEXTARRAYOID,
												 JSONBOID,  TEXTOID, JSONBOID};
static const Oid text_args[] = {TEXTOID, TEXTOID};
static const Oid tokens_args[] = {INT4ARRAYOID, TEXTOID};

#define DECLARED(args, result, set)                                                                \
	{                                                                                              \
		lengthof(args), args, result, set                                                          \
	}

static const LlmFunc functions[] = {
	[LLM_FUNC_GENERATE] = {"llm_generate_text", "llm_generate", LLM_FUNC_GENERATE,
						   DECLARED(generate_args, TEXTOID, false), true},
	[LLM_FUNC_GENERATE_ARRAY] = {"llm_generate_array", "llm_generate", LLM_FUNC_GENERATE_ARRAY,
								 DECLARED(array_args, TEXTARRAYOID, false), true},
	[LLM_FUNC_GENERATE_RESULT] = {"llm_generate_result", "llm_generate_result",
								  LLM_FUNC_GENERATE_RESULT,
								  DECLARED(generate_args, InvalidOid, false), true},
	[LLM_FUNC_TOKENIZE] = {"llm_tokenize", "llm_tokenize", LLM_FUNC_TOKENIZE,
						   DECLARED(text_args, INT4ARRAYOID, false), true},
	[LLM_FUNC_DETOKENIZE] = {"llm_detokenize", "llm_detokenize", LLM_FUNC_DETOKENIZE,
							 DECLARED(tokens_args, TEXTOID, false), true},
	[LLM_FUNC_COUNT_TOKENS] = {"llm_count_tokens", "llm_count_tokens", LLM_FUNC_COUNT_TOKENS,
							   DECLARED(text_args, INT4OID, false), true},
	[LLM_FUNC_CHAT] = {"llm_chat", "llm_chat", LLM_FUNC_CHAT, DECLARED(chat_args, JSONBOID, false),
					   true},
	[LLM_FUNC_GENERATE_STREAM] = {"llm_generate_stream", "llm_generate_stream",
								  LLM_FUNC_GENERATE_STREAM, DECLARED(generate_args, TEXTOID, true),
								  false},
	[LLM_FUNC_PIN_PREFIX] = {"llm_pin_prefix", "llm_pin_prefix", LLM_FUNC_PIN_PREFIX,
							 DECLARED(text_args, INT4OID, false), false},
	[LLM_FUNC_UNPIN_PREFIX] = {"llm_unpin_prefix", "llm_unpin_prefix", LLM_FUNC_UNPIN_PREFIX,
							   DECLARED(text_args, VOIDOID, false), false},
};

/* Answers for every function oid that was asked for, ours or not. */
typedef struct Known
{
	Oid funcid;
	const LlmFunc *func; /* NULL = not ours */
} Known;

static HTAB *known = NULL;
static bool known_valid = false; /* false after a change of pg_proc */

static void
invalidate(Datum arg, int cacheid, uint32 hash)
{
	known_valid = false;
}

static void
prepare_known(void)
{
	HASHCTL ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(Known)};
	static bool registered = false;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, invalidate, (Datum) 0);
		registered = true;
	}
	if (known && known_valid)
		return;
	if (known)
		hash_destroy(known);
	ctl.hcxt = TopMemoryContext;
	known = hash_create("llm_infer functions", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	known_valid = true;
}

/* By C symbol and declaration; NULL = none of ours. */
static const LlmFunc *
of_tuple(HeapTuple tuple)
{
	const LlmFunc *func = NULL;
	bool isnull;
	Datum prosrc = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	char *symbol;

	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang != ClanguageId || isnull)
		return NULL;
	symbol = TextDatumGetCString(prosrc);
	for (Size i = 0; i < lengthof(functions); i++)
		if (strcmp(functions[i].symbol, symbol) == 0)
			func = &functions[i];
	pfree(symbol);
	return func && llm_declared_like(tuple, &func->declared) ? func : NULL;
}

static const LlmFunc *
look_up(Oid funcid)
{
	Oid extension = get_extension_oid("llm_infer", true);
	const LlmFunc *func = NULL;
	HeapTuple tuple;
	Form_pg_proc form;
	bool plain;

	if (!OidIsValid(extension) || getExtensionOfObject(ProcedureRelationId, funcid) != extension)
		return NULL;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	if (!HeapTupleIsValid(tuple))
		return NULL;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	/* What ALTER FUNCTION can add is the function manager's work: SECURITY DEFINER, SET, STRICT. */
	(void) SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proconfig, &plain);
	plain = plain && !form->prosecdef && !form->proisstrict;
	if (plain)
		func = of_tuple(tuple);
	if (func && !func->batchable)
		func = NULL;
	ReleaseSysCache(tuple);
	return func;
}

const LlmFunc *
llm_func_find(Oid funcid)
{
	Known *entry;
	const LlmFunc *func;

	/* Nothing below FirstNormalObjectId belongs to an extension of ours. */
	if (funcid < FirstNormalObjectId)
		return NULL;
	prepare_known();
	entry = hash_search(known, &funcid, HASH_FIND, NULL);
	if (entry)
		return entry->func;
	func = look_up(funcid);
	/* The look-up itself can have brought an invalidation. */
	prepare_known();
	entry = hash_search(known, &funcid, HASH_ENTER, NULL);
	entry->func = func;
	return func;
}

const LlmFunc *
llm_func_declared(Oid funcid)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	const LlmFunc *func = NULL;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	func = of_tuple(tuple);
	ReleaseSysCache(tuple);
	return func;
}

const LlmFunc *
llm_func_of(LlmFuncKind kind)
{
	return &functions[kind];
}
