/* template/text.c - strings with origin marks: building, slicing, searching, changing case. */
#include "template/text.h"

#include <string.h>
#include <utf8proc.h>

LlmTextBuf *
llm_tmpl_buf_new(LlmRun *run, size_t cap)
{
	LlmTextBuf *buf = llm_tmpl_alloc(run, 1, sizeof(*buf));

	if (cap > 0)
		buf->data = llm_tmpl_alloc(run, cap, 1);
	buf->cap = cap;
	return buf;
}

/* Extend the marks over n further bytes of one origin. */
static void
add_mark(LlmRun *run, LlmTextBuf *buf, size_t end, bool trusted)
{
	if (buf->n_marks > 0 && buf->marks[buf->n_marks - 1].trusted == trusted)
	{
		buf->marks[buf->n_marks - 1].end = end;
		return;
	}
	llm_tmpl_grow(run, (void **) &buf->marks, buf->n_marks, &buf->cap_marks, buf->n_marks + 1,
				  sizeof(LlmMark));
	buf->marks[buf->n_marks++] = (LlmMark){end, trusted};
}

void
llm_tmpl_buf_add(LlmRun *run, LlmTextBuf *buf, const char *p, size_t n, bool trusted)
{
	if (n == 0)
		return;
	llm_tmpl_charge_bytes(run, n);
	llm_tmpl_grow(run, (void **) &buf->data, buf->used, &buf->cap, buf->used + n, 1);
	memcpy(buf->data + buf->used, p, n);
	buf->used += n;
	add_mark(run, buf, buf->used, trusted);
}

void
llm_tmpl_buf_add_text(LlmRun *run, LlmTextBuf *buf, LlmText text)
{
	size_t at = 0;

	/* First make room: the text may lie in this very buffer. */
	llm_tmpl_grow(run, (void **) &buf->data, buf->used, &buf->cap, buf->used + text.len, 1);
	while (at < text.len)
	{
		size_t end;
		bool trusted = llm_tmpl_text_origin(text, at, &end);

		llm_tmpl_buf_add(run, buf, llm_tmpl_text_data(text) + at, end - at, trusted);
		at = end;
	}
}

LlmText
llm_tmpl_buf_text(const LlmTextBuf *buf)
{
	return (LlmText){buf, 0, buf->used};
}

LlmText
llm_tmpl_text_borrow(LlmRun *run, LlmStr s, bool trusted)
{
	LlmTextBuf *buf;

	if (s.len == 0)
		return (LlmText){NULL, 0, 0};
	buf = llm_tmpl_buf_new(run, 0);
	buf->data = (char *) (uintptr_t) s.p; /* fixed: never written through */
	buf->used = s.len;
	buf->fixed = true;
	add_mark(run, buf, s.len, trusted);
	return llm_tmpl_buf_text(buf);
}

LlmText
llm_tmpl_text_concat(LlmRun *run, LlmText a, LlmText b)
{
	LlmTextBuf *buf;

	if (a.len == 0)
		return b;
	if (b.len == 0)
		return a;
	if (!a.buf->fixed && a.off + a.len == a.buf->used)
	{
		/* Only this run writes to its own buffers; const protects the fixed ones. */
		buf = (LlmTextBuf *) (uintptr_t) a.buf;
		llm_tmpl_buf_add_text(run, buf, b);
		return (LlmText){buf, a.off, a.len + b.len};
	}
	buf = llm_tmpl_buf_new(run, a.len + b.len + b.len / 2 + 32);
	llm_tmpl_buf_add_text(run, buf, a);
	llm_tmpl_buf_add_text(run, buf, b);
	return llm_tmpl_buf_text(buf);
}

LlmText
llm_tmpl_text_sub(LlmText text, size_t off, size_t len)
{
	return (LlmText){text.buf, text.off + off, len};
}

bool
llm_tmpl_text_origin(LlmText text, size_t at, size_t *end)
{
	const LlmMark *marks = text.buf->marks;
	size_t lo = 0, hi = text.buf->n_marks - 1;
	size_t pos = text.off + at;

	while (lo < hi)
	{
		size_t mid = (lo + hi) / 2;

		if (marks[mid].end > pos)
			hi = mid;
		else
			lo = mid + 1;
	}
	*end = marks[lo].end - text.off < text.len ? marks[lo].end - text.off : text.len;
	return marks[lo].trusted;
}

bool
llm_tmpl_text_trusted(LlmText text)
{
	size_t at = 0;

	while (at < text.len)
	{
		if (!llm_tmpl_text_origin(text, at, &at))
			return false;
	}
	return true;
}

