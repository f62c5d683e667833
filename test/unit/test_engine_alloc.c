/*
 * test_engine_alloc.c - a step takes no memory: prompts in chunks, decoding, sampling of every kind and
 * pages that fill, with every allocation of the process counted.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/llm.h"

#define GOLDEN "test/golden/models/llama-gqa/model.gguf"

/* ---- the counter: these stand before those of the C library, which they call ---- */

static atomic_int n_allocs;

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

#ifndef SANITIZED /* a sanitizer has its own allocator */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

__attribute__((visibility("default"))) void *
malloc(size_t n)
{
	atomic_fetch_add(&n_allocs, 1);
	return __libc_malloc(n);
}

__attribute__((visibility("default"))) void *
calloc(size_t n, size_t size)
{
	atomic_fetch_add(&n_allocs, 1);
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *
realloc(void *p, size_t n)
{
	atomic_fetch_add(&n_allocs, 1);
	return __libc_realloc(p, n);
}

__attribute__((visibility("default"))) int
posix_memalign(void **p, size_t align, size_t n)
{
	atomic_fetch_add(&n_allocs, 1);
	*p = __libc_memalign(align, n);
	return *p == NULL ? ENOMEM : 0;
}

__attribute__((visibility("default"))) void *
aligned_alloc(size_t align, size_t n)
{
	atomic_fetch_add(&n_allocs, 1);
	return __libc_memalign(align, n);
}
#endif

/* ---- requests ---- */

static int n_done;

static void
on_done(void *arg, const LlmResult *r)
{
	(void) arg;
	assert_int_equal(r->status, LLM_OK);
	n_done++;
}

static void
on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	(void) arg, (void) key, (void) piece;
}

/* A request for the rest of the context, of the kind that id says: greedy, drawn, with penalties, stop
 * strings, log-probabilities, streamed. */
static void
ask(LlmEngine *e, uint64_t id)
{
	static const LlmTokenBias bias = {.token = 7, .bias = 1.0f};
	LlmRequest q = {.key = {1, id},
					.prompt = llm_str("Count the rows, and say of each how long it is."),
					.sample = {.top_p = 1.0f, .repetition_penalty = 1.0f, .seed = id},
					.max_tokens = 100,
					.salt = id,
					.raw = true,
					.ignore_eos = true,
					.stream = id % 2 == 1};
	LlmError err;

	if (id % 4 != 0)
	{
		q.sample.temperature = 0.8f;
		q.sample.top_k = id % 4 == 2 ? 20 : 0;
		q.sample.top_p = 0.9f;
		q.sample.repetition_penalty = id % 4 == 3 ? 1.1f : 1.0f;
	}
	if (id % 3 == 1)
	{
		q.stops[0] = llm_str("\x01never\x02");
		q.n_stops = 1;
		q.bias = &bias;
		q.n_bias = 1;
	}
	if (id % 3 == 2)
	{
		q.logprobs = q.prompt_logprobs = true;
		q.n_top = 5;
	}
	assert_int_equal(llm_engine_submit(e, &q, &err), LLM_OK);
}

static void
steps_take_no_memory(void **state)
{
	LlmEngineOptions o = llm_engine_options_default();
	LlmModelSpec spec = {.path = GOLDEN};
	LlmEngineEvents events = {.done = on_done, .text = on_text};
	LlmEngine *e;
	LlmError err;
	bool idle = false;
	int before;

	(void) state;
	o.threads = 2;
	o.max_batch_tokens = 32; /* prompts take several steps */
	o.max_running = 12;
	assert_int_equal(llm_engine_create(&o, events, &e, &err), LLM_OK);
	if (llm_engine_load(e, &spec, &err) != LLM_OK)
		fail_msg("load: %s (%s)", err.text, err.detail);
	before = atomic_load(&n_allocs);
	for (uint64_t id = 0; id < 12; id++)
		ask(e, id);
#ifndef SANITIZED
	assert_true(atomic_load(&n_allocs) > before); /* the counter counts */
#endif
	while (n_done == 0)
	{
		before = atomic_load(&n_allocs);
		assert_int_equal(llm_engine_step(e, &idle, &err), LLM_OK);
		if (n_done == 0) /* the end of a request may take some, for what it hands over */
			assert_int_equal(atomic_load(&n_allocs), before);
	}
	while (!idle)
		assert_int_equal(llm_engine_step(e, &idle, &err), LLM_OK);
	assert_int_equal(n_done, 12);
	llm_engine_free(e);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(steps_take_no_memory)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
