/* pg/jobs/job_funcs.c - llm_job_status, _result, _cancel and _wait, and the rows of llm.job_workers. */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/guc.h"
#include "pg/jobs/job_commit.h"
#include "pg/jobs/job_table.h"
#include "pg/jobs/job_wait.h"
#include "pg/result.h"
#include "pg/shmem.h"
#include "pg/workers.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_job_status);
PG_FUNCTION_INFO_V1(llm_job_result);
PG_FUNCTION_INFO_V1(llm_job_cancel);
PG_FUNCTION_INFO_V1(llm_job_wait);
PG_FUNCTION_INFO_V1(llm_stat_job_workers);
LLM_EXPORTS_END

static const Oid wait_args[] = {INT8OID, INTERVALOID}; /* those of the others: the first alone */

#define WAIT_MS_MAX (INT64CONST(1000) * 86400 * 36500) /* a hundred years */

/* Kept longer than asked for, until the launcher comes by. */
static bool
is_overdue(const LlmJobRow *row)
{
	return row->finished != 0 && llm_guc_job_retention >= 0 &&
		   GetCurrentTimestamp() >
			   TimestampTzPlusMilliseconds(row->finished, (int64) llm_guc_job_retention * 1000);
}

/* The job of a role that the current user is a member of. False when it has expired; an id that never
 * was, or is not to be seen, is an error. */
static bool
find_job(int64 id, bool payload, LlmJobRow *row)
{
	bool expired;

	if (!llm_job_table_look(id, payload, row, &expired))
	{
		if (expired)
			return false;
	}
	else if (has_privs_of_role(GetUserId(), row->owner))
		return !is_overdue(row);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("job " INT64_FORMAT " does not exist", id),
			 errhint("The view llm.jobs lists the jobs that you may see.")));
	pg_unreachable();
}

/* llm_job_status(id bigint) */
Datum
llm_job_status(PG_FUNCTION_ARGS)
{
	static const LlmDeclared as_status = {1, wait_args, TEXTOID, false};
	LlmJobRow row;

	llm_declared_check(fcinfo, &as_status);
	if (!find_job(PG_GETARG_INT64(0), false, &row))
		PG_RETURN_TEXT_P(cstring_to_text("expired"));
	PG_RETURN_TEXT_P(cstring_to_text(row.state));
}

/* llm_job_result(id bigint): NULL when it has not ended */
Datum
llm_job_result(PG_FUNCTION_ARGS)
{
	static const LlmDeclared as_result = {1, wait_args, InvalidOid, false};
	LlmJobRow row;
	int64 id;

	llm_declared_check(fcinfo, &as_result);
	id = PG_GETARG_INT64(0);
	if (!find_job(id, true, &row))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the result of job " INT64_FORMAT " has expired", id),
				 errhint("Results are kept for llm_infer.job_retention after a job's end.")));
	if (row.finished == 0)
		PG_RETURN_NULL();
	if (strcmp(row.state, "done") == 0)
		return row.result;
	/* A cancelled job has no error. */
	return llm_result_composite(NULL, row.model,
								strcmp(row.state, "failed") == 0 ? row.message : NULL);
}

/* llm_job_cancel(id bigint): true when it was not finished */
Datum
llm_job_cancel(PG_FUNCTION_ARGS)
{
	static const LlmDeclared as_cancel = {1, wait_args, BOOLOID, false};
	LlmJobRow row;
	int64 id;

	llm_declared_check(fcinfo, &as_cancel);
	id = PG_GETARG_INT64(0);
	if (!find_job(id, false, &row) || row.finished != 0 || !llm_job_table_cancel(id))
		PG_RETURN_BOOL(false);
	llm_job_commit_note(row.owner, 0, true);
	PG_RETURN_BOOL(true);
}

/* ---- waiting ---- */

typedef struct Waited
{
	int64 id;
	char state[16];
	MemoryContext cxt; /* of one look */
} Waited;

