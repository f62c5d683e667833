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

/* Expressions that scans have beside target list and quals; the server keeps volatile functions out of
 * conditions of indexes, but does not look into sub-selects. */
static bool
scan_calls(Plan *plan, List *subplans)
{
	switch (nodeTag(plan))
	{
		case T_SampleScan:
			return expr_calls((Node *) ((SampleScan *) plan)->tablesample, subplans);
		case T_IndexScan:
			return expr_calls((Node *) ((IndexScan *) plan)->indexqualorig, subplans) ||
				   expr_calls((Node *) ((IndexScan *) plan)->indexorderbyorig, subplans);
		case T_IndexOnlyScan:
			return expr_calls((Node *) ((IndexOnlyScan *) plan)->indexqual, subplans) ||
				   expr_calls((Node *) ((IndexOnlyScan *) plan)->indexorderby, subplans);
		case T_BitmapIndexScan:
			return expr_calls((Node *) ((BitmapIndexScan *) plan)->indexqualorig, subplans);
		case T_BitmapHeapScan:
			return expr_calls((Node *) ((BitmapHeapScan *) plan)->bitmapqualorig, subplans);
		case T_TidScan:
			return expr_calls((Node *) ((TidScan *) plan)->tidquals, subplans);
		case T_TidRangeScan:
			return expr_calls((Node *) ((TidRangeScan *) plan)->tidrangequals, subplans);
		case T_FunctionScan:
			return expr_calls((Node *) ((FunctionScan *) plan)->functions, subplans);
		case T_TableFuncScan:
			return expr_calls((Node *) ((TableFuncScan *) plan)->tablefunc, subplans);
		case T_ValuesScan:
			return expr_calls((Node *) ((ValuesScan *) plan)->values_lists, subplans);
		case T_ForeignScan:
			return expr_calls((Node *) ((ForeignScan *) plan)->fdw_exprs, subplans) ||
				   expr_calls((Node *) ((ForeignScan *) plan)->fdw_recheck_quals, subplans);
		case T_CustomScan:
			return ((CustomScan *) plan)->methods == &llm_node_scan_methods ||
				   expr_calls((Node *) ((CustomScan *) plan)->custom_exprs, subplans);
		default:
			return false;
	}
}

/* The same for other nodes. */
static bool
upper_calls(Plan *plan, List *subplans)
{
	if (llm_layers_is_join(plan) && expr_calls((Node *) ((Join *) plan)->joinqual, subplans))
		return true;
	switch (nodeTag(plan))
	{
		case T_Result:
			return expr_calls(((Result *) plan)->resconstantqual, subplans);
		case T_MergeJoin:
			return expr_calls((Node *) ((MergeJoin *) plan)->mergeclauses, subplans);
		case T_HashJoin:
			return expr_calls((Node *) ((HashJoin *) plan)->hashclauses, subplans);
		case T_Memoize:
			return expr_calls((Node *) ((Memoize *) plan)->param_exprs, subplans);
		case T_WindowAgg:
			return expr_calls(((WindowAgg *) plan)->startOffset, subplans) ||
				   expr_calls(((WindowAgg *) plan)->endOffset, subplans) ||
				   expr_calls((Node *) ((WindowAgg *) plan)->runCondition, subplans);
		case T_Limit:
			return expr_calls(((Limit *) plan)->limitOffset, subplans) ||
				   expr_calls(((Limit *) plan)->limitCount, subplans);
		default:
			return false;
	}
}

static bool
plan_calls(Plan *plan, void *subplans)
{
	if (plan == NULL)
		return false; /* a sub-select that the planner has found unused */
	return expr_calls((Node *) plan->targetlist, subplans) ||
		   expr_calls((Node *) plan->qual, subplans) ||
		   expr_calls((Node *) plan->initPlan, subplans) || scan_calls(plan, subplans) ||
		   upper_calls(plan, subplans) || llm_reach_children(plan, plan_calls, subplans);
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
