/*
 * test_model_config.c - hyperparameters and tensors of llama files: read, checked, and recorded as
 * ops on a device that writes down what it is asked.
 *
 * links: model tensor core
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "llama_build.h"

/* ---- a device that computes nothing: names of linears and the list of ops ---- */

#define LINEARS_MAX 32
#define LOG_CAP 4096

struct LlmLinear
{
	char names[160]; /* of its tensors, joined by '+' */
	int32_t rows;
	int32_t cols;
	int32_t forms;
	LlmLinearRole role;
	bool is_embedding;
};

typedef struct Recorder
{
	LlmDevice base;
	LlmLinear linears[LINEARS_MAX];
	int n_linears;
	int fail_at; /* linear_create number that fails, -1 = none */
	int n_clears;
	int n_acts;
	char log[LOG_CAP]; /* ops as text */
} Recorder;

static void
note(LlmDevice *dev, const char *fmt, ...)
{
	Recorder *r = (Recorder *) dev;
	size_t at = strlen(r->log);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->log + at, LOG_CAP - at, fmt, ap);
	va_end(ap);
}

static void
model_clear(LlmDevice *dev)
{
	Recorder *r = (Recorder *) dev;

	r->n_linears = 0;
	r->n_clears++;
}

static LlmStatus
linear_create(LlmDevice *dev, const LlmWeightView *parts, int n, const LlmLinearSpec *spec,
			  LlmLinear **out, LlmError *err)
{
	Recorder *r = (Recorder *) dev;
	LlmLinear *l = &r->linears[r->n_linears];

	if (r->n_linears == r->fail_at)
		return llm_error_set(err, LLM_E_MEMORY, "no room for \"%s\"", parts[0].name);
	assert_true(r->n_linears++ < LINEARS_MAX);
	*l = (LlmLinear){.cols = parts[0].cols, .forms = LLM_ACT_F32};
	for (int i = 0; i < n; i++)
	{
		assert_int_equal(parts[i].cols, l->cols);
		snprintf(l->names + strlen(l->names), sizeof(l->names) - strlen(l->names), "%s%s",
				 i > 0 ? "+" : "", parts[i].name);
		l->rows += parts[i].rows;
		if (parts[i].type == LLM_DTYPE_Q8_0)
			l->forms |= LLM_ACT_Q8;
	}
	l->role = spec->role;
	l->is_embedding = spec->is_embedding;
	*out = l;
	return LLM_OK;
}

static int32_t
linear_forms(const LlmDevice *dev, const LlmLinear *l)
{
	return l->forms;
}

static LlmAct
act_create(LlmDevice *dev, int32_t forms, int32_t rows, int32_t cols)
{
	return (
		LlmAct){.slot = ((Recorder *) dev)->n_acts++, .forms = forms, .rows = rows, .cols = cols};
}

static void
op_embed(LlmDevice *dev, const LlmLinear *l, LlmAct out)
{
	assert_true(l->is_embedding);
	note(dev, "embed>%d ", out.slot);
}

static void
op_norm(LlmDevice *dev, LlmAct residual, LlmAct add, const LlmNorm *norm, LlmAct out)
{
	assert_true(norm->eps == 1e-5f);
	assert_non_null(norm->weight);
	assert_int_equal(residual.cols, out.cols);
	if (add.cols > 0)
		note(dev, "norm(%d+%d)>%d ", residual.slot, add.slot, out.slot);
	else
		note(dev, "norm(%d)>%d ", residual.slot, out.slot);
}

static void
op_linear(LlmDevice *dev, LlmAct x, const LlmLinear *l, LlmEpilogue epilogue, LlmAct out)
{
	assert_int_equal(x.cols, l->cols);
	assert_int_equal(x.rows, out.rows);
	assert_int_equal(x.forms & l->forms, l->forms);
	assert_int_equal(out.cols, epilogue == LLM_EPI_SILU_GATE ? l->rows / 2 : l->rows);
	note(dev, "linear(%d,%s%s)>%d ", x.slot, l->names, epilogue == LLM_EPI_SILU_GATE ? ",gate" : "",
		 out.slot);
}

