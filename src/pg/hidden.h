/* pg/hidden.h - errors that on_error => 'null' hid, and the statement's one WARNING about them. */
#ifndef LLM_PG_HIDDEN_H
#define LLM_PG_HIDDEN_H

#include "postgres.h"

/* Have the WARNING, if one is due by then, come when cxt (memory of a running plan or expression)
 * is reset or deleted. Once per plan node or expression is enough. */
extern void llm_hidden_arm(MemoryContext cxt);

/* Count one hidden error. */
extern void llm_hidden_note(const char *error);

#endif
