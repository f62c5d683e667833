/* pg/jobs/job_wait.h - waiting for the end of a job without a snapshot. */
#ifndef LLM_PG_JOBS_JOB_WAIT_H
#define LLM_PG_JOBS_JOB_WAIT_H

#include "postgres.h"

/* Sleep until a batch of jobs has ended or timeout_ms pass, unless finished(arg) is true already; a
 * statement without tables gives up its snapshot meanwhile. What finished(arg) said last. */
extern bool llm_job_wait_until(bool (*finished)(void *arg), void *arg, int64 timeout_ms);

#endif
