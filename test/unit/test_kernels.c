/*
 * test_kernels.c - products and quantising of every instruction set against generic, to the bit,
 * and generic against a reference in double with a bound that float rounding explains.
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
#include <stdio.h>

#include "kernel_data.h"
#include "kernels/panel.h"
#include "tensor/block.h"
#include "tensor/half.h"

#define GUARD 12345.5f /* what must stay where nothing may be written */

static const LlmDtype quant_types[] = {LLM_DTYPE_Q8_0, LLM_DTYPE_Q4_0, LLM_DTYPE_Q4_1,
									   LLM_DTYPE_Q5_0, LLM_DTYPE_Q5_1, LLM_DTYPE_Q4_K,
									   LLM_DTYPE_Q5_K, LLM_DTYPE_Q6_K};
static const LlmDtype float_types[] = {LLM_DTYPE_F32, LLM_DTYPE_F16, LLM_DTYPE_BF16};
#define N_QUANT ((int) (sizeof(quant_types) / sizeof(quant_types[0])))
#define N_FLOAT ((int) (sizeof(float_types) / sizeof(float_types[0])))

/* Where a block holds its d and its m; -1 = nowhere. */
static void
halves_of(LlmDtype type, int *d, int *m)
{
	*d = type == LLM_DTYPE_Q6_K ? (int) offsetof(LlmBlockQ6_K, d) : 0;
	*m = type == LLM_DTYPE_Q4_1 || type == LLM_DTYPE_Q5_1 || type == LLM_DTYPE_Q4_K ||
				 type == LLM_DTYPE_Q5_K
			 ? 2
			 : -1;
}

/* Random rows of a type, with scales near 0.01, or a fraction of it where a block has factors. */
static uint8_t *
random_weights(LlmDtype type, int32_t n, int32_t k)
{
	size_t row = llm_dtype_row_nbytes(type, k);
	size_t block = (size_t) llm_dtype_info(type)->block_nbytes;
	float factor = llm_dtype_info(type)->block == LLM_BLOCK_K ? 1.0f / 32.0f : 1.0f;
	uint8_t *w = aligned((size_t) n * row);
	int at_d, at_m;

	halves_of(type, &at_d, &at_m);
	for (size_t i = 0; i < (size_t) n * row; i++)
		w[i] = (uint8_t) llm_rng_u32(3, 4, counter++);
	for (size_t b = 0; b < (size_t) n * row / block; b++)
	{
		uint16_t d = llm_half_from_f32(factor * 0.01f * (1.5f + uniform()));
		uint16_t m = llm_half_from_f32(factor * 0.05f * uniform());
		float f = uniform();
		uint16_t h = llm_half_from_f32(f);

		if (type == LLM_DTYPE_F32)
			memcpy(w + b * block, &f, sizeof(f));
		else if (type == LLM_DTYPE_F16)
			memcpy(w + b * block, &h, sizeof(h));
		else if (type == LLM_DTYPE_BF16)
			memcpy(w + b * block, (uint8_t *) &f + 2, 2);
		else
			memcpy(w + b * block + at_d, &d, sizeof(d));
		if (at_m > 0)
			memcpy(w + b * block + at_m, &m, sizeof(m));
	}
	return w;
}

/* A weight with its panels and its values. */
typedef struct Weight
{
	LlmWeightView view;
	uint8_t *panels;
	size_t panel_nbytes;
	int32_t n_panels;
	float *values; /* [n][k] */
} Weight;

static Weight
weight_create(LlmDtype type, int32_t n, int32_t k, uint8_t *data)
{
	Weight w = {.view = {"w", data, n, k, type}, .n_panels = (n + 15) / 16};

	w.panel_nbytes = llm_panel_nbytes(type, k);
	w.panels = aligned(w.panel_nbytes * (size_t) w.n_panels);
	for (int32_t p = 0; p < w.n_panels; p++)
		llm_panel_pack(&w.view, p, w.panels + (size_t) p * w.panel_nbytes);
	w.values = aligned((size_t) n * (size_t) k * sizeof(float));
	for (int32_t i = 0; i < n; i++)
		llm_panel_column(type, w.panels + (size_t) (i / 16) * w.panel_nbytes, k, i % 16,
						 w.values + (size_t) i * (size_t) k);
	return w;
}

