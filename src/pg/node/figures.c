/*
 * pg/node/figures.c - rows and costs of the nodes that plan nodes are taken apart into.
 *
 * The planner's figures of a node count every qual and every call of it. A layer that takes some of
 * them over is told what is left:
 *
 *     rows   What the lowest layer reads is what the node would give without the quals that moved:
 *            their selectivity is divided out, within what the table holds and what the planner has
 *            charged for. Each filter multiplies its own in again.
 *     cost   Calls cost what estimate.c says, for the rows that their layer reads, and the node at the
 *            bottom what it would without them. The planner charges every call of a node for the rows that
 *            reach the first (charges.c); so the top may be cheaper than the whole was, and is never
 *            dearer: nodes above stay true.
 *
 * A qual's selectivity does not depend on columns that a call has swallowed, so unknown values stand
 * for them and the planner's defaults come out. Where that is more rows than can be there, the bound
 * counts. Nothing here asks the engine, and no answer depends on it.
 */
#include "postgres.h"

#include "pg/node/figures.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "pg/node/guards.h"
#include "pg/node/layers.h"
#include "pg/node/node.h"
#include "utils/syscache.h"

LlmFigures
llm_figures_of(const Plan *plan)
{
	LlmFigures figures = {plan->plan_rows, plan->startup_cost, plan->total_cost};

	return figures;
}

/* ---- tokens ---- */

#define COLUMNS_MOST 1000 /* that are looked into for a call: each level may name one twice */

static Plan *
first_child(const Plan *plan)
{
	if (IsA(plan, Append))
		return (Plan *) linitial(((const Append *) plan)->appendplans);
	if (IsA(plan, MergeAppend))
		return (Plan *) linitial(((const MergeAppend *) plan)->mergeplans);
	return plan->lefttree;
}

/* What a column of plan's expressions is below, in the columns of *where; NULL = a table's, or not
 * known. */
static Node *
definition(Plan *plan, const Var *var, Plan **where)
{
	const CustomScan *node = (const CustomScan *) plan;
	int attno = var->varattno;
	List *tlist;

	*where = NULL;
	if (var->varno == OUTER_VAR)
		*where = first_child(plan);
	else if (var->varno == INNER_VAR)
		*where = plan->righttree;
	else if (IsA(plan, SubqueryScan) && var->varno == (int) ((SubqueryScan *) plan)->scan.scanrelid)
		*where = ((SubqueryScan *) plan)->subplan;
	else if (var->varno == INDEX_VAR && llm_node_is(plan))
	{
		int ncols = intVal(linitial(node->custom_private));

		if (attno > ncols)
			return (Node *) list_nth((List *) lsecond(node->custom_private), attno - ncols - 1);
		*where = plan->lefttree;
	}
	else if (var->varno == INDEX_VAR && IsA(plan, IndexOnlyScan))
		*where = plan;
	if (*where == NULL)
		return NULL;
	tlist = *where == plan ? ((IndexOnlyScan *) plan)->indextlist : (*where)->targetlist;
	if (attno <= 0 || attno > list_length(tlist))
		return NULL;
	return (Node *) list_nth_node(TargetEntry, tlist, attno - 1)->expr;
}

/* What the columns of an expression are. */
typedef struct Flatten
{
	Plan *plan; /* whose columns they are */
	int *left;  /* of COLUMNS_MOST */
} Flatten;

static Node *flatten(Node *node, void *context);

/* Conditions stay as they are: a guard repeats those of the guards below it, and no length depends on
 * them. */
static Node *
flatten_case(const CaseExpr *expr, Flatten *context)
{
	CaseExpr *copy = makeNode(CaseExpr);
	ListCell *lc;

	*copy = *expr;
	copy->args = NIL;
	foreach (lc, expr->args)
	{
		CaseWhen *when = makeNode(CaseWhen);

		*when = *lfirst_node(CaseWhen, lc);
		when->result = (Expr *) flatten((Node *) when->result, context);
		copy->args = lappend(copy->args, when);
	}
	copy->defresult = (Expr *) flatten((Node *) expr->defresult, context);
	return (Node *) copy;
}

