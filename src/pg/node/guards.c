/*
 * pg/node/guards.c - calls below CASE, COALESCE, AND and OR.
 *
 * Such a call is made only for the rows that reach it. To make it before the expression is evaluated,
 * its prompt is computed under the same conditions and is NULL elsewhere; a NULL prompt makes no
 * request. coalesce(label, llm_generate(body)) becomes
 *
 *     above    coalesce(label, result)
 *     below    CASE WHEN label IS NOT NULL THEN NULL ELSE body END    the prompt
 *
 * The conditions are evaluated twice, so they must give the same twice: volatile functions and
 * sub-selects leave the call to the scalar path. Calls of the model in a condition are made once, in
 * a layer below both places (llm_guards_first); to know them again, expressions are put together from
 * the original nodes, never from copies.
 */
#include "postgres.h"

#include "pg/node/guards.h"

#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "pg/call.h"
#include "utils/lsyscache.h"

bool
llm_guards_is_call(Node *node)
{
	return IsA(node, FuncExpr) && llm_func_find(((FuncExpr *) node)->funcid) != NULL;
}

static bool
any_call_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return llm_guards_is_call(node) || expression_tree_walker(node, any_call_walker, context);
}

bool
llm_guards_any_call(Node *expr)
{
	return any_call_walker(expr, NULL);
}

/* CASE x WHEN y: a call in y would have to be told apart from what stands for x. */
static bool
compares_with_call(const CaseExpr *expr)
{
	ListCell *lc;

	foreach (lc, expr->args)
	{
		if (any_call_walker((Node *) ((CaseWhen *) lfirst(lc))->expr, NULL))
			return true;
	}
	return false;
}

bool
llm_guards_is_barrier(Node *node)
{
	switch (nodeTag(node))
	{
		case T_Aggref:
		case T_WindowFunc:
		case T_GroupingFunc:
		case T_SubPlan:
		case T_AlternativeSubPlan:
		case T_RowCompareExpr:
			return true;
		case T_FuncExpr: /* a set: not once per row */
			return ((FuncExpr *) node)->funcretset;
		case T_OpExpr:
			return ((OpExpr *) node)->opretset;
		case T_CaseExpr:
			return ((CaseExpr *) node)->arg != NULL && compares_with_call((CaseExpr *) node);
		case T_SubscriptingRef: /* of NULL: the subscripts are not evaluated */
			return any_call_walker((Node *) ((SubscriptingRef *) node)->refupperindexpr, NULL) ||
				   any_call_walker((Node *) ((SubscriptingRef *) node)->reflowerindexpr, NULL);
		default:
			return false;
	}
}

/* ---- conditions that can be evaluated twice ---- */

static bool
is_volatile(Oid funcid, void *context)
{
	return llm_func_find(funcid) == NULL && func_volatile(funcid) == PROVOLATILE_VOLATILE;
}

static bool
others_volatile_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr) || check_functions_in_node(node, is_volatile, NULL))
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, others_volatile_walker, context, 0);
	return expression_tree_walker(node, others_volatile_walker, context);
}

bool
llm_guards_others_volatile(Node *expr)
{
	return others_volatile_walker(expr, NULL);
}

static bool
unrepeatable_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) || IsA(node, NextValueExpr))
		return true;
	if (llm_guards_is_barrier(node) && any_call_walker(node, NULL))
		return true; /* its calls are made where they stand */
	if (check_functions_in_node(node, is_volatile, NULL))
		return true;
	return expression_tree_walker(node, unrepeatable_walker, context);
}

bool
llm_guards_repeatable(Node *expr)
{
	return !unrepeatable_walker(expr, NULL);
}

/* ---- parts ---- */

/* The parts of one expression while they are being listed. */
typedef struct Split
{
	const LlmGuard *outer;
	Expr *subject;
	List *skip;  /* conditions so far */
	bool usable; /* all of them can be evaluated twice */
	List *parts;
} Split;

