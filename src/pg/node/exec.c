/*
 * pg/node/exec.c - run an LLM Batch node: read ahead, keep many requests in flight, emit in order.
 *
 * The node keeps a ring of rows that it has read from its child. It reads them in lots, a quarter of
 * the window at least, and submits a lot's calls with common beginnings of prompts side by side
 * (grouping.h), as soon as flow control lets them; rows leave at the head, in input order, when their
 * own calls are finished. A row that is waited for goes before all others. The window (rows that may
 * be read ahead) starts small and doubles, so that LIMIT, EXISTS and cursors waste little; where all rows
 * are sure to be asked for it is whole from the start (whole.h). work_mem bounds its bytes: tuples,
 * requests, answers, and for rows that have none yet as much as answers took lately, the first ones as
 * much as they may. They are counted before a lot is read, so answers may be over by what nobody could
 * know. A row's error is raised when that row is emitted, never before. The engine is contacted by the first
 * row alone: EXPLAIN without ANALYZE costs nothing.
 *
 * ExecScan() is not used: with scanrelid 0 its EvalPlanQual branch would want a recheck method; the
 * child does that work.
 */
#include "postgres.h"

#include "pg/node/node.h"

#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/guc.h"
#include "pg/hidden.h"
#include "pg/running.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define WINDOW_START 8
#define LOT_MS 5        /* what a slow child may delay the sending of rows that have been read */
#define PEAK_ALWAYS 256 /* rows that may be counted at every row */

static LlmNodeRow *
ring_row(LlmNodeState *node, int i)
{
	return &node->ring[(node->head + i) % node->cap];
}

/* ---- reading ahead ---- */

/* Evaluate the arguments of call k for the tuple in slot. */
static LlmCall *
make_call(LlmNodeState *node, const LlmNodeCall *call, TupleTableSlot *slot)
{
	int i;

	for (i = 0; i < call->nargs; i++)
	{
		const LlmNodeArg *arg = &call->args[i];

		if (arg->attno == 0)
			node->args[i] = arg->value;
		else
			node->args[i].value = slot_getattr(slot, arg->attno, &node->args[i].isnull);
	}
	return llm_call_create(call->func, call->nargs, node->args, node->rows_cxt);
}

/* Note that a row is to be sent. Rows without a request go out like those that share nothing. */
static void
add_unsent(LlmNodeState *node, const LlmNodeRow *row)
{
	LlmGroupingRow *item = &node->unsent[node->n_unsent++];
	bool found = false;
	int i;

	memset(item, 0, sizeof(*item));
	item->prompt.model = "";
	item->number = node->nread;
	item->slot = (int) (row - node->ring);
	for (i = 0; i < node->ncalls && !found; i++)
		found = row->calls[i] != NULL && llm_call_prompt(row->calls[i], &item->prompt);
}

static Size
calls_nbytes(const LlmNodeState *node, const LlmNodeRow *row)
{
	Size n = 0;
	int i;

	for (i = 0; i < node->ncalls; i++)
	{
		if (row->calls[i] != NULL)
			n += llm_call_nbytes(row->calls[i]);
	}
	return n;
}

/* What a row's answers may add, as far as the calls say; for a scan of which none has come. */
static void
expect_answers(LlmNodeState *node, const LlmNodeRow *row)
{
	Size n = 0;
	int i;

	for (i = 0; i < node->ncalls; i++)
	{
		if (row->calls[i] != NULL)
			n += llm_call_answer_nbytes(row->calls[i]);
	}
	node->answer_nbytes = Max(node->answer_nbytes, n);
}

/* Room for more rows; only rows that are in the ring are unsent. */
static void
grow_ring(LlmNodeState *node)
{
	int cap = Min(node->cap * 2, node->max_window);
	LlmNodeRow *ring = MemoryContextAlloc(node->css.ss.ps.state->es_query_cxt, sizeof(*ring) * cap);
	int i;

	for (i = 0; i < node->nrows; i++)
		ring[i] = *ring_row(node, i);
	for (i = 0; i < node->n_unsent; i++)
		node->unsent[i].slot = (node->unsent[i].slot - node->head + node->cap) % node->cap;
	pfree(node->ring);
	node->ring = ring;
	node->unsent = repalloc(node->unsent, sizeof(LlmGroupingRow) * cap);
	node->head = 0;
	node->cap = cap;
}

