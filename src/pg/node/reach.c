/*
 * pg/node/reach.c - does a plan call the model, wherever?
 *
 * A plan runs its children, its expressions of every kind, and what these name by number: sub-selects
 * (SubPlan) and its own initPlans, among them the CTEs that are defined in it. A CteScan of a CTE that
 * is defined elsewhere reads rows that have been made once, for whomever.
 */
#include "postgres.h"

#include "pg/node/reach.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pg/node/guards.h"
#include "pg/node/layers.h"
#include "pg/node/node.h"

bool
llm_reach_children(Plan *plan, bool (*fn)(Plan *, void *), void *context)
{
	List *children = NIL;
	ListCell *lc;

	check_stack_depth();
	if ((plan->lefttree != NULL && fn(plan->lefttree, context)) ||
		(plan->righttree != NULL && fn(plan->righttree, context)))
		return true;
	switch (nodeTag(plan))
	{
		case T_Append:
			children = ((Append *) plan)->appendplans;
			break;
		case T_MergeAppend:
			children = ((MergeAppend *) plan)->mergeplans;
			break;
		case T_BitmapAnd:
			children = ((BitmapAnd *) plan)->bitmapplans;
			break;
		case T_BitmapOr:
			children = ((BitmapOr *) plan)->bitmapplans;
			break;
		case T_CustomScan:
			children = ((CustomScan *) plan)->custom_plans;
			break;
		case T_SubqueryScan:
			return fn(((SubqueryScan *) plan)->subplan, context);
		default:
			break;
	}
	foreach (lc, children)
	{
		if (fn((Plan *) lfirst(lc), context))
			return true;
	}
	return false;
}

/* ---- expressions ---- */

typedef bool (*ExprWalker)(Node *node, void *context);

/* Expressions that scans have beside target list and quals; the server keeps volatile functions out of
 * conditions of indexes, but does not look into sub-selects. */
static bool
scan_exprs(Plan *plan, ExprWalker fn, void *context)
{
	switch (nodeTag(plan))
	{
		case T_SampleScan:
			return fn((Node *) ((SampleScan *) plan)->tablesample, context);
		case T_IndexScan:
			return fn((Node *) ((IndexScan *) plan)->indexqualorig, context) ||
				   fn((Node *) ((IndexScan *) plan)->indexorderbyorig, context);
		case T_IndexOnlyScan:
			return fn((Node *) ((IndexOnlyScan *) plan)->indexqual, context) ||
				   fn((Node *) ((IndexOnlyScan *) plan)->indexorderby, context);
		case T_BitmapIndexScan:
			return fn((Node *) ((BitmapIndexScan *) plan)->indexqualorig, context);
		case T_BitmapHeapScan:
			return fn((Node *) ((BitmapHeapScan *) plan)->bitmapqualorig, context);
		case T_TidScan:
			return fn((Node *) ((TidScan *) plan)->tidquals, context);
		case T_TidRangeScan:
			return fn((Node *) ((TidRangeScan *) plan)->tidrangequals, context);
		case T_FunctionScan:
			return fn((Node *) ((FunctionScan *) plan)->functions, context);
		case T_TableFuncScan:
			return fn((Node *) ((TableFuncScan *) plan)->tablefunc, context);
		case T_ValuesScan:
			return fn((Node *) ((ValuesScan *) plan)->values_lists, context);
		case T_ForeignScan:
			return fn((Node *) ((ForeignScan *) plan)->fdw_exprs, context) ||
				   fn((Node *) ((ForeignScan *) plan)->fdw_recheck_quals, context);
		case T_CustomScan:
			return fn((Node *) ((CustomScan *) plan)->custom_exprs, context);
		default:
			return false;
	}
}

/* The same for other nodes. */
static bool
upper_exprs(Plan *plan, ExprWalker fn, void *context)
{
	if (llm_layers_is_join(plan) && fn((Node *) ((Join *) plan)->joinqual, context))
		return true;
	switch (nodeTag(plan))
	{
		case T_Result:
			return fn(((Result *) plan)->resconstantqual, context);
		case T_MergeJoin:
			return fn((Node *) ((MergeJoin *) plan)->mergeclauses, context);
		case T_HashJoin:
			return fn((Node *) ((HashJoin *) plan)->hashclauses, context);
		case T_Memoize:
			return fn((Node *) ((Memoize *) plan)->param_exprs, context);
		case T_WindowAgg:
			return fn(((WindowAgg *) plan)->startOffset, context) ||
				   fn(((WindowAgg *) plan)->endOffset, context) ||
				   fn((Node *) ((WindowAgg *) plan)->runCondition, context);
		case T_ModifyTable:
			return fn((Node *) ((ModifyTable *) plan)->withCheckOptionLists, context) ||
				   fn((Node *) ((ModifyTable *) plan)->returningLists, context) ||
				   fn((Node *) ((ModifyTable *) plan)->onConflictSet, context) ||
				   fn(((ModifyTable *) plan)->onConflictWhere, context) ||
				   fn((Node *) ((ModifyTable *) plan)->mergeActionLists, context);
		case T_Limit:
			return fn(((Limit *) plan)->limitOffset, context) ||
				   fn(((Limit *) plan)->limitCount, context);
		default:
			return false;
	}
}

bool
llm_reach_exprs(Plan *plan, bool (*fn)(Node *, void *), void *context)
{
	return fn((Node *) plan->targetlist, context) || fn((Node *) plan->qual, context) ||
		   fn((Node *) plan->initPlan, context) || scan_exprs(plan, fn, context) ||
		   upper_exprs(plan, fn, context);
}

/* ---- calls ---- */

static bool plan_calls(Plan *plan, void *subplans);

static bool
expr_calls(Node *node, void *subplans)
{
	if (node == NULL)
		return false;
	if (llm_guards_is_call(node))
		return true;
	if (IsA(node, SubPlan) &&
		plan_calls(list_nth((List *) subplans, ((SubPlan *) node)->plan_id - 1), subplans))
		return true;
	return expression_tree_walker(node, expr_calls, subplans);
}

static bool
plan_calls(Plan *plan, void *subplans)
{
	if (plan == NULL)
		return false; /* a sub-select that the planner has found unused */
	if (llm_node_is(plan))
		return true;
	return llm_reach_exprs(plan, expr_calls, subplans) ||
		   llm_reach_children(plan, plan_calls, subplans);
}

bool
llm_reach_calls(Plan *plan, List *subplans)
{
	return plan_calls(plan, subplans);
}

/* ---- queries ---- */

static bool
may_call(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid >= FirstNormalObjectId)
		return true;
	if (IsA(node, OpExpr) && ((OpExpr *) node)->opno >= FirstNormalObjectId)
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, may_call, context, QTW_IGNORE_JOINALIASES);
	return expression_tree_walker(node, may_call, context);
}

bool
llm_reach_may_call(Query *query)
{
	return may_call((Node *) query, NULL);
}
