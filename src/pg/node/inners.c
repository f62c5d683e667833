/*
 * pg/node/inners.c - filters that call the model, out of the inner side of a nested loop.
 *
 * When the inner side is scanned by a key of the outer row, the planner also puts conditions over both
 * sides into that scan, with the outer columns as parameters. There a call is made for one pair of rows
 * after the other. As a condition of the join, parameters being columns again, it is evaluated for the
 * same pairs and can be batched above the join.
 *
 * Only the last quals of the scan move, in their order, and only when the join has no condition of its
 * own: a qual may protect rows from those that come after it.
 */
#include "postgres.h"

#include "pg/node/inners.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "pg/node/figures.h"
#include "pg/node/guards.h"
#include "pg/node/layers.h"

typedef struct Lift
{
	NestLoop *join;
	Scan *scan;
	bool failed; /* a column that the scan cannot deliver */
} Lift;

/* The inner scan's column for var, added when it has none yet. */
static Node *
inner_column(Lift *lift, Var *var)
{
	Plan *plan = &lift->scan->plan;
	ListCell *lc;
	AttrNumber resno;

	foreach (lc, plan->targetlist)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (equal(tle->expr, var))
			return (Node *) llm_layers_var(INNER_VAR, tle->resno, (Node *) var);
	}
	resno = list_length(plan->targetlist) + 1;
	plan->targetlist = lappend(plan->targetlist, makeTargetEntry((Expr *) var, resno, NULL, false));
	return (Node *) llm_layers_var(INNER_VAR, resno, (Node *) var);
}

static Node *
lift_mutator(Node *node, void *context)
{
	Lift *lift = (Lift *) context;
	Var *var = (Var *) node;
	Node *handed;

	if (node == NULL)
		return NULL;
	handed = llm_layers_handed(lift->join, node);
	if (handed != NULL)
		return handed;
	if (IsA(node, Var) && var->varno == (int) lift->scan->scanrelid)
		return inner_column(lift, var);
	lift->failed = lift->failed || IsA(node, Var);
	return expression_tree_mutator(node, lift_mutator, context);
}

/* Scans whose quals speak of the columns of their relation. */
static bool
is_plain_scan(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_IndexScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			return !plan->async_capable;
		default:
			return false;
	}
}

void
llm_inners_lift(NestLoop *join, List *rtable)
{
	Plan *inner = join->join.plan.righttree;
	Lift lift = {join, (Scan *) inner, false};
	List *moved = NIL;
	List *quals;
	List *keep = NIL;
	List *tlist = inner->targetlist;
	ListCell *lc;

	if (join->join.jointype != JOIN_INNER || join->join.joinqual != NIL ||
		join->join.plan.qual != NIL || !is_plain_scan(inner))
		return;
	foreach (lc, inner->qual)
	{
		if (llm_guards_has_call((Node *) lfirst(lc)))
			moved = lappend(moved, lfirst(lc));
		else if (moved != NIL)
			return;
		else
			keep = lappend(keep, lfirst(lc));
	}
	if (moved == NIL || contain_subplans((Node *) moved))
		return;
	inner->targetlist = list_copy(tlist);
	quals = moved;
	moved = (List *) lift_mutator((Node *) moved, &lift);
	if (lift.failed)
	{
		inner->targetlist = tlist;
		return;
	}
	inner->qual = keep;
	llm_figures_take_out(rtable, inner, quals);
	if (join->join.inner_unique)
		inner->plan_rows = 1;
	join->join.joinqual = moved;
}
