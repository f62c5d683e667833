/*
 * pg/inflight.h - the requests of this backend that have no answer yet, and their flow control.
 *
 * Two lists: QUEUED in the order to send, SENT in the order of sending. The engine grants a number
 * of unanswered SUBMITs and of their bytes. The last credit is kept for requests that somebody waits
 * for: a node that holds all the others with rows not yet returned must not lock out a call that
 * those rows need. A role's quota of requests in flight (usage.h) counts those of all backends.
 */
#ifndef LLM_PG_INFLIGHT_H
#define LLM_PG_INFLIGHT_H

#include "postgres.h"

#include "pg/client.h"

extern bool llm_inflight_empty(void);
extern bool llm_inflight_any_sent(void);

/* To the tail of the queue. */
extern void llm_inflight_enqueue(LlmClientRequest *req);
/* To the head of the queue, when it is in it: somebody waits. */
extern void llm_inflight_hurry(LlmClientRequest *req);
/* The first that may go out now; NULL when there is none. */
extern LlmClientRequest *llm_inflight_next(void);
/* It is in the send buffer: from the queue to the sent. */
extern void llm_inflight_sent(LlmClientRequest *req);
/* A sent one by its id, or NULL. */
extern LlmClientRequest *llm_inflight_find(uint64 id);

/* Out of its list; the caller sets the next state. */
extern void llm_inflight_unlink(LlmClientRequest *req);
/* Out of its list, FINISHED, with the answer that is in it or with a failure. */
extern void llm_inflight_finish(LlmClientRequest *req);
extern void llm_inflight_fail(LlmClientRequest *req, LlmStatus status, const char *text,
							  const char *detail, const char *hint);

/* New totals of the engine's grant. */
extern void llm_inflight_grant(uint32 n_requests, uint64 nbytes);

/* The engine is gone: the sent go back to the head of the queue, in order; those that were sent
 * n_sends times are given up. */
extern void llm_inflight_requeue(int n_sends);

/* End of a subtransaction: requests of it go to the parent, or become DORMANT. cancel is called
 * with the ids of those that were sent. */
extern void llm_inflight_end_subxact(bool commit, SubTransactionId mine, SubTransactionId parent,
									 void (*cancel)(uint64 id));
/* Abort of the transaction: all are DEAD. */
extern void llm_inflight_kill(void);

#endif
