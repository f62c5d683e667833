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

/* Of batch_size and concurrency: each row in work is a lock. */
#define LLM_ENRICH_ROWS_MAX 1000

/* A version of a row: where it was when it was listed. */
typedef struct LlmEnrichPlace
{
	Oid table; /* the partition or child */
	ItemPointerData tid;
} LlmEnrichPlace;

/* Places still to be claimed: [next .. n) */
typedef struct LlmEnrichList
{
	LlmEnrichPlace *places;
	int n;
	int next;
	bool again; /* also rows that have a value, or have failed before */
} LlmEnrichList;

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
	Datum key;     /* jsonb */
	LlmCall *call; /* NULL = its SQL has raised an error, which is its failure */
	LlmEnrichHold hold;
	int n_vain;     /* writes that others have ended */
	bool converted; /* value is there */
	Datum value;
	LlmFailure failure; /* sqlstate 0 = none */
	int attempts;       /* that have failed, when it is noted */
	int n_late;         /* a worker's: writes that it was not ready for */
	void *entries;      /* a worker's: what it is done for; memory of the row */
} LlmEnrichRow;

typedef struct LlmEnrich
{
	/* set by the caller */
	LlmEnrichTarget *target;
	const char *sort;                  /* ORDER BY of the list, NULL = the order of a scan */
	int64 enrichment;                  /* a standing one, 0 = CALL llm_enrich */
	NullableDatum args[LLM_ARG_COUNT]; /* of a call; the first is the prompt's place */
	int batch_size;
	int concurrency;
	int64 max_rows; /* to ask about; -1 = all */
	int max_attempts;
	TimestampTz started;
	TimestampTz told;    /* the last notice */
	MemoryContext cxt;   /* rows, list, plans: lives as long as the procedure */
	MemoryContext work;  /* of one transaction */
	MemoryContext calls; /* parent of the rows' contexts */

	/* rows claimed and not yet written or dropped: [n_rows], room for concurrency + batch_size */
	LlmEnrichRow *rows;
	int n_rows;

	/* what has a lease: those rows, and more during a claim; [n_leased], room for concurrency more */
	LlmEnrichPlace *leased;
	int n_leased;

	LlmEnrichList list; /* what llm_enrich_rows_list found */
	bool cut;           /* there may be more than it holds */

	LlmEnrichPlanCache plans;
	int64 n_claimed;
	int64 n_written;
	int64 n_failed;
	int64 n_lost;
	LlmCallUsage usage; /* of rows counted so far */
	int64 n_skipped;    /* in this pass: rows that have failed before */
	LlmFailure stop;    /* what no row is to blame for; sqlstate 0 = none */
	LlmFailure failure; /* of the first row that failed */
} LlmEnrich;

/* ---- the loop, enrich.c ---- */

/* Look at args and take out of the options what calls do not know; raises what is wrong with them, or with
 * the right on the model. True when on_error says that a row's error shall end the whole. */
extern bool llm_enrich_check_call(LlmEnrich *e);
/* How many rows may be claimed now; 0 = not enough to begin with. */
extern int llm_enrich_room(const LlmEnrich *e);
/* Whether it is time to write: a batch is finished, or all rows are, or some and long since the time. */
extern bool llm_enrich_ready(const LlmEnrich *e, TimestampTz since);
/* When it is not: wait for a moment, without a snapshot. */
extern void llm_enrich_wait(LlmEnrich *e, TimestampTz since);
/* When all that is left is locked by others, sleep for a moment. */
extern void llm_enrich_rest(LlmEnrich *e);

/* ---- the rows ---- */

/* Make room for rows, as concurrency and batch_size say, in the current context. */
extern void llm_enrich_rows_begin(LlmEnrich *e);
/* List what is to be done now. In a transaction. */
extern void llm_enrich_rows_list(LlmEnrich *e);
/* Rows in work have so much memory that no more are to be claimed. */
extern bool llm_enrich_rows_full(const LlmEnrich *e);
/* Claim up to n rows of a list, until that is so; they are the last of e->rows. In a transaction. */
extern void llm_enrich_rows_claim(LlmEnrich *e, LlmEnrichList *list, int n);
/* Forget row i and its lease; an unanswered request is cancelled. */
extern void llm_enrich_rows_drop(LlmEnrich *e, int i);
/* An error is the failure of a row. */
extern void llm_enrich_rows_fail(LlmEnrichRow *row, const ErrorData *error);
/* It has its answer or its failure. */
extern bool llm_enrich_rows_finished(const LlmEnrichRow *row);
/* Give back all leases and statements, also while an error is handled. */
extern void llm_enrich_rows_end(LlmEnrich *e);

/* Write finished rows. In a transaction, after whose commit llm_enrich_settle counts and drops them. */
extern void llm_enrich_write(LlmEnrich *e);
extern void llm_enrich_settle(LlmEnrich *e);

#endif
