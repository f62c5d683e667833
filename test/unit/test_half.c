/*
 * test_half.c - half floats against the hardware, exp and log against libm, the table of types.
 * links: tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "tensor/block.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/mathf.h"

static float
from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint32_t
to_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

/* ---- half floats ---- */

/* The value of a finite half by the definition of IEEE 754. */
static double
half_value(uint32_t h)
{
	int exp = (int) (h >> 10 & 0x1F);
	double man = h & 0x3FF;
	double v = exp == 0 ? ldexp(man, -24) : ldexp(1024 + man, exp - 25);

	return (h & 0x8000) != 0 ? -v : v;
}

static void
test_half_values(void **state)
{
	for (uint32_t h = 0; h < 0x10000; h++)
	{
		float f = llm_half_to_f32((uint16_t) h);

		if ((h & 0x7C00) != 0x7C00)
			assert_true((double) f == half_value(h));
		else if ((h & 0x3FF) == 0)
			assert_true(f == ((h & 0x8000) != 0 ? -INFINITY : INFINITY));
		else
			assert_true(isnan(f));
		assert_int_equal(signbit(f) != 0, h >> 15);
		if (!isnan(f))
			assert_int_equal(llm_half_from_f32(f), h);
	}
	assert_true(llm_half_to_f32(0x7BFF) == LLM_HALF_MAX);
}

/* Between two neighbours the nearer one wins, and half way the even one. */
static void
test_half_rounding(void **state)
{
	for (uint32_t h = 0; h < 0x7BFF; h++)
	{
		/* The middle of two halves needs at most 12 bits: exact in float. */
		float mid = (float) ((half_value(h) + half_value(h + 1)) / 2);
		uint16_t even = (uint16_t) (h + (h & 1));

		assert_int_equal(llm_half_from_f32(mid), even);
		assert_int_equal(llm_half_from_f32(nextafterf(mid, INFINITY)), h + 1);
		assert_int_equal(llm_half_from_f32(nextafterf(mid, 0.0f)), h);
		assert_int_equal(llm_half_from_f32(-mid), even | 0x8000);
	}
	assert_int_equal(llm_half_from_f32(65519.996f), 0x7BFF);
	assert_int_equal(llm_half_from_f32(65520.0f), 0x7C00);
	assert_int_equal(llm_half_from_f32(FLT_MAX), 0x7C00);
	assert_int_equal(llm_half_from_f32(-INFINITY), 0xFC00);
	assert_int_equal(llm_half_from_f32(0x1p-25f), 0);
	assert_int_equal(llm_half_from_f32(-0x1.000002p-25f), 0x8001);
	assert_int_equal(llm_half_from_f32(1e-45f), 0);
	assert_int_equal(llm_half_from_f32(from_bits(0x7F800001)) & 0x7E00, 0x7E00); /* a quiet NaN */
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static void
compare_f16c(void)
{
	for (uint32_t h = 0; h < 0x10000; h++)
		assert_int_equal(to_bits(llm_half_to_f32((uint16_t) h)), to_bits(_cvtsh_ss((uint16_t) h)));
	for (uint64_t i = 0; i < (uint64_t) 1 << 32; i += 1021)
	{
		float f = from_bits((uint32_t) i);

		if (llm_half_from_f32(f) != _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT))
			fail_msg("float %08x gives %04x", (unsigned) i, llm_half_from_f32(f));
	}
}
#endif

static void
test_half_hardware(void **state)
{
#if defined(__x86_64__)
	unsigned a, b, c = 0, d;

	/* AVX stands for the registers that the system must save. */
	if (__builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0)
	{
		compare_f16c();
		return;
	}
#endif
	skip();
}

/* ---- exp and log ---- */

/* Distance of f from the exact value in units of the last place of a float near it. */
static double
ulps(float f, double exact)
{
	int exp;

	frexp(exact, &exp);
	return fabs((double) f - exact) / ldexp(1.0, (exp < -125 ? -125 : exp) - 24);
}

