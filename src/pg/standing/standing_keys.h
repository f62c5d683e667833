/* pg/standing/standing_keys.h - from the keys of llm.enrich_queue to the rows that have them. */
#ifndef LLM_PG_STANDING_STANDING_KEYS_H
#define LLM_PG_STANDING_STANDING_KEYS_H

#include "postgres.h"

#include "pg/enrich/enrich_rows.h"
#include "pg/owned.h"

/* A row that has one of the keys. */
typedef struct LlmStandingFound
{
	int key; /* its number */
	LlmEnrichPlace place;
	bool has_value;
} LlmStandingFound;

/* The rows of the target's table with keys [n] (jsonb) that the current user sees, each key's once for every
 * table that has it, be they to be done or not: [*n_found] in CurrentMemoryContext. The statement is kept in *q. */
extern LlmStandingFound *llm_standing_keys_find(const LlmEnrichTarget *t, LlmOwnedStatement *q,
												Datum *keys, int n, int *n_found);

/* Whether keys [n] (jsonb) have the columns of the table's primary key. */
extern bool llm_standing_keys_fit(const LlmEnrichTarget *t, Datum *keys, int n);

#endif
