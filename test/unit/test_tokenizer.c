/*
 * test_tokenizer.c - ids equal those of the reference, for texts of every kind and length.
 *
 * links: tokenizer core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <time.h>

#include "core/rng.h"
#include "golden_vocab.h"

/* CPU time for a megabyte; memory that is checked costs a few times as much. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECKED_MEMORY
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CHECKED_MEMORY
#endif
#ifdef CHECKED_MEMORY
#define RUN_SECONDS_MAX 5.0
#else
#define RUN_SECONDS_MAX 1.0
#endif

#define LLAMA3_DIR "test/golden/tok/bpe512-llama3"
#define GPT2_DIR "test/golden/tok/bpe1000-gpt2"

static LlmTokens
encode_trusted(const LlmTokenizer *tok, LlmStr text, bool trusted)
{
	LlmSpan all = {0, text.len, trusted};

	return golden_encode(tok, text, &all, 1);
}

static void
assert_ids(const LlmTokens *got, const json_t *want, const char *what, const char *text)
{
	size_t n = json_array_size(want);
	bool same = got->len == n;

	for (size_t i = 0; same && i < n; i++)
		same = got->ids[i] == json_integer_value(json_array_get(want, i));
	if (!same)
		fail_msg("%s of '%s': %zu ids, the reference has %zu or other ones", what, text, got->len,
				 n);
}

/* ---- against the reference ---- */

static void
check_line(const LlmTokenizer *tok, const json_t *line)
{
	LlmStr text = golden_str(json_object_get(line, "text"));
	const json_t *with_bos = json_object_get(line, "ids_bos");
	LlmTokens ids = encode_trusted(tok, text, true);
	LlmTokens plain = encode_trusted(tok, text, false);
	LlmTokens bare = golden_encode(tok, text, NULL, 0);
	LlmTokens full = {0};

	assert_ids(&ids, json_object_get(line, "ids"), "ids", text.p);
	assert_ids(&plain, json_object_get(line, "ids_plain"), "plain ids", text.p);
	assert_ids(&bare, json_object_get(line, "ids_plain"), "ids without spans", text.p);
	if (llm_tokenizer_adds_bos(tok))
		assert_true(llm_tokens_push(&full, llm_tokenizer_bos(tok)));
	assert_true(llm_tokens_append(&full, ids.ids, ids.len));
	assert_ids(&full, with_bos, "ids with bos", text.p);
	golden_assert_round_trip(tok, &ids, golden_str(json_object_get(line, "decoded")));
	llm_tokens_fini(&ids);
	llm_tokens_fini(&plain);
	llm_tokens_fini(&bare);
	llm_tokens_fini(&full);
}

static void
check_golden(const char *dir, const char *pre, int32_t bos)
{
	char path[200], buf[65536];
	GoldenVocab g;
	LlmTokenizer *tok;
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	golden_open(&g, path, pre);
	g.spec.bos = bos;
	tok = golden_create(&g.spec);
	golden_close(&g);
	snprintf(path, sizeof(path), "%s/golden.jsonl", dir);
	f = fopen(path, "r");
	assert_non_null(f);
	for (; fgets(buf, sizeof(buf), f) != NULL; n++)
	{
		json_t *line = json_loads(buf, JSON_ALLOW_NUL, NULL);

		assert_non_null(line);
		check_line(tok, line);
		json_decref(line);
	}
	fclose(f);
	assert_int_equal(n, 100);
	llm_tokenizer_free(tok);
}

static void
test_golden_llama3(void **state)
{
	check_golden(LLAMA3_DIR, "llama-bpe", 496);
}

static void
test_golden_gpt2(void **state)
{
	check_golden(GPT2_DIR, "gpt-2", -1);
}

/* ---- merges ---- */

