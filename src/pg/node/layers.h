/* pg/node/layers.h - take one plan node apart: filters and projections that call the model. */
#ifndef LLM_PG_NODE_LAYERS_H
#define LLM_PG_NODE_LAYERS_H

#include "postgres.h"

#include "nodes/plannodes.h"

/* Put LLM Batch nodes above `plan` for the calls in its quals and target list; returns the new top,
 * or plan itself when there is nothing to hoist. plan is modified in place. next_id gives fresh plan
 * node ids. */
extern Plan *llm_layers_build(Plan *plan, int *next_id);

#endif
