/*
 * tokenizer/vocab.c - the tokens of a byte-level vocabulary: id to bytes and bytes to id.
 *
 * GPT-2's map (Radford et al. 2019, published with the model): the bytes 33..126, 161..172 and
 * 174..255 stand for themselves as code points; the other 68, in ascending order, are written as the
 * code points from 256 on. A space is so U+0120 and a line feed U+010A.
 */
#include "tokenizer/vocab.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static void
build_map(int16_t map[LLM_VOCAB_STAND_INS])
{
	int next = 256;

	for (int cp = 0; cp < LLM_VOCAB_STAND_INS; cp++)
		map[cp] = -1;
	for (int b = 0; b < 256; b++)
	{
		bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

		map[itself ? b : next++] = (int16_t) b;
	}
}

bool
llm_vocab_unmap(const LlmVocab *v, LlmStr s, char *out, size_t *n)
{
	size_t len = 0;

	for (size_t i = 0; i < s.len; i++)
	{
		unsigned cp = (unsigned char) s.p[i];

		if (cp >= 0xE0)
			return false; /* three bytes or more: beyond the map */
		if (cp >= 0xC0)
			cp = (cp & 0x1F) << 6 | ((unsigned char) s.p[++i] & 0x3F);
		if (cp >= LLM_VOCAB_STAND_INS || v->map[cp] < 0)
			return false;
		out[len++] = (char) v->map[cp];
	}
	*n = len;
	return true;
}

/* ---- strings to ids ---- */

/* The slot that holds the string, or the free one where it would go. */
static LlmVocabSlot *
probe(LlmVocabSlot *slots, uint32_t mask, const LlmStr *key, const char *p, size_t n, uint32_t *tag)
{
	uint64_t h = XXH3_64bits(p, n);
	uint32_t i = (uint32_t) h & mask;

	*tag = (uint32_t) (h >> 32);
	for (;; i = (i + 1) & mask)
	{
		LlmVocabSlot *s = &slots[i];

		if (s->id < 0)
			return s;
		if (s->tag == *tag && key[s->id].len == n && memcmp(key[s->id].p, p, n) == 0)
			return s;
	}
}

/* Add id under its key; the id that was there before, or -1. An earlier one stays. */
static int32_t
insert(LlmVocabSlot *slots, uint32_t mask, const LlmStr *key, int32_t id)
{
	uint32_t tag;
	LlmVocabSlot *s = probe(slots, mask, key, key[id].p, key[id].len, &tag);

	if (s->id >= 0)
		return s->id;
	s->tag = tag;
	s->id = id;
	return -1;
}

int32_t
llm_vocab_find(const LlmVocab *v, const char *p, size_t n)
{
	uint32_t tag;

	return probe(v->by_bytes, v->mask, v->bytes, p, n, &tag)->id;
}

static void
clear_index(LlmVocab *v)
{
	memset(v->by_bytes, 0xFF, ((size_t) v->mask + 1) * sizeof(*v->by_bytes));
}

/* No two tokens have one text. Uses the table that will hold the bytes. */
static LlmStatus
check_unique(LlmVocab *v, LlmError *err)
{
	clear_index(v);
	for (int32_t id = 0; id < v->n; id++)
	{
		int32_t other;

		if (v->text[id].len == 0)
			continue;
		other = insert(v->by_bytes, v->mask, v->text, id);
		if (other >= 0)
			return llm_error_set(err, LLM_E_MODEL,
								 "tokenizer.ggml.tokens: tokens %d and %d have the same text",
								 other, id);
	}
	return LLM_OK;
}

static void
index_bytes(LlmVocab *v)
{
	clear_index(v);
	for (int pass = 0; pass < 3; pass++)
		for (int32_t id = 0; id < v->n; id++)
		{
			int rank = v->mapped[id] ? 0 : v->type[id] == LLM_TOKEN_USER_DEFINED ? 1 : 2;

			if (rank == pass && v->bytes[id].len > 0)
				insert(v->by_bytes, v->mask, v->bytes, id);
		}
	for (int b = 0; b < 256; b++)
	{
		char c = (char) b;
		int32_t id = llm_vocab_find(v, &c, 1);

		v->byte_id[b] = id >= 0 && v->mapped[id] ? id : -1;
	}
}

