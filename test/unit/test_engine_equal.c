/*
 * test_engine_equal.c - one request, one answer: the bits of its logits whatever else goes on.
 *
 * A workload of 64 requests of mixed lengths runs once with every request alone: that is the
 * reference. Then it runs in other ways (batch and chunk sizes, threads, order of arrival,
 * preemption, instruction sets), and the logits of every position of every request must be the same
 * by memcmp. Half of the requests sample, so a wrong bit also changes what follows.
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

/* Sanitizers make the kernels some forty times slower; they need each path once, not every shape. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
#define N_REQS 10
#else
#define N_REQS 64
#endif
#define N_NEW 6
#define LEN_MAX (128 + N_NEW)
#define VOCAB 512
#define IDS_PLAIN 496 /* ids from here on are control tokens */

/* How to run the workload. */
typedef struct Way
{
	const char *what;
	const char *isa; /* NULL = best */
	const char *kv_type;
	int32_t threads;
	int32_t max_batch_tokens;
	int32_t max_running;
	uint32_t preempt_every;
	int64_t kv_nbytes;
	int n_reqs;      /* the first n of the workload; 0 = all */
	int arrival;     /* 0 in order, 1 reversed, 2 shuffled and spread over steps */
	bool last_only;  /* logits of sampled rows only */
	bool must_yield; /* preemption must have happened */
} Way;

/* The logits of every request at every position. */
typedef struct Trace
{
	float *logits; /* [N_REQS, LEN_MAX, VOCAB] */
	uint8_t *seen; /* [N_REQS, LEN_MAX] */
	const char *what;
} Trace;

static const char *model_path;

static int32_t
prompt_len(int req)
{
	static const int32_t lengths[] = {63, 64, 65, 128, 1, 70, 7, 17, 33, 2, 16, 100, 5, 48, 31, 3};

	return lengths[req % 16] - (req >= 16 && lengths[req % 16] > 40 ? req % 9 : 0);
}

static void
trace_init(Trace *t, const char *what)
{
	t->logits = calloc((size_t) N_REQS * LEN_MAX * VOCAB, sizeof(float));
	t->seen = calloc((size_t) N_REQS * LEN_MAX, 1);
	t->what = what;
	assert_non_null(t->logits);
	assert_non_null(t->seen);
}

static void
trace_fini(Trace *t)
{
	free(t->logits);
	free(t->seen);
}

/* A position that is computed again (after preemption) must give the same bits again. */
static void
on_logits(void *arg, LlmRequestKey key, int32_t position, const float *logits, int32_t vocab_size)
{
	Trace *t = arg;
	size_t i = (size_t) key.id * LEN_MAX + (size_t) position;

	assert_int_equal(vocab_size, VOCAB);
	assert_in_range(key.id, 0, N_REQS - 1);
	assert_in_range(position, 0, LEN_MAX - 1);
	if (t->seen[i] && memcmp(t->logits + i * VOCAB, logits, VOCAB * sizeof(float)) != 0)
		fail_msg("%s: request %d position %d differs when computed again", t->what, (int) key.id,
				 position);
	memcpy(t->logits + i * VOCAB, logits, VOCAB * sizeof(float));
	t->seen[i] = 1;
}

static void
on_done(void *arg, const LlmResult *r)
{
	int *n_done = arg;

	if (r->status != LLM_OK)
		fail_msg("request %d: %s", (int) r->key.id, r->error->text);
	assert_int_equal(r->completion_tokens, N_NEW);
	++*n_done;
}

static void
submit(LlmEngine *e, int req)
{
	LlmRequest q = {.key = {(uint64_t) (req % 5), (uint64_t) req},
					.sample = {.temperature = req % 2 == 0 ? 0.0f : 1.0f,
							   .top_p = req % 4 == 1 ? 0.9f : 1.0f,
							   .repetition_penalty = req % 4 == 3 ? 1.2f : 1.0f,
							   .seed = (uint64_t) req},
					.max_tokens = N_NEW,
					.raw = true,
					.ignore_eos = true};
	int32_t ids[LEN_MAX];
	int32_t n = prompt_len(req);
	LlmError err = {0};

	for (int32_t i = 0; i < n; i++)
		ids[i] = (int32_t) (llm_rng_u32(99, (uint32_t) req, (uint32_t) i) % IDS_PLAIN);
	llm_engine_force_prompt(e, ids, n);
	if (llm_engine_submit(e, &q, &err) != LLM_OK)
		fail_msg("submit: %s", err.text);
}

static int
reqs_of(const Way *w)
{
	return w->n_reqs == 0 || w->n_reqs > N_REQS ? N_REQS : w->n_reqs;
}

/* The i-th request to arrive. */
static int
arrival_of(const Way *w, int i, int n)
{
	if (w->arrival == 0)
		return i;
	return w->arrival == 1 ? n - 1 - i : (i * 37 + 11) % n; /* n has no factor 37 */
}