static void
op_rope(LlmDevice *dev, LlmAct qkv, const LlmAttn *a, LlmAct q)
{
	assert_int_equal(qkv.cols, (a->n_heads + 2 * a->n_kv_heads) * a->head_dim);
	assert_int_equal(a->rope->interleaved, 1);
	note(dev, "rope%d(%d)>%d ", a->layer, qkv.slot, q.slot);
}

static void
op_attention(LlmDevice *dev, LlmAct q, const LlmAttn *a, LlmAct out)
{
	assert_int_equal(out.cols, a->n_heads * a->v_dim);
	note(dev, "attention%d(%d%s)>%d ", a->layer, q.slot, a->wanted_only ? ",wanted" : "", out.slot);
}

static void
op_gather(LlmDevice *dev, LlmAct x, LlmAct out)
{
	note(dev, "gather(%d)>%d ", x.slot, out.slot);
}

static const LlmDeviceOps recorder_ops = {
	.model_clear = model_clear,
	.linear_create = linear_create,
	.linear_forms = linear_forms,
	.act_create = act_create,
	.embed = op_embed,
	.norm = op_norm,
	.linear = op_linear,
	.rope_kv_write = op_rope,
	.attention = op_attention,
	.gather_rows = op_gather,
};

/* ---- one file through config and create ---- */

/* A device is large: one for all tests, cleared by each. */
static Recorder recorder;

static LlmStatus
try_file(const LlamaBuild *m, LlmModelConfig *config, LlmModel **model, LlmError *err)
{
	LlmGguf *g;
	size_t nbytes;
	uint8_t *bytes = llama_build(m, &nbytes);
	LlmModel *made = NULL;
	LlmStatus status;

	memset(err, 0, sizeof(*err));
	recorder = (Recorder){.base.ops = &recorder_ops, .fail_at = recorder.fail_at};
	status = llm_gguf_open_memory(bytes, nbytes, &g, err);
	if (status == LLM_OK)
	{
		status = llm_model_config_read(g, config, err);
		if (status == LLM_OK)
			status = llm_model_create(g, &recorder.base, NULL, NULL, &made, err);
		else
			assert_int_not_equal(llm_model_create(g, &recorder.base, NULL, NULL, &made, NULL),
								 LLM_OK);
	}
	llm_gguf_close(g);
	free(bytes);
	if (model != NULL)
		*model = made;
	else
		llm_model_free(made);
	return status;
}

static void
refused(const LlamaBuild *m, LlmStatus code, const char *named)
{
	LlmModelConfig config;
	LlmError err;
	LlmStatus status = try_file(m, &config, NULL, &err);

	if (status != code || strstr(err.text, named) == NULL)
		fail_msg("%s: \"%s\" does not name \"%s\"", llm_status_name(status), err.text, named);
	assert_int_equal(recorder.n_linears, 0);
}

