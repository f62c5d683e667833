/* template/is_tests.c - what may follow "is". */
#include "template/builtin.h"

#include "template/access.h"

/* how: the kinds for which it holds */
static LlmValue
t_kind(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool((args->how >> self.kind & 1) != 0);
}

/* how: the truth value */
static LlmValue
t_bool(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(self.kind == LLM_V_BOOL && self.b == (args->how != 0));
}

/* how: the LlmOp */
static LlmValue
t_compare(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(llm_tmpl_holds(run, (LlmOp) args->how, self, args->pos[0]));
}

static LlmValue
t_sameas(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(self.kind == args->pos[0].kind && llm_tmpl_equal(run, self, args->pos[0]));
}

/* how: the rest of the division, which is by 2 when no divisor is given */
static LlmValue
t_divides(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue by = args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_int(2, false) : args->pos[0];

	return llm_tmpl_bool(llm_tmpl_equal(run, llm_tmpl_math(run, LLM_OP_MOD, self, by),
										llm_tmpl_int(args->how, false)));
}

#define K(kind) (1 << LLM_V_##kind)
/* Undefined iterates as nothing, so Jinja counts it here too. */
#define ITERABLE (K(UNDEFINED) | K(STR) | K(LIST) | K(TUPLE) | K(DICT))

static const LlmDef tests[] = {{"defined", t_kind, "", 0, ~K(UNDEFINED)},
							   {"undefined", t_kind, "", 0, K(UNDEFINED)},
							   {"none", t_kind, "", 0, K(NONE)},
							   {"string", t_kind, "", 0, K(STR)},
							   {"mapping", t_kind, "", 0, K(DICT)},
							   {"sequence", t_kind, "", 0, ITERABLE},
							   {"iterable", t_kind, "", 0, ITERABLE},
							   {"number", t_kind, "", 0, K(BOOL) | K(INT) | K(FLOAT)},
							   {"boolean", t_kind, "", 0, K(BOOL)},
							   {"integer", t_kind, "", 0, K(INT)},
							   {"float", t_kind, "", 0, K(FLOAT)},
							   {"callable", t_kind, "", 0, K(MACRO) | K(FUNCTION) | K(METHOD)},
							   {"true", t_bool, "", 0, 1},
							   {"false", t_bool, "", 0, 0},
							   {"even", t_divides, "", 0, 0},
							   {"odd", t_divides, "", 0, 1},
							   {"divisibleby", t_divides, "num", 1, 0},
							   {"sameas", t_sameas, "other", 1, 0},
							   {"eq", t_compare, "other", 1, LLM_OP_EQ},
							   {"equalto", t_compare, "other", 1, LLM_OP_EQ},
							   {"==", t_compare, "other", 1, LLM_OP_EQ},
							   {"ne", t_compare, "other", 1, LLM_OP_NE},
							   {"!=", t_compare, "other", 1, LLM_OP_NE},
							   {"lt", t_compare, "other", 1, LLM_OP_LT},
							   {"lessthan", t_compare, "other", 1, LLM_OP_LT},
							   {"<", t_compare, "other", 1, LLM_OP_LT},
							   {"le", t_compare, "other", 1, LLM_OP_LE},
							   {"<=", t_compare, "other", 1, LLM_OP_LE},
							   {"gt", t_compare, "other", 1, LLM_OP_GT},
							   {"greaterthan", t_compare, "other", 1, LLM_OP_GT},
							   {">", t_compare, "other", 1, LLM_OP_GT},
							   {"ge", t_compare, "other", 1, LLM_OP_GE},
							   {">=", t_compare, "other", 1, LLM_OP_GE},
							   {"in", t_compare, "seq", 1, LLM_OP_IN},
							   {0}};

const LlmDef *
llm_tmpl_test_find(LlmStr name)
{
	return llm_tmpl_def_find(tests, name);
}
