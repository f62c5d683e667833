/* template/format.c - Python's % and {} formatting, and dates. */
#include "template/access.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "template/print.h"

/* One "%..." conversion of a number into z; false when the letter or the value does not fit. */
static bool
number_conversion(LlmRun *run, const char *spec, char letter, LlmValue v, char *z, size_t size)
{
	char format[24];
	double f;

	if (!llm_tmpl_as_float(v, &f))
		return false;
	if (letter == 'd' || letter == 'i' || letter == 'x' || letter == 'X' || letter == 'o')
	{
		if (v.kind == LLM_V_FLOAT && !(f > -9e18 && f < 9e18))
			return false;
		snprintf(format, sizeof(format), "%s%s", spec,
				 letter == 'x'   ? PRIx64
				 : letter == 'X' ? PRIX64
				 : letter == 'o' ? PRIo64
								 : PRId64);
		snprintf(z, size, format,
				 v.kind == LLM_V_FLOAT ? (int64_t) f
				 : v.kind == LLM_V_INT ? v.i
									   : v.b);
		return true;
	}
	if (strchr("eEfFgG", letter) == NULL)
		return false;
	snprintf(format, sizeof(format), "%s%c", spec, letter);
	snprintf(z, size, format, f);
	return true;
}

/* The conversion at p (after the percent sign), up to its letter: flags, two digits of width and of
 * precision at most. Returns its bytes, 0 when malformed. */
static size_t
read_spec(const char *p, size_t n, char spec[12])
{
	size_t at = 0, out = 0;
	int digits = 0;

	spec[out++] = '%';
	while (at < n && strchr("-+ 0#.123456789", p[at]) != NULL && p[at] != '\0')
	{
		digits = p[at] >= '0' && p[at] <= '9' ? digits + 1 : 0;
		if (digits > 2 || out >= 10)
			return 0;
		spec[out++] = p[at++];
	}
	spec[out] = '\0';
	return at < n ? at + 1 : 0;
}

static void
add_conversion(LlmRun *run, LlmTextBuf *buf, const char *spec, char letter, LlmValue v)
{
	char z[512]; /* a double has at most 309 digits before its point, 99 after it here */

	if (letter == 's' && spec[1] == '\0')
		llm_tmpl_print(run, buf, v);
	else if (letter == 'r' && spec[1] == '\0')
		llm_tmpl_repr(run, buf, v);
	else if (letter != '\0' && number_conversion(run, spec, letter, v, z, sizeof(z)))
		llm_tmpl_buf_add(run, buf, z, strlen(z), v.trusted);
	else
		llm_tmpl_fail(run, "'%s%c' does not format a %s", spec, letter, llm_tmpl_kind_name(v));
}

LlmText
llm_tmpl_format_percent(LlmRun *run, LlmText format, LlmValue args)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, format.len);
	const char *p = llm_tmpl_text_data(format);
	size_t n_args = args.kind == LLM_V_TUPLE ? args.list->n : 1;
	size_t used = 0;
	size_t at = 0;

	while (at < format.len)
	{
		const char *hit = memchr(p + at, '%', format.len - at);
		size_t end = hit == NULL ? format.len : (size_t) (hit - p);
		char spec[12];
		size_t len;

		llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(format, at, end - at));
		if (hit == NULL)
			break;
		llm_tmpl_charge(run, 1);
		len = read_spec(hit + 1, format.len - end - 1, spec);
		if (len == 0)
			llm_tmpl_fail(run, "a format has a bad conversion");
		if (hit[len] == '%')
			llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(format, end, 1));
		else if (used == n_args)
			llm_tmpl_fail(run, "a format has too few arguments");
		else
			add_conversion(run, buf, spec, hit[len],
						   args.kind == LLM_V_TUPLE ? args.list->items[used++] : (used++, args));
		at = end + 1 + len;
	}
	if (used < n_args && args.kind != LLM_V_DICT && args.kind != LLM_V_LIST)
		llm_tmpl_fail(run, "a format has too many arguments");
	return llm_tmpl_buf_text(buf);
}

/* The argument that a field {name}, {2} or {} means. */
static LlmValue
field_argument(LlmRun *run, LlmText name, const LlmArgs *args, size_t *automatic)
{
	const char *p = llm_tmpl_text_data(name);
	size_t index = 0;
	size_t digits = 0;

	while (digits < name.len && digits < 6 && p[digits] >= '0' && p[digits] <= '9')
		index = index * 10 + (size_t) (p[digits++] - '0');
	if (name.len == 0)
		index = (*automatic)++;
	if (digits == name.len && index < args->n_pos)
		return args->pos[index];
	for (size_t i = 0; i < args->n_named; i++)
	{
		if (args->names[i]->name.len == name.len &&
			memcmp(args->names[i]->name.p, p, name.len) == 0)
			return args->named[i];
	}
	llm_tmpl_fail(run, "a format has no argument '%.*s'", (int) (name.len < 60 ? name.len : 60), p);
}

LlmText
llm_tmpl_format_braces(LlmRun *run, LlmText format, const LlmArgs *args)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, format.len);
	const char *p = llm_tmpl_text_data(format);
	size_t automatic = 0;
	size_t at = 0;

	while (at < format.len)
	{
		size_t end = at;
		const char *close;
		LlmText name;

		while (end < format.len && p[end] != '{' && p[end] != '}')
			end++;
		llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(format, at, end - at));
		if (end == format.len)
			break;
		llm_tmpl_charge(run, 1);
		if (end + 1 < format.len && p[end + 1] == p[end]) /* a brace itself */
		{
			llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(format, end, 1));
			at = end + 2;
			continue;
		}
		close = p[end] == '{' ? memchr(p + end, '}', format.len - end) : NULL;
		if (close == NULL)
			llm_tmpl_fail(run, "a format has a single brace");
		name = llm_tmpl_text_sub(format, end + 1, (size_t) (close - p) - end - 1);
		llm_tmpl_print(run, buf, field_argument(run, name, args, &automatic));
		at = (size_t) (close - p) + 1;
	}
	return llm_tmpl_buf_text(buf);
}

LlmText
llm_tmpl_format_time(LlmRun *run, LlmText format, int64_t seconds)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, format.len + 32);
	const char *p = llm_tmpl_text_data(format);
	time_t when = (time_t) seconds;
	struct tm tm;
	size_t at = 0;

	if (gmtime_r(&when, &tm) == NULL)
		llm_tmpl_fail(run, "the time has no date");
	while (at < format.len)
	{
		char spec[4] = "%";
		char z[64];
		size_t len = 1, end;
		bool trusted = llm_tmpl_text_origin(format, at, &end);

		if (p[at] != '%')
		{
			llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(format, at++, 1));
			continue;
		}
		/* One conversion at a time and only plain ones: widths could ask for any length. */
		if (at + len < format.len && p[at + len] == '-')
			spec[len++] = '-';
		if (at + len >= format.len || p[at + len] == '\0' ||
			strchr("aAbBcdDeFHIjlmMpRSTuUwWxXyY%", p[at + len]) == NULL)
			llm_tmpl_fail(run, "a date format has an unknown conversion");
		spec[len] = p[at + len];
		at += len + 1;
		llm_tmpl_charge(run, 1);
		llm_tmpl_buf_add(run, buf, z, strftime(z, sizeof(z), spec, &tm), trusted);
	}
	return llm_tmpl_buf_text(buf);
}