/* Columns become what they are below, down to those of tables; an answer of the model stays one. */
static Node *
flatten(Node *node, void *context)
{
	Flatten *here = (Flatten *) context;
	Flatten below = *here;
	Node *expr;

	if (node == NULL)
		return NULL;
	if (IsA(node, CaseExpr))
		return flatten_case((CaseExpr *) node, here);
	if (!IsA(node, Var))
		return expression_tree_mutator(node, flatten, context);
	expr = definition(here->plan, (Var *) node, &below.plan);
	if (expr == NULL || --*here->left < 0)
		return node;
	return llm_guards_is_call(expr) || below.plan == here->plan ? expr : flatten(expr, &below);
}

LlmEstimate
llm_figures_tokens(List *rtable, Plan *plan, const FuncExpr *call)
{
	int left = COLUMNS_MOST;
	Flatten context = {plan, &left};

	return llm_estimate_call(rtable, (List *) flatten((Node *) call->args, &context));
}

typedef struct Price
{
	List *rtable;
	Plan *plan;
	Cost cost;
} Price;

static bool
add_price(Node *node, void *context)
{
	Price *price = (Price *) context;

	if (node == NULL)
		return false;
	if (llm_guards_is_call(node))
	{
		LlmEstimate e = llm_figures_tokens(price->rtable, price->plan, (FuncExpr *) node);

		price->cost += llm_estimate_cost(&e);
	}
	return expression_tree_walker(node, add_price, context);
}

Cost
llm_figures_price(List *rtable, Plan *plan, List *exprs)
{
	Price price = {rtable, plan, 0};

	(void) add_price((Node *) exprs, &price);
	return price.cost;
}

/* ---- rows ---- */

/* Values that nothing is known of, in place of columns and what is computed from groups of rows. */
static Node *
unknown(Node *node, void *context)
{
	Param *param;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var) && !IsA(node, Aggref) && !IsA(node, GroupingFunc) && !IsA(node, WindowFunc))
		return expression_tree_mutator(node, unknown, context);
	param = makeNode(Param);
	param->paramkind = PARAM_EXEC;
	param->paramid = -1;
	param->paramtype = exprType(node);
	param->paramtypmod = exprTypmod(node);
	param->paramcollid = exprCollation(node);
	param->location = -1;
	return (Node *) param;
}

static double
selectivity(List *quals)
{
	PlannerInfo *root;

	if (quals == NIL)
		return 1;
	root = makeNode(PlannerInfo);
	root->parse = makeNode(Query);
	root->glob = makeNode(PlannerGlobal);
	root->planner_cxt = CurrentMemoryContext;
	return clauselist_selectivity(root, (List *) unknown((Node *) quals, NULL), 0, JOIN_INNER,
								  NULL);
}

/* Rows of the table that plan scans, as it was analyzed, and its pages; -1 = not known. */
static double
table_rows(List *rtable, const Plan *plan, double *pages)
{
	Index relid = ((const Scan *) plan)->scanrelid;
	double rows = -1;
	HeapTuple tuple;

	*pages = 0;
	if (relid == 0 || rt_fetch(relid, rtable)->rtekind != RTE_RELATION)
		return -1;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(rt_fetch(relid, rtable)->relid));
	if (HeapTupleIsValid(tuple))
	{
		rows = ((Form_pg_class) GETSTRUCT(tuple))->reltuples;
		*pages = ((Form_pg_class) GETSTRUCT(tuple))->relpages;
		ReleaseSysCache(tuple);
	}
	return rows;
}

/* Rows that plan could give if it had no quals; -1 = not known. */
static double
most_rows(List *rtable, const Plan *plan)
{
	double pages;

	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_ForeignScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			return table_rows(rtable, plan, &pages);
		case T_SubqueryScan:
			return ((const SubqueryScan *) plan)->subplan->plan_rows;
		case T_Agg:
			return (double) ((const Agg *) plan)->numGroups;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			if (((const Join *) plan)->inner_unique)
				return plan->lefttree->plan_rows;
			return plan->lefttree->plan_rows * plan->righttree->plan_rows;
		default:
			return plan->lefttree != NULL ? plan->lefttree->plan_rows : -1;
	}
}

