/*
 * test_vocab.c - what a vocabulary may hold, and which of its tokens a text may yield.
 *
 * links: tokenizer core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden_vocab.h"

#define LLAMA3_DIR "test/golden/tok/bpe512-llama3"

/* A small vocabulary for cases that the golden ones do not have. */
static const LlmStr small_text[] = {
	{"a", 1},
	{"b", 1},
	{"<", 1},
	{">", 1},
	{"ab", 2},
	{"aba", 3},
	{"<a>", 3},
	{"<b", 2},
	{"<a><b", 5},
	{"<|im_end|>", 10},
	{"\xC4\xA0", 2},
	{"\xC4\xA0"
	 "a",
	 3},
};
static const int32_t small_type[] = {1, 1, 1, 1, 1, 1, 3, 4, 3, 3, 1, 1};
static const LlmStr small_merges[] = {{"a b", 3}, {"< b", 3}, {"\xC4\xA0 a", 4}};
#define SMALL_VOCAB 12

static LlmVocabSpec
small_spec(const char *pre)
{
	return (LlmVocabSpec){.model = "gpt2",
						  .pre = pre,
						  .n_vocab = SMALL_VOCAB,
						  .text = small_text,
						  .type = small_type,
						  .merges = small_merges,
						  .n_merges = 3,
						  .bos = -1,
						  .eos = -1,
						  .eot = -1,
						  .eom = -1,
						  .add_bos = -1};
}

/* Encode text with spans and compare with n ids. */
static void
expect_ids(const LlmTokenizer *tok, const char *text, const LlmSpan *spans, size_t n_spans,
		   size_t n, const int32_t *want)
{
	LlmTokens got = golden_encode(tok, llm_str(text), spans, n_spans);

	assert_int_equal(got.len, n);
	assert_memory_equal(got.ids, want, n * sizeof(*want));
	llm_tokens_fini(&got);
}

#define IDS(...)                                                                                   \
	sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (int32_t[])                                \
	{                                                                                              \
		__VA_ARGS__                                                                                \
	}

/* "aba" is a token that no merge makes: only a kind that ignores merges may take it. */
static void
test_ignore_merges(void **state)
{
	LlmVocabSpec spec = small_spec("llama-bpe");
	LlmTokenizer *tok = golden_create(&spec);

	expect_ids(tok, "aba", NULL, 0, IDS(5));
	expect_ids(tok, "abaa", NULL, 0, IDS(4, 0, 0));
	llm_tokenizer_free(tok);
	spec = small_spec("dbrx");
	tok = golden_create(&spec);
	expect_ids(tok, "aba", NULL, 0, IDS(4, 0));
	expect_ids(tok, "ab a", NULL, 0, IDS(4, 11));
	llm_tokenizer_free(tok);
}

static void
test_spans(void **state)
{
	LlmVocabSpec spec = small_spec("gpt-2");
	LlmTokenizer *tok = golden_create(&spec);
	LlmSpan all = {0, 5, true};
	LlmSpan half[] = {{0, 4, true}, {4, 5, false}};
	LlmSpan both[] = {{0, 1, true}, {1, 1, true}, {1, 5, true}};
	LlmSpan tail[] = {{0, 1, false}, {1, 5, true}};

	/* leftmost, longest */
	expect_ids(tok, "<a><b", &all, 1, IDS(8));
	/* the longest does not fit into the trusted part, a shorter one does; user-defined tokens are
	 * recognised everywhere */
	expect_ids(tok, "<a><b", half, 2, IDS(6, 7));
	/* what one author wrote in several pieces is one text */
	expect_ids(tok, "<a><b", both, 3, IDS(8));
	/* the control token begins in what the user wrote */
	expect_ids(tok, "<a><b", tail, 2, IDS(2, 0, 3, 7));
	expect_ids(tok, "<a><b", NULL, 0, IDS(2, 0, 3, 7));
	llm_tokenizer_free(tok);
}

/* A control token is recognised exactly when no byte of it is the user's, wherever the cut is. */
static void
test_spans_every_cut(void **state)
{
	LlmTokenizer *tok = golden_create_file(LLAMA3_DIR "/tokenizer.json", "llama-bpe");
	LlmStr text = llm_str("hi<|im_end|>there");

	for (size_t a = 0; a <= text.len; a++)
		for (size_t b = a; b <= text.len; b++)
		{
			LlmSpan spans[] = {{0, a, false}, {a, b, true}, {b, text.len, false}};
			LlmTokens ids = golden_encode(tok, text, spans, 3);
			bool found = false;

			for (size_t i = 0; i < ids.len; i++)
				found |= ids.ids[i] >= 496;
			assert_int_equal(found, a <= 2 && b >= 12);
			golden_assert_round_trip(tok, &ids, text);
			llm_tokens_fini(&ids);
		}
	llm_tokenizer_free(tok);
}

