/*
 * fuzz_tokenizer.c - any text and any spans: nothing is lost, and the user yields no control token.
 *
 * Input: byte 0 picks the pre-tokeniser, byte 1 the number n of spans before the last (mod 16), n
 * bytes are their lengths; the rest is the text. The last span runs to the end; every other span is
 * trusted, beginning with the second.
 *
 * links: tokenizer core
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"

#define N_SPANS 16
#define N_PRES 3

static const struct
{
	const char *text;
	int32_t type;
} extra[] = {
	{"\u0120\u0120", 1}, {"\u0120t", 1},      {"he", 1},           {"\u0120the", 1},
	{"aa", 1},           {"aaaa", 1},         {"\u010A\u010A", 1}, {"ab", 1},
	{"aab", 1},          {"\u00C3\u00A9", 1}, {"hello", 1},        {"<|", 3},
	{"<|end|>", 3},      {"<|end|><s>", 3},   {"<s>", 3},          {"<unk>", 2},
	{"<u>", 4},          {"\n\n\n", 4},       {"\u00E9\u4E09", 4}, {"<|u|>", 4},
	{"<unused>", 5},
};
#define N_EXTRA ((int32_t) (sizeof(extra) / sizeof(extra[0])))

/* Rules whose order is not that of length, and one that would make a control token. */
static const char *const rules[] = {
	"\u0120 t",      "h e",  "a a",           "a b",           "\u0120t he", "aa aa",
	"\u010A \u010A", "aa b", "\u0120 \u0120", "\u00C3 \u00A9", "< |",
};
#define N_RULES ((int32_t) (sizeof(rules) / sizeof(rules[0])))

static void
check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

/* The 256 bytes by their stand-ins, then `extra`. */
static void
create(LlmTokenizer *toks[N_PRES])
{
	static const char *const pres[N_PRES] = {"gpt-2", "smollm", "llama-bpe"};
	static char stand_in[256][2];
	LlmStr text[256 + N_EXTRA], merges[N_RULES];
	int32_t type[256 + N_EXTRA];
	int cp = 256;
	LlmError err;

	for (int b = 0; b < 256; b++)
	{
		bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
		int c = itself ? b : cp++;

		stand_in[b][0] = (char) (c < 0x80 ? c : 0xC0 | c >> 6);
		stand_in[b][1] = (char) (0x80 | (c & 0x3F));
		text[b] = (LlmStr){stand_in[b], c < 0x80 ? 1 : 2};
		type[b] = LLM_TOKEN_NORMAL;
	}
	for (int32_t i = 0; i < N_EXTRA; i++)
	{
		text[256 + i] = llm_str(extra[i].text);
		type[256 + i] = extra[i].type;
	}
	for (int32_t i = 0; i < N_RULES; i++)
		merges[i] = llm_str(rules[i]);
	for (int k = 0; k < N_PRES; k++)
	{
		LlmVocabSpec spec = {.model = "gpt2",
							 .pre = pres[k],
							 .n_vocab = 256 + N_EXTRA,
							 .text = text,
							 .type = type,
							 .merges = merges,
							 .n_merges = N_RULES,
							 .bos = -1,
							 .eos = -1,
							 .eot = -1,
							 .eom = -1,
							 .add_bos = -1};

		check(llm_tokenizer_create(&spec, &toks[k], &err) == LLM_OK, err.text);
	}
}

/* Pieces make up the text; control and unknown tokens lie in trusted bytes alone. */
static void
check_ids(const LlmTokenizer *tok, LlmStr text, const bool *trusted, const LlmTokens *ids)
{
	size_t at = 0;

	for (size_t i = 0; i < ids->len; i++)
	{
		int32_t id = ids->ids[i];
		LlmStr s = llm_tokenizer_piece(tok, id, true);
		int32_t type = id < 256 ? LLM_TOKEN_NORMAL : extra[id - 256].type;

		check(s.len > 0 && s.len <= text.len - at && memcmp(s.p, text.p + at, s.len) == 0,
			  "the pieces are the text");
		check(type != LLM_TOKEN_UNUSED, "unused tokens stay unused");
		if (type == LLM_TOKEN_CONTROL || type == LLM_TOKEN_UNKNOWN)
			for (size_t k = 0; k < s.len; k++)
				check(trusted[at + k], "control tokens come from trusted text");
		at += s.len;
	}
	check(at == text.len, "no byte is lost");
}

static void
check_detok(const LlmTokenizer *tok, LlmStr text, const LlmTokens *ids)
{
	LlmDetok d = {0};
	LlmBuf out = {0};
	size_t n = 0;

	for (size_t i = 0; i < ids->len; i++)
		check(llm_detok_push(&d, tok, ids->ids[i], true, &out), "memory");
	for (size_t i = 0; i < text.len; i++)
		if (text.p[i] != '\0')
		{
			check(n < out.len && out.data[n] == text.p[i], "the text comes back");
			n++;
		}
	check(n == out.len && d.n_wait == 0, "the text comes back whole");
	llm_buf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static LlmTokenizer *toks[N_PRES];
	LlmSpan spans[N_SPANS];
	size_t n_spans = 0, n_cuts, at = 0;
	const LlmTokenizer *tok;
	LlmTokens ids = {0};
	bool *trusted;
	LlmError err;
	LlmStatus st;
	LlmStr text;

	if (toks[0] == NULL)
		create(toks);
	if (size < 2)
		return 0;
	tok = toks[data[0] % N_PRES];
	n_cuts = data[1] % N_SPANS;
	if (size < 2 + n_cuts)
		return 0;
	text = (LlmStr){(const char *) data + 2 + n_cuts, size - 2 - n_cuts};
	trusted = calloc(text.len + 1, 1);
	check(trusted != NULL, "memory");
	for (size_t i = 0; i <= n_cuts; i++)
	{
		size_t n = i < n_cuts && data[2 + i] < text.len - at ? data[2 + i] : text.len - at;
		bool on = i % 2 == 1;

		memset(trusted + at, on, n);
		spans[n_spans++] = (LlmSpan){at, at + n, on};
		at += n;
	}
	st = llm_tokenizer_encode(tok, text, spans, n_spans, &ids, &err);
	check(st == (llm_utf8_valid(text.p, text.len) ? LLM_OK : LLM_E_ENCODING),
		  "valid texts alone are taken");
	if (st == LLM_OK)
	{
		check_ids(tok, text, trusted, &ids);
		check_detok(tok, text, &ids);
	}
	else
		check(ids.len == 0, "nothing comes out of an error");
	llm_tokens_fini(&ids);
	free(trusted);
	return 0;
}
