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
				assert_true(
					all[i]->kv_store(x, n, LLM_DTYPE_F16, (LlmKvVector){h, NULL, 1, stride}));
				assert_true(
					all[i]->kv_store(x, n, LLM_DTYPE_F32, (LlmKvVector){f, NULL, 1, stride}));
				for (int32_t j = 0; j < n; j++)
				{
					float c = fmaxf(-65504.0f, fminf(65504.0f, x[j]));

					assert_int_equal(h[j * stride], llm_half_from_f32(c));
					assert_true(f[j * stride] == fmaxf(-LLM_KV_MAX, fminf(LLM_KV_MAX, x[j])));
				}
				assert_int_equal(h[(n - 1) * stride + 1], n < 48 || stride > 1 ? 0x1111 : h[n]);
			}
}

/* A vector as int8: units of a scale that only it decides, within half a unit, the same bits from
 * every instruction set, and unchanged when the values it stands for are stored again. */
static void
check_int8(const float *x, int32_t n, int32_t run, int32_t stride)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);
	int8_t q[80 * 16], want[80 * 16];
	float scale, want_scale, again[80], amax = 0.0f;

	memset(want, 0x11, sizeof(want));
	assert_true(llm_kernels_generic.kv_store(x, n, LLM_DTYPE_I8,
											 (LlmKvVector){want, &want_scale, run, stride}));
	for (int i = 0; i < n_all; i++)
	{
		memset(q, 0x11, sizeof(q));
		assert_true(all[i]->kv_store(x, n, LLM_DTYPE_I8, (LlmKvVector){q, &scale, run, stride}));
		assert_memory_equal(q, want, sizeof(q));
		assert_memory_equal(&scale, &want_scale, sizeof(scale));
	}
	for (int32_t j = 0; j < n; j++)
		amax = fmaxf(amax, fminf(fabsf(x[j]), LLM_KV_MAX));
	assert_true(fabs((double) scale - amax / 127.0) <= amax / 127.0 * 0x1p-16 || scale == 0.0f);
	assert_true(scale > 0.0f || amax < 127.01f * FLT_MIN);
	for (int32_t j = 0; j < n; j++)
	{
		float c = fmaxf(-LLM_KV_MAX, fminf(LLM_KV_MAX, x[j]));

		again[j] = (float) q[j / run * stride + j % run] * scale;
		assert_true((double) again[j] == /* exact */
					(double) q[j / run * stride + j % run] * (double) scale);
		if (scale > 0.0f)
			assert_true(fabsf(again[j] - c) <= scale * 0.502f);
	}
	memset(q, 0x11, sizeof(q));
	assert_true(llm_kernels_generic.kv_store(again, n, LLM_DTYPE_I8,
											 (LlmKvVector){q, &scale, run, stride}));
	assert_memory_equal(q, want, sizeof(q));
	assert_memory_equal(&scale, &want_scale, sizeof(scale));
}

static void
test_kv_store_int8(void **state)
{
	static const float sizes[] = {1e-39f, 1.6e-36f, 1e-20f, 0.7f, 1e4f, 1e20f, 0x1p96f, 3e38f};
	float x[80];

	(void) state;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (int32_t n = 1; n <= 80; n++)
		{
			for (int i = 0; i < 80; i++)
				x[i] = sizes[s] * uniform();
			check_int8(x, n, n % 2 ? 1 : 4, n % 2 ? 4 : 64);
			x[n / 2] = n % 3 ? INFINITY : -INFINITY;
			check_int8(x, n, 1, 1);
			memset(x, 0, sizeof(x));
			check_int8(x, n, 4, 64);
		}
	for (int i = 0; i < 20000; i++) /* every last bit of the scale */
	{
		x[0] = 1.0f + (float) i * 0x1p-13f;
		x[1] = 0.4f * x[0];
		check_int8(x, 2, 1, 1);
	}
}

/* One NaN, of any sign and anywhere: all zeros, and it is told. */
static void
test_kv_store_nan(void **state)
{
	static const LlmDtype types[] = {LLM_DTYPE_F32, LLM_DTYPE_F16, LLM_DTYPE_I8};
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);
	float x[80], zeros[80] = {0};

	(void) state;
	for (int i = 0; i < n_all; i++)
		for (int t = 0; t < 3; t++)
			for (int32_t at = 0; at < 80; at++)
			{
				float out[80] = {1.0f}, scale = 1.0f;

				for (int j = 0; j < 80; j++)
					x[j] = j % 7 ? uniform() : INFINITY;
				x[at] = copysignf(NAN, at % 2 ? 1.0f : -1.0f);
				memset(out, 0x11, sizeof(out));
				assert_false(all[i]->kv_store(x, 80, types[t], (LlmKvVector){out, &scale, 1, 1}));
				assert_memory_equal(out, zeros, 80 * llm_kv_type_nbytes(types[t]));
				assert_true(types[t] != LLM_DTYPE_I8 || scale == 0.0f);
			}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rms_norm),      cmocka_unit_test(test_silu_gate),
		cmocka_unit_test(test_exp_accuracy),  cmocka_unit_test(test_sincos),
		cmocka_unit_test(test_rope),          cmocka_unit_test(test_kv_store),
		cmocka_unit_test(test_kv_store_int8), cmocka_unit_test(test_kv_store_nan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
