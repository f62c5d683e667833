/* server/batch_marks.c - the batch of a model and its marks in the journal. */
#include "server/batch_marks.h"

#include <stddef.h>

void
llm_ticket_blame(LlmTicket *t, LlmJournalWriter *j, bool by_itself)
{
	if (t->slot < 0)
		t->slot = llm_journal_take(j, t->connection, t->key.id);
	llm_journal_mark(j, t->slot, t->alone && by_itself ? LLM_JOURNAL_ALONE : LLM_JOURNAL_RUNNING);
}

void
llm_ticket_unblame(LlmTicket *t, LlmJournalWriter *j)
{
	llm_journal_mark(j, t->slot, t->alone ? LLM_JOURNAL_SUSPECT : LLM_JOURNAL_FREE);
	if (!t->alone)
		t->slot = -1;
}

void
llm_batch_marks_put(LlmBatchMarks *b, LlmJournalWriter *j)
{
	if (b->in_force)
		return;
	for (int32_t i = 0; i < b->n; i++)
		llm_ticket_blame(b->lists[b->which][i], j, b->n == 1);
	b->in_force = true;
}

void
llm_batch_marks_lift(LlmBatchMarks *b, LlmJournalWriter *j)
{
	if (!b->in_force)
		return;
	for (int32_t i = 0; i < b->n; i++)
		llm_ticket_unblame(b->lists[b->which][i], j);
	b->in_force = false;
}

void
llm_batch_marks_change(LlmBatchMarks *b, LlmJournalWriter *j, const LlmTickets *tickets,
					   const LlmRequestKey *keys, int32_t n)
{
	LlmTicket **former = b->lists[b->which];
	LlmTicket **now = b->lists[!b->which];
	int32_t n_now = 0;

	for (int32_t i = 0; i < b->n; i++)
		former[i]->batch_index = -1;
	for (int32_t i = 0; i < n && n_now < LLM_BATCH_MAX; i++)
	{
		LlmTicket *t = llm_tickets_find(tickets, keys[i]);

		if (t == NULL)
			continue;
		llm_ticket_blame(t, j, n == 1);
		t->batch_index = n_now;
		now[n_now++] = t;
	}
	for (int32_t i = 0; i < b->n; i++)
		if (former[i]->batch_index < 0)
			llm_ticket_unblame(former[i], j);
	b->which = !b->which;
	b->n = n_now;
	b->in_force = true;
}

void
llm_batch_marks_remove(LlmBatchMarks *b, LlmTicket *t)
{
	LlmTicket **batch = b->lists[b->which];

	if (t->batch_index < 0)
		return;
	batch[t->batch_index] = batch[--b->n];
	batch[t->batch_index]->batch_index = t->batch_index;
	t->batch_index = -1;
}
