/* pg/node/grouping.h - the order in which rows that were read ahead are sent to the engine. */
#ifndef LLM_PG_NODE_GROUPING_H
#define LLM_PG_NODE_GROUPING_H

#include "postgres.h"

#include "pg/call.h"

/* A row to be sent. */
typedef struct LlmGroupingRow
{
	LlmCallPrompt prompt; /* of the row's first call with a request */
	int64 number;         /* of the row in input order */
	int slot;             /* the caller's */
	Size shared;          /* scratch: bytes shared with the row before, sorted */
} LlmGroupingRow;

/* Put rows [n] whose prompts begin alike side by side, so that the prefix cache computes what they
 * share once and need not keep it for long. The group of the oldest row comes first, and where
 * grouping gains nothing rows stay in input order: the consumer wants the oldest next. */
extern void llm_grouping_order(LlmGroupingRow *rows, int n);

#endif
