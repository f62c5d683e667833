/* template/filters_text.c - filters that give text or a number. */
#include "template/builtin.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template/access.h"
#include "template/print.h"

static LlmValue
in_case(LlmRun *run, LlmValue self, LlmCase how)
{
	return llm_tmpl_str(run, llm_tmpl_text_case(run, llm_tmpl_to_text(run, self), how));
}

static LlmValue
f_upper(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return in_case(run, self, LLM_CASE_UPPER);
}

static LlmValue
f_lower(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return in_case(run, self, LLM_CASE_LOWER);
}

static LlmValue
f_capitalize(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return in_case(run, self, LLM_CASE_CAPITAL);
}

static LlmValue
f_title(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return in_case(run, self, LLM_CASE_TITLE_WORDS);
}

static LlmValue
f_string(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return self.kind == LLM_V_STR ? self : llm_tmpl_str(run, llm_tmpl_to_text(run, self));
}

static LlmValue
f_trim(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue chars = args->pos[0];
	const LlmText *set = chars.kind <= LLM_V_NONE ? NULL : chars.s;

	if (set != NULL)
		llm_tmpl_want_text(run, chars, "trim");
	return llm_tmpl_str(run,
						llm_tmpl_text_strip(run, llm_tmpl_to_text(run, self), set, true, true));
}

static LlmValue
f_replace(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText old = llm_tmpl_to_text(run, args->pos[0]);
	LlmText new = llm_tmpl_to_text(run, args->pos[1]);
	int64_t count =
		args->pos[2].kind <= LLM_V_NONE ? -1 : llm_tmpl_want_int(run, args->pos[2], "replace");

	return llm_tmpl_str(run,
						llm_tmpl_text_replace(run, llm_tmpl_to_text(run, self), old, new, count));
}

static LlmValue
f_escape(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	static const char from[] = "&<>'\"";
	static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
	LlmText text = llm_tmpl_to_text(run, self);
	const char *p = llm_tmpl_text_data(text);
	LlmTextBuf *buf = llm_tmpl_buf_new(run, text.len);
	size_t done = 0, end;

	for (size_t at = 0; at < text.len; at++)
	{
		const char *hit = p[at] == '\0' ? NULL : strchr(from, p[at]);

		if (hit == NULL)
			continue;
		llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(text, done, at - done));
		llm_tmpl_buf_add(run, buf, to[hit - from], strlen(to[hit - from]),
						 llm_tmpl_text_origin(text, at, &end));
		done = at + 1;
	}
	llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(text, done, text.len - done));
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

static LlmValue
f_format(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmList *list = llm_tmpl_list_new(run, args->n_pos);

	for (size_t i = 0; i < args->n_pos; i++)
		llm_tmpl_list_push(run, list, args->pos[i]);
	return llm_tmpl_str(run, llm_tmpl_format_percent(run, llm_tmpl_to_text(run, self),
													 llm_tmpl_list(LLM_V_TUPLE, list)));
}

