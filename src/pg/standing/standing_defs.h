/*
 * pg/standing/standing_defs.h - definitions of standing enrichments: every statement on llm.enrichment_defs.
 *
 * As in pg/jobs/job_table.h: the table has no rights for anybody but its owner, the statements run as that
 * owner with search_path = pg_catalog. Definitions hold names and SQL as they were given, so that a dump
 * brings them back; what has become of them since is seen when a worker opens them.
 */
#ifndef LLM_PG_STANDING_STANDING_DEFS_H
#define LLM_PG_STANDING_STANDING_DEFS_H

#include "postgres.h"

#include "access/transam.h"
#include "pg/options.h"

typedef struct LlmStandingDef
{
	int64 id;
	NameData name;
	Oid owner;
	Oid relation;
	NameData target;
	char *prompt; /* a template, or NULL */
	char *expr;   /* or an SQL expression, or NULL */
	char *filter; /* NULL = none */
	char *search_path;
	Datum
		sources; /* name[] of the columns that prompt, expr and filter read; 0 = all but the target */
	int batch_size;
	int concurrency;
	NullableDatum args[LLM_ARG_COUNT]; /* of the calls; the prompt is NULL */
	bool active;                       /* else paused */
	char *reason;                      /* why paused; NULL = by a user, or not */
	bool backfill;                     /* rows whose target is NULL are to be looked for */
} LlmStandingDef;

/* A definition as it is committed at this moment, or written by this transaction: in CurrentMemoryContext;
 * NULL when there is none. */
extern LlmStandingDef *llm_standing_defs_read(int64 id);
extern LlmStandingDef *llm_standing_defs_find(const char *name);

/* Which version of an active definition is there, for comparison; 0 = none, or paused. With lock its row is
 * locked for this transaction, and 0 while another transaction has it locked. */
extern TransactionId llm_standing_defs_version(int64 id, bool lock);

/* Lock one against changes by others until the end of the transaction; read it after that. */
extern void llm_standing_defs_lock(int64 id);

/* All definitions of the database, [*n] in CurrentMemoryContext: for the launcher. */
extern LlmStandingDef *llm_standing_defs_list(int *n);

/* Write a new one, and its id into it. False when its name, or its relation and target, are taken. */
extern bool llm_standing_defs_insert(LlmStandingDef *def);

/* Write one again, all but its id, owner and relation. False as above. */
extern bool llm_standing_defs_update(const LlmStandingDef *def);

/* Pause one, with what the owner should know and do. It stays so until llm_enrich_resume; rows go on being queued. */
extern void llm_standing_defs_pause(int64 id, const char *reason);

/* Its rows have been looked for. */
extern void llm_standing_defs_backfilled(int64 id);

/* Remove one, with what it has queued. */
extern void llm_standing_defs_remove(int64 id);

#endif