/* ---- reading ---- */

static LlmStatus
check_token(const LlmVocabSpec *spec, int32_t id, LlmError *err)
{
	LlmStr s = spec->text[id];
	int32_t type = spec->type == NULL ? LLM_TOKEN_NORMAL : spec->type[id];

	if (s.len > LLM_VOCAB_TOKEN_NBYTES_MAX)
	{
		llm_error_set(err, LLM_E_MODEL,
					  "tokenizer.ggml.tokens: token %d has %zu bytes, the limit is %d", id, s.len,
					  LLM_VOCAB_TOKEN_NBYTES_MAX);
		llm_error_numbers(err, (int64_t) s.len, LLM_VOCAB_TOKEN_NBYTES_MAX);
		return LLM_E_MODEL;
	}
	if (!llm_utf8_valid(s.p, s.len))
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.tokens: token %d is not valid UTF-8",
							 id);
	if (type < LLM_TOKEN_NORMAL || type > LLM_TOKEN_UNUSED)
		return llm_error_set(err, LLM_E_MODEL,
							 "tokenizer.ggml.token_type: token %d has type %d, which byte-level "
							 "vocabularies do not have",
							 id, type);
	return LLM_OK;
}

/* Copy one checked token. A normal token with a character outside the map stands for its own text
 * (as the reference decodes it) and is never produced. False when memory is out. */
static bool
copy_token(LlmVocab *v, const LlmVocabSpec *spec, int32_t id)
{
	LlmStr s = spec->text[id];
	char *bytes;
	size_t n;

	v->type[id] = (uint8_t) (spec->type == NULL ? LLM_TOKEN_NORMAL : spec->type[id]);
	v->text[id].p = llm_arena_copy(&v->arena, s.p, s.len);
	v->text[id].len = s.len;
	v->bytes[id] = v->text[id];
	if (v->text[id].p == NULL)
		return false;
	if (v->type[id] != LLM_TOKEN_NORMAL || s.len == 0)
		return true;
	bytes = llm_arena_alloc(&v->arena, s.len);
	if (bytes == NULL)
		return false;
	v->mapped[id] = llm_vocab_unmap(v, s, bytes, &n);
	if (v->mapped[id])
		v->bytes[id] = (LlmStr){bytes, n};
	return true;
}

LlmStatus
llm_vocab_init(LlmVocab *v, const LlmVocabSpec *spec, LlmError *err)
{
	size_t n_slots = 16;

	if (spec->n_vocab <= 0 || spec->text == NULL)
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.tokens is empty");
	v->n = spec->n_vocab;
	while (n_slots < (size_t) v->n * 2)
		n_slots *= 2;
	v->mask = (uint32_t) (n_slots - 1);
	v->text = llm_arena_array(&v->arena, (size_t) v->n, sizeof(*v->text));
	v->bytes = llm_arena_array(&v->arena, (size_t) v->n, sizeof(*v->bytes));
	v->type = llm_arena_array(&v->arena, (size_t) v->n, sizeof(*v->type));
	v->by_bytes = llm_arena_array(&v->arena, n_slots, sizeof(*v->by_bytes));
	v->mapped = llm_arena_array(&v->arena, (size_t) v->n, sizeof(*v->mapped));
	if (v->text == NULL || v->bytes == NULL || v->type == NULL || v->by_bytes == NULL ||
		v->mapped == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a vocabulary of %d tokens",
							 v->n);
	build_map(v->map);
	for (int32_t id = 0; id < v->n; id++)
	{
		LlmStatus st = check_token(spec, id, err);

		if (st != LLM_OK)
			return st;
		if (!copy_token(v, spec, id))
			return llm_error_set(err, LLM_E_MEMORY, "out of memory for a vocabulary of %d tokens",
								 v->n);
	}
	if (check_unique(v, err) != LLM_OK)
		return LLM_E_MODEL;
	index_bytes(v);
	return LLM_OK;
}

void
llm_vocab_fini(LlmVocab *v)
{
	llm_arena_fini(&v->arena);
	memset(v, 0, sizeof(*v));
}
