/* tokenizer/tokenizer.c - text to token ids and back: puts vocabulary, words and merges together. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe.h"
#include "tokenizer/pretok.h"
#include "tokenizer/special.h"
#include "tokenizer/vocab.h"

struct LlmTokenizer
{
	LlmVocab vocab;
	LlmSpecials specials;
	LlmBpe bpe;
	LlmPretok *pretok; /* owned */
	int32_t bos, eos;  /* -1 = none */
	bool adds_bos;
	int32_t *end_ids; /* [n_end] ascending, owned */
	int32_t n_end;
};

/* Texts by which published vocabularies name the end of a turn. Few files name all of theirs by a
 * key, and a model that ends with another one would go on for ever. */
static const char *const end_texts[] = {
	"<|eot_id|>",    "<|eom_id|>",         "<|im_end|>", "<|end|>",
	"<|endoftext|>", "<|end_of_text|>",    "</s>",       "<eos>",
	"<end_of_turn>", "<end_of_utterance>", "<EOT>",      "_<EOT>",
	"<|return|>",    "<|call|>",           "[EOT]",      "<｜end▁of▁sentence｜>",
};

/* ---- creation ---- */

/* A name from a file for a message: itself when it is short and printable. */
static const char *
printable(const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (i == 64 || name[i] < 0x20 || name[i] > 0x7E)
			return "(not printable)";
	return name;
}

static LlmStatus
check_names(const LlmVocabSpec *spec, const LlmPretokKind **kind, LlmError *err)
{
	if (spec->model == NULL)
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.model is missing");
	if (strcmp(spec->model, "gpt2") != 0)
	{
		llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.model \"%s\" is not supported",
					  printable(spec->model));
		llm_error_hint(err, "Supported: gpt2 (byte-level BPE).");
		return LLM_E_MODEL;
	}
	if (spec->pre == NULL)
	{
		llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.pre is missing");
		llm_error_hint(err, "Convert the model again with a current converter.");
		return LLM_E_MODEL;
	}
	*kind = llm_pretok_find(spec->pre);
	if (*kind == NULL)
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.pre \"%s\" is not supported",
							 printable(spec->pre));
	return LLM_OK;
}

static LlmStatus
check_ids(const LlmVocabSpec *spec, LlmError *err)
{
	const struct
	{
		const char *key;
		int64_t id;
	} ids[] = {{"bos", spec->bos}, {"eos", spec->eos}, {"eot", spec->eot}, {"eom", spec->eom}};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		if (ids[i].id < -1 || ids[i].id >= spec->n_vocab)
		{
			llm_error_set(err, LLM_E_MODEL,
						  "tokenizer.ggml.%s_token_id is %lld, but the vocabulary has %d tokens",
						  ids[i].key, (long long) ids[i].id, spec->n_vocab);
			llm_error_numbers(err, ids[i].id, spec->n_vocab - 1);
			return LLM_E_MODEL;
		}
	if (spec->add_bos == 1 && spec->bos < 0)
		return llm_error_set(err, LLM_E_MODEL,
							 "tokenizer.ggml.add_bos_token is true, but there is "
							 "no tokenizer.ggml.bos_token_id");
	return LLM_OK;
}

static bool
ends_turn(const LlmVocab *v, const LlmVocabSpec *spec, int32_t id)
{
	if (id == spec->eos || id == spec->eot || id == spec->eom)
		return true;
	if (v->type[id] != LLM_TOKEN_CONTROL)
		return false;
	for (size_t i = 0; i < sizeof(end_texts) / sizeof(end_texts[0]); i++)
		if (llm_str_eq(v->text[id], end_texts[i]))
			return true;
	return false;
}

