/*
 * server/models.h - who may use the one resident model, and when it changes.
 *
 * Every ticket enters one queue in order of arrival; only its head is ever served:
 *   - its model is resident: it is admitted (or, a LOAD, answered) at once;
 *   - another model is resident: nothing behind the head is admitted any more, the engine runs dry,
 *     then the head's model is loaded, and all tickets that wait for that model move to the front.
 * So a busy model never starves the others, and one swap serves everybody who waits for it.
 * Engine thread only; no calls into the engine: the caller does what llm_models_next says.
 */
#ifndef LLM_SERVER_MODELS_H
#define LLM_SERVER_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/ticket.h"

/* Zero-initialise. */
typedef struct LlmModels
{
	LlmTicket *head;
	LlmTicket *tail;
	int32_t n;
	LlmSpec *resident;       /* one reference; NULL = none */
	int64_t next_timeout_ms; /* no waiting ticket times out before; 0 = none does */
} LlmModels;

typedef enum LlmModelsAction
{
	LLM_MODELS_NOTHING = 0, /* the queue is empty or waits for an idle engine */
	LLM_MODELS_ADMIT = 1,   /* submit the head */
	LLM_MODELS_ANSWER = 2,  /* the head, a LOAD or UNLOAD, is done already */
	LLM_MODELS_SWAP = 3,    /* load the head's model; the engine is idle */
	LLM_MODELS_UNLOAD = 4   /* forget the resident model, then the head is done */
} LlmModelsAction;

void llm_models_push(LlmModels *m, LlmTicket *t);
void llm_models_remove(LlmModels *m, LlmTicket *t);

/* What to do with m->head. idle = no request is in the engine. */
LlmModelsAction llm_models_next(const LlmModels *m, bool idle);

/* Move the tickets that wait for spec to the front, in order; those after an UNLOAD of spec stay. */
void llm_models_promote(LlmModels *m, const LlmSpec *spec);

/* Note what is resident now; NULL = nothing. */
void llm_models_set_resident(LlmModels *m, LlmSpec *spec);

/* A waiting ticket whose own timeout has passed, or NULL. It stays in the queue. */
LlmTicket *llm_models_expired(LlmModels *m, int64_t now_ms);

#endif
