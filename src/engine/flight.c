/* engine/flight.c - names of requests, and requests by name. */
#include "engine/flight.h"

#include <string.h>

#include <xxhash.h>

/*
 * A field that is new in LlmRequest must be put into the name when the answer depends on it. Not in
 * it are: who asks, when and for how long (key, timeout_ms, priority, tenant, stream), alone, and
 * what only makes the prompt's tokens (prompt, system, messages, truncate), with max_tokens, which
 * is compared as the bound in force.
 */
_Static_assert(sizeof(LlmRequest) == 520, "does the answer depend on the new field?");

static bool
put(LlmBuf *name, const void *p, size_t nbytes)
{
	return llm_buf_append(name, p, nbytes);
}

/* n things of nbytes each; their number first, so that lists cannot run into each other. */
static bool
put_list(LlmBuf *name, const void *p, size_t n, size_t nbytes)
{
	return put(name, &n, sizeof(n)) && (n == 0 || put(name, p, n * nbytes));
}

#define PUT(field) put(name, &(field), sizeof(field))
#define PUT_LIST(list, n) put_list(name, list, (size_t) (n), sizeof(*(list)))

static bool
put_sampling(LlmBuf *name, const LlmSampleParams *p)
{
	uint64_t seed = p->temperature == 0.0f ? 0 : p->seed;

	return PUT(p->temperature) && PUT(p->top_p) && PUT(p->min_p) && PUT(p->top_k) &&
		   PUT(p->repetition_penalty) && PUT(p->presence_penalty) && PUT(p->frequency_penalty) &&
		   PUT(seed);
}

static bool
put_stops(LlmBuf *name, const LlmRequest *q)
{
	bool ok = PUT(q->n_stops);

	for (int32_t i = 0; ok && i < q->n_stops; i++)
		ok = PUT_LIST(q->stops[i].p, q->stops[i].len);
	return ok;
}

bool
llm_flight_name(LlmReq *r, const LlmRequest *from)
{
	LlmBuf *name = &r->name;
	const LlmRequest *q = from;

	if (q->alone)
		return true;
	if (!(PUT(r->seq.salt) && PUT(r->seq.max_len) && put_sampling(name, &r->sample) &&
		  put_stops(name, q) && PUT(q->raw) && PUT(q->ignore_eos) && PUT(q->reasoning) &&
		  PUT(r->think.state) && PUT_LIST(q->template_kwargs.p, q->template_kwargs.len) &&
		  PUT_LIST(q->bias, q->n_bias) && PUT_LIST(q->allowed, q->n_allowed) &&
		  PUT_LIST(q->forbidden, q->n_forbidden) && PUT_LIST(q->stop_tokens, q->n_stop_tokens) &&
		  PUT(q->min_tokens) && PUT(q->logprobs) && PUT(q->prompt_logprobs) && PUT(q->n_top)))
		return false;
	r->name_hash = XXH3_64bits_withSeed(r->seq.tokens.ids,
										(size_t) r->seq.n_prompt * sizeof(*r->seq.tokens.ids),
										XXH3_64bits(name->data, name->len));
	return true;
}

static bool
same(const LlmReq *a, const LlmReq *b)
{
	return a->name_hash == b->name_hash && a->name.len == b->name.len &&
		   a->seq.n_prompt == b->seq.n_prompt &&
		   memcmp(a->name.data, b->name.data, a->name.len) == 0 &&
		   memcmp(a->seq.tokens.ids, b->seq.tokens.ids,
				  (size_t) a->seq.n_prompt * sizeof(*a->seq.tokens.ids)) == 0;
}

LlmReq *
llm_flight_find(const LlmFlights *f, const LlmReq *r)
{
	LlmReq *twin = f->bucket[r->name_hash % LLM_FLIGHT_BUCKETS];

	while (twin != NULL && !same(twin, r))
		twin = twin->flight_next;
	return twin;
}

void
llm_flight_insert(LlmFlights *f, LlmReq *r)
{
	LlmReq **head = &f->bucket[r->name_hash % LLM_FLIGHT_BUCKETS];

	if (r->name.len == 0)
		return;
	r->flight_next = *head;
	*head = r;
}

void
llm_flight_remove(LlmFlights *f, LlmReq *r)
{
	LlmReq **link = &f->bucket[r->name_hash % LLM_FLIGHT_BUCKETS];

	if (r->name.len == 0)
		return;
	while (*link != r)
		link = &(*link)->flight_next;
	*link = r->flight_next;
}
