/*
 * pg/jobs/launcher.c - the background worker of a database that starts the others.
 *
 * It runs no user's code and connects as a superuser: it only looks at our own tables, and writes the memo
 * (pg/memo/memo.h). One turn: queue what lost its worker, see which owners have jobs that are due and which
 * enrichments have rows that are, start their workers, those that were served longest ago first, remove
 * expired jobs, write answers that wait in the memo's ring, sleep until something is due. It ends when nothing
 * is queued or waits in the ring, and no prepared transaction could queue something.
 */
#include "postgres.h"

#include "pg/jobs/launcher.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "pg/compat.h"
#include "pg/guc.h"
#include "pg/jobs/job_process.h"
#include "pg/jobs/job_table.h"
#include "pg/memo/memo.h"
#include "pg/workers.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
extern PGDLLEXPORT void llm_launcher_main(Datum arg);
LLM_EXPORTS_END

#define LOOK_MS 5000     /* the longest sleep while there are jobs */
#define BUSY_MS 500      /* while an owner has no worker yet */
#define IDLE_MS 2000     /* without jobs before the end, once there have been some */
#define ROLE_MS 2000     /* between looks at a role that may not log in */
#define EXPIRE_MS 60000  /* between looks for expired jobs */
#define EXPIRING_MS 20   /* the same, while there are more */
#define GIVE_WAY_MS 1000 /* without a single worker, before another database may try; up to twice */

#define REPLACED "extension llm_infer was dropped, is not committed yet, or is a new one"

/* What has been served. */
typedef struct Served
{
	Oid owner;
	int64 task;
	TimestampTz when;
} Served;

static List *served = NIL;          /* Served *, in TopMemoryContext */
static TimestampTz placeless_since; /* no worker could be started, and none runs; 0 = not so */
static MemoryContext turn_cxt;

static LlmJobLanes *others = NULL;

void
llm_launcher_add(LlmJobLanes *lanes)
{
	others = lanes;
}

static Served *
served_of(const LlmJobLane *lane)
{
	MemoryContext old;
	Served *s;
	ListCell *lc;

	foreach (lc, served)
	{
		s = lfirst(lc);
		if (s->owner == lane->owner && s->task == lane->task)
			return s;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	s = palloc0(sizeof(Served));
	s->owner = lane->owner;
	s->task = lane->task;
	served = lappend(served, s);
	MemoryContextSwitchTo(old);
	return s;
}

static int
compare_lanes(const void *a, const void *b)
{
	TimestampTz x = served_of(a)->when;
	TimestampTz y = served_of(b)->when;

	return x < y ? -1 : x > y;
}

/* Jobs of roles whose worker is gone without a new one. */
static void
release_lost(void)
{
	int n;
	Oid *owners = llm_job_table_running(&n);

	for (int i = 0; i < n; i++)
		if (llm_job_process_lock_role(owners[i], false))
			llm_job_table_release(owners[i]);
}

/* May a worker connect as the owner? Else jobs fail, or wait; enrichments wait. */
static bool
check_owner(const LlmJobLane *lane)
{
	HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(lane->owner));
	Form_pg_authid form;
	bool ok;

	if (!HeapTupleIsValid(tuple))
	{
		char *reason = psprintf("role with OID %u does not exist", lane->owner);

		if (lane->task != 0)
			llm_workers_pause(lane->owner, lane->task, reason, ROLE_MS);
		else
		{
			llm_job_table_fail_all(lane->owner, ERRCODE_UNDEFINED_OBJECT, reason);
			llm_workers_finished();
		}
		return false;
	}
	form = (Form_pg_authid) GETSTRUCT(tuple);
	ok = form->rolcanlogin;
	if (!ok)
		llm_workers_pause(lane->owner, lane->task,
						  psprintf("role \"%s\" may not log in", NameStr(form->rolname)), ROLE_MS);
	ReleaseSysCache(tuple);
	return ok;
}

/* True when there are more. */
static bool
expire(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (llm_guc_job_retention < 0 || now < TimestampTzPlusMilliseconds(last, EXPIRE_MS))
		return false;
	if (llm_job_table_expire(
			TimestampTzPlusMilliseconds(now, -(int64) llm_guc_job_retention * 1000)))
		return true;
	last = now;
	return false;
}

/* Begin a transaction, or end where the extension is not the one that this process has begun with. What the
 * memo has for it is then another launcher's, a second later. */
static bool
begin(void)
{
	bool begun;

	if (llm_memo_waits())
	{
		llm_workers_well();
		llm_workers_end_paused(REPLACED);
	}
	begun = llm_job_process_begin("looking for jobs");
	llm_workers_end_paused(NULL);
	return begun;
}

/* What the tables say; false when llm.job_queue was locked. In turn_cxt. */
static bool
look(LlmJobLane **lanes, int *n, bool *prepared, bool *expiring, long *memo_ms)
{
	MemoryContextReset(turn_cxt);
	if (!begin())
		return false;
	MemoryContextSwitchTo(turn_cxt);
	release_lost();
	*expiring = expire();
	*memo_ms = llm_memo_flush();
	*lanes = llm_job_table_lanes(n);
	if (others != NULL)
	{
		int n_more;
		LlmJobLane *more = others(&n_more);

		*lanes = repalloc(*lanes, sizeof(LlmJobLane) * Max(*n + n_more, 1));
		memcpy(*lanes + *n, more, sizeof(LlmJobLane) * n_more);
		*n += n_more;
	}
	*prepared = *n == 0 && llm_job_table_prepared();
	for (int i = 0; i < *n; i++)
		if ((*lanes)[i].due != DT_NOEND && !check_owner(&(*lanes)[i]))
			(*lanes)[i].due = DT_NOEND;
	llm_job_process_end();
	llm_memo_flushed();
	return true;
}

