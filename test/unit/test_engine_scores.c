/*
 * test_engine_scores.c - log-probabilities of answers and prompts: right, and the same bits always.
 *
 * Right: against a softmax in double precision of the logits that the hook shows. The same: by memcmp
 * over chunk sizes, batches, threads, preemption and a warm prefix cache.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "engine_run.h"

#define MODEL "test/golden/models/llama256-q8_0/model.gguf"
#define VOCAB 512
#define IDS_PLAIN 496
#define N_REQS 8
#define N_NEW 5
#define LEN_MAX 150
#define N_TOP 4

static const int32_t lengths[N_REQS] = {1, 2, 64, 65, 130, 7, 128, 33};

static int32_t
id_at(int req, int32_t i)
{
	/* The first four share their beginnings, so that a cache has something to offer. */
	return (int32_t) (llm_rng_u32(5, req < 5 ? 0 : (uint32_t) req, (uint32_t) i) % IDS_PLAIN);
}

static LlmRequest
request(int req)
{
	LlmRequest q = run_request("", N_NEW);

	q.sample.temperature = req % 2 == 0 ? 0.0f : 1.0f;
	q.sample.seed = (uint64_t) req;
	q.sample.repetition_penalty = req % 4 == 3 ? 1.3f : 1.0f;
	q.ignore_eos = true;
	q.logprobs = q.prompt_logprobs = true;
	q.n_top = req % 3 == 0 ? 0 : N_TOP;
	return q;
}

static uint64_t
submit(Run *r, int req, LlmRequest q)
{
	int32_t ids[LEN_MAX];

	for (int32_t i = 0; i < lengths[req]; i++)
		ids[i] = id_at(req, i);
	llm_engine_force_prompt(r->e, ids, lengths[req]);
	return run_submit(r, q);
}

static void
open_model(Run *r, LlmEngineOptions o)
{
	LlmModelSpec spec = {.path = MODEL};

	run_init(r, &o, &spec);
}

/* ---- right ---- */

typedef struct Logits
{
	float *x; /* [N_REQS + 1][LEN_MAX][VOCAB] by request id and position */
	uint8_t seen[N_REQS + 1][LEN_MAX];
} Logits;

static void
on_logits(void *arg, LlmRequestKey key, int32_t position, const float *logits, int32_t vocab_size)
{
	Logits *l = arg;

	assert_int_equal(vocab_size, VOCAB);
	memcpy(l->x + ((size_t) key.id * LEN_MAX + (size_t) position) * VOCAB, logits,
		   VOCAB * sizeof(float));
	l->seen[key.id][position] = 1;
}

/* How many of x go before id in (logit descending, id ascending). */
static int
rank_of(const float *x, int32_t id)
{
	int n = 0;

	for (int32_t i = 0; i < VOCAB; i++)
		n += x[i] > x[id] || (x[i] == x[id] && i < id);
	return n;
}

/* The row says what a softmax of x says of token. */
static void
check_row(const float *x, int32_t token, const LlmLogprob *row, int32_t n_top)
{
	double max = -INFINITY, sum = 0;

	for (int i = 0; i < VOCAB; i++)
		max = fmax(max, (double) x[i]);
	for (int i = 0; i < VOCAB; i++)
		sum += exp((double) x[i] - max);
	assert_int_equal(row[0].token, token);
	for (int32_t k = 0; k <= n_top; k++)
	{
		assert_in_range(row[k].token, 0, VOCAB - 1);
		assert_float_equal(row[k].logprob, (double) x[row[k].token] - max - log(sum), 2e-5);
		if (k > 0)
			assert_int_equal(rank_of(x, row[k].token), k - 1);
	}
}

