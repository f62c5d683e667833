/* engine/request.c - a request's memory, its text, and the table of askers by key. */
#include "engine/request.h"

#include <stdlib.h>

/* ---- the table ---- */

static size_t
bucket_of(LlmRequestKey key)
{
	uint64_t h = (key.client * 0x9E3779B97F4A7C15u + key.id) * 0xBF58476D1CE4E5B9u;

	return (size_t) (h >> 40) % LLM_REQ_BUCKETS;
}

LlmAsker *
llm_req_find(const LlmReqTable *t, LlmRequestKey key)
{
	LlmAsker *a = t->bucket[bucket_of(key)];

	while (a != NULL && (a->key.client != key.client || a->key.id != key.id))
		a = a->chain;
	return a;
}

static void
asker_insert(LlmReqTable *t, LlmAsker *a)
{
	LlmAsker **head = &t->bucket[bucket_of(a->key)];

	a->chain = *head;
	*head = a;
	t->n++;
}

void
llm_req_insert(LlmReqTable *t, LlmReq *r)
{
	asker_insert(t, r->askers);
	r->prev = t->last;
	r->next = NULL;
	if (t->last != NULL)
		t->last->next = r;
	else
		t->first = r;
	t->last = r;
}

void
llm_req_join(LlmReqTable *t, LlmReq *r, LlmReq *from)
{
	LlmAsker *a = from->askers;

	a->req = r;
	a->prev = r->last_asker;
	r->last_asker->next = a;
	r->last_asker = a;
	r->dated = r->dated || from->dated;
	from->askers = from->last_asker = NULL;
	asker_insert(t, a);
}

static void
unlink_request(LlmReqTable *t, LlmReq *r)
{
	if (r->prev != NULL)
		r->prev->next = r->next;
	else
		t->first = r->next;
	if (r->next != NULL)
		r->next->prev = r->prev;
	else
		t->last = r->prev;
}

void
llm_req_leave(LlmReqTable *t, LlmAsker *a)
{
	LlmAsker **link = &t->bucket[bucket_of(a->key)];
	LlmReq *r = a->req;

	while (*link != a)
		link = &(*link)->chain;
	*link = a->chain;
	*(a->prev != NULL ? &a->prev->next : &r->askers) = a->next;
	*(a->next != NULL ? &a->next->prev : &r->last_asker) = a->prev;
	free(a);
	t->n--;
	if (r->askers == NULL)
		unlink_request(t, r);
}

/* ---- a request ---- */

static LlmAsker *
asker_create(const LlmRequest *from, LlmReq *r)
{
	LlmAsker *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return NULL;
	a->key = from->key;
	a->req = r;
	a->stream = from->stream;
	a->timeout_ms = from->timeout_ms;
	a->priority = from->priority;
	a->tenant = from->tenant;
	return a;
}

/* Reserved for a request's text, so that a step seldom has to let it grow. */
#define TEXT_NBYTES_RESERVE ((size_t) 64 << 10)

LlmStatus
llm_req_create(const LlmLoaded *m, const LlmRequest *from, const LlmPrompt *prompt, int32_t max_new,
			   LlmReq **out, LlmError *err)
{
	const LlmTokens *ids = &prompt->ids;
	size_t text_nbytes = (size_t) max_new * (size_t) m->max_piece;
	LlmReq *r = calloc(1, sizeof(*r));
	LlmStatus st;

	if (r == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a request");
	text_nbytes = text_nbytes < TEXT_NBYTES_RESERVE ? text_nbytes : TEXT_NBYTES_RESERVE;
	st = llm_stop_init(&r->stop, from->stops, from->n_stops, err);
	if (st == LLM_OK)
		st = llm_choice_init(&r->choice, m, from, err);
	if (st == LLM_OK)
		st = llm_scores_init(&r->scores, from, ids, max_new, err);
	if (st == LLM_OK)
		st = llm_seq_init(&r->seq, (int32_t) ids->len + max_new, m->store.n_groups, err);
	if (st == LLM_OK && ((r->askers = r->last_asker = asker_create(from, r)) == NULL ||
						 !llm_tokens_append(&r->seq.tokens, ids->ids, ids->len) ||
						 !llm_buf_reserve(&r->text, text_nbytes) ||
						 !llm_think_init(&r->think, &m->think, prompt->think, text_nbytes)))
		st = llm_error_set(err, LLM_E_MEMORY, "out of memory for a request");
	if (st != LLM_OK)
	{
		llm_req_free(r);
		return st;
	}
	r->sample = from->sample;
	r->dated = prompt->dated;
	r->pin = from->kind == LLM_REQUEST_PIN;
	r->seq.n_prompt = (int32_t) ids->len;
	r->seq.fresh = r->seq.scores = from->prompt_logprobs;
	r->seq.tenant = from->tenant;
	r->seq.client = from->key.client;
	r->seq.priority = from->priority;
	r->seq.salt = from->salt;
	r->seq.alone = from->alone;
	r->seq.owner = r;
	*out = r;
	return LLM_OK;
}

void
llm_req_free(LlmReq *r)
{
	if (r == NULL)
		return;
	llm_seq_fini(&r->seq);
	llm_stop_fini(&r->stop);
	llm_choice_fini(&r->choice);
	llm_scores_fini(&r->scores);
	llm_think_fini(&r->think);
	llm_buf_fini(&r->text);
	llm_buf_fini(&r->name);
	free(r->askers);
	free(r);
}

/* The text grows by a token; true when that ends the answer. */
static bool
text_grow(LlmReq *r, const LlmTokenizer *tok, int32_t token, LlmFinish *finish, LlmStatus *status)
{
	*finish = LLM_FINISH_STOP;
	if (llm_choice_ends(&r->choice, tok, token))
		return true;
	if (!llm_think_push(&r->think, tok, &r->detok, token, &r->text))
	{
		*finish = LLM_FINISH_ERROR;
		*status = LLM_E_MEMORY;
		return true;
	}
	if (llm_stop_scan(&r->stop, &r->text, r->n_new >= r->choice.min_tokens))
		return true;
	*finish = LLM_FINISH_LENGTH;
	return (int32_t) r->seq.tokens.len == r->seq.max_len;
}

/* The answer is over: what was held back of it becomes text, an incomplete character is dropped. */
static void
text_end(LlmReq *r, LlmFinish *finish, LlmStatus *status)
{
	size_t len = r->text.len;

	llm_detok_end(&r->detok);
	if (!llm_think_end(&r->think, &r->text))
	{
		*finish = LLM_FINISH_ERROR;
		*status = LLM_E_MEMORY;
	}
	else if (r->text.len > len &&
			 llm_stop_scan(&r->stop, &r->text, r->n_new >= r->choice.min_tokens))
		*finish = LLM_FINISH_STOP;
}

bool
llm_req_token(LlmReq *r, const LlmTokenizer *tok, int32_t token, LlmFinish *finish,
			  LlmStatus *status)
{
	bool over;

	*status = LLM_OK;
	r->n_new++;
	llm_tokens_push(&r->seq.tokens, token); /* within the capacity reserved at creation */
	over = text_grow(r, tok, token, finish, status);
	if (over && *status == LLM_OK)
		text_end(r, finish, status);
	return over;
}

size_t
llm_req_safe(const LlmReq *r)
{
	return llm_stop_safe(&r->stop);
}
