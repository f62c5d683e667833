/* pg/workers.c - the table of workers, its starts and its ends; the lock note is in the header. */
#include "postgres.h"

#include "pg/workers.h"

#include <signal.h>

#include "access/xlog.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/shmem.h"
#include "postmaster/bgworker.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#define RETRY_MS 1000         /* while no background worker is free */
#define BACKOFF_LAST_MS 60000 /* the longest delay after failures */
#define LOOK_MS 60000         /* the supervisor's, when nothing is due */
#define STARVED_MS 1000       /* without a place for so long: others should make room */
#define NOT_CONNECTED "its worker could not connect, the server log says why"
#define ENDED_BADLY "its worker ended, the server log says why"

typedef struct Table
{
	LWLock *lock; /* guards entries and n */
	int n;
	LlmWorker entries[LLM_WORKERS_MAX]; /* [n] in use, in no order */
	ConditionVariable finished;
} Table;

static Table *table = NULL;
static Oid my_database = InvalidOid; /* of this process's entry */
static Oid my_role = InvalidOid;
static int64 my_task = 0;
static bool connected = false;
static bool wake_taken = false;         /* and nothing was looked at since */
static const char *pause_reason = NULL; /* to leave behind; memory of the process */

Size
llm_workers_nbytes(void)
{
	return sizeof(Table);
}

void
llm_workers_startup(LWLock *lock)
{
	bool found;

	table = ShmemInitStruct("llm_infer workers", sizeof(Table), &found);
	if (found)
		return;
	memset(table, 0, sizeof(*table));
	table->lock = lock;
	ConditionVariableInit(&table->finished);
}

/* ---- entries; the caller holds the lock ---- */

static LlmWorker *
find(Oid database, Oid role, int64 task)
{
	for (int i = 0; i < table->n; i++)
		if (table->entries[i].database == database && table->entries[i].role == role &&
			table->entries[i].task == task)
			return &table->entries[i];
	return NULL;
}

static void
set_state(LlmWorker *w, LlmWorkerState state, const char *reason)
{
	w->state = state;
	w->since = GetCurrentTimestamp();
	w->until = 0;
	strlcpy(w->reason, reason, sizeof(w->reason));
}

static void
drop(LlmWorker *w)
{
	*w = table->entries[--table->n];
}

static LlmWorker *
find_launcher(Oid database)
{
	return find(database, InvalidOid, 0);
}

static LlmWorker *
find_mine(void)
{
	return find(my_database, my_role, my_task);
}

/* A new entry. Workers leave entries to launchers, and to other databases: NULL then. */
static LlmWorker *
enter(Oid database, Oid role, int64 task)
{
	int n_workers = 0;
	LlmWorker *w;

	for (int i = 0; i < table->n; i++)
		n_workers += OidIsValid(table->entries[i].role) && table->entries[i].database == database;
	if (table->n == LLM_WORKERS_MAX)
		return NULL;
	if (OidIsValid(role) && (n_workers >= LLM_WORKERS_ROLES_NOTED ||
							 table->n >= LLM_WORKERS_MAX - LLM_WORKERS_LAUNCHERS))
		return NULL;
	w = &table->entries[table->n++];
	memset(w, 0, sizeof(*w));
	w->database = database;
	w->role = role;
	w->task = task;
	set_state(w, LLM_WORKER_WANTED, "");
	return w;
}

/* Forget the pause in this database that is the oldest, if it has lasted for a turn: another worker could run,
 * but they must not drive each other out as fast as processes start. */
static void
drop_paused(TimestampTz now)
{
	LlmWorker *oldest = NULL;

	for (int i = 0; i < table->n; i++)
	{
		LlmWorker *w = &table->entries[i];

		if (w->database == MyDatabaseId && OidIsValid(w->role) && w->state == LLM_WORKER_PAUSED &&
			(oldest == NULL || w->since < oldest->since))
			oldest = w;
	}
	if (oldest != NULL && now >= TimestampTzPlusMilliseconds(oldest->since, LLM_WORKERS_TURN_MS))
		drop(oldest);
}

static void
pause_for(LlmWorker *w, const char *reason, int ms)
{
	set_state(w, LLM_WORKER_PAUSED, reason);
	w->until = TimestampTzPlusMilliseconds(w->since, ms);
}

static void
set_latch(const LlmWorker *w)
{
	if (w->state == LLM_WORKER_RUNNING)
		SetLatch(&ProcGlobal->allProcs[w->proc].procLatch);
}

/* The launcher, which is wanted when there is none. False when the table is full. */
static bool
wake_launcher(Oid database)
{
	LlmWorker *w = find_launcher(database);

	if (w == NULL)
		return enter(database, InvalidOid, 0) != NULL;
	w->woken = true;
	set_latch(w);
	return true;
}

