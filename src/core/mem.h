/* core/mem.h - memory of the engine: big aligned blocks and arenas that are freed as one. */
#ifndef LLM_CORE_MEM_H
#define LLM_CORE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of memory that this process may use at most: the machine's, or the limit of its control group
 * where one is visible (cgroup v2 memory.max); and that could be given away now. */
int64_t llm_memory_total(void);
int64_t llm_memory_available(void);

/* Zeroed anonymous memory, aligned to 2 MiB when that large (64 bytes otherwise) and advised to use
 * huge pages: 4 KiB pages cost up to 40% of decode bandwidth. NULL when memory is out or nbytes is
 * 0. Free with the same nbytes. */
void *llm_block_create(size_t nbytes);
void llm_block_free(void *p, size_t nbytes);
/* Whether the first nbytes of a large block, all written to, lie on huge pages; what does not is moved
 * there if it can be. True as well where the system cannot tell (before Linux 6.1). */
bool llm_block_collapse(void *p, size_t nbytes);

/* An arena: chunks that are freed together. Zero-initialise; single-threaded. */
typedef struct LlmArena
{
	struct LlmArenaChunk *chunks; /* newest first, owned */
} LlmArena;

/* Zeroed memory aligned to 16 bytes; NULL when memory is out. nbytes 0 gives a valid pointer. */
void *llm_arena_alloc(LlmArena *a, size_t nbytes);
/* n * size with an overflow check. */
void *llm_arena_array(LlmArena *a, size_t n, size_t size);
/* A NUL-terminated copy of p[0..n). */
char *llm_arena_copy(LlmArena *a, const void *p, size_t n);
void llm_arena_fini(LlmArena *a);

#endif