static void
weight_free(Weight *w)
{
	free((void *) w->view.data);
	free(w->panels);
	free(w->values);
}

/* ---- weights ---- */

static void
read_file(const char *dir, const char *name, void *out, size_t skip, size_t nbytes)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fseek(f, (long) skip, SEEK_SET), 0);
	assert_int_equal(fread(out, 1, nbytes, f), nbytes);
	fclose(f);
}

/* Panels of the golden blocks read back to the golden values. */
static void
test_panel_golden(void **state)
{
	(void) state;
	for (int i = 0; i < N_QUANT; i++)
	{
		LlmDtype type = quant_types[i];
		size_t nbytes = 4 * llm_dtype_row_nbytes(type, 512);
		uint8_t *data = aligned(nbytes);
		float want[4 * 512];
		char name[32];
		Weight w;

		snprintf(name, sizeof(name), "%s.bin", llm_dtype_info(type)->name);
		read_file("test/golden/quant", name, data, 0, nbytes);
		snprintf(name, sizeof(name), "%s.deq.npy", llm_dtype_info(type)->name);
		read_file("test/golden/quant", name, want, 128, sizeof(want));
		w = weight_create(type, 4, 512, data);
		assert_memory_equal(w.values, want, sizeof(want));
		weight_free(&w);
	}
}

/* A bfloat16 is the upper half of the float that is read back. */
static void
test_panel_bf16(void **state)
{
	uint8_t *data = random_weights(LLM_DTYPE_BF16, 20, 37);
	Weight w = weight_create(LLM_DTYPE_BF16, 20, 37, data);

	(void) state;
	for (int i = 0; i < 20 * 37; i++)
	{
		uint8_t want[4] = {0, 0, data[2 * i], data[2 * i + 1]};

		assert_memory_equal(&w.values[i], want, 4);
	}
	weight_free(&w);
}

/* ---- products ---- */

/* The tiles of m rows; those that the last has beyond them are NaNs. */
static LlmQ8Tile *
tiled(const LlmQ8Unit *q, int32_t m, int32_t k)
{
	int32_t n_units = (k + 63) / 64, n = (m + LLM_Q8_TILE_ROWS - 1) / LLM_Q8_TILE_ROWS * n_units;
	LlmQ8Tile *tiles = aligned((size_t) n * sizeof(*tiles));

	memset(tiles, 0xFF, (size_t) n * sizeof(*tiles));
	for (int32_t i = 0; i < m * n_units; i++)
	{
		int32_t r = i / n_units;

		llm_q8_tile_set(&tiles[r / LLM_Q8_TILE_ROWS * n_units + i % n_units], r % LLM_Q8_TILE_ROWS,
						&q[i]);
	}
	return tiles;
}

/* y[M][n + 3] with guards behind every row; freed by the caller. */
static float *
product(const LlmKernels *kernels, const Weight *w, const LlmQ8Unit *q, const float *x, int32_t m)
{
	int32_t n = w->view.rows, ldy = n + 3;
	float *y = aligned((size_t) m * (size_t) ldy * sizeof(float));
	LlmQ8Tile *tiles = q != NULL && kernels->tile_rows > 0 ? tiled(q, m, w->view.cols) : NULL;
	LlmGemm g = {.type = w->view.type,
				 .w = w->panels,
				 .panel_nbytes = w->panel_nbytes,
				 .k = w->view.cols,
				 .n_panels = w->n_panels,
				 .n_cols = n,
				 .n_rows = m,
				 .q = q,
				 .tiles = tiles,
				 .x = x,
				 .ldx = w->view.cols,
				 .ldy = ldy,
				 .y = y};

	for (int32_t i = 0; i < m * ldy; i++)
		y[i] = GUARD;
	if (q != NULL)
		kernels->gemm_quant(&g);
	else
		kernels->gemm_float(&g);
	for (int32_t r = 0; r < m; r++)
		for (int32_t c = n; c < ldy; c++)
			assert_true(y[r * ldy + c] == GUARD);
	free(tiles);
	return y;
}

