/* pg/node/whole.h - LLM Batch nodes whose rows are sure to be read to the end. */
#ifndef LLM_PG_NODE_WHOLE_H
#define LLM_PG_NODE_WHOLE_H

#include "postgres.h"

#include "nodes/plannodes.h"

/* Tell each batch node of a finished statement how far it is read (LlmNodeRead). */
extern void llm_whole_mark(PlannedStmt *stmt);

/* True when a nested loop reads every scan of its inner side to the end; otherwise it stops at a match. */
extern bool llm_whole_inner(const Join *join);

#endif
