/* core/mem.c - huge-page blocks and arenas. */
#include "core/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t) 2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; younger than the C library of Debian 12 */
#endif
/* The first two chunks of an arena are below 1 KiB: a request for more makes glibc's malloc put its lists of
 * small free blocks in order. Each later one is twice the one before. */
#define CHUNK_FIRST ((size_t) 960)
#define CHUNK_LARGE ((size_t) 64 << 10)

typedef struct LlmArenaChunk
{
	struct LlmArenaChunk *next;
	size_t used; /* bytes of data handed out */
	size_t cap;  /* bytes of data */
	_Alignas(16) unsigned char data[];
} LlmArenaChunk;

int64_t
llm_memory_total(void)
{
	int64_t total = (int64_t) sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");
	long long limit;

	if (f == NULL)
		return total;
	if (fscanf(f, "%lld", &limit) == 1 && limit > 0 && limit < total)
		total = limit;
	fclose(f);
	return total;
}

int64_t
llm_memory_available(void)
{
	int64_t total = llm_memory_total(), left;
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long long kib = -1;

	while (f != NULL && kib < 0 && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
			kib = -1;
	if (f != NULL)
		fclose(f);
	left = kib >= 0 ? (int64_t) kib * 1024
					: (int64_t) sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
	return left < total ? left : total;
}

/* Large blocks come from mmap, so that their pages are zero without being touched: a KV pool of
 * gigabytes costs nothing until it is used. */
static void *
map_block(size_t nbytes)
{
	size_t room;
	char *p, *q;

	if (nbytes > SIZE_MAX - 2 * HUGE_PAGE)
		return NULL;
	nbytes = (nbytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	room = nbytes + HUGE_PAGE;
	p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			 0);
	if (p == MAP_FAILED)
		return NULL;
	q = (char *) (((uintptr_t) p + HUGE_PAGE - 1) & ~(uintptr_t) (HUGE_PAGE - 1));
	if (q > p)
		munmap(p, (size_t) (q - p));
	if (q + nbytes < p + room)
		munmap(q + nbytes, (size_t) (p + room - (q + nbytes)));
	madvise(q, nbytes, MADV_HUGEPAGE); /* advice: a refusal only costs speed */
	return q;
}

void *
llm_block_create(size_t nbytes)
{
	void *p;

	if (nbytes >= HUGE_PAGE)
		return map_block(nbytes);
	if (nbytes == 0 || posix_memalign(&p, 64, nbytes) != 0)
		return NULL;
	memset(p, 0, nbytes);
	return p;
}

void
llm_block_free(void *p, size_t nbytes)
{
	if (p == NULL)
		return;
	if (nbytes >= HUGE_PAGE)
		munmap(p, (nbytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	else
		free(p);
}

bool
llm_block_collapse(void *p, size_t nbytes)
{
	if (madvise(NULL, 0, MADV_COLLAPSE) != 0)
		return true; /* advice that this system does not know */
	return madvise(p, (nbytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1), MADV_COLLAPSE) == 0;
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
		size_t cap = c == NULL || c->next == NULL ? CHUNK_FIRST : 2 * c->cap;

		cap = cap < CHUNK_LARGE ? cap : CHUNK_LARGE;
		cap = cap > nbytes ? cap : nbytes;

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
