/* pg/node/reach.h - everything that a plan runs: the plans below it, and calls of the model anywhere. */
#ifndef LLM_PG_NODE_REACH_H
#define LLM_PG_NODE_REACH_H

#include "postgres.h"

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/* Visit the plans right below plan until fn says true; true when it did. */
extern bool llm_reach_children(Plan *plan, bool (*fn)(Plan *, void *), void *context);

/* The same for the expressions of plan itself, its own initPlans among them. */
extern bool llm_reach_exprs(Plan *plan, bool (*fn)(Node *, void *), void *context);

/* True when running plan may call the model: in an expression of it or of a plan below it, or of a
 * sub-select that one of these runs. subplans are the statement's. */
extern bool llm_reach_calls(Plan *plan, List *subplans);

/* False when no plan of query can call the model: it names no function but the server's own. One of
 * others may be ours, or an SQL function whose body takes its place. */
extern bool llm_reach_may_call(Query *query);

#endif
