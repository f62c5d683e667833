/*
 * test_engine_prefix.c - the prefix cache changes what is computed and no bit of any answer.
 *
 * The reference runs each request alone with the cache off. Then the same requests run with the cache
 * cold, warm, under preemption and in a pool that evicts all the time: every logit that is computed
 * must equal the reference's by memcmp, and the positions that are not computed are exactly those
 * that the result counts as cached.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "engine/llm.h"
#include "tensor/kv_spec.h"

#define VOCAB 512
#define IDS_PLAIN 496 /* ids from here on are control tokens */
#define LEN_MAX 240
#define REQS_MAX 16

typedef struct Req
{
	int32_t ids[LEN_MAX];
	int32_t n;
	int32_t n_new;
	uint64_t salt;
	uint64_t seed;
	bool greedy;
} Req;

/* What came of a request. */
typedef struct Out
{
	float *logits; /* [LEN_MAX, VOCAB] */
	uint8_t seen[LEN_MAX];
	int32_t generated[LEN_MAX];
	int32_t n_generated;
	int32_t cached;
	bool done;
} Out;

/* An engine with a model, and the requests that it runs now. */
typedef struct Rig
{
	LlmEngine *e;
	Out out[REQS_MAX];
} Rig;

typedef struct Way
{
	const char *what;
	bool cache;
	int32_t threads, max_batch_tokens, max_running;
	uint32_t preempt_every;
	int64_t kv_nbytes; /* of f16 */
} Way;

static const Way plain = {"off, alone", false, 1, 512, 1, 0, 0};

static void
on_logits(void *arg, LlmRequestKey key, int32_t position, const float *logits, int32_t vocab_size)
{
	Out *o = &((Rig *) arg)->out[key.id];

	assert_int_equal(vocab_size, VOCAB);
	assert_in_range(position, 0, LEN_MAX - 1);
	if (o->seen[position] &&
		memcmp(o->logits + (size_t) position * VOCAB, logits, VOCAB * sizeof(float)) != 0)
		fail_msg("request %d position %d differs when computed again", (int) key.id, position);
	memcpy(o->logits + (size_t) position * VOCAB, logits, VOCAB * sizeof(float));
	o->seen[position] = 1;
}

static void
on_done(void *arg, const LlmResult *r)
{
	Out *o = &((Rig *) arg)->out[r->key.id];

	if (r->status != LLM_OK)
		fail_msg("request %d: %s", (int) r->key.id, r->error->text);
	memcpy(o->generated, r->generated, (size_t) r->completion_tokens * sizeof(int32_t));
	o->n_generated = r->completion_tokens;
	o->cached = r->cached_tokens;
	assert_false(o->done);
	o->done = true;
}

static void
rig_init(Rig *rig, const Way *w, const char *kv_type)
{
	LlmEngineOptions o = llm_engine_options_default();
	LlmModelSpec spec = {.path = "test/golden/models/llama-gqa/model.gguf", .kv_type = kv_type};
	LlmEngineEvents events = {.arg = rig, .done = on_done};
	LlmError err = {0};

	memset(rig, 0, sizeof(*rig));
	o.threads = w->threads;
	o.max_batch_tokens = w->max_batch_tokens;
	o.max_running = w->max_running;
	o.preempt_every = w->preempt_every;
	o.kv_nbytes = strcmp(kv_type, "f32") == 0 ? 2 * w->kv_nbytes : w->kv_nbytes;
	assert_true(o.prefix_cache); /* the default */
	o.prefix_cache = w->cache;
	assert_int_equal(llm_engine_create(&o, events, &rig->e, &err), LLM_OK);
	llm_engine_logits_hook(rig->e, on_logits, rig, true);
	if (llm_engine_load(rig->e, &spec, &err) != LLM_OK)
		fail_msg("load: %s (%s)", err.text, err.detail);
	for (int i = 0; i < REQS_MAX; i++)
		rig->out[i].logits = malloc((size_t) LEN_MAX * VOCAB * sizeof(float));
}

/* Nothing runs, so every page is free or cached. */
static void
rig_drained(Rig *rig)
{
	LlmEngineStats s;
	LlmError err;

	llm_engine_stats(rig->e, &s);
	assert_int_equal(s.running + s.waiting, 0);
	assert_int_equal(s.kv_pages_free + s.kv_pages_cached, s.kv_pages_total);
	assert_true(llm_engine_audit(rig->e, &err));
}

static void
rig_fini(Rig *rig)
{
	rig_drained(rig);
	llm_engine_free(rig->e);
	for (int i = 0; i < REQS_MAX; i++)
		free(rig->out[i].logits);
}

