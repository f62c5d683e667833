/* pg/node/layers.h - take one plan node apart: filters and projections that call the model. */
#ifndef LLM_PG_NODE_LAYERS_H
#define LLM_PG_NODE_LAYERS_H

#include "postgres.h"

#include "nodes/plannodes.h"

/* What nodes that are put in must know of the statement. */
typedef struct LlmLayersScope
{
	int next_id;       /* for fresh plan node ids */
	List *rtable;      /* of the finished plan */
	List *param_types; /* of its executor parameters */
} LlmLayersScope;

/* Put LLM Batch nodes above `plan` for the calls in its quals and target list; returns the new top,
 * or plan itself when there is nothing to hoist. plan is modified in place. */
extern Plan *llm_layers_build(Plan *plan, LlmLayersScope *scope);

/* True for a call that returns a set; in the target list of a ProjectSet. */
extern bool llm_layers_is_set(const Node *node);

/* True for the three nodes that join. */
extern bool llm_layers_is_join(const Plan *plan);

/* A Var for column attno of the plan below (OUTER_VAR) or the scan tuple (INDEX_VAR), of expr's type. */
extern Var *llm_layers_var(Index varno, AttrNumber attno, Node *expr);

/* What join hands its inner side for node, in the columns of the outer side: a copy; NULL when node is no
 * parameter of the loop. */
extern Node *llm_layers_handed(const NestLoop *join, const Node *node);

/* A target list that passes on the columns of child as they are. */
extern List *llm_layers_pass_on(const Plan *child);

/* A node that delivers tlist (in OUTER_VAR) over child; costs and parameters are those of like. */
extern Plan *llm_layers_project(Plan *child, List *tlist, const Plan *like, LlmLayersScope *scope);

#endif
