/*
 * pg/jobs/job_process.h - what the background processes of durable work have in common.
 *
 * A worker's transaction begins with llm_job_process_begin and ends with llm_job_process_end; in
 * between it holds the lock of llm.job_queue, outside it holds nothing but, when it works for a role,
 * the role's lock.
 */
#ifndef LLM_PG_JOBS_JOB_PROCESS_H
#define LLM_PG_JOBS_JOB_PROCESS_H

#include "postgres.h"

/* Set signals and attach to the table of workers; then connect, as the role that the process was started
 * for (0 = a superuser). The settings of role and database that could change what our statements do
 * are set back. */
extern void llm_job_process_connect(Oid database, Oid *role, int64 *task);

/* Interrupts, and settings that were reloaded. */
extern void llm_job_process_check(void);

/* Begin a transaction. False when llm.job_queue is locked by others, and no transaction is begun;
 * when it is not there, or of another version, the process ends. */
extern bool llm_job_process_begin(const char *activity);
extern void llm_job_process_end(void);

/* The lock of a role in this database: who has it runs the role's jobs, so a running job whose role's
 * lock is free has lost its worker. With session it is held until the process ends and waited for;
 * else until the end of the transaction, and false when somebody has it. */
extern bool llm_job_process_lock_role(Oid role, bool session);

/* Sleep until the latch is set, or for ms. */
extern void llm_job_process_sleep(long ms);

#endif
