/* server/codec.c - frames out of bytes within a budget, and encoding of answers. */
#include "server/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"

/* ---- decoding ---- */

/* A packed token of one byte becomes four in memory. Only short messages of a conversation grow more,
 * to about twenty times: there are at most LLM_MESSAGES_MAX of them. */
#define BUDGET_BASE ((size_t) 64 << 10)
#define BUDGET_FACTOR 4
#define BUDGET_SMALL_NBYTES ((size_t) 64 << 10)
#define BUDGET_SMALL_FACTOR 28

static void *
budget_alloc(void *data, size_t nbytes)
{
	size_t *left = data;

	if (nbytes > *left)
		return NULL;
	*left -= nbytes;
	return malloc(nbytes);
}

static void
budget_free(void *data, void *p)
{
	free(p);
}

Llm__Frame *
llm_codec_unpack(const uint8_t *body, size_t nbytes)
{
	size_t small = nbytes < BUDGET_SMALL_NBYTES ? nbytes : BUDGET_SMALL_NBYTES;
	size_t left = BUDGET_BASE + BUDGET_FACTOR * nbytes + BUDGET_SMALL_FACTOR * small;
	ProtobufCAllocator a = {budget_alloc, budget_free, &left};

	return llm__frame__unpack(&a, nbytes, body);
}

void
llm_codec_free(Llm__Frame *f)
{
	ProtobufCAllocator a = {budget_alloc, budget_free, NULL};

	if (f != NULL)
		llm__frame__free_unpacked(f, &a);
}

/* ---- encoding ---- */

bool
llm_codec_append(LlmBuf *out, const Llm__Frame *f)
{
	size_t nbytes = llm__frame__get_packed_size(f);
	uint8_t *p;

	if (nbytes > LLM_FRAME_MAX || !llm_buf_reserve(out, LLM_FRAME_HEADER + nbytes))
		return false;
	p = (uint8_t *) out->data + out->len;
	llm_frame_header(p, (uint32_t) nbytes);
	llm__frame__pack(f, p + LLM_FRAME_HEADER);
	out->len += LLM_FRAME_HEADER + nbytes;
	out->data[out->len] = '\0';
	return true;
}

bool
llm_codec_append_error(LlmBuf *out, uint64_t id, const LlmError *e)
{
	Llm__Error m = LLM__ERROR__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.id = id;
	m.status = (uint32_t) e->code;
	m.text = (char *) e->text;
	m.detail = e->detail[0] == '\0' ? NULL : (char *) e->detail;
	m.hint = e->hint[0] == '\0' ? NULL : (char *) e->hint;
	m.has_limit = m.has_got = e->limit != 0 || e->got != 0;
	m.limit = e->limit;
	m.got = e->got;
	f.body_case = LLM__FRAME__BODY_ERROR;
	f.error = &m;
	return llm_codec_append(out, &f);
}

/* ---- log-probabilities ---- */

/* The least that a TokenLogprob takes in a frame. */
#define LOGPROB_NBYTES 11

/* Room for the messages of both lists of a result, in one block, and for their places: the next of
 * each. */
typedef struct Logprobs
{
	Llm__TokenLogprob *messages;
	Llm__TokenLogprob **places;
} Logprobs;

/* Room for all log-probabilities of r; l->messages stays NULL when it has none. Errors:
 * LLM_E_CONTEXT, LLM_E_MEMORY. */