static void
a_good_file_is_read(void **state)
{
	LlmModelConfig c;
	LlmError err;
	LlmModel *m;
	LlmKvGroup groups[LLM_KV_GROUPS_MAX];
	LlmDeviceLimits limits;

	recorder.fail_at = -1;
	if (try_file(&llama_small, &c, &m, &err) != LLM_OK)
		fail_msg("%s", err.text);
	assert_string_equal(c.arch, "llama");
	assert_string_equal(c.quantization, "F32");
	assert_int_equal(c.n_layers, 2);
	assert_int_equal(c.dim, 32);
	assert_int_equal(c.hidden_dim, 64);
	assert_int_equal(c.n_heads, 4);
	assert_int_equal(c.n_kv_heads, 2);
	assert_int_equal(c.head_dim, 8);
	assert_int_equal(c.rope_dims, 8);
	assert_true(c.rope_base == 10000.0f);
	assert_int_equal(c.vocab_size, 48);
	assert_int_equal(c.context_length, 128);
	assert_int_equal(c.n_params, 2 * 48 * 32 + 32 + 2 * (2 * 32 + 3 * 32 * 32 + 3 * 32 * 64));
	assert_memory_equal(llm_model_config(m), &c, sizeof(c));

	assert_int_equal(llm_model_kv_groups(m, LLM_DTYPE_F16, groups), 1);
	assert_int_equal(groups[0].kind, LLM_KV_FULL);
	assert_int_equal(groups[0].n_layers, 2);
	assert_int_equal(groups[0].n_kv_heads, 2);
	assert_int_equal(groups[0].k_dim, 8);
	assert_int_equal(groups[0].v_type, LLM_DTYPE_F16);
	limits = llm_model_limits(m, 16, 4);
	assert_int_equal(limits.max_cols, 128); /* gate | up */
	assert_int_equal(limits.max_pos, 128);
	assert_int_equal(limits.vocab_size, 48);
	assert_int_equal(limits.max_seqs, 16);
	llm_model_free(m);
}

static void
a_step_is_recorded_in_order(void **state)
{
	LlamaBuild b = llama_small;
	LlmModelConfig c;
	LlmError err;
	LlmModel *m;
	LlmAct logits;

	recorder.fail_at = -1;
	b.n_layers = 1;
	assert_int_equal(try_file(&b, &c, &m, &err), LLM_OK);
	logits = llm_model_forward(m, &recorder.base, &(LlmBatch){.n_rows = 5, .n_out = 2});
	assert_string_equal(recorder.log,
						"embed>0 norm(0)>1 "
						"linear(1,blk.0.attn_q.weight+blk.0.attn_k.weight+blk.0.attn_v.weight)>5 "
						"rope0(5)>6 attention0(6,wanted)>2 gather(0)>7 gather(2)>9 "
						"linear(9,blk.0.attn_output.weight)>11 norm(7+11)>8 "
						"linear(8,blk.0.ffn_gate.weight+blk.0.ffn_up.weight,gate)>10 "
						"linear(10,blk.0.ffn_down.weight)>11 "
						"norm(7+11)>8 linear(8,output.weight)>12 ");
	assert_int_equal(logits.rows, 2);
	assert_int_equal(logits.cols, 48);
	assert_true(recorder.n_acts <= llm_model_limits(m, 5, 2).n_acts);

	recorder.log[0] = '\0';
	logits = llm_model_forward(m, &recorder.base, &(LlmBatch){.n_rows = 5});
	assert_null(strstr(recorder.log, ",output.weight"));
	assert_null(strstr(recorder.log, ",blk.0.attn_output.weight"));
	assert_int_equal(logits.slot, -1);
	llm_model_free(m);
}

static void
a_missing_head_is_tied(void **state)
{
	LlamaBuild b = llama_small;
	LlmModelConfig c;
	LlmError err;
	LlmModel *m;

	recorder.fail_at = -1;
	b.skip_tensor = "output.weight";
	assert_int_equal(try_file(&b, &c, &m, &err), LLM_OK);
	assert_true(recorder.linears[0].is_embedding && recorder.linears[0].role == LLM_LINEAR_HEAD);
	llm_model_forward(m, &recorder.base, &(LlmBatch){.n_rows = 1, .n_out = 1});
	assert_non_null(strstr(recorder.log, "linear(8,token_embd.weight)>12"));
	llm_model_free(m);
}

static void
a_quantised_tensor_asks_for_its_form(void **state)
{
	LlamaBuild b = llama_small;
	LlmModelConfig c;
	LlmError err;
	LlmModel *m;

	recorder.fail_at = -1;
	b.alter_tensor = "blk.1.ffn_up.weight";
	b.alter_rows = 64;
	b.alter_cols = 32;
	b.alter_type = LLM_DTYPE_Q8_0;
	assert_int_equal(try_file(&b, &c, &m, &err), LLM_OK);
	/* op_linear checks that the input has every form that its linear wants */
	llm_model_forward(m, &recorder.base, &(LlmBatch){.n_rows = 3, .n_out = 1});
	llm_model_free(m);
}

