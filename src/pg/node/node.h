/*
 * pg/node/node.h - what the planner's and the executor's halves of the LLM Batch node share.
 *
 * Row layout of a node: the scan tuple is [columns of the child | results of the node's calls];
 * target list and quals refer to it by INDEX_VAR. custom_private = (ncols, list of calls, bound,
 * LlmNodeRead): each call is a FuncExpr whose arguments are Vars of the child (OUTER_VAR) or Consts,
 * bound is the most rows that the plan above can take, 0 = not known, negative = unless some go there.
 * In custom_scan_tlist the calls stand as EXPLAIN shall show them; they are never evaluated.
 */
#ifndef LLM_PG_NODE_NODE_H
#define LLM_PG_NODE_NODE_H

#include "postgres.h"

#include "nodes/extensible.h"
#include "nodes/plannodes.h"
#include "pg/call.h"
#include "pg/node/grouping.h"

#define LLM_NODE_NAME "LLM Batch"

/* How far a node's rows are read by the plan above it, once one has been asked for. */
typedef enum LlmNodeRead
{
	LLM_NODE_READ_PARTLY = 0, /* perhaps not to the end */
	LLM_NODE_READ_WITH_PLAN,  /* to the end when the statement's plan is run to its end */
	LLM_NODE_READ_WHOLE       /* to the end, whoever runs the plan */
} LlmNodeRead;

/* One argument of a call: a column of the child's tuple, or a constant. */
typedef struct LlmNodeArg
{
	AttrNumber attno;    /* of the child's tuple, 0 = constant */
	NullableDatum value; /* the constant */
} LlmNodeArg;

/* A call that the node makes for each row. */
typedef struct LlmNodeCall
{
	const LlmFunc *func;
	int nargs;
	LlmNodeArg *args; /* [nargs] */
} LlmNodeCall;

/* A row that has been read ahead. */
typedef struct LlmNodeRow
{
	MinimalTuple tuple; /* of the child, in rows_cxt; NULL once the slot has it */
	LlmCall **calls;    /* [ncalls] NULL where the answer is NULL without a request */
	Size begun_nbytes;  /* of the calls when the row was read */
	Size nbytes;        /* of tuple and calls, with answers that are there or to be expected */
	bool sent;          /* everything has been submitted */
} LlmNodeRow;

typedef struct LlmNodeState
{
	CustomScanState css; /* must be first */
	int ncols;           /* columns of the child in the scan tuple */
	int ncalls;
	LlmNodeCall *calls;         /* [ncalls] */
	TupleTableSlot *child_slot; /* holds the row being emitted */
	MemoryContext rows_cxt;     /* tuples and calls of the window */
	NullableDatum *args;        /* scratch: arguments of one call */
	LlmNodeRow *ring;           /* [cap] */
	int cap;                    /* slots of ring, for as many rows as were in it at once */
	int max_window;             /* llm_infer.max_lookahead_rows */
	int head;                   /* slot of the oldest row */
	int nrows;                  /* rows in the ring */
	LlmGroupingRow *unsent;     /* [cap] rows read and not sent, in the order to send */
	int next_unsent;            /* of them: the first that is still to be sent */
	int n_unsent;               /* end of unsent */
	Size nbytes;                /* sum over the ring, as of the last count */
	Size answer_nbytes;         /* what answers have added lately, or may add at first */
	int bound;                  /* rows that a LIMIT above can take, 0 = not known */
	LlmNodeRead read;           /* all of them, or those within bound */
	int64 nread;                /* rows read since the last (re)scan */
	int window;                 /* rows that may be read ahead now */
	int until_grow;             /* rows to emit before the window doubles */
	bool eof;                   /* the child is exhausted */
	int peak;                   /* most rows in flight at once */
	char model[NAMEDATALEN];    /* of the last call, '' = none */
	LlmCallUsage usage;         /* sums over the rows that have left the ring */
} LlmNodeState;

extern CustomScanMethods llm_node_scan_methods;

/* True for an LLM Batch node of a plan. */
static inline bool
llm_node_is(const Plan *plan)
{
	return IsA(plan, CustomScan) && ((const CustomScan *) plan)->methods == &llm_node_scan_methods;
}

/* Executor's constructor, named by llm_node_scan_methods. */
extern Node *llm_node_create_state(CustomScan *cscan);

/* Sums over all rows read so far, those read ahead included. */
extern void llm_node_usage(const LlmNodeState *node, LlmCallUsage *usage);

/* EXPLAIN callback. */
extern void llm_node_explain(CustomScanState *css, List *ancestors, struct ExplainState *es);

#endif
