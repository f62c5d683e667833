/* engine/stop.c - stop strings across any token borders. */
#include "engine/stop.h"

#include <stdlib.h>
#include <string.h>

static LlmStatus
check(const LlmStr *strings, int32_t n, LlmError *err)
{
	if (n < 0 || n > LLM_STOPS_MAX)
	{
		llm_error_set(err, LLM_E_INVALID, "%d stop strings, but at most %d are allowed", n,
					  LLM_STOPS_MAX);
		llm_error_numbers(err, n, LLM_STOPS_MAX);
		return LLM_E_INVALID;
	}
	for (int32_t i = 0; i < n; i++)
	{
		if (strings[i].len < 1 || strings[i].len > LLM_STOP_NBYTES_MAX)
		{
			llm_error_set(err, LLM_E_INVALID, "stop string %d has %zu bytes, not 1 .. %d", i + 1,
						  strings[i].len, LLM_STOP_NBYTES_MAX);
			llm_error_numbers(err, (int64_t) strings[i].len, LLM_STOP_NBYTES_MAX);
			return LLM_E_INVALID;
		}
		if (!llm_utf8_valid(strings[i].p, strings[i].len))
			return llm_error_set(err, LLM_E_ENCODING, "stop string %d is not valid UTF-8", i + 1);
	}
	return LLM_OK;
}

/* back[i] = length of the longest proper prefix of p that ends at byte i. */
static void
borders(const char *p, int32_t len, int16_t *back)
{
	int32_t k = 0;

	back[0] = 0;
	for (int32_t i = 1; i < len; i++)
	{
		while (k > 0 && p[k] != p[i])
			k = back[k - 1];
		if (p[k] == p[i])
			k++;
		back[i] = (int16_t) k;
	}
}

LlmStatus
llm_stop_init(LlmStop *s, const LlmStr *strings, int32_t n, LlmError *err)
{
	LlmStatus st = check(strings, n, err);
	size_t total = 0;
	int16_t *back;
	char *p;

	memset(s, 0, sizeof(*s));
	if (st != LLM_OK || n == 0)
		return st;
	for (int32_t i = 0; i < n; i++)
		total += strings[i].len;
	if ((s->memory = malloc(total * (sizeof(*back) + 1))) == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for stop strings");
	back = s->memory;
	p = (char *) (back + total);
	for (int32_t i = 0; i < n; i++)
	{
		int32_t len = (int32_t) strings[i].len;

		memcpy(p, strings[i].p, (size_t) len);
		borders(p, len, back);
		s->strings[i] = (LlmStopString){.p = p, .back = back, .len = len};
		p += len;
		back += len;
	}
	s->n = n;
	return LLM_OK;
}

void
llm_stop_fini(LlmStop *s)
{
	free(s->memory);
	memset(s, 0, sizeof(*s));
}

/* The text grows by c: true when the string is complete. */
static bool
step(LlmStopString *t, char c)
{
	if (t->matched == t->len) /* it was, but that did not count */
		t->matched = t->back[t->len - 1];
	while (t->matched > 0 && t->p[t->matched] != c)
		t->matched = t->back[t->matched - 1];
	if (t->p[t->matched] == c)
		t->matched++;
	return t->matched == t->len;
}

bool
llm_stop_scan(LlmStop *s, LlmBuf *text, bool may_end)
{
	if (s->n == 0)
		s->scanned = text->len;
	while (s->scanned < text->len)
	{
		char c = text->data[s->scanned++];
		int32_t longest = 0;

		for (int32_t i = 0; i < s->n; i++)
			if (step(&s->strings[i], c) && s->strings[i].len > longest)
				longest = s->strings[i].len;
		if (longest > 0 && may_end)
		{
			s->scanned -= (size_t) longest;
			text->len = s->scanned;
			text->data[text->len] = '\0';
			return true;
		}
	}
	return false;
}

size_t
llm_stop_safe(const LlmStop *s)
{
	int32_t held = 0;

	for (int32_t i = 0; i < s->n; i++)
	{
		const LlmStopString *t = &s->strings[i];
		int32_t matched = t->matched < t->len ? t->matched : t->back[t->len - 1];

		held = matched > held ? matched : held;
	}
	return s->scanned - (size_t) held;
}
