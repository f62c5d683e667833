/* server/models.c - the queue before the resident model. */
#include "server/models.h"

#include <stddef.h>

static void
append(LlmModels *m, LlmTicket *t)
{
	t->queue_prev = m->tail;
	t->queue_next = NULL;
	if (m->tail != NULL)
		m->tail->queue_next = t;
	else
		m->head = t;
	m->tail = t;
	m->n++;
}

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

void
llm_models_push(LlmModels *m, LlmTicket *t)
{
	append(m, t);
	note_timeout(m, t);
}

void
llm_models_remove(LlmModels *m, LlmTicket *t)
{
	if (t->queue_prev != NULL)
		t->queue_prev->queue_next = t->queue_next;
	else
		m->head = t->queue_next;
	if (t->queue_next != NULL)
		t->queue_next->queue_prev = t->queue_prev;
	else
		m->tail = t->queue_prev;
	t->queue_prev = t->queue_next = NULL;
	m->n--;
}

LlmModelsAction
llm_models_next(const LlmModels *m, bool idle)
{
	const LlmTicket *t = m->head;
	bool resident;

	if (t == NULL)
		return LLM_MODELS_NOTHING;
	resident = m->resident != NULL && llm_spec_equal(m->resident, t->spec);
	if (t->kind == LLM_TICKET_UNLOAD)
		return !resident ? LLM_MODELS_ANSWER : idle ? LLM_MODELS_UNLOAD : LLM_MODELS_NOTHING;
	if (resident)
		return t->kind == LLM_TICKET_LOAD ? LLM_MODELS_ANSWER : LLM_MODELS_ADMIT;
	return idle ? LLM_MODELS_SWAP : LLM_MODELS_NOTHING;
}

void
llm_models_promote(LlmModels *m, const LlmSpec *spec)
{
	LlmModels front = {0}, rest = {0};
	bool open = true;

	for (LlmTicket *t = m->head, *next; t != NULL; t = next)
	{
		bool same = llm_spec_equal(t->spec, spec);

		next = t->queue_next;
		if (same && t->kind == LLM_TICKET_UNLOAD)
			open = false;
		append(same && open ? &front : &rest, t);
	}
	for (LlmTicket *t = rest.head, *next; t != NULL; t = next)
	{
		next = t->queue_next;
		append(&front, t);
	}
	m->head = front.head;
	m->tail = front.tail;
}

void
llm_models_set_resident(LlmModels *m, LlmSpec *spec)
{
	if (spec != NULL)
		llm_spec_retain(spec);
	llm_spec_release(m->resident);
	m->resident = spec;
}

LlmTicket *
llm_models_expired(LlmModels *m, int64_t now_ms)
{
	if (m->next_timeout_ms == 0 || now_ms < m->next_timeout_ms)
		return NULL;
	m->next_timeout_ms = 0;
	for (LlmTicket *t = m->head; t != NULL; t = t->queue_next)
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
