/* pg/jobs/job_commit.h - who is woken when a transaction that changed jobs commits. */
#ifndef LLM_PG_JOBS_JOB_COMMIT_H
#define LLM_PG_JOBS_JOB_COMMIT_H

/* This transaction has queued or cancelled jobs: when it commits, or is prepared, the workers of the
 * database are woken once, and those who wait for jobs look again. A rollback wakes nobody. */
extern void llm_job_commit_note(void);

#endif
