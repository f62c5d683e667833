/*
 * test_engine_pin.c - pinned prefixes stay, are bounded, and nothing else is lost for them.
 *
 * The echo model has a token per byte and a template of RUN_AROUND tokens around the user's text.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "engine_run.h"

#define PAGE_NBYTES 256 /* of the echo store */
#define CONTEXT 1024

static LlmRequest
pin_request(LlmRequestKind kind, const char *text)
{
	LlmRequest q = run_request(text, 0);

	q.kind = kind;
	q.sample = (LlmSampleParams){0}; /* nobody looks at it */
	return q;
}

/* n letters that begin with `first`. */
static const char *
letters(char first, int32_t n)
{
	static char text[4][CONTEXT];
	static int turn;
	char *t = text[turn = (turn + 1) % 4];

	assert_in_range(n, 1, CONTEXT - 1);
	for (int32_t i = 0; i < n; i++)
		t[i] = (char) ('a' + (first - 'a' + i * 7) % 26);
	t[0] = first;
	t[n] = '\0';
	return t;
}

static void
init(Run *r, int32_t n_pages)
{
	LlmEngineOptions o = run_options();

	o.kv_nbytes = (int64_t) n_pages * PAGE_NBYTES;
	run_echo_with(r, o, CONTEXT);
}

static int64_t
pinned(Run *r)
{
	LlmPrefixStat s[4];
	int64_t n = 0;

	for (int32_t i = llm_engine_prefix_stats(r->e, s, 4) - 1; i >= 0; i--)
		n += s[i].pinned;
	return n;
}

/* Prompts enough to evict whatever can be. */
static void
flood(Run *r)
{
	for (char c = 'k'; c < 'z'; c++)
		run_one(r, run_request(letters(c, 300), 3));
	run_forget(r);
}

static void
what_is_pinned_outlives_a_flood(void **state)
{
	Run r;
	Outcome *o;
	int32_t n;

	init(&r, 20);
	o = run_one(&r, pin_request(LLM_REQUEST_PIN, letters('a', 200)));
	assert_int_equal(o->status, LLM_OK);
	n = o->prompt_tokens;
	assert_in_range(n, 200, 200 + RUN_AROUND);
	assert_int_equal(o->completion_tokens, 0);
	assert_int_equal(o->text.len, 0);
	assert_int_equal(pinned(&r), (n + 63) / 64);
	flood(&r);
	o = run_one(&r, run_request(letters('a', 230), 3)); /* begins with the same 200 letters */
	assert_int_equal(o->cached_tokens, n);
	flood(&r);
	assert_int_equal(run_one(&r, pin_request(LLM_REQUEST_UNPIN, letters('a', 200)))->prompt_tokens,
					 n);
	assert_int_equal(pinned(&r), 0);
	flood(&r);
	o = run_one(&r, run_request(letters('a', 230), 3));
	assert_true(o->cached_tokens < n / 2);
	run_fini(&r);
}

static void
twice_is_once(void **state)
{
	LlmRequest pin = pin_request(LLM_REQUEST_PIN, letters('a', 100));
	LlmRequest unpin = pin_request(LLM_REQUEST_UNPIN, letters('a', 100));
	Run r;

	init(&r, 20);
	assert_int_equal(run_refused(&r, unpin).code, LLM_E_INVALID);
	run_submit(&r, pin);
	run_submit(&r, pin); /* both at once, */
	run_all(&r);
	assert_int_equal(pinned(&r), 2);
	run_one(&r, pin); /* and again */
	assert_int_equal(pinned(&r), 2);
	unpin.salt = 5;
	assert_int_equal(run_refused(&r, unpin).code, LLM_E_INVALID);
	unpin.salt = 0;
	run_one(&r, unpin);
	assert_int_equal(pinned(&r), 0);
	assert_int_equal(run_refused(&r, unpin).code, LLM_E_INVALID);
	run_fini(&r);
}

static void
at_most_half_of_the_pool_is_pinned(void **state)
{
	LlmError err;
	Outcome *o;
	Run r;

	init(&r, 8);
	err = run_refused(&r, pin_request(LLM_REQUEST_PIN, letters('a', 400)));
	assert_int_equal(err.code, LLM_E_KV_MEMORY);
	assert_int_equal(err.limit, 4);
	assert_in_range(err.got, 5, 7);
	assert_int_equal(run_one(&r, pin_request(LLM_REQUEST_PIN, letters('a', 150)))->status, LLM_OK);
	assert_int_equal(pinned(&r), 3);
	o = run_one(&r, pin_request(LLM_REQUEST_PIN, letters('b', 150)));
	assert_int_equal(o->status, LLM_E_KV_MEMORY);
	assert_int_equal(o->error.limit, 4);
	assert_true(o->error.got > 4);
	assert_int_equal(pinned(&r), 3);
	run_one(&r, pin_request(LLM_REQUEST_UNPIN, letters('a', 150)));
	run_fini(&r);
}

