/*
 * pg/node/laterals.c - FROM docs, LATERAL (SELECT llm_generate(docs.body) AS g) l.
 *
 * PostgreSQL runs this as a nested loop whose inner side computes one row from parameters that are
 * columns of the outer row, one call at a time. The same rows come from the outer side with the inner
 * expressions as further columns, and there they can be batched:
 *
 *     Nested Loop                         Result       the loop's target list and quals
 *     ->  Seq Scan on docs         =>     LLM Batch    docs' columns, llm_generate(body)
 *     ->  Result  llm_generate($0)        Seq Scan on docs
 *
 * The inner side is a Result without input, by itself or below a SubqueryScan, or a FunctionScan of
 * one of our functions. Its expressions are evaluated once for each outer row, as in the loop: what
 * reads a column twice reads it from the row. In a left join they are NULL where a condition of the
 * inner side or of the join is not true; behind SELECT .. WHERE no call is made for such a row. ON is
 * evaluated for the rows of the inner side that its own conditions have let pass, as in the loop.
 */
#include "postgres.h"

#include "pg/node/laterals.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "pg/node/guards.h"
#include "pg/node/handed.h"
#include "pg/node/layers.h"
#include "pg/node/node.h"

typedef struct Lateral
{
	NestLoop *join;
	int n_outer;    /* columns of the outer side; the inner ones come after them */
	int scan;       /* range table index of the inner scan, 0 = none */
	FuncExpr *call; /* which the inner scan scans; NULL = it scans a sub-select */
} Lateral;

/* A column of the inner scan's input: of a sub-select, or a field of a call's result, or the result. */
static Node *
scanned_column(const Lateral *lateral, Var *var)
{
	FieldSelect *field;

	if (lateral->call == NULL)
		return (Node *) llm_layers_var(OUTER_VAR, lateral->n_outer + var->varattno, (Node *) var);
	if (lateral->call->funcresulttype == var->vartype)
		return (Node *) llm_layers_var(OUTER_VAR, lateral->n_outer + 1, (Node *) var);
	field = makeNode(FieldSelect);
	field->arg = (Expr *) llm_layers_var(OUTER_VAR, lateral->n_outer + 1, (Node *) lateral->call);
	field->fieldnum = var->varattno;
	field->resulttype = var->vartype;
	field->resulttypmod = var->vartypmod;
	field->resultcollid = var->varcollid;
	return (Node *) field;
}

/* Expressions of the loop and of its inner side, in the columns of outer and inner side together. */
static Node *
lateral_mutator(Node *node, void *context)
{
	const Lateral *lateral = (const Lateral *) context;
	Var *var = (Var *) node;
	Node *handed;

	if (node == NULL)
		return NULL;
	handed = llm_layers_handed(lateral->join, node);
	if (handed != NULL)
		return handed;
	if (IsA(node, Var) && var->varno == INNER_VAR)
		return (Node *) llm_layers_var(OUTER_VAR, lateral->n_outer + var->varattno, node);
	if (IsA(node, Var) && lateral->scan != 0 && var->varno == lateral->scan)
		return scanned_column(lateral, var);
	return expression_tree_mutator(node, lateral_mutator, context);
}

static List *
rewrite(Lateral *lateral, List *exprs)
{
	return (List *) lateral_mutator((Node *) exprs, lateral);
}

/* Quals as one condition. A list of them ends at the first that is not true, AND at a false one only. */
static Expr *
one_after_another(List *quals)
{
	List *all = NIL;
	ListCell *lc;

	foreach (lc, quals)
	{
		BooleanTest *test = makeNode(BooleanTest);

		test->arg = (Expr *) lfirst(lc);
		test->booltesttype = IS_TRUE;
		test->location = -1;
		all = lappend(all, lnext(quals, lc) != NULL ? (Expr *) test : test->arg);
	}
	return make_ands_explicit(all);
}

/* A node over child that delivers the columns of the outer side, then those of tlist; where quals are
 * not true those are NULL. */
