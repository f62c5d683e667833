/*
 * test_pretok.c - where each kind of pre-tokeniser cuts.
 *
 * links: tokenizer core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/rng.h"
#include "tokenizer/pretok.h"

static size_t
cut(LlmPretokWalk *w, const char *p, size_t len, size_t at, size_t *ends, size_t n)
{
	LlmError err = {0};

	for (size_t next; at < len; at = next)
	{
		if (llm_pretok_next(w, p, len, at, &next, &err) != LLM_OK)
			fail_msg("%s", err.text);
		ends[n++] = next;
	}
	return n;
}

static LlmPretok *
pretok(const char *name)
{
	LlmPretok *t = NULL;

	assert_non_null(llm_pretok_find(name));
	assert_int_equal(llm_pretok_create(llm_pretok_find(name), &t, NULL), LLM_OK);
	return t;
}

/* White space and its look-ahead, U+180E (no white space), NEL, contractions in both cases. */
static void
test_words(void **state)
{
	static const struct
	{
		const char *pre, *text;
		size_t n, ends[8];
	} cases[] = {
		{"gpt-2", "a  b", 3, {1, 2, 4}},
		{"gpt-2", "a  12 ", 4, {1, 2, 5, 6}},
		{"gpt-2", " \xE1\xA0\x8E.", 1, {5}},
		{"gpt-2", "\xC2\x85\xE3\x80\x80x", 3, {2, 5, 6}},
		{"gpt-2", "I'll I'LL", 6, {1, 4, 6, 7, 9}},
		{"smollm", "a  12 ", 5, {1, 3, 4, 5, 6}},
		{"smollm", "  \xC2\xBDx", 3, {2, 4, 5}},
		{"llama-bpe", "I'll I'LL", 4, {1, 4, 6, 9}},
		{"llama-bpe", "12345 .\n\n x", 5, {3, 5, 9, 11}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		LlmPretok *t = pretok(cases[i].pre);
		size_t len = strlen(cases[i].text), ends[16], n;
		LlmPretokWalk *w = llm_pretok_walk_create(t, len);

		n = cut(w, cases[i].text, len, 0, ends, 0);
		for (size_t k = 0; k < n && cases[i].ends[k] != 0; k++)
			if (ends[k] != cases[i].ends[k])
				fail_msg("%s of '%s': word %zu ends at %zu, not %zu", cases[i].pre, cases[i].text,
						 k, ends[k], cases[i].ends[k]);
		assert_int_equal(ends[n - 1], len);
		llm_pretok_walk_free(w);
		llm_pretok_free(t);
	}
}

/* The single pattern of the smollm kind cuts as the two passes do that it stands for: digits first,
 * then GPT-2's pattern over each piece as if it were the whole text. */
static void
test_words_two_passes(void **state)
{
	static const char *const parts[] = {" ", " ",  "\n", "\t", "a", "B",  "1",
										"7", "\'", "s",  ".",  "é", "日", "\xE3\x80\x80",
										"½", "\r", "ll", "Ⅷ"};
	LlmPretok *digits = pretok("smollm"), *gpt2 = pretok("gpt-2");
	LlmPretokWalk *wd = llm_pretok_walk_create(digits, 256);
	LlmPretokWalk *wg = llm_pretok_walk_create(gpt2, 256);

	for (uint32_t round = 0; round < 20000; round++)
	{
		char text[256];
		bool digit[256] = {false};
		size_t len = 0, got[256], want[256], n_got, n_want = 0, begin = 0;
		uint32_t n = 1 + llm_rng_u32(1, round, 0) % 12;

		for (uint32_t i = 1; i <= n; i++)
		{
			const char *s = parts[llm_rng_u32(1, round, i) % (sizeof(parts) / sizeof(parts[0]))];
			bool is = strcmp(s, "1") == 0 || strcmp(s, "7") == 0 || strcmp(s, "½") == 0 ||
					  strcmp(s, "Ⅷ") == 0;

			digit[len] |= is;
			memcpy(text + len, s, strlen(s));
			len += strlen(s);
			if (is)
				digit[len] = true; /* a cut after it as well */
		}
		for (size_t i = 1; i <= len; i++)
			if (digit[i] || i == len)
			{
				n_want = cut(wg, text, i, begin, want, n_want);
				begin = i;
			}
		n_got = cut(wd, text, len, 0, got, 0);
		if (n_got != n_want || memcmp(got, want, n_got * sizeof(*got)) != 0)
			fail_msg("'%.*s' is cut otherwise", (int) len, text);
	}
	llm_pretok_walk_free(wd);
	llm_pretok_walk_free(wg);
	llm_pretok_free(digits);
	llm_pretok_free(gpt2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_words_two_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