static void
a_failing_device_is_left_clear(void **state)
{
	LlmModelConfig c;
	LlmError err;

	for (recorder.fail_at = 0; recorder.fail_at < 10; recorder.fail_at++)
	{
		assert_int_equal(try_file(&llama_small, &c, NULL, &err), LLM_E_MEMORY);
		assert_int_equal(recorder.n_linears, 0);
		assert_int_equal(recorder.n_clears, 1);
	}
	assert_int_equal(try_file(&llama_small, &c, NULL, &err), LLM_OK);
}

/* ---- hyperparameters that are refused ---- */

#define REFUSED(code, named, ...)                                                                  \
	do                                                                                             \
	{                                                                                              \
		LlamaBuild file = llama_small;                                                             \
		LlamaBuild *b = &file;                                                                     \
		__VA_ARGS__;                                                                               \
		refused(b, code, named);                                                                   \
	} while (0)

static void
numbers_out_of_range_are_refused(void **state)
{
	recorder.fail_at = -1;
	REFUSED(LLM_E_MODEL, "key \"llama.block_count\" is 0, not 1 to 512", b->n_layers = 0);
	REFUSED(LLM_E_MODEL, "key \"llama.block_count\" is 513,", b->n_layers = 513);
	REFUSED(LLM_E_MODEL, "key \"llama.block_count\" is 2147483648,", b->n_layers = 1u << 31);
	REFUSED(LLM_E_MODEL, "key \"llama.context_length\" is 0,", b->context = 0);
	REFUSED(LLM_E_MODEL, "key \"llama.context_length\" is 4294967295, not 1 to 1048576",
			b->context = UINT32_MAX);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.head_count\" is 0,", b->n_heads = 0);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.head_count\" is 7, which does not divide",
			b->n_heads = 7, b->n_kv_heads = 1);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.head_count_kv\" is 0,", b->n_kv_heads = 0);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.head_count_kv\" is 3, which does not divide",
			b->n_kv_heads = 3);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.layer_norm_rms_epsilon\" is nan", b->eps = NAN);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.layer_norm_rms_epsilon\" is 0,", b->eps = 0);
	REFUSED(LLM_E_MODEL, "key \"llama.attention.layer_norm_rms_epsilon\" is inf",
			b->eps = INFINITY);
	REFUSED(LLM_E_MODEL, "key \"llama.feed_forward_length\" is missing",
			b->skip_key = "llama.feed_forward_length");
	REFUSED(LLM_E_MODEL, "key \"llama.attention.layer_norm_rms_epsilon\" is missing",
			b->skip_key = "llama.attention.layer_norm_rms_epsilon");
}

static void
more_block_count_text(GgufBuild *b)
{
	gguf_key_str(b, "llama.block_count", "2");
}

static void
more_dim_huge(GgufBuild *b)
{
	gguf_key_u32(b, "llama.embedding_length", UINT32_MAX);
}

static void
more_rope_dims_wide(GgufBuild *b)
{
	gguf_key_u32(b, "llama.rope.dimension_count", 4096);
}

static void
more_rope_dims_odd(GgufBuild *b)
{
	gguf_key_u32(b, "llama.rope.dimension_count", 7);
}

static void
more_freq_0(GgufBuild *b)
{
	gguf_key_f32(b, "llama.rope.freq_base", 0.0f);
}

static void
more_freq_nan(GgufBuild *b)
{
	gguf_key_f32(b, "llama.rope.freq_base", NAN);
}

static void
more_freq_inf(GgufBuild *b)
{
	gguf_key_f32(b, "llama.rope.freq_base", INFINITY);
}

