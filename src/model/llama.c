/*
 * model/llama.c - the llama family: grouped-query attention, rotary embedding, gated SiLU.
 *
 *     x = embed(token)
 *     per layer   h = norm(x);  qkv = h Wqkv;  a = attention(rope(q), store(rope(k), v))
 *                 h = norm(x += a Wo);  f = silu(h Wgate) * (h Wup);  x += f Wdown
 *     logits = norm(x) Whead        only for the rows whose output is wanted
 *
 * The sums x += ... ride on the norm that follows. Attention is the last op that looks at other rows:
 * behind that of the last layer the rows that are wanted are gathered, with the bits that they have in
 * the whole batch, and a prefill chunk pays for one row of what follows, not for all.
 *
 * GGUF files of this family hold Q and K with their rows permuted for rotary pairs (2i, 2i + 1).
 * Sources: Touvron et al. 2023 (arXiv:2302.13971, 2307.09288); tensor names and keys: docs/gguf.md
 * in the ggml repository.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/arch.h"
#include "model/model_impl.h"
#include "model/weights.h"

#define KEY_CAP 96
/* Activations of a forward: x, h, a, f, y of all rows and of the wanted ones; qkv, q, logits. */
#define N_ACTS 13

typedef struct LlamaLayer
{
	LlmNorm attn_norm;
	LlmNorm ffn_norm;
	LlmLinear *wqkv; /* [(n_heads + 2 n_kv_heads) * head_dim, dim] */
	LlmLinear *wo;   /* [dim, n_heads * head_dim] */
	LlmLinear *w13;  /* gate | up [2 hidden_dim, dim] */
	LlmLinear *w2;   /* down [dim, hidden_dim] */
	LlmAttn attn;
} LlamaLayer;

typedef struct Llama
{
	LlmArena arena;     /* owns layers, norms, inv_freq */
	LlamaLayer *layers; /* [n_layers] */
	LlmLinear *embed;   /* [vocab_size, dim] */
	LlmLinear *head;    /* [vocab_size, dim]; embed itself when the file has no head */
	LlmNorm norm;       /* before the head */
	LlmRope rope;
	int32_t h_forms;   /* LLM_ACT_* that wqkv and w13 of any layer want */
	int32_t a_forms;   /* wo of any layer */
	int32_t f_forms;   /* w2 of any layer */
	int32_t out_forms; /* head */
} Llama;

/* ---- configuration ---- */

static LlmStatus
key_unsupported(const char *key, LlmError *err, const char *value)
{
	return llm_error_set(err, LLM_E_UNSUPPORTED, "key \"%s\" is %s, which is not supported", key,
						 value);
}

/* Rotary embedding that is scaled in any way: the product of a position and a plain inv_freq would
 * be wrong. */
static LlmStatus
rope_check(const LlmGguf *g, LlmError *err)
{
	static const char *const factors[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
	const char *type_key = "llama.rope.scaling.type", *freqs = "rope_freqs.weight";
	char show[LLM_GGUF_SHOW_CAP];
	LlmStr type = llm_str("none");
	LlmStatus status = llm_gguf_str(g, type_key, false, &type, err);

	if (status != LLM_OK)
		return status;
	if (!llm_str_eq(type, "none"))
		return key_unsupported(type_key, err, llm_gguf_show(type, show));
	for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
	{
		float factor = 1.0f;

		status = llm_gguf_f32(g, factors[i], false, &factor, err);
		if (status != LLM_OK)
			return status;
		if (factor != 1.0f)
		{
			snprintf(show, sizeof(show), "%g", (double) factor);
			return key_unsupported(factors[i], err, show);
		}
	}
	if (llm_gguf_tensor_type(g, freqs) >= 0)
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "tensor \"%s\" asks for a scaled rotary embedding, which is not "
							 "supported",
							 freqs);
	return LLM_OK;
}