/* A process that was registered and has never been seen. */
static bool
is_lost(const LlmWorker *w, TimestampTz now)
{
	return w->state == LLM_WORKER_STARTING &&
		   now >= TimestampTzPlusMilliseconds(w->since, LLM_WORKERS_START_MS);
}

/* ---- anybody ---- */

bool
llm_workers_wake(Oid database, Oid role, int64 task)
{
	bool room = true;
	LlmWorker *w;
	bool runs;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find(database, role, task);
	runs = w != NULL && w->state == LLM_WORKER_RUNNING;
	if (w != NULL)
	{
		w->woken = true;
		set_latch(w);
	}
	if (!runs)
		room = wake_launcher(database);
	LWLockRelease(table->lock);
	if (!runs)
		llm_shmem_wake_supervisor();
	return room;
}

bool
llm_workers_find(Oid database, Oid role, int64 task, LlmWorker *out)
{
	const LlmWorker *w;

	LWLockAcquire(table->lock, LW_SHARED);
	w = find(database, role, task);
	if (w != NULL)
		*out = *w;
	LWLockRelease(table->lock);
	return w != NULL;
}

LlmWorker *
llm_workers_list(Oid database, int *n)
{
	LlmWorker *list = palloc(sizeof(LlmWorker) * LLM_WORKERS_MAX);

	*n = 0;
	LWLockAcquire(table->lock, LW_SHARED);
	for (int i = 0; i < table->n; i++)
		if (table->entries[i].database == database)
			list[(*n)++] = table->entries[i];
	LWLockRelease(table->lock);
	return list;
}

bool
llm_workers_hold(Oid database, int ms)
{
	bool any = false;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->n; i++)
	{
		LlmWorker *w = &table->entries[i];

		if (w->database != database)
			continue;
		any = true;
		if (w->state == LLM_WORKER_RUNNING)
			kill(w->pid, SIGTERM);
		pause_for(w, "its database is being copied, moved or dropped", ms);
	}
	LWLockRelease(table->lock);
	return any;
}

void
llm_workers_release(Oid database)
{
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = table->n - 1; i >= 0; i--)
	{
		LlmWorker *w = &table->entries[i];

		if (w->database != database)
			continue;
		if (OidIsValid(w->role))
			drop(w);
		else if (w->state == LLM_WORKER_PAUSED)
			set_state(w, LLM_WORKER_WANTED, "");
	}
	LWLockRelease(table->lock);
	llm_shmem_wake_supervisor();
}

void
llm_workers_finished(void)
{
	ConditionVariableBroadcast(&table->finished);
}

void
llm_workers_prepare_wait(void)
{
	ConditionVariablePrepareToSleep(&table->finished);
}

void
llm_workers_wait_finished(long timeout_ms)
{
	static uint32 wait_event = 0;

	(void) ConditionVariableTimedSleep(&table->finished, timeout_ms,
									   llm_compat_wait_event(&wait_event, "LlmInferJob"));
}

void
llm_workers_end_wait(void)
{
	ConditionVariableCancelSleep();
}

/* ---- starting ---- */

/* What a process is started with, beside its database. */
typedef struct Orders
{
	Oid role;
	int64 task;
} Orders;

/* False when the postmaster has no place for one more. */
static bool
start_process(const char *function, const char *name, Oid database, Oid role, int64 task)
{
	BackgroundWorker worker;
	Orders orders = {.role = role, .task = task};

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	memcpy(worker.bgw_extra, &orders, sizeof(orders));
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "llm_infer");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", function);
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s", name);
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", name);
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* Start the process of an entry; the caller holds the lock, which the postmaster does not need. */
static bool
start_entry(LlmWorker *w)
{
	bool ok;

	if (!OidIsValid(w->role))
		ok = start_process("llm_launcher_main", "llm_infer launcher", w->database, InvalidOid, 0);
	else
		ok = start_process(w->task == 0 ? "llm_worker_main" : "llm_standing_main",
						   w->task == 0 ? "llm_infer worker" : "llm_infer enrichment", w->database,
						   w->role, w->task);
	if (ok)
		set_state(w, LLM_WORKER_STARTING, "");
	else if (w->state != LLM_WORKER_WANTED || w->reason[0] == '\0')
		set_state(w, LLM_WORKER_WANTED, LLM_WORKERS_NO_SLOT);
	return ok;
}

static bool
is_due(const LlmWorker *w, TimestampTz now)
{
	return w->state == LLM_WORKER_WANTED || (w->state == LLM_WORKER_PAUSED && now >= w->until) ||
		   is_lost(w, now);
}

static int
compare_since(const void *a, const void *b)
{
	TimestampTz x = (*(LlmWorker *const *) a)->since;
	TimestampTz y = (*(LlmWorker *const *) b)->since;

	return x < y ? -1 : x > y;
}

