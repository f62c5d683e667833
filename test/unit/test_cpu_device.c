/*
 * test_cpu_device.c - the CPU device through its table: life, limits, and what it refuses.
 *
 * links: kernels sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu_graph.h"
#include "kernels/cpu_state.h"
#include "kernels/kernels.h"

/* A row given as a vector equals the token whose vector it is. */
static void
test_embed_vector(void **state)
{
	Machine m;
	Run *r, *s;
	float identity[DIM];
	const float *vectors[64] = {identity};
	LlmError err;
	uint64_t step;
	LlmStepOut out = {0};
	LlmAct x;

	(void) state;
	machine_open(&m, &graphs[0], NULL, 1);
	r = run_create(&m, 1);
	s = run_create(&m, 1);
	/* the embedding itself: x of a step that records nothing else, read as logits would be */
	step_begin_batch(r);
	step_add(r, 0, 1);
	step_run(r);
	for (int i = 0; i < DIM; i++)
		identity[i] = 0.25f * (float) (i - 30);
	step_begin_batch(s);
	step_add(s, 0, 1);
	s->b.embed = vectors;
	step_run(s);
	assert_true(memcmp(r->logits[0][0], s->logits[0][0], VOCAB * sizeof(float)) != 0);
	/* a token outside the vocabulary, and one reserved for later */
	for (int i = 0; i < 2; i++)
	{
		step_begin_batch(r);
		step_add(r, 0, 1);
		r->token[0] = i == 0 ? VOCAB : -1;
		assert_int_equal(m.dev->ops->step_begin(m.dev, &r->b, &err), LLM_OK);
		x = m.dev->ops->act_create(m.dev, LLM_ACT_F32, 1, DIM);
		m.dev->ops->embed(m.dev, m.embed, x);
		assert_int_equal(m.dev->ops->step_end(m.dev, &step, &err), LLM_E_INVALID);
		assert_int_equal(m.dev->ops->step_wait(m.dev, 99, &out, &err), LLM_E_INTERNAL);
	}
	free(r);
	free(s);
	machine_close(&m);
}

/* Batches that point outside of what exists are refused, and the device goes on. */
static void
test_bad_batches(void **state)
{
	Machine m;
	Run *r;

	(void) state;
	machine_open(&m, &graphs[0], NULL, 2);
	r = run_create(&m, 1);
	for (int i = 0; i < 8; i++)
	{
		LlmError err;

		r->len[0] = 0;
		step_begin_batch(r);
		step_add(r, 0, 5);
		if (i == 0)
			r->slot[3] = 5; /* page 0 */
		else if (i == 1)
			r->slot[3] = N_PAGES * 64;
		else if (i == 2)
			r->table[0] = N_PAGES;
		else if (i == 3)
			r->pos[2] = 5; /* kv_len says 5 positions */
		else if (i == 4)
			r->out_row[1] = 5;
		else if (i == 5)
			r->q_start[1] = 4;
		else if (i == 6)
			r->kv_len[0] = STRIDE * 64 + 1;
		else
			r->b.n_rows = MAX_ROWS + 1;
		assert_int_equal(m.dev->ops->step_begin(m.dev, &r->b, &err), LLM_E_INTERNAL);
	}
	r->len[0] = 0;
	step_begin_batch(r);
	step_add(r, 0, 5);
	step_run(r);
	free(r);
	machine_close(&m);
}

