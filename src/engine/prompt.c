/* engine/prompt.c - render, tokenise, truncate. */
#include "engine/prompt.h"

#include "engine/talk.h"
#include "tokenizer/detok.h"

/* What a request says, while its user's part may still be shortened. */
typedef struct Words
{
	LlmTalk talk;   /* of a templated request */
	bool templated; /* else `text` is all there is */
	LlmStr text;
	LlmStr *user;  /* the part that truncation shortens: in talk, or &text; NULL = none */
	size_t nbytes; /* of all text */
} Words;

static LlmStatus
words_init(Words *w, const LlmLoaded *m, const LlmRequest *r, LlmError *err)
{
	const char *what = r->messages != NULL                ? "messages need"
					   : r->system.p != NULL              ? "a system prompt needs"
					   : r->template_kwargs.p != NULL     ? "template_kwargs needs"
					   : r->reasoning > LLM_REASONING_OFF ? "reasoning needs"
														  : NULL;
	LlmStatus st;

	*w = (Words){.templated = !r->raw && m->info.has_template, .text = r->prompt};
	w->user = &w->text;
	w->nbytes = r->prompt.len;
	if (!w->templated)
		return what == NULL ? LLM_OK
							: llm_error_set(err, LLM_E_INVALID, "%s a chat template, but %s", what,
											r->raw ? "the request is raw" : "the model has none");
	if ((st = llm_talk_init(&w->talk, r, err)) != LLM_OK)
		return st;
	w->user = w->talk.user;
	w->nbytes = 0;
	for (size_t i = 0; i < w->talk.n; i++)
		w->nbytes += w->talk.messages[i].content.len;
	return LLM_OK;
}

/* The model's BOS in front, unless the template wrote it. An empty prompt is a call too: the model
 * needs some token to go on from. */
static bool
bos_insert(const LlmLoaded *m, LlmTokens *ids)
{
	int32_t bos = llm_tokenizer_bos(m->tok);
	bool wanted = llm_tokenizer_adds_bos(m->tok) && (ids->len == 0 || ids->ids[0] != bos);

	if (ids->len == 0 && bos < 0)
		bos = llm_tokenizer_eos(m->tok);
	if (bos < 0 || (!wanted && ids->len > 0))
		return true;
	if (!llm_tokens_push(ids, bos))
		return false;
	for (size_t i = ids->len - 1; i > 0; i--)
		ids->ids[i] = ids->ids[i - 1];
	ids->ids[0] = bos;
	return true;
}

/* All tokens of the words; out is empty before. */
static LlmStatus
encode(const LlmLoaded *m, const Words *w, LlmPrompt *out, LlmError *err)
{
	LlmTokens *ids = &out->ids;
	LlmMarkedText text = {0};
	LlmStatus st;

	out->think = LLM_THINK_ANSWER;
	if (!w->templated)
		st = llm_tokenizer_encode(m->tok, w->text, NULL, 0, ids, err);
	else if ((st = llm_talk_render(&w->talk, m, &text, err)) == LLM_OK)
	{
		st = llm_tokenizer_encode(m->tok, (LlmStr){text.text.data, text.text.len}, text.spans,
								  text.n_spans, ids, err);
		out->think = llm_think_begin(&m->think, &text);
		out->dated = text.dated;
	}
	llm_marked_fini(&text);
	if (st == LLM_OK && !bos_insert(m, ids))
		st = llm_error_set(err, LLM_E_MEMORY, "out of memory for a prompt");
	return st;
}

/* about: "" or "at least ", said before the number. */
static LlmStatus
context_error(const char *about, size_t got, int32_t context, LlmError *err)
{
	llm_error_set(err, LLM_E_CONTEXT,
				  "the prompt has %s%zu tokens, but the context of %d holds %d and an answer",
				  about, got, context, context - 1);
	llm_error_hint(err, "Shorten the prompt, or set the option truncate to left or right.");
	llm_error_numbers(err, (int64_t) got, context - 1);
	return LLM_E_CONTEXT;
}

/* The part of text that n of its tokens cover, from the left or the right, cut at a character. */
static LlmStr
text_keep(const LlmLoaded *m, LlmStr text, const LlmTokens *ids, size_t n, LlmTruncate side)
{
	size_t from = side == LLM_TRUNCATE_LEFT ? ids->len - n : 0;
	size_t begin = 0;
	size_t end = 0;

	for (size_t i = 0; i < from + n; i++)
	{
		if (i == from)
			begin = end;
		end += llm_tokenizer_piece(m->tok, ids->ids[i], true).len;
	}
	end = end < text.len ? end : text.len;
	if (n == 0 || begin >= end)
		return (LlmStr){text.p, 0};
	while (begin < end && ((unsigned char) text.p[begin] & 0xC0) == 0x80)
		begin++;
	return (LlmStr){text.p + begin, llm_utf8_complete(text.p + begin, end - begin)};
}