static void
they_are_those_of_the_logits(void **state)
{
	LlmEngineOptions o = run_options();
	Logits *l = calloc(1, sizeof(*l));
	Run r;

	o.max_batch_tokens = 50;
	l->x = calloc((size_t) (N_REQS + 1) * LEN_MAX * VOCAB, sizeof(float));
	open_model(&r, o);
	llm_engine_logits_hook(r.e, on_logits, l, true);
	for (int req = 0; req < N_REQS; req++)
		submit(&r, req, request(req));
	run_all(&r);
	for (int req = 0; req < N_REQS; req++)
	{
		Outcome *out = &r.of[req + 1];
		size_t width = (size_t) out->n_top + 1;
		const float *x = l->x + (size_t) (req + 1) * LEN_MAX * VOCAB;

		assert_int_equal(out->status, LLM_OK);
		assert_int_equal(out->n_top, req % 3 == 0 ? 0 : N_TOP);
		assert_non_null(out->logprobs);
		assert_int_equal(out->prompt_tokens, lengths[req]);
		assert_int_equal(out->prompt_logprobs[0].token, id_at(req, 0));
		for (size_t k = 0; k < width; k++)
		{
			assert_true(isnan(out->prompt_logprobs[k].logprob));
			assert_true(k == 0 || out->prompt_logprobs[k].token == -1);
		}
		for (int32_t i = 1; i < lengths[req]; i++)
			check_row(x + (i - 1) * VOCAB, id_at(req, i), out->prompt_logprobs + (size_t) i * width,
					  out->n_top);
		for (int32_t i = 0; i < N_NEW; i++)
			check_row(x + (lengths[req] - 1 + i) * VOCAB, out->generated.ids[i],
					  out->logprobs + (size_t) i * width, out->n_top);
	}
	run_fini(&r);
	free(l->x);
	free(l);
}

/* ---- the same ---- */

typedef struct Way
{
	const char *what;
	int32_t rows, running, threads;
	uint32_t preempt_every;
	bool warm;  /* all prompts are in the cache before */
	bool among; /* plain requests run along */
	const char *isa;
} Way;

static void
compare(const Run *ref, const Run *r, uint64_t first, const Way *w)
{
	for (int req = 0; req < N_REQS; req++)
	{
		const Outcome *a = &ref->of[req + 1], *b = &r->of[first + (uint64_t) req];
		size_t row_nbytes = (size_t) (a->n_top + 1) * sizeof(LlmLogprob);

		assert_int_equal(b->status, LLM_OK);
		if (b->cached_tokens != 0)
			fail_msg("%s: request %d read %d cached tokens", w->what, req, b->cached_tokens);
		assert_memory_equal(a->generated.ids, b->generated.ids, N_NEW * sizeof(int32_t));
		if (memcmp(a->logprobs, b->logprobs, N_NEW * row_nbytes) != 0)
			fail_msg("%s: request %d has other log-probabilities", w->what, req);
		for (int32_t i = 0; i < lengths[req]; i++)
			if (memcmp((const char *) a->prompt_logprobs + (size_t) i * row_nbytes,
					   (const char *) b->prompt_logprobs + (size_t) i * row_nbytes,
					   row_nbytes) != 0)
				fail_msg("%s: request %d has other ones at token %d of its prompt", w->what, req,
						 (int) i);
	}
}

static void
they_are_the_same_bits(void **state)
{
	const Way ways[] = {
		{"1 row", 1, 16, 1},
		{"7 rows", 7, 16, 1},
		{"64 rows", 64, 16, 2},
		{"512 rows", 512, 16, 1},
		{"512 rows, 2 sequences", 512, 2, 1}, /* 2 outputs a step: scores wait for them */
		{"preempted", 40, 16, 1, 3},
		{"preempted, 7 rows", 7, 16, 1, 5},
		{"warm", 100, 16, 1, 0, true},
		{"warm, preempted, among others", 33, 12, 2, 4, true, true},
		{"generic", 64, 16, 1, 0, false, false, "generic"},
	};
	LlmEngineOptions o = run_options();
	Run ref;

	o.max_running = 1;
	o.prefix_cache = false;
	open_model(&ref, o);
	for (int req = 0; req < N_REQS; req++)
		submit(&ref, req, request(req));
	run_all(&ref);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
	{
		const Way *w = &ways[i];
		uint64_t first = 0;
		LlmEngineStats s;
		Run r;

		o = run_options();
		o.max_batch_tokens = w->rows;
		o.max_running = w->running;
		o.threads = w->threads;
		o.preempt_every = w->preempt_every;
		o.isa = w->isa;
		open_model(&r, o);
		for (int k = 0; w->warm && k < N_REQS; k++)
		{
			LlmRequest q = request(k);

			q.prompt_logprobs = q.logprobs = false;
			q.n_top = 0;
			submit(&r, k, q);
			run_all(&r);
		}
		for (int req = 0; w->among && req < N_REQS; req++)
			submit(&r, req, run_request("", N_NEW));
		first = r.next_id + 1;
		for (int req = 0; req < N_REQS; req++)
			submit(&r, req, request(req));
		run_all(&r);
		compare(&ref, &r, first, w);
		llm_engine_stats(r.e, &s);
		assert_true(w->preempt_every == 0 || s.preemptions > 0);
		run_fini(&r);
	}
	run_fini(&ref);
}

