/* template/eval_stmt.c - statements, scopes and macros. */
#include "template/eval.h"

#include "template/print.h"
#include "template/template.h"

typedef enum Flow
{
	FLOW_ON,
	FLOW_BREAK,
	FLOW_CONTINUE
} Flow;

static Flow exec_body(LlmRender *r, const LlmNode *body);

static void
scope_push(LlmRender *r, LlmScope *parent)
{
	LlmScope *scope = llm_tmpl_alloc(&r->run, 1, sizeof(*scope));

	scope->parent = parent;
	r->scope = scope;
}

LlmBinding *
llm_tmpl_binding(LlmRender *r, const LlmScope *scope, const LlmSym *sym)
{
	LlmBinding *b = scope->bindings;
	size_t walked = 0;

	for (; b != NULL && b->sym != sym; b = b->next)
		walked++;
	llm_tmpl_charge_items(&r->run, walked);
	return b;
}

static void
assign(LlmRender *r, const LlmSym *sym, LlmValue value)
{
	LlmBinding *b;

	if (r->scope == NULL)
	{
		r->globals[sym->id] = value;
		return;
	}
	b = llm_tmpl_binding(r, r->scope, sym);
	if (b == NULL)
	{
		b = llm_tmpl_alloc(&r->run, 1, sizeof(*b));
		*b = (LlmBinding){sym, value, r->scope->bindings};
		r->scope->bindings = b;
	}
	b->value = value;
}

/* Assign to a NAME, a TUPLE of names, or the ATTR of a namespace. */
static void
assign_target(LlmRender *r, const LlmNode *target, LlmValue value)
{
	const LlmList *list;
	LlmValue object;

	if (target->kind == LLM_N_NAME)
	{
		assign(r, target->sym, value);
		return;
	}
	if (target->kind == LLM_N_ATTR)
	{
		object = llm_tmpl_eval(r, target->kids[0]);
		if (object.kind != LLM_V_NAMESPACE)
			llm_tmpl_fail(&r->run, "only a namespace has attributes that can be set");
		llm_tmpl_dict_set(&r->run, object.dict,
						  llm_tmpl_str_borrow(&r->run, target->sym->name, true), value);
		return;
	}
	list = llm_tmpl_elements(&r->run, value);
	if (list->n != target->n)
		llm_tmpl_fail(&r->run, "%zu values for %u names", list->n, target->n);
	for (uint32_t i = 0; i < target->n; i++)
		assign(r, target->kids[i]->sym, list->items[i]);
}

/* The output of a body, in a scope of its own. */
static LlmText
capture(LlmRender *r, const LlmNode *body)
{
	LlmTextBuf *out = r->out;
	LlmScope *scope = r->scope;
	LlmText text;

	r->out = llm_tmpl_buf_new(&r->run, 0);
	scope_push(r, scope);
	exec_body(r, body); /* the parser lets no break leave it */
	text = llm_tmpl_buf_text(r->out);
	r->out = out;
	r->scope = scope;
	return text;
}

/* The value of an expression over INPUT, which is what the body prints. */
static LlmValue
filter_captured(LlmRender *r, const LlmNode *expr, const LlmNode *body)
{
	LlmValue input = r->input;
	LlmValue value;

	r->input = llm_tmpl_str(&r->run, capture(r, body));
	value = llm_tmpl_eval(r, expr);
	r->input = input;
	return value;
}

/* The elements to loop over: those that pass the filter of "for x in y if filter". */
static LlmList *
loop_items(LlmRender *r, const LlmNode *node)
{
	LlmValue iterable = llm_tmpl_eval(r, node->kids[1]);
	LlmList *all = llm_tmpl_elements(&r->run, iterable);
	LlmScope *scope = r->scope;
	LlmList *some;

	if (node->kids[2] == NULL)
		return all;
	some = llm_tmpl_list_new(&r->run, 0);
	for (size_t i = 0; i < all->n; i++)
	{
		scope_push(r, scope);
		assign_target(r, node->kids[0], all->items[i]);
		if (llm_tmpl_truth(llm_tmpl_eval(r, node->kids[2])))
			llm_tmpl_list_push(&r->run, some, all->items[i]);
	}
	r->scope = scope;
	return some;
}

static void
exec_for(LlmRender *r, const LlmNode *node)
{
	const LlmList *items = loop_items(r, node);
	LlmScope *scope = r->scope;
	Flow flow = FLOW_ON;

	for (size_t i = 0; i < items->n && flow != FLOW_BREAK; i++)
	{
		LlmLoop *loop = llm_tmpl_alloc(&r->run, 1, sizeof(*loop));

		*loop = (LlmLoop){items, i};
		scope_push(r, scope);
		assign(r, node->sym, (LlmValue){.kind = LLM_V_LOOP, .loop = loop});
		assign_target(r, node->kids[0], items->items[i]);
		flow = exec_body(r, node->kids[3]);
	}
	if (items->n == 0 && node->kids[4] != NULL)
	{
		scope_push(r, scope);
		exec_body(r, node->kids[4]);
	}
	r->scope = scope;
}

