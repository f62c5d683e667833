/*
 * model/config.c - hyperparameters of a GGUF file, each within bounds that keep later sums safe.
 *
 * The caps are far above any published model; what they buy is that products of two of these
 * numbers fit an int32_t, so that no later file has to check again.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/model.h"

#define N_LAYERS_MAX 512
#define CONTEXT_MAX (1 << 20)
#define DIM_MAX (1 << 17)
#define HIDDEN_MAX (1 << 20)
#define N_HEADS_MAX 1024
#define HEAD_DIM_MAX 1024
#define VOCAB_MAX (1 << 20)
#define KEY_CAP 96
#define N_TYPES 64 /* GGUF type numbers counted; gguf.c refuses those that have no name */

/* Key "ARCH.suffix" in buf. */
static const char *
arch_key(char buf[KEY_CAP], const LlmModelConfig *c, const char *suffix)
{
	snprintf(buf, KEY_CAP, "%s.%s", c->arch, suffix);
	return buf;
}

static LlmStatus
range_error(const char *key, uint32_t v, int32_t min, int32_t max, LlmError *err)
{
	llm_error_set(err, LLM_E_MODEL, "key \"%s\" is %" PRIu32 ", not %d to %d", key, v, min, max);
	llm_error_numbers(err, v, max);
	return LLM_E_MODEL;
}

/* An integer in min .. max. *out holds the default, or 0 when the key is required. */
static LlmStatus
int_read(const LlmGguf *g, const LlmModelConfig *c, const char *suffix, int32_t min, int32_t max,
		 int32_t *out, LlmError *err)
{
	char buf[KEY_CAP];
	const char *key = arch_key(buf, c, suffix);
	uint32_t v = (uint32_t) *out;
	LlmStatus status = llm_gguf_u32(g, key, *out == 0, &v, err);

	if (status != LLM_OK)
		return status;
	if (v < (uint32_t) min || v > (uint32_t) max)
		return range_error(key, v, min, max, err);
	*out = (int32_t) v;
	return LLM_OK;
}

/* A finite float above 0. *out holds the default, or 0 when the key is required. */
static LlmStatus
float_read(const LlmGguf *g, const LlmModelConfig *c, const char *suffix, float *out, LlmError *err)
{
	char buf[KEY_CAP];
	const char *key = arch_key(buf, c, suffix);
	LlmStatus status = llm_gguf_f32(g, key, *out == 0.0f, out, err);

	if (status != LLM_OK)
		return status;
	if (!isfinite(*out) || *out <= 0.0f)
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" is %g, not a finite number above 0", key,
							 (double) *out);
	return LLM_OK;
}

static LlmStatus
heads_read(const LlmGguf *g, LlmModelConfig *c, LlmError *err)
{
	char buf[KEY_CAP];
	int32_t v_dim;
	LlmStatus status = int_read(g, c, "attention.head_count", 1, N_HEADS_MAX, &c->n_heads, err);

	if (status != LLM_OK)
		return status;
	c->n_kv_heads = c->n_heads;
	status = int_read(g, c, "attention.head_count_kv", 1, N_HEADS_MAX, &c->n_kv_heads, err);
	if (status != LLM_OK)
		return status;
	if (c->n_heads % c->n_kv_heads != 0)
		return llm_error_set(err, LLM_E_MODEL,
							 "key \"%s\" is %d, which does not divide the head count %d",
							 arch_key(buf, c, "attention.head_count_kv"), c->n_kv_heads,
							 c->n_heads);
	if (!llm_gguf_has(g, arch_key(buf, c, "attention.key_length")) && c->dim % c->n_heads != 0)
		return llm_error_set(err, LLM_E_MODEL,
							 "key \"%s\" is %d, which does not divide the embedding length %d",
							 arch_key(buf, c, "attention.head_count"), c->n_heads, c->dim);
	c->head_dim = c->dim / c->n_heads > 0 ? c->dim / c->n_heads : 1;
	status = int_read(g, c, "attention.key_length", 1, HEAD_DIM_MAX, &c->head_dim, err);
	if (status != LLM_OK)
		return status;
	v_dim = c->head_dim;
	status = int_read(g, c, "attention.value_length", 1, HEAD_DIM_MAX, &v_dim, err);
	if (status == LLM_OK && v_dim != c->head_dim)
		status = llm_error_set(err, LLM_E_UNSUPPORTED,
							   "key \"%s\" is %d; values of another length than keys (%d) are not "
							   "supported",
							   arch_key(buf, c, "attention.value_length"), v_dim, c->head_dim);
	return status;
}

static LlmStatus
rope_read(const LlmGguf *g, LlmModelConfig *c, LlmError *err)
{
	char buf[KEY_CAP];
	LlmStatus status;

	c->rope_dims = c->head_dim;
	status = int_read(g, c, "rope.dimension_count", 2, c->head_dim, &c->rope_dims, err);
	if (status != LLM_OK)
		return status;
	if (c->rope_dims % 2 != 0)
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" is %d, not an even number",
							 arch_key(buf, c, "rope.dimension_count"), c->rope_dims);
	c->rope_base = 10000.0f;
	return float_read(g, c, "rope.freq_base", &c->rope_base, err);
}

