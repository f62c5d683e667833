/*
 * test_think.c - where thinking ends and an answer begins, however tokens cut the markers.
 *
 * Each case's vocabulary has a token for every part of its text, so that the text can be cut into any
 * two or three tokens, inside markers and inside characters.
 *
 * links: engine model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/think.h"

#define TEXT_MAX 64
#define TOKENS_MAX (TEXT_MAX * TEXT_MAX)
#define THINK_TEMPLATE "{{ messages }}</think>"

/* A vocabulary under construction. */
typedef struct Vocab
{
	char memory[TOKENS_MAX][2 * TEXT_MAX];
	LlmStr text[TOKENS_MAX];
	int32_t type[TOKENS_MAX];
	int32_t n;
} Vocab;

/* A byte as byte-level vocabularies write it; returns the end. */
static char *
byte_write(char *out, unsigned char b)
{
	int n = 0; /* bytes below b that are not printable */
	int cp;

	for (int i = 0; i < b; i++)
		n += i < 33 || (i >= 127 && i <= 160) || i == 173;
	cp = b < 33 || (b >= 127 && b <= 160) || b == 173 ? 256 + n : b;
	if (cp < 0x80)
		*out++ = (char) cp;
	else
	{
		*out++ = (char) (0xC0 | (cp >> 6));
		*out++ = (char) (0x80 | (cp & 0x3F));
	}
	return out;
}

/* The id of a token, made when it is not there. */
static int32_t
token_get(Vocab *v, const char *p, size_t n, int32_t type)
{
	char *out = v->memory[v->n], *end = out;
	LlmStr s;

	for (size_t i = 0; i < n; i++)
		end = type == LLM_TOKEN_NORMAL ? byte_write(end, (unsigned char) p[i])
									   : (*end = p[i], end + 1);
	s = (LlmStr){out, (size_t) (end - out)};
	for (int32_t id = 0; id < v->n; id++)
		if (v->text[id].len == s.len && memcmp(v->text[id].p, s.p, s.len) == 0)
			return id;
	assert_in_range(v->n, 0, TOKENS_MAX - 1);
	v->text[v->n] = s;
	v->type[v->n] = type;
	return v->n++;
}

static LlmTokenizer *
tokenizer_of(const Vocab *v)
{
	LlmVocabSpec spec = {.model = "gpt2",
						 .pre = "gpt-2",
						 .n_vocab = v->n,
						 .text = v->text,
						 .type = v->type,
						 .bos = -1,
						 .eos = -1,
						 .eot = -1,
						 .eom = -1};
	LlmTokenizer *tok;
	LlmError err = {0};

	if (llm_tokenizer_create(&spec, &tok, &err) != LLM_OK)
		fail_msg("%s", err.text);
	return tok;
}

/* Push ids and end; answer and thinking must be these. */
static void
expect(const LlmTokenizer *tok, LlmThinkMarks marks, LlmThinkState begin, const int32_t *ids, int n,
	   const char *answer, const char *thinking)
{
	LlmThink t;
	LlmDetok d = {0};
	LlmBuf text = {0};
	LlmStr thought;

	assert_true(llm_think_init(&t, &marks, begin, 0));
	for (int i = 0; i < n; i++)
	{
		size_t len = text.len;

		assert_true(llm_think_push(&t, tok, &d, ids[i], &text));
		assert_true(text.len >= len); /* what was shown stays */
		assert_memory_equal(text.data == NULL ? "" : text.data, answer, text.len);
	}
	llm_detok_end(&d);
	assert_true(llm_think_end(&t, &text));
	assert_string_equal(text.data == NULL ? "" : text.data, answer);
	thought = llm_think_text(&t);
	assert_int_equal(thought.p == NULL, thinking == NULL);
	if (thinking != NULL)
	{
		assert_int_equal(thought.len, strlen(thinking));
		assert_memory_equal(thought.p, thinking, thought.len);
	}
	llm_think_fini(&t);
	llm_buf_fini(&text);
}

