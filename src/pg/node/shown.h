/* pg/node/shown.h - how EXPLAIN shows a call. */
#ifndef LLM_PG_NODE_SHOWN_H
#define LLM_PG_NODE_SHOWN_H

#include "postgres.h"

#include "nodes/primnodes.h"

/* A copy of a call for deparsing, as a user would write it: defaulted arguments are left out and
 * later ones go by name. original is the call in the Vars of the plan node that it was taken from,
 * call the same with columns of the node's child as arguments. */
extern FuncExpr *llm_node_show_call(const FuncExpr *original, const FuncExpr *call);

#endif