LlmStatus
llm_llama_config_check(const LlmGguf *g, const LlmModelConfig *c, LlmError *err)
{
	static const char *const zeroes[] = {"llama.expert_count", "llama.attention.sliding_window"};
	const char *causal_key = "llama.attention.causal";
	bool causal = true;
	LlmStatus status = llm_gguf_bool(g, causal_key, false, &causal, err);

	if (status != LLM_OK)
		return status;
	if (!causal)
		return key_unsupported(causal_key, err, "false");
	for (size_t i = 0; i < sizeof(zeroes) / sizeof(zeroes[0]); i++)
	{
		uint32_t v = 0;
		char show[16];

		status = llm_gguf_u32(g, zeroes[i], false, &v, err);
		if (status != LLM_OK)
			return status;
		if (v != 0)
		{
			snprintf(show, sizeof(show), "%" PRIu32, v);
			return key_unsupported(zeroes[i], err, show);
		}
	}
	return rope_check(g, err);
}

/* ---- weights ---- */

static void
layer_bind(LlmWeights *w, const LlmModelConfig *c, int32_t i, LlamaLayer *l)
{
	int32_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;

	llm_weights_norm(w, i, "attn_norm", c->dim, &l->attn_norm.weight);
	llm_weights_linear(w, i, (LlmWeightPart[]){{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}}, 3,
					   c->dim, (LlmLinearSpec){.role = LLM_LINEAR_QKV}, &l->wqkv);
	llm_weights_linear(w, i, (LlmWeightPart[]){{"attn_output", c->dim}}, 1, q,
					   (LlmLinearSpec){.role = LLM_LINEAR_ATTN_OUT}, &l->wo);
	llm_weights_norm(w, i, "ffn_norm", c->dim, &l->ffn_norm.weight);
	llm_weights_linear(w, i,
					   (LlmWeightPart[]){{"ffn_gate", c->hidden_dim}, {"ffn_up", c->hidden_dim}}, 2,
					   c->dim, (LlmLinearSpec){.role = LLM_LINEAR_GATE_UP}, &l->w13);
	llm_weights_linear(w, i, (LlmWeightPart[]){{"ffn_down", c->dim}}, 1, c->hidden_dim,
					   (LlmLinearSpec){.role = LLM_LINEAR_DOWN}, &l->w2);
}

static void
weights_bind(LlmWeights *w, const LlmModelConfig *c, Llama *m)
{
	bool tied = !llm_weights_have(w, "output");

	llm_weights_linear(w, LLM_WEIGHTS_NO_LAYER, (LlmWeightPart[]){{"token_embd", c->vocab_size}}, 1,
					   c->dim,
					   (LlmLinearSpec){.is_embedding = true,
									   .role = tied ? LLM_LINEAR_HEAD : LLM_LINEAR_OTHER},
					   &m->embed);
	for (int32_t i = 0; i < c->n_layers; i++)
		layer_bind(w, c, i, &m->layers[i]);
	llm_weights_norm(w, LLM_WEIGHTS_NO_LAYER, "output_norm", c->dim, &m->norm.weight);
	if (tied)
		m->head = m->embed;
	else
		llm_weights_linear(w, LLM_WEIGHTS_NO_LAYER, (LlmWeightPart[]){{"output", c->vocab_size}}, 1,
						   c->dim, (LlmLinearSpec){.role = LLM_LINEAR_HEAD}, &m->head);
}

/* inv_freq[i] = base^(-2i / n). Taken once, in double and rounded to float: libraries differ by less
 * than 2^-52 there, so only a value within that of the middle between two floats could differ. */
static bool
rope_init(Llama *m, const LlmModelConfig *c)
{
	int32_t n = c->rope_dims / 2;
	float *inv_freq = llm_arena_array(&m->arena, (size_t) n, sizeof(*inv_freq));

	if (inv_freq == NULL)
		return false;
	for (int32_t i = 0; i < n; i++)
		inv_freq[i] = (float) pow((double) c->rope_base, -2.0 * i / c->rope_dims);
	m->rope = (LlmRope){.n_dims = c->rope_dims, .interleaved = 1, .inv_freq = inv_freq};
	return true;
}

