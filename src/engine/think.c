/* engine/think.c - thinking markers: who has them, and where an answer begins. */
#include "engine/think.h"

#include <string.h>

/* The pairs that published models use: <think> by Qwen 3, DeepSeek R1, SmolLM3, GLM 4.5, MiniMax M1
 * and others, [THINK] by Mistral's Magistral. */
static const char *const pairs[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

/* ---- who ---- */

static int32_t
token_of(const LlmTokenizer *tok, LlmStr text)
{
	for (int32_t id = 0; id < llm_tokenizer_vocab_size(tok); id++)
	{
		LlmStr t = llm_tokenizer_text(tok, id);

		if (t.len == text.len && memcmp(t.p, text.p, t.len) == 0)
			return id;
	}
	return -1;
}

LlmThinkMarks
llm_think_marks(LlmStr template_source, const LlmTokenizer *tok)
{
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
	{
		LlmThinkMarks m = {.open = llm_str(pairs[i][0]), .close = llm_str(pairs[i][1])};

		m.open_id = token_of(tok, m.open);
		m.close_id = token_of(tok, m.close);
		if ((m.open_id >= 0 && m.close_id >= 0) ||
			(template_source.len > 0 &&
			 memmem(template_source.p, template_source.len, m.close.p, m.close.len) != NULL))
			return m;
	}
	return (LlmThinkMarks){.open_id = -1, .close_id = -1};
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static LlmStr
skip_space(LlmStr s)
{
	while (s.len > 0 && is_space(s.p[0]))
	{
		s.p++;
		s.len--;
	}
	return s;
}

static LlmStr
trim_end(LlmStr s)
{
	while (s.len > 0 && is_space(s.p[s.len - 1]))
		s.len--;
	return s;
}

LlmThinkState
llm_think_begin(const LlmThinkMarks *marks, const LlmMarkedText *prompt)
{
	LlmStr tail = trim_end((LlmStr){prompt->text.data, prompt->text.len});
	size_t begin; /* of the marker, if the tail ends in one */

	if (marks->open.len == 0)
		return LLM_THINK_ANSWER;
	if (tail.len < marks->open.len || prompt->n_spans == 0)
		return LLM_THINK_MAYBE;
	begin = tail.len - marks->open.len;
	/* A user's words are not the template's. */
	if (memcmp(tail.p + begin, marks->open.p, marks->open.len) != 0 ||
		!prompt->spans[prompt->n_spans - 1].trusted ||
		prompt->spans[prompt->n_spans - 1].begin > begin)
		return LLM_THINK_MAYBE;
	return LLM_THINK_OPEN;
}

/* ---- an answer ---- */

bool
llm_think_init(LlmThink *t, const LlmThinkMarks *marks, LlmThinkState begin, size_t nbytes)
{
	*t = (LlmThink){.marks = *marks, .state = begin};
	return begin == LLM_THINK_ANSWER || llm_buf_reserve(&t->text, nbytes);
}

void
llm_think_fini(LlmThink *t)
{
	llm_buf_fini(&t->text);
	memset(t, 0, sizeof(*t));
}

/* Drop the first n bytes. */
static void
buf_shift(LlmBuf *b, size_t n)
{
	b->len -= n;
	memmove(b->data, b->data + n, b->len + 1);
}

/* Is this thinking? Go to OPEN or ANSWER once the text tells. */
static bool
decide(LlmThink *t, LlmBuf *answer)
{
	LlmStr s = skip_space((LlmStr){t->text.data, t->text.len});
	size_t n = s.len < t->marks.open.len ? s.len : t->marks.open.len;

	if (n == 0 || (n < t->marks.open.len && memcmp(s.p, t->marks.open.p, n) == 0))
		return true;
	if (n < t->marks.open.len || memcmp(s.p, t->marks.open.p, n) != 0)
		return llm_think_end(t, answer);
	buf_shift(&t->text, t->text.len - s.len + n);
	t->state = LLM_THINK_OPEN;
	return true;
}

/* Look for the closing marker; what follows it is the answer's. */
static bool
close_find(LlmThink *t, LlmBuf *answer)
{
	LlmStr close = t->marks.close;
	LlmStr s = {t->text.data + t->scanned, t->text.len - t->scanned};
	const char *at = s.len == 0 ? NULL : memmem(s.p, s.len, close.p, close.len);
	size_t begin;

	if (at == NULL)
	{
		if (s.len >= close.len)
			t->scanned = t->text.len - (close.len - 1);
		return true;
	}
	begin = (size_t) (at - t->text.data);
	if (!llm_buf_append(answer, at + close.len, t->text.len - begin - close.len))
		return false;
	t->text.len = begin;
	t->text.data[begin] = '\0';
	t->state = LLM_THINK_CLOSED;
	return true;
}

/* The answer so far, without white space in front. */
static void
answer_begin(LlmThink *t, LlmBuf *answer)
{
	size_t n = answer->len - skip_space((LlmStr){answer->data, answer->len}).len;

	if (n > 0)
		buf_shift(answer, n);
	if (answer->len > 0)
		t->state = LLM_THINK_ANSWER;
}

bool
llm_think_push(LlmThink *t, const LlmTokenizer *tok, LlmDetok *d, int32_t token, LlmBuf *answer)
{
	bool held = t->state == LLM_THINK_MAYBE || t->state == LLM_THINK_OPEN;
	bool marker = held && (token == t->marks.open_id || token == t->marks.close_id);

	if (!llm_detok_push(d, tok, token, marker, held ? &t->text : answer))
		return false;
	if (t->state == LLM_THINK_MAYBE && !decide(t, answer))
		return false;
	if (t->state == LLM_THINK_OPEN && !close_find(t, answer))
		return false;
	if (t->state == LLM_THINK_CLOSED)
		answer_begin(t, answer);
	return true;
}

bool
llm_think_end(LlmThink *t, LlmBuf *answer)
{
	if (t->state != LLM_THINK_MAYBE)
		return true;
	t->state = LLM_THINK_ANSWER;
	if (!llm_buf_append(answer, t->text.data, t->text.len))
		return false;
	llm_buf_clear(&t->text);
	return true;
}

LlmStr
llm_think_text(const LlmThink *t)
{
	LlmStr s = {t->text.data, t->state == LLM_THINK_MAYBE ? 0 : t->text.len};

	s = trim_end(skip_space(s));
	return s.len > 0 ? s : (LlmStr){NULL, 0};
}
