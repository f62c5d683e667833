/*
 * pg/enrich/enrich_look.h - look at listed places: which rows are to be done, and their prompts.
 *
 * The caller's SQL (prompt, expr, filter) runs here. An error that is a row's data's (a division by zero, a cast
 * that fails, an exception of a function) is that row's: places are looked at in a subtransaction, and by halves
 * when that fails. Errors that say nothing about a row are raised.
 */
#ifndef LLM_PG_ENRICH_ENRICH_LOOK_H
#define LLM_PG_ENRICH_ENRICH_LOOK_H

#include "postgres.h"

#include "pg/enrich/enrich_rows.h"

/* Which places to look at, and what was found there. */
typedef struct LlmEnrichLook
{
	LlmEnrich *e;
	bool again;             /* also rows that have a value */
	bool claims;            /* rows are locked and get prompts; else they are only seen */
	int n;                  /* places */
	LlmEnrichPlace *places; /* [n], sorted by llm_enrich_look_sort */
	bool *
		seen; /* [n] a row (if it claims: that is to be done) was there, or its SQL has raised an error */
	bool *wanted; /* [n] unless it claims: it is to be done, or has raised one */

	/* what is claimed */
	Size room;   /* for prompts; the one that passes it is the last */
	Size nbytes; /* of the prompts */
	int n_rows;
	LlmEnrichRow *rows;     /* [n_rows], room for n; with a failure when their SQL has raised one */
	NullableDatum *prompts; /* [n_rows], NULL for these */
} LlmEnrichLook;

extern void llm_enrich_look_sort(LlmEnrichPlace *places, int n);
/* Its number in sorted places; -1 = it is not there. */
extern int llm_enrich_look_at(const LlmEnrichPlace *places, int n, const LlmEnrichPlace *place);

/* Look at all places; how many of them, when there was no room for the rest. In a transaction. */
extern int llm_enrich_look(LlmEnrichLook *l);

/* For each of places [n], in CurrentMemoryContext, whether there is a row that is to be done, or whose SQL raises an
 * error: a claim will tell. With again it may have a value, and a place from which it has gone counts too. */
extern bool *llm_enrich_look_wanted(LlmEnrich *e, bool again, const LlmEnrichPlace *places, int n);

/* Whether an error is that of the data of a row. */
extern bool llm_enrich_look_is_of_row(int sqlstate);

#endif
