/* pg/estimate.h - what a call of one of our functions will cost, guessed from its expression alone. */
#ifndef LLM_PG_ESTIMATE_H
#define LLM_PG_ESTIMATE_H

#include "postgres.h"

#include "nodes/pathnodes.h"
#include "nodes/pg_list.h"

/* Tokens of one call; the engine is not asked. */
typedef struct LlmEstimate
{
	double prompt;    /* read */
	double generated; /* at most: an answer may end earlier */
} LlmEstimate;

/* The estimate for a call with these arguments (expressions, all of the function's). root tells
 * columns' average widths; NULL = not known. */
extern LlmEstimate llm_estimate_call(PlannerInfo *root, List *args);

#endif
