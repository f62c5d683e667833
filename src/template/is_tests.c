/* template/is_tests.c - what may follow "is". */
#include "template/builtin.h"

#include "template/access.h"
#include "template/order.h"
#include "template/print.h"

#define KIND_TEST(name, condition)                                                                 \
	static LlmValue t_##name(LlmRun *run, LlmValue self, const LlmArgs *args)                      \
	{                                                                                              \
		return llm_tmpl_bool(condition);                                                           \
	}

KIND_TEST(defined, self.kind != LLM_V_UNDEFINED)
KIND_TEST(undefined, self.kind == LLM_V_UNDEFINED)
KIND_TEST(none, self.kind == LLM_V_NONE)
KIND_TEST(string, self.kind == LLM_V_STR)
KIND_TEST(mapping, self.kind == LLM_V_DICT)
KIND_TEST(boolean, self.kind == LLM_V_BOOL)
KIND_TEST(integer, self.kind == LLM_V_INT)
KIND_TEST(float, self.kind == LLM_V_FLOAT)
KIND_TEST(number, self.kind >= LLM_V_BOOL && self.kind <= LLM_V_FLOAT)
KIND_TEST(true, self.kind == LLM_V_BOOL && self.b)
KIND_TEST(false, self.kind == LLM_V_BOOL && !self.b)
KIND_TEST(callable, self.kind >= LLM_V_MACRO)
/* Undefined iterates as nothing, so Jinja counts it here too. */
KIND_TEST(iterable,
		  self.kind == LLM_V_UNDEFINED || (self.kind >= LLM_V_STR && self.kind <= LLM_V_DICT))
KIND_TEST(eq, llm_tmpl_equal(run, self, args->pos[0]))
KIND_TEST(sameas, self.kind == args->pos[0].kind && llm_tmpl_equal(run, self, args->pos[0]))
KIND_TEST(ne, !llm_tmpl_equal(run, self, args->pos[0]))
KIND_TEST(lt, llm_tmpl_compare(run, self, args->pos[0]) == -1)
KIND_TEST(gt, llm_tmpl_compare(run, self, args->pos[0]) == 1)
KIND_TEST(in, llm_tmpl_contains(run, args->pos[0], self))

static LlmValue
t_le(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	int c = llm_tmpl_compare(run, self, args->pos[0]);

	return llm_tmpl_bool(c == -1 || c == 0);
}

static LlmValue
t_ge(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	int c = llm_tmpl_compare(run, self, args->pos[0]);

	return llm_tmpl_bool(c == 1 || c == 0);
}

/* v % by == rest */
static bool
leaves(LlmRun *run, LlmValue v, LlmValue by, int64_t rest)
{
	return llm_tmpl_equal(run, llm_tmpl_math(run, LLM_OP_MOD, v, by), llm_tmpl_int(rest, false));
}

static LlmValue
t_divisibleby(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(leaves(run, self, args->pos[0], 0));
}

static LlmValue
t_even(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(leaves(run, self, llm_tmpl_int(2, false), 0));
}

static LlmValue
t_odd(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(leaves(run, self, llm_tmpl_int(2, false), 1));
}

/* Some letter has a case, and none has the other one. */
static bool
all_in_case(LlmRun *run, LlmValue v, LlmCase how, LlmCase other)
{
	LlmText text = llm_tmpl_to_text(run, v);

	return llm_tmpl_text_eq(llm_tmpl_text_case(run, text, how), text) &&
		   !llm_tmpl_text_eq(llm_tmpl_text_case(run, text, other), text);
}

static LlmValue
t_lower(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(all_in_case(run, self, LLM_CASE_LOWER, LLM_CASE_UPPER));
}

static LlmValue
t_upper(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(all_in_case(run, self, LLM_CASE_UPPER, LLM_CASE_LOWER));
}

static const LlmDef tests[] = {{"defined", t_defined, "", 0},
							   {"undefined", t_undefined, "", 0},
							   {"none", t_none, "", 0},
							   {"string", t_string, "", 0},
							   {"mapping", t_mapping, "", 0},
							   {"sequence", t_iterable, "", 0},
							   {"iterable", t_iterable, "", 0},
							   {"number", t_number, "", 0},
							   {"boolean", t_boolean, "", 0},
							   {"integer", t_integer, "", 0},
							   {"float", t_float, "", 0},
							   {"true", t_true, "", 0},
							   {"false", t_false, "", 0},
							   {"callable", t_callable, "", 0},
							   {"odd", t_odd, "", 0},
							   {"even", t_even, "", 0},
							   {"divisibleby", t_divisibleby, "num", 1},
							   {"eq", t_eq, "other", 1},
							   {"equalto", t_eq, "other", 1},
							   {"==", t_eq, "other", 1},
							   {"sameas", t_sameas, "other", 1},
							   {"ne", t_ne, "other", 1},
							   {"!=", t_ne, "other", 1},
							   {"lt", t_lt, "other", 1},
							   {"lessthan", t_lt, "other", 1},
							   {"<", t_lt, "other", 1},
							   {"le", t_le, "other", 1},
							   {"<=", t_le, "other", 1},
							   {"gt", t_gt, "other", 1},
							   {"greaterthan", t_gt, "other", 1},
							   {">", t_gt, "other", 1},
							   {"ge", t_ge, "other", 1},
							   {">=", t_ge, "other", 1},
							   {"in", t_in, "seq", 1},
							   {"lower", t_lower, "", 0},
							   {"upper", t_upper, "", 0}};

const LlmDef *
llm_tmpl_test_find(LlmStr name)
{
	return llm_tmpl_def_find(tests, sizeof(tests) / sizeof(tests[0]), name);
}