static LlmStatus
find_end_ids(LlmTokenizer *tok, const LlmVocabSpec *spec, LlmError *err)
{
	size_t most = sizeof(end_texts) / sizeof(end_texts[0]) + 3; /* texts are unique */

	tok->end_ids = malloc(most * sizeof(*tok->end_ids));
	if (tok->end_ids == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a tokenizer");
	for (int32_t id = 0; id < tok->vocab.n; id++)
		if (ends_turn(&tok->vocab, spec, id))
			tok->end_ids[tok->n_end++] = id;
	return LLM_OK;
}

LlmStatus
llm_tokenizer_create(const LlmVocabSpec *spec, LlmTokenizer **out, LlmError *err)
{
	const LlmPretokKind *kind;
	LlmTokenizer *tok;
	LlmStatus st;

	if ((st = check_names(spec, &kind, err)) != LLM_OK)
		return st;
	tok = calloc(1, sizeof(*tok));
	if (tok == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a tokenizer");
	if ((st = llm_vocab_init(&tok->vocab, spec, err)) != LLM_OK ||
		(st = check_ids(spec, err)) != LLM_OK ||
		(st = llm_special_init(&tok->specials, &tok->vocab, err)) != LLM_OK ||
		(st = llm_bpe_init(&tok->bpe, &tok->vocab, spec->merges, spec->n_merges,
						   kind->ignore_merges, err)) != LLM_OK ||
		(st = llm_pretok_create(kind, &tok->pretok, err)) != LLM_OK ||
		(st = find_end_ids(tok, spec, err)) != LLM_OK)
	{
		llm_tokenizer_free(tok);
		return st;
	}
	tok->bos = (int32_t) spec->bos;
	tok->eos = (int32_t) spec->eos;
	tok->adds_bos = spec->bos >= 0 && (spec->add_bos < 0 ? kind->adds_bos : spec->add_bos != 0);
	*out = tok;
	return LLM_OK;
}

void
llm_tokenizer_free(LlmTokenizer *tok)
{
	if (tok == NULL)
		return;
	free(tok->end_ids);
	llm_pretok_free(tok->pretok);
	llm_bpe_fini(&tok->bpe);
	llm_special_fini(&tok->specials);
	llm_vocab_fini(&tok->vocab);
	free(tok);
}

/* ---- encoding ---- */

/* One call of llm_tokenizer_encode. */
typedef struct Encode
{
	const LlmTokenizer *tok;
	LlmStr text;
	const LlmSpan *spans;
	size_t n_spans;
	size_t span;         /* the one that holds the current position */
	size_t trust_end;    /* end of the run of trusted spans around it, 0 = not trusted */
	LlmPretokWalk *walk; /* owned */
	LlmBpeScratch scratch;
	LlmTokens *out;
} Encode;

static LlmStatus
check_spans(const LlmSpan *spans, size_t n_spans, size_t len, LlmError *err)
{
	size_t at = 0;

	for (size_t i = 0; i < n_spans; i++)
	{
		if (spans[i].begin != at || spans[i].end < at || spans[i].end > len)
			return llm_error_set(err, LLM_E_INTERNAL, "span %zu of a text of %zu bytes is %zu..%zu",
								 i, len, spans[i].begin, spans[i].end);
		at = spans[i].end;
	}
	if (n_spans > 0 && at != len)
		return llm_error_set(err, LLM_E_INTERNAL, "the spans end at %zu of %zu bytes", at, len);
	return LLM_OK;
}

/* Move span and trust_end to position pos; positions only grow. */
static void
seek(Encode *e, size_t pos)
{
	if (e->span >= e->n_spans || pos < e->trust_end)
		return;
	while (e->span < e->n_spans && e->spans[e->span].end <= pos)
		e->span++;
	e->trust_end = 0;
	for (size_t i = e->span; i < e->n_spans && e->spans[i].trusted; i++)
		e->trust_end = e->spans[i].end;
}

/* The words of text[begin..end), between two special tokens: what is cut never looks beyond. */
static LlmStatus
encode_words(Encode *e, size_t begin, size_t end, LlmError *err)
{
	const char *p = e->text.p + begin;
	size_t len = end - begin;

	for (size_t at = 0, next = 0; at < len; at = next)
	{
		LlmStatus st = llm_pretok_next(e->walk, p, len, at, &next, err);

		if (st == LLM_OK)
			st = llm_bpe_encode(&e->tok->bpe, &e->scratch, p + at, next - at, e->out, err);
		if (st == LLM_E_ENCODING || st == LLM_E_INVALID)
			llm_error_detail(err, "The word begins at byte %zu of the text.", begin + at);
		if (st != LLM_OK)
			return st;
	}
	return LLM_OK;
}

static LlmStatus
encode_text(Encode *e, LlmError *err)
{
	const LlmSpecials *specials = &e->tok->specials;
	size_t words = 0; /* where the words since the last special token begin */
	size_t pos = 0;

	while (pos < e->text.len)
	{
		int c = (unsigned char) e->text.p[pos];
		int32_t id;
		LlmStatus st;

		if (specials->first[c] == specials->first[c + 1])
		{
			pos++;
			continue;
		}
		seek(e, pos);
		id = llm_special_match(specials, e->text, pos, e->trust_end);
		if (id < 0)
		{
			pos++;
			continue;
		}
		if ((st = encode_words(e, words, pos, err)) != LLM_OK)
			return st;
		if (!llm_tokens_push(e->out, id))
			return llm_error_set(err, LLM_E_MEMORY, "out of memory for the tokens of a text");
		pos += e->tok->vocab.text[id].len;
		words = pos;
	}
	return encode_words(e, words, pos, err);
}

LlmStatus
llm_tokenizer_encode(const LlmTokenizer *tok, LlmStr text, const LlmSpan *spans, size_t n_spans,
					 LlmTokens *out, LlmError *err)
{
	Encode e = {.tok = tok, .text = text, .spans = spans, .n_spans = n_spans, .out = out};
	size_t n_before = out->len;
	LlmStatus st = check_spans(spans, n_spans, text.len, err);

	if (st != LLM_OK || text.len == 0)
		return st;
	if (!llm_utf8_valid(text.p, text.len))
		return llm_error_set(err, LLM_E_ENCODING, "text is not valid UTF-8");
	e.walk = llm_pretok_walk_create(tok->pretok, text.len);
	if (e.walk == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a text of %zu bytes", text.len);
	st = encode_text(&e, err);
	if (st != LLM_OK)
		out->len = n_before;
	llm_bpe_scratch_fini(&e.scratch);
	llm_pretok_walk_free(e.walk);
	return st;
}

/* ---- questions ---- */

LlmStr
llm_tokenizer_piece(const LlmTokenizer *tok, int32_t id, bool with_control)
{
	int type;

	if (id < 0 || id >= tok->vocab.n)
		return (LlmStr){"", 0};
	type = tok->vocab.type[id];
	if (!with_control && type != LLM_TOKEN_NORMAL && type != LLM_TOKEN_USER_DEFINED)
		return (LlmStr){"", 0};
	return tok->vocab.bytes[id];
}

int32_t
llm_tokenizer_vocab_size(const LlmTokenizer *tok)
{
	return tok->vocab.n;
}

int32_t
llm_tokenizer_bos(const LlmTokenizer *tok)
{
	return tok->bos;
}

int32_t
llm_tokenizer_eos(const LlmTokenizer *tok)
{
	return tok->eos;
}

bool
llm_tokenizer_adds_bos(const LlmTokenizer *tok)
{
	return tok->adds_bos;
}

bool
llm_tokenizer_is_unused(const LlmTokenizer *tok, int32_t id)
{
	return tok->vocab.type[id] == LLM_TOKEN_UNUSED;
}

LlmStr
llm_tokenizer_text(const LlmTokenizer *tok, int32_t id)
{
	if (id < 0 || id >= tok->vocab.n)
		return (LlmStr){"", 0};
	return tok->vocab.text[id];
}

const int32_t *
llm_tokenizer_end_ids(const LlmTokenizer *tok, int32_t *n)
{
	*n = tok->n_end;
	return tok->end_ids;
}

bool
llm_tokenizer_is_end(const LlmTokenizer *tok, int32_t id)
{
	for (int32_t i = 0; i < tok->n_end; i++)
		if (tok->end_ids[i] == id)
			return true;
	return false;
}
