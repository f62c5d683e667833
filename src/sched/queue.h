/*
 * sched/queue.h - sequences that wait, and the fair shares of those who sent them.
 *
 * The best that waits is: highest priority; among equals one that was admitted before (preempted),
 * earliest ticket first; else the first come of the client with the smallest account in the tenant
 * with the smallest account. Equal accounts: whose first came first.
 *
 * Accounts count tokens, one per row that a step computes: rows of the prompt that were not found in
 * the cache, and generated tokens that are fed back. A row is charged when it is planned, to the
 * sequence's client and to its tenant alike; a position is charged once, so neither what is
 * recomputed after a preemption nor what is read from the cache costs anything. Accounts are kept
 * per priority: what somebody does at one priority changes nothing at another.
 *
 * Who has nothing waiting or running is idle. Coming back, an account is lifted to the smallest of
 * the active ones beside it: idling earns nothing. It is never lowered: who comes and goes with each
 * request pays all the same. (Virtual counters of tokens as in Sheng et al., "Fairness in Serving
 * Large Language Models", OSDI 2024, on two levels.)
 *
 * So between two tenants that both have work waiting, the accounts never drift apart further than
 * the work that one can have running; and a new one is served with the next place that gets free,
 * since who holds all places pays for every step.
 *
 * Linear in the tenants and clients that are active, plus LLM_SHARES_IDLE_MAX of each. Memory comes
 * and goes with llm_sched_queue_join and llm_sched_queue_leave only.
 */
#ifndef LLM_SCHED_QUEUE_H
#define LLM_SCHED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/seq.h"

/* Idle shares beside each other that are remembered because they are ahead of the active ones; beyond
 * that the one least ahead is forgotten. */
#define LLM_SHARES_IDLE_MAX 64

/* A node of the tree: priority, tenant below it, client below that. */
typedef struct LlmShare
{
	uint64_t id;
	uint64_t account;       /* tokens charged and lifted; stays 0 for a priority */
	int32_t n_seqs;         /* waiting and running; 0 = idle */
	int32_t n_waiting;      /* never admitted before */
	LlmSeq *head, *tail;    /* of a client: these, first come first */
	struct LlmShare *up;    /* the root has none */
	struct LlmShare *below; /* owned */
	struct LlmShare *next;  /* beside it */
} LlmShare;

/* Zero-initialise. */
typedef struct LlmSchedQueue
{
	LlmShare root;     /* its children are priorities */
	LlmSeq *preempted; /* waiting again, best first */
	int32_t n_waiting; /* all of them */
} LlmSchedQueue;

/* True when a goes before b, accounts aside: for preempted and running sequences. */
bool llm_sched_queue_before(const LlmSeq *a, const LlmSeq *b);

/* Make the sequence known to its client and tenant (created when new): false when memory is out. */
bool llm_sched_queue_join(LlmSchedQueue *q, LlmSeq *seq);
/* The sequence leaves for good. */
void llm_sched_queue_leave(LlmSchedQueue *q, LlmSeq *seq);

/* A sequence that has joined, and is not pushed, goes over to another client, which pays for its
 * rows from now on, or to another priority; false, and nothing has changed, when memory is out. */
bool llm_sched_queue_move(LlmSchedQueue *q, LlmSeq *seq, uint64_t tenant, uint64_t client,
						  int32_t priority);

/* Insert a sequence that has joined / take it out. */
void llm_sched_queue_push(LlmSchedQueue *q, LlmSeq *seq);
void llm_sched_queue_unlink(LlmSchedQueue *q, LlmSeq *seq);

/* The best that waits, NULL when nothing does. Stays the same until somebody is pushed, unlinked or
 * charged. */
LlmSeq *llm_sched_queue_best(const LlmSchedQueue *q);

/* The next n rows of a sequence that has joined are computed. */
void llm_sched_queue_charge(LlmSeq *seq, int32_t n);

/* Call see with every waiting sequence, in no order. */
void llm_sched_queue_visit(const LlmSchedQueue *q, void (*see)(void *arg, LlmSeq *seq), void *arg);
/* True when the counts agree with the lists, and what waits holds no page. */
bool llm_sched_queue_audit(const LlmSchedQueue *q);

#endif
