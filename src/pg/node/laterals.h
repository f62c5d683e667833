/* pg/node/laterals.h - calls on the inner side of a nested loop that gives one row per outer row. */
#ifndef LLM_PG_NODE_LATERALS_H
#define LLM_PG_NODE_LATERALS_H

#include "postgres.h"

#include "nodes/plannodes.h"
#include "pg/node/layers.h"

/* The plan in whose place a nested loop can do without its loop: LATERAL (SELECT llm_generate(x)) and
 * LATERAL llm_generate(x) become columns over the outer side, with batch nodes for their calls.
 * Returns join itself when it is none of these. */
extern Plan *llm_laterals_build(NestLoop *join, LlmLayersScope *scope);

#endif
