/*
 * pg/node/layers.c - take one plan node apart into a stack of LLM Batch nodes.
 *
 * Given a node P with a target list and quals, the calls of our functions are moved into nodes above
 * it:
 *
 *     projection   target list, with its calls        rows that passed every filter
 *     filter k     k-th qual that calls the model      passes columns, evaluates nothing else
 *     ...
 *     filter 1     first qual that calls the model
 *     P            the quals before it, and the columns that the layers need
 *
 * Rules that keep the answer what PostgreSQL's own evaluation gives:
 *   - Quals keep their order. The planner sorted them by security level and cost, so from the first
 *     qual that calls the model on, all of them move.
 *   - A layer evaluates target expressions only for rows that its quals let through; so a column that
 *     a layer takes from below is a plain Var, or the whole argument of a call of that layer.
 *   - Calls below CASE, COALESCE, AND and OR are made for the rows that reach them (guards.c). Where
 *     that cannot be told before, they stay where they are and take the scalar path.
 *   - A call inside an argument of a call gives one more projection below.
 *
 * Expressions are written in P's own Vars on the way down; each layer's copy refers to its scan
 * tuple [columns | call results] by INDEX_VAR. All this happens after set_plan_references.
 */
#include "postgres.h"

#include "pg/node/layers.h"

#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "pg/node/figures.h"
#include "pg/node/guards.h"
#include "pg/node/node.h"
#include "pg/node/shown.h"

#define MAX_LAYERS 200 /* on one plan node, which longer chains are left to, row by row */

/* One layer while it is being built. */
typedef struct Layer
{
	List *tlist;     /* TargetEntries of the layer, in INDEX_VAR */
	List *qual;      /* quals of the layer, in INDEX_VAR */
	List *cols;      /* expressions in P's Vars that the layer takes from below */
	List *calls;     /* FuncExprs; arguments are Consts or OUTER_VAR columns */
	List *originals; /* of calls, in P's Vars */
	List *shareable; /* of calls: may stand for a copy of itself */
	List *guarded;   /* of calls: made for some rows only */
	List *call_vars; /* the INDEX_VAR Vars that stand for calls; numbered when cols is final */
	List *call_of;   /* for each of call_vars the number of its call, from 0 */
	List *below;     /* calls that are made below, though the layer's own expressions hold them */
	List *guards; /* for each of cols, when it is one of below: the LlmGuard around it, or NULL */
} Layer;

/* Column number (from 1) that the layer gets for expr from below; volatile ones are never shared. */
static AttrNumber
layer_column(Layer *layer, Expr *expr)
{
	bool alike = !contain_volatile_functions((Node *) expr);
	ListCell *lc;

	foreach (lc, layer->cols)
	{
		if (lfirst(lc) == expr || (alike && equal(lfirst(lc), expr)))
			return foreach_current_index(lc) + 1;
	}
	layer->cols = lappend(layer->cols, expr);
	layer->guards = lappend(layer->guards, NULL);
	return list_length(layer->cols);
}

Var *
llm_layers_var(Index varno, AttrNumber attno, Node *expr)
{
	return makeVar(varno, attno, exprType(expr), exprTypmod(expr), exprCollation(expr), 0);
}

Node *
llm_layers_handed(const NestLoop *join, const Node *node)
{
	ListCell *lc;

	if (!IsA(node, Param) || ((const Param *) node)->paramkind != PARAM_EXEC)
		return NULL;
	foreach (lc, join->nestParams)
	{
		NestLoopParam *param = lfirst_node(NestLoopParam, lc);

		if (param->paramno == ((const Param *) node)->paramid)
			return (Node *) copyObject(param->paramval);
	}
	return NULL;
}

/* Number (from 0) of the same call at another place of the layer: a guard has been copied, or (field)
 * the parser has copied the call, as it does for (llm_generate_result(x)).*; -1 when there is none. */
static int
find_original(const Layer *layer, const FuncExpr *call, bool field)
{
	int i;

	for (i = 0; i < list_length(layer->calls); i++)
	{
		const FuncExpr *other = list_nth(layer->originals, i);

		if (other == call || (field && list_nth_int(layer->shareable, i) &&
							  other->location == call->location && equal(other, call)))
			return i;
	}
	return -1;
}

