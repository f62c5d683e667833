/*
 * pg/quota.h - what a role may ask for: the rows of llm.quotas, and their enforcement at submit.
 *
 * The row of the role that asks decides, else the row of role '-', else there is no limit;
 * membership plays no part. Tokens are charged when an answer arrives (prompt and generated, cached
 * ones too), so what is in flight when a quota runs out still ends. A period begins with the first
 * request after the last one has ended.
 */
#ifndef LLM_PG_QUOTA_H
#define LLM_PG_QUOTA_H

#include "postgres.h"

#include "pg/error.h"

/* May role begin a request now? False and f set (53400, with the numbers) when its tokens are spent.
 * *max_in_flight is for llm_usage_begin, 0 = any number. The table is read again with every
 * statement, and every second. */
extern bool llm_quota_admit(Oid role, int32 *max_in_flight, LlmFailure *f);

/* max_in_flight of role, as llm_quota_admit says. */
extern int32 llm_quota_in_flight(Oid role);

/* Set f: role has had as many requests in flight as it may for waited_ms. */
extern void llm_quota_fail_in_flight(Oid role, int32 max_in_flight, int64 waited_ms, LlmFailure *f);

/* max_queued_jobs of role: how many unfinished jobs it may have; 0 = any number. */
extern int32 llm_quota_queued_jobs(Oid role);

/* Set f: role has so many unfinished jobs, and submitted n more. */
extern void llm_quota_fail_queued_jobs(Oid role, int32 max_queued_jobs, int64 jobs, int64 n,
									   LlmFailure *f);

#endif