static bool
has_ended(void *arg)
{
	Waited *w = arg;
	MemoryContext old = MemoryContextSwitchTo(w->cxt);
	LlmJobRow row;

	if (!find_job(w->id, false, &row))
		strlcpy(w->state, "expired", sizeof(w->state));
	else
		strlcpy(w->state, row.state, sizeof(w->state));
	MemoryContextSwitchTo(old);
	MemoryContextReset(w->cxt);
	if (strcmp(w->state, "queued") != 0 && strcmp(w->state, "running") != 0)
		return true;
	if (TransactionIdIsCurrentTransactionId(row.xmin))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("job " INT64_FORMAT " was submitted by this transaction", w->id),
						errdetail("It begins when the transaction is committed."),
						errhint("Commit first, then wait.")));
	return false;
}

/* Until then; negative intervals are none at all. */
static int64
interval_ms(const Interval *interval)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz end =
		DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now),
												IntervalPGetDatum(interval)));

	return end <= now ? 0 : Min((end - now) / 1000, WAIT_MS_MAX);
}

/* llm_job_wait(id bigint, timeout interval): the state then */
Datum
llm_job_wait(PG_FUNCTION_ARGS)
{
	static const LlmDeclared as_wait = {lengthof(wait_args), wait_args, TEXTOID, false};
	Waited w;
	LlmFailure f;
	int64 timeout_ms;

	llm_declared_check(fcinfo, &as_wait);
	timeout_ms = PG_ARGISNULL(1) ? WAIT_MS_MAX : interval_ms(PG_GETARG_INTERVAL_P(1));
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (!llm_client_available(&f))
		llm_failure_raise(&f);
	w.id = PG_GETARG_INT64(0);
	w.cxt = AllocSetContextCreate(CurrentMemoryContext, "llm_infer job", ALLOCSET_SMALL_SIZES);
	if (!has_ended(&w))
	{
		/* Perhaps it was restored from a dump, or comes from a prepared transaction. */
		if (!RecoveryInProgress())
			(void) llm_workers_wake(MyDatabaseId, InvalidOid, 0);
		(void) llm_job_wait_until(has_ended, &w, timeout_ms);
	}
	PG_RETURN_TEXT_P(cstring_to_text(w.state));
}

/* ---- watching ---- */

static const char *
state_name(LlmWorkerState state)
{
	switch (state)
	{
		case LLM_WORKER_WANTED:
			return "waiting";
		case LLM_WORKER_STARTING:
			return "starting";
		case LLM_WORKER_RUNNING:
			return "running";
		case LLM_WORKER_PAUSED:
			return "paused";
	}
	return "";
}

static void
add_worker(ReturnSetInfo *rsinfo, const LlmWorker *w)
{
	Datum values[6];
	bool nulls[6] = {0};

	values[0] = ObjectIdGetDatum(w->role);
	values[1] = Int64GetDatum(w->task);
	values[2] = Int32GetDatum(w->pid);
	nulls[2] = w->pid == 0;
	values[3] = CStringGetTextDatum(state_name(w->state));
	values[4] = CStringGetTextDatum(w->reason);
	nulls[4] = w->reason[0] == '\0';
	values[5] = TimestampTzGetDatum(w->until);
	nulls[5] = w->until == 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* llm.stat_get_job_workers(): the launcher's row, and those of roles that one is a member of; all for
 * pg_read_all_stats */
Datum
llm_stat_job_workers(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {OIDOID, INT8OID, INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID};
	bool all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	LlmWorker *list;
	int n;

	llm_declared_begin_rows(fcinfo, columns, lengthof(columns));
	if (!llm_shmem_attached())
		return (Datum) 0;
	list = llm_workers_list(MyDatabaseId, &n);
	for (int i = 0; i < n; i++)
		if (all || !OidIsValid(list[i].role) || has_privs_of_role(GetUserId(), list[i].role))
			add_worker((ReturnSetInfo *) fcinfo->resultinfo, &list[i]);
	return (Datum) 0;
}
