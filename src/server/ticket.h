/*
 * server/ticket.h - one thing that a client waits for: a SUBMIT, a LOAD(now) or an UNLOAD.
 *
 * Made by the I/O thread from a frame, handed over in a command, and from then on owned by the
 * engine thread. A ticket is WAITING in a queue of models.h until its model is resident, then
 * (SUBMIT only) ADMITTED to that model's engine until the result comes. It ends exactly once: answered,
 * cancelled, or closed with its connection.
 */
#ifndef LLM_SERVER_TICKET_H
#define LLM_SERVER_TICKET_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/llm.h"
#include "server/spec.h"

#include "llm.pb-c.h"

typedef enum LlmTicketKind
{
	LLM_TICKET_SUBMIT = 0,
	LLM_TICKET_LOAD = 1,
	LLM_TICKET_UNLOAD = 2
} LlmTicketKind;

typedef struct LlmTicket
{
	LlmTicketKind kind;
	LlmRequestKey key;   /* client = serial of the connection in this engine */
	uint64_t connection; /* the backend's own number: survives the engine */
	LlmSpec *spec;       /* one reference */
	Llm__Frame *frame;   /* SUBMIT: owned until admitted, request borrows from it */
	void *lists;         /* SUBMIT: owned until admitted, request borrows from it; may be NULL */
	LlmRequest request;  /* SUBMIT */
	int64_t arrived_ms;  /* monotonic; request.timeout_ms counts from here */

	/* engine thread only */
	struct LlmModelQueue *queue;  /* while it waits, see models.h */
	struct LlmResident *resident; /* once it is admitted to that one's engine, see residents.h */
	bool alone;                   /* suspect of a crash: runs by itself */
	int32_t slot;                 /* of the journal, -1 = no entry */
	int32_t batch_index;          /* in its model's batch_marks, -1 = not */
	struct LlmTicket *hash_next;  /* same bucket */
	struct LlmTicket *queue_prev; /* models.h */
	struct LlmTicket *queue_next;
} LlmTicket;

/* Zeroed but for slot and batch_index; takes over frame (not when NULL is returned) and adds a
 * reference to spec. */
LlmTicket *llm_ticket_create(LlmTicketKind kind, LlmRequestKey key, LlmSpec *spec,
							 Llm__Frame *frame);
void llm_ticket_free(LlmTicket *t); /* NULL is fine */
/* Free frame and lists early: nothing borrows from them after admission. */
void llm_ticket_drop_frame(LlmTicket *t);

/* All tickets of the engine thread by key. */
#define LLM_TICKET_BUCKETS 4096
typedef struct LlmTickets
{
	LlmTicket *buckets[LLM_TICKET_BUCKETS];
	int32_t n;
} LlmTickets;

void llm_tickets_add(LlmTickets *h, LlmTicket *t);
void llm_tickets_remove(LlmTickets *h, LlmTicket *t);
LlmTicket *llm_tickets_find(const LlmTickets *h, LlmRequestKey key); /* may be NULL */

#endif
