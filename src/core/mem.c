/* core/mem.c - huge-page blocks and arenas. */
#include "core/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t) 2 << 20)
#define CHUNK_MIN ((size_t) 64 << 10)

typedef struct LlmArenaChunk
{
	struct LlmArenaChunk *next;
	size_t used; /* bytes of data handed out */
	size_t cap;  /* bytes of data */
	_Alignas(16) unsigned char data[];
} LlmArenaChunk;

void *
llm_block_create(size_t nbytes)
{
	void *p;
	size_t align = nbytes >= HUGE_PAGE ? HUGE_PAGE : 64;

	if (nbytes == 0 || nbytes > SIZE_MAX - align)
		return NULL;
	nbytes = (nbytes + align - 1) / align * align;
	if (posix_memalign(&p, align, nbytes) != 0)
		return NULL;
	if (align == HUGE_PAGE)
		madvise(p, nbytes, MADV_HUGEPAGE); /* advice: a refusal only costs speed */
	memset(p, 0, nbytes);
	return p;
}

void
llm_block_free(void *p, size_t nbytes)
{
	(void) nbytes;
	free(p);
}

void *
llm_arena_alloc(LlmArena *a, size_t nbytes)
{
	LlmArenaChunk *c = a->chunks;
	void *p;

	if (nbytes > SIZE_MAX / 2)
		return NULL;
	nbytes = (nbytes + 15) & ~(size_t) 15;
	if (c == NULL || c->cap - c->used < nbytes)
	{
		size_t cap = nbytes > CHUNK_MIN ? nbytes : CHUNK_MIN;

		c = calloc(1, sizeof(*c) + cap);
		if (c == NULL)
			return NULL;
		c->cap = cap;
		c->next = a->chunks;
		a->chunks = c;
	}
	p = c->data + c->used;
	c->used += nbytes;
	return p;
}

void *
llm_arena_array(LlmArena *a, size_t n, size_t size)
{
	if (size != 0 && n > SIZE_MAX / size)
		return NULL;
	return llm_arena_alloc(a, n * size);
}

char *
llm_arena_copy(LlmArena *a, const void *p, size_t n)
{
	char *q = n == SIZE_MAX ? NULL : llm_arena_alloc(a, n + 1);

	if (q == NULL)
		return NULL;
	if (n > 0)
		memcpy(q, p, n);
	q[n] = '\0';
	return q;
}

void
llm_arena_fini(LlmArena *a)
{
	while (a->chunks != NULL)
	{
		LlmArenaChunk *c = a->chunks;

		a->chunks = c->next;
		free(c);
	}
}
