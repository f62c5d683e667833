/*
 * test_engine_equal.c - one request, one answer: the bits of its logits whatever else goes on.
 *
 * The workload of engine_ways.h runs once with every request by itself: that is the reference. Then it
 * runs in other ways, and tokens, texts and the logits of every position must be the same. Greedy and
 * seeded requests are in it, so a wrong bit also changes what follows.
 *
 * With LLM_EQUAL_MODEL in the environment, the same on that model file, in fewer ways.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine_ways.h"

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
#define N_CHANCES 1
#else
#define N_REQS WAY_REQS
#define N_CHANCES 10
#endif

#define LIST(ways) ways, sizeof(ways) / sizeof((ways)[0])
#define SOME_WAYS LIST(some_ways)

#ifdef SANITIZED
#define MOST_WAYS SOME_WAYS
#else
#define MOST_WAYS LIST(all_ways)
/* Every way. */
static const Way all_ways[] = {
	{"among 31 others", .threads = 1, .max_batch_tokens = 512, .max_running = 32, .n_reqs = 32},
	{"2 threads", .threads = 2, .max_batch_tokens = 512, .max_running = 64},
	{"2 threads, alone", .threads = 2, .max_batch_tokens = 512, .max_running = 1, .n_reqs = 16},
	{"sampled rows only", .threads = 1, .max_batch_tokens = 512, .max_running = 64,
	 .last_only = true},
	{"1 row", .threads = 1, .max_batch_tokens = 1, .max_running = 64, .n_reqs = 16},
	{"7 rows", .threads = 1, .max_batch_tokens = 7, .max_running = 64},
	{"16 rows", .threads = 2, .max_batch_tokens = 16, .max_running = 64},
	{"63 rows", .threads = 1, .max_batch_tokens = 63, .max_running = 64},
	{"64 rows", .threads = 2, .max_batch_tokens = 64, .max_running = 64},
	{"65 rows", .threads = 1, .max_batch_tokens = 65, .max_running = 64},
	{"256 rows", .threads = 1, .max_batch_tokens = 256, .max_running = 64},
	{"batch 2", .threads = 1, .max_batch_tokens = 512, .max_running = 2},
	{"batch 3", .threads = 2, .max_batch_tokens = 512, .max_running = 3},
	{"batch 5", .threads = 1, .max_batch_tokens = 128, .max_running = 5},
	{"batch 17", .threads = 1, .max_batch_tokens = 512, .max_running = 17},
	{"reversed", .threads = 1, .max_batch_tokens = 512, .max_running = 64, .arrival = 1},
	{"shuffled", .threads = 1, .max_batch_tokens = 100, .max_running = 24, .arrival = 2},
	{"prefix cold, then warm", .threads = 1, .max_batch_tokens = 512, .max_running = 64,
	 .prefix = true, .again = true},
	{"prefix, 50 rows, shuffled", .threads = 2, .max_batch_tokens = 50, .max_running = 9,
	 .prefix = true, .again = true, .arrival = 2},
	{"4 of each, each by itself", .threads = 1, .max_batch_tokens = 300, .max_running = 64,
	 .copies = 3, .n_reqs = 24},
	{"4 of each, in one flight", .threads = 1, .max_batch_tokens = 300, .max_running = 64,
	 .flight = true, .copies = 3},
	{"2 of each, late, on a warm cache", .threads = 2, .max_batch_tokens = 60, .max_running = 20,
	 .prefix = true, .flight = true, .again = true, .copies = 1, .arrival = 2},
	{"strangers come and go", .threads = 1, .max_batch_tokens = 120, .max_running = 30,
	 .prefix = true, .flight = true, .strangers = 60},
	{"forced preemption", .threads = 1, .max_batch_tokens = 200, .max_running = 32,
	 .preempt_every = 3},
	{"forced preemption, prefix, flight, strangers", .threads = 2, .max_batch_tokens = 90,
	 .max_running = 16, .prefix = true, .flight = true, .again = true, .copies = 1, .strangers = 30,
	 .preempt_every = 2},
	{"pool of 4 pages", .threads = 1, .max_batch_tokens = 256, .max_running = 64, .pages = 4},
	{"pool of 5 pages, prefix: evictions", .threads = 1, .max_batch_tokens = 256, .max_running = 64,
	 .prefix = true, .again = true, .pages = 5},
	{"generic", .isa = "generic", .threads = 2, .max_batch_tokens = 512, .max_running = 64,
	 .prefix = true},
	{"avx2", .isa = "avx2", .threads = 1, .max_batch_tokens = 90, .max_running = 40},
	{"avx512", .isa = "avx512", .threads = 1, .max_batch_tokens = 70, .max_running = 50},
};
#endif

