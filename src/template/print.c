/* template/print.c - values as text: as Python prints them, and as JSON. */
#include "template/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static void
add_words(LlmRun *run, LlmTextBuf *buf, const char *z, bool trusted)
{
	llm_tmpl_buf_add(run, buf, z, strlen(z), trusted);
}

/* The shortest digits that read back as f, in the way Python's repr writes them; z has 32 bytes. */
static void
float_repr(double f, char *z)
{
	char digits[32];
	char *e;
	int exp10;

	if (isnan(f) || isinf(f))
	{
		strcpy(z, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
		return;
	}
	for (int n = 0; n < 17; n++)
	{
		snprintf(digits, sizeof(digits), "%.*e", n, f);
		if (strtod(digits, NULL) == f)
			break;
	}
	e = strchr(digits, 'e');
	exp10 = atoi(e + 1);
	if (exp10 >= -4 && exp10 < 16)
	{
		int shown = (int) (e - digits) - (digits[0] == '-');
		int decimals = (shown > 1 ? shown - 2 : 0) - exp10;

		snprintf(z, 32, "%.*f", decimals > 0 ? decimals : 1, f);
	}
	else
	{
		*e = '\0';
		snprintf(z, 32, "%.24se%c%02u", digits, exp10 < 0 ? '-' : '+',
				 (unsigned) abs(exp10) % 1000);
	}
}

static void
write_number(LlmRun *run, LlmTextBuf *buf, LlmValue v)
{
	char z[32];

	if (v.kind == LLM_V_INT)
		snprintf(z, sizeof(z), "%" PRId64, v.i);
	else
		float_repr(v.f, z);
	add_words(run, buf, z, v.trusted);
}

/* The escape of c in a Python string in quotes q; false when it needs none. */
static bool
python_escape(uint32_t c, char q, char *z)
{
	/* The categories in order: unassigned, the printable ones, separators, control and the like. */
	utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t) c);

	if (c == (uint32_t) q || c == '\\')
		sprintf(z, "\\%c", (char) c);
	else if (c == '\n' || c == '\r' || c == '\t')
		sprintf(z, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
	else if (c == ' ' || (cat > UTF8PROC_CATEGORY_CN && cat < UTF8PROC_CATEGORY_ZS))
		return false;
	else
		sprintf(z, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned) c);
	return true;
}

/* The escape of c in a JSON string; false when it needs none. */
static bool
json_escape(uint32_t c, bool ascii, char *z)
{
	static const char from[] = "\"\\\n\r\t\f\b";
	static const char to[] = "\"\\nrtfb";
	const char *at = c < 0x80 && c != 0 ? strchr(from, (int) c) : NULL;

	if (at != NULL)
		sprintf(z, "\\%c", to[at - from]);
	else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000))
		sprintf(z, "\\u%04x", (unsigned) c);
	else if (ascii && c >= 0x10000)
		sprintf(z, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
	else
		return false;
	return true;
}

/* Append text with escapes and in quotes; a character's escape has the character's origin. */
static void
write_string(LlmRun *run, LlmTextBuf *buf, LlmText text, const LlmStyle *style)
{
	const char *p = llm_tmpl_text_data(text);
	bool single =
		!style->json && (memchr(p, '\'', text.len) == NULL || memchr(p, '"', text.len) != NULL);
	char q = single ? '\'' : '"';
	size_t done = 0;
	size_t at = 0;

	llm_tmpl_charge(run, text.len / 32);
	llm_tmpl_buf_add(run, buf, &q, 1, false);
	while (at < text.len)
	{
		char z[16];
		uint32_t c;
		size_t end;
		size_t len = llm_tmpl_char(p + at, text.len - at, &c);

		if (style->json ? json_escape(c, style->ascii, z) : python_escape(c, q, z))
		{
			llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(text, done, at - done));
			add_words(run, buf, z, llm_tmpl_text_origin(text, at, &end));
			done = at + len;
		}
		at += len;
	}
	llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(text, done, text.len - done));
	llm_tmpl_buf_add(run, buf, &q, 1, false);
}

static void write_value(LlmRun *run, LlmTextBuf *buf, LlmValue v, const LlmStyle *style, int level);

static void
write_newline(LlmRun *run, LlmTextBuf *buf, const LlmStyle *style, int level)
{
	if (!style->pretty)
		return;
	add_words(run, buf, "\n", false);
	for (int i = 0; i < level; i++)
		llm_tmpl_buf_add_text(run, buf, style->indent);
}

static void
write_key(LlmRun *run, LlmTextBuf *buf, LlmValue key, const LlmStyle *style)
{
	bool quotes = style->json && key.kind != LLM_V_STR;

	if (quotes && key.kind == LLM_V_TUPLE)
		llm_tmpl_fail(run, "a tuple cannot be a key in JSON");
	add_words(run, buf, quotes ? "\"" : "", false);
	write_value(run, buf, key, style, 0);
	add_words(run, buf, quotes ? "\"" : "", false);
}

