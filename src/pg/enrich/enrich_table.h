/*
 * pg/enrich/enrich_table.h - every statement on llm.enrich_failures: rows that failed.
 *
 * They run as the owner of the extension's tables. A failure is that of a version of a row: when the row has
 * changed it counts no more.
 */
#ifndef LLM_PG_ENRICH_ENRICH_TABLE_H
#define LLM_PG_ENRICH_ENRICH_TABLE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "pg/enrich/enrich_target.h"

/* Forget those of tables that are gone; the number of failures of the target. */
extern int64 llm_enrich_table_open(const LlmEnrichTarget *t);

/* Which of the rows [n], by key (jsonb) and xmin, shall not be tried: they failed max_attempts times,
 * or once after the time since. */
extern void llm_enrich_table_skip(const LlmEnrichTarget *t, Datum *keys, Datum *xmins, int n,
								  int max_attempts, TimestampTz since, bool *skip);

/* A row has failed, once more: the number of times that this version of it has. */
extern int llm_enrich_table_note(const LlmEnrichTarget *t, Datum key, TransactionId xmin,
								 int sqlstate, const char *message);

/* Rows [n] have not. */
extern void llm_enrich_table_clear(const LlmEnrichTarget *t, Datum *keys, int n);

#endif
