/*
 * template/lexer.c - the tokens of a template.
 *
 * Outside tags a token is the text up to the next tag, already trimmed on both sides. The rules are
 * those that Jinja documents under "Whitespace Control"; where the documentation is silent they
 * were found by rendering small templates.
 */
#include "template/lexer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "template/text.h"

#define NUMBER_LEN_MAX 300

void
llm_tmpl_lexer_init(LlmLexer *lx, LlmRun *run, LlmStr source)
{
	char *src = llm_tmpl_alloc(run, source.len + 1, 1);
	size_t n = 0;

	for (size_t i = 0; i < source.len; i++)
	{
		if (source.p[i] != '\r')
			src[n++] = source.p[i];
		else if (i + 1 >= source.len || source.p[i + 1] != '\n')
			src[n++] = '\n';
	}
	if (n > 0 && src[n - 1] == '\n')
		n--;
	src[n] = '\0'; /* so that looking one byte ahead is always allowed */
	memset(lx, 0, sizeof(*lx));
	lx->run = run;
	lx->src = src;
	lx->len = n;
	lx->line = 1;
	lx->mode = 'd';
	run->line = 1;
}

static void
advance(LlmLexer *lx, size_t to)
{
	for (; lx->pos < to; lx->pos++)
		lx->line += lx->src[lx->pos] == '\n';
	lx->run->line = lx->line;
}

static bool
looking_at(const LlmLexer *lx, size_t at, const char *z)
{
	size_t n = strlen(z);

	return n <= lx->len - at && memcmp(lx->src + at, z, n) == 0;
}

static size_t
skip_space(const LlmLexer *lx, size_t at)
{
	return at + llm_tmpl_space_skip(lx->src + at, lx->len - at);
}

/* Where the template goes on when a tag's end "%}" or "#}" is at `at`, the byte before it being
 * its sign. */
static size_t
after_tag(const LlmLexer *lx, size_t at, char sign)
{
	at += 2;
	if (sign == '-')
		return skip_space(lx, at);
	if (sign != '+' && at < lx->len && lx->src[at] == '\n')
		at++;
	return at;
}

/* The end of `word` when a tag "{%- word" stands at `at`, else 0; *sign is the sign or 0. */
static size_t
match_tag_word(const LlmLexer *lx, size_t at, const char *word, char *sign)
{
	if (!looking_at(lx, at, "{%"))
		return 0;
	at += 2;
	*sign = at < lx->len && (lx->src[at] == '-' || lx->src[at] == '+') ? lx->src[at] : 0;
	at = skip_space(lx, at + (*sign != 0));
	return looking_at(lx, at, word) ? skip_space(lx, at + strlen(word)) : 0;
}

/* After "{% raw" stands "%}": where the raw text begins, else 0. */
static size_t
match_raw_begin(const LlmLexer *lx, size_t at, char *sign)
{
	size_t end = match_tag_word(lx, at, "raw", sign);

	if (end != 0 && looking_at(lx, end, "-%}"))
		return skip_space(lx, end + 3);
	return end != 0 && looking_at(lx, end, "%}") ? end + 2 : 0;
}

/* "{% endraw %}" at `at`: where the template goes on, else 0. */
static size_t
match_raw_end(const LlmLexer *lx, size_t at, char *sign)
{
	size_t end = match_tag_word(lx, at, "endraw", sign);
	char last = 0;

	if (end != 0 && (lx->src[end] == '-' || lx->src[end] == '+'))
		last = lx->src[end++];
	return end != 0 && looking_at(lx, end, "%}") ? after_tag(lx, end, last) : 0;
}

/* The text from `begin` to a tag at `end`, trimmed as the sign and the kind of tag ask. */
static LlmStr
trim_text(const LlmLexer *lx, size_t begin, size_t end, char sign, bool variable)
{
	const char *p = lx->src + begin;
	size_t n = end - begin;
	size_t line = n;

	if (sign == '-')
		return (LlmStr){p, llm_tmpl_space_rtrim(p, n)};
	if (sign == '+' || variable)
		return (LlmStr){p, n};
	while (line > 0 && p[line - 1] != '\n')
		line--;
	if (line == 0 && begin > 0 && lx->src[begin - 1] != '\n')
		return (LlmStr){p, n};
	return (LlmStr){p, llm_tmpl_space_skip(p + line, n - line) == n - line ? line : n};
}

/* Raw text from the current position on. */
static LlmToken
raw_text(LlmLexer *lx)
{
	size_t begin = lx->pos;
	LlmToken tok = {.kind = LLM_T_TEXT, .line = lx->line};

	for (size_t at = begin; at < lx->len; at++)
	{
		char sign;
		size_t end = lx->src[at] == '{' ? match_raw_end(lx, at, &sign) : 0;

		if (end != 0)
		{
			tok.str = trim_text(lx, begin, at, sign, false);
			advance(lx, end);
			return tok;
		}
	}
	llm_tmpl_fail(lx->run, "'raw' is not closed");
}

