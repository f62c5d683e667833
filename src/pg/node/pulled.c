/*
 * pg/node/pulled.c - conditions that call the model, after the joins beside them: a rewrite of the query.
 *
 *     SELECT p.id FROM p JOIN r ON r.pid = p.id WHERE llm_generate(r.body) = 'x' AND p.price > 90
 *
 * PostgreSQL evaluates a condition over one table when that table is scanned, here for each row of r,
 * also for those whose p is too cheap. This is what is planned instead, when it is cheaper (plan.c):
 *
 *     SELECT j.id FROM (SELECT p.id, r.body FROM p JOIN r ON r.pid = p.id WHERE p.price > 90) j
 *     WHERE llm_generate(j.body) = 'x'
 *
 * Only FROM and the rest of WHERE go into j; the SELECT list, grouping, windows, DISTINCT, ORDER BY and
 * LIMIT stay where they were, above all of WHERE. The rows are the same, for WHERE is a condition of the
 * rows that FROM makes, and so is ON of an inner join as long as no outer join above puts NULLs in place
 * of its rows. What is left alone: everything but SELECT, rows that are locked (they would be locked
 * before the model has seen them), conditions beside volatile functions of others, which would be
 * evaluated for other rows, and columns of sub-selects that would be computed, and may fail, for rows
 * that do not pass. Policies and security barriers are in j, below what they were below.
 *
 * j is marked as a security barrier, so the planner does not put it together with what is around it;
 * conditions that cannot leak what they see still get in.
 */
#include "postgres.h"

#include "pg/node/pulled.h"

#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "pg/compat.h"
#include "pg/node/guards.h"
#include "rewrite/rewriteManip.h"

/* ---- conditions ---- */

/* The conditions that quals is the AND of. */
static List *
split_ands(Node *quals)
{
	List *parts = NIL;
	ListCell *lc;

	if (quals == NULL)
		return NIL;
	check_stack_depth();
	if (!is_andclause(quals))
		return list_make1(quals);
	foreach (lc, ((BoolExpr *) quals)->args)
		parts = list_concat(parts, split_ands((Node *) lfirst(lc)));
	return parts;
}

/* Conditions of one level that call the model: of a single table each, or of several (or none). */
typedef struct Pick
{
	bool single;
	List *quals;
} Pick;

static void
note_quals(Node **quals, Pick *pick)
{
	ListCell *lc;

	foreach (lc, split_ands(*quals))
	{
		Node *qual = (Node *) lfirst(lc);
		bool single;

		if (!llm_guards_any_call(qual))
			continue;
		single = bms_membership(pull_varnos_of_level(NULL, qual, 0)) == BMS_SINGLETON;
		if (single == pick->single)
			pick->quals = lappend(pick->quals, qual);
	}
}

static void
take_quals(Node **quals, Pick *pick)
{
	List *rest = split_ands(*quals);

	note_quals(quals, pick);
	rest = list_difference_ptr(rest, pick->quals);
	*quals = rest != NIL ? (Node *) make_ands_explicit(rest) : NULL;
}

/* Hand fn every place of conditions that hold for the rows that the level's FROM and WHERE make. */
static void
visit_quals(Node *node, void (*fn)(Node **quals, Pick *pick), Pick *pick)
{
	ListCell *lc;

	check_stack_depth();
	if (IsA(node, FromExpr))
	{
		foreach (lc, ((FromExpr *) node)->fromlist)
			visit_quals((Node *) lfirst(lc), fn, pick);
		fn(&((FromExpr *) node)->quals, pick);
	}
	else if (IsA(node, JoinExpr))
	{
		JoinExpr *join = (JoinExpr *) node;

		if (join->jointype == JOIN_INNER || join->jointype == JOIN_LEFT)
			visit_quals(join->larg, fn, pick);
		if (join->jointype == JOIN_INNER || join->jointype == JOIN_RIGHT)
			visit_quals(join->rarg, fn, pick);
		if (join->jointype == JOIN_INNER)
			fn(&join->quals, pick);
	}
}

/* ---- levels ---- */

/* Does the level do anything that a condition could wait for? A single table, or what has been
 * pulled, does not. */
static bool
joins_something(const Query *query)
{
	const Node *item;
	const RangeTblEntry *rte;

	if (query->jointree->fromlist == NIL)
		return false;
	item = linitial(query->jointree->fromlist);
	if (list_length(query->jointree->fromlist) > 1 || !IsA(item, RangeTblRef))
		return true;
	rte = rt_fetch(((const RangeTblRef *) item)->rtindex, query->rtable);
	return rte->rtekind == RTE_SUBQUERY ? !rte->security_barrier : query->hasSubLinks;
}

