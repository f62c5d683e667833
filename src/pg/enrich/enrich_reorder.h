/*
 * pg/enrich/enrich_reorder.h - the order of a template's lines in which its prompts share most.
 *
 * Prompts that begin alike share what is computed for their beginning. With rows in the order of their
 * prompts, each distinct beginning is computed once; so the best order of the lines makes the sum, over
 * all lines, of length times number of distinct beginnings up to there, smallest: long lines of few values
 * first, and a line that follows from those before it right after them. (After Liu et al., "Optimizing
 * LLM Queries in Relational Workloads", arXiv 2403.05821, who reorder fields row by row; here one order
 * holds for all rows.) The numbers come from the planner's statistics.
 *
 * What is moved is a line that names columns, as a whole, with the lines without columns right before it;
 * lines before the first and after the last of these stay where they are.
 */
#ifndef LLM_PG_ENRICH_ENRICH_REORDER_H
#define LLM_PG_ENRICH_ENRICH_REORDER_H

#include "postgres.h"

#include "pg/enrich/enrich_target.h"

typedef struct LlmEnrichOrder
{
	bool known;     /* the statistics were there */
	char *template; /* reordered; NULL = left as it was written */
	char *sort;     /* ORDER BY of the rows, NULL = that of a scan */
	double
		as_written; /* expected part of the prompts' bytes that is shared, with the lines as written */
} LlmEnrichOrder;

/* Find the order for a template that has been opened as t, in CurrentMemoryContext. Tells what was chosen,
 * or why nothing is moved, by a NOTICE. In a transaction, with SPI; reads statistics as the current user. */
extern void llm_enrich_reorder(const LlmEnrichTarget *t, const char *template, LlmEnrichOrder *out);

#endif