static const struct
{
	LlmThinkState begin;
	const char *text, *answer, *thinking;
} cases[] = {
	{LLM_THINK_MAYBE, "<think>plan</think>answer", "answer", "plan"},
	{LLM_THINK_MAYBE, "\n<think>\nplan \n</think>\n\nanswer\n", "answer\n", "plan"},
	{LLM_THINK_MAYBE, "<think>caf\xC3\xA9</think>\xF0\x9F\xA6\x99 x", "\xF0\x9F\xA6\x99 x",
	 "caf\xC3\xA9"},
	{LLM_THINK_MAYBE, "<think></think>x", "x", NULL},
	{LLM_THINK_MAYBE, "<think>\n\n</think>\n\n", "", NULL},
	{LLM_THINK_MAYBE, "<think>a</thin</think>b", "b", "a</thin"},
	{LLM_THINK_MAYBE, "<think>a</think>b</think>c<think>", "b</think>c<think>", "a"},
	{LLM_THINK_MAYBE, "<think>never closed", "", "never closed"},
	{LLM_THINK_MAYBE, "<think>a</think", "", "a</think"},
	{LLM_THINK_MAYBE, "<think>", "", NULL},
	{LLM_THINK_MAYBE, "<think", "<think", NULL},
	{LLM_THINK_MAYBE, " \n<", " \n<", NULL},
	{LLM_THINK_MAYBE, "<thin air", "<thin air", NULL},
	{LLM_THINK_MAYBE, "  plain", "  plain", NULL},
	{LLM_THINK_MAYBE, "a <think>b</think>c", "a <think>b</think>c", NULL},
	{LLM_THINK_MAYBE, "</think>a", "</think>a", NULL},
	{LLM_THINK_MAYBE, "<THINK>a</THINK>", "<THINK>a</THINK>", NULL},
	{LLM_THINK_OPEN, "plan</think>\nanswer", "answer", "plan"},
	{LLM_THINK_OPEN, "\nplan \n", "", "plan"},
	{LLM_THINK_OPEN, "<</</think></think>x", "</think>x", "<</"},
	{LLM_THINK_OPEN, "", "", NULL},
	{LLM_THINK_ANSWER, "<think>plan</think>answer", "<think>plan</think>answer", NULL},
};

static void
any_cut_gives_the_same(void **state)
{
	Vocab *v = malloc(sizeof(*v));

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
	{
		const char *text = cases[c].text;
		size_t n = strlen(text);
		static int32_t id[TEXT_MAX][TEXT_MAX]; /* of text[i..j) */
		int32_t single[TEXT_MAX];
		LlmTokenizer *tok;
		LlmThinkMarks marks;

		v->n = 0;
		token_get(v, "-", 1, LLM_TOKEN_NORMAL);
		for (size_t i = 0; i < n; i++)
			for (size_t j = i + 1; j <= n; j++)
				id[i][j] = token_get(v, text + i, j - i, LLM_TOKEN_NORMAL);
		for (size_t i = 0; i < n; i++)
			single[i] = id[i][i + 1];
		tok = tokenizer_of(v);
		marks = llm_think_marks(llm_str(THINK_TEMPLATE), tok);
		assert_int_equal(marks.open.len, 7);
		expect(tok, marks, cases[c].begin, single, (int) n, cases[c].answer, cases[c].thinking);
		for (size_t i = 0; i < n; i++)
			for (size_t j = i + 1; j <= n; j++)
			{
				int32_t ids[3];
				int k = 0;

				if (i > 0)
					ids[k++] = id[0][i];
				ids[k++] = id[i][j];
				if (j < n)
					ids[k++] = id[j][n];
				expect(tok, marks, cases[c].begin, ids, k, cases[c].answer, cases[c].thinking);
			}
		llm_tokenizer_free(tok);
	}
	free(v);
}

