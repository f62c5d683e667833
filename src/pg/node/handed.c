/*
 * pg/node/handed.c - FROM docs, jsonb_array_elements(llm_generate(docs.body)::jsonb) e.
 *
 * The inner side of such a nested loop scans a function whose arguments are computed from columns of
 * the outer row, so calls in them are made one at a time. Each is evaluated once for every outer row,
 * whatever the function returns; so it may as well be a column of the outer side, where calls are
 * batched, and come in as one more parameter of the loop:
 *
 *     Nested Loop                                      Nested Loop           $1 = column 3
 *     ->  Seq Scan on docs                       =>    ->  LLM Batch         columns 1 and 2, argument
 *     ->  Function Scan  f(llm_generate($0))               ->  Seq Scan on docs
 *                                                      ->  Function Scan     f($1)
 *
 * Between the loop and the scan there may be nodes that read a row from below at each of their scans:
 * an aggregate, a sort, a LIMIT. A function that reads no column of the outer row is not evaluated
 * again, its rows are kept; so its arguments stay where they are.
 */
#include "postgres.h"

#include "pg/node/handed.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "pg/node/figures.h"
#include "pg/node/guards.h"
#include "pg/node/layers.h"
#include "pg/node/node.h"

typedef struct Handed
{
	NestLoop *join;
	List *path;  /* plans from the inner side down to the scan */
	List *tlist; /* what the outer side is to deliver; NIL = as it is */
	LlmLayersScope *scope;
	bool failed; /* an expression that the outer side cannot evaluate */
} Handed;

/* True when a LIMIT is none, or known to let a row pass. */
static bool
may_pass(const Const *limit)
{
	return limit == NULL ||
		   (IsA(limit, Const) && (limit->constisnull || DatumGetInt64(limit->constvalue) > 0));
}

/* The plan below that is scanned, from its first row, whenever plan is; NULL when there is none. */
static Plan *
always_read(Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SubqueryScan:
			return ((SubqueryScan *) plan)->subplan;
		case T_Result:
			return ((Result *) plan)->resconstantqual == NULL ? plan->lefttree : NULL;
		case T_CustomScan:
			return llm_node_is(plan) ? plan->lefttree : NULL;
		case T_Limit:
			return may_pass((Const *) ((Limit *) plan)->limitCount) ? plan->lefttree : NULL;
		case T_Agg:
		case T_Group:
		case T_IncrementalSort:
		case T_Material:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Sort:
		case T_Unique:
		case T_WindowAgg:
			return plan->lefttree;
		default:
			return NULL;
	}
}

/* The function scan of the inner side, NULL when there is none; fills handed->path. */
static FunctionScan *
find_scan(Handed *handed)
{
	Plan *plan;

	for (plan = handed->join->join.plan.righttree; plan != NULL; plan = always_read(plan))
	{
		handed->path = lappend(handed->path, plan);
		if (IsA(plan, FunctionScan))
			return (FunctionScan *) plan;
	}
	return NULL;
}

/* An expression of the inner side in the columns of the outer one. */
static Node *
outer_mutator(Node *node, void *context)
{
	Handed *handed = (Handed *) context;
	Node *value;

	if (node == NULL)
		return NULL;
	value = llm_layers_handed(handed->join, node);
	if (value != NULL)
		return value;
	/* other parameters come from above the loop, or from between it and the scan */
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC &&
		!bms_is_member(((Param *) node)->paramid, handed->join->join.plan.extParam))
		handed->failed = true;
	return expression_tree_mutator(node, outer_mutator, context);
}

/* The parameter in whose place arg is computed on the outer side, or arg itself. */
static Node *
hand_in(Handed *handed, Node *arg, RangeTblFunction *function)
{
	Plan *outer = handed->join->join.plan.lefttree;
	NestLoopParam *loop = makeNode(NestLoopParam);
	Param *param = makeNode(Param);
	Node *expr;
	AttrNumber resno;
	ListCell *lc;

	if (!llm_guards_has_call(arg) || contain_subplans(arg))
		return arg;
	handed->failed = false;
	expr = outer_mutator(arg, handed);
	if (handed->failed)
		return arg;
	if (handed->tlist == NIL)
		handed->tlist = llm_layers_pass_on(outer);
	resno = list_length(handed->tlist) + 1;
	handed->tlist = lappend(handed->tlist, makeTargetEntry((Expr *) expr, resno, NULL, false));

	param->paramkind = PARAM_EXEC;
	param->paramid = list_length(handed->scope->param_types);
	param->paramtype = exprType(arg);
	param->paramtypmod = exprTypmod(arg);
	param->paramcollid = exprCollation(arg);
	param->location = -1;
	handed->scope->param_types = lappend_oid(handed->scope->param_types, param->paramtype);
	loop->paramno = param->paramid;
	loop->paramval = llm_layers_var(OUTER_VAR, resno, arg);
	handed->join->nestParams = lappend(handed->join->nestParams, loop);
	function->funcparams = bms_add_member(function->funcparams, param->paramid);
	foreach (lc, handed->path)
	{
		Plan *plan = (Plan *) lfirst(lc);

		plan->extParam = bms_add_member(plan->extParam, param->paramid);
		plan->allParam = bms_add_member(plan->allParam, param->paramid);
	}
	return (Node *) param;
}

bool
llm_handed_again(const NestLoop *join, const RangeTblFunction *function)
{
	ListCell *lc;

	foreach (lc, join->nestParams)
	{
		if (bms_is_member(lfirst_node(NestLoopParam, lc)->paramno, function->funcparams))
			return true;
	}
	return false;
}

void
llm_handed_build(NestLoop *join, LlmLayersScope *scope)
{
	Plan *plan = &join->join.plan;
	Handed handed = {join, NIL, NIL, scope, false};
	FunctionScan *scan = find_scan(&handed);
	Plan *outer;
	Cost calls;
	ListCell *lc;
	ListCell *arg;

	if (scan == NULL)
		return;
	foreach (lc, scan->functions)
	{
		RangeTblFunction *function = lfirst_node(RangeTblFunction, lc);
		Node *expr = function->funcexpr;

		if (!llm_handed_again(join, function))
			continue;
		if (llm_guards_is_call(expr))
			function->funcexpr = hand_in(&handed, expr, function);
		else if (IsA(expr, FuncExpr))
		{
			foreach (arg, ((FuncExpr *) expr)->args)
				lfirst(arg) = hand_in(&handed, (Node *) lfirst(arg), function);
		}
	}
	if (handed.tlist == NIL)
		return;
	outer = llm_layers_project(plan->lefttree, handed.tlist, plan->lefttree, scope);
	calls = outer->plan_rows * llm_figures_price(scope->rtable, outer, handed.tlist);
	outer->total_cost = Min(outer->total_cost + calls, plan->total_cost);
	plan->lefttree = llm_layers_build(outer, scope);
}