/* Asking for log-probabilities changes no token. */
static void
they_change_no_answer(void **state)
{
	Run r;

	open_model(&r, run_options());
	for (int req = 0; req < N_REQS; req++)
	{
		LlmRequest q = request(req);
		uint64_t with = submit(&r, req, q), without;

		q.logprobs = q.prompt_logprobs = false;
		q.n_top = 0;
		without = submit(&r, req, q);
		run_all(&r);
		assert_memory_equal(r.of[with].generated.ids, r.of[without].generated.ids,
							N_NEW * sizeof(int32_t));
		assert_null(r.of[without].logprobs);
		assert_null(r.of[without].prompt_logprobs);
	}
	run_fini(&r);
}

/* ---- edges, on the echo device ---- */

static void
a_prompt_alone_is_scored(void **state)
{
	const char *text = "aabbb";
	Run r;
	LlmRequest q = run_request(text, 0);
	Outcome *o;

	run_echo(&r);
	q.raw = true;
	q.prompt_logprobs = true;
	q.n_top = 2;
	for (int i = 0; i < 2; i++) /* cold, and with the prompt's pages known */
	{
		o = run_one(&r, q);
		assert_int_equal(o->status, LLM_OK);
		assert_int_equal(o->finish, LLM_FINISH_LENGTH);
		assert_int_equal(o->completion_tokens, 0);
		assert_int_equal(o->text.len, 0);
		assert_null(o->logprobs);
		assert_int_equal(o->prompt_tokens, 6); /* with BOS */
		for (int k = 1; k < 6; k++)
		{
			const LlmLogprob *row = o->prompt_logprobs + 3 * k;

			assert_int_equal(row[0].token, text[k - 1]);
			/* The echo device expects every letter twice. */
			assert_float_equal(row[0].logprob, k > 1 && text[k - 1] == text[k - 2] ? 0 : -100, 0);
			assert_int_equal(row[1].token, k == 1 ? 256 : text[k - 2]);
			assert_float_equal(row[1].logprob, 0, 0);
		}
	}
	q.prompt = llm_str(""); /* BOS alone: nothing to score, nothing to wait for */
	o = run_one(&r, q);
	assert_int_equal(o->status, LLM_OK);
	assert_int_equal(o->prompt_tokens, 1);
	assert_int_equal(o->prompt_logprobs[0].token, 256);
	q.prompt_logprobs = false;
	q.n_top = 0;
	assert_null(run_one(&r, q)->prompt_logprobs);
	run_fini(&r);
}

/* All tokens of a prompt that nothing follows are stored: it may fill the pool, and no more. */
static void
a_prompt_alone_fits_or_is_refused(void **state)
{
	LlmEngineOptions o = run_options();
	LlmRequest q;
	LlmError err;
	Run r;

	o.kv_nbytes = 2 * 64 * (int64_t) sizeof(int32_t); /* two pages of the echo device */
	run_echo_with(&r, o, 512);
	q = run_request(run_text_of(127), 0); /* and BOS */
	q.raw = true;
	q.prompt_logprobs = true;
	assert_int_equal(run_one(&r, q)->status, LLM_OK);
	q.prompt = llm_str(run_text_of(128));
	err = run_refused(&r, q);
	assert_int_equal(err.code, LLM_E_KV_MEMORY);
	assert_int_equal(err.got, 3);
	assert_int_equal(err.limit, 2);
	run_fini(&r);
}

