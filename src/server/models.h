/*
 * server/models.h - the tickets that wait, a queue for each model.
 *
 * Every ticket enters the queue of its model, at the end. The queues themselves stand in a line, in
 * the order in which their oldest tickets came: the first whose model is not resident is the next to
 * be loaded. Who is resident, and who must go for it, is not known here (residents.h); the engine
 * thread looks at the heads and removes what it serves. Engine thread only; no calls into the engine.
 */
#ifndef LLM_SERVER_MODELS_H
#define LLM_SERVER_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/ticket.h"

typedef struct LlmModelQueue
{
	struct LlmModelQueue *next;
	LlmSpec *spec;   /* one reference */
	LlmTicket *head; /* oldest; NULL = empty, to be swept */
	LlmTicket *tail;
	LlmModelNeeds needs; /* of a load; weight_nbytes -1 = not asked yet */
	bool failed;         /* the load has failed with error: so do those that wait for it */
	LlmError error;
	bool replaces; /* the load takes the place of a file with this digest */
	uint64_t former[2];
} LlmModelQueue;

/* Zero-initialise. */
typedef struct LlmModels
{
	LlmModelQueue *first;
	LlmModelQueue *last;
	int32_t n;               /* tickets */
	int64_t next_timeout_ms; /* no waiting ticket times out before; 0 = none does */
} LlmModels;

/* False when memory is out: t is then in no queue. */
bool llm_models_push(LlmModels *m, LlmTicket *t);
void llm_models_remove(LlmModels *m, LlmTicket *t);
/* Free the empty queues. Until then those that llm_models_remove has emptied are still there. */
void llm_models_sweep(LlmModels *m);

/* A waiting ticket whose own timeout has passed, or NULL. It stays in its queue. */
LlmTicket *llm_models_expired(LlmModels *m, int64_t now_ms);

#endif
