/*
 * pg/enrich/enrich.c - CALL llm_enrich(...): fill a column by generated values, batch by batch.
 *
 * What is to be done is what the table says: rows whose target is NULL, that the filter lets through and
 * that have a prompt. So there is nothing to resume from: a call that dies leaves the rows that it has
 * committed, and the next does the others. Transactions are those of enrich_rows.h; between them this waits
 * without a snapshot. Workers of standing enrichments have the loop's parts in common.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pg/catalog.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/enrich/enrich_progress.h"
#include "pg/enrich/enrich_reorder.h"
#include "pg/enrich/enrich_rows.h"
#include "pg/guc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_enrich);
LLM_EXPORTS_END

#define ATTEMPTS_DEFAULT 3 /* of a version of a row, over all calls */
#define TICK_MS 100        /* one wait for the oldest answer, at most */
#define WRITE_MS 1000      /* what is finished is written after that, be it a batch or not */
#define LATE_MS 100        /* between looks at rows that others have locked */
#define NOTICE_MS 1000     /* between notices, at first */
#define VAIN_PASSES 3      /* without a row done, one after the other, before the end */

/* Places of the arguments in SQL. */
enum
{
	ARG_RELATION,
	ARG_TARGET,
	ARG_PROMPT,
	ARG_EXPR,
	ARG_FILTER,
	ARG_REORDER,
	ARG_BATCH_SIZE,
	ARG_MAX_ROWS,
	ARG_CONCURRENCY,
	ARG_MODEL,
	ARG_MAX_TOKENS,
	ARG_TEMPERATURE,
	ARG_SEED,
	ARG_RESPONSE_FORMAT,
	ARG_ON_ERROR,
	ARG_OPTIONS
};

static const Oid arg_types[] = {REGCLASSOID, NAMEOID,  TEXTOID, TEXTOID, TEXTOID, BOOLOID,
								INT4OID,     INT8OID,  INT4OID, TEXTOID, INT4OID, FLOAT8OID,
								INT8OID,     JSONBOID, TEXTOID, JSONBOID};
static const LlmDeclared as_enrich = {lengthof(arg_types), arg_types, VOIDOID, false};

/* ---- arguments ---- */

/* Where a procedure may commit; before anything else is done. */
static void
check_context(FunctionCallInfo fcinfo)
{
	LlmFailure f;

	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("llm_enrich commits after each batch and cannot do so here"),
				 errhint("CALL it alone: not in a transaction block, a function or a block with "
						 "EXCEPTION, and not in one string with other statements.")));
	PreventCommandDuringRecovery("CALL llm_enrich()");
	PreventCommandIfReadOnly("CALL llm_enrich()");
	if (!llm_client_available(&f))
		llm_failure_raise(&f);
}

static char *
text_argument(FunctionCallInfo fcinfo, int i)
{
	return PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
}

static int64
number_argument(FunctionCallInfo fcinfo, int i, const char *name, int64 fallback, int64 max)
{
	int64 n = PG_ARGISNULL(i)     ? fallback
			  : i == ARG_MAX_ROWS ? PG_GETARG_INT64(i)
								  : PG_GETARG_INT32(i);

	if (!PG_ARGISNULL(i) && (n < 1 || n > max))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						max == PG_INT64_MAX
							? errmsg("%s must be at least 1", name)
							: errmsg("%s must be between 1 and " INT64_FORMAT, name, max)));
	return n;
}

bool
llm_enrich_check_call(LlmEnrich *e)
{
	LlmOptions o;
	LlmFailure f;

	e->max_attempts =
		llm_options_take_attempts(&e->args[LLM_ARG_OPTIONS], ATTEMPTS_DEFAULT, LLM_ENRICH_ROWS_MAX);
	if (!llm_options_read(&o, e->args, &f) || llm_catalog_find_model(o.model, true, &f) == NULL)
		llm_failure_raise(&f);
	/* A row that fails is no reason to end, unless the call says so: the setting is for statements. */
	return !e->args[LLM_ARG_ON_ERROR].isnull && o.on_error == LLM_ON_ERROR_ERROR;
}