static void
step_all(Rig *rig)
{
	bool idle = false;
	LlmError err = {0};

	while (!idle)
		if (llm_engine_step(rig->e, &idle, &err) != LLM_OK || !llm_engine_audit(rig->e, &err))
			fail_msg("step: %s", err.text);
}

static void
rig_submit(Rig *rig, const Req *req, int i)
{
	LlmError err = {0};
	LlmRequest q = {.key = {1, (uint64_t) i},
					.sample = {.temperature = req->greedy ? 0.0f : 1.0f,
							   .top_p = 0.9f,
							   .repetition_penalty = 1.1f,
							   .seed = req->seed},
					.max_tokens = req->n_new,
					.raw = true,
					.ignore_eos = true,
					.salt = req->salt};

	memset(rig->out[i].seen, 0, sizeof(rig->out[i].seen));
	rig->out[i].done = false;
	llm_engine_force_prompt(rig->e, req->ids, req->n);
	if (llm_engine_submit(rig->e, &q, &err) != LLM_OK)
		fail_msg("submit: %s", err.text);
}

/* Run n requests to their ends; together, or one after the other. */
static void
rig_run(Rig *rig, const Req *reqs, int n, bool together)
{
	for (int i = 0; i < n; i++)
	{
		rig_submit(rig, &reqs[i], i);
		if (!together)
			step_all(rig);
	}
	step_all(rig);
	for (int i = 0; i < n; i++)
		assert_true(rig->out[i].done);
	rig_drained(rig);
}

static int32_t
n_unseen(const Out *o, int32_t n)
{
	int32_t k = 0;

	for (int32_t pos = 0; pos < n; pos++)
		k += !o->seen[pos];
	return k;
}

/* Every computed logit is the reference's, and what is not computed is what was cached. */
static void
compare(const char *what, const Rig *ref, const Rig *rig, const Req *reqs, int n)
{
	for (int i = 0; i < n; i++)
	{
		const Out *a = &ref->out[i];
		const Out *b = &rig->out[i];

		assert_int_equal(a->cached, 0);
		assert_in_range(b->cached, 0, reqs[i].n - 1);
		assert_int_equal(b->n_generated, reqs[i].n_new);
		assert_memory_equal(a->generated, b->generated, (size_t) reqs[i].n_new * sizeof(int32_t));
		for (int32_t pos = 0; pos < reqs[i].n + reqs[i].n_new - 1; pos++)
		{
			assert_true(a->seen[pos]);
			if (!b->seen[pos])
			{
				assert_in_range(pos, 0, reqs[i].n - 2); /* the last token is always computed */
				continue;
			}
			if (memcmp(a->logits + (size_t) pos * VOCAB, b->logits + (size_t) pos * VOCAB,
					   VOCAB * sizeof(float)) != 0)
				fail_msg("%s: request %d (prompt %d, %d cached) differs at position %d", what, i,
						 reqs[i].n, b->cached, pos);
		}
	}
}

/* n tokens: the first n_shared are those of all prompts, the others its own. */
static Req
req_make(int32_t n, int32_t n_shared, uint32_t own, int32_t n_new)
{
	Req q = {.n = n, .n_new = n_new, .salt = 1, .seed = 3, .greedy = own % 2 == 0};

	for (int32_t i = 0; i < n; i++)
		q.ids[i] = (int32_t) (llm_rng_u32(7, i < n_shared ? 0 : own + 1, (uint32_t) i) % IDS_PLAIN);
	return q;
}

/* Lengths around pages, shared to various depths. */
static int
reqs_make(Req *reqs)
{
	static const int32_t lengths[] = {63, 64, 65, 127, 128, 129, 200};
	int n = 0;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		reqs[n++] = req_make(lengths[i], LEN_MAX, (uint32_t) i, 6);
	reqs[n++] = req_make(129, 64, 20, 6);
	reqs[n++] = req_make(129, 63, 21, 6);
	reqs[n++] = req_make(200, 128, 22, 6);
	reqs[n++] = req_make(200, 130, 23, 6);
	reqs[n++] = req_make(1, LEN_MAX, 24, 70);
	return n;
}

static const Way ways[] = {
	{"one after the other", true, 1, 512, 16, 0, 0},
	{"2 threads", true, 2, 512, 16, 0, 0},
	{"7 rows", true, 1, 7, 16, 0, 0},
	{"65 rows", true, 2, 65, 16, 0, 0},
	{"1 row", true, 1, 1, 16, 0, 0},
	{"forced preemption", true, 1, 100, 16, 3, 0},
	{"pool of few pages", true, 1, 256, 16, 0, 90000},
	{"pool of few pages, forced preemption", true, 1, 64, 16, 3, 90000},
	{"off", false, 1, 256, 16, 0, 0},
};

