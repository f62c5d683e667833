/*
 * pg/node/plan.c - the planner hook: rewrite the query, plan it, then put LLM Batch nodes in.
 *
 * Two stages. The first may turn the query into an equivalent one that calls the model less often;
 * it runs before planning. The second walks the finished plan and hands every node that can be taken
 * apart to layers.c. What is left alone takes the scalar path, which is always right: the inner side
 * of a merge join (mark and restore), and what stops at the first match each time that it is run, but
 * for what is sorted, hashed, grouped or kept there; plans for SCROLL cursors, and custom nodes of others.
 */
#include "postgres.h"

#include "pg/node/plan.h"

#include <limits.h>

#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/guc.h"
#include "pg/node/appends.h"
#include "pg/node/charges.h"
#include "pg/node/feeds.h"
#include "pg/node/guards.h"
#include "pg/node/handed.h"
#include "pg/node/inners.h"
#include "pg/node/laterals.h"
#include "pg/node/layers.h"
#include "pg/node/node.h"
#include "pg/node/pulled.h"
#include "pg/node/reach.h"
#include "pg/node/unread.h"
#include "pg/node/whole.h"

#define PULL_MARGIN 0.9 /* of the cost: estimates of joins are rough */
#define PULL_TRIES 8    /* plans that a statement is compared with, however deep it is */

static planner_hook_type prev_planner_hook = NULL;

/* Stage one, query to query: each rewrite comes with the reason why its answer is the same. */
static Query *
rewrite_query(Query *parse)
{
	if (llm_guc_skip_unread_columns)
		llm_unread_remove(parse);
	return parse;
}

/* ---- stage two ---- */

static bool
multiexpr_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) && ((SubPlan *) node)->subLinkType == MULTIEXPR_SUBLINK)
		return true;
	return expression_tree_walker(node, multiexpr_walker, context);
}

/* UPDATE .. SET (a, b) = (SELECT ..): entries depend on the order of evaluation. */
static bool
tlist_has_multiexpr(List *tlist)
{
	return multiexpr_walker((Node *) tlist, NULL);
}

/* Nodes whose quals and target list may be evaluated above them. */
static bool
can_take_apart(Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
		case T_SubqueryScan:
		case T_FunctionScan:
		case T_TableFuncScan:
		case T_ValuesScan:
		case T_CteScan:
		case T_NamedTuplestoreScan:
		case T_WorkTableScan:
		case T_Gather:
		case T_GatherMerge:
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
		case T_Agg:
		case T_Group:
		case T_ProjectSet:
			break;
		case T_ForeignScan:
			if (((ForeignScan *) plan)->operation != CMD_SELECT)
				return false; /* the other server modifies rows and returns them */
			break;
		case T_WindowAgg:
			if (((WindowAgg *) plan)->runCondition != NIL)
				return false; /* it counts on the places of the target list */
			break;
		case T_Result:
			if (plan->lefttree == NULL)
				return false; /* one row: nothing to batch */
			break;
		default:
			return false;
	}
	return !tlist_has_multiexpr(plan->targetlist);
}

/* One walk over a finished plan. */
typedef struct Walk
{
	bool batch;         /* nodes are put in; otherwise calls only keep to once per row */
	List *subplans;     /* of the statement */
	Bitmapset *stopped; /* numbers (from 1) of those that stop at a match */
	LlmLayersScope scope;
} Walk;

static Plan *walk_plan(Plan *plan, bool fixed, Walk *walk);

static void
walk_list(List *plans, bool fixed, Walk *walk)
{
	ListCell *lc;

	foreach (lc, plans)
		lfirst(lc) = walk_plan((Plan *) lfirst(lc), fixed, walk);
}

/* Another extension's node knows its plans: nothing is put in, but a Memoize further down goes. */
static void
walk_foreign(CustomScan *cscan, Walk *walk)
{
	bool batch = walk->batch;

	walk->batch = false;
	walk_list(cscan->custom_plans, true, walk);
	walk->batch = batch;
}

/* Rows that a LIMIT lets through, 0 = not known while planning. */
static int
limit_bound(const Limit *limit)
{
	int64 bound = 0;
	const Node *parts[2];
	int i;

	parts[0] = limit->limitCount;
	parts[1] = limit->limitOffset;
	if (parts[0] == NULL || limit->limitOption == LIMIT_OPTION_WITH_TIES)
		return 0;
	for (i = 0; i < 2; i++)
	{
		const Const *c = (const Const *) parts[i];

		if (c == NULL)
			continue;
		if (!IsA(c, Const) || c->constisnull || DatumGetInt64(c->constvalue) > INT_MAX / 2)
			return 0;
		bound += Max(DatumGetInt64(c->constvalue), 0);
	}
	return (int) bound;
}