static void
write_dict(LlmRun *run, LlmTextBuf *buf, const LlmDict *dict, const LlmStyle *style, int level)
{
	LlmEntry *entries = dict->entries;

	if (style->sort_keys && dict->n > 0)
	{
		entries = llm_tmpl_alloc(run, dict->n, sizeof(*entries));
		memcpy(entries, dict->entries, dict->n * sizeof(*entries));
		llm_tmpl_sort(run, entries, dict->n, false);
	}
	add_words(run, buf, "{", false);
	for (size_t i = 0; i < dict->n; i++)
	{
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, style->item_sep);
		write_newline(run, buf, style, level + 1);
		write_key(run, buf, entries[i].key, style);
		llm_tmpl_buf_add_text(run, buf, style->key_sep);
		write_value(run, buf, entries[i].value, style, level + 1);
	}
	if (dict->n > 0)
		write_newline(run, buf, style, level);
	add_words(run, buf, "}", false);
}

static void
write_list(LlmRun *run, LlmTextBuf *buf, LlmValue v, const LlmStyle *style, int level)
{
	bool tuple = v.kind == LLM_V_TUPLE && !style->json;

	add_words(run, buf, tuple ? "(" : "[", false);
	for (size_t i = 0; i < v.list->n; i++)
	{
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, style->item_sep);
		write_newline(run, buf, style, level + 1);
		write_value(run, buf, v.list->items[i], style, level + 1);
	}
	if (v.list->n > 0)
		write_newline(run, buf, style, level);
	add_words(run, buf, !tuple ? "]" : v.list->n == 1 ? ",)" : ")", false);
}

/* How a value without parts is written; NULL for all others. */
static const char *
plain_word(LlmValue v, bool json)
{
	if (v.kind == LLM_V_UNDEFINED)
		return "Undefined";
	if (v.kind == LLM_V_NONE)
		return json ? "null" : "None";
	if (v.kind == LLM_V_BOOL && json)
		return v.b ? "true" : "false";
	if (v.kind == LLM_V_BOOL)
		return v.b ? "True" : "False";
	if (v.kind == LLM_V_FLOAT && json && !isfinite(v.f))
		return isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity";
	return NULL;
}

/* JSON, or what Python's repr() gives. */
static void
write_value(LlmRun *run, LlmTextBuf *buf, LlmValue v, const LlmStyle *style, int level)
{
	const char *word = plain_word(v, style->json);

	llm_tmpl_enter(run);
	llm_tmpl_charge(run, 1);
	if (v.kind == LLM_V_UNDEFINED && style->json)
		llm_tmpl_fail_undefined(run, v);
	if (word != NULL)
		add_words(run, buf, word, false);
	else if (v.kind == LLM_V_INT || v.kind == LLM_V_FLOAT)
		write_number(run, buf, v);
	else if (v.kind == LLM_V_STR)
		write_string(run, buf, *v.s, style);
	else if (v.kind == LLM_V_LIST || v.kind == LLM_V_TUPLE)
		write_list(run, buf, v, style, level);
	else if (v.kind == LLM_V_DICT)
		write_dict(run, buf, v.dict, style, level);
	else
		llm_tmpl_fail(run, "a %s cannot be %s", llm_tmpl_kind_name(v),
					  style->json ? "written as JSON" : "printed");
	llm_tmpl_leave(run);
}

void
llm_tmpl_print(LlmRun *run, LlmTextBuf *buf, LlmValue v)
{
	LlmStyle python = {0};

	if (v.kind == LLM_V_STR)
		llm_tmpl_buf_add_text(run, buf, *v.s);
	if (v.kind == LLM_V_STR || v.kind == LLM_V_UNDEFINED)
		return;
	if (v.kind >= LLM_V_LIST)
	{
		python.item_sep = llm_tmpl_text_borrow(run, llm_str(", "), false);
		python.key_sep = llm_tmpl_text_borrow(run, llm_str(": "), false);
	}
	write_value(run, buf, v, &python, 0);
}

LlmText
llm_tmpl_to_text(LlmRun *run, LlmValue v)
{
	LlmTextBuf *buf;

	if (v.kind == LLM_V_STR)
		return *v.s;
	buf = llm_tmpl_buf_new(run, 0);
	llm_tmpl_print(run, buf, v);
	return llm_tmpl_buf_text(buf);
}

LlmText
llm_tmpl_to_json(LlmRun *run, LlmValue v, const LlmStyle *style)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, 0);

	write_value(run, buf, v, style, 0);
	return llm_tmpl_buf_text(buf);
}