/* Start the launchers that are due, those that have waited longest first: when places are few, each
 * database has its turn. The caller holds the lock. False when there was no place for one. */
static bool
start_launchers(TimestampTz now)
{
	LlmWorker *due[LLM_WORKERS_MAX];
	int n = 0;
	bool ok = true;

	for (int i = 0; i < table->n; i++)
		if (!OidIsValid(table->entries[i].role) && is_due(&table->entries[i], now))
			due[n++] = &table->entries[i];
	qsort(due, n, sizeof(LlmWorker *), compare_since);
	for (int i = 0; i < n; i++)
		ok = start_entry(due[i]) && ok;
	return ok;
}

long
llm_workers_supervise(bool settings_changed)
{
	static bool starter_due = true; /* databases that the settings name */
	TimestampTz now = GetCurrentTimestamp();
	long next = LOOK_MS;

	starter_due = starter_due || settings_changed;
	/* After a promotion this process notices by itself, within a turn. */
	if (RecoveryInProgress())
		return next;
	if (starter_due)
		starter_due =
			!start_process("llm_starter_main", "llm_infer starter", InvalidOid, InvalidOid, 0);
	if (starter_due)
		next = RETRY_MS;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	if (!start_launchers(now))
		next = Min(next, RETRY_MS);
	for (int i = 0; i < table->n; i++)
	{
		const LlmWorker *w = &table->entries[i];

		if (!OidIsValid(w->role) && w->state == LLM_WORKER_PAUSED)
			next = Min(next, TimestampDifferenceMilliseconds(now, w->until) + 1);
	}
	LWLockRelease(table->lock);
	return next;
}

bool
llm_workers_start(Oid role, int64 task)
{
	TimestampTz now = GetCurrentTimestamp();
	int n_others = 0;
	bool ok = true;
	LlmWorker *w;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->n; i++)
	{
		w = &table->entries[i];
		if (w->database == MyDatabaseId && OidIsValid(w->role) &&
			(w->role != role || w->task != task) &&
			(w->state == LLM_WORKER_RUNNING || w->state == LLM_WORKER_STARTING))
			n_others++;
	}
	w = find(MyDatabaseId, role, task);
	if (w == NULL)
		w = enter(MyDatabaseId, role, task);
	if (w == NULL && n_others < LLM_WORKERS_ROLES_MAX)
	{
		drop_paused(now);
		w = enter(MyDatabaseId, role, task);
	}
	if (w == NULL)
		ok = false;
	else if (is_due(w, now))
		ok = n_others < LLM_WORKERS_ROLES_MAX && start_entry(w);
	LWLockRelease(table->lock);
	return ok;
}

void
llm_workers_pause(Oid role, int64 task, const char *reason, int ms)
{
	LlmWorker *w;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find(MyDatabaseId, role, task);
	if (w == NULL)
		w = enter(MyDatabaseId, role, task);
	if (w != NULL && w->state != LLM_WORKER_RUNNING && w->state != LLM_WORKER_STARTING)
	{
		TimestampTz since = w->since;
		bool again = w->state == LLM_WORKER_PAUSED;

		pause_for(w, reason, ms);
		if (again)
			w->since = since; /* it is one pause */
	}
	LWLockRelease(table->lock);
}

bool
llm_workers_forget(Oid role, int64 task)
{
	LlmWorker *w;
	bool lives;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find(MyDatabaseId, role, task);
	lives = w != NULL && (w->state == LLM_WORKER_RUNNING || w->state == LLM_WORKER_STARTING) &&
			!is_lost(w, GetCurrentTimestamp());
	if (w != NULL && !lives)
		drop(w);
	LWLockRelease(table->lock);
	return !lives;
}

/* Whether a worker that was asked to yield has been in one transaction for too long. */
static bool
is_stuck(LlmWorker *w, TimestampTz now)
{
	VirtualTransactionId vxid;

	GET_VXID_FROM_PGPROC(vxid, ProcGlobal->allProcs[w->proc]);
	if (!LocalTransactionIdIsValid(vxid.localTransactionId) ||
		vxid.localTransactionId != w->transaction)
	{
		w->transaction = vxid.localTransactionId;
		w->transaction_seen = now;
	}
	return now >= TimestampTzPlusMilliseconds(w->transaction_seen, LLM_WORKERS_STUCK_MS);
}

