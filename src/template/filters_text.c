/* template/filters_text.c - filters that give text or a number, and the methods of strings. */
#include "template/builtin.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/access.h"
#include "template/print.h"

/* how: the LlmCase */
static LlmValue
f_case(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_str(run,
						llm_tmpl_text_case(run, llm_tmpl_to_text(run, self), (LlmCase) args->how));
}

static LlmValue
f_string(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return self.kind == LLM_V_STR ? self : llm_tmpl_str(run, llm_tmpl_to_text(run, self));
}

enum
{
	LEFT = 1,
	RIGHT = 2
};

/* Cut white space, or the characters given, from the ends in how. */
static LlmValue
f_strip(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	bool given = args->pos[0].kind > LLM_V_NONE;
	LlmText set = {0};

	if (given)
		set = llm_tmpl_want_text(run, args->pos[0], "strip");
	return llm_tmpl_str(run,
						llm_tmpl_text_strip(run, llm_tmpl_to_text(run, self), given ? &set : NULL,
											(args->how & LEFT) != 0, (args->how & RIGHT) != 0));
}

/* replace(old, new, count=-1) */
static LlmValue
f_replace(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText old = llm_tmpl_to_text(run, args->pos[0]);
	LlmText new = llm_tmpl_to_text(run, args->pos[1]);
	int64_t count =
		args->pos[2].kind <= LLM_V_NONE ? -1 : llm_tmpl_want_int(run, args->pos[2], "replace");

	if (old.len == 0)
		llm_tmpl_fail(run, "replace of an empty string");
	return llm_tmpl_str(run,
						llm_tmpl_text_replace(run, llm_tmpl_to_text(run, self), old, new, count));
}

/* A string as it is, or as many blanks as a number says, of no trusted origin. */
static LlmText
blanks(LlmRun *run, LlmValue width, const char *what)
{
	int64_t n;
	LlmTextBuf *buf;

	if (width.kind == LLM_V_STR)
		return *width.s;
	n = llm_tmpl_want_int(run, width, what);
	buf = llm_tmpl_buf_new(run, 0);
	llm_tmpl_charge(run, n > 0 ? (size_t) n : 0);
	for (int64_t i = 0; i < n; i++)
		llm_tmpl_buf_add(run, buf, " ", 1, false);
	return llm_tmpl_buf_text(buf);
}

