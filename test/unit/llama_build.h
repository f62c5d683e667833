/* llama_build.h - a small llama model as a GGUF file in memory, each part of which can be changed. */
#ifndef LLM_TEST_LLAMA_BUILD_H
#define LLM_TEST_LLAMA_BUILD_H

#include <stdio.h>

#include "gguf_build.h"

/* What the file says. Zero in `skip_*` and NULL in text: nothing is left out or changed. */
typedef struct LlamaBuild
{
	uint32_t n_layers, context, dim, hidden, n_heads, n_kv_heads, vocab;
	float eps;
	const char *skip_key;            /* key that is left out */
	const char *skip_tensor;         /* tensor that is left out */
	const char *alter_tensor;        /* tensor written otherwise: */
	uint64_t alter_rows, alter_cols; /* its shape */
	uint32_t alter_type;             /* its type; data is zeroes */
	void (*more)(GgufBuild *b);      /* appends keys or tensors; NULL = none */
	uint32_t n_tokens;               /* of tokenizer.ggml.tokens, 0 = no such key */
} LlamaBuild;

static const LlamaBuild llama_small = {
	.n_layers = 2,
	.context = 128,
	.dim = 32,
	.hidden = 64,
	.n_heads = 4,
	.n_kv_heads = 2,
	.vocab = 48,
	.eps = 1e-5f,
	.n_tokens = 48,
};

static inline bool
llama_wants(const char *name, const char *skip)
{
	return skip == NULL || strcmp(name, skip) != 0;
}

static inline void
llama_key_u32(GgufBuild *b, const LlamaBuild *m, const char *key, uint32_t v)
{
	if (llama_wants(key, m->skip_key))
		gguf_key_u32(b, key, v);
}

/* A tensor of zeroes, enough of them for the types used here. */
static inline void
llama_tensor(GgufBuild *b, const LlamaBuild *m, const char *name, uint64_t rows, uint64_t cols)
{
	uint32_t type = 0;
	void *zeroes;

	if (!llama_wants(name, m->skip_tensor))
		return;
	if (m->alter_tensor != NULL && strcmp(name, m->alter_tensor) == 0)
	{
		rows = m->alter_rows;
		cols = m->alter_cols;
		type = m->alter_type;
	}
	zeroes = calloc((rows > 0 ? rows : 1) * cols, sizeof(float));
	if (zeroes == NULL)
		exit(2);
	gguf_tensor(b, name, rows, cols, type, zeroes, (rows > 0 ? rows : 1) * cols * sizeof(float));
	free(zeroes);
}

static inline void
llama_layer(GgufBuild *b, const LlamaBuild *m, uint32_t layer)
{
	uint64_t head_dim = m->n_heads > 0 ? m->dim / m->n_heads : 1;
	uint64_t q = head_dim * m->n_heads, kv = head_dim * m->n_kv_heads;
	const struct
	{
		const char *name;
		uint64_t rows, cols;
	} parts[] = {
		{"attn_norm", 0, m->dim},        {"attn_q", q, m->dim},
		{"attn_k", kv, m->dim},          {"attn_v", kv, m->dim},
		{"attn_output", m->dim, q},      {"ffn_norm", 0, m->dim},
		{"ffn_gate", m->hidden, m->dim}, {"ffn_up", m->hidden, m->dim},
		{"ffn_down", m->dim, m->hidden},
	};
	char name[64];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
	{
		snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, parts[i].name);
		llama_tensor(b, m, name, parts[i].rows, parts[i].cols > 0 ? parts[i].cols : 1);
	}
}

/* The file; free() it. */
static inline uint8_t *
llama_build(const LlamaBuild *m, size_t *nbytes)
{
	GgufBuild b = {0};
	uint32_t n_layers = m->n_layers < 4 ? m->n_layers : 1; /* absurd counts are only told */

	gguf_key_str(&b, "general.architecture", "llama");
	llama_key_u32(&b, m, "llama.block_count", m->n_layers);
	llama_key_u32(&b, m, "llama.context_length", m->context);
	llama_key_u32(&b, m, "llama.embedding_length", m->dim);
	llama_key_u32(&b, m, "llama.feed_forward_length", m->hidden);
	llama_key_u32(&b, m, "llama.attention.head_count", m->n_heads);
	llama_key_u32(&b, m, "llama.attention.head_count_kv", m->n_kv_heads);
	if (llama_wants("llama.attention.layer_norm_rms_epsilon", m->skip_key))
		gguf_key_f32(&b, "llama.attention.layer_norm_rms_epsilon", m->eps);
	if (m->n_tokens > 0)
	{
		gguf_key_array(&b, "tokenizer.ggml.tokens", 8, m->n_tokens);
		for (uint32_t i = 0; i < m->n_tokens; i++)
			gguf_put_str(&b.kv, "t");
	}
	llama_tensor(&b, m, "token_embd.weight", m->vocab, m->dim);
	for (uint32_t i = 0; i < n_layers; i++)
		llama_layer(&b, m, i);
	llama_tensor(&b, m, "output_norm.weight", 0, m->dim);
	llama_tensor(&b, m, "output.weight", m->vocab, m->dim);
	if (m->more != NULL)
		m->more(&b);
	return gguf_build_end(&b, nbytes);
}

#endif