/* All instruction sets against generic for m rows; the last row alone as among the others. */
static void
check_product(const Weight *w, const LlmQ8Unit *q, const float *x, int32_t m)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = others(all);
	int32_t ldy = w->view.rows + 3, n_units = (w->view.cols + 63) / 64;
	float *want = product(&llm_kernels_generic, w, q, x, m);

	for (int i = 0; i < n_all; i++)
	{
		float *got = product(all[i], w, q, x, m);
		float *one = product(all[i], w, q != NULL ? q + (size_t) (m - 1) * (size_t) n_units : NULL,
							 x != NULL ? x + (size_t) (m - 1) * (size_t) w->view.cols : NULL, 1);

		assert_memory_equal(got, want, (size_t) m * (size_t) ldy * sizeof(float));
		assert_memory_equal(one, want + (size_t) (m - 1) * (size_t) ldy,
							(size_t) ldy * sizeof(float));
		free(got);
		free(one);
	}
	free(want);
}

static LlmQ8Unit *
quantised(const float *x, int32_t m, int32_t k)
{
	int32_t n_units = (k + 63) / 64;
	LlmQ8Unit *q = aligned((size_t) m * (size_t) n_units * sizeof(*q));

	for (int32_t r = 0; r < m; r++)
		llm_kernels_generic.quantise(x + (size_t) r * (size_t) k, k,
									 q + (size_t) r * (size_t) n_units);
	return q;
}

static void
test_gemm_quant_bits(void **state)
{
	static const int32_t small[] = {32, 64, 96, 352, 0}, big[] = {256, 512, 0};
	static const int32_t ns[] = {1, 16, 23, 48, 70};

	(void) state;
	for (int t = 0; t < N_QUANT; t++)
	{
		bool in_big = llm_dtype_info(quant_types[t])->block == LLM_BLOCK_K;

		for (const int32_t *k = in_big ? big : small; *k != 0; k++)
			for (size_t j = 0; j < 5; j++)
			{
				Weight w = weight_create(quant_types[t], ns[j], *k,
										 random_weights(quant_types[t], ns[j], *k));
				float *x = random_floats((size_t) (64 * *k), 3.0f);
				LlmQ8Unit *q = quantised(x, 64, *k);

				for (int32_t m = 1; m <= 64; m += m < 26 ? 1 : 19)
					check_product(&w, q, NULL, m);
				free(x);
				free(q);
				weight_free(&w);
			}
	}
}

/* Rows so long, or so many, that a routine takes them in several blocks. */
static void
test_gemm_quant_long(void **state)
{
	static const int32_t ns[] = {48, 17}, ms[] = {35, 535}, ks[] = {4160, 256}, big[] = {4352, 256};

	(void) state;
	for (int t = 0; t < N_QUANT; t++)
		for (int j = 0; j < 2; j++)
		{
			int32_t k = (llm_dtype_info(quant_types[t])->block == LLM_BLOCK_K ? big : ks)[j];
			Weight w =
				weight_create(quant_types[t], ns[j], k, random_weights(quant_types[t], ns[j], k));
			float *x = random_floats((size_t) (ms[j] * k), 3.0f);
			LlmQ8Unit *q = quantised(x, ms[j], k);

			check_product(&w, q, NULL, ms[j]);
			free(x);
			free(q);
			weight_free(&w);
		}
}

/* The largest sums that 16-bit pairs could see: quants and activations at their ends. */
static void
test_gemm_quant_extremes(void **state)
{
	const int32_t m = 35; /* enough for every routine there is */

	(void) state;
	for (int t = 0; t < N_QUANT; t++)
		for (int pattern = 0; pattern < 4; pattern++)
		{
			LlmDtype type = quant_types[t];
			size_t block = (size_t) llm_dtype_info(type)->block_nbytes;
			int32_t k = llm_dtype_info(type)->block == LLM_BLOCK_K ? 256 : 64;
			size_t nbytes = 16 * llm_dtype_row_nbytes(type, k);
			uint8_t *data = random_weights(type, 16, k), *ends = random_weights(type, 16, k);
			float *x = aligned((size_t) (m * k) * sizeof(float));
			int at_d, at_m;
			LlmQ8Unit *q;
			Weight w;

			halves_of(type, &at_d, &at_m);
			memset(data,
				   type == LLM_DTYPE_Q8_0 ? (pattern & 1 ? 0x80 : 0x7F) : (pattern & 1) * 0xFF,
				   nbytes);
			for (size_t b = 0; b < nbytes / block; b++)
			{
				memcpy(data + b * block + at_d, ends + b * block + at_d, 2);
				if (at_m > 0)
					memcpy(data + b * block + at_m, ends + b * block + at_m, 2);
			}
			for (int32_t i = 0; i < m * k; i++)
				x[i] = pattern & 2 ? -1.0f : 1.0f;
			w = weight_create(type, 16, k, data);
			q = quantised(x, m, k);
			assert_int_equal(q[0].q[5], pattern & 2 ? -127 : 127);
			check_product(&w, q, NULL, m);
			free(x);
			free(q);
			free(ends);
			weight_free(&w);
		}
}

