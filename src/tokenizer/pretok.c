/*
 * tokenizer/pretok.c - cuts text into the words inside which byte pairs are merged.
 *
 * The patterns are those of the published tokenizer.json files, with two changes of form that keep
 * their meaning:
 *
 * - \s and \S are spelled out. With Unicode properties PCRE2's \s has U+180E, which Unicode took from
 *   the white space in version 6.3; the engines of the published tokenizers do not match it.
 * - The smollm and starcoder kind cuts twice: every digit is a piece, then GPT-2's pattern runs over
 *   each piece alone, for which a piece's end is the end of the text. One pattern does both: digits
 *   match singly, and white space looks ahead for "neither space nor digit" where GPT-2 looks for
 *   "not space". No other alternative of GPT-2's reaches over a digit.
 *
 * Every pattern is linear: no alternative but \s*[\r\n]+ gives back more than one character, and
 * that one's run is consumed by the alternatives after it.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretok.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Inside a class: Unicode's White_Space. */
#define SP "\\t-\\r\\x{85}\\p{Z}"
#define OTHER "[^" SP "\\p{L}\\p{N}]"

#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+"

static const LlmPretokKind gpt2_kind = {
	.pattern = GPT2_WORDS "| ?\\p{N}+| ?" OTHER "+|[" SP "]+(?![^" SP "])|[" SP "]+",
};
static const LlmPretokKind digits_kind = {
	.pattern = GPT2_WORDS "|\\p{N}| ?" OTHER "+|[" SP "]+(?![^" SP "\\p{N}])|[" SP "]+",
};
#define LLAMA3_PATTERN                                                                             \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?" OTHER              \
	"+[\\r\\n]*|[" SP "]*[\\r\\n]+|[" SP "]+(?![^" SP "])|[" SP "]+"
static const LlmPretokKind llama3_kind = {
	.pattern = LLAMA3_PATTERN,
	.ignore_merges = true,
	.adds_bos = true,
};
static const LlmPretokKind dbrx_kind = {.pattern = LLAMA3_PATTERN};

static const struct
{
	const char *name;
	const LlmPretokKind *kind;
} kinds[] = {
	{"gpt-2", &gpt2_kind},       {"phi-2", &gpt2_kind},      {"smollm", &digits_kind},
	{"starcoder", &digits_kind}, {"refact", &digits_kind},   {"codeshell", &digits_kind},
	{"llama-bpe", &llama3_kind}, {"llama3", &llama3_kind},   {"llama-v3", &llama3_kind},
	{"falcon3", &llama3_kind},   {"midm-2.0", &llama3_kind}, {"lfm2", &llama3_kind},
	{"dbrx", &dbrx_kind},        {"smaug-bpe", &dbrx_kind},
};

/* Of the matcher without JIT; the patterns need a few frames. */
#define HEAP_LIMIT_KIB 65536u
#define DEPTH_LIMIT 1000u

struct LlmPretok
{
	pcre2_code *code; /* owned */
};

struct LlmPretokWalk
{
	const LlmPretok *pretok;  /* borrowed */
	pcre2_match_data *match;  /* owned */
	pcre2_match_context *ctx; /* owned */
};

const LlmPretokKind *
llm_pretok_find(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return kinds[i].kind;
	return NULL;
}

LlmStatus
llm_pretok_create(const LlmPretokKind *kind, LlmPretok **out, LlmError *err)
{
	LlmPretok *t = calloc(1, sizeof(*t));
	PCRE2_SIZE at;
	int code;

	if (t == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the pre-tokeniser");
	t->code = pcre2_compile((PCRE2_SPTR) kind->pattern, PCRE2_ZERO_TERMINATED,
							PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &code, &at,
							NULL);
	if (t->code == NULL)
	{
		free(t);
		return llm_error_set(err, LLM_E_INTERNAL,
							 "pre-tokeniser pattern is refused at %zu with PCRE2 error %d", at,
							 code);
	}
	/* Where code may not be made executable, the interpreter does the same, slower. */
	(void) pcre2_jit_compile(t->code, PCRE2_JIT_COMPLETE);
	*out = t;
	return LLM_OK;
}

void
llm_pretok_free(LlmPretok *t)
{
	if (t == NULL)
		return;
	pcre2_code_free(t->code);
	free(t);
}

LlmPretokWalk *
llm_pretok_walk_create(const LlmPretok *t, size_t max_len)
{
	LlmPretokWalk *w = calloc(1, sizeof(*w));
	size_t steps = max_len < UINT32_MAX / 16 ? max_len * 8 + 1000 : UINT32_MAX;

	if (w == NULL)
		return NULL;
	w->pretok = t;
	w->match = pcre2_match_data_create(1, NULL);
	w->ctx = pcre2_match_context_create(NULL);
	if (w->match == NULL || w->ctx == NULL)
	{
		llm_pretok_walk_free(w);
		return NULL;
	}
	/* Work per word is linear in its length: the limit is never met unless a pattern is wrong. */
	pcre2_set_match_limit(w->ctx, (uint32_t) steps);
	pcre2_set_depth_limit(w->ctx, DEPTH_LIMIT);
	pcre2_set_heap_limit(w->ctx, HEAP_LIMIT_KIB);
	return w;
}

void
llm_pretok_walk_free(LlmPretokWalk *w)
{
	if (w == NULL)
		return;
	pcre2_match_data_free(w->match);
	pcre2_match_context_free(w->ctx);
	free(w);
}

LlmStatus
llm_pretok_next(LlmPretokWalk *w, const char *p, size_t len, size_t begin, size_t *end,
				LlmError *err)
{
	int rc = pcre2_match(w->pretok->code, (PCRE2_SPTR) p, len, begin, PCRE2_NO_UTF_CHECK, w->match,
						 w->ctx);

	if (rc == PCRE2_ERROR_NOMEMORY)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory while cutting the text into words");
	if (rc >= 0)
		*end = pcre2_get_ovector_pointer(w->match)[1];
	if (rc < 0 || *end <= begin)
		return llm_error_set(err, LLM_E_INTERNAL,
							 "the pre-tokeniser gave up at byte %zu of %zu with PCRE2 result %d",
							 begin, len, rc);
	return LLM_OK;
}
