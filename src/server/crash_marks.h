/*
 * server/crash_marks.h - the engine's side of the crash journal (wire/journal.h).
 *
 * A request's entry over time, each arrow one atomic store:
 *
 *   FREE -> RUNNING          while the engine works on it beside others, or tokenises it
 *   RUNNING -> FREE          it ended, or left the batch (preempted)
 *   RUNNING -> SUSPECT       the engine died meanwhile; done by the next engine at its start
 *   SUSPECT -> ALONE         resubmitted, and the engine works on nothing else
 *   ALONE -> SUSPECT         it left the batch without an end
 *   ALONE -> FREE            it ended: it was innocent
 *   ALONE -> SUSPECT         somebody else killed the engine; done by the next engine, a few times
 *   ALONE -> GUILTY          the engine died again; done by the next engine. Its resubmission is
 *                            refused; the entry stays until its connection closes, so that another
 *                            crash before the refusal has arrived does not acquit it
 *
 * Engine thread only, except pardon, and open and close, which run when that thread does not.
 */
#ifndef LLM_SERVER_CRASH_MARKS_H
#define LLM_SERVER_CRASH_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "wire/journal.h"

typedef struct LlmJournalWriter
{
	LlmJournal *map;                         /* shared mapping; NULL = closed */
	uint32_t stamp;                          /* generation of this engine */
	int32_t n_free;                          /* entries on the stack */
	int32_t n_blamed;                        /* entries in blamed */
	int16_t free_slots[LLM_JOURNAL_ENTRIES]; /* [n_free] stack */
	int16_t blamed[LLM_JOURNAL_ENTRIES];     /* [n_blamed] SUSPECT or GUILTY, from predecessors */
} LlmJournalWriter;

/* Map fd, which is grown when it is a fresh memfd, and turn what a dead predecessor left into
 * suspects and guilty ones. Errors: LLM_E_IO. */
LlmStatus llm_journal_open(LlmJournalWriter *j, int fd, LlmError *err);
/* The process ends by order, which is no crash: give up the marks of requests that run now. Safe
 * beside an engine thread that is stuck in a step. */
void llm_journal_pardon(LlmJournalWriter *j);
/* The same, and unmap. */
void llm_journal_close(LlmJournalWriter *j);

/* The slot of a request that a predecessor left behind, or -1. */
int32_t llm_journal_find(const LlmJournalWriter *j, uint64_t connection, uint64_t id);
uint32_t llm_journal_state(const LlmJournalWriter *j, int32_t slot);

/* A slot for a request, still FREE; the oldest blamed one is given up when all are taken. -1 when
 * every entry is in use by this engine. */
int32_t llm_journal_take(LlmJournalWriter *j, uint64_t connection, uint64_t id);
/* Set the state of an entry; LLM_JOURNAL_FREE gives the slot back. */
void llm_journal_mark(LlmJournalWriter *j, int32_t slot, uint32_t state);
/* Give back what predecessors left of a connection that has closed for good. */
void llm_journal_forget(LlmJournalWriter *j, uint64_t connection);

#endif
