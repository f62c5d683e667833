/* pg/jobs/job_commit.h - who is woken when a transaction that changed jobs commits. */
#ifndef LLM_PG_JOBS_JOB_COMMIT_H
#define LLM_PG_JOBS_JOB_COMMIT_H

#include "postgres.h"

/* This transaction has queued jobs of owner, or cancelled some (ended): when it commits, or is prepared,
 * the owner's worker is woken once (all are, for several owners), and those who wait for jobs look
 * again when some have ended. A rollback wakes nobody. */
extern void llm_job_commit_note(Oid owner, bool ended);

#endif
