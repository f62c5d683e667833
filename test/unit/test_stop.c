/*
 * test_stop.c - stop strings: the same text whatever the token borders, and nothing shown too early.
 *
 * links: engine core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "engine/stop.h"

/* Feed text in pieces of `cut` bytes (0: by the bits of seed); returns what is left, and whether a
 * stop string ended it. Also: what is shown at any time is a prefix of the final text. */
static bool
run(const char *text, const LlmStr *stops, int n, size_t cut, uint64_t seed, char *out)
{
	LlmStop s;
	LlmBuf buf = {0};
	size_t len = strlen(text);
	size_t shown = 0;
	char early[256];
	bool stopped = false;
	LlmError err;

	assert_int_equal(llm_stop_init(&s, stops, n, &err), LLM_OK);
	for (size_t i = 0; i < len && !stopped;)
	{
		size_t piece = cut != 0 ? cut : 1 + llm_rng_u32(seed, (uint32_t) i, 0) % 5;

		piece = piece < len - i ? piece : len - i;
		assert_true(llm_buf_append(&buf, text + i, piece));
		i += piece;
		stopped = llm_stop_scan(&s, &buf, true);
		if (!stopped)
		{
			assert_true(llm_stop_safe(&s) >= shown);
			shown = llm_stop_safe(&s);
			assert_true(shown <= buf.len);
			memcpy(early, buf.data, shown);
		}
	}
	assert_true(shown <= buf.len);
	if (buf.len > 0)
		memcpy(out, buf.data, buf.len);
	out[buf.len] = '\0';
	assert_memory_equal(early, out, shown);
	llm_buf_fini(&buf);
	llm_stop_fini(&s);
	return stopped;
}

/* The rule, written plainly: first end, then longest. */
static bool
expected(const char *text, const LlmStr *stops, int n, char *out)
{
	for (size_t end = 1; end <= strlen(text); end++)
	{
		size_t longest = 0;

		for (int i = 0; i < n; i++)
			if (stops[i].len <= end && stops[i].len > longest &&
				memcmp(text + end - stops[i].len, stops[i].p, stops[i].len) == 0)
				longest = stops[i].len;
		if (longest > 0)
		{
			memcpy(out, text, end - longest);
			out[end - longest] = '\0';
			return true;
		}
	}
	strcpy(out, text);
	return false;
}

static void
check_all_cuts(const char *text, const LlmStr *stops, int n, const char *want)
{
	char plain[256], got[256];
	bool stops_at = expected(text, stops, n, plain);

	assert_string_equal(plain, want);
	for (size_t cut = 0; cut <= strlen(text); cut++)
	{
		assert_int_equal(run(text, stops, n, cut, 7, got), stops_at);
		assert_string_equal(got, want);
	}
}

static void
the_reported_cases(void **state)
{
	LlmStr dots[] = {llm_str("..")};
	LlmStr newlines[] = {llm_str("\n\n")};
	LlmStr tag[] = {llm_str("</a>")};
	LlmStr words[] = {llm_str("beta gamma"), llm_str("gamma delta epsilon")};

	check_all_cuts("wait...", dots, 1, "wait");
	check_all_cuts("one.\n\ntwo", newlines, 1, "one.");
	check_all_cuts("<a>x</b></a>y", tag, 1, "<a>x</b>");
	check_all_cuts("alpha beta gamma delta", words, 2, "alpha ");
	check_all_cuts("no stop string here", tag, 1, "no stop string here");
}

static void
several_strings_end_at_the_first_end(void **state)
{
	LlmStr stops[] = {llm_str("abcd"), llm_str("bc"), llm_str("c")};
	LlmStr nested[] = {llm_str("b"), llm_str("aab")};

	check_all_cuts("xabcd", stops, 3, "xa");
	check_all_cuts("xac", stops, 3, "xa");
	check_all_cuts("aaab", nested, 2, "a");
}

