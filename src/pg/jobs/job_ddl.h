/* pg/jobs/job_ddl.h - workers make way for commands that want a database for themselves. */
#ifndef LLM_PG_JOBS_JOB_DDL_H
#define LLM_PG_JOBS_JOB_DDL_H

/* Install the hook; while preloading only. */
extern void llm_job_ddl_init(void);

#endif
