/*
 * server/control.h - the supervisor's descriptor: SETTINGS and PING come in, STATE goes out.
 *
 * PING is answered here, on the I/O thread, also while the engine thread computes, loads or hangs:
 * STATE says whether there is work and how far its counter has moved, and the supervisor judges. End
 * of file means that the supervisor is gone. I/O thread only.
 */
#ifndef LLM_SERVER_CONTROL_H
#define LLM_SERVER_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "server/conn.h"
#include "server/exchange.h"
#include "server/stream.h"

typedef struct LlmControl
{
	LlmStream stream;
	uint32_t events;        /* epoll interest in force; the server's */
	uint32_t state_version; /* of the state that was told last */
	bool has_settings;      /* connections may be accepted */
} LlmControl;

/* Read and handle frames; SETTINGS fill host and go on to the engine thread. False: the supervisor
 * is gone or talks nonsense. */
bool llm_control_readable(LlmControl *c, LlmConnHost *host, int n_connections);
/* Write. False: the supervisor is gone. */
bool llm_control_writable(LlmControl *c);
/* Tell the state when it has changed. */
void llm_control_tell_change(LlmControl *c, LlmExchange *x, int n_connections);

#endif
