/*
 * pg/usage.h - what roles have asked of the engine, counted in shared memory over all backends.
 *
 * One entry per role and database, up to LLM_USAGE_MAX; when there is no room, the entry that has
 * nothing in flight and was used longest ago gives way, and its counters with it. One LWLock guards
 * the table and every entry; it is held for a look-up and a few additions. An entry with requests in
 * flight stays where it is. A request is counted out when it leaves the sent list, which the end of
 * the transaction does at the latest, also that of a backend that is terminated; a backend that
 * crashes resets the cluster, and the counters begin anew, as after any start of the server.
 */
#ifndef LLM_PG_USAGE_H
#define LLM_PG_USAGE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/lwlock.h"

#define LLM_USAGE_MAX 1024

typedef struct LlmUsageKey
{
	Oid database;
	Oid role;
} LlmUsageKey;

typedef struct LlmUsage
{
	LlmUsageKey key;
	int32 in_flight; /* requests sent and unanswered */
	int64 requests;  /* sent since the entry exists */
	int64 prompt;    /* tokens of answers */
	int64 cached;    /* of the prompt's */
	int64 generated;
	TimestampTz used;         /* the last time */
	TimestampTz period_start; /* of a token quota's period */
	int64 period_tokens;      /* prompt and generated, since then */
	int64 jobs;             /* unfinished ones when they were counted, and those submitted since */
	int64 jobs_cost_us;     /* what counting took */
	TimestampTz jobs_until; /* then they are to be counted again */
} LlmUsage;

/* Shared memory: its size, and its creation at startup, under AddinShmemInitLock. */
extern Size llm_usage_nbytes(void);
extern void llm_usage_startup(LWLock *lock);

/* Count a request of role (of this database) in. NULL when that would be more than max_in_flight
 * (0 = any number). The entry is for llm_usage_charge and llm_usage_end. */
extern LlmUsage *llm_usage_begin(Oid role, int32 max_in_flight);
/* Its answer has come, and cost so many tokens. */
extern void llm_usage_charge(LlmUsage *entry, int64 prompt, int64 cached, int64 generated);
/* It is no longer in flight. */
extern void llm_usage_end(LlmUsage *entry);

/* A copy of the entry of role in this database; false, and zeros, when there is none. */
extern bool llm_usage_find(Oid role, LlmUsage *out);
/* Begin a new period now, unless one that began after `before` has begun meanwhile. */
extern void llm_usage_begin_period(Oid role, TimestampTz before, TimestampTz now);
/* Copies of all entries of this database, [*n] in CurrentMemoryContext. */
extern LlmUsage *llm_usage_list(int *n);

/* Places for n unfinished jobs of role, of `limit` that it may have. What is known about their number
 * comes from a count; counting takes a tenth of the time at most, so this says when the next one is due.
 * *jobs is that number, without n. */
typedef enum LlmUsageJobs
{
	LLM_USAGE_JOBS_TAKEN, /* there was room: they are counted in */
	LLM_USAGE_JOBS_FULL,
	LLM_USAGE_JOBS_UNKNOWN /* count and tell llm_usage_jobs_counted */
} LlmUsageJobs;

extern LlmUsageJobs llm_usage_take_jobs(Oid role, int64 n, int64 limit, int64 *jobs);
/* They were counted, which took cost_us; then n of them are taken, if there is room. */
extern LlmUsageJobs llm_usage_jobs_counted(Oid role, int64 n, int64 limit, int64 jobs,
										   int64 cost_us);

#endif
