/* sched/queue.c - waiting sequences by client. */
#include "sched/queue.h"

#include <stdlib.h>

/* A sequence that was never admitted comes after all that were. */
static uint64_t
ticket_rank(const LlmSeq *s)
{
	return s->ticket == 0 ? UINT64_MAX : s->ticket;
}

bool
llm_sched_queue_before(const LlmSeq *a, const LlmSeq *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (ticket_rank(a) != ticket_rank(b))
		return ticket_rank(a) < ticket_rank(b);
	return a->arrival < b->arrival;
}

bool
llm_sched_queue_join(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmSchedClient *c = q->clients;

	while (c != NULL && c->id != seq->client)
		c = c->next;
	if (c == NULL)
	{
		if ((c = calloc(1, sizeof(*c))) == NULL)
			return false;
		c->id = seq->client;
		c->served = q->turn; /* a newcomer has no claim on turns before its arrival */
		c->next = q->clients;
		q->clients = c;
	}
	c->n_seqs++;
	seq->home = c;
	return true;
}

void
llm_sched_queue_leave(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmSchedClient **link = &q->clients;

	if (--seq->home->n_seqs == 0)
	{
		while (*link != seq->home)
			link = &(*link)->next;
		*link = seq->home->next;
		free(seq->home);
	}
	seq->home = NULL;
}

void
llm_sched_queue_push(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmSchedClient *c = seq->home;
	LlmSeq *after = c->tail; /* new sequences go to the end: search from there */

	if (seq->ticket != 0) /* preempted ones to the front */
		after = NULL;
	else
		while (after != NULL && llm_sched_queue_before(seq, after))
			after = after->prev;
	if (seq->ticket != 0)
		for (LlmSeq *s = c->head; s != NULL && llm_sched_queue_before(s, seq); s = s->next)
			after = s;
	seq->prev = after;
	seq->next = after == NULL ? c->head : after->next;
	if (seq->prev != NULL)
		seq->prev->next = seq;
	else
		c->head = seq;
	if (seq->next != NULL)
		seq->next->prev = seq;
	else
		c->tail = seq;
	q->n_waiting++;
}

void
llm_sched_queue_unlink(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmSchedClient *c = seq->home;

	if (seq->prev != NULL)
		seq->prev->next = seq->next;
	else
		c->head = seq->next;
	if (seq->next != NULL)
		seq->next->prev = seq->prev;
	else
		c->tail = seq->prev;
	seq->prev = seq->next = NULL;
	q->n_waiting--;
}

LlmSeq *
llm_sched_queue_best(const LlmSchedQueue *q)
{
	LlmSeq *best = NULL;

	for (const LlmSchedClient *c = q->clients; c != NULL; c = c->next)
	{
		LlmSeq *s = c->head;
		bool fresh; /* neither was admitted before: turns decide */

		if (s == NULL)
			continue;
		fresh = best != NULL && s->ticket == 0 && best->ticket == 0 &&
				s->priority == best->priority && s->home->served != best->home->served;
		if (best == NULL || (fresh && s->home->served < best->home->served) ||
			(!fresh && llm_sched_queue_before(s, best)))
			best = s;
	}
	return best;
}

void
llm_sched_queue_served(LlmSchedQueue *q, LlmSeq *seq)
{
	seq->home->served = ++q->turn;
}
