/* template/arith.c - arithmetic with Python's rules for division, signs and types. */
#include "template/access.h"

static LlmValue
int_power(LlmRun *run, LlmValue a, LlmValue b)
{
	int64_t base = a.i, result = 1;
	bool over = false;

	if (b.i < 0)
		llm_tmpl_fail(run, "a negative power is not supported");
	for (int64_t e = b.i; e > 0; e /= 2)
	{
		if (e % 2 == 1)
			over = over || __builtin_mul_overflow(result, base, &result);
		if (e > 1)
			over = over || __builtin_mul_overflow(base, base, &base);
		if (over)
			llm_tmpl_fail(run, "an integer is beyond 64 bits");
	}
	return llm_tmpl_int(result, a.trusted);
}

static LlmValue
int_math(LlmRun *run, LlmOp op, LlmValue a, LlmValue b)
{
	bool over = false;
	int64_t i = 0;

	if (op == LLM_OP_POW)
		return int_power(run, a, b);
	if (op >= LLM_OP_DIV && b.i == 0)
		llm_tmpl_fail(run, "division by zero");
	switch (op)
	{
		case LLM_OP_ADD:
			over = __builtin_add_overflow(a.i, b.i, &i);
			break;
		case LLM_OP_SUB:
			over = __builtin_sub_overflow(a.i, b.i, &i);
			break;
		case LLM_OP_MUL:
			over = __builtin_mul_overflow(a.i, b.i, &i);
			break;
		case LLM_OP_DIV:
			return llm_tmpl_float((double) a.i / (double) b.i, a.trusted);
		default: /* // and %: towards minus infinity */
			if (b.i == -1)
				over = __builtin_sub_overflow(0, op == LLM_OP_MOD ? 0 : a.i, &i);
			else
			{
				int64_t rest = a.i % b.i;
				bool down = rest != 0 && (rest < 0) != (b.i < 0);

				i = op == LLM_OP_MOD ? rest + (down ? b.i : 0) : a.i / b.i - down;
			}
	}
	if (over)
		llm_tmpl_fail(run, "an integer is beyond 64 bits");
	return llm_tmpl_int(i, a.trusted);
}

static double
float_math(LlmRun *run, LlmOp op, double a, double b)
{
	switch (op)
	{
		case LLM_OP_ADD:
			return a + b;
		case LLM_OP_SUB:
			return a - b;
		case LLM_OP_MUL:
			return a * b;
		case LLM_OP_DIV:
			if (b == 0)
				llm_tmpl_fail(run, "division by zero");
			return a / b;
		default:
			llm_tmpl_fail(run, "//, %% and ** are for integers only");
	}
}

/* Numbers; false when one is none. A result is trusted when both are. */
static bool
number_math(LlmRun *run, LlmOp op, LlmValue a, LlmValue b, LlmValue *result)
{
	double x, y;

	if (!llm_tmpl_as_float(a, &x) || !llm_tmpl_as_float(b, &y))
		return false;
	a.trusted = a.trusted && b.trusted;
	if (a.kind == LLM_V_FLOAT || b.kind == LLM_V_FLOAT)
	{
		*result = llm_tmpl_float(float_math(run, op, x, y), a.trusted);
		return true;
	}
	*result = int_math(run, op, llm_tmpl_int(a.kind == LLM_V_INT ? a.i : a.b, a.trusted),
					   llm_tmpl_int(b.kind == LLM_V_INT ? b.i : b.b, b.trusted));
	return true;
}

/* A string * count. */
static LlmValue
repeat(LlmRun *run, LlmText text, int64_t count)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, 0);

	for (int64_t i = 0; i < count && text.len > 0; i++)
	{
		llm_tmpl_charge(run, 1);
		llm_tmpl_buf_add_text(run, buf, text);
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

static LlmValue
join_lists(LlmRun *run, LlmValue a, LlmValue b)
{
	LlmList *list = llm_tmpl_list_new(run, a.list->n + b.list->n);

	llm_tmpl_charge_items(run, a.list->n + b.list->n);
	for (size_t i = 0; i < a.list->n; i++)
		llm_tmpl_list_push(run, list, a.list->items[i]);
	for (size_t i = 0; i < b.list->n; i++)
		llm_tmpl_list_push(run, list, b.list->items[i]);
	return llm_tmpl_list((LlmKind) a.kind, list);
}

LlmValue
llm_tmpl_math(LlmRun *run, LlmOp op, LlmValue a, LlmValue b)
{
	static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
	LlmValue result;

	if (op == LLM_OP_ADD && a.kind == LLM_V_STR && b.kind == LLM_V_STR)
		return llm_tmpl_str(run, llm_tmpl_text_concat(run, *a.s, *b.s));
	if (op == LLM_OP_ADD && a.kind == b.kind && (a.kind == LLM_V_LIST || a.kind == LLM_V_TUPLE))
		return join_lists(run, a, b);
	if (number_math(run, op, a, b, &result))
		return result;
	if (op == LLM_OP_MUL && a.kind == LLM_V_STR && b.kind == LLM_V_INT)
		return repeat(run, *a.s, b.i);
	if (a.kind == LLM_V_UNDEFINED || b.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, a.kind == LLM_V_UNDEFINED ? a : b);
	llm_tmpl_fail(run, "%s %s %s is not possible", llm_tmpl_kind_name(a), signs[op],
				  llm_tmpl_kind_name(b));
}

bool
llm_tmpl_holds(LlmRun *run, LlmOp op, LlmValue a, LlmValue b)
{
	int c;

	switch (op)
	{
		case LLM_OP_EQ:
			return llm_tmpl_equal(run, a, b);
		case LLM_OP_NE:
			return !llm_tmpl_equal(run, a, b);
		case LLM_OP_IN:
			return llm_tmpl_contains(run, b, a);
		case LLM_OP_NOT_IN:
			return !llm_tmpl_contains(run, b, a);
		default:
			c = llm_tmpl_compare(run, a, b);
			return op == LLM_OP_LT   ? c == -1
				   : op == LLM_OP_LE ? c == -1 || c == 0
				   : op == LLM_OP_GT ? c == 1
									 : c == 1 || c == 0;
	}
}
