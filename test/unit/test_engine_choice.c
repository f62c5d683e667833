/*
 * test_engine_choice.c - which tokens may be picked and which end an answer, on the echo device.
 *
 * The echo device's logits are 100 for the next letter of the user's text and 0 for all other tokens,
 * so what a bias, a list or a minimum does to an answer can be told letter by letter.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_run.h"

#define EOS 257
#define VOCAB 320 /* ids from 259 on are unused */

static void
expect(Run *r, LlmRequest q, const char *text, LlmFinish finish, int32_t completion)
{
	Outcome *o = run_one(r, q);

	if (o->status != LLM_OK)
		fail_msg("%s", o->error.text);
	assert_string_equal(run_text(o), text);
	assert_int_equal(o->finish, finish);
	assert_int_equal(o->completion_tokens, completion);
}

static void
expect_refused(Run *r, LlmRequest q, const char *part)
{
	LlmError err = run_refused(r, q);

	assert_int_equal(err.code, LLM_E_INVALID);
	if (strstr(err.text, part) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void
a_bias_moves_one_token(void **state)
{
	const LlmTokenBias up[] = {{'x', 100.5f}}, less[] = {{'x', 99.5f}};
	const LlmTokenBias two[] = {{'b', -200.0f}, {'z', 1.0f}};
	Run r;
	LlmRequest q = run_request("abc", 5);

	run_echo(&r);
	q.bias = up;
	q.n_bias = 1;
	expect(&r, q, "xxxxx", LLM_FINISH_LENGTH, 5); /* above the end token, too */
	q.bias = less;
	expect(&r, q, "abc", LLM_FINISH_STOP, 4);
	q.bias = two;
	q.n_bias = 2;
	expect(&r, q, "azc", LLM_FINISH_STOP, 4);
	run_fini(&r);
}

static void
only_what_is_allowed_is_picked(void **state)
{
	const int32_t some[] = {'a', 'c', '!', EOS}, endless[] = {'a', 'c', '!'}, one[] = {'q'};
	const int32_t c[] = {'c'}, twice[] = {'a', 'a', EOS, 'a'}, end[] = {EOS};
	Run r;
	LlmRequest q = run_request("abcab", 6);

	run_echo(&r);
	q.allowed = some;
	q.n_allowed = 4;
	expect(&r, q, "a!ca!", LLM_FINISH_STOP, 6); /* '!' is the lowest of those that tie */
	q.forbidden = c;
	q.n_forbidden = 1;
	expect(&r, q, "a!!a!", LLM_FINISH_STOP, 6);
	q.n_forbidden = 0;
	q.allowed = endless; /* the end token is not among them */
	q.n_allowed = 3;
	expect(&r, q, "a!ca!a", LLM_FINISH_LENGTH, 6);
	q.allowed = one;
	q.n_allowed = 1;
	expect(&r, q, "qqqqqq", LLM_FINISH_LENGTH, 6);
	q.allowed = twice; /* a list, not a set */
	q.n_allowed = 4;
	expect(&r, q, "aaaaa", LLM_FINISH_STOP, 6);
	q.n_allowed = 0;
	q.forbidden = end;
	q.n_forbidden = 1;
	expect(&r, q, "abcaba", LLM_FINISH_LENGTH, 6);
	run_fini(&r);
}

static void
a_stop_token_ends_the_answer_and_is_no_text(void **state)
{
	const int32_t stops[] = {'z', 'c', EOS};
	Run r;
	LlmRequest q = run_request("abcabc", 9);
	Outcome *o;

	run_echo(&r);
	q.stop_tokens = stops;
	q.n_stop_tokens = 3;
	o = run_one(&r, q);
	assert_string_equal(run_text(o), "ab");
	assert_int_equal(o->finish, LLM_FINISH_STOP);
	assert_int_equal(o->generated.len, 3);
	assert_int_equal(o->generated.ids[2], 'c');
	q.ignore_eos = true; /* of end tokens alone */
	expect(&r, q, "ab", LLM_FINISH_STOP, 3);
	q.n_stop_tokens = 1;
	expect(&r, q, "abcabcabc", LLM_FINISH_LENGTH, 9);
	q.max_tokens = 2;
	q.n_stop_tokens = 3;
	expect(&r, q, "ab", LLM_FINISH_LENGTH, 2);
	run_fini(&r);
}

static void
an_answer_has_min_tokens(void **state)
{
	const int32_t stops[] = {'c'};
	Run r;
	LlmRequest q = run_request("abc", 20);

	run_echo(&r);
	for (q.min_tokens = 0; q.min_tokens <= 3; q.min_tokens++)
		expect(&r, q, "abc", LLM_FINISH_STOP, 4);
	q.min_tokens = 4; /* the fifth may be the end */
	expect(&r, q, "abca", LLM_FINISH_STOP, 5);
	q.min_tokens = 20;
	expect(&r, q, "abcabcabcabcabcabcab", LLM_FINISH_LENGTH, 20);
	q.min_tokens = 4;
	q.stop_tokens = stops; /* not picked before: the highest of the rest, byte 0, is no text */
	q.n_stop_tokens = 1;
	expect(&r, q, "aba", LLM_FINISH_STOP, 5);
	q.ignore_eos = true;
	q.min_tokens = 2;
	expect(&r, q, "ab", LLM_FINISH_STOP, 3);
	run_fini(&r);
}

/* A stop string that is complete before the min_tokens-th token is text like any other. */
static void
stop_strings_wait_for_min_tokens(void **state)
{
	static const struct
	{
		int32_t min_tokens;
		const char *text;
		LlmFinish finish;
		int32_t completion;
	} cases[] = {
		{0, "a", LLM_FINISH_STOP, 4},         /* "a" STOP at byte 4 */
		{4, "a", LLM_FINISH_STOP, 4},         /* complete with the fourth token */
		{5, "abb.abb", LLM_FINISH_STOP, 10},  /* the next one that is complete */
		{10, "abb.abb", LLM_FINISH_STOP, 10}, /* "bb." at bytes 8 .. 10 */
		{11, "abb.abbbb.a", LLM_FINISH_STOP, 12},
		{12, "abb.abbbb.ab", LLM_FINISH_STOP, 13},
	};
	Run r;
	LlmRequest q = run_request("abb.abbbb.", 40);

	run_echo(&r);
	q.stops[0] = llm_str("bb.");
	q.n_stops = 1;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int stream = 0; stream < 2; stream++)
		{
			Outcome *o;

			q.min_tokens = cases[i].min_tokens;
			q.stream = stream == 1;
			expect(&r, q, cases[i].text, cases[i].finish, cases[i].completion);
			o = &r.of[r.next_id];
			if (q.stream)
				assert_string_equal(o->pieces.data == NULL ? "" : o->pieces.data, cases[i].text);
		}
	q.stops[0] = llm_str("aa"); /* the tail of one that did not count begins the next */
	q.prompt = llm_str("aaaaaa");
	q.min_tokens = 3;
	expect(&r, q, "a", LLM_FINISH_STOP, 3);
	q.min_tokens = 4;
	expect(&r, q, "aa", LLM_FINISH_STOP, 4);
	run_fini(&r);
}

static void
wrong_lists_are_refused(void **state)
{
	static int32_t many[LLM_TOKEN_LIST_MAX + 1];
	static LlmTokenBias biases[LLM_TOKEN_LIST_MAX + 1];
	static int32_t all[VOCAB];
	const int32_t bad[] = {-1, VOCAB, INT32_MIN, INT32_MAX};
	const LlmTokenBias twice[] = {{'a', 1.0f}, {'b', 1.0f}, {'a', -1.0f}};
	const int32_t good[] = {'a', 'b'}, end[] = {EOS}, unused[] = {300};
	Run r;
	LlmRequest plain = run_request("abc", 5), q;
	LlmError err;

	run_echo(&r);
	for (int i = 0; i < 4; i++)
	{
		const int32_t ids[] = {'a', bad[i]};
		const LlmTokenBias bias[] = {{'a', 1.0f}, {bad[i], 1.0f}};
		char part[64];

		snprintf(part, sizeof(part), "names token %d, but the vocabulary has %d tokens", bad[i],
				 VOCAB);
		q = plain;
		q.allowed = ids;
		q.n_allowed = 2;
		expect_refused(&r, q, "allowed_tokens");
		expect_refused(&r, q, part);
		q = plain;
		q.forbidden = ids;
		q.n_forbidden = 2;
		expect_refused(&r, q, "forbidden_tokens");
		q = plain;
		q.stop_tokens = ids;
		q.n_stop_tokens = 2;
		expect_refused(&r, q, "stop_token_ids");
		q = plain;
		q.bias = bias;
		q.n_bias = 2;
		expect_refused(&r, q, "logit_bias");
		err = run_refused(&r, q);
		assert_int_equal(err.got, bad[i]);
		assert_int_equal(err.limit, VOCAB - 1);
	}
	q = plain;
	q.bias = twice;
	q.n_bias = 3;
	expect_refused(&r, q, "token 97 twice");
	for (int i = 0; i < 3; i++)
	{
		const LlmTokenBias odd = {'a', i == 0 ? NAN : i == 1 ? INFINITY : -INFINITY};

		q.bias = &odd;
		q.n_bias = 1;
		expect_refused(&r, q, "not finite");
	}
	q.bias = biases;
	q.n_bias = LLM_TOKEN_LIST_MAX + 1;
	expect_refused(&r, q, "4097 tokens");
	q = plain;
	q.forbidden = many;
	q.n_forbidden = LLM_TOKEN_LIST_MAX + 1;
	expect_refused(&r, q, "forbidden_tokens has 4097 tokens");
	q.n_forbidden = -1;
	expect_refused(&r, q, "forbidden_tokens");

	q = plain; /* nothing is left to begin with */
	q.allowed = good;
	q.n_allowed = 2;
	q.forbidden = good;
	q.n_forbidden = 2;
	expect_refused(&r, q, "no token is left");
	q.n_forbidden = 1;
	expect(&r, q, "bbbbb", LLM_FINISH_LENGTH, 5);
	q = plain;
	for (int i = 0; i < VOCAB; i++)
		all[i] = i;
	q.forbidden = all;
	q.n_forbidden = VOCAB;
	expect_refused(&r, q, "no token is left");
	q = plain;
	q.allowed = unused; /* never picked anyhow */
	q.n_allowed = 1;
	expect_refused(&r, q, "no token is left");
	q.allowed = end;
	expect(&r, q, "", LLM_FINISH_STOP, 1);
	q.min_tokens = 1;
	expect_refused(&r, q, "no token is left");
	q.min_tokens = 0;
	q.ignore_eos = true;
	expect_refused(&r, q, "no token is left");
	q = plain;
	q.stop_tokens = all;
	q.n_stop_tokens = VOCAB;
	q.min_tokens = 1;
	expect_refused(&r, q, "no token is left");
	q.min_tokens = 0;
	expect(&r, q, "", LLM_FINISH_STOP, 1);

	q = plain;
	q.min_tokens = -1;
	expect_refused(&r, q, "min_tokens is -1");
	q.min_tokens = 6;
	expect_refused(&r, q, "min_tokens is 6, more than max_tokens, which is 5");
	q.max_tokens = LLM_MAX_TOKENS_REST; /* no more than the room there is */
	q.min_tokens = 1000000;
	assert_int_equal(run_one(&r, q)->finish, LLM_FINISH_LENGTH);
	run_fini(&r);
}

/* Requests of every kind side by side, preempted all the time: each answer is its own. */
static void
lists_do_not_meet_in_a_batch(void **state)
{
	const LlmTokenBias up[] = {{'x', 101.0f}};
	const int32_t allowed[] = {'a', '!', EOS}, stops[] = {'c'};
	static const char *const texts[] = {"xxxxxxxx", "a!!a!!", "ab", "abcabcab", "abcabc"};
	LlmEngineOptions o = run_options();
	uint64_t ids[40];
	Run r;

	o.preempt_every = 2;
	o.max_batch_tokens = 20;
	run_echo_with(&r, o, RUN_CONTEXT);
	for (int i = 0; i < 40; i++)
	{
		LlmRequest q = run_request("abcabc", 8);

		q.sample.seed = (uint64_t) i; /* nobody's twin */
		q.sample.temperature = 1e-5f;
		if (i % 5 == 0)
		{
			q.bias = up;
			q.n_bias = 1;
		}
		else if (i % 5 == 1)
		{
			q.allowed = allowed;
			q.n_allowed = 3;
		}
		else if (i % 5 == 2)
		{
			q.stop_tokens = stops;
			q.n_stop_tokens = 1;
		}
		else if (i % 5 == 3)
			q.min_tokens = 8;
		ids[i] = run_submit(&r, q);
	}
	run_all(&r);
	for (int i = 0; i < 40; i++)
	{
		assert_int_equal(r.of[ids[i]].status, LLM_OK);
		assert_string_equal(run_text(&r.of[ids[i]]), texts[i % 5]);
	}
	run_fini(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bias_moves_one_token),
		cmocka_unit_test(only_what_is_allowed_is_picked),
		cmocka_unit_test(a_stop_token_ends_the_answer_and_is_no_text),
		cmocka_unit_test(an_answer_has_min_tokens),
		cmocka_unit_test(stop_strings_wait_for_min_tokens),
		cmocka_unit_test(wrong_lists_are_refused),
		cmocka_unit_test(lists_do_not_meet_in_a_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
