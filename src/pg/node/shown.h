/* pg/node/shown.h - how EXPLAIN shows a call. */
#ifndef LLM_PG_NODE_SHOWN_H
#define LLM_PG_NODE_SHOWN_H

#include "postgres.h"

#include "nodes/primnodes.h"

/* What stands for the result of a call in expressions that are deparsed: the call as a user would write it, defaulted
 * arguments left out and later ones by name. original is the call in the Vars of the plan node that it was taken
 * from, call the same with columns of the node's child as arguments; guarded: it is made for some rows only. The
 * arguments may be missing. */
extern FuncExpr *llm_node_show_result(const FuncExpr *original, const FuncExpr *call, bool guarded);

/* The call itself, with its arguments, in the node that makes it: result is what stands for it. */
extern FuncExpr *llm_node_show_call(const FuncExpr *result, const FuncExpr *call);

#endif