/* n blanks, of no trusted origin. */
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
	LlmText line, newline = llm_tmpl_text_borrow(run, "\n", 1, false);
	size_t at = 0;
	bool more;

	if (llm_tmpl_truth(args->pos[1]))
		llm_tmpl_buf_add_text(run, buf, indent);
	/* A new line at the end begins one more line, which is empty. */
	text = llm_tmpl_text_concat(run, text, newline);
	more = llm_tmpl_text_line(run, text, &at, &line);
	while (more)
	{
		llm_tmpl_buf_add_text(run, buf, line);
		more = llm_tmpl_text_line(run, text, &at, &line);
		if (!more)
			break;
		llm_tmpl_buf_add_text(run, buf, newline);
		if (line.len > 0 || blank)
			llm_tmpl_buf_add_text(run, buf, indent);
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

/* tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false), as Hugging Face's */
static LlmValue
f_tojson(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue indent = args->pos[1];
	LlmValue seps = args->pos[2];
	LlmJsonStyle style = {.ascii = llm_tmpl_truth(args->pos[0]),
						  .sort_keys = llm_tmpl_truth(args->pos[3]),
						  .pretty = indent.kind > LLM_V_NONE};

	style.item_sep = llm_tmpl_text_borrow(run, ", ", style.pretty ? 1 : 2, false);
	style.key_sep = llm_tmpl_text_borrow(run, ": ", 2, false);
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

/* A text that is a number from end to end, white space aside. */
static bool
parse_float(LlmText text, double *f)
{
	char z[400];
	char *end;
	const char *p = llm_tmpl_text_data(text);
	size_t n = llm_tmpl_space_rtrim(p, text.len);
	size_t skip = llm_tmpl_space_skip(p, n);

	if (n - skip == 0 || n - skip >= sizeof(z))
		return false;
	memcpy(z, p + skip, n - skip);
	z[n - skip] = '\0';
	if (strpbrk(z, "xX(") != NULL) /* strtod reads more than Python does */
		return false;
	*f = strtod(z, &end);
	return *end == '\0';
}

static bool
parse_int(LlmText text, int base, int64_t *i)
{
	char z[80];
	char *end;
	const char *p = llm_tmpl_text_data(text);
	size_t n = llm_tmpl_space_rtrim(p, text.len);
	size_t skip = llm_tmpl_space_skip(p, n);

	if (n - skip == 0 || n - skip >= sizeof(z))
		return false;
	memcpy(z, p + skip, n - skip);
	z[n - skip] = '\0';
	errno = 0;
	*i = strtoll(z, &end, base);
	return *end == '\0' && errno == 0;
}

/* int(default=0, base=10) */
static LlmValue
f_int(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue fallback = args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_int(0, true) : args->pos[0];
	int64_t base =
		args->pos[1].kind == LLM_V_ABSENT ? 10 : llm_tmpl_want_int(run, args->pos[1], "int");
	bool trusted = self.kind == LLM_V_STR ? llm_tmpl_text_trusted(*self.s) : self.trusted;
	int64_t i;
	double f;

	if (self.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, self);
	if (base < 2 || base > 36)
		llm_tmpl_fail(run, "int has a base out of 2 to 36");
	if (self.kind == LLM_V_INT)
		return self;
	if (self.kind == LLM_V_STR && parse_int(*self.s, (int) base, &i))
		return llm_tmpl_int(i, trusted);
	if (self.kind == LLM_V_STR ? !parse_float(*self.s, &f) : !llm_tmpl_as_float(self, &f))
		return fallback;
	if (isnan(f) || isinf(f))
		return fallback;
	if (f < -9.2e18 || f > 9.2e18)
		llm_tmpl_fail(run, "an integer is beyond 64 bits");
	return llm_tmpl_int((int64_t) f, trusted);
}

/* float(default=0.0) */
static LlmValue
f_float(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	bool trusted = self.kind == LLM_V_STR ? llm_tmpl_text_trusted(*self.s) : self.trusted;
	double f;

	if (self.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, self);
	if (self.kind == LLM_V_STR ? parse_float(*self.s, &f) : llm_tmpl_as_float(self, &f))
		return llm_tmpl_float(f, trusted);
	return args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_float(0, true) : args->pos[0];
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

/* round(precision=0, method='common'); ties go to the even digit, as Python's do. */
static LlmValue
f_round(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	int64_t precision =
		args->pos[0].kind == LLM_V_ABSENT ? 0 : llm_tmpl_want_int(run, args->pos[0], "round");
	LlmStr method = llm_str("common");
	char z[400];
	double f, scale;

	if (!llm_tmpl_as_float(self, &f))
		llm_tmpl_fail(run, "a %s cannot be rounded", llm_tmpl_kind_name(self));
	if (args->pos[1].kind != LLM_V_ABSENT)
	{
		LlmText text = llm_tmpl_want_text(run, args->pos[1], "round");

		method = (LlmStr){llm_tmpl_text_data(text), text.len};
	}
	if (precision < 0 || precision > 30)
		llm_tmpl_fail(run, "round has a precision out of 0 to 30");
	scale = pow(10, (double) precision);
	if (llm_str_eq(method, "ceil"))
		return llm_tmpl_float(ceil(f * scale) / scale, self.trusted);
	if (llm_str_eq(method, "floor"))
		return llm_tmpl_float(floor(f * scale) / scale, self.trusted);
	if (!llm_str_eq(method, "common"))
		llm_tmpl_fail(run, "round has an unknown method");
	if (self.kind != LLM_V_FLOAT)
		return llm_tmpl_int(llm_tmpl_want_int(run, self, "round"), self.trusted);
	snprintf(z, sizeof(z), "%.*f", (int) precision, f);
	return llm_tmpl_float(strtod(z, NULL), self.trusted);
}

const LlmDef llm_tmpl_text_filters[] = {{"upper", f_upper, "", 0},
										{"lower", f_lower, "", 0},
										{"capitalize", f_capitalize, "", 0},
										{"title", f_title, "", 0},
										{"string", f_string, "", 0},
										{"safe", f_string, "", 0},
										{"trim", f_trim, "chars", 0},
										{"replace", f_replace, "old new count", 2},
										{"escape", f_escape, "", 0},
										{"e", f_escape, "", 0},
										{"format", f_format, NULL, 0},
										{"indent", f_indent, "width first blank", 0},
										{"tojson", f_tojson,
										 "ensure_ascii indent separators sort_keys", 0},
										{"int", f_int, "default base", 0},
										{"float", f_float, "default", 0},
										{"abs", f_abs, "", 0},
										{"round", f_round, "precision method", 0}};
const size_t llm_tmpl_n_text_filters =
	sizeof(llm_tmpl_text_filters) / sizeof(llm_tmpl_text_filters[0]);
