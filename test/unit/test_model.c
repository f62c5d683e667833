/*
 * test_model.c - tiny llama models give their reference logits, and the same bits however a prompt
 * is cut, mixed, spread over threads, or computed by another instruction set.
 *
 * links: model kernels sample tensor core
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>

#include "tensor/half.h"
#include "gguf_build.h"
#include "model_rig.h"

#define GOLDEN "test/golden/models"
#define VOCAB 512
#define PROMPTS 3
#define PROMPT_MAX 70
#define GREEDY 32

/* Largest error allowed, as a part of the largest logit of the prompt. F32 weights: the order of sums
 * alone (2e-6 measured). Quantised weights: the input of every product is rounded to 8 bits per block of
 * 32, which explains 2e-2; against a reference that rounds its inputs too, 3e-7 was measured, and the
 * bound leaves room for a few values that fall to the other side of a half. llama.cpp, which rounds
 * likewise, is 2e-2 to 4e-2 off on these files. */
#define BOUND_F32 1e-4f
#define BOUND_QUANT 3e-2f
#define BOUND_INT8 2e-3f
/* What a KV store may move: the rounding of 11 bits, and of 7 bits and a scale. Measured: 1.3e-3 and
 * 2.8e-2. */
#define BOUND_KV_F16 5e-3
#define BOUND_KV_INT8 5e-2

static const char *const f32_models[] = {"llama-gqa", "llama-tied-hd32"};
static const char *const quant_models[] = {"llama256-q8_0", "llama256-q4_0", "llama256-q4_1",
										   "llama256-5", "llama256-k"};

typedef struct Prompt
{
	int32_t n;
	int32_t ids[PROMPT_MAX]; /* [n] */
	int32_t greedy[GREEDY];
	float margins[GREEDY];
	float logits[PROMPT_MAX * VOCAB]; /* [n, VOCAB] */
	bool has_int8;                    /* short prompts of quantised models: */
	float int8[PROMPT_MAX * VOCAB];   /* [n, VOCAB] of inputs rounded to int8 */
} Prompt;

static Prompt prompts[PROMPTS]; /* of the model read last */

static LlmGguf *
golden_open(const char *name)
{
	char path[128];
	LlmGguf *g;
	LlmError err = {0};

	snprintf(path, sizeof(path), GOLDEN "/%s/model.gguf", name);
	rig_must(llm_gguf_open(NULL, path, &g, &err), &err);
	return g;
}

static void
logits_read(const char *name, const json_t *file, float *out, int32_t n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), GOLDEN "/%s/%s", name, json_string_value(file));
	f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fread(out, sizeof(float) * VOCAB, (size_t) n, f), n);
	fclose(f);
}

/* Fill prompts[] from golden.json and the files it names. */
static void
golden_read(const char *name)
{
	char path[128];
	json_t *root, *list;

	snprintf(path, sizeof(path), GOLDEN "/%s/golden.json", name);
	root = json_load_file(path, 0, NULL);
	list = json_object_get(root, "prompts");
	assert_int_equal(json_array_size(list), PROMPTS);
	for (size_t i = 0; i < PROMPTS; i++)
	{
		json_t *p = json_array_get(list, i), *ids = json_object_get(p, "ids");
		Prompt *out = &prompts[i];

		out->n = (int32_t) json_array_size(ids);
		assert_true(out->n > 0 && out->n <= PROMPT_MAX);
		for (int32_t k = 0; k < out->n; k++)
			out->ids[k] = (int32_t) json_integer_value(json_array_get(ids, (size_t) k));
		for (size_t k = 0; k < GREEDY; k++)
		{
			out->greedy[k] =
				(int32_t) json_integer_value(json_array_get(json_object_get(p, "greedy"), k));
			out->margins[k] =
				(float) json_number_value(json_array_get(json_object_get(p, "margins"), k));
		}
		logits_read(name, json_object_get(p, "logits"), out->logits, out->n);
		out->has_int8 = json_object_get(p, "int8") != NULL;
		if (out->has_int8)
			logits_read(name, json_object_get(p, "int8"), out->int8, out->n);
	}
	json_decref(root);
}

/* ---- against the reference ---- */

static float
largest(const float *x, size_t n)
{
	float m = 0;

	for (size_t i = 0; i < n; i++)
		if (fabsf(x[i]) > m)
			m = fabsf(x[i]);
	return m;
}

