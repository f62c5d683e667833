/*
 * pg/enrich/enrich_rows.h - the rows that a running llm_enrich has claimed, and their two transactions.
 *
 * Claim: a row of the list gets a lease, is looked at, and its request is queued. Write: the answer goes
 * into the row if that is still the version that was claimed. In between there is no snapshot and no lock
 * but the lease: a session-level lock that others only try to get. It is a lock and not a row of a table,
 * so that it ends with its holder, however that ends, and costs no write.
 */
#ifndef LLM_PG_ENRICH_ENRICH_ROWS_H
#define LLM_PG_ENRICH_ENRICH_ROWS_H

#include "postgres.h"

#include "access/transam.h"
#include "pg/call.h"
#include "pg/enrich/enrich_plans.h"
#include "pg/enrich/enrich_target.h"
#include "pg/options.h"
#include "storage/itemptr.h"

/* A version of a row: where it was when it was listed. */
typedef struct LlmEnrichPlace
{
	Oid table; /* the partition or child */
	ItemPointerData tid;
} LlmEnrichPlace;

/* What the write found. */
typedef enum LlmEnrichHold
{
	LLM_ENRICH_OURS,    /* unchanged, and locked */
	LLM_ENRICH_NOT_NOW, /* unchanged, but somebody has it locked, or is in the way */
	LLM_ENRICH_LOST     /* changed or deleted */
} LlmEnrichHold;

typedef struct LlmEnrichRow
{
	MemoryContext cxt; /* of all that it has */
	LlmEnrichPlace place;
	TransactionId xmin;
	Datum key; /* jsonb */
	LlmCall *call;
	LlmEnrichHold hold;
	bool converted; /* value is there */
	Datum value;
	LlmFailure failure; /* sqlstate 0 = none */
} LlmEnrichRow;

typedef struct LlmEnrich
{
	/* set by the caller */
	LlmEnrichTarget *target;
	int64 enrichment;                  /* a standing one, 0 = CALL llm_enrich */
	NullableDatum args[LLM_ARG_COUNT]; /* of a call; the first is the prompt's place */
	int batch_size;
	int concurrency;
	int64 max_rows; /* to ask about; -1 = all */
	int max_attempts;
	TimestampTz started;
	MemoryContext cxt;   /* rows, list, plans: lives as long as the procedure */
	MemoryContext work;  /* of one transaction */
	MemoryContext calls; /* parent of the rows' contexts */

	/* rows claimed and not yet written or dropped: [n_rows], room for concurrency + batch_size */
	LlmEnrichRow *rows;
	int n_rows;

	/* what has a lease: those rows, and more during a claim; [n_leased], room for concurrency more */
	LlmEnrichPlace *leased;
	int n_leased;

	/* places still to be claimed: [next .. n_list) */
	LlmEnrichPlace *list;
	int n_list;
	int next;
	bool cut; /* there may be more than the list holds */

	LlmEnrichPlanCache plans;
	int64 n_claimed;
	int64 n_written;
	int64 n_failed;
	int64 n_lost;
	int64 n_skipped;    /* in this pass: rows that have failed before */
	LlmFailure stop;    /* what no row is to blame for; sqlstate 0 = none */
	LlmFailure failure; /* of the first row that failed */
} LlmEnrich;

/* Begin a transaction's work, where one has just begun. */
extern void llm_enrich_begin(LlmEnrich *e);

/* List what is to be done now. In a transaction. */
extern void llm_enrich_rows_list(LlmEnrich *e);
/* Rows in work have so much memory that no more are to be claimed. */
extern bool llm_enrich_rows_full(const LlmEnrich *e);
/* Claim up to n rows of the list, until that is so. In a transaction. */
extern void llm_enrich_rows_claim(LlmEnrich *e, int n);
/* Forget row i and its lease; an unanswered request is cancelled. */
extern void llm_enrich_rows_drop(LlmEnrich *e, int i);
/* Give back all leases and statements, also while an error is handled. */
extern void llm_enrich_rows_end(LlmEnrich *e);

/* Write finished rows and commit. */
extern void llm_enrich_write(LlmEnrich *e);

#endif
