/* pg/node/inners.h - filters that call the model, out of the inner side of a nested loop. */
#ifndef LLM_PG_NODE_INNERS_H
#define LLM_PG_NODE_INNERS_H

#include "postgres.h"

#include "nodes/plannodes.h"

/* Make quals of the inner scan that call the model conditions of the join, where layers.c can take
 * them up. join is modified in place. rtable is the statement's. */
extern void llm_inners_lift(NestLoop *join, List *rtable);

#endif