void
llm_workers_ask_yield(void)
{
	TimestampTz now = GetCurrentTimestamp();
	LlmWorker *oldest = NULL;
	bool any = false; /* one was asked, and is on its way */

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < table->n; i++)
	{
		LlmWorker *w = &table->entries[i];

		if (w->database != MyDatabaseId || !OidIsValid(w->role) || w->state != LLM_WORKER_RUNNING)
			continue;
		if (!w->yield)
			oldest = oldest == NULL || w->since < oldest->since ? w : oldest;
		else if (is_stuck(w, now))
		{
			kill(w->pid, SIGTERM);
			w->failures++;
			pause_for(w, "its SQL did not end while others waited for its place",
					  Max(llm_workers_backoff_ms(w->failures), RETRY_MS));
		}
		else
			any = any || now < TimestampTzPlusMilliseconds(w->asked, LLM_WORKERS_TURN_MS);
	}
	if (oldest != NULL && !any &&
		now >= TimestampTzPlusMilliseconds(oldest->since, LLM_WORKERS_TURN_MS))
	{
		oldest->yield = true;
		oldest->asked = now;
		oldest->transaction = InvalidLocalTransactionId;
		set_latch(oldest);
	}
	LWLockRelease(table->lock);
}

/* ---- a worker, or a launcher ---- */

int
llm_workers_backoff_ms(int n)
{
	double ms = Min(1000.0 * (double) (1 << Min(Max(n - 1, 0), 20)), BACKOFF_LAST_MS);

	return (int) (ms * (0.5 + 0.5 * pg_prng_double(&pg_global_prng_state)));
}

/* What is left of this process's entry. The caller holds the lock. */
static void
give_up(LlmWorker *w, bool badly)
{
	bool is_launcher = !OidIsValid(my_role);

	w->pid = 0;
	w->yield = false;
	if (w->state == LLM_WORKER_PAUSED)
		return; /* held */
	if (is_launcher && !connected)
		drop(w); /* the database is gone, or takes no connections */
	else if (pause_reason != NULL || badly)
	{
		const char *reason = pause_reason ? pause_reason : connected ? ENDED_BADLY : NOT_CONNECTED;

		w->failures++;
		pause_for(w, reason, Max(llm_workers_backoff_ms(w->failures), 1000));
	}
	else if (is_launcher && (w->woken || wake_taken))
		set_state(w, LLM_WORKER_WANTED, "");
	else
		drop(w);
}

/* before_shmem_exit. A worker that ends leaves its wakes to a launcher, and a launcher to the next one: both
 * end with their extension, and what woke them may be of a new one. */
static void
detach(int code, Datum arg)
{
	LlmWorker *w;
	bool held; /* its database may be, and then no launcher may begin */

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find_mine();
	held = w != NULL && w->state == LLM_WORKER_PAUSED;
	if (w != NULL && w->pid == MyProcPid)
		give_up(w, code != 0);
	if (OidIsValid(my_role) && (!held || find_launcher(my_database) != NULL))
		(void) wake_launcher(my_database);
	LWLockRelease(table->lock);
	llm_shmem_wake_supervisor();
}

void
llm_workers_attach(Oid database, Oid *role, int64 *task)
{
	Orders orders;
	LlmWorker *w;
	bool wanted;

	memcpy(&orders, MyBgworkerEntry->bgw_extra, sizeof(orders));
	my_database = database;
	*role = my_role = orders.role;
	*task = my_task = orders.task;
	before_shmem_exit(detach, 0);
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find_mine();
	wanted = w != NULL && w->state == LLM_WORKER_STARTING;
	if (wanted)
	{
		set_state(w, LLM_WORKER_RUNNING, "");
		w->pid = MyProcPid;
		w->proc = llm_compat_proc_number();
		w->woken = w->yield = false;
	}
	LWLockRelease(table->lock);
	if (!wanted)
		proc_exit(0);
}

void
llm_workers_connected(void)
{
	connected = true;
}

bool
llm_workers_take_wake(void)
{
	LlmWorker *w;
	bool woken;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find_mine();
	woken = w != NULL && w->woken;
	if (w != NULL)
		w->woken = false;
	LWLockRelease(table->lock);
	wake_taken = wake_taken || woken;
	return woken;
}

bool
llm_workers_must_yield(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz starved = TimestampTzPlusMilliseconds(now, -STARVED_MS);
	const LlmWorker *w;
	bool yield;

	LWLockAcquire(table->lock, LW_SHARED);
	w = find_mine();
	yield = w == NULL || w->yield;
	if (w != NULL && now >= TimestampTzPlusMilliseconds(w->since, LLM_WORKERS_TURN_MS))
	{
		for (int i = 0; i < table->n; i++)
		{
			const LlmWorker *other = &table->entries[i];

			if (other->database != my_database && other->state == LLM_WORKER_WANTED &&
				other->reason[0] != '\0' && other->since <= starved)
				yield = true;
		}
	}
	LWLockRelease(table->lock);
	return yield;
}

void
llm_workers_well(void)
{
	LlmWorker *w;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	w = find_mine();
	if (w != NULL)
		w->failures = 0;
	LWLockRelease(table->lock);
	wake_taken = false;
}

void
llm_workers_end_paused(const char *reason)
{
	pause_reason = reason;
}
