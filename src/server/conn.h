/*
 * server/conn.h - one client of the engine: a backend, a worker or a test.
 *
 * States: HELLO (nothing but HELLO is taken) -> OPEN -> CLOSING (an ERROR with id 0 is on its way
 * out, nothing is read any more). Any broken rule leads to CLOSING; end of file or a socket error
 * ends the connection at once. Either way all its requests are cancelled.
 *
 * Credits. A client may have LLM_CREDIT_REQUESTS unanswered SUBMITs. One stops counting when its
 * DONE or ERROR has been given to the kernel, which is before the client can have read it: a correct
 * client is never over the limit, and what it has not read yet stays bounded by the same number. So
 * an idle cursor costs its own buffer and slows nobody else down. CANCEL gives the credit back in
 * any case; the answer may wait in the buffer already, so that is bounded by itself. LOAD(now),
 * UNLOAD and STATS have a small allowance of their own. Bytes are counted as whole SUBMIT frames,
 * while clients count what they call prompt bytes; the server only needs a bound, so it allows
 * several times the grant.
 *
 * I/O thread only.
 */
#ifndef LLM_SERVER_CONN_H
#define LLM_SERVER_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "server/exchange.h"
#include "server/stream.h"

#define LLM_CONN_HELLO_MS 3000   /* from accept to HELLO; the server drops who takes longer */
#define LLM_CONN_CONTROL_MAX 64  /* unanswered LOAD(now), UNLOAD and STATS */
#define LLM_CONN_MODELS_MAX 4096 /* handles */
#define LLM_CONN_BYTES_MAX (4 * LLM_CREDIT_BYTES)
#define LLM_CONN_OUTPUT_MAX ((size_t) 256 << 20) /* bytes that the client does not read */

typedef enum LlmConnState
{
	LLM_CONN_HELLO = 0,
	LLM_CONN_OPEN = 1,
	LLM_CONN_CLOSING = 2
} LlmConnState;

/* A request that the client waits for. */
typedef struct LlmInFlight
{
	uint64_t id;
	uint64_t answered_at; /* stream.n_appended behind its answer; 0 = none yet */
	uint32_t nbytes;      /* of its SUBMIT frame; 0 = not a SUBMIT */
} LlmInFlight;

/* A model that the client has named. */
typedef struct LlmHandle
{
	uint32_t model;
	LlmSpec *spec; /* one reference */
} LlmHandle;

typedef struct LlmConn
{
	LlmStream stream;
	LlmConnState state;
	uint64_t serial;           /* client of LlmRequestKey; never reused by this engine */
	uint64_t connection;       /* the backend's own number, from HELLO */
	int64_t accepted_ms;       /* monotonic; the server's */
	bool greeted;              /* HELLO was accepted once: the engine thread may know the client */
	uint32_t events;           /* epoll interest in force; the server's */
	struct LlmConn *next_gone; /* the server's list of dropped connections */
	LlmInFlight in_flight[LLM_CREDIT_REQUESTS + LLM_CONN_CONTROL_MAX]; /* [n_in_flight] */
	int n_in_flight;
	int n_submits;      /* of them, SUBMITs */
	int n_answered;     /* of them, answered but not yet written */
	uint64_t nbytes;    /* of the SUBMITs */
	LlmHandle *handles; /* [n_handles] owned */
	int n_handles;
} LlmConn;

/* What all connections share; the server's. */
typedef struct LlmConnHost
{
	LlmExchange *exchange;
	uint64_t cookie;               /* from SETTINGS */
	uint32_t generation;           /* from SETTINGS */
	Llm__PrefixScope prefix_scope; /* from SETTINGS */
} LlmConnHost;

/* fd is taken over. NULL when memory is out (fd is closed). A peer of another user is turned away. */
LlmConn *llm_conn_create(int fd, uint64_t serial);
void llm_conn_free(LlmConn *c);

/* Read and handle frames. False: end of file, drop it. */
bool llm_conn_readable(LlmConn *c, const LlmConnHost *h);
/* Write. False: drop it (a broken socket, CLOSING and all is said, or LLM_CONN_OUTPUT_MAX). */
bool llm_conn_writable(LlmConn *c);
/* A frame of the engine thread for this client; ignored when its request was cancelled. */
void llm_conn_deliver(LlmConn *c, const LlmOutRecord *r, const char *frame);

#endif
