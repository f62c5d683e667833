/*
 * pg/standing/standing_worker.c - the background worker of a standing enrichment, a session of its owner.
 *
 * It is the loop of llm_enrich (pg/enrich/enrich_rows.h) with two lists in turn: rows whose target is NULL,
 * while the definition asks for that, and rows whose keys are in llm.enrich_queue. In between its short
 * transactions it holds nothing but the leases of the rows in work.
 *
 * What is wrong with the definition pauses that, until somebody resumes it; what is wrong with the server or
 * the engine ends the worker, and it comes again after a while. What is wrong with a row is the row's. When
 * the definition or its table's name has changed the worker ends, and the next begins with what is there.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_constraint.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/enrich/enrich_progress.h"
#include "pg/enrich/enrich_rows.h"
#include "pg/jobs/job_process.h"
#include "pg/standing/standing_claim.h"
#include "pg/standing/standing_ddl.h"
#include "pg/standing/standing_defs.h"
#include "pg/standing/standing_queue.h"
#include "pg/standing/standing_trigger.h"
#include "pg/workers.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
extern PGDLLEXPORT void llm_standing_main(Datum arg);
LLM_EXPORTS_END

#define LOOK_MS 1000 /* between looks that nothing has asked for */
#define IDLE_MS 2000 /* without a row before the end */
#define LOCK_TIMEOUT "1s"
#define LOCKED_MS 50  /* before the next try at a table that others have locked */
#define LATE_WRITES 5 /* that have found a row locked, before it may be given up */

/* ---- beginning ---- */

/* Read the definition, and look at what it is about; false when it is not to be worked on. In a transaction. */
static bool
open_definition(LlmStanding *s, int64 id)
{
	MemoryContext old = MemoryContextSwitchTo(s->e.cxt);
	LlmStandingDef *def;

	s->id = id;
	s->version = llm_standing_defs_version(id, false);
	def = llm_standing_defs_read(id);
	if (s->version == InvalidTransactionId || def == NULL || !def->active ||
		def->owner != GetUserId())
		return false;
	llm_standing_ddl_check_top(def->relation);
	if (!llm_standing_ddl_present(id, def->relation))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("the table has lost the triggers of the enrichment"),
						errhint("llm_enrich_resume creates them again.")));
	llm_standing_trigger_suspend(id);
	llm_standing_trigger_pin(GUC_ACTION_SET);
	/* for partitions, which a statement locks that looks at them */
	SetConfigOption("lock_timeout", LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION);
	SetConfigOption("search_path", def->search_path, PGC_USERSET, PGC_S_SESSION);
	s->backfill = def->backfill;
	s->e.enrichment = id;
	s->e.batch_size = def->batch_size;
	s->e.concurrency = def->concurrency;
	s->e.max_rows = -1;
	s->e.started = GetCurrentTimestamp();
	memcpy(s->e.args, def->args, sizeof(s->e.args));
	(void) llm_enrich_check_call(&s->e);
	s->e.target = llm_enrich_target_open(def->relation, NameStr(def->target), def->prompt,
										 def->expr, def->filter);
	(void) get_primary_key_attnos(def->relation, true, &s->key);
	llm_enrich_rows_begin(&s->e);
	MemoryContextSwitchTo(old);
	return true;
}

/* ---- transactions ---- */

bool
llm_standing_begin(LlmStanding *s, const char *activity)
{
	Oid key;

	if (!llm_job_process_begin(activity))
	{
		llm_job_process_sleep(LOCKED_MS);
		return false;
	}
	if (!ConditionalLockRelationOid(s->e.target->relid, RowExclusiveLock))
	{
		llm_job_process_end();
		llm_job_process_sleep(LOCKED_MS);
		return false;
	}
	AcceptInvalidationMessages();
	(void) get_primary_key_attnos(s->e.target->relid, true, &key);
	s->over = llm_standing_defs_version(s->id, false) != s->version || key != s->key ||
			  !llm_enrich_target_same(s->e.target);
	if (s->over)
	{
		llm_job_process_end();
		return false;
	}
	SPI_connect();
	MemoryContextReset(s->e.work);
	MemoryContextSwitchTo(s->e.work);
	return true;
}

