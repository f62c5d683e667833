/* engine/vocab_source.c - vocabularies as arrays for the tokenizer. */
#include "engine/vocab_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

#define NAME_CAP 64 /* bytes of a tokenizer's or pre-tokenizer's name, with the terminator */

/* ---- GGUF ---- */

/* A name as a C string; '' when the key is absent. */
static LlmStatus
name_read(const LlmGguf *g, const char *key, bool required, char out[NAME_CAP], LlmError *err)
{
	LlmStr s = {0};
	LlmStatus st = llm_gguf_str(g, key, required, &s, err);

	out[0] = '\0';
	if (st != LLM_OK || s.len == 0)
		return st;
	if (s.len >= NAME_CAP || memchr(s.p, '\0', s.len) != NULL)
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" is no name of a tokenizer", key);
	memcpy(out, s.p, s.len);
	out[s.len] = '\0';
	return LLM_OK;
}

/* A token id as the file has it; -1 when the key is absent. */
static LlmStatus
id_read(const LlmGguf *g, const char *key, int64_t *out, LlmError *err)
{
	uint32_t id = 0;
	LlmStatus st = llm_gguf_u32(g, key, false, &id, err);

	*out = llm_gguf_has(g, key) ? (int64_t) id : -1;
	return st;
}

static LlmStatus
arrays_read(const LlmGguf *g, LlmVocabSpec *v, LlmError *err)
{
	const char *tokens_key = "tokenizer.ggml.tokens";
	const char *types_key = "tokenizer.ggml.token_type";
	const char *merges_key = "tokenizer.ggml.merges";
	uint64_t n_tokens = 0, n_types = 0, n_merges = 0;
	LlmStatus st;

	if ((st = llm_gguf_str_array(g, tokens_key, true, &v->text, &n_tokens, err)) != LLM_OK ||
		(st = llm_gguf_i32_array(g, types_key, false, &v->type, &n_types, err)) != LLM_OK ||
		(st = llm_gguf_str_array(g, merges_key, false, &v->merges, &n_merges, err)) != LLM_OK)
		return st;
	if (n_tokens == 0 || n_tokens > INT32_MAX)
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" holds %llu tokens", tokens_key,
							 (unsigned long long) n_tokens);
	if (llm_gguf_has(g, types_key) && n_types != n_tokens)
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" has %llu entries for %llu tokens",
							 types_key, (unsigned long long) n_types,
							 (unsigned long long) n_tokens);
	if (n_merges > INT32_MAX)
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" holds %llu merges", merges_key,
							 (unsigned long long) n_merges);
	v->n_vocab = (int32_t) n_tokens;
	v->n_merges = (int32_t) n_merges;
	return LLM_OK;
}

LlmStatus
llm_vocab_source_gguf(const LlmGguf *g, LlmTokenizer **tok, LlmError *err)
{
	const char *add_bos_key = "tokenizer.ggml.add_bos_token";
	char model[NAME_CAP], pre[NAME_CAP];
	LlmVocabSpec v = {.model = model, .add_bos = -1};
	bool add_bos = false;
	LlmStatus st;

	if ((st = name_read(g, "tokenizer.ggml.model", true, model, err)) != LLM_OK ||
		(st = name_read(g, "tokenizer.ggml.pre", false, pre, err)) != LLM_OK ||
		(st = arrays_read(g, &v, err)) != LLM_OK ||
		(st = id_read(g, "tokenizer.ggml.bos_token_id", &v.bos, err)) != LLM_OK ||
		(st = id_read(g, "tokenizer.ggml.eos_token_id", &v.eos, err)) != LLM_OK ||
		(st = id_read(g, "tokenizer.ggml.eot_token_id", &v.eot, err)) != LLM_OK ||
		(st = id_read(g, "tokenizer.ggml.eom_token_id", &v.eom, err)) != LLM_OK ||
		(st = llm_gguf_bool(g, add_bos_key, false, &add_bos, err)) != LLM_OK)
		return st;
	v.pre = llm_gguf_has(g, "tokenizer.ggml.pre") ? pre : NULL;
	if (llm_gguf_has(g, add_bos_key))
		v.add_bos = add_bos;
	return llm_tokenizer_create(&v, tok, err);
}

/* ---- bytes ---- */

LlmStatus
llm_vocab_source_bytes(const LlmByteVocab *b, LlmTokenizer **tok, LlmError *err)
{
	LlmVocabSpec v = {.model = "gpt2",
					  .pre = "gpt-2",
					  .n_vocab = b->n_vocab,
					  .bos = b->begin,
					  .eos = b->end,
					  .eot = -1,
					  .eom = -1,
					  .add_bos = 1};
	LlmArena arena = {0};
	LlmStr *text = llm_arena_array(&arena, (size_t) b->n_vocab, sizeof(*text));
	int32_t *type = llm_arena_array(&arena, (size_t) b->n_vocab, sizeof(*type));
	char(*memory)[24] = llm_arena_array(&arena, (size_t) b->n_vocab, sizeof(*memory));
	int stand_in = 256; /* code point of the next byte that does not stand for itself */
	LlmStatus st;

	if (text == NULL || type == NULL || memory == NULL)
	{
		llm_arena_fini(&arena);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a vocabulary");
	}
	for (int32_t id = 0; id < b->n_vocab; id++)
	{
		const char *control = id == b->begin  ? "<|begin|>"
							  : id == b->end  ? "<|im_end|>"
							  : id == b->turn ? "<|im_start|>"
											  : NULL;

		type[id] = control != NULL ? LLM_TOKEN_CONTROL
				   : id < 256      ? LLM_TOKEN_NORMAL
								   : LLM_TOKEN_UNUSED;
		if (control != NULL)
			snprintf(memory[id], sizeof(*memory), "%s", control);
		else if (id < 256) /* by the map that tokenizer/vocab.c has */
		{
			bool itself = (id >= 33 && id <= 126) || (id >= 161 && id <= 172) || id >= 174;
			int cp = itself ? id : stand_in++;

			if (cp < 0x80)
				memory[id][0] = (char) cp; /* the arena is zeroed */
			else
				snprintf(memory[id], sizeof(*memory), "%c%c", 0xC0 | cp >> 6, 0x80 | (cp & 0x3F));
		}
		else
			snprintf(memory[id], sizeof(*memory), "<unused%d>", id);
		text[id] = llm_str(memory[id]);
	}
	v.text = text;
	v.type = type;
	st = llm_tokenizer_create(&v, tok, err);
	llm_arena_fini(&arena);
	return st;
}

const char *
llm_vocab_source_bytes_template(void)
{
	return "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
		   "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
		   "{% if enable_thinking is defined %}<think>\n"
		   "{% if not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}{% endif %}";
}
