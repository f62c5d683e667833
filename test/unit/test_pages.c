/*
 * test_pages.c - page ownership: free list, reference counts, and an audit that finds every fault.
 *
 * links: kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "kv/pages.h"

#define N_PAGES 33

static LlmPages *
pool_create(void)
{
	LlmPages *p = NULL;
	LlmError err;

	assert_int_equal(llm_kv_pages_create(N_PAGES, &p, &err), LLM_OK);
	return p;
}

static void
pool_of_one_page_is_refused(void **state)
{
	LlmPages *p = NULL;
	LlmError err;

	assert_int_equal(llm_kv_pages_create(1, &p, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_pages_create(-5, &p, &err), LLM_E_INVALID);
	assert_null(p);
}

static void
every_page_is_given_once_and_never_page_zero(void **state)
{
	LlmPages *p = pool_create();
	int32_t held[N_PAGES] = {0};
	LlmPageCounts c;
	LlmError err;

	for (int i = 1; i < N_PAGES; i++)
	{
		int32_t page = llm_kv_pages_alloc(p);

		assert_in_range(page, 1, N_PAGES - 1);
		assert_int_equal(held[page], 0);
		held[page] = 1;
	}
	assert_int_equal(llm_kv_pages_alloc(p), 0);
	assert_true(llm_kv_pages_audit(p, held, &err));
	c = llm_kv_pages_counts(p);
	assert_int_equal(c.total, N_PAGES - 1);
	assert_int_equal(c.referenced, N_PAGES - 1);
	assert_int_equal(c.free + c.cached, 0);
	llm_kv_pages_release(p, 7);
	assert_int_equal(llm_kv_pages_alloc(p), 7);
	llm_kv_pages_free(p);
}

static void
pages_that_were_given_back_come_before_untouched_ones(void **state)
{
	LlmPages *p = pool_create();
	int32_t held[N_PAGES] = {0};
	LlmError err;

	for (int i = 1; i <= 4; i++)
		assert_int_equal(llm_kv_pages_alloc(p), i);
	llm_kv_pages_release(p, 2);
	llm_kv_pages_keep(p, 3);
	llm_kv_pages_release(p, 3);
	assert_int_equal(llm_kv_pages_counts(p).untouched, N_PAGES - 5);
	assert_int_equal(llm_kv_pages_counts(p).free, N_PAGES - 4);
	assert_int_equal(llm_kv_pages_alloc(p), 2);
	assert_int_equal(llm_kv_pages_alloc(p), 5);
	llm_kv_pages_forget(p, 3);
	held[1] = held[2] = held[4] = held[5] = 1;
	assert_true(llm_kv_pages_audit(p, held, &err));
	assert_int_equal(llm_kv_pages_alloc(p), 3);
	assert_int_equal(llm_kv_pages_counts(p).untouched, N_PAGES - 6);
	llm_kv_pages_free(p);
}

static void
a_shared_page_is_free_after_its_last_owner(void **state)
{
	LlmPages *p = pool_create();
	int32_t page = llm_kv_pages_alloc(p);

	llm_kv_pages_ref(p, page);
	llm_kv_pages_release(p, page);
	assert_int_equal(llm_kv_pages_counts(p).referenced, 1);
	llm_kv_pages_release(p, page);
	assert_int_equal(llm_kv_pages_counts(p).referenced, 0);
	assert_int_equal(llm_kv_pages_counts(p).free, N_PAGES - 1);
	llm_kv_pages_free(p);
}

static void
the_audit_finds_a_leak_and_a_double_release(void **state)
{
	LlmPages *p = pool_create();
	int32_t held[N_PAGES] = {0};
	LlmError err;
	int32_t page = llm_kv_pages_alloc(p);

	assert_false(llm_kv_pages_audit(p, held, &err));
	assert_non_null(strstr(err.text, "has 1 references but 0 owners"));
	held[page] = 1;
	assert_true(llm_kv_pages_audit(p, held, &err));
	held[page] = 2;
	assert_false(llm_kv_pages_audit(p, held, &err));
	held[page] = 0;
	llm_kv_pages_release(p, page);
	assert_true(llm_kv_pages_audit(p, held, &err));
	llm_kv_pages_release(p, page);
	assert_false(llm_kv_pages_audit(p, held, &err));
	assert_non_null(strstr(err.text, "without an owner"));
	llm_kv_pages_free(p);
}

static void
wrong_ids_change_nothing_but_the_audit(void **state)
{
	const int32_t wrong[] = {0, -1, INT32_MIN, N_PAGES, INT32_MAX, 5};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
	{
		LlmPages *p = pool_create();
		int32_t held[N_PAGES] = {0};
		LlmError err;

		llm_kv_pages_release(p, wrong[i]);
		llm_kv_pages_ref(p, wrong[i]);
		assert_int_equal(llm_kv_pages_counts(p).free, N_PAGES - 1);
		assert_false(llm_kv_pages_audit(p, held, &err));
		llm_kv_pages_free(p);
	}
}

/* Random traffic of owners against a plain model: an array of reference counts. */
static void
random_traffic_agrees_with_a_plain_model(void **state)
{
	LlmPages *p = pool_create();
	int32_t held[N_PAGES] = {0};
	int n_held = 0;
	LlmError err;

	for (uint32_t step = 0; step < 50000; step++)
	{
		uint32_t op = llm_rng_u32(1, step, 0) % 5;
		int32_t page = 1 + (int32_t) (llm_rng_u32(1, step, 1) % (N_PAGES - 1));

		if (op <= 1)
		{
			page = llm_kv_pages_alloc(p);
			assert_int_equal(page == 0, n_held == N_PAGES - 1);
			if (page != 0)
			{
				assert_int_equal(held[page], 0);
				held[page] = 1;
				n_held++;
			}
		}
		else if (held[page] > 0 && op == 2)
		{
			llm_kv_pages_ref(p, page);
			held[page]++;
		}
		else if (held[page] > 0)
		{
			llm_kv_pages_release(p, page);
			n_held -= --held[page] == 0;
		}
		assert_true(llm_kv_pages_audit(p, held, &err));
		assert_int_equal(llm_kv_pages_counts(p).referenced, n_held);
	}
	llm_kv_pages_free(p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_of_one_page_is_refused),
		cmocka_unit_test(every_page_is_given_once_and_never_page_zero),
		cmocka_unit_test(pages_that_were_given_back_come_before_untouched_ones),
		cmocka_unit_test(a_shared_page_is_free_after_its_last_owner),
		cmocka_unit_test(the_audit_finds_a_leak_and_a_double_release),
		cmocka_unit_test(wrong_ids_change_nothing_but_the_audit),
		cmocka_unit_test(random_traffic_agrees_with_a_plain_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
