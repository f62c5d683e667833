/*
 * pg/enrich/enrich_plans.h - the statements that claim and write rows, a set for each partition.
 *
 * They name the table of the call, whose rights, policies and triggers count, and have the partition's
 * bounds as one more condition, so that the planner leaves the other partitions out. It cannot do that
 * with bounds of hash and default partitions: what is below such a parent, or the children by INHERITS, is
 * one unit with one set. In it a write finds the hash partition by the key; all else is looked for in all.
 */
#ifndef LLM_PG_ENRICH_ENRICH_PLANS_H
#define LLM_PG_ENRICH_ENRICH_PLANS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "executor/spi.h"
#include "pg/enrich/enrich_target.h"

#define LLM_ENRICH_PLANS_MAX 64 /* sets; the one that was used longest ago gives way */
#define LLM_ENRICH_UNITS 256

typedef struct LlmEnrichPlans
{
	Oid unit; /* partition, or the table itself */
	TimestampTz
		made; /* they are made again after a while: a plan for a small table is bad for a large one */
	uint64 used; /* when, by the cache's clock */
	/* (tid[], table[], again) -> table, tid, xmin, key, prompt: of rows to be done, which it locks; with again also of
	 * those that have a value. wanted: whether they are to be done instead of the prompt, of all rows that are there, and
	 * does not lock them. identify: NULL instead; runs no SQL of the caller's. */
	SPIPlanPtr claim;
	SPIPlanPtr wanted;
	SPIPlanPtr identify;
	SPIPlanPtr look;   /* (tid, table, xmin, key): a row if it is that version still */
	SPIPlanPtr take;   /* the same, and locks it; nothing when somebody else has */
	SPIPlanPtr update; /* (tid, table, xmin, key, value) -> whether the target is NULL */
} LlmEnrichPlans;

/* The unit of a table, remembered. */
typedef struct LlmEnrichUnit
{
	Oid table;
	Oid unit;
} LlmEnrichUnit;

typedef struct LlmEnrichPlanCache
{
	LlmEnrichUnit units[LLM_ENRICH_UNITS]; /* by the table's oid */
	LlmEnrichPlans sets[LLM_ENRICH_PLANS_MAX];
	int n;
	uint64 clock;
} LlmEnrichPlanCache;

/* The unit that a table with rows belongs to: rows of one can be claimed together. In a transaction. */
extern Oid llm_enrich_plans_unit(LlmEnrichPlanCache *cache, const LlmEnrichTarget *t, Oid table);

/* The statements for rows of table, valid until the next call. In a transaction. */
extern const LlmEnrichPlans *llm_enrich_plans_get(LlmEnrichPlanCache *cache,
												  const LlmEnrichTarget *t, Oid table);

/* Forget all, also while an error is handled. */
extern void llm_enrich_plans_free(LlmEnrichPlanCache *cache);

#endif