static LlmStatus
logprobs_init(Logprobs *l, const LlmResult *r, LlmError *err)
{
	size_t n_rows = (r->logprobs == NULL ? 0 : (size_t) r->completion_tokens) +
					(r->prompt_logprobs == NULL ? 0 : (size_t) r->prompt_tokens);
	size_t n = n_rows * (1 + (size_t) r->n_top);

	*l = (Logprobs){NULL, NULL};
	if (n > LLM_FRAME_MAX / LOGPROB_NBYTES)
		return llm_error_set(err, LLM_E_CONTEXT,
							 "%zu log-probabilities do not fit the %u bytes of a frame", n,
							 LLM_FRAME_MAX);
	if (n == 0)
		return LLM_OK;
	l->messages = malloc(n * (sizeof(*l->messages) + sizeof(*l->places)));
	if (l->messages == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for %zu log-probabilities", n);
	l->places = (Llm__TokenLogprob **) (l->messages + n);
	return LLM_OK;
}

/* Take the messages of n_rows rows of [1 + n_top] from l: gives back their places, *n of them. An
 * absent token (-1) ends a row. */
static Llm__TokenLogprob **
logprobs_take(Logprobs *l, const LlmResult *r, const LlmLogprob *rows, int32_t n_rows, size_t *n)
{
	Llm__TokenLogprob **first = l->places;

	for (int32_t i = 0; rows != NULL && i < n_rows; i++, rows += 1 + r->n_top)
		for (int32_t k = 0; k <= r->n_top && (k == 0 || rows[k].token >= 0); k++)
		{
			Llm__TokenLogprob *m = l->messages++;
			LlmStr text = r->token_text(r->vocabulary, rows[k].token);

			llm__token_logprob__init(m);
			m->token = rows[k].token;
			m->logprob = rows[k].logprob;
			m->text.data = (uint8_t *) text.p;
			m->text.len = text.len;
			m->has_top = m->top = k > 0;
			*l->places++ = m;
		}
	*n = (size_t) (l->places - first);
	return first;
}

/* ---- results ---- */

static bool
append_done(LlmBuf *out, Llm__Done *m)
{
	Llm__Frame f = LLM__FRAME__INIT;

	f.body_case = LLM__FRAME__BODY_DONE;
	f.done = m;
	if (llm__frame__get_packed_size(&f) > LLM_FRAME_MAX)
	{
		LlmError e;

		llm_error_set(&e, LLM_E_CONTEXT, "the answer is larger than the %u bytes of a frame",
					  LLM_FRAME_MAX);
		return llm_codec_append_error(out, m->id, &e);
	}
	return llm_codec_append(out, &f);
}

bool
llm_codec_append_done(LlmBuf *out, uint64_t id, uint64_t numerics_key)
{
	Llm__Done m = LLM__DONE__INIT;

	m.id = id;
	m.has_numerics_key = numerics_key != 0;
	m.numerics_key = numerics_key;
	return append_done(out, &m);
}

bool
llm_codec_append_result(LlmBuf *out, const LlmResult *r, bool streamed)
{
	static const Llm__Finish finishes[] = {
		[LLM_FINISH_STOP] = LLM__FINISH__FINISH_STOP,
		[LLM_FINISH_LENGTH] = LLM__FINISH__FINISH_LENGTH,
		[LLM_FINISH_CANCELLED] = LLM__FINISH__FINISH_CANCELLED,
		[LLM_FINISH_ERROR] = LLM__FINISH__FINISH_ERROR,
	};
	Llm__Done m = LLM__DONE__INIT;
	Logprobs l;
	LlmError e;
	void *block;
	bool ok;

	if (r->status != LLM_OK)
	{
		llm_error_set(&e, r->status, "the request failed: %s", llm_status_name(r->status));
		return llm_codec_append_error(out, r->key.id, r->error != NULL ? r->error : &e);
	}
	if (logprobs_init(&l, r, &e) != LLM_OK)
		return llm_codec_append_error(out, r->key.id, &e);
	block = l.messages;
	m.id = r->key.id;
	m.has_text = !streamed;
	m.text.data = (uint8_t *) r->text.p;
	m.text.len = r->text.len;
	m.tokens = (int32_t *) r->tokens;
	m.n_tokens = (size_t) r->n_tokens;
	m.has_finish = true;
	m.finish = finishes[r->finish];
	m.has_prompt_tokens = m.has_cached_tokens = m.has_completion_tokens = true;
	m.prompt_tokens = r->prompt_tokens;
	m.cached_tokens = r->cached_tokens;
	m.completion_tokens = r->completion_tokens;
	m.has_queue_ms = m.has_first_token_ms = m.has_total_ms = true;
	m.queue_ms = r->queue_ms;
	m.first_token_ms = r->first_token_ms;
	m.total_ms = r->total_ms;
	m.has_numerics_key = true;
	m.numerics_key = r->numerics_key;
	m.has_dated = m.dated = r->dated;
	m.has_reasoning = r->reasoning.p != NULL;
	m.reasoning.data = (uint8_t *) r->reasoning.p;
	m.reasoning.len = r->reasoning.len;
	m.logprobs = logprobs_take(&l, r, r->logprobs, r->completion_tokens, &m.n_logprobs);
	m.prompt_logprobs =
		logprobs_take(&l, r, r->prompt_logprobs, r->prompt_tokens, &m.n_prompt_logprobs);
	ok = append_done(out, &m);
	free(block);
	return ok;
}

bool
llm_codec_append_tokens(LlmBuf *out, uint64_t id, LlmStr piece)
{
	Llm__Tokens m = LLM__TOKENS__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.id = id;
	m.text.data = (uint8_t *) piece.p;
	m.text.len = piece.len;
	f.body_case = LLM__FRAME__BODY_TOKENS;
	f.tokens = &m;
	return llm_codec_append(out, &f);
}

/* The finish reasons are a closed set on both sides. */
_Static_assert(LLM_FINISH_ERROR == 3, "a new finish reason needs a number in llm.proto");
