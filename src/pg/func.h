/* pg/func.h - our batchable SQL functions: what each means for a call. */
#ifndef LLM_PG_FUNC_H
#define LLM_PG_FUNC_H

typedef enum LlmFuncKind
{
	LLM_FUNC_GENERATE,
	LLM_FUNC_GENERATE_ARRAY,
	LLM_FUNC_GENERATE_RESULT,
	LLM_FUNC_TOKENIZE,
	LLM_FUNC_DETOKENIZE,
	LLM_FUNC_COUNT_TOKENS
} LlmFuncKind;

struct LlmFunc
{
	const char *symbol; /* of the C function: pg_proc.prosrc */
	const char *name;   /* in SQL */
	LlmFuncKind kind;
	int nargs; /* as the install script declares it */
};

/* The function of a kind. */
extern const struct LlmFunc *llm_func_of(LlmFuncKind kind);

#endif