static void
add_part(Split *split, Expr *expr, Expr *enter)
{
	LlmGuardPart *part = palloc0(sizeof(LlmGuardPart));
	LlmGuard *guard;

	part->expr = (Node *) expr;
	part->guard = split->outer;
	part->usable = split->usable;
	split->parts = lappend(split->parts, part);
	if (split->skip == NIL && enter == NULL)
		return;
	guard = palloc0(sizeof(LlmGuard));
	guard->outer = split->outer;
	guard->subject = split->subject;
	guard->skip = split->skip;
	guard->n_skip = list_length(split->skip);
	guard->enter = enter;
	part->guard = guard;
}

/* What follows is evaluated unless condition is true. */
static void
add_skip(Split *split, Expr *condition)
{
	split->skip = lappend(split->skip, condition);
	split->usable = split->usable && llm_guards_repeatable((Node *) condition);
}

static void
split_case(Split *split, const CaseExpr *expr)
{
	ListCell *lc;

	if (expr->arg != NULL)
	{
		add_part(split, expr->arg, NULL);
		split->subject = expr->arg;
		split->usable = llm_guards_repeatable((Node *) expr->arg);
	}
	foreach (lc, expr->args)
	{
		CaseWhen *when = lfirst_node(CaseWhen, lc);
		bool usable = split->usable;

		add_part(split, when->expr, NULL);
		split->usable = usable && llm_guards_repeatable((Node *) when->expr);
		add_part(split, when->result, when->expr);
		add_skip(split, when->expr);
	}
	add_part(split, expr->defresult, NULL);
}

static Expr *
is_not_null(Expr *arg)
{
	NullTest *test = makeNode(NullTest);

	test->arg = arg;
	test->nulltesttype = IS_NOT_NULL;
	test->argisrow = false; /* as COALESCE looks at it */
	test->location = -1;
	return (Expr *) test;
}

static Expr *
is_false(Expr *arg)
{
	BooleanTest *test = makeNode(BooleanTest);

	test->arg = arg;
	test->booltesttype = IS_FALSE;
	test->location = -1;
	return (Expr *) test;
}

/* The list of arguments that are evaluated one after the other, NULL when node has none. */
static List **
args_in_turn(Node *node)
{
	if (IsA(node, CoalesceExpr))
		return &((CoalesceExpr *) node)->args;
	if (IsA(node, BoolExpr) && ((BoolExpr *) node)->boolop != NOT_EXPR)
		return &((BoolExpr *) node)->args;
	return NULL;
}

List *
llm_guards_split(Node *node, const LlmGuard *outer)
{
	Split split = {outer, NULL, NIL, true, NIL};
	List **args = args_in_turn(node);
	ListCell *lc;

	if (IsA(node, CaseExpr))
		split_case(&split, (CaseExpr *) node);
	else if (args != NULL)
	{
		foreach (lc, *args)
		{
			Expr *arg = (Expr *) lfirst(lc);

			add_part(&split, arg, NULL);
			if (IsA(node, CoalesceExpr))
				add_skip(&split, is_not_null(arg));
			else
				add_skip(&split, ((BoolExpr *) node)->boolop == AND_EXPR ? is_false(arg) : arg);
		}
	}
	return split.parts;
}

Node *
llm_guards_join(Node *node, List *exprs)
{
	ListCell *next = list_head(exprs);
	CaseExpr *copy;
	ListCell *lc;

	if (!IsA(node, CaseExpr))
	{
		Node *other =
			IsA(node, CoalesceExpr) ? (Node *) makeNode(CoalesceExpr) : (Node *) makeNode(BoolExpr);

		if (IsA(node, CoalesceExpr))
			*(CoalesceExpr *) other = *(CoalesceExpr *) node;
		else
			*(BoolExpr *) other = *(BoolExpr *) node;
		*args_in_turn(other) = exprs;
		return other;
	}
	copy = makeNode(CaseExpr);
	*copy = *(CaseExpr *) node;
	copy->args = NIL;
	if (copy->arg != NULL)
	{
		copy->arg = (Expr *) lfirst(next);
		next = lnext(exprs, next);
	}
	foreach (lc, ((CaseExpr *) node)->args)
	{
		CaseWhen *when = makeNode(CaseWhen);

		*when = *lfirst_node(CaseWhen, lc);
		when->expr = (Expr *) lfirst(next);
		next = lnext(exprs, next);
		when->result = (Expr *) lfirst(next);
		next = lnext(exprs, next);
		copy->args = lappend(copy->args, when);
	}
	copy->defresult = (Expr *) lfirst(next);
	return (Node *) copy;
}

