/* server/models.c - queues of tickets, by model. */
#include "server/models.h"

#include <stddef.h>
#include <stdlib.h>

/* When t gives up waiting; 0 = never. */
static int64_t
timeout_of(const LlmTicket *t)
{
	if (t->kind != LLM_TICKET_SUBMIT || t->request.timeout_ms == 0)
		return 0;
	return t->arrived_ms + t->request.timeout_ms;
}

static void
note_timeout(LlmModels *m, const LlmTicket *t)
{
	int64_t at = timeout_of(t);

	if (at != 0 && (m->next_timeout_ms == 0 || at < m->next_timeout_ms))
		m->next_timeout_ms = at;
}

/* The queue of a model with tickets, or an empty new one at the end of the line. */
static LlmModelQueue *
queue_of(LlmModels *m, LlmSpec *spec)
{
	LlmModelQueue *q = m->first;

	while (q != NULL && (q->head == NULL || !llm_spec_equal(q->spec, spec)))
		q = q->next;
	if (q != NULL)
		return q;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return NULL;
	q->spec = llm_spec_retain(spec);
	q->needs.weight_nbytes = -1;
	if (m->last != NULL)
		m->last->next = q;
	else
		m->first = q;
	m->last = q;
	return q;
}

bool
llm_models_push(LlmModels *m, LlmTicket *t)
{
	LlmModelQueue *q = queue_of(m, t->spec);

	if (q == NULL)
		return false;
	t->queue = q;
	t->queue_prev = q->tail;
	t->queue_next = NULL;
	if (q->tail != NULL)
		q->tail->queue_next = t;
	else
		q->head = t;
	q->tail = t;
	m->n++;
	note_timeout(m, t);
	return true;
}

void
llm_models_remove(LlmModels *m, LlmTicket *t)
{
	LlmModelQueue *q = t->queue;

	if (q == NULL)
		return;
	if (t->queue_prev != NULL)
		t->queue_prev->queue_next = t->queue_next;
	else
		q->head = t->queue_next;
	if (t->queue_next != NULL)
		t->queue_next->queue_prev = t->queue_prev;
	else
		q->tail = t->queue_prev;
	t->queue = NULL;
	t->queue_prev = t->queue_next = NULL;
	m->n--;
}

void
llm_models_sweep(LlmModels *m)
{
	LlmModelQueue **p = &m->first;

	m->last = NULL;
	while (*p != NULL)
	{
		LlmModelQueue *q = *p;

		if (q->head != NULL)
		{
			m->last = q;
			p = &q->next;
			continue;
		}
		*p = q->next;
		llm_spec_release(q->spec);
		free(q);
	}
}

LlmTicket *
llm_models_expired(LlmModels *m, int64_t now_ms)
{
	if (m->next_timeout_ms == 0 || now_ms < m->next_timeout_ms)
		return NULL;
	m->next_timeout_ms = 0;
	for (LlmModelQueue *q = m->first; q != NULL; q = q->next)
		for (LlmTicket *t = q->head; t != NULL; t = t->queue_next)
		{
			int64_t at = timeout_of(t);

			if (at != 0 && at <= now_ms)
			{
				m->next_timeout_ms = now_ms; /* there may be more: look again */
				return t;
			}
			note_timeout(m, t);
		}
	return NULL;
}
