/*
 * pg/standing/standing_queue.h - every statement of workers on llm.enrich_queue: keys of rows to be done.
 *
 * As in pg/jobs/job_table.h: they run as the owner of the table. An entry is a change of a row; a row is done
 * for all entries of its key that were there before it was looked at. They are removed with the write of the
 * row, in one transaction, so what comes meanwhile stays and the row is done again. Two keys with one hash
 * are only two keys.
 */
#ifndef LLM_PG_STANDING_STANDING_QUEUE_H
#define LLM_PG_STANDING_STANDING_QUEUE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "pg/jobs/job_table.h"

/* What there is to do for active enrichments: [*n] in CurrentMemoryContext. Those whose table is gone are
 * removed. The launcher's. */
extern LlmJobLane *llm_standing_queue_lanes(int *n);

/* The entries of a row. */
typedef struct LlmStandingEntries
{
	int64 hash;
	Datum key;      /* jsonb */
	bool only_null; /* all of them: nothing is to be done for them when the row has a value */
	int n;
	int64 *ids; /* [n] */
} LlmStandingEntries;

/* Where takes are, like LlmJobPlace: the last entry that was looked at. */
typedef struct LlmStandingPlace
{
	bool go_on; /* look behind it; else from the beginning */
	TimestampTz due;
	int64 id;
} LlmStandingPlace;

/* Up to n keys of the enrichment that are due, the earliest first, but for those with the hashes
 * without[n_without]: [*n] in CurrentMemoryContext. */
extern LlmStandingEntries *llm_standing_queue_take(int64 id, const int64 *without, int n_without,
												   LlmStandingPlace *place, int *n);

/* The entries of keys [n], which have none when their n is 0: [n] in CurrentMemoryContext. */
extern LlmStandingEntries *llm_standing_queue_find(int64 id, Datum *keys, int n);

/* A column of the table's primary key has another name: so have the members of the keys. */
extern void llm_standing_queue_rename(int64 id, const char *column, const char *name);

/* Changes of the queue, gathered. */
typedef struct LlmStandingChanges
{
	int64 id;
	int n_removed;
	int n_added;
	int room_removed;
	int room_added;
	Datum *hashes;    /* [n_removed] int8 */
	Datum *ids;       /* [n_removed] int8 */
	Datum *keys;      /* [n_added] jsonb */
	Datum *dues;      /* [n_added] timestamptz */
	Datum *only_null; /* [n_added] bool */
} LlmStandingChanges;

extern void llm_standing_queue_remove(LlmStandingChanges *c, const LlmStandingEntries *entries);
/* A new entry, due in ms. */
extern void llm_standing_queue_add(LlmStandingChanges *c, Datum key, bool only_null, int ms);
/* Make them. */
extern void llm_standing_queue_change(LlmStandingChanges *c);

#endif
