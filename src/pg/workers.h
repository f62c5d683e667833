/*
 * pg/workers.h - who works for which database: a table in shared memory, and how workers are started.
 *
 * Two kinds of dynamic background workers: a launcher per database (role 0), which the supervisor
 * starts when it is wanted, and workers, which the launcher starts: one for the jobs of a role, and one
 * for each standing enrichment. An entry is there while its process is wanted, runs, or may not run
 * yet; it tells why. What has an entry is not started twice.
 *
 * One LWLock guards the table; it is held for a pass over at most LLM_WORKERS_MAX entries and never
 * while anything else is waited for. A process makes its entry RUNNING before it connects to its
 * database, and gives it up in a before_shmem_exit callback, so whoever holds the lock may set the
 * latch of a RUNNING entry, or signal it. A start that never gets so far is given up after
 * LLM_WORKERS_START_MS. The table is empty after a start of the server.
 */
#ifndef LLM_PG_WORKERS_H
#define LLM_PG_WORKERS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/lwlock.h"

#define LLM_WORKERS_MAX 512
#define LLM_WORKERS_LAUNCHERS 128  /* of them for launchers alone */
#define LLM_WORKERS_ROLES_NOTED 32 /* entries of workers, per database */
#define LLM_WORKERS_ROLES_MAX 4    /* workers at once, per database */
#define LLM_WORKERS_START_MS 30000
#define LLM_WORKERS_TURN_MS 3000   /* how long one works on while others wait for its place */
#define LLM_WORKERS_STUCK_MS 10000 /* of a transaction, behind that: then it is ended */
#define LLM_WORKER_REASON_NBYTES 256
#define LLM_WORKERS_NO_SLOT "no background worker is free, see max_worker_processes"

typedef enum LlmWorkerState
{
	LLM_WORKER_WANTED = 0, /* to be started */
	LLM_WORKER_STARTING,   /* registered with the postmaster */
	LLM_WORKER_RUNNING,
	LLM_WORKER_PAUSED /* not before `until`; reason says why */
} LlmWorkerState;

typedef struct LlmWorker
{
	Oid database;
	Oid role;   /* 0 = the launcher */
	int64 task; /* id of the enrichment; 0 = the role's jobs, or the launcher */
	LlmWorkerState state;
	int pid;                               /* RUNNING */
	int proc;                              /* its proc number */
	TimestampTz since;                     /* of the state */
	TimestampTz until;                     /* PAUSED: DT_NOEND = until its launcher says so */
	int failures;                          /* in a row */
	bool woken;                            /* there may be something to do */
	bool yield;                            /* end soon: others wait for the place */
	TimestampTz asked;                     /* to yield */
	LocalTransactionId transaction;        /* the one it has been in since then; 0 = none */
	TimestampTz transaction_seen;          /* for the first time */
	char reason[LLM_WORKER_REASON_NBYTES]; /* in the encoding of its database; '' = none */
} LlmWorker;

/* Shared memory: its size, and its creation at startup, under AddinShmemInitLock. */
extern Size llm_workers_nbytes(void);
extern void llm_workers_startup(LWLock *lock);

/* ---- anybody ---- */

/* There is something to do for a role and a task in the database: wake its worker, else the launcher (role 0 =
 * for the launcher), which is started when there is none; a worker that ends wakes the launcher too. False
 * when the table is full. Raises nothing: for callbacks of transactions. */
extern bool llm_workers_wake(Oid database, Oid role, int64 task);
/* A copy of the entry; false when there is none. */
extern bool llm_workers_find(Oid database, Oid role, int64 task, LlmWorker *out);
/* Copies of all entries of the database, [*n] in CurrentMemoryContext. */
extern LlmWorker *llm_workers_list(Oid database, int *n);

/* End all workers of the database, and let none start for ms milliseconds; false when there is none. */
extern bool llm_workers_hold(Oid database, int ms);
/* The end of that: the launcher is started again, and ends when the database is gone. */
extern void llm_workers_release(Oid database);

/* Something was finished and committed: wakes llm_workers_wait_finished everywhere. */
extern void llm_workers_finished(void);
/* Between prepare and the sleep the caller looks whether what it waits for is finished. Interruptible. */
extern void llm_workers_prepare_wait(void);
extern void llm_workers_wait_finished(long timeout_ms);
extern void llm_workers_end_wait(void);

/* ---- the supervisor ---- */

/* Start the launchers that are due, and the starter when asked for. The supervisor's next look is due
 * after the milliseconds returned. */
extern long llm_workers_supervise(bool settings_changed);

/* ---- a launcher ---- */

/* Start the worker of a role's task, unless it has an entry that says no. False when there is no place. */
extern bool llm_workers_start(Oid role, int64 task);
/* Write down why a task has no worker, with a time to try again; a running one is left alone. */
extern void llm_workers_pause(Oid role, int64 task, const char *reason, int ms);
/* Forget why a task has no worker; false when it has one. */
extern bool llm_workers_forget(Oid role, int64 task);
/* Ask the worker that has run longest, and long enough, to end. One that was asked, and does not come out of a
 * transaction, in which SQL of its owner may take for ever, is terminated. */
extern void llm_workers_ask_yield(void);

/* ---- a worker, or a launcher ---- */

/* First of all, before connecting, with what the process was started for; proc_exit when it is not wanted
 * any more. */
extern void llm_workers_attach(Oid database, Oid *role, int64 *task);
/* It is connected: from now on its end is no failure to start. */
extern void llm_workers_connected(void);
/* True when there may be something to do; forgets it. */
extern bool llm_workers_take_wake(void);
/* True when it should end for others: asked by the launcher, or others have no place. */
extern bool llm_workers_must_yield(void);
/* It works well: failures are no longer in a row. */
extern void llm_workers_well(void);
/* Leave a pause behind at the end: growing with failures, at least a second, with jitter. NULL: none. */
extern void llm_workers_end_paused(const char *reason);
/* A delay of the nth failure in a row, 1 and up: 1 s, 2 s, 4 s ... 1 min, half of it at random. */
extern int llm_workers_backoff_ms(int n);

#endif
