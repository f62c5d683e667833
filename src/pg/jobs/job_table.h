/*
 * pg/jobs/job_table.h - every statement on llm.job_queue.
 *
 * The table has no rights for anybody but its owner: these statements run as that owner, with
 * search_path = pg_catalog, between llm_job_table_enter and llm_owned_leave; most do both
 * themselves. An error in between needs no clean-up: the end of the (sub)transaction sets user and
 * settings back.
 */
#ifndef LLM_PG_JOBS_JOB_TABLE_H
#define LLM_PG_JOBS_JOB_TABLE_H

#include "postgres.h"

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "pg/options.h"
#include "pg/owned.h"

/* A job is failed when it has lost so many workers. */
#define LLM_JOB_LOSSES_MAX 20

/* Become the owner of llm.job_queue. Raises 55000 when our tables are of another version than the library. */
extern void llm_job_table_enter(LlmOwnedUser *before);
/* One statement between that and llm_owned_leave: how many rows it has changed, or found. */
extern int llm_job_table_run(LlmOwnedStatement *q, Datum *values, const char *nulls,
							 LlmOwnedSight sight);

/* Its lock, for a background worker's transaction, which must not wait behind others' DDL. */
typedef enum LlmJobTableLock
{
	LLM_JOB_TABLE_LOCKED,
	LLM_JOB_TABLE_BUSY,   /* somebody has an exclusive lock */
	LLM_JOB_TABLE_GONE,   /* there is no such table */
	LLM_JOB_TABLE_STRANGE /* it, or another one of ours, is of another version than this library */
} LlmJobTableLock;

extern LlmJobTableLock llm_job_table_lock(void);

/* What a job is asked with. */
typedef struct LlmJobOrder
{
	Oid owner;
	int rank; /* 0 - priority */
	TimestampTz due;
	int max_attempts;
	NullableDatum args[LLM_ARG_COUNT]; /* the first is the prompt, a text */
} LlmJobOrder;

/* A new row; its id. Between enter and leave. */
extern int64 llm_job_table_insert(const LlmJobOrder *order);

/* A row as it is committed at this moment, or written by the caller's transaction. */
typedef struct LlmJobRow
{
	Oid owner;
	char state[16];
	TimestampTz finished; /* 0 = not */
	TransactionId xmin;   /* who wrote it last */
	char *model;          /* CurrentMemoryContext, like the next two */
	char *message;        /* NULL = none */
	Datum result;         /* llm.result; 0 = none */
} LlmJobRow;

/* False when there is no such row; *expired then tells whether it may have been removed. */
extern bool llm_job_table_look(int64 id, bool payload, LlmJobRow *row, bool *expired);

/* Cancel an unfinished job; false when it is finished. */
extern bool llm_job_table_cancel(int64 id);

/* ---- the launcher's ---- */

/* What there is to do for an owner. */
typedef struct LlmJobLane
{
	Oid owner;
	int64 task;      /* id of the enrichment, 0 = the owner's jobs */
	TimestampTz due; /* of the earliest that is queued; DT_NOEND = all are running */
} LlmJobLane;

/* One per owner with unfinished jobs, in the order of owners: [*n] in CurrentMemoryContext. */
extern LlmJobLane *llm_job_table_lanes(int *n);
/* Those that q gives: owner, task, due. */
extern LlmJobLane *llm_job_table_select_lanes(LlmOwnedStatement *q, int *n);
/* Owners with running jobs, [*n] in CurrentMemoryContext. */
extern Oid *llm_job_table_running(int *n);
/* Running jobs of an owner whose worker is gone are queued again: at once the first time, then later
 * and later, so that what ends workers goes behind the others. Those that somebody has locked are left. */
extern void llm_job_table_release(Oid owner);
/* All unfinished jobs of an owner fail, but for those that somebody has locked. */
extern void llm_job_table_fail_all(Oid owner, int sqlstate, const char *message);
/* Remove jobs that ended before; true when there may be more. */
extern bool llm_job_table_expire(TimestampTz before);
/* True when a prepared transaction of this database may bring jobs. */
extern bool llm_job_table_prepared(void);

/* ---- the worker's ---- */

typedef struct LlmJobClaim
{
	int64 id;
	int attempts;
	int max_attempts;
} LlmJobClaim;

/* Where claims are: the last one that was made. Entries of finished jobs stay in the index until
 * VACUUM; a claim that goes on here does not walk over those of the jobs before it. */
typedef struct LlmJobPlace
{
	bool go_on; /* claim behind it only; else look for the next model, and from the beginning */
	int rank;
	char model[NAMEDATALEN]; /* '' = there was none */
	TimestampTz due;
	int64 id;
} LlmJobPlace;

/* Make up to n queued jobs of owner that are due running: [*n] in CurrentMemoryContext, the last one is
 * that with which their prompts have LLM_JOB_CLAIM_NBYTES. Not those of the models without[n_without],
 * unless it goes on. */
#define LLM_JOB_CLAIM_NBYTES 67108864 /* a plain number: SQL reads it too */
extern LlmJobClaim *llm_job_table_claim(Oid owner, const char **without, int n_without,
										LlmJobPlace *place, int *n);

/* What a job is asked with, in cxt; it is there, running. Raises what a damaged row gives. Between enter
 * and leave. */
extern void llm_job_table_read(int64 id, MemoryContext cxt, NullableDatum *args);

/* What has become of a running job. */
typedef enum LlmJobHold
{
	LLM_JOB_OURS,    /* running, and its row is locked for the caller */
	LLM_JOB_NOT_NOW, /* running, but somebody has its row locked */
	LLM_JOB_LOST     /* cancelled or removed */
} LlmJobHold;

/* For each of ids[n]; with lock, rows are locked where they can be. */
extern void llm_job_table_hold(const int64 *ids, int n, bool lock, LlmJobHold *out);
/* Ends of jobs that are LLM_JOB_OURS. Between enter and leave, as is the next. */
extern void llm_job_table_done(int64 id, Datum result);
extern void llm_job_table_fail(int64 id, int sqlstate, const char *message);
/* Queue it again, after delay_ms; an attempt that does not count is taken off. */
extern void llm_job_table_retry(int64 id, int delay_ms, bool counts, int sqlstate,
								const char *message);

#endif
