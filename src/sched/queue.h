/*
 * sched/queue.h - sequences that wait: one ordered list per client, round robin over clients.
 *
 * The best that waits is: highest priority; among equals one that was admitted before (preempted),
 * earliest ticket first; else the first of the client whose turn was longest ago.
 */
#ifndef LLM_SCHED_QUEUE_H
#define LLM_SCHED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/seq.h"

/* A client that has sequences with the scheduler, waiting or running. */
typedef struct LlmSchedClient
{
	uint64_t id;
	int32_t n_seqs;      /* waiting and running */
	uint64_t served;     /* turn of its last admission, or of its arrival */
	LlmSeq *head, *tail; /* waiting, best first */
	struct LlmSchedClient *next;
} LlmSchedClient;

/* Zero-initialise. */
typedef struct LlmSchedQueue
{
	LlmSchedClient *clients; /* owned */
	int32_t n_waiting;
	uint64_t turn; /* admissions so far */
} LlmSchedQueue;

/* True when a goes before b, clients aside: for waiting and running sequences alike. */
bool llm_sched_queue_before(const LlmSeq *a, const LlmSeq *b);

/* Make the sequence known to its client (created when new): false when memory is out. */
bool llm_sched_queue_join(LlmSchedQueue *q, LlmSeq *seq);
/* The sequence leaves for good; its client goes with its last sequence. */
void llm_sched_queue_leave(LlmSchedQueue *q, LlmSeq *seq);

/* Insert a sequence that has joined / take it out. */
void llm_sched_queue_push(LlmSchedQueue *q, LlmSeq *seq);
void llm_sched_queue_unlink(LlmSchedQueue *q, LlmSeq *seq);

/* The best that waits, NULL when nothing does. Stays the same until somebody is pushed, unlinked or
 * served. */
LlmSeq *llm_sched_queue_best(const LlmSchedQueue *q);
/* The sequence's client has had its turn. */
void llm_sched_queue_served(LlmSchedQueue *q, LlmSeq *seq);

#endif