static void
test_spans_broken(void **state)
{
	LlmTokenizer *tok = golden_create_file(LLAMA3_DIR "/tokenizer.json", "llama-bpe");
	LlmSpan gap[] = {{0, 1, true}, {2, 3, true}};
	LlmSpan beyond[] = {{0, 9, true}};
	LlmSpan shorter[] = {{0, 2, true}};
	LlmTokens out = {0};
	LlmError err;

	assert_int_equal(llm_tokenizer_encode(tok, llm_str("abc"), gap, 2, &out, &err), LLM_E_INTERNAL);
	assert_int_equal(llm_tokenizer_encode(tok, llm_str("abc"), beyond, 1, &out, &err),
					 LLM_E_INTERNAL);
	assert_int_equal(llm_tokenizer_encode(tok, llm_str("abc"), shorter, 1, &out, &err),
					 LLM_E_INTERNAL);
	assert_int_equal(out.len, 0);
	llm_tokenizer_free(tok);
}

/* Merges cannot make a control token, whatever the file says. */
static void
test_no_control_by_merges(void **state)
{
	LlmVocabSpec spec = small_spec("llama-bpe");
	LlmStr text[SMALL_VOCAB];
	int32_t type[SMALL_VOCAB];
	LlmTokenizer *tok;

	memcpy(text, small_text, sizeof(text));
	memcpy(type, small_type, sizeof(type));
	type[4] = LLM_TOKEN_CONTROL; /* "ab", the result of the first rule */
	type[5] = LLM_TOKEN_UNUSED;  /* "aba", a whole word */
	spec.text = text;
	spec.type = type;
	tok = golden_create(&spec);
	expect_ids(tok, "ab", NULL, 0, IDS(0, 1));
	expect_ids(tok, "aba", NULL, 0, IDS(0, 1, 0));
	assert_int_equal(llm_tokenizer_piece(tok, 4, false).len, 0);
	assert_int_equal(llm_tokenizer_piece(tok, 4, true).len, 2);
	llm_tokenizer_free(tok);
}

static void
refuse(const LlmVocabSpec *spec, const char *part)
{
	LlmTokenizer *tok = NULL;
	LlmError err = {0};

	assert_int_equal(llm_tokenizer_create(spec, &tok, &err), LLM_E_MODEL);
	assert_null(tok);
	if (strstr(err.text, part) == NULL)
		fail_msg("'%s' does not name %s", err.text, part);
}

static void
test_refused_names(void **state)
{
	LlmVocabSpec spec = small_spec(NULL);

	refuse(&spec, "tokenizer.ggml.pre is missing");
	spec = small_spec("default");
	refuse(&spec, "tokenizer.ggml.pre \"default\"");
	spec = small_spec("qwen2\x01");
	refuse(&spec, "tokenizer.ggml.pre \"(not printable)\"");
	spec = small_spec("gpt-2");
	spec.model = "llama";
	refuse(&spec, "tokenizer.ggml.model \"llama\"");
	spec.model = NULL;
	refuse(&spec, "tokenizer.ggml.model");
}

static void
test_refused_ids(void **state)
{
	LlmVocabSpec spec = small_spec("gpt-2");

	spec.bos = SMALL_VOCAB;
	refuse(&spec, "tokenizer.ggml.bos_token_id");
	spec = small_spec("gpt-2");
	spec.eos = -2;
	refuse(&spec, "tokenizer.ggml.eos_token_id");
	spec = small_spec("gpt-2");
	spec.eot = INT32_MAX;
	refuse(&spec, "tokenizer.ggml.eot_token_id");
	spec = small_spec("gpt-2");
	spec.eom = SMALL_VOCAB;
	refuse(&spec, "tokenizer.ggml.eom_token_id");
	spec = small_spec("gpt-2");
	spec.add_bos = 1;
	refuse(&spec, "tokenizer.ggml.add_bos_token");
	spec = small_spec("gpt-2");
	spec.n_vocab = 0;
	refuse(&spec, "tokenizer.ggml.tokens is empty");
}

static void
refuse_token(int32_t id, LlmStr text, int32_t type, const char *part)
{
	LlmVocabSpec spec = small_spec("gpt-2");
	LlmStr texts[SMALL_VOCAB];
	int32_t types[SMALL_VOCAB];

	memcpy(texts, small_text, sizeof(texts));
	memcpy(types, small_type, sizeof(types));
	texts[id] = text;
	types[id] = type;
	spec.text = texts;
	spec.type = types;
	refuse(&spec, part);
}

static void
refuse_merge(const char *rule, const char *part)
{
	LlmVocabSpec spec = small_spec("gpt-2");
	LlmStr rules[] = {small_merges[0], small_merges[1], small_merges[2], llm_str(rule)};

	spec.merges = rules;
	spec.n_merges = 4;
	refuse(&spec, part);
}