void
llm_standing_end(LlmStanding *s)
{
	SPI_finish();
	MemoryContextSwitchTo(s->e.cxt);
	llm_job_process_end();
	MemoryContextSwitchTo(s->e.cxt);
}

/* ---- writing ---- */

/* What becomes of the entries of a row that was written, or could not be. A row of the backfill that has changed
 * is left to the next pass: it may have a value now. */
static void
settle_entries(const LlmStanding *s, LlmStandingChanges *c, const LlmEnrichRow *row, int late_ms)
{
	const LlmFailure *f = row->call == NULL ? NULL : llm_call_failure(row->call);
	const LlmStandingEntries *entries = row->entries;

	if (row->hold == LLM_ENRICH_NOT_NOW || (f != NULL && !llm_failure_hideable(f)))
		return;
	if (entries != NULL)
		llm_standing_queue_remove(c, entries);
	if (row->hold == LLM_ENRICH_LOST)
	{
		/* gone, or other than it was */
		if (entries != NULL)
			llm_standing_queue_add(c, row->key, entries->only_null, late_ms);
	}
	else if (row->failure.sqlstate != 0 && row->attempts < s->e.max_attempts)
		llm_standing_queue_add(c, row->key, entries == NULL || entries->only_null,
							   llm_workers_backoff_ms(row->attempts));
}

/* late_max: how many rows that others have locked may wait with their answers. */
static void
write_rows(LlmStanding *s, int late_max)
{
	LlmStandingChanges changes = {.id = s->id};
	LlmEnrich *e = &s->e;
	int64 written = e->n_written;
	int n_late = 0;

	llm_enrich_progress_show(e, LLM_PROGRESS_WRITING);
	if (!llm_standing_begin(s, "writing rows"))
		return;
	llm_enrich_write(e);
	for (int i = 0; i < e->n_rows; i++)
	{
		LlmEnrichRow *row = &e->rows[i];
		int late_ms = 0;

		if (!llm_enrich_rows_finished(row))
			continue;
		/* others are not kept waiting by rows that somebody has locked: these lose their answers */
		if (row->hold == LLM_ENRICH_NOT_NOW && ++row->n_late >= LATE_WRITES && ++n_late > late_max)
		{
			row->hold = LLM_ENRICH_LOST;
			late_ms = LLM_STANDING_LATE_MS;
		}
		settle_entries(s, &changes, row, late_ms);
	}
	llm_standing_queue_change(&changes);
	llm_standing_end(s);
	llm_enrich_settle(e);
	if (e->n_written > written)
		llm_workers_well();
}

/* ---- the loop ---- */

/* Quotas change, and hold nothing for ever. */
static void
renew_calls(LlmStanding *s)
{
	if (s->e.n_rows == 0 || !llm_standing_begin(s, "looking for changes"))
		return;
	for (int i = 0; i < s->e.n_rows; i++)
		if (s->e.rows[i].call != NULL)
			llm_call_renew(s->e.rows[i].call);
	llm_standing_end(s);
}

/* The memo may have to wait for a load before it can answer: without a snapshot and locks, and as long as
 * no row is in work. */
static void
know_model(const LlmStanding *s)
{
	StartTransactionCommand();
	llm_call_know_model(s->e.args);
	CommitTransactionCommand();
	MemoryContextSwitchTo(s->e.cxt);
}

