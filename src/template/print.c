/* template/print.c - values as text: as Python prints them, and as JSON. */
#include "template/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "template/order.h"

static void
add_words(LlmRun *run, LlmTextBuf *buf, const char *z, bool trusted)
{
	llm_tmpl_buf_add(run, buf, z, strlen(z), trusted);
}

void
llm_tmpl_float_repr(double f, char *z)
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

/* Scalars that str(), repr() and (but for the words) JSON write alike. */
static void
print_number(LlmRun *run, LlmTextBuf *buf, LlmValue v)
{
	char z[32];

	if (v.kind == LLM_V_INT)
		snprintf(z, sizeof(z), "%" PRId64, v.i);
	else
		llm_tmpl_float_repr(v.f, z);
	add_words(run, buf, z, v.trusted);
}

/* Does Python's repr write this character as it is? */
static bool
printable(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t) c))
	{
		case UTF8PROC_CATEGORY_CC:
		case UTF8PROC_CATEGORY_CF:
		case UTF8PROC_CATEGORY_CS:
		case UTF8PROC_CATEGORY_CO:
		case UTF8PROC_CATEGORY_CN:
		case UTF8PROC_CATEGORY_ZL:
		case UTF8PROC_CATEGORY_ZP:
			return false;
		case UTF8PROC_CATEGORY_ZS:
			return c == ' ';
		default:
			return true;
	}
}