/* The arguments of a call for each row; errors in them come here and not with the first row. True when a
 * row's error shall end the whole. */
static bool
read_call(LlmEnrich *e, FunctionCallInfo fcinfo)
{
	static const struct
	{
		int to;
		int from;
	} places[] = {
		{LLM_ARG_MODEL, ARG_MODEL},
		{LLM_ARG_MAX_TOKENS, ARG_MAX_TOKENS},
		{LLM_ARG_TEMPERATURE, ARG_TEMPERATURE},
		{LLM_ARG_SEED, ARG_SEED},
		{LLM_ARG_RESPONSE_FORMAT, ARG_RESPONSE_FORMAT},
		{LLM_ARG_ON_ERROR, ARG_ON_ERROR},
		{LLM_ARG_OPTIONS, ARG_OPTIONS},
	};

	for (int i = 0; i < LLM_ARG_COUNT; i++)
		e->args[i].isnull = true;
	for (Size i = 0; i < lengthof(places); i++)
		e->args[places[i].to] = fcinfo->args[places[i].from];
	return llm_enrich_check_call(e);
}

static void
read_target(LlmEnrich *e, FunctionCallInfo fcinfo, LlmEnrichOrder *order)
{
	Oid relid = PG_ARGISNULL(ARG_RELATION) ? InvalidOid : PG_GETARG_OID(ARG_RELATION);
	char *template = text_argument(fcinfo, ARG_PROMPT);
	char *expr = text_argument(fcinfo, ARG_EXPR);
	char *filter = text_argument(fcinfo, ARG_FILTER);
	char *column;

	if (PG_ARGISNULL(ARG_RELATION) || PG_ARGISNULL(ARG_TARGET))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("relation and target must not be NULL")));
	column = NameStr(*PG_GETARG_NAME(ARG_TARGET));
	if ((template == NULL) == (expr == NULL))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("llm_enrich needs prompt or expr, and not both"),
						errhint("prompt is a template such as 'Summarise: {body}', expr an SQL "
								"expression that gives the prompt.")));
	if (!PG_ARGISNULL(ARG_REORDER) && PG_GETARG_BOOL(ARG_REORDER))
	{
		if (expr != NULL)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("reorder is for templates, not for expr")));
		e->target = llm_enrich_target_open(relid, column, template, NULL, filter);
		llm_enrich_reorder(e->target, template, order);
		template = order->template != NULL ? order->template : template;
		e->sort = order->sort;
	}
	e->target = llm_enrich_target_open(relid, column, template, expr, filter);
}

/* ---- the loop ---- */

/* Begin a transaction's work, where one has just begun. */
static void
begin(LlmEnrich *e)
{
	/* Each transaction is one step: what others have committed before it counts. */
	if (!FirstSnapshotSet)
		XactIsoLevel = XACT_READ_COMMITTED;
	LockRelationOid(e->target->relid, RowExclusiveLock);
	if (!llm_enrich_target_same(e->target))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("table \"%s\" or one of its columns was renamed, dropped or given "
							   "another type during its enrichment",
							   e->target->name),
						errhint("Call llm_enrich again.")));
	EnsurePortalSnapshotExists();
	/* What SPI leaves behind in its own memory goes with the transaction. */
	SPI_connect();
	MemoryContextReset(e->work);
	MemoryContextSwitchTo(e->work);
}

static void
commit(LlmEnrich *e)
{
	SPI_finish();
	MemoryContextSwitchTo(e->cxt);
	SPI_commit();
}

static int
count_unanswered(const LlmEnrich *e)
{
	int n = 0;

	for (int i = 0; i < e->n_rows; i++)
		n += llm_enrich_rows_finished(&e->rows[i]) ? 0 : 1;
	return n;
}

int
llm_enrich_room(const LlmEnrich *e)
{
	int64 left = e->max_rows < 0 ? LLM_ENRICH_ROWS_MAX : e->max_rows - e->n_claimed;
	int64 n = Min(e->concurrency - count_unanswered(e), e->concurrency + e->batch_size - e->n_rows);

	n = Min(n, left);
	/* when half of the engine's are answered */
	return n < Min(e->concurrency / 2 + 1, left) || llm_enrich_rows_full(e) ? 0 : (int) n;
}