static bool
count_calls(Node *node, void *n)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, count_calls, n, 0);
	*(int *) n += llm_guards_is_call(node);
	return expression_tree_walker(node, count_calls, n);
}

static bool
has_others_volatile(Node *node, void *context)
{
	return node != NULL && llm_guards_others_volatile(node);
}

static bool
can_pull(Query *query)
{
	Pick one = {true, NIL};
	Pick many = {false, NIL};
	int n_all = 0;
	int n_pulled = 0;

	if (query->commandType != CMD_SELECT || query->setOperations != NULL ||
		query->rowMarks != NIL || !joins_something(query))
		return false;
	visit_quals((Node *) query->jointree, note_quals, &one);
	if (one.quals == NIL || has_others_volatile((Node *) query->jointree, NULL) ||
		range_table_walker(query->rtable, has_others_volatile, NULL, 0))
		return false;
	visit_quals((Node *) query->jointree, note_quals, &many);
	(void) count_calls((Node *) one.quals, &n_pulled);
	(void) count_calls((Node *) many.quals, &n_pulled);
	(void) count_calls((Node *) query->jointree, &n_all);
	(void) range_table_walker(query->rtable, count_calls, &n_all, 0);
	return n_pulled == n_all;
}

typedef struct Search
{
	int skip; /* levels before the one that is looked for */
	Query *found;
} Search;

static bool
find_level(Node *node, void *context)
{
	Search *search = (Search *) context;

	if (node == NULL)
		return false;
	check_stack_depth();
	if (!IsA(node, Query))
		return expression_tree_walker(node, find_level, context);
	if (can_pull((Query *) node) && search->skip-- == 0)
	{
		search->found = (Query *) node;
		return true;
	}
	return query_tree_walker((Query *) node, find_level, context, 0);
}

/* ---- the change ---- */

/* While a level's expressions are made to read the columns of the new sub-select. */
typedef struct Move
{
	Query *sub;         /* its target list grows */
	RangeTblEntry *rte; /* of sub, the only one of the level */
	int group;          /* number of the entry of GROUP BY, which stays; 0 = none */
	int depth;          /* of the walk below the level */
} Move;

/* The column of the sub-select that holds what var stands for, added when there is none yet. */
static AttrNumber
column_of(Move *move, Var *var)
{
	Var *inner = copyObject(var);
	AttrNumber resno = 0;
	ListCell *lc;
	char *name;

	inner->varlevelsup = 0;
	inner->location = -1;
	foreach (lc, move->sub->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		resno++;
		if (equal(entry->expr, inner))
			return resno;
	}
	name = get_rte_attribute_name(rt_fetch(var->varno, move->sub->rtable), var->varattno);
	move->sub->targetList =
		lappend(move->sub->targetList,
				makeTargetEntry((Expr *) inner, resno + 1, pstrdup(name), false));
	move->rte->eref->colnames = lappend(move->rte->eref->colnames, makeString(pstrdup(name)));
	return resno + 1;
}

static Node *
move_mutator(Node *node, void *context)
{
	Move *move = (Move *) context;
	Var *var = (Var *) node;
	Query *query;

	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
	{
		move->depth++;
		query = query_tree_mutator((Query *) node, move_mutator, context, 0);
		move->depth--;
		return (Node *) query;
	}
	if (IsA(node, Var) && (int) var->varlevelsup == move->depth)
	{
		bool grouped = (int) var->varno == move->group;
		Var *moved = makeVar(grouped ? 2 : 1, grouped ? var->varattno : column_of(move, var),
							 var->vartype, var->vartypmod, var->varcollid, var->varlevelsup);

		if (grouped)
			llm_compat_move_nulls(moved, var);
		return (Node *) moved;
	}
	return expression_tree_mutator(node, move_mutator, context);
}

/* Queries of the level's WITH list are one level farther away; depth is of the walk below it. */
static bool
move_from_with(Node *node, void *depth)
{
	bool found;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		++*(int *) depth;
		found = query_tree_walker((Query *) node, move_from_with, depth, QTW_EXAMINE_RTES_BEFORE);
		--*(int *) depth;
		return found;
	}
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_CTE && (int) rte->ctelevelsup == *(int *) depth)
			rte->ctelevelsup++;
		return false; /* the walk goes on into it */
	}
	return expression_tree_walker(node, move_from_with, depth);
}

/* Put FROM and WHERE, but for quals that have been taken out of them, into a sub-select, which is
 * returned; query has those quals. */