static void
test_expf(void **state)
{
	double worst = 0;

	for (int64_t i = 0; i <= 2000000; i++)
	{
		float x = (float) (-87.0 + 175.0 * (double) i / 2e6);

		worst = fmax(worst, ulps(llm_expf(x), exp((double) x)));
	}
	for (uint32_t bits = 0; bits < to_bits(1.0f); bits += 997) /* around 0, subnormals too */
	{
		float x = from_bits(bits);

		worst = fmax(worst, ulps(llm_expf(x), exp((double) x)));
		worst = fmax(worst, ulps(llm_expf(-x), exp((double) -x)));
	}
	assert_true(worst < 2.0);
	assert_true(llm_expf(0.0f) == 1.0f && llm_expf(-0.0f) == 1.0f);
	assert_true(llm_expf(-INFINITY) == 0.0f && llm_expf(-87.1f) == 0.0f);
	assert_true(llm_expf(-FLT_MAX) == 0.0f);
	assert_true(llm_expf(LLM_EXP_MIN) >= FLT_MIN); /* never a subnormal */
	assert_true(llm_expf(INFINITY) == llm_expf(LLM_EXP_MAX));
	assert_true(llm_expf(LLM_EXP_MAX) < INFINITY);
	assert_true(isnan(llm_expf(NAN)));
}

static void
test_logf(void **state)
{
	double worst = 0;

	for (uint32_t bits = 0x00800000; bits < 0x7F800000; bits += 1009)
	{
		float x = from_bits(bits);

		worst = fmax(worst, ulps(llm_logf(x), log((double) x)));
	}
	for (int32_t i = -200000; i <= 200000; i++) /* around 1, where log is small */
	{
		float x = from_bits((uint32_t) ((int32_t) to_bits(1.0f) + i));

		if (i != 0)
			worst = fmax(worst, ulps(llm_logf(x), log((double) x)));
	}
	assert_true(worst < 2.0);
	assert_true(llm_logf(1.0f) == 0.0f);
	assert_true(llm_logf(INFINITY) == INFINITY);
	assert_true(llm_logf(0.0f) == -INFINITY && llm_logf(-0.0f) == -INFINITY);
	assert_true(llm_logf(-1.0f) == -INFINITY && llm_logf(-INFINITY) == -INFINITY);
	assert_true(llm_logf(1e-40f) == -INFINITY);
	assert_true(isnan(llm_logf(NAN)) && isnan(llm_logf(-NAN)));
}

/* ---- types ---- */

static void
test_dtypes(void **state)
{
	static const struct
	{
		LlmDtype type;
		const char *name;
		int32_t block, nbytes;
	} types[] = {
		{LLM_DTYPE_F32, "F32", 1, 4},       {LLM_DTYPE_F16, "F16", 1, 2},
		{LLM_DTYPE_Q4_0, "Q4_0", 32, 18},   {LLM_DTYPE_Q4_1, "Q4_1", 32, 20},
		{LLM_DTYPE_Q5_0, "Q5_0", 32, 22},   {LLM_DTYPE_Q5_1, "Q5_1", 32, 24},
		{LLM_DTYPE_Q8_0, "Q8_0", 32, 34},   {LLM_DTYPE_Q4_K, "Q4_K", 256, 144},
		{LLM_DTYPE_Q5_K, "Q5_K", 256, 176}, {LLM_DTYPE_Q6_K, "Q6_K", 256, 210},
		{LLM_DTYPE_BF16, "BF16", 1, 2},
	};
	int known = 0;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
	{
		const LlmDtypeInfo *info = llm_dtype_info(types[i].type);

		assert_non_null(info);
		assert_string_equal(info->name, types[i].name);
		assert_string_equal(llm_dtype_gguf_name(types[i].type), types[i].name);
		assert_int_equal(info->block, types[i].block);
		assert_int_equal(info->block_nbytes, types[i].nbytes);
		assert_int_equal(llm_dtype_row_nbytes(types[i].type, 4096),
						 4096 / types[i].block * types[i].nbytes);
	}
	for (uint32_t t = 0; t < 100; t++)
		known += llm_dtype_info(t) != NULL;
	assert_int_equal(known, 11);
	assert_null(llm_dtype_info(UINT32_MAX));
	assert_string_equal(llm_dtype_gguf_name(10), "Q2_K");
	assert_string_equal(llm_dtype_gguf_name(4), "unknown");
	assert_string_equal(llm_dtype_gguf_name(UINT32_MAX), "unknown");
	/* A row that does not fit 32 bits. */
	assert_int_equal(llm_dtype_row_nbytes(LLM_DTYPE_F32, (int64_t) 1 << 31), (uint64_t) 1 << 33);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_half_values),   cmocka_unit_test(test_half_rounding),
		cmocka_unit_test(test_half_hardware), cmocka_unit_test(test_expf),
		cmocka_unit_test(test_logf),          cmocka_unit_test(test_dtypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
