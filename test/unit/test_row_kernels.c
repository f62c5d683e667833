/*
 * test_row_kernels.c - norm, gate, rotary turn and KV rounding of every instruction set against
 * generic, to the bit, and generic against libm in double.
 *
 * links: kernels sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "kernel_data.h"
#include "kernels/rope.h"
#include "tensor/half.h"
#include "tensor/mathf.h"

static void
test_rms_norm(void **state)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = others(all);

	(void) state;
	for (int32_t n = 1; n <= 600; n += n < 40 ? 1 : 67)
		for (int with_add = 0; with_add < 2; with_add++)
		{
			float *res = random_floats((size_t) n, 10.0f), *add = random_floats((size_t) n, 3.0f);
			float *w = random_floats((size_t) n, 1.0f), *sum = aligned((size_t) n * 4);
			float *got = aligned((size_t) n * 4), *got_sum = aligned((size_t) n * 4);
			float *want = aligned((size_t) n * 4);
			double mean = 0.0;

			memcpy(sum, res, (size_t) n * 4);
			llm_kernels_generic.rms_norm(sum, with_add ? add : NULL, w, 1e-5f, n, want);
			for (int32_t i = 0; i < n; i++)
			{
				assert_true(sum[i] == (with_add ? res[i] + add[i] : res[i]));
				mean += (double) sum[i] * sum[i] / n;
			}
			for (int32_t i = 0; i < n; i++)
			{
				double y = sum[i] / sqrt(mean + 1e-5) * w[i];

				assert_true(fabs(want[i] - y) <= 32 * FLT_EPSILON * fabs(y));
			}
			for (int i = 0; i < n_all; i++)
			{
				memcpy(got_sum, res, (size_t) n * 4);
				all[i]->rms_norm(got_sum, with_add ? add : NULL, w, 1e-5f, n, got);
				assert_memory_equal(got, want, (size_t) n * 4);
				assert_memory_equal(got_sum, sum, (size_t) n * 4);
			}
			free(res);
			free(add);
			free(w);
			free(sum);
			free(got);
			free(got_sum);
			free(want);
		}
}

static void
test_silu_gate(void **state)
{
	static const float special[] = {0.0f,    -0.0f, 88.0f,  -88.0f,    87.5f,    -87.5f,
									1000.0f, -1e9f, 1e-40f, -INFINITY, INFINITY, 1e-20f};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = others(all);
	const int32_t n = 1000;
	float *gate = random_floats((size_t) n, 30.0f), *up = random_floats((size_t) n, 2.0f);
	float *want = aligned((size_t) n * 4), *got = aligned((size_t) n * 4);

	(void) state;
	memcpy(gate, special, sizeof(special));
	llm_kernels_generic.silu_gate(gate, up, n, want);
	for (int32_t i = 0; i < n; i++)
	{
		double y = gate[i] / (1.0 + exp(-(double) gate[i])) * up[i];

		if (isfinite(gate[i]) && gate[i] > -87.0f) /* below, e^-x is cut at e^88 */
			assert_true(fabs(want[i] - y) <= 8 * FLT_EPSILON * fabs(y) + FLT_MIN);
	}
	for (int i = 0; i < n_all; i++)
		for (int32_t len = n; len > n - 40; len--)
		{
			memset(got, 0, (size_t) n * 4);
			all[i]->silu_gate(gate, up, len, got);
			assert_memory_equal(got, want, (size_t) len * 4);
			assert_true(len == n || got[len] == 0.0f);
		}
	free(gate);
	free(up);
	free(want);
	free(got);
}

/* The vector exp of a table equals llm_expf: seen through a gate of 1 / (1 + e^-x). */
static void
test_exp_accuracy(void **state)
{
	double worst = 0.0;

	(void) state;
	for (float x = -87.0f; x < 88.0f; x += 0.0137f)
	{
		double rel = fabs(llm_expf(x) / exp((double) x) - 1.0);

		worst = rel > worst ? rel : worst;
	}
	assert_true(worst < 2.5 * FLT_EPSILON);
	assert_true(llm_expf(0.0f) == 1.0f && llm_expf(-INFINITY) == 0.0f);
}

