/*
 * pg/node/whole.c - how far is each LLM Batch node read?
 *
 * A node that is sure to be read to its end may ask for a whole window of rows from the start; others
 * begin with few, for whoever reads them may stop. A Sort, a Hash, a hashed or plain aggregate reads all
 * of what is below it, whatever happens above. Most other nodes read to the end when they are read to
 * the end themselves; then it is how the statement is run that decides: a cursor may stop anywhere. Plans
 * are kept and run in many ways, so that is looked at when they run (running.h). Below a LIMIT a node that
 * knows how many rows the LIMIT takes is read that far like the LIMIT.
 *
 * "To the end" is said of nodes of which a row has been asked for: sides of joins and members of an
 * Append may be left alone altogether. What is not known here may stop: merge joins, which end with
 * either side, and the outer side of a hash join whose inner side turns out to be empty after its first
 * row.
 */
#include "postgres.h"

#include "pg/node/whole.h"

#include "nodes/nodeFuncs.h"
#include "pg/node/node.h"
#include "pg/node/reach.h"

#define NOT_READ (-1) /* so far */

/* What the plans below one must know of it. */
typedef struct Above
{
	const Plan *plan;
	LlmNodeRead read;
	LlmNodeRead bounded; /* how far the next LIMIT above is read */
	int *subplans;       /* [statement's] LlmNodeRead of those that have been met, or NOT_READ */
} Above;

bool
llm_whole_inner(const Join *join)
{
	return !join->inner_unique && join->jointype != JOIN_SEMI && join->jointype != JOIN_ANTI;
}

/* True when a hash join reads its outer side to the end once it has begun to. Others want its first row
 * before they know of an inner one. */
static bool
reads_outer(const Join *join)
{
	return join->jointype == JOIN_LEFT || join->jointype == JOIN_RIGHT ||
		   join->jointype == JOIN_FULL || join->jointype == JOIN_ANTI;
}

/* How far plan, which is read like this, reads a child. */
static LlmNodeRead
read_of_child(const Plan *plan, const Plan *child, LlmNodeRead read)
{
	bool passes_on = false;
	bool whole = false;

	switch (nodeTag(plan))
	{
		case T_Sort:
		case T_Hash:
			whole = true;
			break;
		case T_Agg:
			whole = ((const Agg *) plan)->aggstrategy == AGG_PLAIN ||
					((const Agg *) plan)->aggstrategy == AGG_HASHED;
			passes_on = true;
			break;
		case T_SetOp:
			whole = ((const SetOp *) plan)->strategy == SETOP_HASHED;
			break;
		case T_ModifyTable:
			whole = ((const ModifyTable *) plan)->returningLists == NIL;
			passes_on = true;
			break;
		case T_Limit:
			passes_on = ((const Limit *) plan)->limitCount == NULL;
			break;
		case T_WindowAgg:
			passes_on = ((const WindowAgg *) plan)->runCondition == NIL;
			break;
		case T_NestLoop:
			passes_on = child == plan->lefttree || llm_whole_inner((const Join *) plan);
			break;
		case T_HashJoin:
			passes_on = reads_outer((const Join *) plan);
			break;
		case T_CustomScan:
			passes_on = llm_node_is(plan);
			break;
		case T_Append:
		case T_Group:
		case T_IncrementalSort:
		case T_LockRows:
		case T_Material:
		case T_MergeAppend:
		case T_ProjectSet:
		case T_Result:
		case T_SubqueryScan:
		case T_Unique:
			passes_on = true;
			break;
		default:
			break;
	}
	if (whole)
		return LLM_NODE_READ_WHOLE;
	return passes_on ? read : LLM_NODE_READ_PARTLY;
}

/* ---- sub-selects ---- */

/* Who reads one less far than others decides: it is not known who begins. */
static void
note_subplan(int *subplans, int plan_id, LlmNodeRead read)
{
	int *noted = &subplans[plan_id - 1];

	*noted = *noted == NOT_READ ? (int) read : Min(*noted, (int) read);
}

/* Note the sub-selects of an expression. Those of WITH are read by their scans. */
static bool
note_subplans(Node *node, void *subplans)
{
	const SubPlan *sub = (const SubPlan *) node;

	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) && sub->subLinkType != CTE_SUBLINK)
		note_subplan((int *) subplans, sub->plan_id,
					 sub->useHashTable || sub->subLinkType == ARRAY_SUBLINK ? LLM_NODE_READ_WHOLE
																			: LLM_NODE_READ_PARTLY);
	return expression_tree_walker(node, note_subplans, subplans);
}

/* ---- plans ---- */

static bool mark_child(Plan *child, void *context);

static void
mark_plan(Plan *plan, LlmNodeRead read, LlmNodeRead bounded, int *subplans)
{
	Above above = {plan, read, IsA(plan, Limit) ? read : bounded, subplans};

	if (llm_node_is(plan))
	{
		List *private = ((CustomScan *) plan)->custom_private;

		lfourth(private) = makeInteger(intVal(lthird(private)) != 0 ? bounded : read);
	}
	if (IsA(plan, CteScan))
		note_subplan(subplans, ((CteScan *) plan)->ctePlanId, read);
	(void) llm_reach_exprs(plan, note_subplans, subplans);
	(void) llm_reach_children(plan, mark_child, &above);
}

static bool
mark_child(Plan *child, void *context)
{
	const Above *above = (const Above *) context;

	mark_plan(child, read_of_child(above->plan, child, above->read), above->bounded,
			  above->subplans);
	return false;
}

/* A statement of WITH that modifies is run to its end, whoever reads what it returns. */
static LlmNodeRead
read_of_subplan(const Plan *plan, int noted)
{
	if (IsA(plan, ModifyTable))
		return LLM_NODE_READ_WHOLE;
	return noted == NOT_READ ? LLM_NODE_READ_PARTLY : (LlmNodeRead) noted;
}

void
llm_whole_mark(PlannedStmt *stmt)
{
	int n = list_length(stmt->subplans);
	int *subplans = palloc(sizeof(int) * Max(n, 1));
	int i;

	for (i = 0; i < n; i++)
		subplans[i] = NOT_READ;
	mark_plan(stmt->planTree, LLM_NODE_READ_WITH_PLAN, LLM_NODE_READ_PARTLY, subplans);
	/* a sub-select is planned before what runs it, so all who do have been looked at */
	for (i = n - 1; i >= 0; i--)
	{
		Plan *plan = (Plan *) list_nth(stmt->subplans, i);

		if (plan != NULL)
			mark_plan(plan, read_of_subplan(plan, subplans[i]), LLM_NODE_READ_PARTLY, subplans);
	}
	pfree(subplans);
}
