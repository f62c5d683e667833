/* echo/echo_reply.c - find the last user turn, take the directives off, and say the rest. */
#include "echo/echo_reply.h"

#include <stdio.h>
#include <string.h>

#include "core/str.h"
#include "echo/echo_device.h"

#define DELAY_MAX 3600000 /* ms */
#define TOKENS_MAX 1000000

/* First token of the text of the last user turn; 0 when the prompt has no turns. */
static int32_t
turn_begin(const int32_t *prompt, int32_t n)
{
	static const char role[] = "user\n";
	int32_t len = (int32_t) sizeof(role) - 1;

	for (int32_t i = n - 1 - len; i >= 0; i--)
	{
		int32_t k = 0;

		if (prompt[i] != LLM_ECHO_TURN)
			continue;
		while (k < len && prompt[i + 1 + k] == role[k])
			k++;
		if (k == len)
			return i + 1 + len;
	}
	return 0;
}

/* The text as bytes; a turn ends at its end token, other control tokens are passed over. */
static int32_t
turn_text(const int32_t *prompt, int32_t n, char *out)
{
	int32_t len = 0;
	int32_t i = turn_begin(prompt, n);
	bool turn = i > 0;

	for (; i < n && !(turn && prompt[i] == LLM_ECHO_EOS); i++)
		if (prompt[i] < 256)
			out[len++] = (char) prompt[i];
	return len;
}

static void
refuse(LlmEchoReply *r, LlmStatus status, const char *what, LlmStr word)
{
	int room = (int) (sizeof(r->message) - strlen(what) - 1);
	int len = word.len < (size_t) room ? (int) word.len : room;

	r->status = status;
	len = (int) llm_utf8_complete(word.p, (size_t) len);
	snprintf(r->message, sizeof(r->message), "%s%.*s", what, len, word.p);
}

/* Digits to *out within 0 .. max. */
static bool
number_read(LlmStr s, int32_t max, int32_t *out)
{
	int64_t v = 0;

	if (s.len == 0 || s.len > 9)
		return false;
	for (size_t i = 0; i < s.len; i++)
	{
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		v = v * 10 + (s.p[i] - '0');
	}
	*out = (int32_t) v;
	return v <= max;
}

/* Act on one word "@name" or "@name=value". */
static void
directive_apply(LlmEchoReply *r, LlmStr word, uint64_t seed)
{
	const char *eq = memchr(word.p, '=', word.len);
	LlmStr name = {word.p, eq == NULL ? word.len : (size_t) (eq - word.p)};
	LlmStr value = {eq == NULL ? NULL : eq + 1, eq == NULL ? 0 : word.len - name.len - 1};
	bool known = true;

	if (llm_str_eq(name, "@delay"))
		known = number_read(value, DELAY_MAX, &r->delay_ms);
	else if (llm_str_eq(name, "@slow"))
		known = number_read(value, DELAY_MAX, &r->slow_ms);
	else if (llm_str_eq(name, "@tokens"))
		known = number_read(value, TOKENS_MAX, &r->n_bytes);
	else if (llm_str_eq(name, "@error") && value.len > 0)
		refuse(r, LLM_E_INTERNAL, "", value);
	else if (llm_str_eq(word, "@nan"))
		r->nan = true;
	else if (llm_str_eq(word, "@crash"))
		r->crash = true;
	else if (llm_str_eq(word, "@hang"))
		r->hang = true;
	else if (llm_str_eq(word, "@seed"))
		snprintf(r->seed_text, sizeof(r->seed_text), "%llu", (unsigned long long) seed);
	else
		known = false;
	if (!known)
		refuse(r, LLM_E_INVALID, "echo directive not understood: ", word);
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void
llm_echo_reply_parse(const int32_t *prompt, int32_t n, uint64_t seed, char *scratch,
					 LlmEchoReply *out)
{
	LlmStr s = {scratch, (size_t) turn_text(prompt, n, scratch)};

	memset(out, 0, sizeof(*out));
	out->n_bytes = -1;
	while (s.len > 0 && s.p[0] == '@')
	{
		LlmStr word = {s.p, 0};

		while (word.len < s.len && !is_space(s.p[word.len]))
			word.len++;
		directive_apply(out, word, seed);
		s.p += word.len;
		s.len -= word.len;
		while (s.len > 0 && is_space(s.p[0]))
		{
			s.p++;
			s.len--;
		}
	}
	if (out->seed_text[0] != '\0')
		s = llm_str(out->seed_text);
	out->text = s.p;
	out->len = (int32_t) s.len;
	if (out->n_bytes < 0 || out->len == 0)
		out->n_bytes = out->len;
}

int32_t
llm_echo_reply_token(const LlmEchoReply *r, int32_t i, bool endless)
{
	if (!endless && i >= r->n_bytes)
		return LLM_ECHO_EOS;
	/* An empty reply that may not end says dots. */
	return r->len == 0 ? '.' : (unsigned char) r->text[i % r->len];
}