static void
test_sincos(void **state)
{
	double worst = 0.0;

	(void) state;
	for (float x = 0.0f; x < 140000.0f; x = x * 1.0003f + 0.01f)
	{
		float s, c;

		llm_sincosf(x, &s, &c);
		worst = fmax(worst, fabs(s - sin((double) x)));
		worst = fmax(worst, fabs(c - cos((double) x)));
	}
	assert_true(worst < 1.5e-7);
}

static void
test_rope(void **state)
{
	static const int32_t dims[][2] = {{64, 64}, {64, 32}, {48, 20}, {32, 2}, {8, 8}, {80, 80}};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = others(all);

	(void) state;
	for (size_t c = 0; c < sizeof(dims) / sizeof(dims[0]); c++)
		for (int pairs = 0; pairs < 2; pairs++)
		{
			int32_t n = dims[c][0], n_dims = dims[c][1], pos = 777;
			float freq[64], cs[96], sn[96], want[96], got[96];
			float *x = random_floats((size_t) n, 1.0f);
			LlmRope rope = {n_dims, pairs, freq};

			for (int32_t i = 0; i < n_dims / 2; i++)
				freq[i] = 1.0f / (1.0f + (float) i);
			llm_rope_table(&rope, pos, cs, sn);
			llm_kernels_generic.rope(x, cs, sn, n, n_dims, pairs, want);
			for (int32_t i = 0; i < n_dims / 2; i++)
			{
				int32_t a = pairs ? 2 * i : i, b = pairs ? 2 * i + 1 : i + n_dims / 2;
				double t = (double) ((float) pos * freq[i]);

				assert_true(fabs(want[a] - (x[a] * cos(t) - x[b] * sin(t))) < 5e-7);
				assert_true(fabs(want[b] - (x[b] * cos(t) + x[a] * sin(t))) < 5e-7);
			}
			assert_memory_equal(want + n_dims, x + n_dims, (size_t) (n - n_dims) * 4);
			for (int i = 0; i < n_all; i++)
			{
				all[i]->rope(x, cs, sn, n, n_dims, pairs, got);
				assert_memory_equal(got, want, (size_t) n * 4);
			}
			free(x);
		}
}

static void
test_kv_store(void **state)
{
	static const float special[] = {INFINITY, -INFINITY,  1e30f,  -1e30f, 65504.0f,
									65519.9f, 65520.0f,   6e-8f,  1e-10f, -0.0f,
									3e-5f,    1.0009765f, 2049.0f};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);
	float x[48];

	(void) state;
	for (int i = 0; i < 48; i++)
		x[i] = 4.0f * uniform();
	memcpy(x, special, sizeof(special));
	for (int i = 0; i < n_all; i++)
		for (int32_t n = 1; n <= 48; n++)
			for (int32_t stride = 1; stride <= 16; stride += 15)
			{
				uint16_t h[48 * 16];
				float f[48 * 16];

				memset(h, 0x11, sizeof(h));
				memset(f, 0x11, sizeof(f));
				all[i]->kv_store(x, n, LLM_DTYPE_F16, stride, h);
				all[i]->kv_store(x, n, LLM_DTYPE_F32, stride, f);
				for (int32_t j = 0; j < n; j++)
				{
					float c = fmaxf(-65504.0f, fminf(65504.0f, x[j]));

					assert_int_equal(h[j * stride], llm_half_from_f32(c));
					assert_true(f[j * stride] == fmaxf(-FLT_MAX, fminf(FLT_MAX, x[j])));
				}
				assert_int_equal(h[(n - 1) * stride + 1], n < 48 || stride > 1 ? 0x1111 : h[n]);
			}
	memset(x, 0xFF, sizeof(x)); /* NaN */
	for (int i = 0; i < n_all; i++)
	{
		float f[16];

		all[i]->kv_store(x, 16, LLM_DTYPE_F32, 1, f);
		assert_true(isfinite(f[0]) && isfinite(f[15]));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rms_norm),     cmocka_unit_test(test_silu_gate),
		cmocka_unit_test(test_exp_accuracy), cmocka_unit_test(test_sincos),
		cmocka_unit_test(test_rope),         cmocka_unit_test(test_kv_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