/* Continue a prompt along the reference's greedy text, one row a step. Where the reference leaves no
 * doubt the pick must be its own. Returns how many picks were compared. */
static int
greedy_check(Rig *r, const Prompt *p, float tolerance)
{
	int32_t ids[PROMPT_MAX + GREEDY], picked;
	float logits[VOCAB];
	int n = 0;

	memcpy(ids, p->ids, (size_t) p->n * sizeof(*ids));
	memcpy(ids + p->n, p->greedy, sizeof(p->greedy));
	for (int32_t i = 0; i < GREEDY; i++)
	{
		RigPart part = {.ids = ids, .from = p->n + i - 1, .n = 1};

		rig_step(r, &part, 1, logits, &picked);
		if (p->margins[i] <= 2 * tolerance)
			continue;
		assert_int_equal(picked, p->greedy[i]);
		n++;
	}
	return n;
}

/* The largest error of logits [n, VOCAB], as a part of the largest of the reference. */
static float
error_of(const float *logits, const float *reference, int32_t n)
{
	float worst = 0, top = largest(reference, (size_t) n * VOCAB);

	for (size_t k = 0; k < (size_t) n * VOCAB; k++)
	{
		float e = fabsf(logits[k] - reference[k]) / top;

		assert_true(isfinite(logits[k]));
		if (e > worst)
			worst = e;
	}
	return worst;
}

/* What a model's prompts gave. */
typedef struct Errors
{
	float logits; /* largest error */
	float int8;   /* against the reference whose inputs are rounded to int8 */
	int n_picks;  /* picks of the continuations that were compared */
} Errors;

/* Run all prompts of a model; the picks are compared outside of `bound`. */
static Errors
golden_run(const char *name, const char *isa, float bound)
{
	static float logits[PROMPT_MAX * VOCAB];
	LlmGguf *g = golden_open(name);
	Errors out = {0};
	Rig r;

	golden_read(name);
	rig_open(&r, g, isa, 2, LLM_DTYPE_F32);
	for (int i = 0; i < PROMPTS; i++)
	{
		const Prompt *p = &prompts[i];

		rig_feed(&r, p->ids, p->n, p->n, logits);
		out.logits = fmaxf(out.logits, error_of(logits, p->logits, p->n));
		if (p->has_int8)
			out.int8 = fmaxf(out.int8, error_of(logits, p->int8, p->n));
		out.n_picks += greedy_check(&r, p, bound * largest(p->logits, (size_t) p->n * VOCAB));
	}
	rig_close(&r);
	llm_gguf_close(g);
	return out;
}

static void
f32_models_match_the_reference(void **state)
{
	static const char *const isas[] = {"generic", NULL};

	for (size_t i = 0; i < 4; i++)
	{
		const char *isa = isas[i % 2];
		Errors e = golden_run(f32_models[i / 2], isa, BOUND_F32);

		print_message("%s, %s: error %.1e of %.1e\n", f32_models[i / 2], isa != NULL ? isa : "best",
					  (double) e.logits, (double) BOUND_F32);
		assert_true(e.logits <= BOUND_F32);
		assert_int_equal(e.n_picks, PROMPTS * GREEDY); /* the margins are far above the bound */
	}
}

static void
quantised_models_match_within_int8_inputs(void **state)
{
	for (size_t i = 0; i < sizeof(quant_models) / sizeof(quant_models[0]); i++)
	{
		Errors e = golden_run(quant_models[i], NULL, BOUND_QUANT);

		print_message("%s: error %.1e of %.1e, against int8 inputs %.1e of %.1e, %d picks\n",
					  quant_models[i], (double) e.logits, (double) BOUND_QUANT, (double) e.int8,
					  (double) BOUND_INT8, e.n_picks);
		assert_true(e.logits <= BOUND_QUANT);
		assert_true(e.int8 > 0 && e.int8 <= BOUND_INT8);
		assert_true(e.n_picks > GREEDY / 2);
	}
}

/* ---- types of the KV store ---- */

/* What an answer loses by a smaller store, over all positions of a model's prompts. F32 weights alone:
 * products with int8 inputs jump on their own. */
typedef struct Loss
{
	double logits; /* largest difference, as a part of the largest logit */
	double kld;    /* mean divergence of the next token's distribution, in nats */
	int agree;     /* positions with the same best token */
	int n;
} Loss;

