/* golden_vocab.h - a tokenizer of test/golden/tok, read from its tokenizer.json; for tests alone. */
#ifndef GOLDEN_VOCAB_H
#define GOLDEN_VOCAB_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

/* Owns what spec points to; spec may be changed before it is used. */
typedef struct GoldenVocab
{
	json_t *root;
	LlmBuf rules; /* "left right" of all merges, one after the other */
	LlmStr *text;
	int32_t *type;
	LlmStr *merges;
	LlmVocabSpec spec;
} GoldenVocab;

static inline LlmStr
golden_str(const json_t *s)
{
	return (LlmStr){json_string_value(s), json_string_length(s)};
}

/* The "left right" form that model files have. */
static inline void
golden_read_merges(GoldenVocab *g, const json_t *merges)
{
	size_t i, at = 0;
	const json_t *rule;

	g->merges = calloc(json_array_size(merges) + 1, sizeof(*g->merges));
	json_array_foreach(merges, i, rule)
	{
		LlmStr left = golden_str(json_array_get(rule, 0));
		LlmStr right = golden_str(json_array_get(rule, 1));

		assert_true(llm_buf_append(&g->rules, left.p, left.len) &&
					llm_buf_append(&g->rules, " ", 1) &&
					llm_buf_append(&g->rules, right.p, right.len));
		g->merges[i].len = left.len + 1 + right.len;
	}
	for (i = 0; i < json_array_size(merges); i++)
	{
		g->merges[i].p = g->rules.data + at;
		at += g->merges[i].len;
	}
	g->spec.merges = g->merges;
	g->spec.n_merges = (int32_t) json_array_size(merges);
}

/* Without special ids; added tokens that are special become control tokens, others user-defined. */
static inline void
golden_open(GoldenVocab *g, const char *path, const char *pre)
{
	const json_t *vocab, *added, *token;
	const char *key;
	size_t i, n;

	memset(g, 0, sizeof(*g));
	g->root = json_load_file(path, JSON_ALLOW_NUL, NULL);
	assert_non_null(g->root);
	vocab = json_object_get(json_object_get(g->root, "model"), "vocab");
	added = json_object_get(g->root, "added_tokens");
	n = json_object_size(vocab) + json_array_size(added);
	g->text = calloc(n, sizeof(*g->text));
	g->type = calloc(n, sizeof(*g->type));
	json_object_foreach((json_t *) vocab, key, token)
	{
		json_int_t id = json_integer_value(token);

		assert_true(id >= 0 && (size_t) id < n);
		g->text[id] = llm_str(key);
		g->type[id] = LLM_TOKEN_NORMAL;
		g->spec.n_vocab++;
	}
	json_array_foreach(added, i, token)
	{
		json_int_t id = json_integer_value(json_object_get(token, "id"));

		assert_true(id >= 0 && (size_t) id < n);
		if (g->type[id] == 0)
			g->spec.n_vocab++;
		g->text[id] = golden_str(json_object_get(token, "content"));
		g->type[id] = json_is_true(json_object_get(token, "special")) ? LLM_TOKEN_CONTROL
																	  : LLM_TOKEN_USER_DEFINED;
	}
	golden_read_merges(g, json_object_get(json_object_get(g->root, "model"), "merges"));
	g->spec.model = "gpt2";
	g->spec.pre = pre;
	g->spec.text = g->text;
	g->spec.type = g->type;
	g->spec.bos = g->spec.eos = g->spec.eot = g->spec.eom = -1;
	g->spec.add_bos = -1;
}

static inline void
golden_close(GoldenVocab *g)
{
	free(g->text);
	free(g->type);
	free(g->merges);
	llm_buf_fini(&g->rules);
	json_decref(g->root);
}

static inline LlmTokenizer *
golden_create(const LlmVocabSpec *spec)
{
	LlmTokenizer *tok = NULL;
	LlmError err = {0};

	if (llm_tokenizer_create(spec, &tok, &err) != LLM_OK)
		fail_msg("%s", err.text);
	return tok;
}

static inline LlmTokenizer *
golden_create_file(const char *path, const char *pre)
{
	GoldenVocab g;
	LlmTokenizer *tok;

	golden_open(&g, path, pre);
	tok = golden_create(&g.spec);
	golden_close(&g);
	return tok;
}

/* The caller frees the list. */
static inline LlmTokens
golden_encode(const LlmTokenizer *tok, LlmStr text, const LlmSpan *spans, size_t n_spans)
{
	LlmTokens out = {0};
	LlmError err = {0};

	if (llm_tokenizer_encode(tok, text, spans, n_spans, &out, &err) != LLM_OK)
		fail_msg("%s", err.text);
	return out;
}

/* The pieces of the ids make up the text again. */
static inline void
golden_assert_round_trip(const LlmTokenizer *tok, const LlmTokens *ids, LlmStr text)
{
	LlmBuf all = {0};

	for (size_t i = 0; i < ids->len; i++)
	{
		LlmStr s = llm_tokenizer_piece(tok, ids->ids[i], true);

		assert_true(s.len > 0 && llm_buf_append(&all, s.p, s.len));
	}
	assert_int_equal(all.len, text.len);
	if (text.len > 0)
		assert_memory_equal(all.data, text.p, text.len);
	llm_buf_fini(&all);
}

#endif