static void
skip_comment(LlmLexer *lx)
{
	size_t at = lx->pos;

	while (at < lx->len && !looking_at(lx, at, "#}"))
		at++;
	if (at >= lx->len)
		llm_tmpl_fail(lx->run, "a comment is not closed");
	advance(lx, after_tag(lx, at, at > lx->pos ? lx->src[at - 1] : 0));
}

/* The next place where a tag begins, or the end. */
static size_t
find_tag(const LlmLexer *lx)
{
	size_t at = lx->pos;

	while (at < lx->len)
	{
		const char *hit = memchr(lx->src + at, '{', lx->len - at);

		if (hit == NULL)
			break;
		at = (size_t) (hit - lx->src);
		if (hit[1] == '{' || hit[1] == '%' || hit[1] == '#')
			return at;
		at++;
	}
	return lx->len;
}

/* The text up to the next tag, which may be empty; the token that the tag itself gives, if any, is
 * held. */
static LlmToken
next_outside(LlmLexer *lx)
{
	size_t begin = lx->pos;
	size_t at = find_tag(lx);
	LlmToken tok = {.kind = LLM_T_TEXT, .line = lx->line};
	char sign, kind;
	size_t raw;

	if (at >= lx->len)
	{
		tok.str = (LlmStr){lx->src + begin, lx->len - begin};
		tok.kind = tok.str.len > 0 ? LLM_T_TEXT : LLM_T_EOF;
		advance(lx, lx->len);
		return tok;
	}
	kind = lx->src[at + 1];
	sign = lx->src[at + 2] == '-' || lx->src[at + 2] == '+' ? lx->src[at + 2] : 0;
	tok.str = trim_text(lx, begin, at, sign, kind == '{');
	raw = kind == '%' ? match_raw_begin(lx, at, &sign) : 0;
	advance(lx, raw != 0 ? raw : at + 2 + (sign != 0));
	if (raw != 0)
		lx->held = raw_text(lx);
	else if (kind == '#')
		skip_comment(lx);
	else
	{
		lx->mode = kind == '{' ? 'v' : 'b';
		lx->open = 0;
		lx->held.kind = kind == '{' ? LLM_T_VAR_BEGIN : LLM_T_BLOCK_BEGIN;
		lx->held.line = lx->line;
	}
	lx->has_held = kind != '#';
	return tok;
}

/* Append the character that the n hexadecimal digits at p name. */
static void
unescape_hex(LlmLexer *lx, const char *p, int n, char *out, size_t *len)
{
	char digits[9] = "";
	unsigned long code;

	memcpy(digits, p, strnlen(p, (size_t) n));
	if (strspn(digits, "0123456789abcdefABCDEF") != (size_t) n)
		llm_tmpl_fail(lx->run, "a string has a bad escape");
	code = strtoul(digits, NULL, 16);
	if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
		llm_tmpl_fail(lx->run, "a string has an escape that is no character");
	*len +=
		(size_t) utf8proc_encode_char((utf8proc_int32_t) code, (utf8proc_uint8_t *) (out + *len));
}

/* Decode one escape at p (after the backslash), which a quote ends; returns the bytes read. */
static size_t
unescape(LlmLexer *lx, const char *p, char *out, size_t *n)
{
	static const char from[] = "abfnrtv\\'\"";
	static const char to[] = "\a\b\f\n\r\t\v\\'\"";
	const char *at = *p == '\0' ? NULL : strchr(from, *p);

	if (at != NULL)
		out[(*n)++] = to[at - from];
	else if (*p == 'x' || *p == 'u' || *p == 'U')
	{
		int len = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;

		unescape_hex(lx, p + 1, len, out, n);
		return (size_t) len + 1;
	}
	else if (*p == 'N' || (*p >= '0' && *p <= '7'))
		llm_tmpl_fail(lx->run, "escapes by name or in octal are not supported");
	else if (*p != '\n') /* which continues the line */
	{
		out[(*n)++] = '\\';
		return 0;
	}
	return 1;
}

static LlmToken
string_token(LlmLexer *lx)
{
	const char *p = lx->src + lx->pos + 1;
	const char *end = p;
	const char *limit = lx->src + lx->len;
	LlmToken tok = {.kind = LLM_T_STRING, .line = lx->line};
	char *out;
	size_t n = 0;

	while (end < limit && *end != p[-1])
		end += *end == '\\' && end + 1 < limit ? 2 : 1;
	if (end >= limit)
		llm_tmpl_fail(lx->run, "a string is not closed");
	advance(lx, (size_t) (end - lx->src) + 1);
	tok.str = (LlmStr){p, (size_t) (end - p)};
	if (memchr(p, '\\', tok.str.len) == NULL)
		return tok;
	out = llm_tmpl_alloc(lx->run, tok.str.len + 4, 1);
	while (p < end)
	{
		if (*p == '\\')
			p += 1 + unescape(lx, p + 1, out, &n);
		else
			out[n++] = *p++;
	}
	tok.str = (LlmStr){out, n};
	return tok;
}