/* Merge by the definition: the best rule, its leftmost place, again and again. */
static size_t
merge_naively(const GoldenVocab *g, LlmStr *sym, size_t n)
{
	for (;;)
	{
		int32_t best = g->spec.n_merges;
		size_t at = 0;

		for (size_t i = 0; i + 1 < n; i++)
			for (int32_t r = 0; r < best; r++)
			{
				LlmStr m = g->merges[r];

				if (m.len == sym[i].len + 1 + sym[i + 1].len && m.p[sym[i].len] == ' ' &&
					memcmp(m.p, sym[i].p, sym[i].len) == 0 &&
					memcmp(m.p + sym[i].len + 1, sym[i + 1].p, sym[i + 1].len) == 0)
				{
					best = r;
					at = i;
				}
			}
		if (best == g->spec.n_merges)
			return n;
		sym[at].len += sym[at + 1].len;
		memmove(&sym[at + 1], &sym[at + 2], (n - at - 2) * sizeof(*sym));
		n--;
	}
}

static void
test_merge_order(void **state)
{
	static const char letters[] = "etaoinshrdlucmfpge";
	GoldenVocab g;
	LlmTokenizer *tok;

	golden_open(&g, GPT2_DIR "/tokenizer.json", "gpt-2");
	tok = golden_create(&g.spec);
	for (uint32_t round = 0; round < 300; round++)
	{
		char text[64];
		LlmStr sym[64];
		size_t n = 1 + llm_rng_u32(2, round, 0) % 40, n_sym;
		LlmTokens ids;

		for (size_t i = 0; i < n; i++)
		{
			text[i] = letters[llm_rng_u32(2, round, 1 + (uint32_t) i) % (sizeof(letters) - 1)];
			sym[i] = (LlmStr){text + i, 1};
		}
		n_sym = merge_naively(&g, sym, n);
		ids = golden_encode(tok, (LlmStr){text, n}, NULL, 0);
		assert_int_equal(ids.len, n_sym);
		for (size_t i = 0; i < n_sym; i++)
		{
			LlmStr s = llm_tokenizer_piece(tok, ids.ids[i], false);

			assert_int_equal(s.len, sym[i].len);
			assert_memory_equal(s.p, sym[i].p, s.len);
		}
		llm_tokens_fini(&ids);
	}
	llm_tokenizer_free(tok);
	golden_close(&g);
}

/* ---- texts of every kind ---- */

/* A random character of 1..4 bytes, printable ASCII half of the time, so that words occur. */
static size_t
random_char(char *p, uint32_t a, uint32_t b)
{
	static const uint32_t top[] = {0x80, 0x800, 0x10000, 0x110000};
	uint32_t c = llm_rng_u32(3, a, b);
	uint32_t kind = c & 7;

	c >>= 3;
	c = kind < 4 ? 0x20 + c % 0x5F : c % top[kind - 4];
	if (c >= 0xD800 && c < 0xE000)
		c = ' ';
	if (c < 0x80)
	{
		p[0] = (char) c;
		return 1;
	}
	if (c < 0x800)
	{
		p[0] = (char) (0xC0 | c >> 6);
		p[1] = (char) (0x80 | (c & 0x3F));
		return 2;
	}
	if (c < 0x10000)
	{
		p[0] = (char) (0xE0 | c >> 12);
		p[1] = (char) (0x80 | (c >> 6 & 0x3F));
		p[2] = (char) (0x80 | (c & 0x3F));
		return 3;
	}
	p[0] = (char) (0xF0 | c >> 18);
	p[1] = (char) (0x80 | (c >> 12 & 0x3F));
	p[2] = (char) (0x80 | (c >> 6 & 0x3F));
	p[3] = (char) (0x80 | (c & 0x3F));
	return 4;
}

static void
test_round_trips(void **state)
{
	static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "dbrx"};

	for (size_t k = 0; k < 4; k++)
	{
		LlmTokenizer *tok = golden_create_file(GPT2_DIR "/tokenizer.json", pres[k]);

		for (uint32_t round = 0; round < 1000; round++)
		{
			char text[1024];
			size_t len = 0;
			LlmTokens ids;

			for (uint32_t i = 0, n = llm_rng_u32(4, round, 0) % 200; i < n; i++)
				len += random_char(text + len, round, i);
			ids = encode_trusted(tok, (LlmStr){text, len}, round % 2 == 0);
			golden_assert_round_trip(tok, &ids, (LlmStr){text, len});
			llm_tokens_fini(&ids);
		}
		llm_tokenizer_free(tok);
	}
}

