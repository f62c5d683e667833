/* server/ticket.c - tickets and their table. */
#include "server/ticket.h"

#include <stdlib.h>

#include "server/codec.h"

LlmTicket *
llm_ticket_create(LlmTicketKind kind, LlmRequestKey key, LlmSpec *spec, Llm__Frame *frame)
{
	LlmTicket *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->kind = kind;
	t->key = key;
	t->spec = llm_spec_retain(spec);
	t->frame = frame;
	t->slot = -1;
	t->batch_index = -1;
	return t;
}

void
llm_ticket_drop_frame(LlmTicket *t)
{
	llm_codec_free(t->frame);
	t->frame = NULL;
	free(t->lists);
	t->lists = NULL;
}

void
llm_ticket_free(LlmTicket *t)
{
	if (t == NULL)
		return;
	llm_ticket_drop_frame(t);
	llm_spec_release(t->spec);
	free(t);
}

/* Ids count up and clients are few: a multiplicative mix spreads both. */
static uint32_t
bucket_of(LlmRequestKey key)
{
	uint64_t h =
		(key.id + key.client * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xD1B54A32D192ED03);

	return (uint32_t) (h >> 52) % LLM_TICKET_BUCKETS;
}

void
llm_tickets_add(LlmTickets *h, LlmTicket *t)
{
	uint32_t b = bucket_of(t->key);

	t->hash_next = h->buckets[b];
	h->buckets[b] = t;
	h->n++;
}

void
llm_tickets_remove(LlmTickets *h, LlmTicket *t)
{
	LlmTicket **p = &h->buckets[bucket_of(t->key)];

	while (*p != NULL && *p != t)
		p = &(*p)->hash_next;
	if (*p == NULL)
		return;
	*p = t->hash_next;
	h->n--;
}

LlmTicket *
llm_tickets_find(const LlmTickets *h, LlmRequestKey key)
{
	LlmTicket *t = h->buckets[bucket_of(key)];

	while (t != NULL && (t->key.client != key.client || t->key.id != key.id))
		t = t->hash_next;
	return t;
}