/* indent(width=4, first=false, blank=false) */
static LlmValue
f_indent(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText text = llm_tmpl_want_text(run, self, "indent");
	LlmValue width = args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_int(4, true) : args->pos[0];
	LlmText indent = blanks(run, width, "indent");
	bool blank = llm_tmpl_truth(args->pos[2]);
	LlmTextBuf *buf = llm_tmpl_buf_new(run, text.len + indent.len);
	LlmText line, newline = llm_tmpl_text_borrow(run, llm_str("\n"), false);
	size_t at = 0;

	if (llm_tmpl_truth(args->pos[1]))
		llm_tmpl_buf_add_text(run, buf, indent);
	/* A new line at the end begins one more line, which is empty. */
	text = llm_tmpl_text_concat(run, text, newline);
	for (size_t i = 0; llm_tmpl_text_line(run, text, &at, &line); i++)
	{
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, newline);
		if (i > 0 && (line.len > 0 || blank))
			llm_tmpl_buf_add_text(run, buf, indent);
		llm_tmpl_buf_add_text(run, buf, line);
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

/* tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false), as Hugging Face's */
static LlmValue
f_tojson(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue indent = args->pos[1];
	LlmValue seps = args->pos[2];
	LlmStyle style = {.json = true,
					  .ascii = llm_tmpl_truth(args->pos[0]),
					  .sort_keys = llm_tmpl_truth(args->pos[3]),
					  .pretty = indent.kind > LLM_V_NONE};

	style.item_sep = llm_tmpl_text_borrow(run, llm_str(style.pretty ? "," : ", "), false);
	style.key_sep = llm_tmpl_text_borrow(run, llm_str(": "), false);
	if (style.pretty)
		style.indent = blanks(run, indent, "tojson");
	if (seps.kind > LLM_V_NONE)
	{
		const LlmList *pair = llm_tmpl_elements(run, seps);

		if (pair->n != 2)
			llm_tmpl_fail(run, "tojson needs two separators");
		style.item_sep = llm_tmpl_want_text(run, pair->items[0], "tojson");
		style.key_sep = llm_tmpl_want_text(run, pair->items[1], "tojson");
	}
	return llm_tmpl_str(run, llm_tmpl_to_json(run, self, &style));
}

/* ---- numbers ---- */

/* The number that a value is, or that a text is from end to end, white space aside. */
static bool
to_number(LlmRun *run, LlmValue v, LlmValue *number)
{
	char z[80];
	char *end;
	const char *p;
	size_t n, skip;
	double f;
	bool trusted;

	if (v.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, v);
	*number = v.kind == LLM_V_BOOL ? llm_tmpl_int(v.b, v.trusted) : v;
	if (v.kind != LLM_V_STR)
		return llm_tmpl_as_float(v, &f);
	p = llm_tmpl_text_data(*v.s);
	n = llm_tmpl_space_rtrim(p, v.s->len);
	skip = llm_tmpl_space_skip(p, n);
	n -= skip;
	if (n == 0 || n >= sizeof(z))
		return false;
	memcpy(z, p + skip, n);
	z[n] = '\0';
	trusted = llm_tmpl_text_trusted(*v.s);
	errno = 0;
	*number = llm_tmpl_int(strtoll(z, &end, 10), trusted);
	if (end == z + n && errno == 0)
		return true;
	if (strpbrk(z, "xXnN") != NULL) /* strtod reads hexadecimals, infinities and nan */
		return false;
	*number = llm_tmpl_float(strtod(z, &end), trusted);
	return end == z + n;
}

/* int(default=0) */
static LlmValue
f_int(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue number;

	if (!to_number(run, self, &number))
		return args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_int(0, true) : args->pos[0];
	if (number.kind == LLM_V_INT)
		return number;
	if (!(number.f > -9.2e18 && number.f < 9.2e18))
		llm_tmpl_fail(run, "an integer is beyond 64 bits");
	return llm_tmpl_int((int64_t) number.f, number.trusted);
}

/* float(default=0.0) */
static LlmValue
f_float(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue number;

	if (!to_number(run, self, &number))
		return args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_float(0, true) : args->pos[0];
	return number.kind == LLM_V_FLOAT ? number : llm_tmpl_float((double) number.i, number.trusted);
}

static LlmValue
f_abs(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	if (self.kind == LLM_V_FLOAT)
		return llm_tmpl_float(fabs(self.f), self.trusted);
	self = llm_tmpl_int(llm_tmpl_want_int(run, self, "abs"), self.trusted);
	if (self.i >= 0)
		return self;
	return llm_tmpl_math(run, LLM_OP_SUB, llm_tmpl_int(0, true), self);
}

/* round(precision=0); ties go to the even digit, as Python's do. */
static LlmValue
f_round(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	int64_t precision =
		args->pos[0].kind == LLM_V_ABSENT ? 0 : llm_tmpl_want_int(run, args->pos[0], "round");
	char z[400]; /* a double has at most 309 digits before its point */

	if (precision < 0 || precision > 30)
		llm_tmpl_fail(run, "round has a precision out of 0 to 30");
	if (self.kind != LLM_V_FLOAT)
		return llm_tmpl_int(llm_tmpl_want_int(run, self, "round"), self.trusted);
	snprintf(z, sizeof(z), "%.*f", (int) precision, self.f);
	return llm_tmpl_float(strtod(z, NULL), self.trusted);
}

/* ---- methods of strings ---- */

/* Split at white space. */
static LlmValue
split_words(LlmRun *run, LlmText text)
{
	LlmList *list = llm_tmpl_list_new(run, 0);

	text = llm_tmpl_text_strip(run, text, NULL, true, true);
	while (text.len > 0)
	{
		const char *p = llm_tmpl_text_data(text);
		size_t end = 0;
		uint32_t c;

		while (end < text.len)
		{
			size_t len = llm_tmpl_char(p + end, text.len - end, &c);

			if (llm_tmpl_is_space(c))
				break;
			end += len;
		}
		llm_tmpl_charge(run, 1 + end / LLM_TMPL_BYTES_PER_STEP);
		llm_tmpl_list_push(run, list, llm_tmpl_str(run, llm_tmpl_text_sub(text, 0, end)));
		text = llm_tmpl_text_sub(text, end, text.len - end);
		text = llm_tmpl_text_strip(run, text, NULL, true, false);
	}
	return llm_tmpl_list(LLM_V_LIST, list);
}

/* split(sep=none, maxsplit=-1); how: the end from which the text is cut, RIGHT being rsplit */
static LlmValue
m_split(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	static const LlmValue backwards[3] = {{0}, {0}, {.kind = LLM_V_INT, .i = -1}};
	int64_t limit =
		args->pos[1].kind == LLM_V_ABSENT ? -1 : llm_tmpl_want_int(run, args->pos[1], "split");
	LlmList *list = llm_tmpl_list_new(run, 0);
	bool right = args->how == RIGHT;
	LlmText text = *self.s, sep;

	if (args->pos[0].kind <= LLM_V_NONE && limit < 0)
		return split_words(run, text);
	sep = llm_tmpl_want_text(run, args->pos[0], "split");
	if (sep.len == 0)
		llm_tmpl_fail(run, "split by an empty string");
	for (; limit != 0; limit -= limit > 0)
	{
		size_t hit = right ? llm_tmpl_text_rfind(run, text, text.len, sep)
						   : llm_tmpl_text_find(run, text, 0, sep);
		LlmText before, after;

		llm_tmpl_charge(run, 1);
		if (hit == SIZE_MAX)
			break;
		before = llm_tmpl_text_sub(text, 0, hit);
		after = llm_tmpl_text_sub(text, hit + sep.len, text.len - hit - sep.len);
		llm_tmpl_list_push(run, list, llm_tmpl_str(run, right ? after : before));
		text = right ? before : after;
	}
	llm_tmpl_list_push(run, list, llm_tmpl_str(run, text));
	self = llm_tmpl_list(LLM_V_LIST, list);
	return right ? llm_tmpl_get_slice(run, self, backwards) : self;
}

static LlmValue
m_splitlines(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmList *list = llm_tmpl_list_new(run, 0);
	LlmText line;
	size_t at = 0;

	while (llm_tmpl_text_line(run, *self.s, &at, &line))
		llm_tmpl_list_push(run, list, llm_tmpl_str(run, line));
	return llm_tmpl_list(LLM_V_LIST, list);
}

/* Has the text this string at the end that how names? */
static bool
has_affix(LlmRun *run, LlmText text, LlmValue what, int how)
{
	LlmText affix = llm_tmpl_want_text(run, what, how == LEFT ? "startswith" : "endswith");

	if (affix.len > text.len)
		return false;
	llm_tmpl_charge_bytes(run, affix.len);
	return llm_tmpl_text_eq(llm_tmpl_text_sub(text, how == LEFT ? 0 : text.len - affix.len,
											  affix.len),
							affix);
}

/* One string or a tuple of them. */
static LlmValue
m_has_affix(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	bool has = false;

	if (args->pos[0].kind != LLM_V_TUPLE)
		return llm_tmpl_bool(has_affix(run, *self.s, args->pos[0], args->how));
	for (size_t i = 0; i < args->pos[0].list->n && !has; i++)
		has = has_affix(run, *self.s, args->pos[0].list->items[i], args->how);
	return llm_tmpl_bool(has);
}

static LlmValue
m_remove_affix(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	size_t cut = has_affix(run, *self.s, args->pos[0], args->how) ? args->pos[0].s->len : 0;

	return llm_tmpl_str(run,
						llm_tmpl_text_sub(*self.s, args->how == LEFT ? cut : 0, self.s->len - cut));
}

/* The index of the first character of a string in this one, -1 when it is not there. */
static LlmValue
m_find(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText needle = llm_tmpl_want_text(run, args->pos[0], "find");
	size_t at = llm_tmpl_text_find(run, *self.s, 0, needle);

	if (at == SIZE_MAX)
		return llm_tmpl_int(-1, false);
	return llm_tmpl_int((int64_t) llm_tmpl_text_chars(run, llm_tmpl_text_sub(*self.s, 0, at)),
						false);
}

/* The separator's own method: sep.join(list of strings). */
static LlmValue
m_join(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, args->pos[0]);
	LlmTextBuf *buf = llm_tmpl_buf_new(run, 0);

	for (size_t i = 0; i < list->n; i++)
	{
		llm_tmpl_charge(run, 1);
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, *self.s);
		llm_tmpl_buf_add_text(run, buf, llm_tmpl_want_text(run, list->items[i], "join"));
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

const LlmDef llm_tmpl_text_filters[] = {{"upper", f_case, "", 0, LLM_CASE_UPPER},
										{"lower", f_case, "", 0, LLM_CASE_LOWER},
										{"capitalize", f_case, "", 0, LLM_CASE_CAPITAL},
										{"title", f_case, "", 0, LLM_CASE_TITLE_WORDS},
										{"string", f_string, "", 0, 0},
										{"safe", f_string, "", 0, 0},
										{"trim", f_strip, "chars", 0, LEFT | RIGHT},
										{"replace", f_replace, "old new count", 2, 0},
										{"indent", f_indent, "width first blank", 0, 0},
										{"tojson", f_tojson,
										 "ensure_ascii indent separators sort_keys", 0, 0},
										{"int", f_int, "default", 0, 0},
										{"float", f_float, "default", 0, 0},
										{"abs", f_abs, "", 0, 0},
										{"round", f_round, "precision", 0, 0},
										{0}};

const LlmDef llm_tmpl_str_methods[] = {{"upper", f_case, "", 0, LLM_CASE_UPPER},
									   {"lower", f_case, "", 0, LLM_CASE_LOWER},
									   {"capitalize", f_case, "", 0, LLM_CASE_CAPITAL},
									   {"title", f_case, "", 0, LLM_CASE_TITLE},
									   {"strip", f_strip, "chars", 0, LEFT | RIGHT},
									   {"lstrip", f_strip, "chars", 0, LEFT},
									   {"rstrip", f_strip, "chars", 0, RIGHT},
									   {"replace", f_replace, "old new count", 2, 0},
									   {"split", m_split, "sep maxsplit", 0, LEFT},
									   {"rsplit", m_split, "sep maxsplit", 0, RIGHT},
									   {"splitlines", m_splitlines, "", 0, 0},
									   {"startswith", m_has_affix, "prefix", 1, LEFT},
									   {"endswith", m_has_affix, "suffix", 1, RIGHT},
									   {"removeprefix", m_remove_affix, "prefix", 1, LEFT},
									   {"removesuffix", m_remove_affix, "suffix", 1, RIGHT},
									   {"find", m_find, "sub", 1, 0},
									   {"join", m_join, "iterable", 1, 0},
									   {0}};