/* What could never run beside the pins is refused; what was accepted before them keeps its room. */
static void
pins_starve_nobody(void **state)
{
	LlmError err;
	uint64_t pin, big;
	Run r;

	init(&r, 8);
	run_one(&r, pin_request(LLM_REQUEST_PIN, letters('a', 150)));
	err = run_refused(&r, run_request(letters('b', 380), 20));
	assert_int_equal(err.code, LLM_E_KV_MEMORY);
	assert_int_equal(err.limit, 5);
	assert_non_null(strstr(err.text, "not pinned"));
	assert_int_equal(run_one(&r, run_request(letters('b', 280), 20))->status, LLM_OK);
	run_one(&r, pin_request(LLM_REQUEST_UNPIN, letters('a', 150)));

	pin = run_submit(&r, pin_request(LLM_REQUEST_PIN, letters('a', 150)));
	big = run_submit(&r, run_request(letters('b', 380), 20));
	run_all(&r);
	assert_int_equal(r.of[pin].status, LLM_E_KV_MEMORY);
	assert_int_equal(r.of[big].status, LLM_OK);
	assert_int_equal(pinned(&r), 0);
	run_fini(&r);
}

static void
turning_the_cache_off_drops_pins(void **state)
{
	LlmEngineOptions o = run_options();
	LlmError err;
	Run r;

	init(&r, 20);
	run_one(&r, pin_request(LLM_REQUEST_PIN, letters('a', 100)));
	o.prefix_cache = false;
	assert_int_equal(llm_engine_settings(r.e, &o, &err), LLM_OK);
	assert_int_equal(pinned(&r), 0);
	assert_int_equal(run_refused(&r, pin_request(LLM_REQUEST_PIN, letters('a', 100))).code,
					 LLM_E_UNSUPPORTED);
	assert_int_equal(run_refused(&r, pin_request(LLM_REQUEST_UNPIN, letters('a', 100))).code,
					 LLM_E_INVALID);
	run_fini(&r);
}

/* A PIN that is cancelled pins nothing; one that ran beside others does. */
static void
a_pin_is_a_request_like_others(void **state)
{
	LlmEngineOptions o = run_options();
	LlmRequest q = pin_request(LLM_REQUEST_PIN, letters('a', 200));
	uint64_t id;
	Run r;

	o.max_batch_tokens = 32;
	o.kv_nbytes = 40 * PAGE_NBYTES;
	run_echo_with(&r, o, CONTEXT);
	id = run_submit(&r, q);
	run_step(&r);
	llm_engine_cancel(r.e, (LlmRequestKey){1, id});
	run_all(&r);
	assert_int_equal(pinned(&r), 0);
	for (char c = 'b'; c < 'h'; c++)
		run_submit(&r, run_request(letters(c, 150), 20));
	id = run_submit(&r, q);
	run_all(&r);
	assert_int_equal(r.of[id].status, LLM_OK);
	assert_int_equal(pinned(&r), (r.of[id].prompt_tokens + 63) / 64);
	q.kind = LLM_REQUEST_UNPIN;
	run_one(&r, q);
	run_fini(&r);
}

static void
salts_are_counted_apart(void **state)
{
	LlmPrefixStat s[2];
	LlmRequest q = run_request(letters('a', 150), 3);
	int64_t saved;
	Run r;

	init(&r, 40);
	q.salt = 7;
	run_one(&r, q);
	saved = run_one(&r, q)->cached_tokens;
	assert_in_range(saved, 150, 150 + RUN_AROUND);
	q.salt = 9;
	q.prompt = llm_str(letters('b', 30));
	run_one(&r, q);
	assert_int_equal(llm_engine_prefix_stats(r.e, s, 1), 1);
	assert_int_equal(llm_engine_prefix_stats(r.e, s, 2), 2);
	assert_int_equal(s[0].salt, 7);
	assert_in_range(s[0].blocks, 3, 4);
	assert_int_equal(s[0].lookups, 2);
	assert_int_equal(s[0].hits, 1);
	assert_int_equal(s[0].tokens_saved, saved);
	assert_int_equal(s[1].salt, 9);
	assert_int_equal(s[1].lookups, 1);
	assert_int_equal(s[1].hits + s[1].tokens_saved + s[1].pinned + s[1].evictions, 0);
	llm_engine_unload(r.e);
	assert_int_equal(llm_engine_prefix_stats(r.e, s, 2), 0);
	run_fini(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_pinned_outlives_a_flood),
		cmocka_unit_test(twice_is_once),
		cmocka_unit_test(at_most_half_of_the_pool_is_pinned),
		cmocka_unit_test(pins_starve_nobody),
		cmocka_unit_test(turning_the_cache_off_drops_pins),
		cmocka_unit_test(a_pin_is_a_request_like_others),
		cmocka_unit_test(salts_are_counted_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
