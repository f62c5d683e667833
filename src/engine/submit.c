/* engine/submit.c - requests come and go: checks, queueing, answers without a model, cancel. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/pinned.h"
#include "engine/prompt.h"

/* ---- ends ---- */

static LlmStr
token_text(const void *vocabulary, int32_t token)
{
	return llm_tokenizer_piece(vocabulary, token, true);
}

/* Give `done` a result, which need not be that of a request in the table. */
static void
answer(LlmEngine *e, LlmResult *result)
{
	e->stats.requests++;
	e->stats.errors += result->status != LLM_OK;
	result->numerics_key = e->m.info.numerics_key;
	result->token_text = token_text;
	result->vocabulary = e->m.tok;
	if (e->events.done != NULL)
		e->events.done(e->events.arg, result);
}

/* What came before is 0: an asker may join when the first step, or token, is over. */
static double
ms_since(int64_t from, int64_t to)
{
	return to < from ? 0.0 : (double) (to - from) / 1000.0;
}

void
llm_engine_show(LlmEngine *e, LlmAsker *a, size_t n)
{
	if (!a->stream || n <= a->n_shown)
		return;
	if (e->events.text != NULL)
		e->events.text(e->events.arg, a->key,
					   (LlmStr){a->req->text.data + a->n_shown, n - a->n_shown});
	a->n_shown = n;
}

/* Answer one asker; what a follower gets, nothing was computed for. */
static void
answer_asker(LlmEngine *e, LlmAsker *a, LlmFinish finish, const LlmError *error)
{
	LlmReq *r = a->req;
	bool follows = a != r->askers;
	LlmResult result = {.key = a->key,
						.status = error == NULL ? LLM_OK : error->code,
						.error = error,
						.finish = finish,
						.prompt_tokens = r->seq.n_prompt,
						.cached_tokens = follows ? r->seq.n_prompt : r->seq.n_cached,
						.completion_tokens = r->n_new,
						.dated = r->dated,
						.queue_ms = ms_since(a->submitted, r->first_step),
						.first_token_ms = ms_since(a->submitted, r->first_token),
						.total_ms = ms_since(a->submitted, llm_engine_now())};

	if (error == NULL)
	{
		result.generated = r->seq.tokens.ids + r->seq.n_prompt;
		result.text = (LlmStr){r->text.data, r->text.len};
		result.reasoning = llm_think_text(&r->think);
		result.n_top = r->scores.n_top;
		result.logprobs = r->scores.answer;
		result.prompt_logprobs = r->scores.prompt;
		llm_engine_show(e, a, r->text.len);
		e->stats.shared += follows;
	}
	answer(e, &result);
}

/* One of those who ask has left: the sequence is worked on for the first of the others, as urgently as
 * any of them wants, which is at most as before. */
static void
follow_askers(LlmEngine *e, LlmReq *r)
{
	const LlmAsker *leader = r->askers;
	int32_t priority = leader->priority;

	for (const LlmAsker *a = leader->next; a != NULL && priority < r->seq.priority; a = a->next)
		priority = a->priority > priority ? a->priority : priority;
	llm_sched_assign(e->sched, &r->seq, leader->tenant, leader->key.client, priority);
}

/* An asker goes; with the last one the request. Its memory goes when the scheduler lets go of the
 * sequence. */
static void
leave(LlmEngine *e, LlmAsker *a)
{
	LlmReq *r = a->req;

	llm_req_leave(&e->reqs, a);
	if (r->askers != NULL)
	{
		follow_askers(e, r);
		return;
	}
	llm_flight_remove(&e->flights, r);
	llm_sched_remove(e->sched, &r->seq);
}

void
llm_engine_drop(LlmEngine *e, LlmAsker *a, const LlmError *error)
{
	if (error != NULL)
		answer_asker(e, a, LLM_FINISH_ERROR, error);
	else
		e->stats.requests++;
	leave(e, a);
}