/* Claim rows when there is room. False when nothing is left to claim. */
static bool
claim(LlmEnrich *e)
{
	int n = llm_enrich_room(e);

	if (e->list.next == e->list.n || e->n_claimed == e->max_rows)
		return false;
	if (n == 0)
		return true;
	llm_enrich_progress_show(e, LLM_PROGRESS_CLAIMING);
	llm_call_know_model(e->args);
	begin(e);
	llm_enrich_rows_claim(e, &e->list, n);
	commit(e);
	return true;
}

/* Say how far it is. Rows that are to be done beyond the list are not counted. */
static void
tell(const LlmEnrich *e, bool last)
{
	int64 done = e->n_written + e->n_failed;
	int64 total = done + e->n_rows + e->list.n - e->list.next;
	double seconds = Max((double) (GetCurrentTimestamp() - e->started) / 1e6, 1e-3);

	if (e->max_rows >= 0)
		total = Min(total, e->max_rows);
	if (last)
		ereport(
			NOTICE,
			(errmsg("llm_enrich wrote " INT64_FORMAT " rows of \"%s\", " INT64_FORMAT
					" failed, " INT64_FORMAT " changed meanwhile",
					e->n_written, e->target->name, e->n_failed, e->n_lost),
			 e->n_failed > 0 ? errhint("llm.failed_rows has rows that have failed, and why.")
			 : e->n_skipped > 0
				 ? errhint("Rows that have failed as often as max_attempts allows, %d times, are "
						   "left alone: llm.failed_rows has them.",
						   e->max_attempts)
			 : e->n_claimed + e->list.n == 0
				 ? errhint(
					   "Rows are done in which \"%s\" is NULL, which have a prompt, and which the "
					   "filter lets through.",
					   NameStr(e->target->column))
				 : 0));
	else
		ereport(NOTICE,
				(errmsg("llm_enrich: " INT64_FORMAT " of " INT64_FORMAT
						"%s rows of \"%s\", " INT64_FORMAT " failed, %.1f rows/s, %.0f s left",
						done, total, e->cut ? " or more" : "", e->target->name, e->n_failed,
						(double) done / seconds,
						done > 0 ? seconds * (double) (total - done) / (double) done : 0.0)));
}

/* The longer a call takes, the longer are the times between its notices: one of a night makes hundreds, not ten thousands. */
static void
tell_now_and_then(LlmEnrich *e)
{
	TimestampTz now = GetCurrentTimestamp();
	int64 pause_ms = NOTICE_MS + Min((now - e->started) / 1000 / 60, NOTICE_MS * 59);

	if (now < TimestampTzPlusMilliseconds(e->told, pause_ms))
		return;
	tell(e, false);
	e->told = now;
}

/* Say what the order of the template's lines has saved. */
static void
tell_shared(const LlmEnrich *e, double as_written)
{
	const LlmCallUsage *u = &e->usage;

	if (u->prompt_tokens > 0)
		ereport(NOTICE, (errmsg("llm_enrich: " INT64_FORMAT " of " INT64_FORMAT
								" prompt tokens came from the prefix cache; with the template as "
								"written, about %.0f by the statistics",
								u->cached_tokens, u->prompt_tokens,
								as_written * (double) u->prompt_tokens)));
}

bool
llm_enrich_ready(const LlmEnrich *e, TimestampTz since)
{
	int n_unanswered = count_unanswered(e);
	int n_late = 0;

	for (int i = 0; i < e->n_rows; i++)
		n_late += e->rows[i].hold == LLM_ENRICH_NOT_NOW ? 1 : 0;
	return n_unanswered == 0 || e->n_rows - n_unanswered - n_late >= e->batch_size ||
		   (e->n_rows > n_unanswered &&
			GetCurrentTimestamp() >= TimestampTzPlusMilliseconds(since, WRITE_MS));
}

