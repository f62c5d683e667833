/*
 * template/builtin.h - filters, tests, methods and functions: all one kind of thing.
 *
 * A definition names its parameters; the caller binds the arguments before the function runs, so
 * that the function sees args->pos[i] for parameter i, ABSENT when not given.
 */
#ifndef LLM_TEMPLATE_BUILTIN_H
#define LLM_TEMPLATE_BUILTIN_H

#include "template/ast.h"

#define LLM_TMPL_PARAMS_MAX 4

typedef struct LlmArgs
{
	LlmValue *pos;              /* [n_pos] */
	size_t n_pos;               /* positional arguments */
	LlmValue *named;            /* [n_named] */
	const LlmSym *const *names; /* [n_named] */
	size_t n_named;             /* keyword arguments */
	int how;                    /* of the definition */
} LlmArgs;

typedef LlmValue (*LlmBuiltin)(LlmRun *run, LlmValue self, const LlmArgs *args);

typedef struct LlmDef
{
	const char *name;
	LlmBuiltin fn;
	const char *params; /* names with blanks between; NULL: takes anything and binds it itself */
	int required;       /* how many of the first must be given */
	int how;            /* which of its tasks the function does; its own code */
} LlmDef;

/* Bind the arguments and run. */
LlmValue llm_tmpl_apply(LlmRun *run, const LlmDef *def, LlmValue self, const LlmArgs *args);
/* A keyword argument, or NULL. */
const LlmValue *llm_tmpl_args_named(const LlmArgs *args, const char *name);
/* The arguments after the first `skip` positional ones. */
LlmArgs llm_tmpl_args_rest(const LlmArgs *args, size_t skip);

/* Look-up by name; NULL when there is none. */
const LlmDef *llm_tmpl_filter_find(LlmStr name);
const LlmDef *llm_tmpl_test_find(LlmStr name);
const LlmDef *llm_tmpl_method_find(LlmValue self, LlmStr name);
/* The entry of that name in a table, NULL when there is none. */
const LlmDef *llm_tmpl_def_find(const LlmDef *defs, LlmStr name);

/* Tables end with an entry without a name. */
extern const LlmDef llm_tmpl_functions[]; /* global variables */
extern const LlmDef llm_tmpl_text_filters[];
extern const LlmDef llm_tmpl_list_filters[];
extern const LlmDef llm_tmpl_str_methods[];
extern const LlmDef llm_tmpl_dict_methods[];

#endif