static void
cold_and_warm(const char *kv_type)
{
	Req *reqs = calloc(REQS_MAX, sizeof(*reqs));
	int n = reqs_make(reqs);
	Rig ref;

	rig_init(&ref, &plain, kv_type);
	rig_run(&ref, reqs, n, false);
	for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++)
	{
		const Way *w = &ways[k];
		bool quiet = w->preempt_every == 0 && w->kv_nbytes == 0;
		LlmEngineStats s;
		Rig rig;

		rig_init(&rig, w, kv_type);
		rig_run(&rig, reqs, n, k > 0);
		compare(w->what, &ref, &rig, reqs, n);
		for (int i = 0; quiet && i < n; i++)
			assert_int_equal(n_unseen(&rig.out[i], reqs[i].n), rig.out[i].cached);
		rig_run(&rig, reqs, n, true);
		compare(w->what, &ref, &rig, reqs, n);
		for (int i = 0; quiet && i < n; i++) /* nothing lost: all but the last token is there */
		{
			int32_t want = w->cache ? reqs[i].n - 1 : 0;

			assert_int_equal(rig.out[i].cached, want);
			assert_int_equal(n_unseen(&rig.out[i], reqs[i].n), want);
		}
		llm_engine_stats(rig.e, &s);
		assert_int_equal(s.cached_tokens > 0, w->cache);
		assert_int_equal(s.kv_pages_cached > 0, w->cache);
		assert_true(w->kv_nbytes > 0 || (s.preemptions > 0) == (w->preempt_every > 0));
		rig_fini(&rig);
	}
	rig_fini(&ref);
	free(reqs);
}

static void
no_bit_changes_f16_kv(void **state)
{
	cold_and_warm("f16");
}

static void
no_bit_changes_f32_kv(void **state)
{
	cold_and_warm("f32");
}

static void
no_bit_changes_int8_kv(void **state)
{
	cold_and_warm("int8");
}

/* A prompt that goes on from an answer finds the answer's pages too. */
static void
an_answer_is_the_next_prompts_prefix(void **state)
{
	static const Way way = {"next turn", true, 1, 512, 16, 0, 0};
	Req *turn = calloc(2, sizeof(*turn));
	Rig ref, rig;

	turn[0] = req_make(60, 0, 5, 80);
	rig_init(&ref, &plain, "f16");
	rig_init(&rig, &way, "f16");
	rig_run(&ref, turn, 1, true);
	rig_run(&rig, turn, 1, true);
	compare("first turn", &ref, &rig, turn, 1);
	turn[1] = req_make(200, 0, 9, 6);
	memcpy(turn[1].ids, turn[0].ids, 60 * sizeof(int32_t));
	memcpy(turn[1].ids + 60, rig.out[0].generated, 80 * sizeof(int32_t));
	rig_run(&ref, turn + 1, 1, true);
	rig_run(&rig, turn + 1, 1, true);
	compare("second turn", &ref, &rig, turn + 1, 1);
	assert_int_equal(rig.out[0].cached, 139); /* all but the last token was stored */
	rig_fini(&rig);
	rig_fini(&ref);
	free(turn);
}

static void
two_salts_never_share(void **state)
{
	static const Way way = {"salts", true, 1, 512, 16, 0, 0};
	Req q = req_make(130, LEN_MAX, 0, 4);
	Rig rig;

	rig_init(&rig, &way, "f16");
	rig_run(&rig, &q, 1, true);
	assert_int_equal(rig.out[0].cached, 0);
	rig_run(&rig, &q, 1, true);
	assert_int_equal(rig.out[0].cached, 129); /* the same salt: a hit */
	q.salt = 2;
	rig_run(&rig, &q, 1, true);
	assert_int_equal(rig.out[0].cached, 0); /* another: none */
	rig_run(&rig, &q, 1, true);
	assert_int_equal(rig.out[0].cached, 129);
	rig_fini(&rig);
}

