/* pg/jobs/launcher.h - what the launcher of a database starts workers for, beside jobs. */
#ifndef LLM_PG_JOBS_LAUNCHER_H
#define LLM_PG_JOBS_LAUNCHER_H

#include "postgres.h"

#include "pg/jobs/job_table.h"

/* What there is to do: [*n] in CurrentMemoryContext, as llm_job_table_lanes gives it. In a transaction of a
 * superuser, who runs nobody's code. */
typedef LlmJobLane *LlmJobLanes(int *n);

/* Have the launcher ask it at each of its looks; while preloading only. */
extern void llm_launcher_add(LlmJobLanes *lanes);

#endif
