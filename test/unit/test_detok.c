/*
 * test_detok.c - ids give whole characters, whatever their bytes and wherever they are cut.
 *
 * links: tokenizer core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "core/rng.h"
#include "golden_vocab.h"
#include "tokenizer/detok.h"

#define DIR "test/golden/tok/bpe512-llama3"
#define IM_END 502

/* What every test has: a tokenizer with a token for each byte. */
typedef struct Fixture
{
	LlmTokenizer *tok;
	int32_t byte_id[256];
} Fixture;

static int
setup(void **state)
{
	Fixture *f = calloc(1, sizeof(*f));
	LlmError err = {0};
	GoldenVocab g;

	golden_open(&g, DIR "/tokenizer.json", "llama-bpe");
	assert_int_equal(llm_tokenizer_create(&g.spec, &f->tok, &err), LLM_OK);
	golden_close(&g);
	for (int32_t id = 0; id < llm_tokenizer_vocab_size(f->tok); id++)
	{
		LlmStr s = llm_tokenizer_piece(f->tok, id, false);

		if (s.len == 1)
			f->byte_id[(unsigned char) s.p[0]] = id;
	}
	*state = f;
	return 0;
}

static int
teardown(void **state)
{
	Fixture *f = *state;

	llm_tokenizer_free(f->tok);
	free(f);
	return 0;
}

/* Feed bytes one token each, then end; compare all that came out. */
static void
expect(const Fixture *f, const char *bytes, size_t n, const char *want)
{
	LlmDetok d = {0};
	LlmBuf out = {0};

	for (size_t i = 0; i < n; i++)
	{
		assert_true(llm_detok_push(&d, f->tok, f->byte_id[(unsigned char) bytes[i]], false, &out));
		assert_true(llm_utf8_valid(out.data, out.len));
	}
	llm_detok_end(&d);
	assert_int_equal(d.n_wait, 0);
	assert_int_equal(out.len, strlen(want));
	if (out.len > 0)
		assert_memory_equal(out.data, want, out.len);
	llm_buf_fini(&out);
}

/* The decoded texts of the reference, with and without control tokens. */
static void
check_decoded(const Fixture *f, const json_t *line, const char *key, bool with_control)
{
	LlmStr want = golden_str(json_object_get(line, key));
	const json_t *ids = json_object_get(line, "ids"), *id;
	LlmDetok d = {0};
	LlmBuf out = {0};
	size_t i, n = 0;

	json_array_foreach(ids, i, id) assert_true(
		llm_detok_push(&d, f->tok, (int32_t) json_integer_value(id), with_control, &out));
	assert_int_equal(d.n_wait, 0);
	for (i = 0; i < want.len; i++) /* NUL is dropped: PostgreSQL has no text with it */
		if (want.p[i] != '\0')
		{
			assert_true(n < out.len && out.data[n] == want.p[i]);
			n++;
		}
	assert_int_equal(out.len, n);
	llm_buf_fini(&out);
}

static void
test_golden_decoded(void **state)
{
	const Fixture *f = *state;
	char buf[65536];
	FILE *file = fopen(DIR "/golden.jsonl", "r");
	int n = 0;

	assert_non_null(file);
	for (; fgets(buf, sizeof(buf), file) != NULL; n++)
	{
		json_t *line = json_loads(buf, JSON_ALLOW_NUL, NULL);

		assert_non_null(line);
		check_decoded(f, line, "decoded", true);
		check_decoded(f, line, "decoded_skip", false);
		json_decref(line);
	}
	fclose(file);
	assert_int_equal(n, 100);
}

/* Characters of four and three bytes over many tokens, cut at every place. */
static void
test_whole_characters(void **state)
{
	const Fixture *f = *state;
	static const char text[] = "a🦙三只小猫é.";
	static const size_t ends[] = {0, 1, 5, 8, 11, 14, 17, 19, 20};
	size_t done = 0, n_ends = sizeof(ends) / sizeof(ends[0]);

	assert_int_equal(ends[n_ends - 1], sizeof(text) - 1);
	for (size_t n = 0; n <= sizeof(text) - 1; n++)
	{
		char want[sizeof(text)];

		if (done + 1 < n_ends && n >= ends[done + 1])
			done++;
		memcpy(want, text, ends[done]);
		want[ends[done]] = '\0';
		expect(f, text, n, want);
	}
}

/* One U+FFFD for each maximal part of an impossible sequence. */
static void
test_impossible_bytes(void **state)
{
	static const struct
	{
		const char *bytes, *want;
	} cases[] = {
		{"\xFF", "\uFFFD"},
		{"a\x80\x80z", "a\uFFFD\uFFFDz"},
		{"\xE4\xB8"
		 "A",
		 "\uFFFDA"},
		{"\xF0\x9F\xA6\xF0\x9F\xA6\x99", "\uFFFD🦙"},
		{"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"\xC0\x80", "\uFFFD\uFFFD"},
		{"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"\xC3\xC3\xA9", "\uFFFDé"},
		{"\xF0\x9F\xA6\x99\xF0\x9F", "🦙"}, /* cut at the end: dropped */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect(*state, cases[i].bytes, strlen(cases[i].bytes), cases[i].want);
}

static void
test_nul_is_dropped(void **state)
{
	expect(*state, "a\0b\0", 4, "ab");
	expect(*state, "\xE4\0b", 3,
		   "\xEF\xBF\xBD"
		   "b");
}

static void
test_control_tokens(void **state)
{
	const Fixture *f = *state;
	LlmDetok d = {0};
	LlmBuf out = {0};

	assert_true(llm_detok_push(&d, f->tok, f->byte_id['a'], false, &out));
	assert_true(llm_detok_push(&d, f->tok, IM_END, false, &out));
	assert_string_equal(out.data, "a");
	assert_true(llm_detok_push(&d, f->tok, IM_END, true, &out));
	assert_string_equal(out.data, "a<|im_end|>");
	assert_true(llm_detok_push(&d, f->tok, -1, true, &out));
	assert_true(llm_detok_push(&d, f->tok, 512, true, &out));
	assert_string_equal(out.data, "a<|im_end|>");
	llm_buf_fini(&out);
}

/* Whatever a model says: what is out is whole characters without NUL, and grows by whole ones. */
static void
test_random_ids(void **state)
{
	const Fixture *f = *state;
	int32_t n = llm_tokenizer_vocab_size(f->tok);
	LlmDetok d = {0};
	LlmBuf out = {0};

	for (uint32_t i = 0; i < 100000; i++)
	{
		/* mostly the bytes of the upper half, which begin and continue characters */
		uint32_t r = llm_rng_u32(9, i, 0);
		int32_t id = r % 4 == 0 ? (int32_t) (r >> 2) % n : f->byte_id[0x80 | (r >> 2 & 0x7F)];
		size_t before = out.len;

		assert_true(llm_detok_push(&d, f->tok, id, true, &out));
		assert_true(d.n_wait >= 0 && d.n_wait < 4);
		if (out.len > before)
		{
			assert_true(llm_utf8_valid(out.data + before, out.len - before));
			assert_null(memchr(out.data + before, '\0', out.len - before));
		}
	}
	llm_buf_fini(&out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_decoded),   cmocka_unit_test(test_whole_characters),
		cmocka_unit_test(test_impossible_bytes), cmocka_unit_test(test_nul_is_dropped),
		cmocka_unit_test(test_control_tokens),   cmocka_unit_test(test_random_ids),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