/* Off by a change of settings: what was cached is dropped, and nothing new is kept; on again: anew. */
static void
it_can_be_turned_off_and_on(void **state)
{
	static const int32_t want[] = {0, 129, 0, 0, 0, 129};
	LlmEngineOptions o = llm_engine_options_default();
	Way way = {"switched", true, 1, 512, 16, 0, 0};
	Req q = req_make(130, LEN_MAX, 0, 4);
	LlmEngineStats s;
	LlmError err;
	Rig rig;

	rig_init(&rig, &way, "f16");
	for (int i = 0; i < 6; i++)
	{
		o.prefix_cache = i < 2 || i >= 4;
		assert_int_equal(llm_engine_settings(rig.e, &o, &err), LLM_OK);
		llm_engine_stats(rig.e, &s);
		assert_int_equal(s.kv_pages_cached > 0, i == 1 || i == 5);
		rig_run(&rig, &q, 1, true);
		assert_int_equal(rig.out[0].cached, want[i]);
	}
	rig_fini(&rig);
}

/* What two requests share is computed once even when they arrive together. */
static void
neighbours_share_in_flight(void **state)
{
	static const Way way = {"neighbours", true, 1, 64, 16, 0, 0};
	Req *reqs = calloc(8, sizeof(*reqs));
	LlmEngineStats s;
	Rig ref, rig;

	for (uint32_t i = 0; i < 8; i++)
		reqs[i] = req_make(200, 192, i, 6);
	rig_init(&ref, &plain, "f16");
	rig_init(&rig, &way, "f16");
	rig_run(&ref, reqs, 8, true);
	rig_run(&rig, reqs, 8, true);
	compare(way.what, &ref, &rig, reqs, 8);
	llm_engine_stats(rig.e, &s);
	assert_int_equal(s.prompt_tokens, 8 * 200);
	assert_int_equal(s.cached_tokens, 7 * 192);
	rig_fini(&rig);
	rig_fini(&ref);
	free(reqs);
}

/* Several answers to one prompt: all of it but the last token is computed once. */
static void
answers_of_many_seeds_share_their_prompt(void **state)
{
	static const Way way = {"seeds", true, 1, 512, 16, 0, 0};
	Req *reqs = calloc(8, sizeof(*reqs));
	LlmEngineStats s;
	Rig ref, rig;

	for (uint32_t i = 0; i < 8; i++)
	{
		reqs[i] = req_make(150, LEN_MAX, 1, 20);
		reqs[i].seed = i;
	}
	rig_init(&ref, &plain, "f16");
	rig_init(&rig, &way, "f16");
	rig_run(&ref, reqs, 8, true);
	rig_run(&rig, reqs, 8, true);
	compare(way.what, &ref, &rig, reqs, 8);
	llm_engine_stats(rig.e, &s);
	assert_int_equal(s.shared, 0);
	assert_int_equal(s.cached_tokens, 7 * 149);
	assert_int_equal(s.copied, 7 * (149 - 128));
	rig_fini(&rig);
	rig_fini(&ref);
	free(reqs);
}

/* The one that computes what others wait for goes after some steps: another takes over. */
static void
a_cancelled_producer_is_replaced(void **state)
{
	static const Way way = {"cancel", true, 2, 32, 16, 0, 0};
	Req *reqs = calloc(6, sizeof(*reqs));
	Rig ref, rig;

	for (uint32_t i = 0; i < 6; i++)
		reqs[i] = req_make(220, 210, i, 6);
	rig_init(&ref, &plain, "f16");
	rig_run(&ref, reqs, 6, true);
	for (int n_steps = 0; n_steps < 9; n_steps += 2)
	{
		LlmEngineStats s;
		bool idle;
		LlmError err;

		rig_init(&rig, &way, "f16");
		for (int i = 0; i < 6; i++)
			rig_submit(&rig, &reqs[i], i);
		for (int i = 0; i < n_steps; i++)
			assert_int_equal(llm_engine_step(rig.e, &idle, &err), LLM_OK);
		llm_engine_cancel(rig.e, (LlmRequestKey){1, 0});
		step_all(&rig);
		for (int i = 1; i < 6; i++)
		{
			Rig one = {.out = {rig.out[i]}};
			Rig want = {.out = {ref.out[i]}};

			compare(way.what, &want, &one, &reqs[i], 1);
		}
		llm_engine_stats(rig.e, &s);
		assert_true(s.cached_tokens >= 4 * 195);
		rig_fini(&rig);
	}
	rig_fini(&ref);
	free(reqs);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_bit_changes_f16_kv),
		cmocka_unit_test(no_bit_changes_f32_kv),
		cmocka_unit_test(no_bit_changes_int8_kv),
		cmocka_unit_test(an_answer_is_the_next_prompts_prefix),
		cmocka_unit_test(two_salts_never_share),
		cmocka_unit_test(it_can_be_turned_off_and_on),
		cmocka_unit_test(neighbours_share_in_flight),
		cmocka_unit_test(answers_of_many_seeds_share_their_prompt),
		cmocka_unit_test(a_cancelled_producer_is_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
