/*
 * pg/node/shown.c - how EXPLAIN shows a call.
 *
 * References to columns of a child plan are deparsed with two pairs of parentheses around each
 * expression. The original reads better, but its Vars mean something only in the plan node they come
 * from, unless they name a table. Arguments of a guarded call hold its conditions, and these the results of
 * the calls before: such a result is shown without arguments, or a chain would double with each call.
 */
#include "postgres.h"

#include "pg/node/shown.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "pg/call.h"
#include "utils/syscache.h"

/* True for what cannot be deparsed away from its own plan node. */
static bool
needs_own_plan(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && IS_SPECIAL_VARNO(((Var *) node)->varno))
		return true;
	if (IsA(node, FieldSelect)) /* of a record: its names are looked up in the plan */
		return true;
	return expression_tree_walker(node, needs_own_plan, context);
}

/* Names of the function's arguments, NULL when there are not n. */
static char **
argument_names(Oid funcid, int n)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	Oid *types;
	char **names = NULL;
	char *modes;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	if (get_func_arg_info(tuple, &types, &names, &modes) < n)
		names = NULL;
	ReleaseSysCache(tuple);
	return names;
}

static Node *
name_argument(Node *arg, char *name, int number)
{
	NamedArgExpr *named = makeNode(NamedArgExpr);

	named->arg = (Expr *) arg;
	named->name = name;
	named->argnumber = number;
	named->location = -1;
	return (Node *) named;
}

static Node *show(Node *node, void *context);

static FuncExpr *
show_call(const FuncExpr *call)
{
	char **names = argument_names(call->funcid, list_length(call->args));
	FuncExpr *shown = makeNode(FuncExpr);
	bool skipped = false;
	ListCell *lc;

	*shown = *call;
	shown->args = NIL;
	foreach (lc, call->args)
	{
		int i = foreach_current_index(lc);
		Node *arg = (Node *) lfirst(lc);

		if (i > 0 && names != NULL && IsA(arg, Const) && ((Const *) arg)->constisnull)
		{
			skipped = true;
			continue;
		}
		arg = show(arg, NULL);
		if (skipped)
			arg = name_argument(arg, names[i], i);
		shown->args = lappend(shown->args, arg);
	}
	return shown;
}

static Node *
show(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, FuncExpr) && llm_func_find(((FuncExpr *) node)->funcid) != NULL)
		return (Node *) show_call((FuncExpr *) node);
	return expression_tree_mutator(node, show, context);
}

FuncExpr *
llm_node_show_result(const FuncExpr *original, const FuncExpr *call, bool guarded)
{
	FuncExpr *shown;

	if (!needs_own_plan((Node *) original->args, NULL))
		return show_call(original);
	if (!guarded)
		return show_call(call);
	shown = makeNode(FuncExpr);
	*shown = *call;
	shown->args = NIL;
	return shown;
}

FuncExpr *
llm_node_show_call(const FuncExpr *result, const FuncExpr *call)
{
	return unconstify(FuncExpr *, result->args != NIL ? result : show_call(call));
}
