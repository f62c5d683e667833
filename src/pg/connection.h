/*
 * pg/connection.h - the one socket of a backend to the engine: connect, greet, name models.
 *
 * Static state of the process; nothing here blocks. The fd counts as an external one of fd.c.
 */
#ifndef LLM_PG_CONNECTION_H
#define LLM_PG_CONNECTION_H

#include "postgres.h"

#include "llm.pb-c.h"
#include "pg/catalog.h"
#include "pg/link.h"

typedef enum LlmConnectionState
{
	LLM_CONNECTION_CLOSED = 0,
	LLM_CONNECTION_GREETING = 1, /* HELLO is on its way, no WELCOME yet */
	LLM_CONNECTION_READY = 2
} LlmConnectionState;

extern LlmConnectionState llm_connection_state(void);
/* The stream; only while not CLOSED. */
extern LlmLink *llm_connection_link(void);

/* Try to get from CLOSED to GREETING; false when there is nobody to connect to now. */
extern bool llm_connection_open(void);
/* WELCOME has come: READY. False when the engine speaks another version. */
extern bool llm_connection_welcome(const Llm__Welcome *welcome);
extern void llm_connection_close(void);

/* Remember why the engine refused this connection, for the error that may follow. */
extern void llm_connection_refused(const char *why);
/* '' when it was not refused since the last WELCOME. */
extern const char *llm_connection_refusal(void);

/* The handle of a model on this connection; sends LOAD first when the engine does not know it. */
extern uint32 llm_connection_model(LlmModel *model);

#endif