/* Copy the child's tuple into the ring and make its calls. */
static void
push_row(LlmNodeState *node, TupleTableSlot *slot)
{
	LlmNodeRow *row;
	MemoryContext old;
	int i;

	if (node->nrows == node->cap)
		grow_ring(node);
	row = ring_row(node, node->nrows);
	old = MemoryContextSwitchTo(node->rows_cxt);
	row->tuple = ExecCopySlotMinimalTuple(slot);
	row->calls = palloc0(sizeof(LlmCall *) * Max(node->ncalls, 1));
	row->sent = false;
	/* what evaluating the arguments leaves behind goes with the next row */
	MemoryContextSwitchTo(node->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	for (i = 0; i < node->ncalls; i++)
		row->calls[i] = make_call(node, &node->calls[i], slot);
	MemoryContextSwitchTo(old);
	if (node->nread == node->nrows)
		expect_answers(node, row);
	row->begun_nbytes = calls_nbytes(node, row);
	row->nbytes = row->tuple->t_len + row->begun_nbytes + node->answer_nbytes;
	add_unsent(node, row);
	node->nrows++;
	node->nread++;
	node->nbytes += row->nbytes;
}

static void
drop_row(LlmNodeState *node, LlmNodeRow *row)
{
	int i;

	for (i = 0; i < node->ncalls; i++)
	{
		if (row->calls[i] != NULL)
		{
			llm_call_usage(row->calls[i], &node->usage);
			llm_call_free(row->calls[i]);
		}
	}
	pfree(row->calls);
	if (row->tuple != NULL)
		pfree(row->tuple);
	node->nbytes -= row->nbytes;
}

/* Submit what has been read until flow control says stop; false when it did. All goes out at once. */
static bool
send_rows(LlmNodeState *node)
{
	if (node->next_unsent == node->n_unsent)
		return true;
	while (node->next_unsent < node->n_unsent)
	{
		LlmNodeRow *row = &node->ring[node->unsent[node->next_unsent].slot];
		int i;

		for (i = 0; i < node->ncalls && !row->sent; i++)
		{
			if (row->calls[i] != NULL && !llm_call_submit(row->calls[i], false))
				return false; /* and has polled */
		}
		row->sent = true;
		node->next_unsent++;
	}
	node->next_unsent = node->n_unsent = 0;
	llm_call_poll();
	return true;
}

static bool
row_finished(const LlmNodeState *node, const LlmNodeRow *row)
{
	int i;

	for (i = 0; i < node->ncalls; i++)
	{
		if (row->calls[i] != NULL && !llm_call_finished(row->calls[i]))
			return false;
	}
	return true;
}

/* Rows sent and unanswered, for EXPLAIN. A large window is counted every few rows only. */
static void
note_peak(LlmNodeState *node)
{
	int n_sent = node->nrows - (node->n_unsent - node->next_unsent);
	int n = 0;
	int i;

	if (n_sent <= node->peak || (n_sent > PEAK_ALWAYS && node->until_grow % 16 != 0))
		return;
	for (i = 0; i < node->nrows; i++)
	{
		const LlmNodeRow *row = ring_row(node, i);

		n += row->sent && !row_finished(node, row) ? 1 : 0;
	}
	node->peak = Max(node->peak, n);
}

/* What the ring holds now: answers come at any time. Costs a look at each row, so it is for lots. */
static void
count_bytes(LlmNodeState *node)
{
	int i;

	node->nbytes = 0;
	for (i = 0; i < node->nrows; i++)
	{
		LlmNodeRow *row = ring_row(node, i);
		Size n = calls_nbytes(node, row);

		if (!row_finished(node, row))
			n = Max(n, row->begun_nbytes + node->answer_nbytes);
		row->nbytes = row->tuple->t_len + n;
		node->nbytes += row->nbytes;
	}
}

/* True when one more row may be read: the first always, others ahead of it within the window, memory
 * and what a LIMIT above can take. */
static bool
may_read(const LlmNodeState *node)
{
	if (node->eof || node->nrows == 0)
		return !node->eof;
	return node->nrows < node->window && node->nbytes < (Size) work_mem * 1024 &&
		   (node->bound == 0 || node->nread < node->bound);
}

/* True when there is room for a lot: reading each row as one leaves would group nothing. */
static bool
may_read_lot(const LlmNodeState *node)
{
	return may_read(node) && (node->nrows == 0 || (node->nrows <= node->window - node->window / 4 &&
												   node->nbytes / 3 <= (Size) work_mem * 256));
}

/* True when all rows, or as many as a LIMIT above takes, are sure to be asked for. */
static bool
is_read_whole(const LlmNodeState *node)
{
	return node->read == LLM_NODE_READ_WHOLE ||
		   (node->read == LLM_NODE_READ_WITH_PLAN && llm_running_to_end(node->css.ss.ps.state));
}

/* Read and submit as much as the window and flow control allow. */
static void
fill_window(LlmNodeState *node)
{
	PlanState *child = outerPlanState(node);
	TimestampTz begun;

	if (node->window < node->max_window && is_read_whole(node))
		node->window = node->max_window;
	if (!send_rows(node) || !may_read_lot(node))
		return;
	count_bytes(node);
	if (!may_read_lot(node))
		return;
	begun = GetCurrentTimestamp();
	while (may_read(node))
	{
		TupleTableSlot *slot;

		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(child);
		if (TupIsNull(slot))
		{
			node->eof = true;
			break;
		}
		push_row(node, slot);
		if (GetCurrentTimestamp() - begun < LOT_MS * 1000)
			continue;
		llm_grouping_order(node->unsent, node->n_unsent);
		if (!send_rows(node) || row_finished(node, ring_row(node, 0)))
			break; /* what is there need not wait for a slow child */
		begun = GetCurrentTimestamp();
	}
	if (node->next_unsent == 0)
		llm_grouping_order(node->unsent, node->n_unsent);
	(void) send_rows(node);
	note_peak(node);
}

/* ---- emitting ---- */

static void
note_call(LlmNodeState *node, const LlmCall *call, bool failed)
{
	const char *model = llm_call_model(call);

	if (model != NULL)
		strlcpy(node->model, model, sizeof(node->model));
	if (failed)
		llm_hidden_note(node->css.ss.ps.state->es_query_cxt, llm_call_error_text(call));
}

/* Wait for the oldest row and put it into the scan slot; its error is raised here. */
static void
store_head(LlmNodeState *node, TupleTableSlot *slot)
{
	LlmNodeRow *row = ring_row(node, 0);
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	MemoryContext old;
	int i;

	for (i = 0; i < node->ncalls; i++)
	{
		if (row->calls[i] != NULL)
			llm_call_submit(row->calls[i], true);
	}
	row->sent = true;
	for (i = 0; i < node->ncalls; i++)
	{
		if (row->calls[i] != NULL)
			llm_call_wait(row->calls[i]);
	}
	ExecClearTuple(slot);
	/* the slot takes the tuple over: its values must live until the next row is stored */
	ExecStoreMinimalTuple(row->tuple, node->child_slot, true);
	row->tuple = NULL;
	slot_getallattrs(node->child_slot);
	memcpy(slot->tts_values, node->child_slot->tts_values, sizeof(Datum) * node->ncols);
	memcpy(slot->tts_isnull, node->child_slot->tts_isnull, sizeof(bool) * node->ncols);
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	for (i = 0; i < node->ncalls; i++)
	{
		int attno = node->ncols + i;
		bool failed = false;

		slot->tts_values[attno] = (Datum) 0;
		slot->tts_isnull[attno] = true;
		if (row->calls[i] != NULL)
		{
			slot->tts_values[attno] =
				llm_call_result(row->calls[i], &slot->tts_isnull[attno], &failed);
			note_call(node, row->calls[i], failed);
		}
	}
	MemoryContextSwitchTo(old);
	ExecStoreVirtualTuple(slot);
}

static void
pop_head(LlmNodeState *node)
{
	LlmNodeRow *row = ring_row(node, 0);
	Size n = calls_nbytes(node, row);

	node->answer_nbytes -= node->answer_nbytes / 8;
	if (n > row->begun_nbytes + node->answer_nbytes)
		node->answer_nbytes = n - row->begun_nbytes;
	drop_row(node, row);
	node->head = (node->head + 1) % node->cap;
	node->nrows--;
	if (--node->until_grow <= 0)
	{
		node->window = Min(node->window * 2, node->max_window);
		node->until_grow = node->window;
	}
}

static TupleTableSlot *
node_exec(CustomScanState *css)
{
	LlmNodeState *node = (LlmNodeState *) css;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	ProjectionInfo *projection = css->ss.ps.ps_ProjInfo;
	TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		fill_window(node);
		if (node->nrows == 0)
			return ExecClearTuple(projection != NULL ? projection->pi_state.resultslot : slot);
		store_head(node, slot);
		pop_head(node);
		econtext->ecxt_scantuple = slot;
		if (css->ss.ps.qual != NULL && !ExecQual(css->ss.ps.qual, econtext))
		{
			InstrCountFiltered1(css, 1);
			continue;
		}
		return projection != NULL ? ExecProject(projection) : slot;
	}
}