/* The ways that reach other code in quantised products and in another KV type. */
static const Way some_ways[] = {
	{"2 threads", .threads = 2, .max_batch_tokens = 512, .max_running = 64},
	{"7 rows", .threads = 1, .max_batch_tokens = 7, .max_running = 64, .n_reqs = 32},
	{"batch 5, shuffled", .threads = 1, .max_batch_tokens = 65, .max_running = 5, .arrival = 2},
	{"sampled rows only", .threads = 2, .max_batch_tokens = 33, .max_running = 64,
	 .last_only = true},
	{"prefix and flight, cold and warm", .threads = 1, .max_batch_tokens = 128, .max_running = 20,
	 .prefix = true, .flight = true, .again = true, .copies = 1, .arrival = 2},
	{"forced preemption, strangers", .threads = 1, .max_batch_tokens = 200, .max_running = 32,
	 .prefix = true, .flight = true, .strangers = 20, .preempt_every = 3},
	{"pool of 5 pages", .threads = 2, .max_batch_tokens = 100, .max_running = 64, .prefix = true,
	 .pages = 5},
	{"generic", .isa = "generic", .threads = 2, .max_batch_tokens = 64, .max_running = 20,
	 .prefix = true},
	{"avx2", .isa = "avx2", .threads = 2, .max_batch_tokens = 100, .max_running = 40},
	{"avx512", .isa = "avx512", .threads = 2, .max_batch_tokens = 40, .max_running = 20},
};

static void
equal(WayModel m, const Way *ways, size_t n_ways, uint32_t n_chances)
{
	WayRun *ref = way_reference(&m);

	for (size_t i = 0; i < n_ways; i++)
		way_check(ref, &ways[i], &m);
	for (uint32_t seed = 0; seed < n_chances; seed++)
	{
		Way w = way_by_chance(seed);

		way_check(ref, &w, &m);
	}
	way_run_free(ref);
}

/* A model of 512 tokens, of which the last 16 are control tokens. */
static void
equal_tiny(const char *name, const char *kv_type, const Way *ways, size_t n_ways,
		   uint32_t n_chances)
{
	char path[128];

	snprintf(path, sizeof(path), "test/golden/models/%s/model.gguf", name);
	equal((WayModel){.path = path, .kv_type = kv_type, .n_ids = 496, .n_reqs = N_REQS}, ways,
		  n_ways, n_chances);
}

static void
f32_own_head_f16_kv(void **state)
{
	equal_tiny("llama-gqa", "f16", MOST_WAYS, N_CHANCES);
}

static void
f32_own_head_f32_kv(void **state)
{
	equal_tiny("llama-gqa", "f32", SOME_WAYS, 1);
}

static void
f32_own_head_int8_kv(void **state)
{
	equal_tiny("llama-gqa", "int8", SOME_WAYS, N_CHANCES / 2);
}

static void
q8_0_int8_kv(void **state)
{
	equal_tiny("llama256-q8_0", "int8", SOME_WAYS, 1);
}

static void
f32_tied_head_f32_kv(void **state)
{
	equal_tiny("llama-tied-hd32", "f32", SOME_WAYS, 1);
}

static void
q8_0_f16_kv(void **state)
{
	equal_tiny("llama256-q8_0", "f16", SOME_WAYS, 1);
}