/* Start the workers that are due. When to look again, in ms. */
static long
start_workers(LlmJobLane *lanes, int n)
{
	TimestampTz now = GetCurrentTimestamp();
	long next = LOOK_MS;

	qsort(lanes, n, sizeof(LlmJobLane), compare_lanes);
	for (int i = 0; i < n; i++)
	{
		LlmWorker w;

		if (lanes[i].due == DT_NOEND)
			continue;
		if (lanes[i].due > now)
		{
			next = Min(next, TimestampDifferenceMilliseconds(now, lanes[i].due) + 1);
			continue;
		}
		if (llm_workers_find(MyDatabaseId, lanes[i].owner, lanes[i].task, &w) &&
			w.state == LLM_WORKER_PAUSED && w.until > now)
			next = Min(next, TimestampDifferenceMilliseconds(now, w.until) + 1);
		else if (llm_workers_start(lanes[i].owner, lanes[i].task))
			served_of(&lanes[i])->when = now;
		else
		{
			llm_workers_ask_yield();
			next = Min(next, BUSY_MS);
		}
	}
	return next;
}

/* Entries of what has nothing to do say nothing any more. True when a worker runs, or starts. */
static bool
tidy(const LlmJobLane *lanes, int n)
{
	int n_entries;
	LlmWorker *list = llm_workers_list(MyDatabaseId, &n_entries);
	bool any = false;

	for (int i = 0; i < n_entries; i++)
	{
		const LlmWorker *w = &list[i];
		bool lives = w->state == LLM_WORKER_RUNNING || w->state == LLM_WORKER_STARTING;
		bool has_work = false;

		if (!OidIsValid(w->role))
			continue;
		for (int j = 0; j < n; j++)
			has_work = has_work || (lanes[j].owner == w->role && lanes[j].task == w->task);
		if (!has_work)
			lives = !llm_workers_forget(w->role, w->task);
		any = any || lives;
	}
	return any;
}

/* Two launchers that hold each other's places would wait for ever. True when this one should go. */
static bool
must_give_way(bool any_worker)
{
	static int patience_ms = 0;
	TimestampTz now = GetCurrentTimestamp();
	int n;
	LlmWorker *list = llm_workers_list(MyDatabaseId, &n);
	bool placeless = false;

	if (!any_worker && llm_workers_must_yield())
		return true;
	for (int i = 0; i < n; i++)
		placeless = placeless || (OidIsValid(list[i].role) && list[i].state == LLM_WORKER_WANTED &&
								  list[i].reason[0] != '\0');
	if (any_worker || !placeless)
		placeless_since = 0;
	else if (placeless_since == 0)
	{
		placeless_since = now;
		patience_ms = GIVE_WAY_MS + (int) (GIVE_WAY_MS * pg_prng_double(&pg_global_prng_state));
	}
	return placeless_since != 0 && now >= TimestampTzPlusMilliseconds(placeless_since, patience_ms);
}

/* One turn: how long to sleep, 0 = it is over. */
static long
turn(void)
{
	static TimestampTz busy = 0; /* there was something to do; 0 = never */
	LlmJobLane *lanes;
	int n;
	bool prepared;
	bool expiring;
	long memo_ms; /* when the memo wants to be looked at, -1 = it does not */
	bool any_worker;
	bool woken = llm_workers_take_wake();
	TimestampTz now = GetCurrentTimestamp();
	long next;

	if (!look(&lanes, &n, &prepared, &expiring, &memo_ms))
		return BUSY_MS;
	MemoryContextSwitchTo(turn_cxt);
	next = start_workers(lanes, n);
	any_worker = tidy(lanes, n);
	if (must_give_way(any_worker))
	{
		llm_workers_well();
		llm_workers_end_paused(LLM_WORKERS_NO_SLOT);
		return 0;
	}
	llm_workers_well();
	if (n > 0 || any_worker || woken || memo_ms >= 0)
		busy = now;
	if (memo_ms >= 0)
		next = Min(next, memo_ms);
	if (expiring)
		return Min(next, EXPIRING_MS);
	if (n > 0 || any_worker || prepared || memo_ms >= 0)
		return next;
	return busy == 0 || now >= TimestampTzPlusMilliseconds(busy, IDLE_MS) ? 0 : BUSY_MS;
}

void
llm_launcher_main(Datum arg)
{
	Oid role;
	int64 task;
	long sleep_ms;

	llm_job_process_connect(DatumGetObjectId(arg), &role, &task);
	turn_cxt =
		AllocSetContextCreate(TopMemoryContext, "llm_infer launcher", ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		llm_job_process_check();
		sleep_ms = turn();
		if (sleep_ms == 0)
			break;
		llm_job_process_sleep(sleep_ms);
	}
	proc_exit(0);
}
