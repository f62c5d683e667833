/*
 * wire/journal.h - the crash journal: which requests were in the batch when an engine died.
 *
 * A memfd that the supervisor creates once and every engine inherits as LLM_FD_JOURNAL and maps
 * shared, so it outlives an engine. The engine's alone, but for the field `killed`, which the supervisor
 * writes while there is no engine. An engine that starts reads it first: RUNNING entries of its
 * predecessor become SUSPECT, an ALONE entry becomes GUILTY; one that ends by SIGTERM takes its marks
 * back, a running step or not. A suspect's resubmission runs alone; a
 * guilty one's is refused with LLM_E_CRASHED. An entry is cleared when its request has ended.
 *
 * An engine that somebody else killed (an administrator, the system for want of memory) need not have
 * died of what it worked on: then an ALONE entry becomes SUSPECT again, LLM_JOURNAL_KILLS - 1 times. So
 * chance refuses nobody, and a request that is the reason each time is not tried for ever.
 */
#ifndef LLM_WIRE_JOURNAL_H
#define LLM_WIRE_JOURNAL_H

#include <stdint.h>

#define LLM_JOURNAL_MAGIC 0x4C4C4D4Au /* "LLMJ" */
#define LLM_JOURNAL_ENTRIES 4096
#define LLM_JOURNAL_KILLS 5

enum
{
	LLM_JOURNAL_FREE = 0,
	LLM_JOURNAL_RUNNING = 1, /* in the batch beside others */
	LLM_JOURNAL_ALONE = 2,   /* in the batch by itself, after a crash */
	LLM_JOURNAL_SUSPECT = 3, /* was RUNNING when an engine died */
	LLM_JOURNAL_GUILTY = 4   /* was ALONE when an engine died, or was killed so often */
};

typedef struct LlmJournalEntry
{
	uint64_t connection; /* the backend's own number, from HELLO */
	uint64_t id;         /* of the request */
	uint32_t state;      /* LLM_JOURNAL_*; written last */
	uint32_t stamp;      /* generation that wrote it: the oldest is reused when all are taken */
	uint32_t kills;      /* engines that somebody else killed while this was ALONE */
} LlmJournalEntry;

typedef struct LlmJournal
{
	uint32_t magic;
	uint32_t n_entries; /* LLM_JOURNAL_ENTRIES */
	uint32_t killed;    /* 1: the last engine was killed by somebody else */
	LlmJournalEntry entries[LLM_JOURNAL_ENTRIES];
} LlmJournal;

#endif
