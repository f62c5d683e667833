/* template/eval_expr.c - the value of an expression. */
#include "template/eval.h"

#include "template/access.h"
#include "template/print.h"

static LlmValue
eval_name(LlmRender *r, const LlmSym *sym)
{
	for (const LlmScope *scope = r->scope; scope != NULL; scope = scope->parent)
	{
		const LlmBinding *b = llm_tmpl_binding(r, scope, sym);

		if (b != NULL)
			return b->value;
	}
	return r->globals[sym->id].kind == LLM_V_ABSENT ? llm_tmpl_undefined(&sym->name)
													: r->globals[sym->id];
}

static LlmValue
eval_list(LlmRender *r, const LlmNode *node)
{
	LlmList *list = llm_tmpl_list_new(&r->run, node->n);

	for (uint32_t i = 0; i < node->n; i++)
		llm_tmpl_list_push(&r->run, list, llm_tmpl_eval(r, node->kids[i]));
	return llm_tmpl_list(node->kind == LLM_N_LIST ? LLM_V_LIST : LLM_V_TUPLE, list);
}

static LlmValue
eval_dict(LlmRender *r, const LlmNode *node)
{
	LlmDict *dict = llm_tmpl_dict_new(&r->run, node->n / 2);

	for (uint32_t i = 0; i < node->n; i += 2)
	{
		LlmValue key = llm_tmpl_eval(r, node->kids[i]);

		llm_tmpl_dict_set(&r->run, dict, key, llm_tmpl_eval(r, node->kids[i + 1]));
	}
	return (LlmValue){.kind = LLM_V_DICT, .dict = dict};
}

static LlmValue
eval_slice(LlmRender *r, const LlmNode *node)
{
	LlmValue object = llm_tmpl_eval(r, node->kids[0]);
	LlmValue bounds[3] = {{0}, {0}, {0}};

	for (int i = 0; i < 3; i++)
	{
		if (node->kids[i + 1] != NULL)
			bounds[i] = llm_tmpl_eval(r, node->kids[i + 1]);
	}
	r->run.line = node->line;
	return llm_tmpl_get_slice(&r->run, object, bounds);
}

/* The arguments of a call, filter or test: the children after the first. */
static LlmArgs
eval_args(LlmRender *r, const LlmNode *node)
{
	LlmArgs args = {.n_pos = node->n - 1 - node->n_names, .n_named = node->n_names};

	if (node->n > 1)
		args.pos = llm_tmpl_alloc(&r->run, node->n - 1, sizeof(LlmValue));
	for (uint32_t i = 1; i < node->n; i++)
		args.pos[i - 1] = llm_tmpl_eval(r, node->kids[i]);
	args.named = args.n_named > 0 ? args.pos + args.n_pos : NULL;
	args.names = node->names;
	r->run.line = node->line;
	return args;
}

static LlmValue
eval_call(LlmRender *r, const LlmNode *node)
{
	LlmValue callee = llm_tmpl_eval(r, node->kids[0]);
	LlmArgs args = eval_args(r, node);

	switch ((LlmKind) callee.kind)
	{
		case LLM_V_MACRO:
			return llm_tmpl_call_macro(r, callee.macro, &args);
		case LLM_V_FUNCTION:
			return llm_tmpl_apply(&r->run, callee.function, (LlmValue){0}, &args);
		case LLM_V_METHOD:
			return llm_tmpl_apply(&r->run, callee.method->def, callee.method->self, &args);
		case LLM_V_UNDEFINED:
			llm_tmpl_fail_undefined(&r->run, callee);
		default:
			llm_tmpl_fail(&r->run, "a %s cannot be called", llm_tmpl_kind_name(callee));
	}
}

/* A filter, or a test without its "not". */
static LlmValue
eval_applied(LlmRender *r, const LlmNode *node)
{
	LlmValue input;
	LlmArgs args;

	if (node->def == NULL)
		llm_tmpl_fail(&r->run, "there is no %s named '%.*s'",
					  node->kind == LLM_N_FILTER ? "filter" : "test",
					  LLM_TMPL_SHOWN(node->sym->name));
	input = llm_tmpl_eval(r, node->kids[0]);
	args = eval_args(r, node);
	return llm_tmpl_apply(&r->run, node->def, input, &args);
}

static LlmValue
eval_sign(LlmRender *r, const LlmNode *node)
{
	LlmValue zero = llm_tmpl_int(0, true);
	LlmValue v = llm_tmpl_eval(r, node->kids[0]);

	r->run.line = node->line;
	if (v.kind == LLM_V_FLOAT) /* 0 - 0.0 would lose the sign */
		return llm_tmpl_float(node->kind == LLM_N_NEG ? -v.f : v.f, v.trusted);
	if (v.kind != LLM_V_INT && v.kind != LLM_V_BOOL)
		llm_tmpl_fail(&r->run, "a %s has no sign", llm_tmpl_kind_name(v));
	return llm_tmpl_math(&r->run, node->kind == LLM_N_NEG ? LLM_OP_SUB : LLM_OP_ADD, zero, v);
}