/* Note a call of the layer. Its arguments are NULL, and it is not made, where the guard says so. */
static void
add_call(Layer *layer, FuncExpr *call, const LlmGuard *guard, bool shared)
{
	FuncExpr *copy = makeNode(FuncExpr);
	ListCell *lc;

	*copy = *call;
	copy->args = NIL;
	foreach (lc, call->args)
	{
		Node *arg = (Node *) lfirst(lc);

		if (!IsA(arg, Const) || (guard != NULL && copy->args == NIL))
		{
			Expr *guarded = llm_guards_apply(guard, (Expr *) arg);

			arg = (Node *) llm_layers_var(OUTER_VAR, layer_column(layer, guarded), arg);
		}
		copy->args = lappend(copy->args, arg);
	}
	layer->calls = lappend(layer->calls, copy);
	layer->originals = lappend(layer->originals, call);
	layer->shareable = lappend_int(layer->shareable, shared);
	layer->guarded = lappend_int(layer->guarded, guard != NULL);
}

/* The Var that stands for a call of the layer. field: a field of its result is selected. */
static Node *
layer_call(Layer *layer, FuncExpr *call, const LlmGuard *guard, bool field)
{
	bool shared = field && guard == NULL && call->location >= 0;
	int number = find_original(layer, call, shared);
	Var *var;

	if (number < 0)
	{
		number = list_length(layer->calls);
		add_call(layer, call, guard, shared);
	}
	var = makeVar(INDEX_VAR, 0, call->funcresulttype, -1, call->funccollid, 0);
	layer->call_vars = lappend(layer->call_vars, var);
	layer->call_of = lappend_int(layer->call_of, number);
	return (Node *) var;
}

bool
llm_layers_is_set(const Node *node)
{
	return (IsA(node, FuncExpr) && ((const FuncExpr *) node)->funcretset) ||
		   (IsA(node, OpExpr) && ((const OpExpr *) node)->opretset);
}

/* What P alone can evaluate: a column as a whole. */
static bool
belongs_to_plan(Node *node)
{
	return IsA(node, Var) || IsA(node, Aggref) || IsA(node, GroupingFunc) ||
		   IsA(node, WindowFunc) || llm_layers_is_set(node);
}

typedef struct MutatorContext
{
	Layer *layer;
	const LlmGuard *guard; /* around the expression */
	bool frozen;           /* calls stay and take the scalar path */
} MutatorContext;

static Node *layer_mutator(Node *node, void *context);

/* The same for an expression whose parts are evaluated in turn. */
static Node *
rewrite_parts(Node *node, List *parts, const MutatorContext *cxt)
{
	List *exprs = NIL;
	ListCell *lc;

	foreach (lc, parts)
	{
		LlmGuardPart *part = (LlmGuardPart *) lfirst(lc);
		MutatorContext inner = {cxt->layer, part->guard, !part->usable};

		exprs = lappend(exprs, layer_mutator(part->expr, &inner));
	}
	return llm_guards_join(node, exprs);
}

/* The same for a call that is to be made. One that is made below is a column: it is NULL where its guard keeps
 * it from being made, and the guards around each copy of a place come to the same. */
static Node *
rewrite_call(FuncExpr *call, bool field, const MutatorContext *cxt)
{
	Layer *layer = cxt->layer;
	int n_cols = list_length(layer->cols);
	AttrNumber attno;

	if (!list_member_ptr(layer->below, call))
		return layer_call(layer, call, cxt->guard, field);
	attno = layer_column(layer, (Expr *) call);
	if (attno > n_cols)
		llast(layer->guards) = unconstify(LlmGuard *, cxt->guard);
	return (Node *) llm_layers_var(INDEX_VAR, attno, (Node *) call);
}

/* Rewrite an expression of P for the layer: calls become results, Vars become columns. */
static Node *
layer_mutator(Node *node, void *context)
{
	MutatorContext *cxt = (MutatorContext *) context;
	List *parts;

	if (node == NULL)
		return NULL;
	if (belongs_to_plan(node))
		return (Node *) llm_layers_var(INDEX_VAR, layer_column(cxt->layer, (Expr *) node), node);
	if (cxt->frozen)
		return expression_tree_mutator(node, layer_mutator, context);
	if (llm_guards_is_call(node))
		return rewrite_call((FuncExpr *) node, false, cxt);
	if (IsA(node, FieldSelect) && llm_guards_is_call((Node *) ((FieldSelect *) node)->arg))
	{
		FieldSelect *copy = makeNode(FieldSelect);

		*copy = *(FieldSelect *) node;
		copy->arg = (Expr *) rewrite_call((FuncExpr *) copy->arg, true, cxt);
		return (Node *) copy;
	}
	if (llm_guards_is_barrier(node))
	{
		MutatorContext frozen = {cxt->layer, NULL, true};

		return expression_tree_mutator(node, layer_mutator, &frozen);
	}
	parts = llm_guards_split(node, cxt->guard);
	if (parts != NIL)
		return rewrite_parts(node, parts, cxt);
	return expression_tree_mutator(node, layer_mutator, context);
}