static Plan *
add_columns(Lateral *lateral, Plan *child, List *tlist, List *quals, LlmLayersScope *scope)
{
	List *all = list_truncate(llm_layers_pass_on(child), lateral->n_outer);
	LlmGuard guard = {NULL, NULL, NIL, NULL};
	ListCell *lc;

	if (quals != NIL)
		guard.enter = one_after_another(rewrite(lateral, quals));
	foreach (lc, rewrite(lateral, tlist))
	{
		Expr *expr = ((TargetEntry *) lfirst(lc))->expr;

		if (quals != NIL)
			expr = llm_guards_apply(&guard, expr);
		all = lappend(all, makeTargetEntry(expr, list_length(all) + 1, NULL, false));
	}
	return llm_layers_project(child, all, &lateral->join->join.plan, scope);
}

/* The columns of the inner side, as the join sees them. */
static List *
inner_columns(const Plan *inner)
{
	List *tlist = NIL;
	ListCell *lc;

	foreach (lc, inner->targetlist)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		Expr *var = (Expr *) llm_layers_var(INNER_VAR, tle->resno, (Node *) tle->expr);

		tlist = lappend(tlist, makeTargetEntry(var, tle->resno, NULL, false));
	}
	return tlist;
}

/* The column after those of tlist that is true where the inner side gives its row, as the join sees it. */
static Node *
add_found(List **tlist)
{
	Expr *found = (Expr *) makeBoolConst(true, false);
	AttrNumber resno = list_length(*tlist) + 1;

	*tlist = lappend(list_copy(*tlist), makeTargetEntry(found, resno, NULL, false));
	return (Node *) llm_layers_var(INNER_VAR, resno, (Node *) found);
}

/* ---- quals: a Result has none, so they go to the batch node below it ---- */

typedef struct Lookup
{
	List *tlist; /* what OUTER_VAR means */
	bool failed; /* an expression may not be evaluated twice */
} Lookup;

static Node *
lookup_mutator(Node *node, void *context)
{
	Lookup *lookup = (Lookup *) context;
	TargetEntry *tle;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var) || ((Var *) node)->varno != OUTER_VAR)
		return expression_tree_mutator(node, lookup_mutator, context);
	tle = list_nth_node(TargetEntry, lookup->tlist, ((Var *) node)->varattno - 1);
	lookup->failed = lookup->failed || contain_volatile_functions((Node *) tle->expr);
	return (Node *) copyObject(tle->expr);
}

/* Let the first batch node in plan (or the Results on it) remove the rows whose quals, in plan's
 * columns, are not true. False when there is none, or none that can. */
static bool
push_quals(Plan *plan, List *quals)
{
	Lookup lookup = {plan->targetlist, false};

	if (quals == NIL)
		return true;
	quals = (List *) lookup_mutator((Node *) quals, &lookup);
	if (lookup.failed)
		return false;
	if (IsA(plan, Result) && plan->lefttree != NULL)
		return push_quals(plan->lefttree, quals);
	if (!llm_node_is(plan))
		return false;
	plan->qual = list_concat(plan->qual, quals);
	return true;
}

/* Quals in the columns of above's child: from the first that calls the model on, above's layers take
 * them; those before it go below. */
static bool
place_quals(Plan *above, List *quals)
{
	List *before = NIL;
	ListCell *lc;

	foreach (lc, quals)
	{
		if (above->qual != NIL || llm_guards_has_call((Node *) lfirst(lc)))
			above->qual = lappend(above->qual, lfirst(lc));
		else
			before = lappend(before, lfirst(lc));
	}
	return push_quals(above->lefttree, before);
}

static bool
whole_row_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varattno <= 0)
		return true;
	return expression_tree_walker(node, whole_row_walker, context);
}

/* A plan whose expressions can be moved elsewhere. */
static bool
is_movable(const Plan *plan)
{
	return plan->initPlan == NIL && !contain_subplans((Node *) plan->targetlist) &&
		   !contain_subplans((Node *) plan->qual) &&
		   !whole_row_walker((Node *) plan->targetlist, NULL) &&
		   !whole_row_walker((Node *) plan->qual, NULL);
}

/* One row, whatever the outer side is. */
static bool
is_one_row(const Plan *plan)
{
	return IsA(plan, Result) && plan->lefttree == NULL && plan->qual == NIL && is_movable(plan);
}

/* The conditions under which the inner side gives its row. */
static List *
row_quals(const Plan *inner)
{
	return IsA(inner, Result) ? (List *) ((const Result *) inner)->resconstantqual : inner->qual;
}