/* An op whose shapes do not fit fails the step, not the process. */
static void
test_bad_ops(void **state)
{
	Machine m;
	Run *r;
	LlmError err;
	uint64_t step;

	(void) state;
	machine_open(&m, &graphs[0], NULL, 1);
	r = run_create(&m, 1);
	for (int i = 0; i < 6; i++)
	{
		const LlmDeviceOps *ops = m.dev->ops;
		LlmAttn attn = m.layers[0].attn;
		LlmAct x, y;

		r->len[0] = 0;
		step_begin_batch(r);
		step_add(r, 0, 5);
		assert_int_equal(ops->step_begin(m.dev, &r->b, &err), LLM_OK);
		x = ops->act_create(m.dev, LLM_ACT_F32, 5, DIM);
		y = ops->act_create(m.dev, LLM_ACT_F32, 5, 96);
		if (i == 0)
			ops->embed(m.dev, m.layers[0].o, x); /* not an embedding */
		else if (i == 1)
			ops->linear(m.dev, x, m.layers[0].qkv, LLM_EPI_NONE, y); /* wants int8 */
		else if (i == 2)
			ops->norm(m.dev, x, (LlmAct){0}, &m.norm, y);
		else if (i == 3)
			ops->attention(m.dev, x, &attn, y);
		else if (i == 4)
		{
			attn.scale = -attn.scale; /* all else fits */
			x = ops->act_create(m.dev, LLM_ACT_F32, 5, attn.n_heads * attn.head_dim);
			y = ops->act_create(m.dev, LLM_ACT_F32, 5, attn.n_heads * attn.v_dim);
			ops->attention(m.dev, x, &attn, y);
		}
		else
			for (int j = 0; j < 40; j++)
				y = ops->act_create(m.dev, LLM_ACT_F32, MAX_ROWS, 200);
		assert_int_equal(ops->step_end(m.dev, &step, &err), LLM_E_INTERNAL);
		assert_true(err.text[0] != '\0');
	}
	r->len[0] = 0;
	step_begin_batch(r);
	step_add(r, 0, 5);
	step_run(r);
	free(r);
	machine_close(&m);
}

/* One step of embed, norm, product (and gate): n values per row, where logits would be. */
static void
product_step(Machine *m, Run *r, const LlmLinear *l, LlmEpilogue epilogue, int32_t n, float *out)
{
	const LlmDeviceOps *ops = m->dev->ops;
	LlmDeviceLimits limits = limits_of(m);
	LlmSampling sampling = {r->rows, 40};
	LlmStepOut result = {.rows = r->picks};
	LlmError err;
	uint64_t step;
	LlmAct x, h, y;

	limits.vocab_size = n;
	assert_int_equal(ops->limits_set(m->dev, &limits, &err), LLM_OK);
	r->len[0] = 0;
	step_begin_batch(r);
	step_add(r, 0, 40);
	memset(r->want, LLM_WANT_LOGITS, sizeof(r->want));
	assert_int_equal(ops->step_begin(m->dev, &r->b, &err), LLM_OK);
	x = ops->act_create(m->dev, LLM_ACT_F32, 40, DIM);
	h = ops->act_create(m->dev, LLM_ACT_F32 | LLM_ACT_Q8, 40, DIM);
	y = ops->act_create(m->dev, LLM_ACT_F32, 40, n);
	ops->embed(m->dev, m->embed, x);
	ops->norm(m->dev, x, (LlmAct){0}, &m->norm, h);
	ops->linear(m->dev, h, l, epilogue, y);
	ops->sample(m->dev, y, &sampling);
	assert_int_equal(ops->step_end(m->dev, &step, &err), LLM_OK);
	assert_int_equal(ops->step_wait(m->dev, step, &result, &err), LLM_OK);
	for (int32_t i = 0; i < 40; i++)
	{
		memcpy(out + i * n, result.logits + i * result.ld_logits, (size_t) n * sizeof(float));
		assert_int_equal(r->picks[i].token, -1);
	}
}

/* The gate in the product's phase, or in one of its own, is the gate of the product's values. */
static void
test_gate(void **state)
{
	(void) state;
	for (size_t g = 0; g < N_GRAPHS; g++)
	{
		int32_t n = graphs[g].hidden;
		float *both = calloc((size_t) (40 * 2 * n), 4), *gated = calloc((size_t) (40 * n), 4);
		float want[HIDDEN_MAX];
		Machine m;
		Run *r;

		machine_open(&m, &graphs[g], NULL, 2);
		r = run_create(&m, 1);
		product_step(&m, r, m.layers[0].gate_up, LLM_EPI_NONE, 2 * n, both);
		product_step(&m, r, m.layers[0].gate_up, LLM_EPI_SILU_GATE, n, gated);
		for (int32_t i = 0; i < 40; i++)
		{
			llm_kernels_find("generic")->silu_gate(both + i * 2 * n, both + i * 2 * n + n, n, want);
			assert_memory_equal(gated + i * n, want, (size_t) n * sizeof(float));
		}
		free(both);
		free(gated);
		free(r);
		machine_close(&m);
	}
}