/* The escape of c in a Python string in quotes q; false when it needs none. */
static bool
python_escape(uint32_t c, char q, char *z)
{
	if (c == (uint32_t) q || c == '\\')
		sprintf(z, "\\%c", (char) c);
	else if (c == '\n' || c == '\r' || c == '\t')
		sprintf(z, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
	else if (printable(c))
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

/* Append text with escapes, in quotes q; a character's escape has the character's origin. */
static void
quote(LlmRun *run, LlmTextBuf *buf, LlmText text, char q, bool json, bool ascii)
{
	const char *p = llm_tmpl_text_data(text);
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

		if (json ? json_escape(c, ascii, z) : python_escape(c, q, z))
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

static void
repr_list(LlmRun *run, LlmTextBuf *buf, LlmValue v)
{
	bool tuple = v.kind == LLM_V_TUPLE;

	add_words(run, buf, tuple ? "(" : "[", false);
	for (size_t i = 0; i < v.list->n; i++)
	{
		if (i > 0)
			add_words(run, buf, ", ", false);
		llm_tmpl_repr(run, buf, v.list->items[i]);
	}
	add_words(run, buf, tuple ? v.list->n == 1 ? ",)" : ")" : "]", false);
}

static void
repr_dict(LlmRun *run, LlmTextBuf *buf, const LlmDict *dict)
{
	add_words(run, buf, "{", false);
	for (size_t i = 0; i < dict->n; i++)
	{
		if (i > 0)
			add_words(run, buf, ", ", false);
		llm_tmpl_repr(run, buf, dict->entries[i].key);
		add_words(run, buf, ": ", false);
		llm_tmpl_repr(run, buf, dict->entries[i].value);
	}
	add_words(run, buf, "}", false);
}

void
llm_tmpl_repr(LlmRun *run, LlmTextBuf *buf, LlmValue v)
{
	const char *p;
	bool single;

	llm_tmpl_charge(run, 1);
	if (v.kind == LLM_V_UNDEFINED)
		add_words(run, buf, "Undefined", false);
	else if (v.kind == LLM_V_STR)
	{
		p = llm_tmpl_text_data(*v.s);
		single = memchr(p, '\'', v.s->len) == NULL || memchr(p, '"', v.s->len) != NULL;
		quote(run, buf, *v.s, single ? '\'' : '"', false, false);
	}
	else
		llm_tmpl_print(run, buf, v);
}

void
llm_tmpl_print(LlmRun *run, LlmTextBuf *buf, LlmValue v)
{
	llm_tmpl_enter(run);
	switch ((LlmKind) v.kind)
	{
		case LLM_V_UNDEFINED:
			break;
		case LLM_V_NONE:
			add_words(run, buf, "None", false);
			break;
		case LLM_V_BOOL:
			add_words(run, buf, v.b ? "True" : "False", false);
			break;
		case LLM_V_INT:
		case LLM_V_FLOAT:
			print_number(run, buf, v);
			break;
		case LLM_V_STR:
			llm_tmpl_buf_add_text(run, buf, *v.s);
			break;
		case LLM_V_LIST:
		case LLM_V_TUPLE:
			repr_list(run, buf, v);
			break;
		case LLM_V_DICT:
			repr_dict(run, buf, v.dict);
			break;
		case LLM_V_NAMESPACE:
			add_words(run, buf, "<Namespace ", false);
			repr_dict(run, buf, v.dict);
			add_words(run, buf, ">", false);
			break;
		default:
			llm_tmpl_fail(run, "a %s cannot be printed", llm_tmpl_kind_name(v));
	}
	llm_tmpl_leave(run);
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

static void json_value(LlmRun *run, LlmTextBuf *buf, LlmValue v, const LlmJsonStyle *style,
					   int level);

static void
json_newline(LlmRun *run, LlmTextBuf *buf, const LlmJsonStyle *style, int level)
{
	if (!style->pretty)
		return;
	add_words(run, buf, "\n", false);
	for (int i = 0; i < level; i++)
		llm_tmpl_buf_add_text(run, buf, style->indent);
}

static void
json_key(LlmRun *run, LlmTextBuf *buf, LlmValue key, const LlmJsonStyle *style)
{
	if (key.kind == LLM_V_STR)
	{
		quote(run, buf, *key.s, '"', true, style->ascii);
		return;
	}
	if (key.kind == LLM_V_TUPLE)
		llm_tmpl_fail(run, "a tuple cannot be a key in JSON");
	add_words(run, buf, "\"", false);
	json_value(run, buf, key, style, 0);
	add_words(run, buf, "\"", false);
}

static void
json_dict(LlmRun *run, LlmTextBuf *buf, const LlmDict *dict, const LlmJsonStyle *style, int level)
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
		json_newline(run, buf, style, level + 1);
		json_key(run, buf, entries[i].key, style);
		llm_tmpl_buf_add_text(run, buf, style->key_sep);
		json_value(run, buf, entries[i].value, style, level + 1);
	}
	if (dict->n > 0)
		json_newline(run, buf, style, level);
	add_words(run, buf, "}", false);
}

static void
json_array_text(LlmRun *run, LlmTextBuf *buf, const LlmList *list, const LlmJsonStyle *style,
				int level)
{
	add_words(run, buf, "[", false);
	for (size_t i = 0; i < list->n; i++)
	{
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, style->item_sep);
		json_newline(run, buf, style, level + 1);
		json_value(run, buf, list->items[i], style, level + 1);
	}
	if (list->n > 0)
		json_newline(run, buf, style, level);
	add_words(run, buf, "]", false);
}

static void
json_value(LlmRun *run, LlmTextBuf *buf, LlmValue v, const LlmJsonStyle *style, int level)
{
	llm_tmpl_enter(run);
	llm_tmpl_charge(run, 1);
	switch ((LlmKind) v.kind)
	{
		case LLM_V_NONE:
			add_words(run, buf, "null", false);
			break;
		case LLM_V_BOOL:
			add_words(run, buf, v.b ? "true" : "false", false);
			break;
		case LLM_V_FLOAT:
			if (isnan(v.f) || isinf(v.f))
			{
				add_words(run, buf, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity", false);
				break;
			}
			/* fall through */
		case LLM_V_INT:
			print_number(run, buf, v);
			break;
		case LLM_V_STR:
			quote(run, buf, *v.s, '"', true, style->ascii);
			break;
		case LLM_V_LIST:
		case LLM_V_TUPLE:
			json_array_text(run, buf, v.list, style, level);
			break;
		case LLM_V_DICT:
			json_dict(run, buf, v.dict, style, level);
			break;
		case LLM_V_UNDEFINED:
			llm_tmpl_fail_undefined(run, v);
		default:
			llm_tmpl_fail(run, "a %s cannot be written as JSON", llm_tmpl_kind_name(v));
	}
	llm_tmpl_leave(run);
}

LlmText
llm_tmpl_to_json(LlmRun *run, LlmValue v, const LlmJsonStyle *style)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, 0);

	json_value(run, buf, v, style, 0);
	return llm_tmpl_buf_text(buf);
}
