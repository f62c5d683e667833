/*
 * test_store.c - the KV store on the echo device: sizes, copies, whole pages out and in, bounds.
 *
 * links: kv echo sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "echo/echo_device.h"
#include "kv/store.h"

#define PAGE_NBYTES 256 /* 64 token ids */

static const LlmKvGroup group = {
	.kind = LLM_KV_TOKENS, .n_layers = 1, .n_kv_heads = 1, .k_dim = 1, .k_type = LLM_DTYPE_F32};

static LlmDevice *
device_create(void)
{
	LlmDevice *dev;
	LlmError err;

	assert_int_equal(llm_echo_device_create(NULL, &dev, &err), LLM_OK);
	return dev;
}

static void
pages_follow_from_bytes(void **state)
{
	const struct
	{
		int64_t nbytes;
		int32_t max_pages;
		int32_t n_pages; /* with page 0 */
	} cases[] = {{PAGE_NBYTES, 100, 2},
				 {PAGE_NBYTES * 10 - 1, 100, 10},
				 {PAGE_NBYTES * 10, 100, 11},
				 {PAGE_NBYTES * 1000, 7, 8}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		LlmDevice *dev = device_create();
		LlmKvStore s;
		LlmError err;

		assert_int_equal(llm_kv_store_create(&s, dev, &group, 1, cases[i].nbytes,
											 cases[i].max_pages, &err),
						 LLM_OK);
		assert_int_equal(s.n_pages, cases[i].n_pages);
		assert_int_equal(llm_kv_store_token_nbytes(&s), 4);
		dev->ops->free(dev);
	}
}

static void
too_few_bytes_are_refused_with_numbers(void **state)
{
	LlmDevice *dev = device_create();
	LlmKvStore s;
	LlmError err;

	assert_int_equal(llm_kv_store_create(&s, dev, &group, 1, PAGE_NBYTES - 1, 100, &err),
					 LLM_E_KV_MEMORY);
	assert_int_equal(err.got, PAGE_NBYTES);
	assert_int_equal(err.limit, PAGE_NBYTES - 1);
	assert_int_equal(llm_kv_store_create(&s, dev, &group, 0, 1 << 20, 100, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_create(&s, dev, &group, 1, 1 << 20, 0, &err), LLM_E_INVALID);
	dev->ops->free(dev);
}

static void
pages_go_out_and_in_and_are_copied(void **state)
{
	LlmDevice *dev = device_create();
	LlmKvStore s;
	LlmError err;
	float in[2 * LLM_PAGE_TOKENS], out[2 * LLM_PAGE_TOKENS];
	const int32_t first[] = {2, 5}, second[] = {5, 2}, copy[] = {3};

	assert_int_equal(llm_kv_store_create(&s, dev, &group, 1, 10 * PAGE_NBYTES, 100, &err), LLM_OK);
	for (int i = 0; i < 2 * LLM_PAGE_TOKENS; i++)
		in[i] = (float) (i + 1);
	assert_int_equal(llm_kv_store_import(&s, 0, first, 2, in, &err), LLM_OK);
	assert_int_equal(llm_kv_store_export(&s, 0, second, 2, out, &err), LLM_OK);
	assert_memory_equal(out, in + LLM_PAGE_TOKENS, sizeof(in) / 2);
	assert_memory_equal(out + LLM_PAGE_TOKENS, in, sizeof(in) / 2);

	assert_int_equal(llm_kv_store_copy(&s, 0, 5, 3, 40, &err), LLM_OK);
	assert_int_equal(llm_kv_store_export(&s, 0, copy, 1, out, &err), LLM_OK);
	assert_memory_equal(out, in + LLM_PAGE_TOKENS, 40 * sizeof(float));
	for (int i = 40; i < LLM_PAGE_TOKENS; i++)
		assert_true(out[i] == 0.0f); /* the rest is as it was created */
	dev->ops->free(dev);
}

static void
wrong_pages_and_groups_are_refused(void **state)
{
	const int32_t wrong[] = {-1, 11, INT32_MAX};
	LlmDevice *dev = device_create();
	LlmKvStore s;
	LlmError err;
	float buf[LLM_PAGE_TOKENS] = {0};
	const int32_t zero = 0, one = 1;

	assert_int_equal(llm_kv_store_create(&s, dev, &group, 1, 10 * PAGE_NBYTES, 100, &err), LLM_OK);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(llm_kv_store_copy(&s, 0, wrong[i], 1, 1, &err), LLM_E_INVALID);
		assert_int_equal(llm_kv_store_copy(&s, 0, 1, wrong[i], 1, &err), LLM_E_INVALID);
		assert_int_equal(llm_kv_store_export(&s, 0, &wrong[i], 1, buf, &err), LLM_E_INVALID);
		assert_int_equal(llm_kv_store_import(&s, 0, &wrong[i], 1, buf, &err), LLM_E_INVALID);
	}
	assert_int_equal(llm_kv_store_copy(&s, 0, 1, 0, 1, &err), LLM_E_INVALID); /* never written */
	assert_int_equal(llm_kv_store_import(&s, 0, &zero, 1, buf, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_copy(&s, 0, 1, 2, 65, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_copy(&s, 0, 1, 2, -1, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_copy(&s, 1, 1, 2, 1, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_export(&s, -1, &one, 1, buf, &err), LLM_E_INVALID);
	dev->ops->free(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_follow_from_bytes),
		cmocka_unit_test(too_few_bytes_are_refused_with_numbers),
		cmocka_unit_test(pages_go_out_and_in_and_are_copied),
		cmocka_unit_test(wrong_pages_and_groups_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