/* ---- life ---- */

/* Forget what was read ahead; unanswered requests are cancelled. */
static void
drop_rows(LlmNodeState *node)
{
	int i;

	for (i = 0; i < node->nrows; i++)
		drop_row(node, ring_row(node, i));
	node->head = node->nrows = 0;
	node->next_unsent = node->n_unsent = 0;
	node->nread = 0;
	node->window = Min(WINDOW_START, node->max_window);
	node->until_grow = node->window;
	node->eof = false;
}

static void
init_call(LlmNodeCall *call, FuncExpr *expr)
{
	AclResult acl;
	ListCell *lc;

	call->func = llm_func_find(expr->funcid);
	if (call->func == NULL)
		llm_declared_lost();
	/* As ExecInitExpr does for the calls that it prepares. */
	acl = llm_compat_execute_acl(expr->funcid, GetUserId());
	if (acl != ACLCHECK_OK)
		aclcheck_error(acl, OBJECT_FUNCTION, get_func_name(expr->funcid));
	InvokeFunctionExecuteHook(expr->funcid);
	call->nargs = list_length(expr->args);
	call->args = palloc0(sizeof(LlmNodeArg) * Max(call->nargs, 1));
	foreach (lc, expr->args)
	{
		LlmNodeArg *arg = &call->args[foreach_current_index(lc)];
		Node *node = (Node *) lfirst(lc);

		if (IsA(node, Const))
		{
			arg->value.value = ((Const *) node)->constvalue;
			arg->value.isnull = ((Const *) node)->constisnull;
		}
		else
			arg->attno = castNode(Var, node)->varattno;
	}
}

