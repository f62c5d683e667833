/*
 * pg/estimate.c - tokens and cost of a call, for the planner (pg_proc.prosupport).
 *
 * The planner evaluates quals of one level in the order of their cost, so all that matters is that a
 * call costs far more than any expression of SQL, one that only counts tokens less than one that
 * generates, and one that generates little less than one that generates much. A generation of the
 * default length costs about 10,000 operators: much more would make a few rows worth compiling (JIT).
 * Everything is read from the expression, the settings and the statistics of columns: EXPLAIN needs
 * no engine.
 */
#include "postgres.h"

#include "pg/estimate.h"

#include <math.h>

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/func.h"
#include "pg/guc.h"
#include "pg/json_value.h"
#include "pg/options.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* In units of cpu_operator_cost. */
#define COST_CALL 1000.0 /* a round trip to the engine */
#define COST_GENERATED 35.0
#define COST_PROMPT 1.0

#define BYTES_PER_TOKEN 4.0
#define WIDTH_UNKNOWN 32    /* bytes of a text that nothing is known of, as the planner has it */
#define ROOM_TOKENS 1024    /* for max_tokens -1: the room left in the context */
#define ELEMENTS_UNKNOWN 10 /* of an array */
#define COLUMNS_MOST 1000   /* of sub-selects that are looked into: each level may name one twice */

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_call_support);
LLM_EXPORTS_END

static const Const *
const_arg(List *args, int i)
{
	const Const *c = list_nth(args, i);

	return IsA(c, Const) && !c->constisnull ? c : NULL;
}

/* A whole number among the options of a call; false when it has none that is known. */
static bool
option_int(List *args, const char *key, int64 *out)
{
	const Const *c = const_arg(args, list_length(args) - 1);
	JsonbValue buf;
	Jsonb *json;

	if (c == NULL)
		return false;
	json = DatumGetJsonbP(c->constvalue);
	return JB_ROOT_IS_OBJECT(json) &&
		   getKeyJsonValueFromContainer(&json->root, key, (int) strlen(key), &buf) != NULL &&
		   llm_json_int(&buf, out);
}

/* What a text is long, summed over what it is made of. */
typedef struct Width
{
	List *rtable;
	double nbytes;
	int *left; /* of COLUMNS_MOST */
} Width;

static bool add_width(Node *node, Width *width);
static LlmEstimate estimate(List *rtable, List *args, int *left);

/* A column's average width; one of a sub-select is as wide as what it is computed from. */
static bool
add_column(Width *width, const Var *var)
{
	const RangeTblEntry *rte = NULL;
	int32 known = 0;

	if (var->varlevelsup == 0 && (int) var->varno > 0 &&
		(int) var->varno <= list_length(width->rtable) && var->varattno > 0)
		rte = rt_fetch(var->varno, width->rtable);
	if (rte != NULL && rte->rtekind == RTE_RELATION)
		known = get_attavgwidth(rte->relid, var->varattno);
	else if (rte != NULL && rte->rtekind == RTE_SUBQUERY && rte->subquery != NULL &&
			 rte->subquery->setOperations == NULL && --*width->left >= 0)
	{
		const TargetEntry *entry =
			list_nth_node(TargetEntry, rte->subquery->targetList, var->varattno - 1);
		Width inner = {rte->subquery->rtable, 0, width->left};

		(void) add_width((Node *) entry->expr, &inner);
		width->nbytes += inner.nbytes;
		return false;
	}
	width->nbytes += known > 0 ? known : WIDTH_UNKNOWN;
	return false;
}

/* A CASE is as long as the longest of what it can give. */
static bool
add_case_width(const CaseExpr *expr, Width *width)
{
	double longest = 0;
	List *results = list_make1(expr->defresult);
	ListCell *lc;

	foreach (lc, expr->args)
		results = lappend(results, lfirst_node(CaseWhen, lc)->result);
	foreach (lc, results)
	{
		Width one = {width->rtable, 0, width->left};

		(void) add_width((Node *) lfirst(lc), &one);
		longest = Max(longest, one.nbytes);
	}
	width->nbytes += longest;
	return false;
}

static bool
add_width(Node *node, Width *width)
{
	if (node == NULL)
		return false;
	if (IsA(node, Const))
	{
		const Const *c = (const Const *) node;

		if (!c->constisnull && c->constlen == -1)
			width->nbytes += toast_raw_datum_size(c->constvalue) - VARHDRSZ;
		return false;
	}
	if (IsA(node, Var))
		return add_column(width, (const Var *) node);
	if (IsA(node, Param))
		width->nbytes += WIDTH_UNKNOWN;
	if (IsA(node, CaseExpr))
		return add_case_width((const CaseExpr *) node, width);
	if (IsA(node, FuncExpr) && llm_func_find(((FuncExpr *) node)->funcid) != NULL)
	{
		List *args = ((FuncExpr *) node)->args;

		width->nbytes += BYTES_PER_TOKEN * estimate(width->rtable, args, width->left).generated;
		return false;
	}
	return expression_tree_walker(node, add_width, width);
}