/* Products of the quantised activations with the weights' values, in double. */
static void
test_gemm_quant_value(void **state)
{
	const int32_t m = 3, n = 40;

	(void) state;
	for (int t = 0; t < N_QUANT; t++)
	{
		int32_t k = llm_dtype_info(quant_types[t])->block == LLM_BLOCK_K ? 256 : 224;
		Weight w = weight_create(quant_types[t], n, k, random_weights(quant_types[t], n, k));
		float *x = random_floats((size_t) (m * k), 2.0f);
		LlmQ8Unit *q = quantised(x, m, k);
		float *y = product(&llm_kernels_generic, &w, q, NULL, m);

		for (int32_t r = 0; r < m; r++)
			for (int32_t c = 0; c < n; c++)
			{
				double sum = 0.0, size = 0.0;

				for (int32_t i = 0; i < k; i++)
				{
					const LlmQ8Unit *u = &q[r * 4 + i / 64];
					double p = (double) u->d[i / 32 % 2] * u->q[i % 64] * w.values[c * k + i];

					sum += p;
					size += fabs(p);
				}
				/* two roundings per scale, of which a half has two at most, and one for each product of
				 * scales; a value that is read back has one of its own */
				assert_true(fabs(y[r * (n + 3) + c] - sum) <= 24 * FLT_EPSILON * (size + 1.0));
			}
		free(x);
		free(q);
		free(y);
		weight_free(&w);
	}
}

static void
test_gemm_float(void **state)
{
	static const int32_t ks[] = {1, 3, 64, 101}, ns[] = {1, 16, 33, 50};

	(void) state;
	for (int t = 0; t < N_FLOAT; t++)
		for (size_t i = 0; i < 4; i++)
			for (size_t j = 0; j < 4; j++)
			{
				int32_t k = ks[i], n = ns[j];
				Weight w =
					weight_create(float_types[t], n, k, random_weights(float_types[t], n, k));
				float *x = random_floats((size_t) (64 * k), 3.0f);
				float *y = product(&llm_kernels_generic, &w, NULL, x, 2);

				for (int32_t c = 0; c < n; c++)
				{
					double sum = 0.0, size = 0.0;

					for (int32_t e = 0; e < k; e++)
					{
						sum += (double) x[k + e] * w.values[c * k + e];
						size += fabs((double) x[k + e] * w.values[c * k + e]);
					}
					assert_true(fabs(y[n + 3 + c] - sum) <= k * FLT_EPSILON * size);
				}
				for (int32_t m = 1; m <= 64; m += m < 10 ? 1 : 27)
					check_product(&w, NULL, x, m);
				free(x);
				free(y);
				weight_free(&w);
			}
}

/* ---- quantising ---- */

/* One row on all instruction sets; the units of generic. */
static void
quantise_all(const float *x, int32_t n, LlmQ8Unit *out)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = others(all), n_units = (n + 63) / 64;
	LlmQ8Unit got[8];

	assert_true(n_units <= 8);
	llm_kernels_generic.quantise(x, n, out);
	for (int i = 0; i < n_all; i++)
	{
		memset(got, 0x55, sizeof(got));
		all[i]->quantise(x, n, got);
		assert_memory_equal(got, out, (size_t) n_units * sizeof(*got));
	}
}

static void
test_quantise(void **state)
{
	(void) state;
	for (int32_t n = 1; n <= 200; n += n < 70 ? 1 : 13)
	{
		float *x = random_floats((size_t) n, n % 3 == 0 ? 1e-3f : 50.0f);
		LlmQ8Unit u[8];

		quantise_all(x, n, u);
		for (int32_t h = 0; h < (n + 63) / 64 * 2; h++)
		{
			const LlmQ8Unit *v = &u[h / 2];
			const int8_t *q = v->q + h % 2 * 32;
			float max = 0.0f, d = v->d[h % 2];
			int32_t sum = 0, low = 0;

			for (int32_t i = 0; i < 32; i++)
			{
				float y = h * 32 + i < n ? x[h * 32 + i] : 0.0f;

				max = fabsf(y) > max ? fabsf(y) : max;
				assert_true(fabs((double) y - (double) d * q[i]) <= 0.5001 * (double) d);
				sum += q[i];
				low += i < 16 ? q[i] : 0;
			}
			assert_true(d == max / 127.0f);
			assert_true(v->s[h % 2] == d * (float) sum);
			assert_int_equal(v->corr[h % 2], -128 * sum);
			assert_int_equal(v->corr_low[h % 2], -128 * low);
		}
		free(x);
	}
}