/* However many generate beside it, 64 rows of a step are scored. */
static void
a_prompt_is_scored_beside_answers(void **state)
{
	LlmEngineOptions o = run_options();
	LlmRequest q = run_request(run_text_of(600), 0);
	uint64_t id;
	int n_steps;
	Run r;

	o.max_running = 4;
	run_echo_with(&r, o, 1024);
	for (int i = 0; i < 3; i++)
		run_submit(&r, run_request("@tokens=400 ab", 400));
	run_step(&r);
	run_step(&r);
	q.raw = true;
	q.prompt_logprobs = true;
	id = run_submit(&r, q);
	for (n_steps = 0; r.of[id].n_done == 0; n_steps++)
		run_step(&r);
	assert_in_range(n_steps, 2, 600 / 64 + 2);
	run_all(&r);
	run_fini(&r);
}

static void
the_end_token_has_one_too(void **state)
{
	Run r;
	LlmRequest q = run_request("ab", 10);
	Outcome *o;

	run_echo(&r);
	q.logprobs = true;
	o = run_one(&r, q);
	assert_int_equal(o->completion_tokens, 3);
	for (int i = 0; i < 3; i++)
		assert_float_equal(o->logprobs[i].logprob, 0, 0);
	assert_int_equal(o->logprobs[2].token, 257);
	q.n_top = 20;
	o = run_one(&r, q);
	assert_int_equal(o->n_top, 20);
	assert_int_equal(o->logprobs[21 * 2 + 1].token, 257);
	assert_int_equal(o->logprobs[21 * 2 + 2].token, 0);
	assert_float_equal(o->logprobs[21 * 2 + 2].logprob, -100, 0);
	run_fini(&r);
}

static void
failing_rows_end_their_request_alone(void **state)
{
	Run r;
	LlmRequest q = run_request("@nan", 10);
	uint64_t bad, good;

	run_echo(&r);
	q.prompt_logprobs = q.logprobs = true;
	bad = run_submit(&r, q);
	q.prompt = llm_str("fine");
	good = run_submit(&r, q);
	run_all(&r);
	assert_int_equal(r.of[bad].status, LLM_E_INTERNAL);
	assert_null(r.of[bad].prompt_logprobs);
	assert_string_equal(run_text(&r.of[good]), "fine");
	run_fini(&r);
}

static void
what_is_too_much_is_refused(void **state)
{
	LlmModelSpec spec = {.path = "echo:", .context_length = 1 << 20};
	LlmEngineOptions o = run_options();
	Run r;
	LlmRequest q = run_request("ab", 400000);
	LlmError err;

	run_init(&r, &o, &spec);
	q.n_top = 20;
	err = run_refused(&r, q);
	assert_int_equal(err.code, LLM_E_INVALID);
	assert_non_null(strstr(err.text, "logprobs is off"));
	q.logprobs = true;
	err = run_refused(&r, q); /* 400000 * 21 * 8 */
	assert_int_equal(err.code, LLM_E_INVALID);
	assert_non_null(strstr(err.text, "67200000 bytes, more than 67108864"));
	assert_int_equal(err.got, 67200000);
	assert_int_equal(err.limit, 67108864);
	q.max_tokens = 1;
	q.n_top = 21;
	assert_non_null(strstr(run_refused(&r, q).text, "top_logprobs is 21, not 0 to 20"));
	q.n_top = -1;
	assert_non_null(strstr(run_refused(&r, q).text, "top_logprobs is -1"));
	q.n_top = 20;
	q.max_tokens = LLM_MAX_TOKENS_REST; /* the room there is, which is over the bound as well */
	assert_int_equal(run_refused(&r, q).code, LLM_E_INVALID);
	q.max_tokens = 399000;
	assert_int_equal(run_one(&r, q)->completion_tokens, 3);
	run_fini(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(they_are_those_of_the_logits),
		cmocka_unit_test(they_are_the_same_bits),
		cmocka_unit_test(they_change_no_answer),
		cmocka_unit_test(a_prompt_alone_is_scored),
		cmocka_unit_test(a_prompt_alone_fits_or_is_refused),
		cmocka_unit_test(a_prompt_is_scored_beside_answers),
		cmocka_unit_test(the_end_token_has_one_too),
		cmocka_unit_test(failing_rows_end_their_request_alone),
		cmocka_unit_test(what_is_too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
