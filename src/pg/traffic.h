/*
 * pg/traffic.h - what goes over the connection: requests out, answers in, never blocking.
 */
#ifndef LLM_PG_TRAFFIC_H
#define LLM_PG_TRAFFIC_H

#include "postgres.h"

#include "datatype/timestamp.h"

#define LLM_TRAFFIC_RETRY_MS 50 /* between attempts to connect */

/* Move everything that can move: connect when something is pending, receive and hand out answers,
 * send what flow control allows. */
extern void llm_traffic_advance(void);
/* Only put into the send buffer what flow control allows, as long as the connection is ready: many
 * requests go out with the next advance, at one cost. */
extern void llm_traffic_gather(void);

/* There is no engine to talk to since then; 0 = there is one, or nobody has asked. */
extern TimestampTz llm_traffic_down_since(void);
/* A request begins while nothing else is pending: what was before does not count. */
extern void llm_traffic_begin(TimestampTz now);

/* Put a CANCEL into the send buffer, then, after one or many, send or make sure that they need not
 * be sent. */
extern void llm_traffic_cancel(uint64 id);
extern void llm_traffic_push_cancels(void);

/* The transaction aborts: the engine must forget what it has of it. */
extern void llm_traffic_abort(void);

/* Show in llm.stat_activity how things stand; model NULL = as before. */
extern void llm_traffic_show(const char *model);

#endif
