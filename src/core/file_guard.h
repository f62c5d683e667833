/*
 * core/file_guard.h - mapped files whose bytes turn out not to be there.
 *
 * Reading a mapping raises SIGBUS where the file has become shorter or its storage fails. That must not
 * end a process in which others' work runs, again and again while somebody asks for that file. So a
 * guarded mapping has zeroes instead, from the page that was missing to its end, and is lost: who has
 * read from it looks whether it is before he believes anything (llm_file_check).
 *
 * The signal is for the thread that reads, which must not block it (core/thread.h).
 */
#ifndef LLM_CORE_FILE_GUARD_H
#define LLM_CORE_FILE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Guard a read-only mapping of nbytes > 0; 0 = there are too many, and it is not. */
int llm_file_guard_add(const void *data, size_t nbytes);
/* Before it is unmapped; guard 0 is none. */
void llm_file_guard_remove(int guard);
bool llm_file_guard_lost(int guard);

#endif