static Query *
fence_off(Query *query, List *quals)
{
	Query *sub = makeNode(Query);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *ref = makeNode(RangeTblRef);
	RangeTblEntry *group = llm_compat_group_entry(query);
	Move move = {sub, rte, group != NULL ? list_length(query->rtable) : 0, 0};
	int depth = 0;

	sub->commandType = CMD_SELECT;
	sub->querySource = query->querySource;
	sub->canSetTag = true;
	sub->rtable = group != NULL ? list_delete_last(query->rtable) : query->rtable;
	llm_compat_move_permissions(sub, query);
	sub->jointree = query->jointree;
	sub->hasSubLinks = query->hasSubLinks;
	sub->hasRowSecurity = query->hasRowSecurity;

	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = sub;
	rte->security_barrier = true;
	rte->eref = makeAlias("joined", NIL);
	rte->inFromCl = true;
	ref->rtindex = 1;
	query->rtable = group != NULL ? list_make1(group) : NIL; /* what the mutator is to copy */
	query->jointree = makeFromExpr(list_make1(ref), (Node *) make_ands_explicit(quals));
	(void) query_tree_mutator(query, move_mutator, &move, QTW_DONT_COPY_QUERY);
	query->rtable = lcons(rte, query->rtable);

	IncrementVarSublevelsUp((Node *) sub, 1, 1);
	(void) query_tree_walker(sub, move_from_with, &depth, QTW_EXAMINE_RTES_BEFORE);
	return sub;
}

/* True for a sub-select that the planner would put together with the query around it. */
static bool
is_plain_select(const Query *query)
{
	return !query->hasAggs && !query->hasWindowFuncs && !query->hasTargetSRFs &&
		   query->groupClause == NIL && query->groupingSets == NIL && query->havingQual == NULL &&
		   query->distinctClause == NIL && query->sortClause == NIL && query->limitCount == NULL &&
		   query->limitOffset == NULL;
}

static bool may_fail(const Query *query, Node *expr);

/* May computing this column (0 = any) of a sub-select of FROM fail for a row? A plain one's would be
 * computed in j, for rows that the conditions above j remove. */
static bool
column_may_fail(const Query *select, AttrNumber attno)
{
	ListCell *lc;

	check_stack_depth();
	foreach (lc, select->setOperations != NULL ? select->rtable : NIL)
	{
		const RangeTblEntry *member = lfirst_node(RangeTblEntry, lc);

		if (member->rtekind == RTE_SUBQUERY && column_may_fail(member->subquery, attno))
			return true;
	}
	if (select->setOperations != NULL || !is_plain_select(select))
		return false;
	foreach (lc, select->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Node *expr = (Node *) entry->expr;

		if (attno > 0 && entry->resno != attno)
			continue;
		if (contain_leaked_vars(expr) || may_fail(select, expr))
			return true;
	}
	return false;
}

/* The same for the columns that an expression of query's level reads. */
static bool
may_fail(const Query *query, Node *expr)
{
	ListCell *lc;

	check_stack_depth();
	foreach (lc, pull_vars_of_level(expr, 0))
	{
		const Var *var = lfirst_node(Var, lc);
		const RangeTblEntry *rte = rt_fetch(var->varno, query->rtable);
		Node *joined = NULL;

		if (rte->rtekind == RTE_SUBQUERY && column_may_fail(rte->subquery, var->varattno))
			return true;
		if (rte->rtekind == RTE_JOIN)
			joined = var->varattno > 0 ? list_nth(rte->joinaliasvars, var->varattno - 1)
									   : (Node *) rte->joinaliasvars;
		if (joined != NULL && may_fail(query, joined))
			return true;
	}
	return false;
}

/* Does j compute what may fail and is not read by the conditions? */
static bool
fails_early(const Query *sub, List *read)
{
	ListCell *lc;

	foreach (lc, sub->targetList)
	{
		Node *var = (Node *) lfirst_node(TargetEntry, lc)->expr;

		if (!list_member(read, var) && may_fail(sub, var))
			return true;
	}
	return false;
}

/* Conditions of several tables come last, as they would above the scans. False when it may not be. */
static bool
pull_level(Query *query)
{
	Pick one = {true, NIL};
	Pick many = {false, NIL};
	List *read;

	visit_quals((Node *) query->jointree, take_quals, &many);
	if (many.quals != NIL)
		query = fence_off(query, many.quals);
	visit_quals((Node *) query->jointree, take_quals, &one);
	read = copyObject(pull_vars_of_level((Node *) one.quals, 0));
	return !fails_early(fence_off(query, one.quals), read);
}

Query *
llm_pulled_query(Query *query, int *skip)
{
	for (;; ++*skip)
	{
		Search search = {*skip, NULL};
		Search again = {*skip, NULL};
		Query *pulled;

		if (!find_level((Node *) query, &search))
			return NULL;
		pulled = copyObject(query);
		(void) find_level((Node *) pulled, &again);
		if (pull_level(again.found))
			return pulled;
	}
}
