/*
 * server/batch_marks.h - who is blamed when the engine dies now.
 *
 * A request is marked in the journal (crash_marks.h) while the engine works on it and on nobody else
 * but its mates: RUNNING beside others, ALONE when it is a suspect and by itself. Each resident model
 * has a batch; its marks are in force from its step on until the engine turns to something else:
 * another model's step, a submit, a load. So a crash there is not blamed on a batch that rests.
 * Engine thread only.
 */
#ifndef LLM_SERVER_BATCH_MARKS_H
#define LLM_SERVER_BATCH_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/crash_marks.h"
#include "server/ticket.h"

#define LLM_BATCH_MAX 1024 /* sequences in a step, see engine/llm.h */

/* The requests of a model's last step. Zero-initialise. */
typedef struct LlmBatchMarks
{
	LlmTicket *lists[2][LLM_BATCH_MAX]; /* [n] of the last step, and room for the next */
	int which;                          /* index of the former */
	int32_t n;
	bool in_force;
} LlmBatchMarks;

/* The engine is about to work on t; by_itself = on nothing else. */
void llm_ticket_blame(LlmTicket *t, LlmJournalWriter *j, bool by_itself);
/* It has stopped working on t, which is not at its end. */
void llm_ticket_unblame(LlmTicket *t, LlmJournalWriter *j);

/* Before a step; and before the engine turns to something else. Both may be called twice. */
void llm_batch_marks_put(LlmBatchMarks *b, LlmJournalWriter *j);
void llm_batch_marks_lift(LlmBatchMarks *b, LlmJournalWriter *j);
/* The batch is another one: those of the n keys that are known. The marks are in force. */
void llm_batch_marks_change(LlmBatchMarks *b, LlmJournalWriter *j, const LlmTickets *tickets,
							const LlmRequestKey *keys, int32_t n);
/* t ends. */
void llm_batch_marks_remove(LlmBatchMarks *b, LlmTicket *t);

#endif
