/* engine_run.h - an engine under test: every request's outcome by its id, an audit after each step. */
#ifndef LLM_TEST_ENGINE_RUN_H
#define LLM_TEST_ENGINE_RUN_H

#include <stdlib.h>
#include <string.h>

#include "engine/llm.h"

#define RUN_MAX 512     /* request ids are below this */
#define RUN_CONTEXT 128 /* of most tests */
#define RUN_AROUND 20   /* tokens that the echo model's template puts around the user's text */

typedef struct Outcome
{
	int n_done;
	LlmStatus status;
	LlmError error;
	LlmFinish finish;
	LlmBuf text;
	LlmBuf pieces; /* streamed */
	int n_pieces;
	LlmBuf reasoning;
	bool thought; /* reasoning was not NULL */
	LlmTokens tokens;
	LlmTokens generated;
	int32_t n_top;
	LlmLogprob *logprobs;        /* NULL, or [completion_tokens][1 + n_top] */
	LlmLogprob *prompt_logprobs; /* NULL, or [prompt_tokens][1 + n_top] */
	int32_t prompt_tokens;
	int32_t cached_tokens;
	int32_t completion_tokens;
	double queue_ms, first_token_ms, total_ms;
	uint64_t numerics_key;
} Outcome;

typedef struct Run
{
	LlmEngine *e;
	Outcome of[RUN_MAX];
	int n_done;
	int n_steps;            /* engine steps made by run_step */
	LlmRequestKey keys[64]; /* of the last `step` event */
	int n_keys;
	bool was_mixed; /* a step held `alone_id` and another request */
	uint64_t alone_id;
	uint64_t next_id;
} Run;

static inline void
run_on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	Run *r = arg;

	assert_true(llm_utf8_valid(piece.p, piece.len));
	assert_true(piece.len > 0);
	assert_true(llm_buf_append(&r->of[key.id].pieces, piece.p, piece.len));
	r->of[key.id].n_pieces++;
}

/* A copy of n rows, NULL for NULL. */
static inline LlmLogprob *
run_rows(const LlmLogprob *rows, int32_t n, int32_t n_top)
{
	size_t nbytes = (size_t) n * (size_t) (n_top + 1) * sizeof(*rows);
	LlmLogprob *c = rows == NULL ? NULL : malloc(nbytes + 1);

	if (c != NULL)
		memcpy(c, rows, nbytes);
	return c;
}

static inline void
run_on_done(void *arg, const LlmResult *res)
{
	Run *r = arg;
	Outcome *o = &r->of[res->key.id];

	r->n_done++;
	o->n_done++;
	o->status = res->status;
	assert_int_equal(res->status == LLM_OK, res->error == NULL);
	if (res->error != NULL)
		o->error = *res->error;
	o->finish = res->finish;
	assert_true(llm_utf8_valid(res->text.p, res->text.len));
	assert_true(llm_buf_append(&o->text, res->text.p, res->text.len));
	if (res->n_tokens > 0)
		assert_true(llm_tokens_append(&o->tokens, res->tokens, (size_t) res->n_tokens));
	if (res->generated != NULL)
		assert_true(
			llm_tokens_append(&o->generated, res->generated, (size_t) res->completion_tokens));
	assert_true(llm_utf8_valid(res->reasoning.p, res->reasoning.len));
	o->thought = res->reasoning.p != NULL;
	assert_true(llm_buf_append(&o->reasoning, res->reasoning.p, res->reasoning.len));
	o->n_top = res->n_top;
	o->logprobs = run_rows(res->logprobs, res->completion_tokens, res->n_top);
	o->prompt_logprobs = run_rows(res->prompt_logprobs, res->prompt_tokens, res->n_top);
	o->prompt_tokens = res->prompt_tokens;
	o->cached_tokens = res->cached_tokens;
	o->completion_tokens = res->completion_tokens;
	o->queue_ms = res->queue_ms;
	o->first_token_ms = res->first_token_ms;
	o->total_ms = res->total_ms;
	o->numerics_key = res->numerics_key;
}

static inline void
run_on_step(void *arg, const LlmRequestKey *keys, int32_t n)
{
	Run *r = arg;

	assert_in_range(n, 1, 64);
	memcpy(r->keys, keys, (size_t) n * sizeof(*keys));
	r->n_keys = n;
	for (int32_t i = 0; i < n; i++)
		r->was_mixed |= n > 1 && r->alone_id != 0 && keys[i].id == r->alone_id;
}