/* ---- costs ---- */

/* The least that plan costs for its rows: what is below it and always read to the end, and themselves. */
static Cost
least_cost(List *rtable, const Plan *plan)
{
	Cost cost = plan->startup_cost;
	double pages;

	if (IsA(plan, SeqScan))
	{
		double rows = table_rows(rtable, plan, &pages);

		return cost + pages * seq_page_cost + Max(rows, plan->plan_rows) * cpu_tuple_cost;
	}
	if (IsA(plan, SubqueryScan))
		cost = Max(cost, ((const SubqueryScan *) plan)->subplan->total_cost);
	else if (plan->lefttree != NULL && !IsA(plan, MergeJoin))
		cost = Max(cost, plan->lefttree->total_cost);
	return cost + plan->plan_rows * cpu_tuple_cost;
}

/* Take off plan what calls cost that it makes no longer. */
static void
take_off(List *rtable, Plan *plan, Cost cost)
{
	Cost rest = Max(least_cost(rtable, plan), plan->total_cost - cost);

	plan->total_cost = Min(plan->total_cost, rest);
}

/* Rows of plan without quals of this selectivity, which call the model at this cost per row. */
static double
rows_without(List *rtable, const Plan *plan, double selectivity, Cost calls)
{
	double most = most_rows(rtable, plan);
	double rows = plan->plan_rows;

	if (selectivity >= 1)
		return rows;
	rows = selectivity > 0 ? rows / selectivity : Max(most, rows);
	if (most > 0)
		rows = Min(rows, most);
	/* The planner has charged the calls for the rows that it expects; of joins it has other ideas. */
	if (calls > 0 && !llm_layers_is_join(plan))
		rows = Min(rows, (plan->total_cost - least_cost(rtable, plan)) / calls);
	return clamp_row_est(Max(rows, plan->plan_rows));
}

void
llm_figures_take_out(List *rtable, Plan *plan, List *quals)
{
	Cost price = llm_figures_price(rtable, plan, quals);

	plan->plan_rows = rows_without(rtable, plan, selectivity(quals), price);
	take_off(rtable, plan, plan->plan_rows * price);
}

void
llm_figures_spread(List *rtable, LlmFigures whole, Plan *bottom, bool stays, List *nodes)
{
	double passing = 1; /* part of the rows read that is left */
	double rows;
	Cost filters = 0; /* per row */
	Cost others = 0;
	Cost calls = 0;
	Cost scale;
	ListCell *lc;

	foreach (lc, nodes)
	{
		Plan *plan = (Plan *) lfirst(lc);
		List *made = (List *) lsecond(((CustomScan *) plan)->custom_private);

		plan->total_cost = llm_figures_price(rtable, plan, made); /* per row, for now */
		if (plan->qual != NIL)
			filters += plan->total_cost;
		else
			others += plan->total_cost;
		passing *= selectivity(plan->qual);
	}
	if (stays)
	{
		take_off(rtable, bottom, whole.rows * others);
		bottom->plan_rows = rows_without(rtable, bottom, passing, filters);
		take_off(rtable, bottom, bottom->plan_rows * filters);
	}
	rows = bottom->plan_rows;
	foreach (lc, nodes)
	{
		Plan *plan = (Plan *) lfirst(lc);

		calls += rows * plan->total_cost;
		rows = clamp_row_est(Max(rows * selectivity(plan->qual), whole.rows));
		plan->plan_rows = rows;
		plan->startup_cost = whole.startup;
		plan->total_cost = calls;
	}
	((Plan *) llast(nodes))->plan_rows = whole.rows;
	scale = calls > 0 ? Min(1, (whole.total - bottom->total_cost) / calls) : 0;
	foreach (lc, nodes)
	{
		Plan *plan = (Plan *) lfirst(lc);

		plan->total_cost = bottom->total_cost + Max(scale, 0) * plan->total_cost;
		plan->total_cost = Max(plan->total_cost, plan->startup_cost);
	}
}