static void
q4_0_f16_kv(void **state)
{
	equal_tiny("llama256-q4_0", "f16", SOME_WAYS, 1);
}

static void
q4_1_f16_kv(void **state)
{
	equal_tiny("llama256-q4_1", "f16", SOME_WAYS, N_CHANCES / 2);
}

static void
k_types_f16_kv(void **state)
{
	equal_tiny("llama256-k", "f16", SOME_WAYS, N_CHANCES / 2);
}

/* ---- a model of the caller's ---- */

/* Chosen so that the whole takes a few minutes on two cores with a model of 135 million parameters. */
static const Way real_ways[] = {
	{"2 threads, batch 12", .threads = 2, .max_batch_tokens = 512, .max_running = 12},
	{"17 rows", .threads = 2, .max_batch_tokens = 17, .max_running = 12},
	{"1 row", .threads = 2, .max_batch_tokens = 1, .max_running = 4, .n_reqs = 5},
	{"65 rows, shuffled", .threads = 1, .max_batch_tokens = 65, .max_running = 5, .arrival = 2},
	{"generic", .isa = "generic", .threads = 2, .max_batch_tokens = 512, .max_running = 8,
	 .n_reqs = 3},
	{"avx2", .isa = "avx2", .threads = 2, .max_batch_tokens = 100, .max_running = 12},
	{"avx512", .isa = "avx512", .threads = 2, .max_batch_tokens = 80, .max_running = 12},
};

/* Those in which what is stored is read again, by others or on other pages. */
static const Way real_cache_ways[] = {
	{"prefix and flight, cold and warm", .threads = 2, .max_batch_tokens = 256, .max_running = 10,
	 .prefix = true, .flight = true, .again = true, .copies = 1, .arrival = 2},
	{"forced preemption, strangers", .threads = 2, .max_batch_tokens = 200, .max_running = 8,
	 .prefix = true, .flight = true, .strangers = 10, .preempt_every = 3},
	{"pool of 5 pages", .threads = 2, .max_batch_tokens = 100, .max_running = 12, .prefix = true,
	 .again = true, .pages = 5},
};

static void
equal_real(const Way *ways, size_t n_ways, const char *kv_type, uint32_t n_chances)
{
	WayModel m = {.path = getenv("LLM_EQUAL_MODEL"),
				  .kv_type = kv_type,
				  .first_id = 64, /* control tokens have low ids in the vocabularies that we meet */
				  .n_ids = 20000,
				  .n_reqs = 12};

	equal(m, ways, n_ways, n_chances);
}

static void
real_f16_kv(void **state)
{
	equal_real(LIST(real_ways), "f16", 0);
}

static void
real_f16_kv_cached(void **state)
{
	equal_real(LIST(real_cache_ways), "f16", 2);
}

static void
real_f32_kv_cached(void **state)
{
	equal_real(LIST(real_cache_ways), "f32", 1);
}

static void
real_int8_kv_cached(void **state)
{
	equal_real(LIST(real_cache_ways), "int8", 1);
}

int
main(void)
{
	const struct CMUnitTest tiny[] = {
		cmocka_unit_test(f32_own_head_f16_kv),  cmocka_unit_test(f32_own_head_f32_kv),
		cmocka_unit_test(f32_own_head_int8_kv), cmocka_unit_test(q8_0_int8_kv),
		cmocka_unit_test(f32_tied_head_f32_kv), cmocka_unit_test(q8_0_f16_kv),
		cmocka_unit_test(q4_0_f16_kv),          cmocka_unit_test(q4_1_f16_kv),
		cmocka_unit_test(k_types_f16_kv),
	};
	const struct CMUnitTest real[] = {
		cmocka_unit_test(real_f16_kv),
		cmocka_unit_test(real_f16_kv_cached),
		cmocka_unit_test(real_f32_kv_cached),
		cmocka_unit_test(real_int8_kv_cached),
	};

	if (getenv("LLM_EQUAL_MODEL") != NULL)
		return cmocka_run_group_tests(real, NULL, NULL);
	return cmocka_run_group_tests(tiny, NULL, NULL);
}
