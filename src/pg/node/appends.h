/* pg/node/appends.h - one batch node above an Append instead of equal ones in its members. */
#ifndef LLM_PG_NODE_APPENDS_H
#define LLM_PG_NODE_APPENDS_H

#include "postgres.h"

#include "nodes/plannodes.h"

/* Move batch nodes that all members of append have alike above it; returns the new top, or append
 * itself. Modified in place. */
extern Plan *llm_appends_build(Append *append);

#endif
