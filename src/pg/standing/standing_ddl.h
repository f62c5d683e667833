/*
 * pg/standing/standing_ddl.h - triggers of standing enrichments come and go with their tables.
 *
 * A statement trigger fires for the table that the statement names, so a partition or child has its own. Each
 * enrichment has two of them on each table, llm_enrich_<id>_insert and llm_enrich_<id>_update; they are ordinary
 * triggers, dumped with the table, and dropped with the extension.
 */
#ifndef LLM_PG_STANDING_STANDING_DDL_H
#define LLM_PG_STANDING_STANDING_DDL_H

#include "postgres.h"

#include "pg/standing/standing_defs.h"

/* Create those that a table and its partitions or children lack, as the current user, who needs TRIGGER on them.
 * True when there were such. */
extern bool llm_standing_ddl_create(int64 id, Oid relid);

/* Drop those that are there; the caller has checked that the current user may. */
extern void llm_standing_ddl_drop(int64 id, Oid relid);

/* Raise an error when the table is below another: statements that name that one fire no trigger of it. */
extern void llm_standing_ddl_check_top(Oid relid);

/* Whether the table itself has both. In a transaction. */
extern bool llm_standing_ddl_present(int64 id, Oid relid);

/* Whether rows of a table are rows of the enrichment's: its own, or of what inherits from it. */
extern bool llm_standing_ddl_concerns(const LlmStandingDef *def, Oid relid);

/* Install the hook that gives triggers to new partitions and children, and takes them from what is detached; while preloading only. */
extern void llm_standing_ddl_init(void);

#endif