/* The vocabulary is as large as the embedding has rows; whatever else tells its size must agree. */
static LlmStatus
vocab_read(const LlmGguf *g, LlmModelConfig *c, LlmError *err)
{
	const char *embd = "token_embd.weight", *tokens_key = "tokenizer.ggml.tokens";
	char buf[KEY_CAP];
	LlmWeightView view;
	const LlmStr *tokens;
	uint64_t n_tokens;
	uint32_t said;
	LlmStatus status;

	if (llm_gguf_tensor_type(g, embd) < 0)
		return llm_error_set(err, LLM_E_MODEL, "tensor \"%s\" is missing", embd);
	if (!llm_gguf_tensor(g, embd, &view))
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "tensor \"%s\" has type %s, which is not supported", embd,
							 llm_dtype_gguf_name((uint32_t) llm_gguf_tensor_type(g, embd)));
	if (view.cols != c->dim)
		return llm_error_set(err, LLM_E_MODEL, "tensor \"%s\" has %d columns, but key \"%s\" is %d",
							 embd, view.cols, arch_key(buf, c, "embedding_length"), c->dim);
	if (view.rows > VOCAB_MAX)
		return llm_error_set(err, LLM_E_MODEL, "tensor \"%s\" has %d rows, more than %d", embd,
							 view.rows, VOCAB_MAX);
	c->vocab_size = view.rows;

	said = (uint32_t) view.rows;
	status = llm_gguf_u32(g, arch_key(buf, c, "vocab_size"), false, &said, err);
	if (status != LLM_OK)
		return status;
	if (said != (uint32_t) view.rows)
		return llm_error_set(err, LLM_E_MODEL,
							 "tensor \"%s\" has %d rows, but key \"%s\" is %" PRIu32, embd,
							 view.rows, buf, said);
	n_tokens = (uint64_t) view.rows;
	status = llm_gguf_str_array(g, tokens_key, false, &tokens, &n_tokens, err);
	if (status == LLM_OK && n_tokens != (uint64_t) view.rows)
		status = llm_error_set(err, LLM_E_MODEL,
							   "tensor \"%s\" has %d rows, but key \"%s\" holds %" PRIu64 " tokens",
							   embd, view.rows, tokens_key, n_tokens);
	return status;
}

/* Name of the type that holds most parameters; ties go to the lower number. */
static void
quantization_read(const LlmGguf *g, LlmModelConfig *c)
{
	uint64_t n_params[N_TYPES] = {0};
	uint32_t best = 0;

	for (uint64_t i = 0; i < llm_gguf_n_tensors(g); i++)
	{
		int64_t type = llm_gguf_tensor_type(g, llm_gguf_tensor_name(g, i));

		if (type >= 0 && type < N_TYPES)
			n_params[type] += llm_gguf_tensor_n_params(g, i);
	}
	for (uint32_t type = 1; type < N_TYPES; type++)
		if (n_params[type] > n_params[best])
			best = type;
	snprintf(c->quantization, sizeof(c->quantization), "%s", llm_dtype_gguf_name(best));
}

LlmStatus
llm_model_config_read(const LlmGguf *g, LlmModelConfig *out, LlmError *err)
{
	const char *arch_name_key = "general.architecture";
	LlmModelConfig c = {0};
	char show[LLM_GGUF_SHOW_CAP];
	const LlmArch *arch;
	LlmStr name;
	LlmStatus status = llm_gguf_str(g, arch_name_key, true, &name, err);

	if (status != LLM_OK)
		return status;
	arch = llm_arch_find(name);
	if (arch == NULL)
	{
		llm_error_set(err, LLM_E_UNSUPPORTED, "key \"%s\": architecture \"%s\" is not supported",
					  arch_name_key, llm_gguf_show(name, show));
		llm_error_hint(err, "Supported architectures: %s.", llm_arch_names());
		return LLM_E_UNSUPPORTED;
	}
	snprintf(c.arch, sizeof(c.arch), "%s", arch->name);
	c.n_params = (int64_t) llm_gguf_n_params(g);
	c.file_nbytes = (int64_t) llm_gguf_nbytes(g);
	quantization_read(g, &c);

	status = int_read(g, &c, "block_count", 1, N_LAYERS_MAX, &c.n_layers, err);
	if (status == LLM_OK)
		status = int_read(g, &c, "context_length", 1, CONTEXT_MAX, &c.context_length, err);
	if (status == LLM_OK)
		status = int_read(g, &c, "embedding_length", 1, DIM_MAX, &c.dim, err);
	if (status == LLM_OK)
		status = int_read(g, &c, "feed_forward_length", 1, HIDDEN_MAX, &c.hidden_dim, err);
	if (status == LLM_OK)
		status = heads_read(g, &c, err);
	if (status == LLM_OK)
		status = float_read(g, &c, "attention.layer_norm_rms_epsilon", &c.norm_eps, err);
	if (status == LLM_OK)
		status = rope_read(g, &c, err);
	if (status == LLM_OK)
		status = vocab_read(g, &c, err);
	if (status == LLM_OK)
		status = arch->config_check(g, &c, err);
	if (status == LLM_OK)
		*out = c;
	return status;
}