static double
log_sum_exp(const float *x)
{
	double top = x[0], sum = 0;

	for (int k = 1; k < VOCAB; k++)
		top = fmax(top, x[k]);
	for (int k = 0; k < VOCAB; k++)
		sum += exp(x[k] - top);
	return top + log(sum);
}

/* One position: logits a with the F32 store, b with another. */
static void
loss_add(Loss *l, const float *a, const float *b, double top)
{
	double za = log_sum_exp(a), zb = log_sum_exp(b);
	int best_a = 0, best_b = 0;

	for (int k = 0; k < VOCAB; k++)
	{
		double diff = fabs((double) a[k] - b[k]) / top;

		l->logits = diff > l->logits ? diff : l->logits;
		l->kld += exp(a[k] - za) * ((a[k] - za) - (b[k] - zb));
		best_a = a[k] > a[best_a] ? k : best_a;
		best_b = b[k] > b[best_b] ? k : best_b;
	}
	l->agree += best_a == best_b;
	l->n++;
}

static float whole[PROMPT_MAX * VOCAB];

static Loss
kv_loss(const char *name, LlmDtype kv_type)
{
	static float reference[PROMPT_MAX * VOCAB];
	LlmGguf *g = golden_open(name);
	Loss out = {0};
	Rig r;

	golden_read(name);
	for (int i = 0; i < PROMPTS; i++)
	{
		const Prompt *p = &prompts[i];

		rig_open(&r, g, NULL, 2, LLM_DTYPE_F32);
		rig_feed(&r, p->ids, p->n, p->n, reference);
		rig_close(&r);
		rig_open(&r, g, NULL, 2, kv_type);
		rig_feed(&r, p->ids, p->n, p->n, whole);
		rig_close(&r);
		for (int32_t k = 0; k < p->n; k++)
			loss_add(&out, reference + (size_t) k * VOCAB, whole + (size_t) k * VOCAB,
					 largest(reference, (size_t) p->n * VOCAB));
	}
	out.kld /= out.n;
	llm_gguf_close(g);
	return out;
}

static void
smaller_stores_lose_little(void **state)
{
	static const struct
	{
		LlmDtype type;
		double logits, kld;
	} bounds[] = {{LLM_DTYPE_F16, BOUND_KV_F16, 5e-6}, {LLM_DTYPE_I8, BOUND_KV_INT8, 2e-3}};

	for (size_t i = 0; i < sizeof(f32_models) / sizeof(f32_models[0]); i++)
		for (int k = 0; k < 2; k++)
		{
			Loss l = kv_loss(f32_models[i], bounds[k].type);

			print_message("%s, KV %s: logits %.1e of %.1e, divergence %.1e, %d of %d agree\n",
						  f32_models[i], k == 0 ? "f16" : "int8", l.logits, bounds[k].logits, l.kld,
						  l.agree, l.n);
			assert_true(l.logits > 0 && l.logits <= bounds[k].logits);
			assert_true(l.kld <= bounds[k].kld);
			assert_true(l.agree >= l.n - l.n / 20);
		}
}

/* ---- the same bits ---- */

static void
same_bits(const float *a, const float *b, int32_t n, const char *what)
{
	for (size_t i = 0; i < (size_t) n * VOCAB; i++)
		if (memcmp(&a[i], &b[i], sizeof(float)) != 0)
			fail_msg("%s: position %zu, token %zu: %a and %a", what, i / VOCAB, i % VOCAB,
					 (double) a[i], (double) b[i]);
}

static float other[RIG_ROWS * VOCAB];

static void
chunks_give_the_same_bits(const char *name, LlmDtype kv_type)
{
	static const int32_t chunks[] = {1, 7, 16, 64};
	LlmGguf *g = golden_open(name);
	const Prompt *p = &prompts[2];
	Rig r;

	golden_read(name);
	rig_open(&r, g, NULL, 2, kv_type);
	rig_feed(&r, p->ids, p->n, p->n, whole);
	for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++)
	{
		rig_feed(&r, p->ids, p->n, chunks[i], other);
		same_bits(whole, other, p->n, name);
	}
	rig_close(&r);
	llm_gguf_close(g);
}