/* Control tokens have no text of their own in an answer, but as markers they count. */
static void
control_tokens_are_markers(void **state)
{
	Vocab *v = calloc(1, sizeof(*v));
	int32_t open = token_get(v, "[THINK]", 7, LLM_TOKEN_CONTROL);
	int32_t close = token_get(v, "[/THINK]", 8, LLM_TOKEN_CONTROL);
	int32_t other = token_get(v, "<|x|>", 5, LLM_TOKEN_CONTROL);
	int32_t a = token_get(v, "a", 1, LLM_TOKEN_NORMAL);
	int32_t b = token_get(v, " b", 2, LLM_TOKEN_NORMAL);
	LlmTokenizer *tok = tokenizer_of(v);
	LlmThinkMarks marks = llm_think_marks(llm_str("{{ messages }}"), tok);
	const int32_t both[] = {open, a, other, b, close, b, close, a}, none[] = {other, a, open, b};

	assert_int_equal(marks.open_id, open);
	assert_int_equal(marks.close_id, close);
	expect(tok, marks, LLM_THINK_MAYBE, both, 8, "ba", "a b");
	expect(tok, marks, LLM_THINK_OPEN, both + 1, 7, "ba", "a b");
	expect(tok, marks, LLM_THINK_MAYBE, none, 4, "a b", NULL);
	expect(tok, marks, LLM_THINK_MAYBE, &open, 1, "", NULL);
	llm_tokenizer_free(tok);
	free(v);
}

static void
only_models_with_markers_think(void **state)
{
	static const struct
	{
		const char *source, *open;
	} known[] = {
		{"{{ messages }}", NULL},
		{"", NULL},
		{"{{ '<think>' }}", NULL}, /* none that closes */
		{"{{ m.content.split('</think>')[-1] }}", "<think>"},
		{"{{ '[THINK]' }}{{ '[/THINK]' }}", "[THINK]"},
	};
	Vocab *v = calloc(1, sizeof(*v));
	LlmTokenizer *tok;

	token_get(v, "a", 1, LLM_TOKEN_NORMAL);
	token_get(v, "</think>", 8, LLM_TOKEN_USER_DEFINED);
	tok = tokenizer_of(v);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
	{
		LlmThinkMarks m = llm_think_marks(llm_str(known[i].source), tok);

		assert_int_equal(m.open.len == 0, known[i].open == NULL);
		if (known[i].open != NULL)
			assert_true(llm_str_eq(m.open, known[i].open));
	}
	llm_tokenizer_free(tok);
	token_get(v, "<think>", 7, LLM_TOKEN_USER_DEFINED);
	tok = tokenizer_of(v);
	assert_true(llm_str_eq(llm_think_marks(llm_str("{{ messages }}"), tok).open, "<think>"));
	llm_tokenizer_free(tok);
	free(v);
}

/* The prompt opens a thought only in the template's own words, and only at its very end. */
static void
a_prompt_may_open_a_thought(void **state)
{
	static const struct
	{
		const char *user, *own; /* the prompt is both, in this order */
		LlmThinkState begin;
	} prompts[] = {
		{"q", "<|a|>\n<think>", LLM_THINK_OPEN},
		{"q", "<|a|>\n<think>\n\n", LLM_THINK_OPEN},
		{"", "<think>", LLM_THINK_OPEN},
		{"q", "<|a|>\n", LLM_THINK_MAYBE},
		{"q", "<think>\n\n</think>\n\n", LLM_THINK_MAYBE},
		{"q", "<think>so", LLM_THINK_MAYBE},
		{"q <think>", "", LLM_THINK_MAYBE},
		{"q <think>", "\n", LLM_THINK_MAYBE},
		{"q <thi", "nk>", LLM_THINK_MAYBE}, /* half of it is the user's */
		{"", "", LLM_THINK_MAYBE},
	};
	LlmThinkMarks marks = {llm_str("<think>"), llm_str("</think>"), -1, -1};
	LlmThinkMarks nobody = {.open_id = -1, .close_id = -1};

	for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++)
	{
		LlmMarkedText m = {0};

		assert_true(llm_marked_append(&m, prompts[i].user, strlen(prompts[i].user), false));
		assert_true(llm_marked_append(&m, prompts[i].own, strlen(prompts[i].own), true));
		assert_int_equal(llm_think_begin(&marks, &m), prompts[i].begin);
		assert_int_equal(llm_think_begin(&nobody, &m), LLM_THINK_ANSWER);
		llm_marked_fini(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_cut_gives_the_same),
		cmocka_unit_test(control_tokens_are_markers),
		cmocka_unit_test(only_models_with_markers_think),
		cmocka_unit_test(a_prompt_may_open_a_thought),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