static Node *
layer_rewrite(Layer *layer, Node *expr, const LlmGuard *guard)
{
	MutatorContext cxt = {layer, guard, false};

	return layer_mutator(expr, &cxt);
}

/* Columns are final: number the results of calls after them. */
static void
layer_number_calls(Layer *layer)
{
	AttrNumber first = list_length(layer->cols) + 1;
	ListCell *lc;
	ListCell *number;

	forboth(lc, layer->call_vars, number, layer->call_of)
	{
		Var *var = (Var *) lfirst(lc);

		var->varattno = first + lfirst_int(number);
		var->varattnosyn = var->varattno;
	}
}

/*
 * A layer whose output is tlist (expressions in P's Vars; entries keep their names and marks) and
 * whose quals are quals. guards: of the columns of the layer above, which tlist is; or NIL. What it needs from
 * below is left in layer->cols.
 */
static Layer *
layer_make(List *tlist, List *guards, List *quals)
{
	Layer *layer = palloc0(sizeof(Layer));
	ListCell *lc;

	layer->below = llm_guards_first(list_concat_copy(tlist, quals), guards);
	foreach (lc, tlist)
	{
		TargetEntry *tle = flatCopyTargetEntry((TargetEntry *) lfirst(lc));

		tle->expr =
			(Expr *) layer_rewrite(layer, (Node *) tle->expr,
								   guards != NIL ? list_nth(guards, foreach_current_index(lc))
												 : NULL);
		layer->tlist = lappend(layer->tlist, tle);
	}
	foreach (lc, quals)
		layer->qual = lappend(layer->qual, layer_rewrite(layer, (Node *) lfirst(lc), NULL));
	layer_number_calls(layer);
	return layer;
}

/* Columns as the target list of the plan below. */
static List *
columns_tlist(List *cols)
{
	List *tlist = NIL;
	ListCell *lc;

	foreach (lc, cols)
	{
		AttrNumber resno = foreach_current_index(lc) + 1;

		tlist = lappend(tlist, makeTargetEntry((Expr *) lfirst(lc), resno, NULL, false));
	}
	return tlist;
}

static bool
tlist_has_call(List *tlist)
{
	ListCell *lc;

	foreach (lc, tlist)
	{
		if (llm_guards_has_call((Node *) ((TargetEntry *) lfirst(lc))->expr))
			return true;
	}
	return false;
}

/* The scan tuple's description: the child's columns, then the calls. */
static List *
layer_scan_tlist(const Layer *layer)
{
	List *tlist = NIL;
	ListCell *lc;
	ListCell *call;
	ListCell *guarded;
	AttrNumber resno = 0;

	foreach (lc, layer->cols)
	{
		Node *col = (Node *) lfirst(lc);

		resno++;
		tlist = lappend(tlist, makeTargetEntry((Expr *) llm_layers_var(OUTER_VAR, resno, col),
											   resno, NULL, false));
	}
	forthree(lc, layer->originals, call, layer->calls, guarded, layer->guarded)
	{
		Expr *shown =
			(Expr *) llm_node_show_result(lfirst(lc), lfirst(call), lfirst_int(guarded) != 0);

		tlist = lappend(tlist, makeTargetEntry(shown, ++resno, NULL, false));
	}
	return tlist;
}

/* What a node put in takes over from the one whose place it has. */
static void
fill_plan(Plan *plan, Plan *child, const Plan *like, LlmLayersScope *scope)
{
	plan->lefttree = child;
	plan->startup_cost = like->startup_cost;
	plan->total_cost = like->total_cost;
	plan->plan_rows = like->plan_rows;
	plan->plan_width = like->plan_width;
	plan->parallel_safe = like->parallel_safe;
	plan->plan_node_id = scope->next_id++;
	plan->extParam = bms_copy(like->extParam);
	plan->allParam = bms_copy(like->allParam);
}

static Plan *
layer_plan(const Layer *layer, Plan *child, LlmLayersScope *scope)
{
	CustomScan *cscan = makeNode(CustomScan);
	Plan *plan = &cscan->scan.plan;

	cscan->methods = &llm_node_scan_methods;
	cscan->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	cscan->custom_scan_tlist = layer_scan_tlist(layer);
	cscan->custom_private = list_make4(makeInteger(list_length(layer->cols)), layer->calls,
									   makeInteger(0), makeInteger(LLM_NODE_READ_PARTLY));
	plan->targetlist = layer->tlist;
	plan->qual = layer->qual;
	fill_plan(plan, child, child, scope);
	return plan;
}