static LlmValue
eval_math(LlmRender *r, const LlmNode *node)
{
	LlmValue acc = llm_tmpl_eval(r, node->kids[0]);

	for (uint32_t i = 1; i < node->n; i++)
	{
		LlmValue right = llm_tmpl_eval(r, node->kids[i]);

		r->run.line = node->kids[i]->line;
		acc = llm_tmpl_math(&r->run, (LlmOp) node->kids[i]->op, acc, right);
	}
	return acc;
}

static LlmValue
eval_concat(LlmRender *r, const LlmNode *node)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(&r->run, 0);

	for (uint32_t i = 0; i < node->n; i++)
		llm_tmpl_print(&r->run, buf, llm_tmpl_eval(r, node->kids[i]));
	return llm_tmpl_str(&r->run, llm_tmpl_buf_text(buf));
}

/* As in Python, the value that decided is the result. */
static LlmValue
eval_logic(LlmRender *r, const LlmNode *node)
{
	LlmValue v = {0};

	for (uint32_t i = 0; i < node->n; i++)
	{
		v = llm_tmpl_eval(r, node->kids[i]);
		if (llm_tmpl_truth(v) == (node->kind == LLM_N_OR))
			break;
	}
	return v;
}

static LlmValue
eval_compare(LlmRender *r, const LlmNode *node)
{
	LlmValue left = llm_tmpl_eval(r, node->kids[0]);

	for (uint32_t i = 1; i < node->n; i++)
	{
		LlmValue right = llm_tmpl_eval(r, node->kids[i]);

		r->run.line = node->kids[i]->line;
		if (!llm_tmpl_holds(&r->run, (LlmOp) node->kids[i]->op, left, right))
			return llm_tmpl_bool(false);
		left = right;
	}
	return llm_tmpl_bool(true);
}

static LlmValue
eval_cond(LlmRender *r, const LlmNode *node)
{
	if (llm_tmpl_truth(llm_tmpl_eval(r, node->kids[0])))
		return llm_tmpl_eval(r, node->kids[1]);
	return node->kids[2] == NULL ? llm_tmpl_undefined(NULL) : llm_tmpl_eval(r, node->kids[2]);
}

static LlmValue
eval_node(LlmRender *r, const LlmNode *node)
{
	LlmValue v;

	switch ((LlmNodeKind) node->kind)
	{
		case LLM_N_CONST:
			return node->value;
		case LLM_N_NAME:
			return eval_name(r, node->sym);
		case LLM_N_INPUT:
			return r->input;
		case LLM_N_LIST:
		case LLM_N_TUPLE:
			return eval_list(r, node);
		case LLM_N_DICT:
			return eval_dict(r, node);
		case LLM_N_ATTR:
			v = llm_tmpl_eval(r, node->kids[0]);
			r->run.line = node->line;
			return llm_tmpl_get_attr(&r->run, v, &node->sym->name);
		case LLM_N_ITEM:
			v = llm_tmpl_eval(r, node->kids[0]);
			return llm_tmpl_get_item(&r->run, v, llm_tmpl_eval(r, node->kids[1]));
		case LLM_N_SLICE:
			return eval_slice(r, node);
		case LLM_N_CALL:
			return eval_call(r, node);
		case LLM_N_FILTER:
			return eval_applied(r, node);
		case LLM_N_TEST:
			return llm_tmpl_bool(llm_tmpl_truth(eval_applied(r, node)) != node->negated);
		case LLM_N_NOT:
			return llm_tmpl_bool(!llm_tmpl_truth(llm_tmpl_eval(r, node->kids[0])));
		case LLM_N_NEG:
		case LLM_N_POS:
			return eval_sign(r, node);
		case LLM_N_MATH:
			return eval_math(r, node);
		case LLM_N_CONCAT:
			return eval_concat(r, node);
		case LLM_N_AND:
		case LLM_N_OR:
			return eval_logic(r, node);
		case LLM_N_COMPARE:
			return eval_compare(r, node);
		default: /* COND; statements are no expressions */
			return eval_cond(r, node);
	}
}

LlmValue
llm_tmpl_eval(LlmRender *r, const LlmNode *node)
{
	LlmValue v;

	r->run.line = node->line;
	llm_tmpl_charge(&r->run, 1);
	llm_tmpl_enter(&r->run);
	v = eval_node(r, node);
	llm_tmpl_leave(&r->run);
	return v;
}