static LlmToken
number_token(LlmLexer *lx)
{
	static const char digits[] = "0123456789";
	const char *begin = lx->src + lx->pos;
	const char *end = begin + strspn(begin, digits);
	LlmToken tok = {.kind = LLM_T_INT, .line = lx->line};

	if (*end == '.' && isdigit((unsigned char) end[1]))
	{
		end += 1 + strspn(end + 1, digits);
		tok.kind = LLM_T_FLOAT;
	}
	if (*end == 'e' || *end == 'E')
	{
		const char *power = end + 1 + (end[1] == '+' || end[1] == '-');

		if (isdigit((unsigned char) *power))
		{
			end = power + strspn(power, digits);
			tok.kind = LLM_T_FLOAT;
		}
	}
	if (end - begin > NUMBER_LEN_MAX)
		llm_tmpl_fail(lx->run, "a number is too long");
	errno = 0;
	if (tok.kind == LLM_T_FLOAT)
		tok.f = strtod(begin, NULL); /* stops at end: what is no digit cannot be hexadecimal */
	else
		tok.i = strtoll(begin, NULL, 10);
	if (tok.kind == LLM_T_INT && errno != 0)
		llm_tmpl_fail(lx->run, "an integer is beyond 64 bits");
	tok.str = (LlmStr){begin, (size_t) (end - begin)};
	advance(lx, (size_t) (end - lx->src));
	return tok;
}

static bool
name_char(char c)
{
	return isalnum((unsigned char) c) || c == '_' || (unsigned char) c >= 0x80;
}

static LlmToken
operator_token(LlmLexer *lx)
{
	static const char *const pairs[] = {"**", "//", "==", "!=", "<=", ">="};
	char c = lx->src[lx->pos];
	LlmToken tok = {.kind = LLM_T_OP, .line = lx->line, .str = {lx->src + lx->pos, 1}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
	{
		if (looking_at(lx, lx->pos, pairs[i]))
			tok.str.len = 2;
	}
	if (tok.str.len == 1 && (c == '\0' || strchr("+-*/%~<>=|.,:()[]{}", c) == NULL))
		llm_tmpl_fail(lx->run, "unexpected character '%c'", isprint((unsigned char) c) ? c : '?');
	if (strchr("([{", c) != NULL)
		lx->open++;
	else if (strchr(")]}", c) != NULL)
		lx->open--;
	advance(lx, lx->pos + tok.str.len);
	return tok;
}

/* The end of the tag when it stands here and no bracket is open. */
static bool
match_end(LlmLexer *lx, LlmToken *tok)
{
	const char *end = lx->mode == 'v' ? "}}" : "%}";
	char c = lx->src[lx->pos];
	char sign = c == '-' || (c == '+' && lx->mode == 'b') ? c : 0;
	size_t at = lx->pos + (sign != 0);

	if (lx->open > 0 || !looking_at(lx, at, end))
		return false;
	tok->line = lx->line;
	tok->kind = lx->mode == 'v' ? LLM_T_VAR_END : LLM_T_BLOCK_END;
	tok->str = llm_str(end);
	/* A variable keeps the new line that follows it. */
	advance(lx, after_tag(lx, at, lx->mode == 'v' && sign == 0 ? '+' : sign));
	lx->mode = 'd';
	return true;
}

static LlmToken
next_inside(LlmLexer *lx)
{
	LlmToken tok = {.kind = LLM_T_NAME};
	size_t begin;
	char c;

	advance(lx, skip_space(lx, lx->pos));
	if (lx->pos >= lx->len)
		llm_tmpl_fail(lx->run, "a tag is not closed");
	if (match_end(lx, &tok))
		return tok;
	c = lx->src[lx->pos];
	if (c == '\'' || c == '"')
		return string_token(lx);
	if (isdigit((unsigned char) c))
		return number_token(lx);
	if (!name_char(c))
		return operator_token(lx);
	begin = lx->pos;
	while (lx->pos < lx->len && name_char(lx->src[lx->pos]))
		lx->pos++;
	tok.line = lx->line;
	tok.str = (LlmStr){lx->src + begin, lx->pos - begin};
	return tok;
}

LlmToken
llm_tmpl_lexer_next(LlmLexer *lx)
{
	LlmToken tok;

	do
	{
		if (lx->has_held)
		{
			tok = lx->held;
			lx->has_held = false;
		}
		else
			tok = lx->mode == 'd' ? next_outside(lx) : next_inside(lx);
	} while (tok.kind == LLM_T_TEXT && tok.str.len == 0);
	return tok;
}