/* Create the engine and load the model; NULL spec fields as in LlmModelSpec. */
static inline void
run_init(Run *r, const LlmEngineOptions *o, const LlmModelSpec *spec)
{
	LlmEngineEvents events = {r, run_on_text, run_on_done, run_on_step};
	LlmError err = {0};

	memset(r, 0, sizeof(*r));
	if (llm_engine_create(o, events, &r->e, &err) != LLM_OK)
		fail_msg("create: %s", err.text);
	if (spec != NULL && llm_engine_load(r->e, spec, &err) != LLM_OK)
		fail_msg("load: %s (%s)", err.text, err.detail);
}

static inline void
run_forget(Run *r)
{
	for (int i = 0; i < RUN_MAX; i++)
	{
		llm_buf_fini(&r->of[i].text);
		llm_buf_fini(&r->of[i].pieces);
		llm_buf_fini(&r->of[i].reasoning);
		llm_tokens_fini(&r->of[i].tokens);
		llm_tokens_fini(&r->of[i].generated);
		free(r->of[i].logprobs);
		free(r->of[i].prompt_logprobs);
		memset(&r->of[i], 0, sizeof(r->of[i]));
	}
	r->next_id = 0;
	r->n_done = 0;
}

/* All pages must be back. */
static inline void
run_fini(Run *r)
{
	LlmEngineStats s;
	LlmError err;

	llm_engine_stats(r->e, &s);
	assert_int_equal(s.running + s.waiting, 0);
	assert_int_equal(s.kv_pages_free + s.kv_pages_cached, s.kv_pages_total);
	assert_true(llm_engine_audit(r->e, &err));
	llm_engine_free(r->e);
	run_forget(r);
}

static inline LlmRequest
run_request(const char *prompt, int32_t max_tokens)
{
	return (LlmRequest){.key.client = 1,
						.prompt = llm_str(prompt),
						.sample = {.temperature = -1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f},
						.max_tokens = max_tokens};
}

/* Submit under the next id; the id. Fails the test when it is refused. */
static inline uint64_t
run_submit(Run *r, LlmRequest q)
{
	LlmError err = {0};

	q.key.id = ++r->next_id;
	assert_in_range(q.key.id, 1, RUN_MAX - 1);
	if (llm_engine_submit(r->e, &q, &err) != LLM_OK)
		fail_msg("submit: %s", err.text);
	return q.key.id;
}

/* Submit what must be refused; the error. */
static inline LlmError
run_refused(Run *r, LlmRequest q)
{
	LlmError err = {0};

	q.key.id = RUN_MAX - 1;
	assert_int_not_equal(llm_engine_submit(r->e, &q, &err), LLM_OK);
	assert_int_equal(r->of[q.key.id].n_done, 0);
	return err;
}

/* One step and an audit; false when nothing is left to do. */
static inline bool
run_step(Run *r)
{
	bool idle;
	LlmError err = {0};

	if (llm_engine_step(r->e, &idle, &err) != LLM_OK)
		fail_msg("step: %s", err.text);
	if (!llm_engine_audit(r->e, &err))
		fail_msg("audit: %s", err.text);
	r->n_steps++;
	return !idle;
}

static inline void
run_all(Run *r)
{
	for (int i = 0; run_step(r); i++)
		assert_in_range(i, 0, 200000);
}

/* The outcome of one request that runs by itself. */
static inline Outcome *
run_one(Run *r, LlmRequest q)
{
	uint64_t id = run_submit(r, q);

	run_all(r);
	assert_int_equal(r->of[id].n_done, 1);
	return &r->of[id];
}

static inline const char *
run_text(const Outcome *o)
{
	return o->text.data == NULL ? "" : o->text.data;
}

static inline LlmEngineOptions
run_options(void)
{
	LlmEngineOptions o = llm_engine_options_default();

	o.devices = "cpu,echo";
	o.max_running = 16;
	o.single_flight = false; /* many tests ask the same twice to see it computed twice */
	return o;
}

static inline void
run_echo_with(Run *r, LlmEngineOptions o, int32_t context)
{
	LlmModelSpec spec = {.path = "echo:", .context_length = context};

	run_init(r, &o, &spec);
}

static inline void
run_echo(Run *r)
{
	run_echo_with(r, run_options(), RUN_CONTEXT);
}

/* n bytes in which every place can be told from its neighbours. */
static inline const char *
run_text_of(size_t n)
{
	static char text[4096];

	assert_true(n < sizeof(text));
	for (size_t i = 0; i < n; i++)
		text[i] = (char) ('a' + (i * 7 + i / 26) % 26);
	text[n] = '\0';
	return text;
}

#endif