bool
llm_tmpl_text_eq(LlmText a, LlmText b)
{
	return a.len == b.len && memcmp(llm_tmpl_text_data(a), llm_tmpl_text_data(b), a.len) == 0;
}

size_t
llm_tmpl_char(const char *p, size_t n, uint32_t *code)
{
	utf8proc_int32_t c;
	utf8proc_ssize_t len;

	if ((unsigned char) p[0] < 0x80)
	{
		*code = (unsigned char) p[0];
		return 1;
	}
	len = utf8proc_iterate((const utf8proc_uint8_t *) p, n < 4 ? (utf8proc_ssize_t) n : 4, &c);
	if (len <= 0)
	{
		*code = 0xFFFD;
		return 1;
	}
	*code = (uint32_t) c;
	return (size_t) len;
}

bool
llm_tmpl_is_space(uint32_t c)
{
	if (c < 0x80)
		return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
	return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
		   c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Start of the last character of p[0..n), n > 0. */
static size_t
last_char(const char *p, size_t n)
{
	size_t at = n - 1;

	while (at > 0 && n - at < 4 && ((unsigned char) p[at] & 0xC0) == 0x80)
		at--;
	return at;
}

size_t
llm_tmpl_space_rtrim(const char *p, size_t n)
{
	while (n > 0)
	{
		size_t at = last_char(p, n);
		uint32_t c;

		if (llm_tmpl_char(p + at, n - at, &c) != n - at || !llm_tmpl_is_space(c))
			break;
		n = at;
	}
	return n;
}

size_t
llm_tmpl_space_skip(const char *p, size_t n)
{
	size_t at = 0;

	while (at < n)
	{
		uint32_t c;
		size_t len = llm_tmpl_char(p + at, n - at, &c);

		if (!llm_tmpl_is_space(c))
			break;
		at += len;
	}
	return at;
}

size_t
llm_tmpl_text_chars(LlmRun *run, LlmText text)
{
	const char *p = llm_tmpl_text_data(text);
	size_t n = 0;

	llm_tmpl_charge_bytes(run, text.len);
	for (size_t i = 0; i < text.len; i++)
		n += ((unsigned char) p[i] & 0xC0) != 0x80;
	return n;
}

size_t
llm_tmpl_text_offset(LlmRun *run, LlmText text, size_t i)
{
	const char *p = llm_tmpl_text_data(text);
	size_t at = 0;

	for (; at < text.len; at++)
	{
		if (((unsigned char) p[at] & 0xC0) != 0x80 && i-- == 0)
			break;
	}
	llm_tmpl_charge_bytes(run, at);
	return at;
}

size_t
llm_tmpl_text_find(LlmRun *run, LlmText text, size_t from, LlmText needle)
{
	const char *p = llm_tmpl_text_data(text);
	const char *hit;

	if (from > text.len || needle.len > text.len - from)
		return SIZE_MAX;
	hit = memmem(p + from, text.len - from, llm_tmpl_text_data(needle), needle.len);
	llm_tmpl_charge_bytes(run, hit == NULL ? text.len - from : (size_t) (hit - p) - from);
	return hit == NULL ? SIZE_MAX : (size_t) (hit - p);
}

size_t
llm_tmpl_text_rfind(LlmRun *run, LlmText text, size_t before, LlmText needle)
{
	const char *p = llm_tmpl_text_data(text);
	const char *q = llm_tmpl_text_data(needle);

	if (needle.len > before)
		return SIZE_MAX;
	for (size_t at = before - needle.len + 1; at-- > 0;)
	{
		if (at % LLM_TMPL_BYTES_PER_STEP == 0)
			llm_tmpl_charge(run, 1 + needle.len / LLM_TMPL_BYTES_PER_STEP);
		if (needle.len == 0 || (p[at] == q[0] && memcmp(p + at, q, needle.len) == 0))
			return at;
	}
	return SIZE_MAX;
}

static bool
in_set(LlmRun *run, const char *p, size_t n, const LlmText *set)
{
	const char *s;
	uint32_t c;

	if (set == NULL)
		return llm_tmpl_char(p, n, &c) == n && llm_tmpl_is_space(c);
	s = llm_tmpl_text_data(*set);
	llm_tmpl_charge_bytes(run, set->len);
	for (size_t at = 0; at < set->len;)
	{
		size_t len = llm_tmpl_char(s + at, set->len - at, &c);

		if (len == n && memcmp(s + at, p, n) == 0)
			return true;
		at += len;
	}
	return false;
}

LlmText
llm_tmpl_text_strip(LlmRun *run, LlmText text, const LlmText *set, bool left, bool right)
{
	const char *p = llm_tmpl_text_data(text);
	size_t from = 0, to = text.len;
	uint32_t c;

	while (left && from < to)
	{
		size_t len = llm_tmpl_char(p + from, to - from, &c);

		if (!in_set(run, p + from, len, set))
			break;
		from += len;
	}
	while (right && to > from)
	{
		size_t at = from + last_char(p + from, to - from);

		if (!in_set(run, p + at, to - at, set))
			break;
		to = at;
	}
	/* Each character cut was looked for in the set; in_set has charged for one that is long. */
	if (set != NULL)
		llm_tmpl_charge_bytes(run, (text.len - (to - from)) * (set->len % LLM_TMPL_BYTES_PER_STEP));
	llm_tmpl_charge_bytes(run, text.len - (to - from));
	return llm_tmpl_text_sub(text, from, to - from);
}

/* Append one character in the case asked for. */
static void
add_cased(LlmRun *run, LlmTextBuf *buf, uint32_t c, bool upper, bool trusted)
{
	utf8proc_uint8_t bytes[4];
	utf8proc_int32_t to =
		upper ? utf8proc_toupper((utf8proc_int32_t) c) : utf8proc_tolower((utf8proc_int32_t) c);
	utf8proc_ssize_t n = utf8proc_encode_char(to, bytes);

	llm_tmpl_buf_add(run, buf, (const char *) bytes, (size_t) n, trusted);
}

static bool
has_case(uint32_t c)
{
	utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t) c);

	return cat == UTF8PROC_CATEGORY_LU || cat == UTF8PROC_CATEGORY_LL ||
		   cat == UTF8PROC_CATEGORY_LT;
}

