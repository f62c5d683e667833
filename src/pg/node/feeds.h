/* pg/node/feeds.h - calls in the arguments of aggregates and sets: a batch node below those. */
#ifndef LLM_PG_NODE_FEEDS_H
#define LLM_PG_NODE_FEEDS_H

#include "postgres.h"

#include "nodes/plannodes.h"
#include "pg/node/layers.h"

/* When plan is an Agg or a WindowAgg whose aggregates, or a ProjectSet whose sets, call the model in
 * their arguments, put what computes them below it and let it read the columns of that. plan is modified
 * in place. */
extern void llm_feeds_build(Plan *plan, LlmLayersScope *scope);

#endif
