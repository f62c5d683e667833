/* pg/init.c - _PG_init: declare and register, nothing else. */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/guc.h"
#include "pg/jobs/job_ddl.h"
#include "pg/jobs/launcher.h"
#include "pg/node/plan.h"
#include "pg/running.h"
#include "pg/shmem.h"
#include "pg/standing/standing_ddl.h"
#include "pg/standing/standing_queue.h"
#include "pg/supervisor.h"

LLM_EXPORTS_BEGIN
PG_MODULE_MAGIC;
/* Declared by fmgr.h from 16 on. */
extern PGDLLEXPORT void _PG_init(void);
LLM_EXPORTS_END

void
_PG_init(void)
{
	/* pg_upgrade restores catalogs; no engine is wanted then. */
	if (IsBinaryUpgrade)
		return;
	llm_guc_init();
	if (llm_guc_preloaded())
	{
		llm_shmem_init();
		llm_supervisor_init();
		llm_job_ddl_init();
		llm_standing_ddl_init();
		llm_launcher_add(llm_standing_queue_lanes);
	}
	llm_node_init();
	llm_running_init();
}