static bool
step(LlmEngine *e)
{
	bool idle;
	LlmError err = {0};

	if (llm_engine_step(e, &idle, &err) != LLM_OK || !llm_engine_audit(e, &err))
		fail_msg("step: %s", err.text);
	return !idle;
}

/* An engine with the model as the way says; false when the machine lacks the ISA. */
static bool
engine_open(const Way *w, LlmEngineEvents events, Trace *t, LlmEngine **e)
{
	LlmEngineOptions o = llm_engine_options_default();
	LlmModelSpec spec = {.path = model_path, .kv_type = w->kv_type};
	LlmError err = {0};

	o.isa = w->isa;
	o.prefix_cache = false; /* every position is to be computed: see test_engine_prefix.c */
	o.threads = w->threads;
	o.max_batch_tokens = w->max_batch_tokens;
	o.max_running = w->max_running;
	o.preempt_every = w->preempt_every;
	o.kv_nbytes = w->kv_nbytes;
	assert_int_equal(llm_engine_create(&o, events, e, &err), LLM_OK);
	llm_engine_logits_hook(*e, on_logits, t, !w->last_only);
	if (llm_engine_load(*e, &spec, &err) == LLM_OK)
		return true;
	llm_engine_free(*e);
	if (w->isa == NULL || err.code != LLM_E_INVALID)
		fail_msg("load: %s (%s)", err.text, err.detail);
	printf("SKIP %s: %s\n", w->what, err.text);
	return false;
}

static bool
run(const Way *w, Trace *t)
{
	int n = reqs_of(w);
	int n_done = 0;
	LlmEngineEvents events = {.arg = &n_done, .done = on_done};
	LlmEngineStats stats;
	LlmEngine *e;

	trace_init(t, w->what);
	if (!engine_open(w, events, t, &e))
		return false;
	for (int i = 0; i < n; i++)
	{
		submit(e, arrival_of(w, i, n));
		for (int k = 0; w->arrival == 2 && k < i % 3; k++)
			step(e);
	}
	while (step(e))
		;
	assert_int_equal(n_done, n);
	llm_engine_stats(e, &stats);
	assert_int_equal(stats.kv_pages_free + stats.kv_pages_cached, stats.kv_pages_total);
	if (w->must_yield)
		assert_true(stats.preemptions > 0);
	llm_engine_free(e);
	return true;
}

/* Everything that t has is in the reference, bit for bit, and t has what its way should give. */
static void
compare(const Trace *ref, const Trace *t, const Way *w)
{
	int n = reqs_of(w);

	for (int req = 0; req < n; req++)
	{
		int32_t len = prompt_len(req);

		for (int32_t pos = 0; pos < len + N_NEW - 1; pos++)
		{
			size_t i = (size_t) req * LEN_MAX + (size_t) pos;
			const float *a = ref->logits + i * VOCAB;
			const float *b = t->logits + i * VOCAB;

			assert_true(ref->seen[i]);
			if (!t->seen[i])
			{
				assert_true(w->last_only && pos < len - 1);
				continue;
			}
			if (memcmp(a, b, VOCAB * sizeof(float)) == 0)
				continue;
			for (int k = 0; k < VOCAB; k++)
				if (memcmp(&a[k], &b[k], sizeof(float)) != 0)
					fail_msg("%s: request %d (prompt %d) position %d logit %d: %a, not %a", w->what,
							 req, len, pos, k, (double) b[k], (double) a[k]);
		}
	}
}

/* Run the ways and compare each with every request alone. */
static void
equal(const char *model, const char *kv_type, const Way *ways, size_t n_ways)
{
	Way alone = {"alone", NULL, kv_type, 1, 512, 1, 0, 0, 0, 0, false, false};
	Trace ref;
	char path[128];

	snprintf(path, sizeof(path), "test/golden/models/%s/model.gguf", model);
	model_path = path;
	assert_true(run(&alone, &ref));
	for (size_t i = 0; i < n_ways; i++)
	{
		Way w = ways[i];
		Trace t;

		w.kv_type = kv_type;
		if (strcmp(kv_type, "int8") == 0)
			w.kv_nbytes = w.kv_nbytes * 5 / 8; /* as many pages: 16 values and a scale */
		if (run(&w, &t))
			compare(&ref, &t, &w);
		trace_fini(&t);
	}
	trace_fini(&ref);
}

#define N_WAYS(a) (sizeof(a) / sizeof((a)[0]))

