/* pg/hidden.h - errors that on_error => 'null' hid, and the statement's one WARNING about them. */
#ifndef LLM_PG_HIDDEN_H
#define LLM_PG_HIDDEN_H

#include "postgres.h"

/* Count one hidden error. The WARNING comes when cxt (memory of the running plan or expression) is
 * reset or deleted. */
extern void llm_hidden_note(MemoryContext cxt, const char *error);

#endif