/* What follows from the weights once they are on the device. */
static void
layers_init(Llama *m, const LlmModelConfig *c, LlmDevice *dev)
{
	m->norm.eps = c->norm_eps;
	m->out_forms = dev->ops->linear_forms(dev, m->head);
	for (int32_t i = 0; i < c->n_layers; i++)
	{
		LlamaLayer *l = &m->layers[i];

		l->attn_norm.eps = l->ffn_norm.eps = c->norm_eps;
		l->attn = (LlmAttn){
			.layer = i,
			.n_heads = c->n_heads,
			.n_kv_heads = c->n_kv_heads,
			.head_dim = c->head_dim,
			.v_dim = c->head_dim,
			.scale = 1.0f / sqrtf((float) c->head_dim),
			.rope = &m->rope,
		};
		m->h_forms |= dev->ops->linear_forms(dev, l->wqkv) | dev->ops->linear_forms(dev, l->w13);
		m->a_forms |= dev->ops->linear_forms(dev, l->wo);
		m->f_forms |= dev->ops->linear_forms(dev, l->w2);
	}
}

/* ---- the forward ---- */

/* What flows from layer to layer, for all rows of a step or for the wanted ones. */
typedef struct LlamaActs
{
	LlmAct x; /* the residual */
	LlmAct h; /* its norm */
	LlmAct a; /* what attention gives */
	LlmAct f; /* gated */
	LlmAct y; /* what the next norm adds to x; nothing before the first layer */
} LlamaActs;

static LlamaActs
acts_create(const LlmModel *model, LlmDevice *dev, int32_t rows, int32_t h_forms)
{
	const Llama *m = model->arch;
	const LlmModelConfig *c = &model->config;
	const LlmDeviceOps *ops = dev->ops;
	LlamaActs acts;

	acts.x = ops->act_create(dev, LLM_ACT_F32, rows, c->dim);
	acts.h = ops->act_create(dev, h_forms, rows, c->dim);
	acts.a = ops->act_create(dev, m->a_forms, rows, c->n_heads * c->head_dim);
	acts.f = ops->act_create(dev, m->f_forms, rows, c->hidden_dim);
	acts.y = ops->act_create(dev, LLM_ACT_F32, rows, c->dim);
	return acts;
}

/* The half of a layer before the sum that attention gives. qkv and q: between its ops. */
static void
layer_attend(LlmDevice *dev, const LlamaLayer *l, const LlmAttn *attn, const LlamaActs *acts,
			 LlmAct qkv, LlmAct q)
{
	const LlmDeviceOps *ops = dev->ops;
	LlmAct none = {0};

	ops->norm(dev, acts->x, attn->layer > 0 ? acts->y : none, &l->attn_norm, acts->h);
	ops->linear(dev, acts->h, l->wqkv, LLM_EPI_NONE, qkv);
	ops->rope_kv_write(dev, qkv, attn, q);
	ops->attention(dev, q, attn, acts->a);
}

/* The other half, row by row. */
static void
layer_feed(LlmDevice *dev, const LlamaLayer *l, const LlamaActs *acts)
{
	const LlmDeviceOps *ops = dev->ops;

	ops->linear(dev, acts->a, l->wo, LLM_EPI_NONE, acts->y);
	ops->norm(dev, acts->x, acts->y, &l->ffn_norm, acts->h);
	ops->linear(dev, acts->h, l->w13, LLM_EPI_SILU_GATE, acts->f);
	ops->linear(dev, acts->f, l->w2, LLM_EPI_NONE, acts->y);
}