static Flow
exec_if(LlmRender *r, const LlmNode *node)
{
	uint32_t i;

	for (i = 0; i + 1 < node->n; i += 2)
	{
		if (llm_tmpl_truth(llm_tmpl_eval(r, node->kids[i])))
			return exec_body(r, node->kids[i + 1]);
	}
	return i < node->n ? exec_body(r, node->kids[i]) : FLOW_ON;
}

static Flow
exec_scope(LlmRender *r, const LlmNode *node)
{
	LlmScope *scope = r->scope;
	Flow flow;

	scope_push(r, scope);
	flow = exec_body(r, node->kids[0]);
	r->scope = scope;
	return flow;
}

static void
exec_macro(LlmRender *r, const LlmNode *node)
{
	LlmMacro *macro = llm_tmpl_alloc(&r->run, 1, sizeof(*macro));

	*macro = (LlmMacro){node, r->scope};
	assign(r, node->sym, (LlmValue){.kind = LLM_V_MACRO, .macro = macro});
}

static Flow
exec_node(LlmRender *r, const LlmNode *node)
{
	switch ((LlmNodeKind) node->kind)
	{
		case LLM_N_OUTPUT:
			llm_tmpl_print(&r->run, r->out, llm_tmpl_eval(r, node->kids[0]));
			break;
		case LLM_N_IF:
			return exec_if(r, node);
		case LLM_N_FOR:
			exec_for(r, node);
			break;
		case LLM_N_SET:
			assign_target(r, node->kids[0], llm_tmpl_eval(r, node->kids[1]));
			break;
		case LLM_N_SET_BLOCK:
			assign_target(r, node->kids[0], filter_captured(r, node->kids[1], node->kids[2]));
			break;
		case LLM_N_FILTER_BLOCK:
			llm_tmpl_print(&r->run, r->out, filter_captured(r, node->kids[0], node->kids[1]));
			break;
		case LLM_N_MACRO:
			exec_macro(r, node);
			break;
		case LLM_N_SCOPE:
			return exec_scope(r, node);
		case LLM_N_BREAK:
			return FLOW_BREAK;
		case LLM_N_CONTINUE:
			return FLOW_CONTINUE;
		default:
			break;
	}
	return FLOW_ON;
}

static Flow
exec_body(LlmRender *r, const LlmNode *body)
{
	Flow flow = FLOW_ON;

	llm_tmpl_enter(&r->run);
	for (uint32_t i = 0; i < body->n && flow == FLOW_ON; i++)
	{
		r->run.line = body->kids[i]->line;
		llm_tmpl_charge(&r->run, 1);
		flow = exec_node(r, body->kids[i]);
	}
	llm_tmpl_leave(&r->run);
	return flow;
}

void
llm_tmpl_exec(LlmRender *r, const LlmNode *body)
{
	exec_body(r, body);
}

/* Bind the arguments to parameters in the macro's new scope; absent ones get their default, which
 * may use the parameters before it. */
static void
bind_macro(LlmRender *r, const LlmNode *node, const LlmArgs *args)
{
	uint32_t first_default = node->n_names - (node->n - 1);
	size_t n_used = 0;

	if (args->n_pos > node->n_names)
		llm_tmpl_fail(&r->run, "macro '%.*s' takes %u arguments, not %zu",
					  LLM_TMPL_SHOWN(node->sym->name), node->n_names, args->n_pos);
	llm_tmpl_charge_items(&r->run, node->n_names * args->n_named); /* each is compared with each */
	for (uint32_t i = 0; i < node->n_names; i++)
	{
		LlmValue value = {0};

		if (i < args->n_pos)
			value = args->pos[i];
		for (size_t k = 0; k < args->n_named; k++)
		{
			if (args->names[k] != node->names[i])
				continue;
			value = args->named[k];
			n_used++;
		}
		if (value.kind == LLM_V_ABSENT)
			value = i >= first_default ? llm_tmpl_eval(r, node->kids[1 + i - first_default])
									   : llm_tmpl_undefined(&node->names[i]->name);
		assign(r, node->names[i], value);
	}
	if (n_used < args->n_named)
		llm_tmpl_fail(&r->run, "macro '%.*s' has no parameter of a name given",
					  LLM_TMPL_SHOWN(node->sym->name));
}

LlmValue
llm_tmpl_call_macro(LlmRender *r, const LlmMacro *macro, const LlmArgs *args)
{
	const LlmNode *node = macro->node;
	LlmScope *scope = r->scope;
	LlmTextBuf *out = r->out;
	LlmText text;

	if (++r->macros > LLM_TEMPLATE_DEPTH_MAX)
		llm_tmpl_fail(&r->run, "macros call each other more than %d levels deep",
					  LLM_TEMPLATE_DEPTH_MAX);
	scope_push(r, macro->scope);
	bind_macro(r, node, args);
	r->out = llm_tmpl_buf_new(&r->run, 0);
	exec_body(r, node->kids[0]);
	text = llm_tmpl_buf_text(r->out);
	r->out = out;
	r->scope = scope;
	r->macros--;
	return llm_tmpl_str(&r->run, text);
}
