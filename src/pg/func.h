/* pg/func.h - our SQL functions that ask the engine: what each means for a call. */
#ifndef LLM_PG_FUNC_H
#define LLM_PG_FUNC_H

#include "pg/declared.h"

typedef enum LlmFuncKind
{
	LLM_FUNC_GENERATE,
	LLM_FUNC_GENERATE_ARRAY,
	LLM_FUNC_GENERATE_RESULT,
	LLM_FUNC_TOKENIZE,
	LLM_FUNC_DETOKENIZE,
	LLM_FUNC_COUNT_TOKENS,
	LLM_FUNC_CHAT,
	LLM_FUNC_GENERATE_STREAM,
	LLM_FUNC_PIN_PREFIX,
	LLM_FUNC_UNPIN_PREFIX
} LlmFuncKind;

struct LlmFunc
{
	const char *symbol; /* of the C function: pg_proc.prosrc */
	const char *name;   /* in SQL */
	LlmFuncKind kind;
	LlmDeclared declared;
	bool batchable; /* a plan node may call it for many rows at once */
};

/* Our function behind an oid, when the catalogue declares it as this library knows it; else NULL. For
 * any of them, batchable or not. */
extern const struct LlmFunc *llm_func_declared(Oid funcid);

/* The function of a kind. */
extern const struct LlmFunc *llm_func_of(LlmFuncKind kind);

#endif