static void
a_possible_beginning_is_held_back(void **state)
{
	LlmStr stops[] = {llm_str("aab"), llm_str("\xE4\xB8\x89\xE5\x8F\xAA")};
	LlmStop s;
	LlmBuf buf = {0};
	LlmError err;

	assert_int_equal(llm_stop_init(&s, stops, 2, &err), LLM_OK);
	llm_buf_append(&buf, "xaa", 3);
	assert_false(llm_stop_scan(&s, &buf, true));
	assert_int_equal(llm_stop_safe(&s), 1);
	llm_buf_append(&buf, "a", 1);
	assert_false(llm_stop_scan(&s, &buf, true));
	assert_int_equal(llm_stop_safe(&s), 2);
	llm_buf_append(&buf, "c\xE4\xB8\x89", 4);
	assert_false(llm_stop_scan(&s, &buf, true));
	assert_int_equal(llm_stop_safe(&s), 5); /* a whole character is held, not a part of one */
	llm_buf_append(&buf, "\xE4\xB8\x89", 3);
	assert_false(llm_stop_scan(&s, &buf, true));
	assert_int_equal(llm_stop_safe(&s), 8);
	llm_buf_append(&buf, "\xE5\x8F\xAA!", 4);
	assert_true(llm_stop_scan(&s, &buf, true));
	assert_string_equal(buf.data, "xaaac\xE4\xB8\x89");
	llm_buf_fini(&buf);
	llm_stop_fini(&s);
}

static void
random_texts_agree_with_the_plain_rule(void **state)
{
	for (uint32_t round = 0; round < 20000; round++)
	{
		char text[64], memory[4][8], want[256], got[256];
		LlmStr stops[4];
		int n = 1 + (int) (llm_rng_u32(round, 0, 0) % 4);
		size_t len = llm_rng_u32(round, 0, 1) % 60;

		for (size_t i = 0; i < len; i++)
			text[i] = "abc"[llm_rng_u32(round, 1, (uint32_t) i) % 3];
		text[len] = '\0';
		for (int i = 0; i < n; i++)
		{
			stops[i] = (LlmStr){memory[i], 1 + llm_rng_u32(round, 2, (uint32_t) i) % 8};
			for (size_t k = 0; k < stops[i].len; k++)
				memory[i][k] = "abc"[llm_rng_u32(round, 3 + (uint32_t) i, (uint32_t) k) % 3];
		}
		assert_int_equal(run(text, stops, n, round % 4, round, got),
						 expected(text, stops, n, want));
		assert_string_equal(got, want);
	}
}

static void
wrong_strings_are_refused(void **state)
{
	static char big[LLM_STOP_NBYTES_MAX + 1];
	LlmStr many[LLM_STOPS_MAX + 1];
	LlmStr empty = llm_str("");
	LlmStr broken = llm_str("\xE4\xB8");
	LlmStr too_long = {big, sizeof(big)};
	LlmStr longest = {big, LLM_STOP_NBYTES_MAX};
	LlmStop s;
	LlmError err;

	memset(big, 'x', sizeof(big));
	for (int i = 0; i <= LLM_STOPS_MAX; i++)
		many[i] = llm_str("x");
	assert_int_equal(llm_stop_init(&s, &empty, 1, &err), LLM_E_INVALID);
	assert_int_equal(llm_stop_init(&s, &too_long, 1, &err), LLM_E_INVALID);
	assert_int_equal(err.got, LLM_STOP_NBYTES_MAX + 1);
	assert_int_equal(llm_stop_init(&s, &broken, 1, &err), LLM_E_ENCODING);
	assert_int_equal(llm_stop_init(&s, many, LLM_STOPS_MAX + 1, &err), LLM_E_INVALID);
	assert_int_equal(llm_stop_init(&s, many, -1, &err), LLM_E_INVALID);
	assert_int_equal(llm_stop_init(&s, &longest, 1, &err), LLM_OK);
	llm_stop_fini(&s);
	assert_int_equal(llm_stop_init(&s, many, LLM_STOPS_MAX, &err), LLM_OK);
	llm_stop_fini(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_reported_cases),
		cmocka_unit_test(several_strings_end_at_the_first_end),
		cmocka_unit_test(a_possible_beginning_is_held_back),
		cmocka_unit_test(random_texts_agree_with_the_plain_rule),
		cmocka_unit_test(wrong_strings_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
