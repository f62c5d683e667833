/* pg/jobs/job_limit.c - count unfinished jobs, and refuse more than a role may have; see the header. */
#include "postgres.h"

#include "pg/jobs/job_limit.h"

#include <time.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/owned.h"
#include "pg/quota.h"
#include "pg/usage.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The index of unfinished jobs, whose first column is their owner. */
static Relation
open_index(Relation rel)
{
	Oid oid = llm_owned_table("job_queue_open");
	Relation index = OidIsValid(oid) ? try_relation_open(oid, AccessShareLock) : NULL;

	if (index == NULL || index->rd_index == NULL || index->rd_index->indrelid != rel->rd_id ||
		index->rd_opcintype[0] != OIDOID || !index->rd_index->indisvalid)
		llm_declared_refuse("index llm.job_queue_open");
	return index;
}

/* Unfinished jobs of owner, up to `most` of them. Each version of a row that nobody has ended or replaced
 * is a job: SnapshotDirty shows those of running transactions too, and who is about to end one. */
static int64
count_jobs(Oid owner, int64 most)
{
	Relation rel = table_open(llm_owned_table("job_queue"), AccessShareLock);
	Relation index = open_index(rel);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	SnapshotData dirty;
	ScanKeyData key;
	IndexScanDesc scan;
	int64 n = 0;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	scan = llm_compat_index_beginscan(rel, index, &dirty);
	index_rescan(scan, &key, 1, NULL, 0);
	while (n < most && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		n += !TransactionIdIsValid(dirty.xmax);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	relation_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return n;
}

/* Processor time of this process: on a busy machine a small count takes long by the clock, and would hold for
 * long. */
static int64
processor_us(void)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void
llm_job_limit_admit(Oid owner, int64 n)
{
	int32 limit = llm_quota_queued_jobs(owner);
	LlmUsageJobs answer;
	LlmFailure f;
	int64 jobs = 0;

	if (limit == 0 || n == 0)
		return;
	llm_declared_check_tables();
	answer = llm_usage_take_jobs(owner, n, limit, &jobs);
	if (answer == LLM_USAGE_JOBS_UNKNOWN)
	{
		int64 begun = processor_us();

		jobs = count_jobs(owner, limit);
		answer = llm_usage_jobs_counted(owner, n, limit, jobs, processor_us() - begun);
	}
	if (answer == LLM_USAGE_JOBS_TAKEN)
		return;
	llm_quota_fail_queued_jobs(owner, limit, jobs, n, &f);
	llm_failure_raise(&f);
}
