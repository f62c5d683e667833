/* pg/node/pulled.h - conditions that call the model, after the joins beside them. */
#ifndef LLM_PG_NODE_PULLED_H
#define LLM_PG_NODE_PULLED_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* A copy of query in which such conditions of one query level are evaluated above that level's joins;
 * NULL when there is none. It is the first level of the kind after *skip of them, which grows by those
 * that cannot be changed. Levels are numbered from the outside, and one that has been changed does not
 * count again. query is left as it is. */
extern Query *llm_pulled_query(Query *query, int *skip);

#endif
