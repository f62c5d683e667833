/* pg/node/feeds.h - calls in the arguments of aggregates: a batch node below the aggregating node. */
#ifndef LLM_PG_NODE_FEEDS_H
#define LLM_PG_NODE_FEEDS_H

#include "postgres.h"

#include "nodes/plannodes.h"
#include "pg/node/layers.h"

/* When plan is an Agg or a WindowAgg whose aggregates call the model in their arguments, put what
 * computes them below it and let the aggregates read its columns. plan is modified in place. */
extern void llm_feeds_build(Plan *plan, LlmLayersScope *scope);

#endif
