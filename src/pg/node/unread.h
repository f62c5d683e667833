/* pg/node/unread.h - columns of views and sub-selects that call the model and that nobody reads. */
#ifndef LLM_PG_NODE_UNREAD_H
#define LLM_PG_NODE_UNREAD_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* Make them NULL, in query and in every query within it; query is changed in place. */
extern void llm_unread_remove(Query *query);

#endif
