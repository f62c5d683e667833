/*
 * pg/node/charges.c - what the planner charges a scan for quals that call the model.
 *
 * It charges every qual for every row that the scan reads, which is close enough while quals cost a
 * thousandth of a row. A call costs more than the whole scan and comes last: of 1,000,000 rows with
 * `id < 100 AND llm_generate(body) = 'x'` it is made for 100. So each path of such a scan is told what
 * the calls cost for the rows that the cheaper quals leave; only then can joins be weighed against
 * calls (plan.c). Runs in set_rel_pathlist_hook, before the cheapest path is chosen.
 */
#include "postgres.h"

#include "pg/node/charges.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "pg/node/guards.h"

static set_rel_pathlist_hook_type prev_set_rel_pathlist_hook = NULL;

/* The quals of one path. */
typedef struct Charge
{
	PlannerInfo *root;
	List *cheap;  /* RestrictInfos without a call */
	Cost per_row; /* of the calls in the others */
} Charge;

static void
add_quals(Charge *charge, List *quals)
{
	ListCell *lc;

	foreach (lc, quals)
	{
		RestrictInfo *info = lfirst_node(RestrictInfo, lc);
		QualCost cost;

		if (!llm_guards_any_call((Node *) info->clause))
		{
			charge->cheap = lappend(charge->cheap, info);
			continue;
		}
		cost_qual_eval_node(&cost, (Node *) info, charge->root);
		charge->per_row += cost.per_tuple;
	}
}

/* Part of the rows that quals take away. */
static double
taken_by(const Charge *charge, List *quals)
{
	return 1 - clauselist_selectivity(charge->root, quals, 0, JOIN_INNER, NULL);
}

/* Rows that path has been charged for beyond those that reach the calls. */
static double
rows_too_many(const Charge *charge, Path *path)
{
	double tuples = path->parent->tuples;
	Selectivity selectivity;
	List *rest = NIL;
	ListCell *lc;
	Cost cost;

	switch (nodeTag(path))
	{
		case T_Path:
			return tuples * taken_by(charge, charge->cheap);
		case T_SubqueryScanPath:
			return ((SubqueryScanPath *) path)->subpath->rows * taken_by(charge, charge->cheap);
		case T_IndexPath:
			foreach (lc, charge->cheap)
			{
				if (!is_redundant_with_indexclauses(lfirst(lc), ((IndexPath *) path)->indexclauses))
					rest = lappend(rest, lfirst(lc));
			}
			return tuples * ((IndexPath *) path)->indexselectivity * taken_by(charge, rest);
		case T_BitmapHeapPath:
			cost_bitmap_tree_node(((BitmapHeapPath *) path)->bitmapqual, &cost, &selectivity);
			return tuples * (selectivity - 1 + taken_by(charge, charge->cheap));
		default:
			return 0;
	}
}

static void
charge_scan(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	Charge of_all = {root, NIL, 0};
	ListCell *lc;

	if (prev_set_rel_pathlist_hook != NULL)
		prev_set_rel_pathlist_hook(root, rel, rti, rte);
	add_quals(&of_all, rel->baserestrictinfo);
	foreach (lc, rel->pathlist)
	{
		Path *path = (Path *) lfirst(lc);
		Charge charge = {root, list_copy(of_all.cheap), of_all.per_row};
		Cost cost;

		if (path->param_info != NULL)
			add_quals(&charge, path->param_info->ppi_clauses);
		if (charge.cheap == NIL || charge.per_row <= 0)
			continue;
		cost = path->total_cost - charge.per_row * Max(rows_too_many(&charge, path), 0);
		path->total_cost = Max(cost, path->startup_cost);
	}
}

void
llm_charges_init(void)
{
	prev_set_rel_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = charge_scan;
}