static void
more_value_length(GgufBuild *b)
{
	gguf_key_u32(b, "llama.attention.value_length", 4);
}

static void
more_vocab_size(GgufBuild *b)
{
	gguf_key_u32(b, "llama.vocab_size", 47);
}

static void
more_scaling(GgufBuild *b)
{
	gguf_key_str(b, "llama.rope.scaling.type", "yarn");
}

static void
more_scaling_none(GgufBuild *b)
{
	gguf_key_str(b, "llama.rope.scaling.type", "none");
	gguf_key_f32(b, "llama.rope.scaling.factor", 1.0f);
	gguf_key_u32(b, "llama.expert_count", 0);
}

static void
more_scaling_factor(GgufBuild *b)
{
	gguf_key_f32(b, "llama.rope.scaling.factor", 8.0f);
}

static void
more_experts(GgufBuild *b)
{
	gguf_key_u32(b, "llama.expert_count", 8);
}

static void
more_not_causal(GgufBuild *b)
{
	gguf_key_bool(b, "llama.attention.causal", 0);
}

static void
more_rope_freqs(GgufBuild *b)
{
	static const float freqs[4] = {1, 1, 2, 4};

	gguf_tensor(b, "rope_freqs.weight", 0, 4, 0, freqs, sizeof(freqs));
}

static void
more_bias(GgufBuild *b)
{
	static const float bias[32];

	gguf_tensor(b, "blk.1.attn_q.bias", 0, 32, 0, bias, sizeof(bias));
}

static void
more_layer(GgufBuild *b)
{
	static const float norm[32];

	gguf_tensor(b, "blk.2.attn_norm.weight", 0, 32, 0, norm, sizeof(norm));
}

static void
keys_that_are_wrong_or_not_built_are_refused(void **state)
{
	LlamaBuild ok = llama_small;
	LlmModelConfig c;
	LlmError err;

	recorder.fail_at = -1;
	REFUSED(LLM_E_MODEL, "key \"llama.block_count\" is string \"2\"",
			b->skip_key = "llama.block_count", b->more = more_block_count_text);
	REFUSED(LLM_E_MODEL, "key \"llama.embedding_length\" is 4294967295, not 1 to 131072",
			b->skip_key = "llama.embedding_length", b->more = more_dim_huge);
	REFUSED(LLM_E_MODEL, "key \"llama.rope.dimension_count\" is 4096, not 2 to 8",
			b->more = more_rope_dims_wide);
	REFUSED(LLM_E_MODEL, "key \"llama.rope.dimension_count\" is 7,", b->more = more_rope_dims_odd);
	REFUSED(LLM_E_MODEL, "key \"llama.rope.freq_base\" is 0,", b->more = more_freq_0);
	REFUSED(LLM_E_MODEL, "key \"llama.rope.freq_base\" is nan", b->more = more_freq_nan);
	REFUSED(LLM_E_MODEL, "key \"llama.rope.freq_base\" is inf", b->more = more_freq_inf);
	REFUSED(LLM_E_UNSUPPORTED, "key \"llama.attention.value_length\" is 4",
			b->more = more_value_length);
	REFUSED(LLM_E_MODEL, "\"token_embd.weight\" has 48 rows, but key \"llama.vocab_size\" is 47",
			b->more = more_vocab_size);
	REFUSED(LLM_E_MODEL,
			"\"token_embd.weight\" has 48 rows, but key \"tokenizer.ggml.tokens\" "
			"holds 47 tokens",
			b->n_tokens = 47);
	REFUSED(LLM_E_UNSUPPORTED, "key \"llama.rope.scaling.type\" is yarn", b->more = more_scaling);
	REFUSED(LLM_E_UNSUPPORTED, "key \"llama.rope.scaling.factor\" is 8",
			b->more = more_scaling_factor);
	REFUSED(LLM_E_UNSUPPORTED, "key \"llama.expert_count\" is 8", b->more = more_experts);
	REFUSED(LLM_E_UNSUPPORTED, "key \"llama.attention.causal\" is false",
			b->more = more_not_causal);
	REFUSED(LLM_E_UNSUPPORTED, "tensor \"rope_freqs.weight\"", b->more = more_rope_freqs);
	ok.more = more_scaling_none;
	assert_int_equal(try_file(&ok, &c, NULL, &err), LLM_OK);
}