/* ---- use ---- */

static CaseWhen *
case_when(Expr *condition, Expr *result)
{
	CaseWhen *when = makeNode(CaseWhen);

	when->expr = condition;
	when->result = result;
	when->location = -1;
	return when;
}

Expr *
llm_guards_apply(const LlmGuard *guard, Expr *expr)
{
	Node *node = (Node *) expr;
	Expr *null = (Expr *) makeNullConst(exprType(node), exprTypmod(node), exprCollation(node));

	for (; guard != NULL; guard = guard->outer)
	{
		CaseExpr *wrap = makeNode(CaseExpr);
		ListCell *lc;

		wrap->casetype = exprType(node);
		wrap->casecollid = exprCollation(node);
		wrap->arg = guard->subject;
		wrap->location = -1;
		foreach (lc, guard->skip)
		{
			if (foreach_current_index(lc) == guard->n_skip)
				break;
			wrap->args = lappend(wrap->args, case_when((Expr *) lfirst(lc), null));
		}
		if (guard->enter != NULL)
			wrap->args = lappend(wrap->args, case_when(guard->enter, expr));
		wrap->defresult = guard->enter != NULL ? null : expr;
		expr = (Expr *) wrap;
	}
	return expr;
}

static bool
has_call_walker(Node *node, void *context)
{
	List *parts;
	ListCell *lc;

	if (node == NULL || llm_guards_is_barrier(node))
		return false;
	if (llm_guards_is_call(node))
		return true;
	parts = llm_guards_split(node, NULL);
	if (parts == NIL)
		return expression_tree_walker(node, has_call_walker, context);
	foreach (lc, parts)
	{
		LlmGuardPart *part = (LlmGuardPart *) lfirst(lc);

		if (part->usable && has_call_walker(part->expr, context))
			return true;
	}
	return false;
}

bool
llm_guards_has_call(Node *expr)
{
	return has_call_walker(expr, NULL);
}

/* The calls that are made to evaluate a condition. */
static bool
collect_calls_walker(Node *node, void *context)
{
	List **found = (List **) context;

	if (node == NULL)
		return false;
	if (!llm_guards_is_call(node))
		return expression_tree_walker(node, collect_calls_walker, context);
	*found = list_append_unique_ptr(*found, node);
	return false;
}

typedef struct FirstContext
{
	List **found;
	const LlmGuard *guard;
} FirstContext;

static bool
first_walker(Node *node, void *context)
{
	FirstContext *cxt = (FirstContext *) context;
	List *parts;
	ListCell *lc;

	if (node == NULL || llm_guards_is_barrier(node))
		return false;
	if (llm_guards_is_call(node))
	{
		const LlmGuard *guard;

		for (guard = cxt->guard; guard != NULL; guard = guard->outer)
		{
			collect_calls_walker((Node *) guard->subject, cxt->found);
			foreach (lc, guard->skip)
			{
				if (foreach_current_index(lc) == guard->n_skip)
					break;
				collect_calls_walker((Node *) lfirst(lc), cxt->found);
			}
			collect_calls_walker((Node *) guard->enter, cxt->found);
		}
		return false;
	}
	parts = llm_guards_split(node, cxt->guard);
	if (parts == NIL)
		return expression_tree_walker(node, first_walker, context);
	foreach (lc, parts)
	{
		LlmGuardPart *part = (LlmGuardPart *) lfirst(lc);
		FirstContext inner = {cxt->found, part->guard};

		if (part->usable)
			first_walker(part->expr, &inner);
	}
	return false;
}

List *
llm_guards_first(List *exprs, List *guards)
{
	List *found = NIL;
	ListCell *lc;

	foreach (lc, exprs)
	{
		int i = foreach_current_index(lc);
		FirstContext cxt = {&found, i < list_length(guards) ? list_nth(guards, i) : NULL};

		first_walker((Node *) lfirst(lc), &cxt);
	}
	return found;
}