/* FOR UPDATE SKIP LOCKED: rows do not come through. */
static bool
skips_locked(const LockRows *lock)
{
	ListCell *lc;

	foreach (lc, lock->rowMarks)
	{
		if (lfirst_node(PlanRowMark, lc)->waitPolicy == LockWaitSkip)
			return true;
	}
	return false;
}

/* Tell the nodes below a LIMIT that pass on every row how many rows can be of use. Some of those that
 * are locked above may be gone, and others be wanted in their place: then the bound is negative. */
static void
set_bound(Plan *plan, int bound)
{
	while (plan != NULL && plan->qual == NIL)
	{
		if (llm_node_is(plan))
			lthird(((CustomScan *) plan)->custom_private) = makeInteger(bound);
		else if (IsA(plan, SubqueryScan))
		{
			plan = ((SubqueryScan *) plan)->subplan;
			continue;
		}
		else if (IsA(plan, LockRows) && !skips_locked((LockRows *) plan))
			bound = -abs(bound);
		else if (!IsA(plan, Result))
			return;
		plan = plan->lefttree;
	}
}

/* A Memoize would give rows with equal inputs one answer: a call is made once per row. */
static Plan *
without_memoize(Plan *plan, const Walk *walk)
{
	return IsA(plan, Memoize) && llm_reach_calls(plan->lefttree, walk->subplans) ? plan->lefttree
																				 : plan;
}

/* What calls on the inner side of a nested loop can be made on its outer side, or above it. */
static Plan *
rebuild_loop(NestLoop *join, Walk *walk)
{
	Plan *plan = &join->join.plan;

	plan->righttree = without_memoize(plan->righttree, walk);
	plan = llm_laterals_build(join, &walk->scope);
	if (IsA(plan, NestLoop))
	{
		llm_inners_lift(join, walk->scope.rtable);
		llm_handed_build(join, &walk->scope);
	}
	return plan;
}

/* True when the inner side of join may not hold a node: it is marked and restored, or each of its scans
 * stops at the first match and what has been read ahead there is lost. */
static bool
is_fixing(const Plan *plan)
{
	const Join *join = (const Join *) plan;

	if (!IsA(plan, NestLoop))
		return IsA(plan, MergeJoin);
	return !llm_whole_inner(join);
}

/* True for what reads all that is below it at once, or keeps it. */
static bool
is_keeping(const Plan *plan)
{
	return IsA(plan, Sort) || IsA(plan, Hash) || IsA(plan, Material) ||
		   (IsA(plan, Agg) && ((const Agg *) plan)->aggstrategy != AGG_SORTED);
}

/* A LIMIT that is run for row after row stops at a match as well when it counts what a call lets pass. */
static bool
is_stopping(const Plan *plan)
{
	if (!IsA(plan, Limit) || bms_is_empty(plan->extParam))
		return false;
	do
	{
		plan = IsA(plan, SubqueryScan) ? ((const SubqueryScan *) plan)->subplan : plan->lefttree;
		if (plan == NULL)
			return false;
		if (llm_guards_any_call((Node *) plan->qual) ||
			(llm_layers_is_join(plan) &&
			 llm_guards_any_call((Node *) ((const Join *) plan)->joinqual)))
			return true;
	} while (IsA(plan, SubqueryScan) || IsA(plan, Result) || IsA(plan, LockRows));
	return false;
}

/* fixed: on the inner side of such a join, or in a sub-select that stops like it. */
static Plan *
walk_plan(Plan *plan, bool fixed, Walk *walk)
{
	bool inner_fixed;

	if (plan == NULL)
		return NULL;
	check_stack_depth();
	fixed = fixed || is_stopping(plan);
	inner_fixed = fixed || is_fixing(plan);
	plan->lefttree = walk_plan(plan->lefttree, fixed && !is_keeping(plan), walk);
	if (IsA(plan, NestLoop) && !fixed && walk->batch)
		plan = rebuild_loop((NestLoop *) plan, walk);
	plan->righttree = walk_plan(plan->righttree, inner_fixed, walk);
	switch (nodeTag(plan))
	{
		case T_Append:
			walk_list(((Append *) plan)->appendplans, fixed, walk);
			break;
		case T_MergeAppend:
			walk_list(((MergeAppend *) plan)->mergeplans, fixed, walk);
			break;
		case T_SubqueryScan:
			((SubqueryScan *) plan)->subplan =
				walk_plan(((SubqueryScan *) plan)->subplan, fixed, walk);
			break;
		case T_CustomScan:
			walk_foreign((CustomScan *) plan, walk);
			break;
		case T_Memoize:
			return without_memoize(plan, walk);
		case T_Limit:
			if (limit_bound((Limit *) plan) > 0)
				set_bound(plan->lefttree, limit_bound((Limit *) plan));
			break;
		default:
			break;
	}
	if (fixed || !walk->batch)
		return plan;
	if (IsA(plan, Append))
		return llm_appends_build((Append *) plan);
	llm_feeds_build(plan, &walk->scope);
	if (!can_take_apart(plan))
		return plan;
	return llm_layers_build(plan, &walk->scope);
}

