/* pg/estimate.h - what a call of one of our functions will cost, guessed from its expression alone. */
#ifndef LLM_PG_ESTIMATE_H
#define LLM_PG_ESTIMATE_H

#include "postgres.h"

#include "nodes/nodes.h"
#include "nodes/pg_list.h"

/* Tokens of one call; the engine is not asked. */
typedef struct LlmEstimate
{
	double prompt;    /* read */
	double generated; /* at most: an answer may end earlier */
} LlmEstimate;

/* The estimate for a call with these arguments (expressions, all of the function's). rtable tells
 * of which tables the columns are; those that are not in it count as a text of usual width. */
extern LlmEstimate llm_estimate_call(List *rtable, List *args);

/* What the planner shall think that a call costs, in its units. */
extern Cost llm_estimate_cost(const LlmEstimate *e);

#endif
