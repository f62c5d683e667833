/* pg/jobs/job_process.c - transactions, locks and settings of workers and launchers. */
#include "postgres.h"

#include "pg/jobs/job_process.h"

#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/jobs/job_table.h"
#include "pg/workers.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

/* In the tag of the role's lock, where objects have the number of a part. */
#define ROLE_LOCK_MARK 0x4C4D

#define OTHER_VERSION                                                                              \
	"the tables of schema llm are of another version of llm_infer than its library"

/* Settings of roles and databases come in by ALTER ROLE and ALTER DATABASE. Jobs carry what they were
 * submitted with. */
static const struct
{
	const char *name;
	const char *value;
} session_settings[] = {
	{"role", "none"},
	{"search_path", "pg_catalog, pg_temp"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_isolation", "read committed"},
	{"row_security", "on"},
	{"lock_timeout", "0"},
	{"statement_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"transaction_timeout", "0"},
	{"llm_infer.default_model", ""},
	{"llm_infer.max_tokens", "-1"},
	{"llm_infer.temperature", "-1"},
	{"llm_infer.timeout", "0"},
	{"llm_infer.max_statement_tokens", "0"},
	{"llm_infer.max_priority", "100"},
	{"llm_infer.on_error", "error"},
};

void
llm_job_process_connect(Oid database, Oid *role, int64 *task)
{
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	llm_workers_attach(database, role, task);
	BackgroundWorkerInitializeConnectionByOid(database, *role, 0);
	llm_workers_connected();
	for (Size i = 0; i < lengthof(session_settings); i++)
		if (GetConfigOption(session_settings[i].name, true, false) != NULL)
			SetConfigOption(session_settings[i].name, session_settings[i].value, PGC_SUSET,
							PGC_S_SESSION);
}

void
llm_job_process_check(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

bool
llm_job_process_begin(const char *activity)
{
	LlmJobTableLock lock;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	/* whatever user code has made of the session's defaults */
	XactReadOnly = false;
	XactIsoLevel = XACT_READ_COMMITTED;
	lock = llm_job_table_lock();
	if (lock == LLM_JOB_TABLE_STRANGE)
		llm_workers_end_paused(OTHER_VERSION);
	if (lock == LLM_JOB_TABLE_GONE || lock == LLM_JOB_TABLE_STRANGE)
		proc_exit(0);
	if (lock == LLM_JOB_TABLE_BUSY)
	{
		/* An abort would take back the requests in flight. */
		CommitTransactionCommand();
		return false;
	}
	pgstat_report_activity(STATE_RUNNING, activity);
	PushActiveSnapshot(GetTransactionSnapshot());
	return true;
}

void
llm_job_process_end(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* before_shmem_exit: an abort releases locks of sessions too, but without one the server does so only where
 * they are advisory ones, which user code could release as well. What the process was doing ends first. */
static void
unlock_role(int code, Datum role)
{
	LOCKTAG tag;

	AbortOutOfAnyTransaction();
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, DatumGetObjectId(role),
					   ROLE_LOCK_MARK);
	if (llm_compat_lock_held(&tag, ExclusiveLock))
		(void) LockRelease(&tag, ExclusiveLock, true);
}

bool
llm_job_process_lock_role(Oid role, bool session)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, role, ROLE_LOCK_MARK);
	if (LockAcquire(&tag, ExclusiveLock, session, !session) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (session)
		before_shmem_exit(unlock_role, ObjectIdGetDatum(role));
	return true;
}

void
llm_job_process_sleep(long ms)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 llm_compat_wait_event(&wait_event, "LlmInferWorker"));
	ResetLatch(MyLatch);
}
