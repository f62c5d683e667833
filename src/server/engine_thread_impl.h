/*
 * server/engine_thread_impl.h - the state of the engine thread, for the files that make it up:
 * engine_thread.c (commands, callbacks, the loop) and admission.c (tickets to their models).
 */
#ifndef LLM_SERVER_ENGINE_THREAD_IMPL_H
#define LLM_SERVER_ENGINE_THREAD_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/engine_thread.h"
#include "server/models.h"
#include "server/outbox.h"
#include "server/residents.h"

#define LLM_LOG_LINE_NBYTES 1000

struct LlmEngineThread
{
	pthread_t thread;
	LlmExchange *x;                   /* borrowed */
	LlmJournalWriter *journal;        /* borrowed */
	const char *fault;                /* borrowed, may be NULL */
	LlmServerSettings *settings;      /* in force; owned; NULL until some were good */
	LlmError settings_error;          /* why settings is NULL */
	LlmEngineEvents events;           /* of every engine */
	LlmTickets tickets;               /* all that are not ended */
	LlmModels models;                 /* those that wait */
	LlmResidents residents;           /* models in memory, with the others */
	LlmResident *marked;              /* its batch may have marks in force; NULL = none */
	LlmOutbox outbox;                 /* of this turn */
	LlmServerStats *stats;            /* owned; scratch for the next that are published */
	LlmTicket *submitting;            /* inside llm_engine_submit */
	bool submitting_ended;            /* and its answer has come */
	bool stop;                        /* leave the loop */
	bool failed;                      /* and the process cannot go on */
	int step_failures;                /* in a row */
	int64_t audit_due_ms;             /* next audit of a model without work */
	char logged[LLM_LOG_LINE_NBYTES]; /* the failure of a load that was logged last */
	int64_t logged_ms;                /* and when */
};

/* Forget a ticket that was answered, cancelled or closed. */
void llm_engine_thread_end(LlmEngineThread *w, LlmTicket *t);
/* Answer it with an error. */
void llm_engine_thread_fail(LlmEngineThread *w, LlmTicket *t, const LlmError *e);
/* The engine turns to something else: no batch has marks in force. */
void llm_engine_thread_lift_marks(LlmEngineThread *w);
/* Hand over the answers there are, with the counters. loading: NULL, or a model that is loaded now. */
void llm_engine_thread_flush(LlmEngineThread *w, LlmSpec *loading);

/* Serve the queues as far as it goes now: admit what is resident, load one model at most. */
void llm_admission_turn(LlmEngineThread *w);

#endif