static void
test_bad_weights(void **state)
{
	static const uint8_t data[4096];
	Machine m;
	LlmError err;
	LlmLinear *l;
	LlmLinearSpec spec = {0};
	LlmWeightView odd = {"blk.0.odd", data, 4, 48, LLM_DTYPE_Q4_0};
	LlmWeightView type = {"blk.0.type", data, 4, 256, (LlmDtype) 10};
	LlmWeightView pair[2] = {{"blk.0.a", data, 4, 32, LLM_DTYPE_F16},
							 {"blk.0.b", data, 4, 64, LLM_DTYPE_F16}};

	(void) state;
	machine_open(&m, &graphs[0], NULL, 1);
	assert_int_equal(m.dev->ops->linear_create(m.dev, &odd, 1, &spec, &l, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "blk.0.odd"));
	assert_int_equal(m.dev->ops->linear_create(m.dev, &type, 1, &spec, &l, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "Q2_K"));
	assert_int_equal(m.dev->ops->linear_create(m.dev, pair, 2, &spec, &l, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "blk.0.b"));
	machine_close(&m);
}

static void
test_life(void **state)
{
	Machine m;
	LlmError err;
	LlmDevice *dev;
	LlmKvGroup group = {.kind = LLM_KV_FULL,
						.n_layers = 100,
						.n_kv_heads = 100,
						.k_dim = 1 << 14,
						.v_dim = 1 << 14,
						.k_type = LLM_DTYPE_F32,
						.v_type = LLM_DTYPE_F32};
	LlmOpStat stats[32];
	bool found = false;
	LlmDeviceInfo info;
	Run *r;
	int n;

	(void) state;
	machine_open(&m, &graphs[1], NULL, 2);
	assert_int_equal(llm_cpu_device_create(m.pool, "sse9", &dev, &err), LLM_E_INVALID);
	assert_non_null(strstr(err.text, "generic"));
	info = m.dev->ops->info(m.dev);
	assert_string_equal(info.kind, "cpu");
	assert_int_equal(info.n_threads, 2);
	assert_int_equal(info.n_used, 2);
	((LlmCpuDevice *) m.dev)->threads.n = 1;
	assert_int_equal(m.dev->ops->info(m.dev).n_used, 1);
	assert_true(info.weight_nbytes > 0);
	assert_int_equal(info.kv_page_nbytes, 64 * LAYERS * KV_HEADS * 2 * 32 * 4);
	r = run_create(&m, 1);
	run_alone(r, 0, 20, (int32_t[]){10, 0});
	m.dev->ops->op_times(m.dev, true);
	run_alone(r, 0, 30, (int32_t[]){10, 0});
	n = m.dev->ops->op_stats(m.dev, stats, 32, true);
	for (int i = 0; i < n; i++)
	{
		assert_true(stats[i].waited >= 0);
		if (strcmp(stats[i].name, "linear") != 0)
			continue;
		assert_int_equal(stats[i].calls, 3 * (4 * LAYERS + 1));
		assert_true(stats[i].seconds > 0 && stats[i].nbytes > 0 && stats[i].ops > 0);
		found = true;
	}
	assert_true(found);
	m.dev->ops->model_clear(m.dev);
	assert_int_equal(m.dev->ops->info(m.dev).weight_nbytes, 0);
	assert_int_equal(m.dev->ops->step_begin(m.dev, &r->b, &err), LLM_E_INTERNAL);
	assert_int_equal(m.dev->ops->kv_create(m.dev, &group, 1, INT32_MAX, &err), LLM_E_MEMORY);
	group.kind = LLM_KV_LATENT;
	assert_int_equal(m.dev->ops->kv_create(m.dev, &group, 1, 4, &err), LLM_E_UNSUPPORTED);
	free(r);
	machine_close(&m);
}

#define IN 512
#define BETWEEN 640 /* 10 units of columns with a gate */
#define OUT 1003    /* some 20 items, a ragged panel */

