/*
 * test_kv_rule.c - how large a KV cache is, bound by bound.
 *
 * links: engine core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "core/mem.h"
#include "engine/kv_rule.h"

#define MIB ((int64_t) 1 << 20)
#define GIB ((int64_t) 1 << 30)

static void
expect_size(const LlmEngineOptions *o, int64_t page_nbytes, int32_t context, int64_t left,
			int64_t nbytes, const char *why)
{
	LlmKvSize s = llm_kv_rule(o, page_nbytes, context, left);

	assert_int_equal(s.nbytes, nbytes);
	assert_non_null(strstr(s.why, why));
}

static void
test_setting(void **state)
{
	LlmEngineOptions o = {.kv_nbytes = 100 * MIB, .max_running = 64};

	expect_size(&o, MIB, 4096, -1, 100 * MIB, "kv_cache_memory");
	o.memory_limit = 200 * MIB; /* a quarter of it is for the default alone */
	expect_size(&o, MIB, 4096, 150 * MIB, 100 * MIB, "kv_cache_memory");
	expect_size(&o, MIB, 4096, 70 * MIB, 70 * MIB, "what memory_limit leaves");
	/* 64 requests with two contexts of two pages */
	expect_size(&o, 1024, 128, -1, 64 * 2 * 2 * 1024, "two whole contexts");
}

static void
test_default(void **state)
{
	LlmEngineOptions o = {.max_running = 64, .memory_limit = 8 * MIB};
	LlmKvSize s;

	expect_size(&o, 1024, 4096, -1, 2 * MIB, "a quarter of memory_limit");
	expect_size(&o, 1024, 4096, MIB, MIB, "what memory_limit leaves");
	expect_size(&o, 1024, 4096, 0, 0, "what memory_limit leaves");
	o.memory_limit = 0;
	s = llm_kv_rule(&o, GIB, 4096, -1);
	assert_in_range(s.nbytes, MIB, 4 * GIB);
	assert_true(s.nbytes == 4 * GIB || strstr(s.why, "a quarter of the free memory") != NULL);
}

static void
test_least(void **state)
{
	LlmEngineOptions o = {.max_running = 64, .memory_limit = GIB};
	LlmKvSize s = llm_kv_rule(&o, 1024, 1 << 20, -1);

	/* Of a long context 64 pages will do; of a short one all of it is wanted. */
	assert_int_equal(llm_kv_rule_least(&o, 1024, 1 << 20, s), 64 * 1024);
	assert_int_equal(llm_kv_rule_least(&o, 1024, 100, s), 2 * 1024);
	/* No less than the setting says, and no more than the rule gives. */
	o.kv_nbytes = MIB;
	s = llm_kv_rule(&o, 1024, 1 << 20, -1);
	assert_int_equal(llm_kv_rule_least(&o, 1024, 1 << 20, s), MIB);
	o.kv_nbytes = 0;
	s = llm_kv_rule(&o, 1024, 1 << 20, 10 * 1024);
	assert_int_equal(llm_kv_rule_least(&o, 1024, 1 << 20, s), 10 * 1024);
}

static void
test_memory_of_the_machine(void **state)
{
	assert_true(llm_memory_total() > 64 * MIB);
	assert_in_range(llm_memory_available(), 1, llm_memory_total());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_setting),
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_least),
		cmocka_unit_test(test_memory_of_the_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