/* After character c, does the next one begin a word? */
static bool
word_begins(LlmCase how, uint32_t c)
{
	if (how == LLM_CASE_TITLE)
		return !has_case(c);
	return how == LLM_CASE_TITLE_WORDS &&
		   (llm_tmpl_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<');
}

LlmText
llm_tmpl_text_case(LlmRun *run, LlmText text, LlmCase how)
{
	LlmTextBuf *buf = llm_tmpl_buf_new(run, text.len + 1);
	const char *p = llm_tmpl_text_data(text);
	bool upper = how != LLM_CASE_LOWER;
	size_t end = 0;
	bool trusted = false;

	llm_tmpl_charge(run, text.len / 16); /* far dearer than a copy */
	for (size_t at = 0; at < text.len;)
	{
		uint32_t c;
		size_t len = llm_tmpl_char(p + at, text.len - at, &c);

		if (at >= end)
			trusted = llm_tmpl_text_origin(text, at, &end);
		if (c == 0xFFFD)
			llm_tmpl_buf_add(run, buf, p + at, len, trusted);
		else
			add_cased(run, buf, c, upper, trusted);
		if (how == LLM_CASE_CAPITAL)
			upper = false;
		else if (how == LLM_CASE_TITLE || how == LLM_CASE_TITLE_WORDS)
			upper = word_begins(how, c);
		at += len;
	}
	return llm_tmpl_buf_text(buf);
}

LlmText
llm_tmpl_text_replace(LlmRun *run, LlmText text, LlmText old, LlmText new, int64_t count)
{
	LlmTextBuf *buf;
	size_t at = 0;

	if (count == 0 || llm_tmpl_text_find(run, text, 0, old) == SIZE_MAX)
		return text;
	buf = llm_tmpl_buf_new(run, text.len + new.len);
	while (count != 0)
	{
		size_t hit = llm_tmpl_text_find(run, text, at, old);

		if (hit == SIZE_MAX)
			break;
		llm_tmpl_charge(run, 1);
		llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(text, at, hit - at));
		llm_tmpl_buf_add_text(run, buf, new);
		at = hit + old.len;
		count -= count > 0;
	}
	llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(text, at, text.len - at));
	return llm_tmpl_buf_text(buf);
}

bool
llm_tmpl_text_line(LlmRun *run, LlmText text, size_t *at, LlmText *line)
{
	const char *p = llm_tmpl_text_data(text);
	size_t begin = *at, end = begin, skip = 0; /* bytes of the line's end */

	if (begin >= text.len)
		return false;
	while (end < text.len && skip == 0)
	{
		uint32_t c;
		size_t len = llm_tmpl_char(p + end, text.len - end, &c);

		if ((c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
			c == 0x2029)
			skip = len + (c == '\r' && end + 1 < text.len && p[end + 1] == '\n');
		else
			end += len;
	}
	*line = llm_tmpl_text_sub(text, begin, end - begin);
	*at = end + skip;
	llm_tmpl_charge(run, 1 + (*at - begin) / LLM_TMPL_BYTES_PER_STEP);
	return true;
}