void
llm_engine_end(LlmEngine *e, LlmReq *r, LlmFinish finish, const LlmError *error)
{
	for (LlmAsker *a = r->askers; a != NULL; a = a->next)
		answer_asker(e, a, finish, error);
	while (r->askers->next != NULL)
		llm_req_leave(&e->reqs, r->askers);
	leave(e, r->askers);
}

void
llm_engine_cancel(LlmEngine *e, LlmRequestKey key)
{
	LlmAsker *a = llm_req_find(&e->reqs, key);

	if (a != NULL)
		llm_engine_drop(e, a, NULL);
}

void
llm_engine_cancel_client(LlmEngine *e, uint64_t client)
{
	LlmReq *next;

	for (LlmReq *r = e->reqs.first; r != NULL; r = next)
	{
		LlmAsker *next_asker;

		next = r->next;
		for (LlmAsker *a = r->askers; a != NULL; a = next_asker)
		{
			next_asker = a->next;
			if (a->key.client == client)
				llm_engine_drop(e, a, NULL);
		}
	}
}

/* ---- submit ---- */

static LlmStatus
out_of_range(const char *name, double v, const char *range, LlmError *err)
{
	return llm_error_set(err, LLM_E_INVALID, "%s is %g, not %s", name, v, range);
}

static LlmStatus
check_sampling(const LlmSampleParams *p, LlmError *err)
{
	if (!isfinite(p->temperature))
		return out_of_range("temperature", p->temperature, "a finite number", err);
	if (!(p->top_p > 0.0f && p->top_p <= 1.0f))
		return out_of_range("top_p", p->top_p, "above 0 and up to 1", err);
	if (!(p->min_p >= 0.0f && p->min_p <= 1.0f))
		return out_of_range("min_p", p->min_p, "0 to 1", err);
	if (p->top_k < 0)
		return out_of_range("top_k", p->top_k, "0 or more", err);
	if (!(p->repetition_penalty > 0.0f && isfinite(p->repetition_penalty)))
		return out_of_range("repetition_penalty", p->repetition_penalty, "above 0", err);
	if (!isfinite(p->presence_penalty))
		return out_of_range("presence_penalty", p->presence_penalty, "a finite number", err);
	if (!isfinite(p->frequency_penalty))
		return out_of_range("frequency_penalty", p->frequency_penalty, "a finite number", err);
	return LLM_OK;
}

static LlmStatus
check_request(const LlmEngine *e, const LlmRequest *r, LlmError *err)
{
	if (llm_req_find(&e->reqs, r->key) != NULL)
		return llm_error_set(err, LLM_E_INVALID, "request %llu of this client is unfinished",
							 (unsigned long long) r->key.id);
	if (r->max_tokens < LLM_MAX_TOKENS_REST)
	{
		llm_error_set(err, LLM_E_INVALID, "max_tokens is %d, not 0 or more", r->max_tokens);
		llm_error_numbers(err, r->max_tokens, 0);
		return LLM_E_INVALID;
	}
	if (r->timeout_ms < 0)
		return out_of_range("timeout", r->timeout_ms, "0 or more", err);
	return check_sampling(&r->sample, err);
}

/* Tokens that the answer may have: what was asked for, within the room left in the context; an open
 * end is also bounded by the KV pool, while a number that the pool can never hold is refused. */
static LlmStatus
max_new_tokens(const LlmEngine *e, const LlmRequest *r, int32_t n_prompt, int32_t *out,
			   LlmError *err)
{
	int32_t room = e->m.info.context_length - n_prompt;
	int32_t longest = llm_sched_longest(e->sched);

	*out = r->max_tokens;
	if (r->max_tokens < 0)
	{
		*out = room < longest - n_prompt ? room : longest - n_prompt;
		*out = *out < 1 ? 1 : *out;
	}
	else if (r->max_tokens > room)
		*out = room;
	return *out == 0 ? LLM_OK : llm_sched_check(e->sched, n_prompt, n_prompt + *out, err);
}

