/*
 * pg/node/appends.c - one batch node above an Append instead of equal ones in its members.
 *
 * Partitions and the parts of a UNION ALL run one after the other. With a node in each, the last
 * answers of a part must be there before the first prompt of the next is sent; one node above them
 * reads on across the border, and a LIMIT above tells it how far.
 */
#include "postgres.h"

#include "pg/node/appends.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/value.h"
#include "optimizer/tlist.h"
#include "pg/node/layers.h"
#include "pg/node/node.h"

/* True for a batch node that has not been told how many rows it may read. */
static bool
is_unbounded_node(Plan *plan)
{
	return llm_node_is(plan) && intVal(lthird(((CustomScan *) plan)->custom_private)) == 0;
}

/* True when both deliver columns of the same types. */
static bool
same_columns(const Plan *a, const Plan *b)
{
	ListCell *la;
	ListCell *lb;

	if (list_length(a->targetlist) != list_length(b->targetlist))
		return false;
	forboth(la, a->targetlist, lb, b->targetlist)
	{
		Node *x = (Node *) lfirst_node(TargetEntry, la)->expr;
		Node *y = (Node *) lfirst_node(TargetEntry, lb)->expr;

		if (exprType(x) != exprType(y) || exprTypmod(x) != exprTypmod(y) ||
			exprCollation(x) != exprCollation(y))
			return false;
	}
	return true;
}

static bool
does_the_same(Plan *a, Plan *b)
{
	return equal(((CustomScan *) a)->custom_private, ((CustomScan *) b)->custom_private) &&
		   equal(get_tlist_exprs(a->targetlist, true), get_tlist_exprs(b->targetlist, true)) &&
		   equal(a->qual, b->qual) && same_columns(a->lefttree, b->lefttree);
}

/* tlist with the names and marks of like, which plans above look for: junk columns are found by name. */
static List *
named_like(List *tlist, List *like)
{
	List *named = NIL;
	ListCell *lc;
	ListCell *other;

	forboth(lc, tlist, other, like)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst_node(TargetEntry, other));

		tle->expr = lfirst_node(TargetEntry, lc)->expr;
		named = lappend(named, tle);
	}
	return named;
}

/* The members' nodes become one: rows of all of them below it, what their calls cost in it. */
static void
add_up_figures(Append *append, Plan *first)
{
	Plan *plan = &append->plan;
	Cost total = 0;
	ListCell *lc;

	first->plan_rows = plan->plan_rows;
	first->startup_cost = plan->startup_cost;
	plan->plan_rows = plan->total_cost = 0;
	foreach (lc, append->appendplans)
	{
		const Plan *member = (const Plan *) lfirst(lc);

		total += member->total_cost;
		plan->plan_rows += member->lefttree->plan_rows;
		plan->total_cost += member->lefttree->total_cost;
	}
	first->total_cost = total;
}

/* An Append talks directly to scans that may run at the same time; with a node between it cannot. */
static void
stop_async(Append *append)
{
	ListCell *lc;

	foreach (lc, append->appendplans)
	{
		Plan *member = (Plan *) lfirst(lc);
		bool covered = false;

		for (; llm_node_is(member); member = member->lefttree)
			covered = true;
		if (covered)
			member->async_capable = false;
	}
}

/* The same, with all that the members have in common above it. */
static Plan *
build(Append *append)
{
	Plan *first;
	Plan *plan = &append->plan;
	List *below = NIL;
	ListCell *lc;

	if (append->appendplans == NIL)
		return plan;
	first = (Plan *) linitial(append->appendplans);
	foreach (lc, append->appendplans)
	{
		Plan *member = (Plan *) lfirst(lc);

		if (!is_unbounded_node(member) || !does_the_same(first, member))
			return plan;
		below = lappend(below, member->lefttree);
	}
	add_up_figures(append, first);
	append->appendplans = below;
	first->targetlist = named_like(first->targetlist, plan->targetlist);
	plan->targetlist = llm_layers_pass_on((Plan *) linitial(below));
	first->extParam = bms_copy(plan->extParam);
	first->allParam = bms_copy(plan->allParam);
	first->lefttree = build(append);
	return first;
}

Plan *
llm_appends_build(Append *append)
{
	Plan *plan = build(append);

	stop_async(append);
	return plan;
}