/* Encode again with ever less of the user's text until at most `most` tokens are left. */
static LlmStatus
truncate_text(const LlmLoaded *m, Words *w, size_t most, LlmTruncate side, LlmPrompt *out,
			  LlmError *err)
{
	LlmStr whole = w->user != NULL ? *w->user : (LlmStr){NULL, 0};
	LlmTokens user = {0};
	LlmStatus st = llm_tokenizer_encode(m->tok, whole, NULL, 0, &user, err);
	size_t n = user.len;

	for (int pass = 0; st == LLM_OK && out->ids.len > most; pass++)
	{
		size_t over = out->ids.len - most + (pass == 0 ? 0 : n / 16); /* few passes, in any case */

		if (n == 0) /* what is around the user's text is too long by itself */
			st = context_error("", out->ids.len, m->info.context_length, err);
		else
		{
			n -= over < n ? over : n;
			out->ids.len = 0;
			*w->user = text_keep(m, whole, &user, n, side);
			st = encode(m, w, out, err);
		}
	}
	llm_tokens_fini(&user);
	return st;
}

/* Bytes of text beyond which a prompt is over the context whatever its tokens are, several
 * times over: such a text is not encoded as a whole, which would hold up every other request. */
static size_t
encode_bound(const LlmLoaded *m)
{
	return 4 * (size_t) m->info.context_length * (size_t) (m->max_piece > 0 ? m->max_piece : 1);
}

/* The end of an overlong text that truncation will look at. */
static LlmStr
text_clip(LlmStr text, size_t nbytes, LlmTruncate side)
{
	size_t begin = side == LLM_TRUNCATE_LEFT ? text.len - nbytes : 0;

	while (begin < text.len && ((unsigned char) text.p[begin] & 0xC0) == 0x80)
		begin++;
	nbytes = begin + nbytes < text.len ? nbytes : text.len - begin;
	return (LlmStr){text.p + begin, llm_utf8_complete(text.p + begin, nbytes)};
}

/* Bring a text that is far too long down to what truncation will look at. */
static LlmStatus
words_clip(const LlmLoaded *m, Words *w, LlmTruncate truncate, LlmError *err)
{
	size_t bound = encode_bound(m);
	size_t rest = w->nbytes - (w->user != NULL ? w->user->len : 0);

	if (w->nbytes <= bound)
		return LLM_OK;
	if (truncate == LLM_TRUNCATE_ERROR || rest > bound)
		return context_error("at least ", w->nbytes / (size_t) m->max_piece, m->info.context_length,
							 err);
	*w->user = text_clip(*w->user, bound - rest, truncate);
	return LLM_OK;
}

static LlmStatus
words_encode(const LlmLoaded *m, Words *w, const LlmRequest *r, LlmPrompt *out, LlmError *err)
{
	int32_t context = m->info.context_length;
	int32_t room = r->max_tokens;
	LlmStatus st;

	if ((st = words_clip(m, w, r->truncate, err)) != LLM_OK ||
		(st = encode(m, w, out, err)) != LLM_OK)
		return st;
	if (out->ids.len == 0)
		return llm_error_set(err, LLM_E_INVALID,
							 "the prompt is empty and the model has no token to begin with");
	if (out->ids.len < (size_t) context)
		return LLM_OK;
	if (r->truncate == LLM_TRUNCATE_ERROR)
		return context_error("", out->ids.len, context, err);
	if (room < 0)
		room = context / 4;
	room = room < context / 2 ? room : context / 2;
	return truncate_text(m, w, (size_t) (context - (room > 1 ? room : 1)), r->truncate, out, err);
}

LlmStatus
llm_prompt_encode(const LlmLoaded *m, const LlmRequest *r, LlmPrompt *out, LlmError *err)
{
	Words w;
	LlmStatus st = words_init(&w, m, r, err);

	if (st == LLM_OK)
		st = words_encode(m, &w, r, out, err);
	llm_talk_fini(&w.talk);
	return st;
}

void
llm_prompt_fini(LlmPrompt *p)
{
	llm_tokens_fini(&p->ids);
}

LlmStatus
llm_prompt_tokenize(const LlmLoaded *m, LlmStr text, LlmTokens *out, LlmError *err)
{
	return llm_tokenizer_encode(m->tok, text, NULL, 0, out, err);
}

static LlmStatus
check_ids(const LlmLoaded *m, const int32_t *ids, int32_t n, LlmError *err)
{
	int32_t n_vocab = llm_tokenizer_vocab_size(m->tok);

	for (int32_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= n_vocab)
		{
			llm_error_set(err, LLM_E_INVALID, "token id %d is not in the vocabulary (0 to %d)",
						  ids[i], n_vocab - 1);
			llm_error_numbers(err, ids[i], n_vocab - 1);
			return LLM_E_INVALID;
		}
	return LLM_OK;
}

LlmStatus
llm_prompt_detokenize(const LlmLoaded *m, const int32_t *ids, int32_t n, LlmBuf *out, LlmError *err)
{
	LlmDetok d = {0};
	LlmStatus st = check_ids(m, ids, n, err);

	if (st != LLM_OK)
		return st;
	for (int32_t i = 0; i < n; i++)
		if (!llm_detok_push(&d, m->tok, ids[i], true, out))
			return llm_error_set(err, LLM_E_MEMORY, "out of memory for the text of %d tokens", n);
	llm_detok_end(&d);
	return LLM_OK;
}

LlmStatus
llm_prompt_check(const LlmLoaded *m, const int32_t *ids, int32_t n, LlmError *err)
{
	if (n < 1)
		return llm_error_set(err, LLM_E_INVALID, "a prompt of %d tokens", n);
	if (n >= m->info.context_length)
		return context_error("", (size_t) n, m->info.context_length, err);
	return check_ids(m, ids, n, err);
}
