/*
 * pg/node/feeds.c - feed aggregates and set-returning functions from a batch node below them.
 *
 * An aggregate evaluates its arguments once for every row that it takes in, so a call in them can be
 * made before: the rows of the child get one more column for each argument that calls the model, and
 * the aggregate reads that column.
 *
 *     Agg          string_agg(column 3, ',')
 *     LLM Batch    columns 1 and 2 of the child, llm_generate(column 2)
 *     child        columns 1 and 2
 *
 * The child's columns keep their places: grouping and sorting columns are named by number. Aggregates
 * over a window are fed when each row is inside its own frame, so that no call is made for a row that
 * none would have taken in. Window functions that are no aggregates choose the rows for which they
 * evaluate their arguments; they keep the scalar path. A set-returning function of a target list
 * evaluates its arguments once for a row of the child, too.
 */
#include "postgres.h"

#include "pg/node/feeds.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "pg/node/figures.h"
#include "pg/node/guards.h"
#include "pg/node/layers.h"

typedef struct Feed
{
	Plan *child;
	List *
		tlist; /* what the node below delivers: the child's columns, then arguments; in OUTER_VAR */
	List *found;   /* Aggrefs that have been rewritten */
	List *written; /* what they became: an aggregate that stands at two places is computed once */
} Feed;

/* An argument that calls the model becomes a column. filter: it is evaluated where that is true. */
static Expr *
feed_argument(Feed *feed, Expr *arg, Expr *filter)
{
	LlmGuard guard = {NULL, NULL, NIL, filter};
	AttrNumber resno;

	if (!llm_guards_has_call((Node *) arg) || !llm_guards_repeatable((Node *) filter))
		return arg;
	if (filter != NULL)
		arg = llm_guards_apply(&guard, arg);
	if (feed->tlist == NIL)
		feed->tlist = llm_layers_pass_on(feed->child);
	resno = list_length(feed->tlist) + 1;
	feed->tlist = lappend(feed->tlist, makeTargetEntry(arg, resno, NULL, false));
	return (Expr *) llm_layers_var(OUTER_VAR, resno, (Node *) arg);
}

static Node *
feed_aggref(Feed *feed, Aggref *aggref)
{
	Aggref *copy;
	ListCell *lc;

	foreach (lc, feed->found)
	{
		if (equal(lfirst(lc), aggref))
			return (Node *) list_nth(feed->written, foreach_current_index(lc));
	}
	copy = makeNode(Aggref);
	*copy = *aggref;
	copy->args = NIL;
	foreach (lc, aggref->args)
	{
		TargetEntry *tle = flatCopyTargetEntry((TargetEntry *) lfirst(lc));

		tle->expr = feed_argument(feed, tle->expr, aggref->aggfilter);
		copy->args = lappend(copy->args, tle);
	}
	copy->aggfilter = feed_argument(feed, aggref->aggfilter, NULL);
	feed->found = lappend(feed->found, aggref);
	feed->written = lappend(feed->written, copy);
	return (Node *) copy;
}

static Node *
feed_windowfunc(Feed *feed, WindowFunc *wfunc)
{
	WindowFunc *copy = makeNode(WindowFunc);
	ListCell *lc;

	*copy = *wfunc;
	if (!wfunc->winagg)
		return (Node *) copy;
	copy->args = NIL;
	foreach (lc, wfunc->args)
		copy->args =
			lappend(copy->args, feed_argument(feed, (Expr *) lfirst(lc), wfunc->aggfilter));
	copy->aggfilter = feed_argument(feed, wfunc->aggfilter, NULL);
	return (Node *) copy;
}

static Node *
feed_mutator(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
		return feed_aggref((Feed *) context, (Aggref *) node);
	if (IsA(node, WindowFunc))
		return feed_windowfunc((Feed *) context, (WindowFunc *) node);
	return expression_tree_mutator(node, feed_mutator, context);
}

/* The target list of a ProjectSet: sets stand at the top of its entries. */
static List *
feed_sets(Feed *feed, List *tlist)
{
	List *written = NIL;
	ListCell *lc;
	ListCell *arg;

	foreach (lc, tlist)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst_node(TargetEntry, lc));

		if (llm_layers_is_set((Node *) tle->expr))
		{
			List **args;

			tle->expr = (Expr *) copyObject(tle->expr);
			args = IsA(tle->expr, FuncExpr) ? &((FuncExpr *) tle->expr)->args
											: &((OpExpr *) tle->expr)->args;
			foreach (arg, *args)
				lfirst(arg) = feed_argument(feed, (Expr *) lfirst(arg), NULL);
		}
		written = lappend(written, tle);
	}
	return written;
}

/* True when plan takes in every row of its child, which are not just one. */
static bool
takes_every_row(const Plan *plan)
{
	const WindowAgg *window = (const WindowAgg *) plan;
	int outside = FRAMEOPTION_START_OFFSET_FOLLOWING | FRAMEOPTION_END_OFFSET_PRECEDING |
				  FRAMEOPTION_EXCLUSION;

	if (IsA(plan, ProjectSet))
		return !IsA(plan->lefttree, Result) || plan->lefttree->lefttree != NULL;
	if (!IsA(plan, WindowAgg))
		return IsA(plan, Agg);
	return (window->frameOptions & outside) == 0 && window->runCondition == NIL &&
		   plan->qual == NIL;
}

void
llm_feeds_build(Plan *plan, LlmLayersScope *scope)
{
	Feed feed = {plan->lefttree, NIL, NIL, NIL};
	List *tlist;
	List *qual;
	Plan *project;
	Cost calls;

	if (!takes_every_row(plan) || !(llm_guards_any_call((Node *) plan->targetlist) ||
									llm_guards_any_call((Node *) plan->qual)))
		return;
	tlist = IsA(plan, ProjectSet) ? feed_sets(&feed, plan->targetlist)
								  : (List *) feed_mutator((Node *) plan->targetlist, &feed);
	qual = (List *) feed_mutator((Node *) plan->qual, &feed);
	if (feed.tlist == NIL)
		return;
	plan->targetlist = tlist;
	plan->qual = qual;
	project = llm_layers_project(feed.child, feed.tlist, feed.child, scope);
	calls = project->plan_rows * llm_figures_price(scope->rtable, project, feed.tlist);
	project->total_cost = Min(project->total_cost + calls, plan->total_cost);
	plan->lefttree = llm_layers_build(project, scope);
}