static LlmAct
forward(const LlmModel *model, LlmDevice *dev, const LlmBatch *b)
{
	const LlmDeviceOps *ops = dev->ops;
	const Llama *m = model->arch;
	const LlmModelConfig *c = &model->config;
	int32_t q_cols = c->n_heads * c->head_dim;
	LlamaActs all = acts_create(model, dev, b->n_rows, m->h_forms), out;
	LlmAct qkv =
		ops->act_create(dev, LLM_ACT_F32, b->n_rows, q_cols + 2 * c->n_kv_heads * c->head_dim);
	LlmAct q = ops->act_create(dev, LLM_ACT_F32, b->n_rows, q_cols), logits;
	const LlamaLayer *last = &m->layers[c->n_layers - 1];
	LlmAttn attn = last->attn;

	ops->embed(dev, m->embed, all.x);
	for (const LlamaLayer *l = m->layers; l < last; l++)
	{
		layer_attend(dev, l, &l->attn, &all, qkv, q);
		layer_feed(dev, l, &all);
	}
	attn.wanted_only = true;
	layer_attend(dev, last, &attn, &all, qkv, q);
	if (b->n_out == 0)
		return (LlmAct){.slot = -1, .forms = LLM_ACT_F32, .cols = c->vocab_size};
	out = acts_create(model, dev, b->n_out, m->h_forms | m->out_forms);
	logits = ops->act_create(dev, LLM_ACT_F32, b->n_out, c->vocab_size);
	ops->gather_rows(dev, all.x, out.x);
	ops->gather_rows(dev, all.a, out.a);
	layer_feed(dev, last, &out);
	ops->norm(dev, out.x, out.y, &m->norm, out.h);
	ops->linear(dev, out.h, m->head, LLM_EPI_NONE, logits);
	return logits;
}

/* ---- life ---- */

static void
llama_free(LlmModel *model)
{
	Llama *m = model->arch;

	if (m != NULL)
		llm_arena_fini(&m->arena);
	free(m);
	free(model);
}

static void
model_init(LlmModel *model, const LlmModelConfig *c, Llama *m)
{
	int32_t qkv = (c->n_heads + 2 * c->n_kv_heads) * c->head_dim, gate_up = 2 * c->hidden_dim;

	model->config = *c;
	model->forward = forward;
	model->free = llama_free;
	model->n_groups = 1;
	model->groups[0] = (LlmKvGroup){
		.kind = LLM_KV_FULL,
		.n_layers = c->n_layers,
		.n_kv_heads = c->n_kv_heads,
		.k_dim = c->head_dim,
		.v_dim = c->head_dim,
	};
	model->max_cols = c->dim;
	if (model->max_cols < qkv)
		model->max_cols = qkv;
	if (model->max_cols < gate_up)
		model->max_cols = gate_up;
	model->n_acts = N_ACTS;
	model->arch = m;
}

LlmStatus
llm_llama_create(const LlmGguf *g, const LlmModelConfig *c, LlmDevice *dev,
				 LlmModelProgress progress, void *arg, LlmModel **out, LlmError *err)
{
	LlmModel *model = calloc(1, sizeof(*model));
	Llama *m = calloc(1, sizeof(*m));
	LlmWeights w = {.g = g, .dev = dev, .progress = progress, .progress_arg = arg, .err = err};

	if (model == NULL || m == NULL)
	{
		free(model);
		free(m);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a model");
	}
	model_init(model, c, m);
	w.arena = &m->arena;
	m->layers = llm_arena_array(&m->arena, (size_t) c->n_layers, sizeof(*m->layers));
	if (m->layers == NULL || !rope_init(m, c))
		w.status = llm_error_set(err, LLM_E_MEMORY, "out of memory for %d layers", c->n_layers);
	else
		llm_weights_begin(&w);
	weights_bind(&w, c, m);
	llm_weights_checked(&w, c->arch);
	if (w.status == LLM_OK)
	{
		weights_bind(&w, c, m);
		if (w.status != LLM_OK)
			dev->ops->model_clear(dev); /* the linears that were made before the failure */
	}
	if (w.status != LLM_OK)
	{
		llama_free(model);
		return w.status;
	}
	layers_init(m, c, dev);
	*out = model;
	return LLM_OK;
}