/* Logits of n rows after a product with a gate and one without, whose items threads take as they come. */
static void
items_run(Machine *m, Run *r, LlmLinear *const l[3], const LlmNorm *norm, int32_t n, float *out)
{
	const LlmDeviceOps *ops = m->dev->ops;
	LlmAct x, h, f, logits, none = {0};
	LlmSampling sampling = {r->rows, n};
	LlmStepOut got = {.rows = r->picks};
	LlmError err;
	uint64_t step;

	r->len[0] = 0;
	step_begin_batch(r);
	step_add(r, 0, n);
	assert_int_equal(ops->step_begin(m->dev, &r->b, &err), LLM_OK);
	x = ops->act_create(m->dev, LLM_ACT_F32, n, IN);
	h = ops->act_create(m->dev, LLM_ACT_F32 | LLM_ACT_Q8, n, IN);
	f = ops->act_create(m->dev, LLM_ACT_F32 | LLM_ACT_Q8, n, BETWEEN);
	logits = ops->act_create(m->dev, LLM_ACT_F32, n, OUT);
	ops->embed(m->dev, l[0], x);
	ops->norm(m->dev, x, none, norm, h);
	ops->linear(m->dev, h, l[1], LLM_EPI_SILU_GATE, f);
	ops->linear(m->dev, f, l[2], LLM_EPI_NONE, logits);
	ops->sample(m->dev, logits, &sampling);
	assert_int_equal(ops->step_end(m->dev, &step, &err), LLM_OK);
	assert_int_equal(ops->step_wait(m->dev, step, &got, &err), LLM_OK);
	for (int32_t i = 0; i < n; i++)
		memcpy(out + (size_t) i * OUT, got.logits + (size_t) i * (size_t) got.ld_logits,
			   OUT * sizeof(float));
}

/* Threads that take each other's items make every output, and the same: more threads than cores, so
 * that some come late. */
static void
test_items_taken(void **state)
{
	static const LlmDtype types[][2] = {{LLM_DTYPE_Q8_0, LLM_DTYPE_Q8_0},
										{LLM_DTYPE_F32, LLM_DTYPE_F32}};
	static const int32_t rows[] = {1, 24};
	static float want[24 * OUT], got[24 * OUT], weight[IN];

	(void) state;
	for (int i = 0; i < IN; i++)
		weight[i] = 1.0f;
	for (int c = 0; c < 4; c++)
		for (int n_threads = 1; n_threads <= 5; n_threads += 2)
		{
			const LlmDtype *type = types[c / 2];
			LlmNorm norm = {weight, 1e-5f};
			LlmDeviceLimits limits;
			LlmLinear *l[3];
			LlmError err;
			Machine m;
			Run *r;

			machine_open(&m, &graphs[0], NULL, n_threads);
			limits = limits_of(&m);
			limits.max_cols = 2 * BETWEEN;
			limits.vocab_size = OUT;
			assert_int_equal(m.dev->ops->limits_set(m.dev, &limits, &err), LLM_OK);
			l[0] = linear(&m, type, (int32_t[]){VOCAB}, 1, IN, true);
			l[1] = linear(&m, type, (int32_t[]){BETWEEN, BETWEEN}, 2, IN, false);
			l[2] = linear(&m, type, (int32_t[]){OUT}, 1, BETWEEN, false);
			r = run_create(&m, 1);
			items_run(&m, r, l, &norm, rows[c % 2], n_threads == 1 ? want : got);
			for (int i = 0; n_threads > 1 && i < 100; i++)
			{
				memset(got, 0xFF, sizeof(got));
				items_run(&m, r, l, &norm, rows[c % 2], got);
				assert_memory_equal(got, want, (size_t) rows[c % 2] * OUT * sizeof(float));
			}
			free(r);
			machine_close(&m);
		}
}

static void
test_limits_measure(void **state)
{
	LlmPool *pool;
	LlmError err;
	LlmMachineLimits limits;

	(void) state;
	assert_int_equal(llm_pool_create(1, &pool, &err), LLM_OK);
	llm_cpu_limits_measure(pool, 64 << 20, 0.02, &limits);
	assert_true(limits.read_one.median > 1e8 && limits.read_all.median > 1e8);
	assert_true(limits.read_all.best >= limits.read_all.median);
	assert_true(limits.int8_ops.median > 1e8 && limits.f32_ops.median > 1e7);
	assert_true((limits.amx_ops.best > 0) == (strcmp(llm_kernels_find(NULL)->isa, "amx") == 0));
	assert_true(limits.read_weights.best == 0);
	llm_cpu_limits_measure(pool, 257 << 20, 0.02, &limits);
	assert_true(limits.read_weights.median > 1e8 && limits.read_all.median > 1e8);
	llm_pool_free(pool);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_embed_vector),   cmocka_unit_test(test_bad_batches),
		cmocka_unit_test(test_bad_ops),        cmocka_unit_test(test_gate),
		cmocka_unit_test(test_bad_weights),    cmocka_unit_test(test_life),
		cmocka_unit_test(test_limits_measure), cmocka_unit_test(test_items_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