static void
node_begin(CustomScanState *css, EState *estate, int eflags)
{
	LlmNodeState *node = (LlmNodeState *) css;
	CustomScan *cscan = (CustomScan *) css->ss.ps.plan;
	List *calls = (List *) lsecond(cscan->custom_private);
	ListCell *lc;
	int max_args = 1;
	int bound;

	outerPlanState(css) =
		ExecInitNode(outerPlan(cscan), estate, eflags & ~(EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK));
	node->ncols = intVal(linitial(cscan->custom_private));
	bound = intVal(lthird(cscan->custom_private));
	node->bound = abs(bound);
	node->read = (LlmNodeRead) intVal(lfourth(cscan->custom_private));
	if (bound > 0)
		ExecSetTupleBound(bound, outerPlanState(css)); /* a sort need not keep more */
	node->ncalls = list_length(calls);
	node->calls = palloc0(sizeof(LlmNodeCall) * Max(node->ncalls, 1));
	foreach (lc, calls)
	{
		LlmNodeCall *call = &node->calls[foreach_current_index(lc)];

		init_call(call, (FuncExpr *) lfirst(lc));
		max_args = Max(max_args, call->nargs);
	}
	node->args = palloc0(sizeof(NullableDatum) * max_args);
	node->max_window = llm_guc_max_lookahead_rows;
	node->cap = Min(WINDOW_START, node->max_window);
	node->ring = palloc0(sizeof(LlmNodeRow) * node->cap);
	node->unsent = palloc(sizeof(LlmGroupingRow) * node->cap);
	node->rows_cxt =
		AllocSetContextCreate(estate->es_query_cxt, "LLM Batch rows", ALLOCSET_DEFAULT_SIZES);
	node->child_slot =
		ExecInitExtraTupleSlot(estate, ExecGetResultType(outerPlanState(css)), &TTSOpsMinimalTuple);
	drop_rows(node);
}

static void
node_rescan(CustomScanState *css)
{
	LlmNodeState *node = (LlmNodeState *) css;

	drop_rows(node);
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
node_end(CustomScanState *css)
{
	LlmNodeState *node = (LlmNodeState *) css;

	drop_rows(node);
	ExecEndNode(outerPlanState(css));
}

static CustomExecMethods exec_methods = {
	.CustomName = LLM_NODE_NAME,
	.BeginCustomScan = node_begin,
	.ExecCustomScan = node_exec,
	.EndCustomScan = node_end,
	.ReScanCustomScan = node_rescan,
	.ExplainCustomScan = llm_node_explain,
};

void
llm_node_usage(const LlmNodeState *node, LlmCallUsage *usage)
{
	int i;
	int k;

	*usage = node->usage;
	for (i = 0; i < node->nrows; i++)
	{
		const LlmNodeRow *row = &node->ring[(node->head + i) % node->cap];

		for (k = 0; k < node->ncalls; k++)
		{
			if (row->calls[k] != NULL)
				llm_call_usage(row->calls[k], usage);
		}
	}
}

Node *
llm_node_create_state(CustomScan *cscan)
{
	LlmNodeState *node = palloc0(sizeof(LlmNodeState));

	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &exec_methods;
	return (Node *) node;
}
