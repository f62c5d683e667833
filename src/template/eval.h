/* template/eval.h - running a parsed template. */
#ifndef LLM_TEMPLATE_EVAL_H
#define LLM_TEMPLATE_EVAL_H

#include "template/ast.h"
#include "template/builtin.h"

typedef struct LlmBinding
{
	const LlmSym *sym;
	LlmValue value;
	struct LlmBinding *next;
} LlmBinding;

/* Names set inside a loop, macro, generation or captured block; they end with it. */
typedef struct LlmScope
{
	struct LlmScope *parent; /* NULL: the globals */
	LlmBinding *bindings;    /* newest first */
} LlmScope;

typedef struct LlmMacro
{
	const LlmNode *node;
	LlmScope *scope; /* where it was defined: what its body sees */
} LlmMacro;

/* One rendering. The run comes first: builtins get only that. */
typedef struct LlmRender
{
	LlmRun run;
	LlmValue *globals; /* [n_syms] by id; ABSENT = never set */
	LlmScope *scope;   /* innermost */
	LlmTextBuf *out;   /* where output goes now */
	LlmValue input;    /* what LLM_N_INPUT stands for */
	int macros;        /* macro calls inside one another */
} LlmRender;

LlmValue llm_tmpl_eval(LlmRender *r, const LlmNode *node);
/* Run statements; their output goes to r->out. */
void llm_tmpl_exec(LlmRender *r, const LlmNode *body);
/* The name's binding in this scope, NULL when it has none. */
LlmBinding *llm_tmpl_binding(LlmRender *r, const LlmScope *scope, const LlmSym *sym);
LlmValue llm_tmpl_call_macro(LlmRender *r, const LlmMacro *macro, const LlmArgs *args);

#endif