static void
asker_start(LlmEngine *e, LlmAsker *a)
{
	a->submitted = llm_engine_now();
	a->deadline = INT64_MAX;
	if (a->timeout_ms > 0)
		a->deadline = a->submitted + (int64_t) a->timeout_ms * 1000;
	if (a->deadline < e->next_deadline)
		e->next_deadline = a->deadline;
}

/* Start a request that has something to compute: as another asker of its twin, when there is one,
 * and with the scheduler otherwise. Takes r over, also when it fails. */
static LlmStatus
req_start(LlmEngine *e, LlmReq *r, const LlmRequest *from, LlmError *err)
{
	LlmReq *twin;
	LlmStatus st;

	if (r->sample.temperature < 0.0f)
		r->sample.temperature = e->m.temperature;
	if (e->o.single_flight && !r->pin && !llm_flight_name(r, from))
	{
		llm_req_free(r);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a request");
	}
	asker_start(e, r->askers);
	if (r->name.len > 0 && (twin = llm_flight_find(&e->flights, r)) != NULL)
	{
		LlmAsker *a = r->askers;

		llm_req_join(&e->reqs, twin, r);
		llm_req_free(r);
		if (a->priority > twin->seq.priority)
			llm_sched_assign(e->sched, &twin->seq, twin->seq.tenant, twin->seq.client, a->priority);
		llm_engine_show(e, a, llm_req_safe(twin));
		return LLM_OK;
	}
	if ((st = llm_sched_submit(e->sched, &r->seq, err)) != LLM_OK)
	{
		llm_req_free(r);
		return st;
	}
	llm_req_insert(&e->reqs, r);
	llm_flight_insert(&e->flights, r);
	return LLM_OK;
}

/* Queue a GENERATE request whose prompt is encoded. */
static LlmStatus
queue(LlmEngine *e, const LlmRequest *q, const LlmPrompt *prompt, LlmError *err)
{
	int32_t n_prompt = (int32_t) prompt->ids.len;
	int32_t max_new;
	LlmReq *r;
	LlmStatus st;

	if ((st = max_new_tokens(e, q, n_prompt, &max_new, err)) != LLM_OK)
		return st;
	if ((st = llm_req_create(&e->m, q, prompt, max_new, &r, err)) != LLM_OK)
		return st;
	if (max_new == 0 && !q->prompt_logprobs) /* nothing to compute: answered at once */
	{
		LlmResult result = {.key = q->key,
							.text = {"", 0},
							.finish = LLM_FINISH_LENGTH,
							.prompt_tokens = n_prompt,
							.dated = prompt->dated};

		llm_req_free(r);
		answer(e, &result);
		return LLM_OK;
	}
	return req_start(e, r, q, err);
}

/* The ids that a request names: those forced for a test, or what the encoder says. */
static LlmStatus
prompt_of(LlmEngine *e, const LlmRequest *q, LlmPrompt *out, LlmError *err)
{
	LlmStatus st;

	if (e->force_ids == NULL)
		return q->kind == LLM_REQUEST_GENERATE ? llm_prompt_encode(&e->m, q, out, err)
											   : llm_pinned_encode(&e->m, q, out, err);
	st = llm_prompt_check(&e->m, e->force_ids, e->force_n, err);
	if (st == LLM_OK && !llm_tokens_append(&out->ids, e->force_ids, (size_t) e->force_n))
		st = llm_error_set(err, LLM_E_MEMORY, "out of memory for a prompt");
	return st;
}

static LlmStatus
submit_generate(LlmEngine *e, const LlmRequest *q, LlmError *err)
{
	LlmPrompt prompt = {0};
	LlmStatus st = prompt_of(e, q, &prompt, err);

	if (st == LLM_OK)
		st = queue(e, q, &prompt, err);
	llm_prompt_fini(&prompt);
	return st;
}