static void
bits_do_not_depend_on_chunks(void **state)
{
	chunks_give_the_same_bits("llama-gqa", LLM_DTYPE_F32);
	chunks_give_the_same_bits("llama-tied-hd32", LLM_DTYPE_F16);
	chunks_give_the_same_bits("llama256-q8_0", LLM_DTYPE_F16);
	chunks_give_the_same_bits("llama256-q4_0", LLM_DTYPE_F16);
	chunks_give_the_same_bits("llama256-q4_1", LLM_DTYPE_F32);
	chunks_give_the_same_bits("llama256-5", LLM_DTYPE_F16);
	chunks_give_the_same_bits("llama256-k", LLM_DTYPE_F16);
	chunks_give_the_same_bits("llama-gqa", LLM_DTYPE_I8);
	chunks_give_the_same_bits("llama256-q8_0", LLM_DTYPE_I8);
}

/* A prompt alone, and in a step with another prompt and with 30 rows that decode. */
static void
company_gives_the_same_bits(const char *name, LlmDtype kv_type)
{
	LlmGguf *g = golden_open(name);
	const Prompt *p = &prompts[2], *q = &prompts[1];
	RigPart parts[RIG_SEQS];
	int32_t n = 0;
	Rig r;

	golden_read(name);
	rig_open(&r, g, NULL, 2, kv_type);
	rig_feed(&r, p->ids, p->n, p->n, whole);

	parts[0] = (RigPart){.ids = q->ids, .n = q->n, .seq = 1};
	parts[1] = (RigPart){.ids = p->ids, .n = p->n, .seq = 2};
	rig_step(&r, parts, 2, other, NULL);
	same_bits(whole, other + (size_t) q->n * VOCAB, p->n, name);

	for (int32_t s = 2; s < RIG_SEQS;
		 s++) /* each a different prefix of p, all but one row stored */
	{
		parts[s - 2] = (RigPart){.ids = p->ids, .n = s, .seq = s};
		rig_step(&r, &parts[s - 2], 1, other, NULL);
		parts[s - 2].from = s;
		parts[s - 2].n = 1;
	}
	parts[RIG_SEQS - 2] = (RigPart){.ids = p->ids, .n = p->n, .seq = 0};
	rig_step(&r, parts, RIG_SEQS - 1, other, NULL);
	for (; n < RIG_SEQS - 2; n++)
		same_bits(whole + (size_t) (n + 2) * VOCAB, other + (size_t) n * VOCAB, 1, name);
	same_bits(whole, other + (size_t) n * VOCAB, p->n, name);
	rig_close(&r);
	llm_gguf_close(g);
}

static void
bits_do_not_depend_on_company(void **state)
{
	company_gives_the_same_bits("llama-gqa", LLM_DTYPE_F16);
	company_gives_the_same_bits("llama256-q4_1", LLM_DTYPE_F32);
	company_gives_the_same_bits("llama256-q8_0", LLM_DTYPE_F16);
	company_gives_the_same_bits("llama-tied-hd32", LLM_DTYPE_I8);
	company_gives_the_same_bits("llama256-q4_0", LLM_DTYPE_I8);
	company_gives_the_same_bits("llama256-5", LLM_DTYPE_F16);
	company_gives_the_same_bits("llama256-k", LLM_DTYPE_F16);
}

/* Logits of the long prompt of a file on one device. */
static void
device_run(const LlmGguf *g, const char *isa, int n_threads, LlmDtype kv_type, float *logits)
{
	Rig r;

	rig_open(&r, g, isa, n_threads, kv_type);
	rig_feed(&r, prompts[2].ids, prompts[2].n, 33, logits);
	rig_close(&r);
}

static void
bits_do_not_depend_on_threads_or_isa(void **state)
{
	static const LlmDtype types[] = {LLM_DTYPE_F16, LLM_DTYPE_I8};
	static const char *const names[] = {"llama-gqa",     "llama256-q8_0", "llama256-q4_0",
										"llama256-q4_1", "llama256-5",    "llama256-k"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		LlmGguf *g = golden_open(names[i]);

		golden_read(names[i]);
		for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
		{
			device_run(g, NULL, 2, types[k], whole);
			device_run(g, NULL, 1, types[k], other);
			same_bits(whole, other, prompts[2].n, "threads");
			device_run(g, "generic", 2, types[k], other);
			same_bits(whole, other, prompts[2].n, "generic");
		}
		llm_gguf_close(g);
	}
}

/* ---- F16 weights: the bits of the F32 model that holds the same values ---- */