/* Note the sub-selects that are run for row after row and stop at the first match. */
static bool
note_stopped(Node *node, void *context)
{
	const SubPlan *sub = (const SubPlan *) node;
	Walk *walk = (Walk *) context;

	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) && sub->setParam == NIL && !sub->useHashTable &&
		(sub->subLinkType == EXISTS_SUBLINK || sub->subLinkType == ANY_SUBLINK ||
		 sub->subLinkType == ALL_SUBLINK))
		walk->stopped = bms_add_member(walk->stopped, sub->plan_id);
	return expression_tree_walker(node, note_stopped, context);
}

/* What must be known of plan and below before the walk: their largest node id, their sub-selects. */
static bool
look_over(Plan *plan, void *context)
{
	Walk *walk = (Walk *) context;

	walk->scope.next_id = Max(walk->scope.next_id, plan->plan_node_id);
	(void) llm_reach_exprs(plan, note_stopped, walk);
	return llm_reach_children(plan, look_over, walk);
}

static void
walk_statement(PlannedStmt *stmt, bool batch)
{
	Walk walk = {batch, stmt->subplans, NULL, {0, stmt->rtable, stmt->paramExecTypes}};
	ListCell *lc;

	look_over(stmt->planTree, &walk);
	foreach (lc, stmt->subplans)
	{
		if (lfirst(lc) != NULL)
			look_over((Plan *) lfirst(lc), &walk);
	}
	walk.scope.next_id++;
	stmt->planTree = walk_plan(stmt->planTree, false, &walk);
	foreach (lc, stmt->subplans)
	{
		bool stopped = bms_is_member(foreach_current_index(lc) + 1, walk.stopped);

		lfirst(lc) = walk_plan((Plan *) lfirst(lc), stopped, &walk);
	}
	stmt->paramExecTypes = walk.scope.param_types;
}

/* ---- the hook ---- */

/* What planner_hook gets besides the query. */
typedef struct Ask
{
	const char *query_string;
	int cursor_options;
	ParamListInfo params;
} Ask;

static PlannedStmt *
plan_as_it_is(Query *parse, const Ask *ask)
{
	if (prev_planner_hook != NULL)
		return prev_planner_hook(parse, ask->query_string, ask->cursor_options, ask->params);
	return standard_planner(parse, ask->query_string, ask->cursor_options, ask->params);
}

/*
 * The plan of parse, or of an equal query whose filters call the model after joins. What a join leaves
 * and what a call costs is for the planner to estimate: both are planned, one query level after the
 * other, and the cheaper is taken. Planning uses up its query, so it gets copies. Only the first has
 * the query's id: whoever counts plans by it counts one.
 */
static PlannedStmt *
plan_pulled(Query *parse, const Ask *ask)
{
	int skip = 0;
	Query *pulled = llm_pulled_query(parse, &skip);
	PlannedStmt *first;
	PlannedStmt *best;
	int n_tried;

	if (pulled == NULL)
		return plan_as_it_is(parse, ask);
	best = first = plan_as_it_is(copyObject(parse), ask);
	for (n_tried = 0; pulled != NULL && n_tried < PULL_TRIES; n_tried++)
	{
		PlannedStmt *other;

		pulled->queryId = 0;
		other = plan_as_it_is(copyObject(pulled), ask);
		if (other->planTree->total_cost < best->planTree->total_cost * PULL_MARGIN)
		{
			best = other;
			parse = pulled;
		}
		else
			skip++;
		pulled = llm_pulled_query(parse, &skip);
	}
	best->queryId = first->queryId;
	return best;
}

static PlannedStmt *
plan_query(Query *parse, const char *query_string, int cursor_options, ParamListInfo params)
{
	const Ask ask = {query_string, cursor_options, params};
	PlannedStmt *stmt;
	bool batch = llm_guc_enable_batch && (cursor_options & CURSOR_OPT_SCROLL) == 0;

	if (!llm_reach_may_call(parse))
		return plan_as_it_is(parse, &ask);
	if (batch)
		parse = rewrite_query(parse);
	if (batch && llm_guc_enable_pullup)
		stmt = plan_pulled(parse, &ask);
	else
		stmt = plan_as_it_is(parse, &ask);
	walk_statement(stmt, batch);
	if (batch)
		llm_whole_mark(stmt);
	return stmt;
}

CustomScanMethods llm_node_scan_methods = {
	.CustomName = LLM_NODE_NAME,
	.CreateCustomScanState = llm_node_create_state,
};

void
llm_node_init(void)
{
	RegisterCustomScanMethods(&llm_node_scan_methods);
	prev_planner_hook = planner_hook;
	planner_hook = plan_query;
	llm_charges_init();
}
