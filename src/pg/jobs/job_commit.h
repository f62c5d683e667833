/* pg/jobs/job_commit.h - who is woken when a transaction that made work commits. */
#ifndef LLM_PG_JOBS_JOB_COMMIT_H
#define LLM_PG_JOBS_JOB_COMMIT_H

#include "postgres.h"

/* This transaction has queued jobs of owner (task 0), or rows of its enrichment with the id task, or
 * cancelled jobs (ended): when it commits, or is prepared, the worker of each is woken once, and those who
 * wait for jobs look again when some have ended. A rollback wakes nobody. */
extern void llm_job_commit_note(Oid owner, int64 task, bool ended);

#endif