/* Copy a model with every matrix rounded to halves, stored as halves or as floats. */
static uint8_t *
halves_build(const LlmGguf *g, LlmDtype type, size_t *nbytes)
{
	GgufBuild b = {0};
	LlmModelConfig c;
	LlmError err = {0};
	LlmWeightView v;

	rig_must(llm_model_config_read(g, &c, &err), &err);
	gguf_key_str(&b, "general.architecture", c.arch);
	gguf_key_u32(&b, "llama.block_count", (uint32_t) c.n_layers);
	gguf_key_u32(&b, "llama.context_length", (uint32_t) c.context_length);
	gguf_key_u32(&b, "llama.embedding_length", (uint32_t) c.dim);
	gguf_key_u32(&b, "llama.feed_forward_length", (uint32_t) c.hidden_dim);
	gguf_key_u32(&b, "llama.attention.head_count", (uint32_t) c.n_heads);
	gguf_key_u32(&b, "llama.attention.head_count_kv", (uint32_t) c.n_kv_heads);
	gguf_key_u32(&b, "llama.attention.key_length", (uint32_t) c.head_dim);
	gguf_key_f32(&b, "llama.attention.layer_norm_rms_epsilon", c.norm_eps);
	gguf_key_f32(&b, "llama.rope.freq_base", c.rope_base);
	for (uint64_t i = 0; i < llm_gguf_n_tensors(g); i++)
	{
		size_t n;
		float *x;
		uint16_t *h;

		assert_true(llm_gguf_tensor(g, llm_gguf_tensor_name(g, i), &v));
		n = (size_t) v.rows * (size_t) v.cols;
		x = malloc(n * sizeof(*x));
		h = malloc(n * sizeof(*h));
		memcpy(x, v.data, n * sizeof(*x));
		for (size_t k = 0; k < n && v.rows > 1; k++)
		{
			h[k] = llm_half_from_f32(x[k]);
			x[k] = llm_half_to_f32(h[k]);
		}
		if (v.rows > 1 && type == LLM_DTYPE_F16)
			gguf_tensor(&b, v.name, (uint64_t) v.rows, (uint64_t) v.cols, type, h, n * sizeof(*h));
		else
			gguf_tensor(&b, v.name, v.rows > 1 ? (uint64_t) v.rows : 0, (uint64_t) v.cols,
						LLM_DTYPE_F32, x, n * sizeof(*x));
		free(x);
		free(h);
	}
	return gguf_build_end(&b, nbytes);
}

static void
f16_weights_give_the_bits_of_their_values(void **state)
{
	for (size_t i = 0; i < 2; i++)
	{
		LlmGguf *g = golden_open(f32_models[i]), *h;
		LlmModelConfig c;
		LlmError err = {0};
		float top;

		golden_read(f32_models[i]);
		for (int as_f32 = 0; as_f32 < 2; as_f32++)
		{
			size_t nbytes;
			uint8_t *bytes = halves_build(g, as_f32 ? LLM_DTYPE_F32 : LLM_DTYPE_F16, &nbytes);

			rig_must(llm_gguf_open_memory(bytes, nbytes, &h, &err), &err);
			rig_must(llm_model_config_read(h, &c, &err), &err);
			assert_string_equal(c.quantization, as_f32 ? "F32" : "F16");
			device_run(h, NULL, 2, LLM_DTYPE_F16, as_f32 ? other : whole);
			llm_gguf_close(h);
			free(bytes);
		}
		same_bits(whole, other, prompts[2].n, f32_models[i]);
		/* and the rounding moves the logits as little as 11 bits should */
		top = largest(prompts[2].logits, (size_t) prompts[2].n * VOCAB);
		for (size_t k = 0; k < (size_t) prompts[2].n * VOCAB; k++)
			assert_true(fabsf(whole[k] - prompts[2].logits[k]) <= 5e-3f * top);
		llm_gguf_close(g);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f32_models_match_the_reference),
		cmocka_unit_test(quantised_models_match_within_int8_inputs),
		cmocka_unit_test(smaller_stores_lose_little),
		cmocka_unit_test(bits_do_not_depend_on_chunks),
		cmocka_unit_test(bits_do_not_depend_on_company),
		cmocka_unit_test(bits_do_not_depend_on_threads_or_isa),
		cmocka_unit_test(f16_weights_give_the_bits_of_their_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