static void
tensors_that_are_wrong_or_not_built_are_refused(void **state)
{
	recorder.fail_at = -1;
	REFUSED(LLM_E_MODEL, "tensor \"token_embd.weight\" is missing",
			b->skip_tensor = "token_embd.weight");
	REFUSED(LLM_E_MODEL, "tensor \"blk.1.ffn_down.weight\" is missing",
			b->skip_tensor = "blk.1.ffn_down.weight");
	REFUSED(LLM_E_MODEL, "tensor \"output_norm.weight\" is missing",
			b->skip_tensor = "output_norm.weight");
	REFUSED(LLM_E_MODEL,
			"tensor \"blk.0.attn_k.weight\" has 32 rows of 32 values, not 16 rows of 32",
			b->alter_tensor = "blk.0.attn_k.weight", b->alter_rows = 32, b->alter_cols = 32);
	REFUSED(LLM_E_MODEL, "tensor \"token_embd.weight\" has 64 columns",
			b->alter_tensor = "token_embd.weight", b->alter_rows = 48, b->alter_cols = 64);
	REFUSED(LLM_E_UNSUPPORTED, "tensor \"blk.0.ffn_up.weight\" has type Q2_K",
			b->alter_tensor = "blk.0.ffn_up.weight", b->alter_rows = 64, b->alter_cols = 32,
			b->alter_type = 10);
	REFUSED(LLM_E_UNSUPPORTED, "tensor \"token_embd.weight\" has type I8",
			b->alter_tensor = "token_embd.weight", b->alter_rows = 48, b->alter_cols = 32,
			b->alter_type = 24);
	REFUSED(LLM_E_UNSUPPORTED, "tensor \"blk.1.ffn_norm.weight\" has type F16",
			b->alter_tensor = "blk.1.ffn_norm.weight", b->alter_cols = 32, b->alter_type = 1);
	REFUSED(LLM_E_UNSUPPORTED, "tensor \"blk.1.attn_q.bias\" has no place", b->more = more_bias);
	REFUSED(LLM_E_UNSUPPORTED, "tensor \"blk.2.attn_norm.weight\" has no place",
			b->more = more_layer);
}

static void
an_unknown_architecture_is_named(void **state)
{
	GgufBuild b = {0};
	LlmModelConfig c;
	LlmError err = {0};
	LlmGguf *g;
	size_t nbytes;
	uint8_t *bytes;

	gguf_key_str(&b, "general.architecture", "mamba\n");
	bytes = gguf_build_end(&b, &nbytes);
	assert_int_equal(llm_gguf_open_memory(bytes, nbytes, &g, &err), LLM_OK);
	assert_int_equal(llm_model_config_read(g, &c, &err), LLM_E_UNSUPPORTED);
	assert_non_null(strstr(err.text, "architecture \"mamba\\x0a\""));
	assert_non_null(strstr(err.hint, "llama"));
	llm_gguf_close(g);
	free(bytes);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_file_is_read),
		cmocka_unit_test(a_step_is_recorded_in_order),
		cmocka_unit_test(a_missing_head_is_tied),
		cmocka_unit_test(a_quantised_tensor_asks_for_its_form),
		cmocka_unit_test(a_failing_device_is_left_clear),
		cmocka_unit_test(numbers_out_of_range_are_refused),
		cmocka_unit_test(keys_that_are_wrong_or_not_built_are_refused),
		cmocka_unit_test(tensors_that_are_wrong_or_not_built_are_refused),
		cmocka_unit_test(an_unknown_architecture_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