/* Every way, on the two F32 models that differ most in shape. */
static const Way all_ways[] = {
	{.what = "among 31 others",
	 .threads = 1,
	 .max_batch_tokens = 512,
	 .max_running = 32,
	 .n_reqs = 32},
	{.what = "2 threads", .threads = 2, .max_batch_tokens = 512, .max_running = 64},
	{.what = "2 threads, alone",
	 .threads = 2,
	 .max_batch_tokens = 512,
	 .max_running = 1,
	 .n_reqs = 16},
	{.what = "sampled rows only",
	 .threads = 1,
	 .max_batch_tokens = 512,
	 .max_running = 64,
	 .last_only = true},
	{.what = "1 row", .threads = 1, .max_batch_tokens = 1, .max_running = 64, .n_reqs = 16},
	{.what = "7 rows", .threads = 1, .max_batch_tokens = 7, .max_running = 64},
	{.what = "16 rows", .threads = 2, .max_batch_tokens = 16, .max_running = 64},
	{.what = "63 rows", .threads = 1, .max_batch_tokens = 63, .max_running = 64},
	{.what = "64 rows", .threads = 2, .max_batch_tokens = 64, .max_running = 64},
	{.what = "65 rows", .threads = 1, .max_batch_tokens = 65, .max_running = 64},
	{.what = "batch 2", .threads = 1, .max_batch_tokens = 512, .max_running = 2},
	{.what = "batch 3", .threads = 2, .max_batch_tokens = 512, .max_running = 3},
	{.what = "batch 5", .threads = 1, .max_batch_tokens = 128, .max_running = 5},
	{.what = "batch 17", .threads = 1, .max_batch_tokens = 512, .max_running = 17},
	{.what = "reversed", .threads = 1, .max_batch_tokens = 512, .max_running = 64, .arrival = 1},
	{.what = "shuffled", .threads = 1, .max_batch_tokens = 100, .max_running = 24, .arrival = 2},
	{.what = "forced preemption",
	 .threads = 1,
	 .max_batch_tokens = 200,
	 .max_running = 32,
	 .preempt_every = 3,
	 .must_yield = true},
	{.what = "pool of 3 pages",
	 .threads = 1,
	 .max_batch_tokens = 256,
	 .max_running = 64,
	 .kv_nbytes = 50000,
	 .must_yield = true},
	{.what = "generic", .isa = "generic", .threads = 2, .max_batch_tokens = 512, .max_running = 64},
	{.what = "avx2", .isa = "avx2", .threads = 1, .max_batch_tokens = 90, .max_running = 40},
};

/* The ways that reach other code in quantised products and in another KV type. */
static const Way some_ways[] = {
	{.what = "2 threads", .threads = 2, .max_batch_tokens = 512, .max_running = 64},
	{.what = "7 rows", .threads = 1, .max_batch_tokens = 7, .max_running = 64},
	{.what = "batch 5, shuffled",
	 .threads = 1,
	 .max_batch_tokens = 65,
	 .max_running = 5,
	 .arrival = 2},
	{.what = "sampled rows only",
	 .threads = 2,
	 .max_batch_tokens = 33,
	 .max_running = 64,
	 .last_only = true},
	{.what = "forced preemption",
	 .threads = 1,
	 .max_batch_tokens = 200,
	 .max_running = 32,
	 .preempt_every = 3,
	 .must_yield = true},
	{.what = "generic", .isa = "generic", .threads = 2, .max_batch_tokens = 64, .max_running = 20},
	{.what = "avx2", .isa = "avx2", .threads = 2, .max_batch_tokens = 100, .max_running = 40},
};

static void
f32_own_head_f16_kv(void **state)
{
	equal("llama-gqa", "f16", all_ways, N_WAYS(all_ways));
}

static void
f32_own_head_f32_kv(void **state)
{
	equal("llama-gqa", "f32", some_ways, N_WAYS(some_ways));
}

static void
f32_own_head_int8_kv(void **state)
{
	equal("llama-gqa", "int8", all_ways, N_WAYS(all_ways));
}

static void
q8_0_int8_kv(void **state)
{
	equal("llama256-q8_0", "int8", some_ways, N_WAYS(some_ways));
}

static void
f32_tied_head_f32_kv(void **state)
{
	equal("llama-tied-hd32", "f32", some_ways, N_WAYS(some_ways));
}

static void
q8_0_f16_kv(void **state)
{
	equal("llama256-q8_0", "f16", some_ways, N_WAYS(some_ways));
}

static void
q4_0_f16_kv(void **state)
{
	equal("llama256-q4_0", "f16", some_ways, N_WAYS(some_ways));
}

static void
q4_1_f16_kv(void **state)
{
	equal("llama256-q4_1", "f16", all_ways, N_WAYS(all_ways));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f32_own_head_f16_kv),  cmocka_unit_test(f32_own_head_f32_kv),
		cmocka_unit_test(f32_own_head_int8_kv), cmocka_unit_test(q8_0_int8_kv),
		cmocka_unit_test(f32_tied_head_f32_kv), cmocka_unit_test(q8_0_f16_kv),
		cmocka_unit_test(q4_0_f16_kv),          cmocka_unit_test(q4_1_f16_kv),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