/* Ties, zeros, subnormal and infinite values. */
static void
test_quantise_special(void **state)
{
	float x[64] = {127.0f, 0.5f, 1.5f, -2.5f, -0.5f};
	LlmQ8Unit u[8];

	(void) state;
	quantise_all(x, 64, u);
	assert_int_equal(u->q[0], 127);
	assert_int_equal(u->q[1], 0);
	assert_int_equal(u->q[2], 2);
	assert_int_equal(u->q[3], -2);
	assert_int_equal(u->q[4], 0);
	assert_true(u->d[0] == 1.0f && u->d[1] == 0.0f);

	for (int i = 0; i < 32; i++)
		x[i] = 0x1p-126f;
	quantise_all(x, 64, u); /* 2^-126 / 127 is subnormal */
	assert_true(u->d[0] == 0.0f && u->q[0] == 0 && u->s[0] == 0.0f);
	x[3] = 127.0f * 0x1p-126f;
	quantise_all(x, 64, u);
	assert_true(u->d[0] == 0x1p-126f && u->q[3] == 127 && u->q[0] == 1);
	x[4] = FLT_MAX;
	quantise_all(x, 64, u);
	assert_int_equal(u->q[4], 127);
	x[5] = INFINITY;
	quantise_all(x, 64, u);
	assert_true(isnan(u->d[0]) && u->q[4] == 0);
	x[5] = NAN;
	quantise_all(x, 64, u);
	assert_true(isnan(u->d[0]) && u->d[1] == 0.0f);
}

/* Values at and beside the middle between two whole numbers of a scale, which is where quotients that are a bit off
 * would show, for scales of all sizes. */
static void
test_quantise_middles(void **state)
{
	LlmQ8Unit u[8];
	float x[64], *r = random_floats(64, 1.0f);

	(void) state;
	for (int turn = 0; turn < 20000; turn++)
	{
		float max = ldexpf(1.0f + fabsf(r[turn % 64]) + (float) turn * 0x1p-17f, turn % 251 - 125);
		float d = max / 127.0f;

		for (int i = 0; i < 64; i++)
		{
			float y = ((float) ((i * 37 + turn) % 254 - 127) + 0.5f) * d;

			for (int step = (turn + i) % 5 - 2; step != 0; step += step < 0 ? 1 : -1)
				y = nextafterf(y, step < 0 ? -INFINITY : INFINITY);
			x[i] = y > max ? max : y < -max ? -max : y;
		}
		x[turn % 32] = max;
		x[32 + turn % 32] = -max;
		quantise_all(x, 64, u);
	}
	free(r);
}

/* ---- dispatch ---- */

static void
test_find(void **state)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);

	(void) state;
	assert_ptr_equal(llm_kernels_find(NULL), all[0]);
	for (int i = 0; i < n_all; i++)
		assert_ptr_equal(llm_kernels_find(all[i]->isa), all[i]);
	assert_null(llm_kernels_find("sse9"));
	print_message("tested: %s%s%s%s%s\n", all[0]->isa, n_all > 1 ? " " : "",
				  n_all > 1 ? all[1]->isa : "", n_all > 2 ? " " : "", n_all > 2 ? all[2]->isa : "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_panel_golden),
		cmocka_unit_test(test_panel_bf16),
		cmocka_unit_test(test_gemm_quant_bits),
		cmocka_unit_test(test_gemm_quant_long),
		cmocka_unit_test(test_gemm_quant_extremes),
		cmocka_unit_test(test_gemm_quant_value),
		cmocka_unit_test(test_gemm_float),
		cmocka_unit_test(test_quantise),
		cmocka_unit_test(test_quantise_special),
		cmocka_unit_test(test_quantise_middles),
		cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