static void
work(LlmStanding *s)
{
	LlmEnrich *e = &s->e;
	TimestampTz looked = GetCurrentTimestamp();
	TimestampTz busy = looked;
	TimestampTz wrote = looked; /* or tried to */

	s->queue_more = true;
	while (!s->over && e->stop.sqlstate == 0)
	{
		TimestampTz now = GetCurrentTimestamp();
		bool claiming = !llm_workers_must_yield();
		bool claimed;

		llm_job_process_check();
		if (now >= TimestampTzPlusMilliseconds(looked, LOOK_MS))
		{
			renew_calls(s);
			looked = now;
			s->queue_more = true;
			s->place.go_on = false;
		}
		s->queue_more = llm_workers_take_wake() || s->queue_more;
		if (claiming && e->n_rows == 0)
			know_model(s);
		claimed = claiming && llm_standing_claim(s);
		if (claimed || e->n_rows > 0)
			busy = now;
		if (e->n_rows > 0 && !llm_enrich_ready(e, wrote))
		{
			llm_enrich_progress_show(e, LLM_PROGRESS_GENERATING);
			llm_enrich_wait(e, wrote);
		}
		else if (e->n_rows > 0)
		{
			write_rows(s, claiming ? e->batch_size : 0);
			wrote = GetCurrentTimestamp();
			if (!claimed)
				llm_enrich_rest(e);
		}
		/* one whose backfill waits for rows that it cannot have stays: begun anew it would look at once */
		else if (!claimed &&
				 (!claiming || (!s->backfill && now >= TimestampTzPlusMilliseconds(busy, IDLE_MS))))
			break;
		else if (!claimed && !s->over)
		{
			llm_enrich_progress_show(e, LLM_PROGRESS_WAITING);
			llm_job_process_sleep(LOOK_MS);
		}
	}
}

/* ---- ends ---- */

/* True when it will be the same another time, whatever the server's state. */
static bool
is_of_definition(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_TO_CATEGORY(ERRCODE_CONNECTION_FAILURE):
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return false;
		default:
			return sqlstate != ERRCODE_LOCK_NOT_AVAILABLE;
	}
}

/* Pause the definition in a transaction of its own. */
static void
pause_definition(int64 id, const char *reason)
{
	ereport(LOG, (errmsg("llm_infer: enrichment " INT64_FORMAT " is paused: %s", id, reason)));
	while (!llm_job_process_begin("pausing the enrichment"))
	{
		llm_job_process_sleep(LOOK_MS);
		llm_job_process_check();
	}
	llm_standing_defs_pause(id, reason);
	llm_job_process_end();
}

/* What nobody's row is to blame for; hint may be NULL. */
static void
end_by(int64 id, bool of_definition, const char *message, const char *hint)
{
	char *reason = hint == NULL ? pstrdup(message) : psprintf("%s (%s)", message, hint);

	if (of_definition)
		pause_definition(id, reason);
	else
		llm_workers_end_paused(reason);
}

/* The engine's own reasons: the model or the call is at fault, or the engine is away. */
static void
end_by_stop(int64 id, const LlmFailure *f)
{
	end_by(id,
		   f->sqlstate != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
			   f->sqlstate != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED && is_of_definition(f->sqlstate),
		   f->message, f->hint);
}

static void
run(LlmStanding *s, int64 id)
{
	bool open;

	while (!llm_job_process_begin("opening an enrichment"))
	{
		llm_job_process_sleep(LOOK_MS);
		llm_job_process_check();
	}
	open = open_definition(s, id);
	llm_job_process_end();
	if (open)
		work(s);
}

void
llm_standing_main(Datum arg)
{
	static LlmStanding standing;
	LlmStanding *s = &standing;
	Oid role;
	int64 id;

	llm_job_process_connect(DatumGetObjectId(arg), &role, &id);
	s->e.cxt =
		AllocSetContextCreate(TopMemoryContext, "llm_infer enrichment", ALLOCSET_DEFAULT_SIZES);
	PG_TRY();
	{
		run(s, id);
		if (s->e.stop.sqlstate != 0)
			end_by_stop(id, &s->e.stop);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(s->e.cxt);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		MemoryContextSwitchTo(s->e.cxt);
		end_by(id, is_of_definition(error->sqlerrcode), error->message, error->hint);
	}
	PG_END_TRY();
	proc_exit(0);
}