/* Quals from the first that calls the model on, one group per such qual; the rest stay in *keep. */
static List *
split_quals(List *quals, List **keep)
{
	List *groups = NIL;
	ListCell *lc;

	*keep = NIL;
	foreach (lc, quals)
	{
		if (llm_guards_has_call((Node *) lfirst(lc)))
			groups = lappend(groups, list_make1(lfirst(lc)));
		else if (groups != NIL)
			llast(groups) = lappend((List *) llast(groups), lfirst(lc));
		else
			*keep = lappend(*keep, lfirst(lc));
	}
	return groups;
}

bool
llm_layers_is_join(const Plan *plan)
{
	return IsA(plan, NestLoop) || IsA(plan, MergeJoin) || IsA(plan, HashJoin);
}

/* The quals of plan that may be evaluated above it, in their order. Those of an inner join are one list
 * with its conditions, unless a condition would move that tells the join to expect one match per row. */
static List *
movable_quals(Plan *plan, bool *joined)
{
	Join *join = (Join *) plan;
	List *all;
	List *groups;
	List *keep;
	ListCell *lc;

	*joined = false;
	if (!llm_layers_is_join(plan) || join->jointype != JOIN_INNER)
		return plan->qual;
	all = list_concat_copy(join->joinqual, plan->qual);
	groups = split_quals(all, &keep);
	foreach (lc, groups)
	{
		if (join->inner_unique && list_length(lfirst(lc)) > 1)
			return plan->qual;
	}
	*joined = groups != NIL;
	return *joined ? all : plan->qual;
}

List *
llm_layers_pass_on(const Plan *child)
{
	List *tlist = NIL;
	ListCell *lc;

	foreach (lc, child->targetlist)
	{
		TargetEntry *tle = flatCopyTargetEntry((TargetEntry *) lfirst(lc));

		tle->expr = (Expr *) llm_layers_var(OUTER_VAR, tle->resno, (Node *) tle->expr);
		tlist = lappend(tlist, tle);
	}
	return tlist;
}

Plan *
llm_layers_project(Plan *child, List *tlist, const Plan *like, LlmLayersScope *scope)
{
	Result *result = makeNode(Result);

	result->plan.targetlist = tlist;
	fill_plan(&result->plan, child, like, scope);
	return &result->plan;
}

/* A Result that would only pass its child's first columns on is left out. */
static Plan *
without_idle_result(Plan *plan)
{
	ListCell *lc;

	if (!IsA(plan, Result) || plan->lefttree == NULL || plan->qual != NIL ||
		plan->initPlan != NIL || ((Result *) plan)->resconstantqual != NULL)
		return plan;
	foreach (lc, plan->targetlist)
	{
		Var *var = (Var *) ((TargetEntry *) lfirst(lc))->expr;

		if (!IsA(var, Var) || var->varattno != foreach_current_index(lc) + 1)
			return plan;
	}
	return plan->lefttree;
}

Plan *
llm_layers_build(Plan *plan, LlmLayersScope *scope)
{
	bool joined;
	List *quals = movable_quals(plan, &joined);
	List *keep;
	List *groups = split_quals(quals, &keep);
	List *tlist = plan->targetlist;
	List *guards = NIL; /* of tlist */
	List *layers = NIL; /* top first */
	List *nodes = NIL;  /* of layers, bottom first */
	LlmFigures whole = llm_figures_of(plan);
	Plan *bottom;
	Plan *top;
	int i;

	for (;;)
	{
		Layer *layer;

		CHECK_FOR_INTERRUPTS();
		if (list_length(layers) > MAX_LAYERS)
			return plan;
		if (tlist_has_call(tlist))
			layer = layer_make(tlist, guards, NIL);
		else if (groups != NIL)
		{
			layer = layer_make(tlist, guards, (List *) llast(groups));
			groups = list_delete_last(groups);
		}
		else
			break;
		layers = lappend(layers, layer);
		tlist = columns_tlist(layer->cols);
		guards = layer->guards;
	}
	if (layers == NIL)
		return plan;

	plan->targetlist = tlist;
	plan->qual = joined ? NIL : keep;
	if (joined)
		((Join *) plan)->joinqual = keep;
	top = bottom = without_idle_result(plan);
	for (i = list_length(layers) - 1; i >= 0; i--)
	{
		top = layer_plan((const Layer *) list_nth(layers, i), top, scope);
		nodes = lappend(nodes, top);
	}
	llm_figures_spread(scope->rtable, whole, bottom, bottom == plan, nodes);
	return top;
}
