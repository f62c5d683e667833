/* pg/node/handed.h - calls in the arguments of functions that a nested loop scans. */
#ifndef LLM_PG_NODE_HANDED_H
#define LLM_PG_NODE_HANDED_H

#include "postgres.h"

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "pg/node/layers.h"

/* FROM docs, f(llm_generate(docs.body)): let the outer side of join compute the arguments that call the
 * model, with batch nodes, and hand them in as parameters. join is modified in place. */
extern void llm_handed_build(NestLoop *join, LlmLayersScope *scope);

/* True when join evaluates function again for each outer row; otherwise what it gave is kept and read
 * again, and so are the answers in its arguments. */
extern bool llm_handed_again(const NestLoop *join, const RangeTblFunction *function);

#endif