static LlmStatus
submit_pin(LlmEngine *e, const LlmRequest *q, LlmError *err)
{
	LlmRequest one = llm_pinned_request(q);
	LlmPrompt prompt = {0};
	LlmStatus st = check_request(e, &one, err);

	if (st == LLM_OK && (st = prompt_of(e, q, &prompt, err)) == LLM_OK &&
		(st = llm_sched_pin_check(e->sched, (int32_t) prompt.ids.len, err)) == LLM_OK)
		st = queue(e, &one, &prompt, err);
	llm_prompt_fini(&prompt);
	return st;
}

static LlmStatus
answer_unpin(LlmEngine *e, const LlmRequest *q, LlmError *err)
{
	LlmPrompt prompt = {0};
	LlmStatus st = prompt_of(e, q, &prompt, err);

	if (st == LLM_OK &&
		!llm_sched_unpin(e->sched, q->salt, prompt.ids.ids, (int32_t) prompt.ids.len))
		st = llm_error_set(err, LLM_E_INVALID, "this prefix is not pinned");
	if (st == LLM_OK)
	{
		LlmResult result = {.key = q->key, .prompt_tokens = (int32_t) prompt.ids.len};

		answer(e, &result);
	}
	llm_prompt_fini(&prompt);
	return st;
}

static LlmStatus
answer_tokenize(LlmEngine *e, const LlmRequest *q, LlmError *err)
{
	LlmTokens ids = {0};
	LlmStatus st = llm_prompt_tokenize(&e->m, q->prompt, &ids, err);

	if (st == LLM_OK)
	{
		LlmResult result = {.key = q->key,
							.tokens = ids.ids,
							.n_tokens = (int32_t) ids.len,
							.prompt_tokens = (int32_t) ids.len};

		answer(e, &result);
	}
	llm_tokens_fini(&ids);
	return st;
}

static LlmStatus
answer_detokenize(LlmEngine *e, const LlmRequest *q, LlmError *err)
{
	LlmBuf text = {0};
	LlmStatus st = llm_prompt_detokenize(&e->m, q->tokens, q->n_tokens, &text, err);

	if (st == LLM_OK)
	{
		LlmResult result = {.key = q->key, .text = {text.data, text.len}};

		answer(e, &result);
	}
	llm_buf_fini(&text);
	return st;
}

static LlmStatus
submit(LlmEngine *e, const LlmRequest *q, LlmError *err)
{
	LlmStatus st;

	if (!e->loaded)
		return llm_error_set(err, LLM_E_MODEL, "no model is loaded");
	switch (q->kind)
	{
		case LLM_REQUEST_GENERATE:
			st = check_request(e, q, err);
			return st != LLM_OK ? st : submit_generate(e, q, err);
		case LLM_REQUEST_TOKENIZE:
			return answer_tokenize(e, q, err);
		case LLM_REQUEST_DETOKENIZE:
			return answer_detokenize(e, q, err);
		case LLM_REQUEST_SCORE:
			return llm_error_set(err, LLM_E_UNSUPPORTED, "scoring is not supported yet");
		case LLM_REQUEST_POOL:
			return llm_error_set(err, LLM_E_UNSUPPORTED, "embeddings are not supported yet");
		case LLM_REQUEST_PIN:
			return submit_pin(e, q, err);
		case LLM_REQUEST_UNPIN:
			return answer_unpin(e, q, err);
	}
	return llm_error_set(err, LLM_E_INVALID, "no request of kind %d", (int) q->kind);
}

LlmStatus
llm_engine_submit(LlmEngine *e, const LlmRequest *r, LlmError *err)
{
	LlmStatus st = submit(e, r, err);

	e->force_ids = NULL;
	if (st != LLM_OK)
	{
		e->stats.requests++;
		e->stats.errors++;
	}
	return st;
}

void
llm_engine_force_prompt(LlmEngine *e, const int32_t *ids, int32_t n)
{
	e->force_ids = ids;
	e->force_n = n;
}
