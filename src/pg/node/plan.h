/* pg/node/plan.h - the planner hook that puts LLM Batch nodes into finished plans. */
#ifndef LLM_PG_NODE_PLAN_H
#define LLM_PG_NODE_PLAN_H

/* Install planner_hook (chained) and register the node's methods; from _PG_init. */
extern void llm_node_init(void);

#endif
