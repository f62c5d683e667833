/*
 * test_store.c - the KV store on the echo device: sizes, copies, whole pages out and in, bounds; and
 * on the CPU device what each type makes of numbers, huge ones and NaN.
 *
 * links: kv echo kernels sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include <math.h>

#include "core/rng.h"
#include "echo/echo_device.h"
#include "kernels/cpu_device.h"
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
	assert_int_equal(s.dev->ops->kv_import(s.dev, 0, first, 2, in, &err), LLM_OK);
	assert_int_equal(s.dev->ops->kv_export(s.dev, 0, second, 2, out, &err), LLM_OK);
	assert_memory_equal(out, in + LLM_PAGE_TOKENS, sizeof(in) / 2);
	assert_memory_equal(out + LLM_PAGE_TOKENS, in, sizeof(in) / 2);

	assert_int_equal(llm_kv_store_copy(&s, 0, 5, 3, 40, &err), LLM_OK);
	assert_int_equal(s.dev->ops->kv_export(s.dev, 0, copy, 1, out, &err), LLM_OK);
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
		assert_int_equal(s.dev->ops->kv_export(s.dev, 0, &wrong[i], 1, buf, &err), LLM_E_INTERNAL);
		assert_int_equal(s.dev->ops->kv_import(s.dev, 0, &wrong[i], 1, buf, &err), LLM_E_INTERNAL);
	}
	assert_int_equal(llm_kv_store_copy(&s, 0, 1, 0, 1, &err), LLM_E_INVALID); /* never written */
	assert_int_equal(s.dev->ops->kv_import(s.dev, 0, &zero, 1, buf, &err), LLM_E_INTERNAL);
	assert_int_equal(llm_kv_store_copy(&s, 0, 1, 2, 65, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_copy(&s, 0, 1, 2, -1, &err), LLM_E_INVALID);
	assert_int_equal(llm_kv_store_copy(&s, 1, 1, 2, 1, &err), LLM_E_INVALID);
	assert_int_equal(s.dev->ops->kv_export(s.dev, -1, &one, 1, buf, &err), LLM_E_INTERNAL);
	dev->ops->free(dev);
}

/* ---- types of the CPU's store ---- */

#define DIM 24
#define PAGE_FLOATS (LLM_PAGE_TOKENS * 2 * DIM)

typedef struct Type
{
	LlmDtype type;
	int32_t token_nbytes; /* of K and V of one head; V's values are padded to 32 */
	float max;            /* what larger values become */
	float error;          /* most, as a part of a vector's largest value */
} Type;

static const Type types[] = {
	{LLM_DTYPE_F32, 4 * (DIM + 32), LLM_KV_MAX, 0.0f},
	{LLM_DTYPE_F16, 2 * (DIM + 32), 65504.0f, 0x1p-11f},
	{LLM_DTYPE_I8, DIM + 32 + 2 * 4, LLM_KV_MAX, 0.0040f}, /* half a step of 1 / 127 */
};

/* Random vectors, some of them with huge or infinite values. */
static void
page_fill(float *x)
{
	static const float big[] = {INFINITY, -INFINITY, 3e38f, -1e30f};

	for (uint32_t i = 0; i < PAGE_FLOATS; i++)
	{
		x[i] = 2.0f * llm_rng_uniform(1, 9, i) - 1.0f;
		if (i / DIM % 5 == 3 && i % DIM == i / DIM % DIM)
			x[i] = big[i / DIM / 5 % 4];
	}
}

/* Each vector of `out` is what the type makes of that of `in`. */
static void
page_check(const Type *t, const float *in, const float *out)
{
	for (int v = 0; v < PAGE_FLOATS / DIM; v++, in += DIM, out += DIM)
	{
		float amax = 0.0f;

		for (int d = 0; d < DIM; d++)
			amax = fmaxf(amax, fminf(fabsf(in[d]), t->max));
		for (int d = 0; d < DIM; d++)
		{
			float want = fmaxf(-t->max, fminf(t->max, in[d]));

			assert_true(isfinite(out[d]));
			assert_true(fabsf(out[d] - want) <= t->error * amax);
		}
	}
}

static void
types_keep_what_they_say(void **state)
{
	float in[PAGE_FLOATS], out[PAGE_FLOATS], again[PAGE_FLOATS];
	const int32_t one = 1, two = 2, three = 3;

	page_fill(in);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
	{
		LlmKvGroup g = {.kind = LLM_KV_FULL,
						.n_layers = 1,
						.n_kv_heads = 1,
						.k_dim = DIM,
						.v_dim = DIM,
						.k_type = types[i].type,
						.v_type = types[i].type};
		LlmPool *pool;
		LlmDevice *dev;
		LlmKvStore s;
		LlmError err;

		assert_int_equal(llm_pool_create(1, &pool, &err), LLM_OK);
		assert_int_equal(llm_cpu_device_create(pool, NULL, &dev, &err), LLM_OK);
		assert_int_equal(llm_kv_store_create(&s, dev, &g, 1, 1 << 20, 5, &err), LLM_OK);
		assert_int_equal(llm_kv_store_token_nbytes(&s), types[i].token_nbytes);
		assert_int_equal(s.dev->ops->kv_import(s.dev, 0, &one, 1, in, &err), LLM_OK);
		assert_int_equal(s.dev->ops->kv_export(s.dev, 0, &one, 1, out, &err), LLM_OK);
		page_check(&types[i], in, out);
		/* out and in again: the same bits */
		assert_int_equal(s.dev->ops->kv_import(s.dev, 0, &two, 1, out, &err), LLM_OK);
		assert_int_equal(s.dev->ops->kv_export(s.dev, 0, &two, 1, again, &err), LLM_OK);
		assert_memory_equal(again, out, sizeof(out));
		/* a part of a page: its tokens, and nothing behind them */
		assert_int_equal(llm_kv_store_copy(&s, 0, 1, 3, 37, &err), LLM_OK);
		assert_int_equal(s.dev->ops->kv_export(s.dev, 0, &three, 1, again, &err), LLM_OK);
		assert_memory_equal(again, out, 37 * 2 * DIM * sizeof(float));
		for (int k = 37 * 2 * DIM; k < PAGE_FLOATS; k++)
			assert_true(again[k] == 0.0f);
		/* a NaN is refused; its vector is zeros, the others are as they were */
		memcpy(again, in, sizeof(again));
		again[5 * DIM + 1] = NAN;
		assert_int_equal(s.dev->ops->kv_import(s.dev, 0, &one, 1, again, &err), LLM_E_INVALID);
		assert_int_equal(s.dev->ops->kv_export(s.dev, 0, &one, 1, again, &err), LLM_OK);
		memset(out + 5 * DIM, 0, DIM * sizeof(float));
		assert_memory_equal(again, out, sizeof(out));
		dev->ops->free(dev);
		llm_pool_free(pool);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_follow_from_bytes),
		cmocka_unit_test(too_few_bytes_are_refused_with_numbers),
		cmocka_unit_test(pages_go_out_and_in_and_are_copied),
		cmocka_unit_test(wrong_pages_and_groups_are_refused),
		cmocka_unit_test(types_keep_what_they_say),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