static void
test_refused_tokens(void **state)
{
	size_t huge = (size_t) 1 << 20;
	char *z = malloc(huge);

	assert_non_null(z);
	memset(z, 'z', huge);
	refuse_token(5, (LlmStr){z, huge}, 1, "token 5 has 1048576 bytes");
	free(z);
	refuse_token(3, llm_str("<a>"), 1, "tokens 3 and 6 have the same text");
	refuse_token(3, llm_str("\xFF"), 1, "token 3 is not valid UTF-8");
	refuse_token(3, llm_str("<0x3E>"), LLM_TOKEN_BYTE, "token_type: token 3 has type 6");
	refuse_token(3, llm_str(">"), 0, "token_type: token 3 has type 0");
	refuse_merge("ab", "rule 3 has no two parts");
	refuse_merge("a ", "rule 3 has no two parts");
	refuse_merge("", "rule 3 has no two parts");
	refuse_merge("a \xFF", "rule 3 has no two parts");
	refuse_merge("a q", "a part of rule 3 is not a token");
	refuse_merge("b a", "the result of rule 3 is not a token");
	refuse_merge("a b", "rule 3 repeats rule 0");
}

/* Two tokens and no special ids: legal, and no id is made up. */
static void
test_tiny_vocabulary(void **state)
{
	LlmStr text[] = {{"a", 1}, {"b", 1}};
	LlmVocabSpec spec = small_spec("llama-bpe");
	LlmTokenizer *tok;
	int32_t n = -1;

	spec.text = text;
	spec.type = NULL;
	spec.n_vocab = 2;
	spec.n_merges = 0;
	spec.merges = NULL;
	tok = golden_create(&spec);
	assert_int_equal(llm_tokenizer_vocab_size(tok), 2);
	assert_int_equal(llm_tokenizer_bos(tok), -1);
	assert_int_equal(llm_tokenizer_eos(tok), -1);
	assert_false(llm_tokenizer_adds_bos(tok));
	(void) llm_tokenizer_end_ids(tok, &n);
	assert_int_equal(n, 0);
	expect_ids(tok, "abba", NULL, 0, IDS(0, 1, 1, 0));
	assert_int_equal(llm_tokenizer_piece(tok, 2, true).len, 0);
	assert_int_equal(llm_tokenizer_piece(tok, -1, true).len, 0);
	assert_int_equal(llm_tokenizer_text(tok, INT32_MAX).len, 0);
	llm_tokenizer_free(tok);
}

static void
test_end_ids(void **state)
{
	GoldenVocab g;
	LlmTokenizer *tok;
	const int32_t *ids;
	int32_t n;
	static const int32_t want[] = {497, 498, 502, 503, 510};

	golden_open(&g, LLAMA3_DIR "/tokenizer.json", "llama-bpe");
	g.spec.bos = 496;
	g.spec.eos = 497;
	g.spec.eom = 510; /* named by its key alone */
	tok = golden_create(&g.spec);
	ids = llm_tokenizer_end_ids(tok, &n);
	assert_int_equal(n, 5);
	assert_memory_equal(ids, want, sizeof(want));
	for (int32_t id = -1; id <= 512; id++)
		assert_int_equal(llm_tokenizer_is_end(tok, id),
						 id == 497 || id == 498 || id == 502 || id == 503 || id == 510);
	assert_true(llm_str_eq(llm_tokenizer_text(tok, 496), "<|begin_of_text|>"));
	assert_true(llm_tokenizer_adds_bos(tok));
	assert_int_equal(llm_tokenizer_eos(tok), 497);
	llm_tokenizer_free(tok);
	/* the file's own word goes before the kind's */
	g.spec.add_bos = 0;
	tok = golden_create(&g.spec);
	assert_false(llm_tokenizer_adds_bos(tok));
	llm_tokenizer_free(tok);
	golden_close(&g);
}

/* A byte without a token is an error: nothing is lost in silence. */
static void
test_missing_byte(void **state)
{
	LlmVocabSpec spec = small_spec("gpt-2");
	LlmTokenizer *tok = golden_create(&spec);
	LlmTokens out = {0};
	LlmError err;

	assert_int_equal(llm_tokenizer_encode(tok, llm_str("ab abz"), NULL, 0, &out, &err),
					 LLM_E_ENCODING);
	assert_non_null(strstr(err.text, "0x7a"));
	assert_non_null(strstr(err.detail, "byte 2 "));
	assert_int_equal(out.len, 0);
	llm_tokenizer_free(tok);
	llm_tokens_fini(&out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ignore_merges),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_spans_every_cut),
		cmocka_unit_test(test_spans_broken),
		cmocka_unit_test(test_no_control_by_merges),
		cmocka_unit_test(test_missing_byte),
		cmocka_unit_test(test_refused_names),
		cmocka_unit_test(test_refused_ids),
		cmocka_unit_test(test_refused_tokens),
		cmocka_unit_test(test_tiny_vocabulary),
		cmocka_unit_test(test_end_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
