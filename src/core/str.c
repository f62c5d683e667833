/* core/str.c - borrowed text, growable bytes, marked text, token lists, UTF-8 checks. */
#include "core/str.h"

#include <stdlib.h>
#include <string.h>

LlmStr
llm_str(const char *z)
{
	LlmStr s = {z, z == NULL ? 0 : strlen(z)};

	return s;
}

bool
llm_str_eq(LlmStr a, const char *z)
{
	return a.len == strlen(z) && (a.len == 0 || memcmp(a.p, z, a.len) == 0);
}

/* Room for `need` elements of `size` bytes in *p, doubling; false when memory is out. */
static bool
grow(void **p, size_t *cap, size_t need, size_t size)
{
	size_t n = *cap < 16 ? 16 : *cap;
	void *q;

	if (need <= *cap)
		return true;
	while (n < need)
	{
		if (n > SIZE_MAX / 2)
			return false;
		n *= 2;
	}
	if (n > SIZE_MAX / size || (q = realloc(*p, n * size)) == NULL)
		return false;
	*p = q;
	*cap = n;
	return true;
}

bool
llm_buf_reserve(LlmBuf *b, size_t n_more)
{
	if (n_more > SIZE_MAX - b->len - 1)
		return false;
	return grow((void **) &b->data, &b->cap, b->len + n_more + 1, 1);
}

bool
llm_buf_append(LlmBuf *b, const void *p, size_t n)
{
	if (!llm_buf_reserve(b, n))
		return false;
	if (n > 0)
		memcpy(b->data + b->len, p, n);
	b->len += n;
	b->data[b->len] = '\0';
	return true;
}

void
llm_buf_clear(LlmBuf *b)
{
	b->len = 0;
	if (b->data != NULL)
		b->data[0] = '\0';
}

void
llm_buf_fini(LlmBuf *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

bool
llm_marked_append(LlmMarkedText *m, const void *p, size_t n, bool trusted)
{
	size_t begin = m->text.len;

	if (n == 0)
		return true;
	if (!grow((void **) &m->spans, &m->cap_spans, m->n_spans + 1, sizeof(LlmSpan)) ||
		!llm_buf_append(&m->text, p, n))
		return false;
	if (m->n_spans > 0 && m->spans[m->n_spans - 1].trusted == trusted)
		m->spans[m->n_spans - 1].end = m->text.len;
	else
		m->spans[m->n_spans++] = (LlmSpan){begin, m->text.len, trusted};
	return true;
}

void
llm_marked_fini(LlmMarkedText *m)
{
	llm_buf_fini(&m->text);
	free(m->spans);
	memset(m, 0, sizeof(*m));
}

bool
llm_tokens_push(LlmTokens *t, int32_t id)
{
	return llm_tokens_append(t, &id, 1);
}

bool
llm_tokens_append(LlmTokens *t, const int32_t *ids, size_t n)
{
	if (n > SIZE_MAX - t->len || !grow((void **) &t->ids, &t->cap, t->len + n, sizeof(int32_t)))
		return false;
	if (n > 0)
		memcpy(t->ids + t->len, ids, n * sizeof(int32_t));
	t->len += n;
	return true;
}

void
llm_tokens_fini(LlmTokens *t)
{
	free(t->ids);
	memset(t, 0, sizeof(*t));
}

/* Length of the character at p[0..n): 1..4 when whole and valid, 0 when it is cut by the end of the
 * text but valid so far, -1 when it can never become valid. */
static int
utf8_char(const unsigned char *p, size_t n)
{
	unsigned char c = p[0];
	unsigned char lo = 0x80, hi = 0xBF;
	int len;

	if (c < 0x80)
		return 1;
	if (c < 0xC2 || c > 0xF4)
		return -1;
	len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
	if (c == 0xE0)
		lo = 0xA0;
	else if (c == 0xED)
		hi = 0x9F;
	else if (c == 0xF0)
		lo = 0x90;
	else if (c == 0xF4)
		hi = 0x8F;
	for (int i = 1; i < len; i++)
	{
		if ((size_t) i >= n)
			return 0;
		if (p[i] < lo || p[i] > hi)
			return -1;
		lo = 0x80;
		hi = 0xBF;
	}
	return len;
}

bool
llm_utf8_valid(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n)
	{
		int len = utf8_char((const unsigned char *) p + i, n - i);

		if (len <= 0)
			return false;
		i += (size_t) len;
	}
	return true;
}

size_t
llm_utf8_complete(const char *p, size_t n)
{
	size_t back = n < 3 ? n : 3;

	for (size_t i = n - back; i < n; i++)
	{
		if (((unsigned char) p[i] & 0xC0) == 0x80)
			continue;
		if (utf8_char((const unsigned char *) p + i, n - i) == 0)
			return i;
	}
	return n;
}