void
llm_enrich_wait(LlmEnrich *e, TimestampTz since)
{
	int64 waited_ms = (GetCurrentTimestamp() - since) / 1000;
	int i = 0;

	InvalidateCatalogSnapshot();
	while (llm_enrich_rows_finished(&e->rows[i]))
		i++;
	/* The oldest may be slow: others are looked at soon, by what has been waited for. */
	(void) llm_call_wait_at_most(e->rows[i].call, (int) Min(1 + waited_ms / 8, TICK_MS));
}

void
llm_enrich_rest(LlmEnrich *e)
{
	static uint32 wait_event = 0;

	for (int i = 0; i < e->n_rows; i++)
		if (e->rows[i].hold != LLM_ENRICH_NOT_NOW)
			return;
	if (e->n_rows == 0)
		return;
	llm_enrich_progress_show(e, LLM_PROGRESS_WAITING);
	InvalidateCatalogSnapshot();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LATE_MS,
					 llm_compat_wait_event(&wait_event, "LlmInferLocked"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Do what the list has. */
static void
run_pass(LlmEnrich *e, bool stops)
{
	for (;;)
	{
		int64 claimed = e->n_claimed;
		TimestampTz since;
		bool more;

		CHECK_FOR_INTERRUPTS();
		more = claim(e);
		if (e->n_rows == 0 && !more)
			return;
		if (e->n_rows == 0)
			continue;
		llm_enrich_progress_show(e, LLM_PROGRESS_GENERATING);
		since = GetCurrentTimestamp();
		while (!llm_enrich_ready(e, since))
			llm_enrich_wait(e, since);
		llm_enrich_progress_show(e, LLM_PROGRESS_WRITING);
		begin(e);
		llm_enrich_write(e);
		commit(e);
		llm_enrich_settle(e);
		if (e->stop.sqlstate != 0)
			llm_failure_raise(&e->stop);
		if (stops && e->n_failed > 0)
			llm_failure_raise(&e->failure);
		tell_now_and_then(e);
		if (e->n_claimed == claimed)
			llm_enrich_rest(e);
	}
}

static void
run(LlmEnrich *e, bool stops)
{
	int n_vain = 0; /* passes in which others changed all that was claimed */

	while (e->n_claimed != e->max_rows && n_vain < VAIN_PASSES)
	{
		int64 claimed = e->n_claimed;
		int64 done = e->n_written + e->n_failed;

		llm_enrich_progress_show(e, LLM_PROGRESS_LISTING);
		begin(e);
		llm_enrich_rows_list(e);
		commit(e);
		run_pass(e, stops);
		if (e->n_claimed == claimed)
			break;
		n_vain = e->n_written + e->n_failed == done ? n_vain + 1 : 0;
	}
	tell(e, true);
}

Datum
llm_enrich(PG_FUNCTION_ARGS)
{
	LlmEnrich e = {0};
	LlmEnrichOrder order = {0};
	bool stops;

	llm_declared_check(fcinfo, &as_enrich);
	check_context(fcinfo);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	e.cxt = CurrentMemoryContext;
	e.started = e.told = GetCurrentTimestamp();
	stops = read_call(&e, fcinfo);
	e.batch_size =
		(int) number_argument(fcinfo, ARG_BATCH_SIZE, "batch_size", 64, LLM_ENRICH_ROWS_MAX);
	e.concurrency =
		(int) number_argument(fcinfo, ARG_CONCURRENCY, "concurrency", 128, LLM_ENRICH_ROWS_MAX);
	e.max_rows = number_argument(fcinfo, ARG_MAX_ROWS, "max_rows", -1, PG_INT64_MAX);
	read_target(&e, fcinfo, &order);
	llm_enrich_rows_begin(&e);
	PG_TRY();
	{
		run(&e, stops);
		if (order.known)
			tell_shared(&e, order.as_written);
	}
	PG_FINALLY();
	{
		llm_enrich_rows_end(&e);
		llm_enrich_progress_end();
	}
	PG_END_TRY();
	SPI_finish();
	PG_RETURN_VOID();
}
