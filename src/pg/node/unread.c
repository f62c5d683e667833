/*
 * pg/node/unread.c - do not compute what nobody reads: a rewrite of the query before it is planned.
 *
 *     SELECT id FROM (SELECT id, llm_generate(body) AS summary FROM docs) v     asks nothing
 *
 * PostgreSQL drops such a column itself unless it is volatile (remove_unused_subquery_outputs in
 * allpaths.c), which our functions must be for other reasons. They have no effect but their answer, so
 * a column whose only volatile functions are ours is dropped under the same rules: not from a set
 * operation, not from DISTINCT, not when it sorts or groups, and not when it returns a set. It becomes
 * NULL, so that column numbers stay. Outer queries come first: what they no longer read of inner ones
 * goes as well. Queries without a call of ours are left alone.
 */
#include "postgres.h"

#include "pg/node/unread.h"

#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "pg/node/guards.h"

/* ---- which columns are read ---- */

/* Columns of one range table entry that a query reads. */
typedef struct Reads
{
	Query *query;
	int rti;
	int depth; /* of the walk below the query */
	Bitmapset *attnos;
	bool all; /* as a whole, or by a way that is not followed */
} Reads;

static bool
note_reads(Node *node, Reads *reads)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		bool found;

		reads->depth++;
		found = query_tree_walker((Query *) node, note_reads, reads, QTW_IGNORE_JOINALIASES);
		reads->depth--;
		return found;
	}
	if (IsA(node, Var) && (int) ((Var *) node)->varlevelsup == reads->depth)
	{
		const Var *var = (const Var *) node;

		/* columns of a join that are of no single table: USING of a full join */
		if (rt_fetch(var->varno, reads->query->rtable)->rtekind == RTE_JOIN)
			reads->all = true;
		else if ((int) var->varno == reads->rti && var->varattno <= 0)
			reads->all = true;
		else if ((int) var->varno == reads->rti)
			reads->attnos = bms_add_member(reads->attnos, var->varattno);
		return reads->all;
	}
	return expression_tree_walker(node, note_reads, reads);
}

/* ---- which columns may go ---- */

static bool
may_go(const TargetEntry *entry)
{
	return !entry->resjunk && entry->ressortgroupref == 0 && !IsA(entry->expr, Const) &&
		   !expression_returns_set((Node *) entry->expr) &&
		   !llm_guards_others_volatile((Node *) entry->expr);
}

/* ---- the walk ---- */

static void remove_unread(Query *query);

static void
prune(Query *query, int rti, Query *sub)
{
	Reads reads = {.query = query, .rti = rti};
	bool known = false;
	ListCell *lc;

	if (sub->commandType != CMD_SELECT || sub->setOperations != NULL || sub->distinctClause != NIL)
		return;
	foreach (lc, sub->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Node *expr = (Node *) entry->expr;

		if (!may_go(entry))
			continue;
		if (!known)
			(void) query_tree_walker(query, note_reads, &reads, QTW_IGNORE_JOINALIASES);
		known = true;
		if (reads.all)
			return;
		if (!bms_is_member(entry->resno, reads.attnos))
			entry->expr =
				(Expr *) makeNullConst(exprType(expr), exprTypmod(expr), exprCollation(expr));
	}
}

static bool
visit(Node *node, void *context)
{
	if (node == NULL)
		return false;
	check_stack_depth();
	if (IsA(node, Query))
	{
		remove_unread((Query *) node);
		return false;
	}
	return expression_tree_walker(node, visit, context);
}

static bool
has_call(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, has_call, context, 0);
	return llm_guards_is_call(node) || expression_tree_walker(node, has_call, context);
}

static void
remove_unread(Query *query)
{
	ListCell *lc;

	/* members of a set operation are read by it */
	if (query->setOperations == NULL)
	{
		foreach (lc, query->rtable)
		{
			RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

			if (rte->rtekind == RTE_SUBQUERY && rte->subquery != NULL)
				prune(query, foreach_current_index(lc) + 1, rte->subquery);
		}
	}
	(void) query_tree_walker(query, visit, NULL, 0);
}

void
llm_unread_remove(Query *query)
{
	if (has_call((Node *) query, NULL))
		remove_unread(query);
}