static double
count_elements(Node *array)
{
	if (IsA(array, Const) && !((Const *) array)->constisnull)
	{
		ArrayType *a = DatumGetArrayTypeP(((Const *) array)->constvalue);

		return ArrayGetNItems(ARR_NDIM(a), ARR_DIMS(a));
	}
	if (IsA(array, ArrayExpr))
		return list_length(((ArrayExpr *) array)->elements);
	return ELEMENTS_UNKNOWN;
}

/* The place of max_tokens; llm_chat has no system_prompt before it. */
static int
max_tokens_place(List *args)
{
	return list_length(args) == LLM_ARG_COUNT ? LLM_ARG_MAX_TOKENS : LLM_ARG_MAX_TOKENS - 1;
}

static double
tokens_of_answer(List *args)
{
	const Const *c = const_arg(args, max_tokens_place(args));
	int64 n = llm_guc_max_tokens;

	if (c != NULL)
		n = DatumGetInt32(c->constvalue);
	else
		(void) option_int(args, "max_tokens", &n);
	return n >= 0 ? (double) n : ROOM_TOKENS;
}

static LlmEstimate
estimate(List *rtable, List *args, int *left)
{
	LlmEstimate e = {0, 0};
	Width width = {rtable, 0, left};
	double prompts = 1;
	int64 n = 1;

	(void) add_width(linitial(args), &width);
	/* Functions of a text and a model generate nothing. */
	if (list_length(args) >= LLM_ARG_COUNT - 1)
	{
		if (list_length(args) == LLM_ARG_COUNT)
			(void) add_width(list_nth(args, LLM_ARG_SYSTEM_PROMPT), &width);
		if (exprType(linitial(args)) == TEXTARRAYOID)
			prompts = count_elements(linitial(args));
		if (!option_int(args, "n", &n) || n < 1 || n > LLM_OPTIONS_N_MAX)
			n = 1;
		e.generated = tokens_of_answer(args) * prompts * n;
	}
	e.prompt = ceil(width.nbytes / BYTES_PER_TOKEN);
	return e;
}

LlmEstimate
llm_estimate_call(List *rtable, List *args)
{
	int left = COLUMNS_MOST;

	return estimate(rtable, args, &left);
}

Cost
llm_estimate_cost(const LlmEstimate *e)
{
	return cpu_operator_cost *
		   (COST_CALL + COST_PROMPT * e->prompt + COST_GENERATED * e->generated);
}

static List *
rtable_of(const PlannerInfo *root)
{
	return root != NULL ? root->parse->rtable : NIL;
}

/* Arguments of a call, NIL when they are not those that we know. */
static List *
call_args(Node *node)
{
	if (node == NULL || !IsA(node, FuncExpr) ||
		llm_func_declared(((FuncExpr *) node)->funcid) == NULL)
		return NIL;
	return ((FuncExpr *) node)->args;
}

/* llm.call_support(internal): the planner's questions about our functions */
Datum
llm_call_support(PG_FUNCTION_ARGS)
{
	static const Oid args[] = {INTERNALOID};
	static const LlmDeclared as_support = {1, args, INTERNALOID, false};
	Node *request;

	llm_declared_check(fcinfo, &as_support);
	request = (Node *) PG_GETARG_POINTER(0);
	if (IsA(request, SupportRequestCost))
	{
		SupportRequestCost *ask = (SupportRequestCost *) request;
		List *args = call_args(ask->node);
		LlmEstimate e;

		if (args == NIL)
			PG_RETURN_POINTER(NULL);
		e = llm_estimate_call(rtable_of(ask->root), args);
		ask->startup = 0;
		ask->per_tuple = llm_estimate_cost(&e);
		PG_RETURN_POINTER(ask);
	}
	if (IsA(request, SupportRequestRows))
	{
		SupportRequestRows *ask = (SupportRequestRows *) request;
		List *args = call_args(ask->node);

		if (args == NIL)
			PG_RETURN_POINTER(NULL);
		/* a stream has a piece for each token */
		ask->rows = Max(llm_estimate_call(rtable_of(ask->root), args).generated, 1);
		PG_RETURN_POINTER(ask);
	}
	PG_RETURN_POINTER(NULL);
}