/* Words on both sides of the inline scratch's size: each word's ids stand for themselves. */
static void
test_scratch_borders(void **state)
{
	LlmTokenizer *tok = golden_create_file(GPT2_DIR "/tokenizer.json", "gpt-2");

	for (size_t n = 100; n < 300; n++)
	{
		char word[300], twice[601];
		LlmTokens one, two;

		for (size_t i = 0; i < n; i++)
			word[i] = (char) ('a' + llm_rng_u32(5, 0, (uint32_t) i) % 26);
		memcpy(twice, word, n);
		twice[n] = '\n';
		memcpy(twice + n + 1, word, n);
		one = golden_encode(tok, (LlmStr){word, n}, NULL, 0);
		two = golden_encode(tok, (LlmStr){twice, 2 * n + 1}, NULL, 0);
		assert_int_equal(two.len, 2 * one.len + 1);
		assert_memory_equal(two.ids, one.ids, one.len * sizeof(*one.ids));
		assert_memory_equal(two.ids + one.len + 1, one.ids, one.len * sizeof(*one.ids));
		golden_assert_round_trip(tok, &one, (LlmStr){word, n});
		llm_tokens_fini(&one);
		llm_tokens_fini(&two);
	}
	llm_tokenizer_free(tok);
}

/* A megabyte that the pre-tokeniser cannot cut, or cuts at every byte: no more than a second. */
static void
test_long_runs(void **state)
{
	static const char *const runs[] = {"a", " ", "\n", " \n", "1",
									   "'", "<", "é",  "x ",  "<|im_end|"};
	static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe"};
	size_t len = (size_t) 1 << 20;
	char *text = malloc(len);

	assert_non_null(text);
	for (size_t k = 0; k < 3; k++)
	{
		LlmTokenizer *tok = golden_create_file(LLAMA3_DIR "/tokenizer.json", pres[k]);

		for (size_t r = 0; r < sizeof(runs) / sizeof(runs[0]); r++)
		{
			size_t unit = strlen(runs[r]), n = len / unit * unit;
			clock_t begin = clock();
			LlmTokens ids;
			double seconds;

			for (size_t i = 0; i < n; i++)
				text[i] = runs[r][i % unit];
			ids = encode_trusted(tok, (LlmStr){text, n}, true);
			seconds = (double) (clock() - begin) / CLOCKS_PER_SEC;
			golden_assert_round_trip(tok, &ids, (LlmStr){text, n});
			llm_tokens_fini(&ids);
			if (seconds > RUN_SECONDS_MAX)
				fail_msg("a run of '%s' took %.2f s with %s", runs[r], seconds, pres[k]);
		}
		llm_tokenizer_free(tok);
	}
	free(text);
}

static void
test_word_limit(void **state)
{
	LlmTokenizer *tok = golden_create_file(LLAMA3_DIR "/tokenizer.json", "llama-bpe");
	size_t len = ((size_t) 8 << 20) + 1;
	char *text = malloc(len);
	LlmTokens out = {0};
	LlmError err;

	assert_non_null(text);
	memset(text, 'q', len);
	assert_true(llm_tokens_push(&out, 7));
	assert_int_equal(llm_tokenizer_encode(tok, (LlmStr){text, len}, NULL, 0, &out, &err),
					 LLM_E_INVALID);
	assert_int_equal(err.got, len);
	assert_int_equal(err.limit, len - 1);
	assert_int_equal(out.len, 1);
	llm_tokens_fini(&out);
	free(text);
	llm_tokenizer_free(tok);
}

static void
test_bad_text(void **state)
{
	static const char *const bad[] = {"\xFF", "a\xC3", "\xED\xA0\x80", "\xC0\x80",
									  "<|im_end|>\x80"};
	LlmTokenizer *tok = golden_create_file(LLAMA3_DIR "/tokenizer.json", "llama-bpe");
	LlmTokens out = {0};
	LlmError err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(llm_tokenizer_encode(tok, llm_str(bad[i]), NULL, 0, &out, &err),
						 LLM_E_ENCODING);
	llm_tokenizer_free(tok);
	llm_tokens_fini(&out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_llama3),   cmocka_unit_test(test_golden_gpt2),
		cmocka_unit_test(test_merge_order),     cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_scratch_borders), cmocka_unit_test(test_long_runs),
		cmocka_unit_test(test_word_limit),      cmocka_unit_test(test_bad_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