/* The call of ours that a FunctionScan scans for each outer row, NULL when it is anything else. */
static FuncExpr *
scanned_call(const NestLoop *join, const FunctionScan *scan)
{
	Node *expr;

	if (scan->funcordinality || list_length(scan->functions) != 1 ||
		!llm_handed_again(join, linitial_node(RangeTblFunction, scan->functions)))
		return NULL;
	expr = linitial_node(RangeTblFunction, scan->functions)->funcexpr;
	if (!llm_guards_is_call(expr) || contain_subplans(expr))
		return NULL;
	return (FuncExpr *) expr;
}

/* Find out what the inner side is. False when it may give more or fewer rows than one. */
static bool
take_inner(Lateral *lateral, const Plan *inner)
{
	if (IsA(inner, FunctionScan))
	{
		lateral->scan = ((const Scan *) inner)->scanrelid;
		lateral->call = scanned_call(lateral->join, (const FunctionScan *) inner);
		return lateral->call != NULL && is_movable(inner);
	}
	if (IsA(inner, SubqueryScan))
	{
		const Plan *sub = ((const SubqueryScan *) inner)->subplan;

		lateral->scan = ((const Scan *) inner)->scanrelid;
		return is_movable(inner) && is_one_row(sub) && row_quals(sub) == NIL &&
			   llm_guards_has_call((Node *) sub->targetlist);
	}
	return is_one_row(inner) && llm_guards_has_call((Node *) inner->targetlist);
}

/* Conditions that can be evaluated for one column after the other. */
static bool
is_plain_qual(const List *quals)
{
	return llm_guards_repeatable((Node *) quals) && !contain_subplans((Node *) quals);
}

/* Each outer row gives one row of the join, or less by quals that can be evaluated afterwards. */
static bool
is_plain_join(const NestLoop *join)
{
	const Plan *inner = join->join.plan.righttree;

	if (join->join.jointype == JOIN_LEFT)
		return is_plain_qual(join->join.joinqual) && is_plain_qual(row_quals(inner));
	/* those of a Result guard its calls and remove rows: a call in them would be made twice */
	return join->join.jointype == JOIN_INNER &&
		   (!IsA(inner, Result) ||
			(is_plain_qual(row_quals(inner)) && !llm_guards_any_call((Node *) row_quals(inner))));
}

Plan *
llm_laterals_build(NestLoop *join, LlmLayersScope *scope)
{
	Plan *plan = &join->join.plan;
	Plan *inner = plan->righttree;
	Plan *below = plan->lefttree;
	Lateral lateral = {join, list_length(below->targetlist), 0, NULL};
	List *quals = list_concat_copy(join->join.joinqual, plan->qual);
	bool outer_join = join->join.jointype == JOIN_LEFT;
	bool guarded = outer_join || IsA(inner, Result);
	List *on = outer_join ? join->join.joinqual : NIL;
	List *columns = inner->targetlist;
	List *scanned = NIL;
	Plan *top;

	if (!is_plain_join(join) || !take_inner(&lateral, inner))
		return plan;
	if (lateral.call != NULL)
		scanned = list_make1(makeTargetEntry((Expr *) lateral.call, 1, NULL, false));
	else if (IsA(inner, SubqueryScan))
		scanned = ((SubqueryScan *) inner)->subplan->targetlist;
	if (scanned != NIL)
		below = llm_layers_build(add_columns(&lateral, below, scanned, NIL, scope), scope);
	if (on != NIL && row_quals(inner) != NIL)
		on = lcons(add_found(&columns), on);
	below = add_columns(&lateral, below, columns, guarded ? row_quals(inner) : NIL, scope);
	if (!guarded && !place_quals(below, rewrite(&lateral, inner->qual)))
		return plan;
	below = llm_layers_build(below, scope);
	if (guarded && !outer_join && !push_quals(below, rewrite(&lateral, row_quals(inner))))
		return plan;
	if (on != NIL)
	{
		below = add_columns(&lateral, below, inner_columns(inner), on, scope);
		below = llm_layers_build(below, scope);
	}

	top = llm_layers_project(below, rewrite(&lateral, plan->targetlist), plan, scope);
	if (!place_quals(top, rewrite(&lateral, outer_join ? plan->qual : quals)))
		return plan;
	top->initPlan = plan->initPlan;
	return top;
}
