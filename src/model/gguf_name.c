/* model/gguf_name.c - names of keys and tensors: sorted, found, and shown in errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_impl.h"

static int
name_compare(LlmStr a, LlmStr b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int c = n > 0 ? memcmp(a.p, b.p, n) : 0;

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

static int
index_compare(const void *a, const void *b)
{
	return name_compare(**(const LlmStr *const *) a, **(const LlmStr *const *) b);
}

const LlmStr *
llm_gguf_find(const LlmStr *const *index, uint64_t n, LlmStr name)
{
	uint64_t lo = 0, hi = n;

	while (lo < hi)
	{
		uint64_t mid = lo + (hi - lo) / 2;
		int c = name_compare(*index[mid], name);

		if (c == 0)
			return index[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

LlmStatus
llm_gguf_index_sort(const LlmStr **index, uint64_t n, const char *what, LlmError *err)
{
	char show[LLM_GGUF_SHOW_CAP];

	if (n > 1)
		qsort(index, n, sizeof(*index), index_compare);
	for (uint64_t i = 1; i < n; i++)
		if (name_compare(*index[i - 1], *index[i]) == 0)
			return llm_error_set(err, LLM_E_MODEL, "%s \"%s\" occurs twice", what,
								 llm_gguf_show(*index[i], show));
	return LLM_OK;
}

const char *
llm_gguf_show(LlmStr s, char out[LLM_GGUF_SHOW_CAP])
{
	size_t at = 0;

	for (size_t i = 0; i < s.len; i++)
	{
		unsigned char b = (unsigned char) s.p[i];

		if (at + 4 + sizeof("...") > LLM_GGUF_SHOW_CAP)
		{
			memcpy(out + at, "...", 3);
			at += 3;
			break;
		}
		if (b >= 0x20 && b < 0x7F)
			out[at++] = (char) b;
		else
			at += (size_t) snprintf(out + at, 5, "\\x%02x", b);
	}
	out[at] = '\0';
	return out;
}
