/*
 * pg/jobs/job_limit.h - how many unfinished jobs a role may have: max_queued_jobs of llm.quotas.
 *
 * Jobs of transactions that are not committed yet count, those that were rolled back do not, and a job
 * whose end is not committed counts no more. Two that submit at the same moment may both get the last
 * place. What was counted holds for ten times the processor time that counting took, in all sessions, with
 * what has been submitted since: a queue of thousands is counted anew each time it matters, one of a million
 * every few seconds.
 */
#ifndef LLM_PG_JOBS_JOB_LIMIT_H
#define LLM_PG_JOBS_JOB_LIMIT_H

#include "postgres.h"

/* Raise 53400, with the numbers, unless owner may have n more unfinished jobs. */
extern void llm_job_limit_admit(Oid owner, int64 n);

#endif
