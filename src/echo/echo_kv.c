/* echo/echo_kv.c - the store of token ids: create, copy, export, import. */
#include "echo/echo_impl.h"

#include <stdlib.h>
#include <string.h>

LlmStatus
llm_echo_kv_create(LlmDevice *dev, const LlmKvGroup *groups, int n_groups, int32_t n_pages,
				   LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (n_groups != 1 || groups[0].kind != LLM_KV_TOKENS || n_pages < 2 || d->n_pages > 0)
		return llm_error_set(err, LLM_E_INTERNAL, "a store that the echo device cannot hold");
	d->store = calloc((size_t) n_pages, (size_t) LLM_ECHO_PAGE_NBYTES);
	if (d->store == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for %d echo pages", n_pages);
	d->n_pages = n_pages;
	return LLM_OK;
}

int64_t
llm_echo_kv_page_nbytes(const LlmDevice *dev, const LlmKvGroup *group)
{
	return LLM_ECHO_PAGE_NBYTES;
}

void
llm_echo_kv_copy(LlmDevice *dev, int group, int32_t from, int32_t to, int32_t n_tokens)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (group != 0 || from <= 0 || from >= d->n_pages || to <= 0 || to >= d->n_pages ||
		n_tokens < 0 || n_tokens > LLM_PAGE_TOKENS)
	{
		LLM_ECHO_FAIL(d, "copy of %d tokens from page %d to page %d of %d", n_tokens, from, to,
					  d->n_pages);
		return;
	}
	memmove(d->store + (int64_t) to * LLM_PAGE_TOKENS, d->store + (int64_t) from * LLM_PAGE_TOKENS,
			(size_t) n_tokens * sizeof(int32_t));
}

/* LLM_OK when all are pages that may be written. */
static LlmStatus
pages_check(const LlmEchoDevice *d, int group, const int32_t *pages, int n_pages, LlmError *err)
{
	for (int i = 0; i < n_pages; i++)
		if (group != 0 || pages[i] <= 0 || pages[i] >= d->n_pages)
			return llm_error_set(err, LLM_E_INTERNAL, "page %d of group %d is not in the store",
								 pages[i], group);
	return LLM_OK;
}

LlmStatus
llm_echo_kv_export(LlmDevice *dev, int group, const int32_t *pages, int n_pages, float *out,
				   LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;
	LlmStatus status = pages_check(d, group, pages, n_pages, err);

	for (int i = 0; status == LLM_OK && i < n_pages; i++)
		for (int k = 0; k < LLM_PAGE_TOKENS; k++)
			*out++ = (float) d->store[(int64_t) pages[i] * LLM_PAGE_TOKENS + k];
	return status;
}

LlmStatus
llm_echo_kv_import(LlmDevice *dev, int group, const int32_t *pages, int n_pages, const float *in,
				   LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;
	LlmStatus status = pages_check(d, group, pages, n_pages, err);

	for (int64_t i = 0; status == LLM_OK && i < (int64_t) n_pages * LLM_PAGE_TOKENS; i++)
		if (!(in[i] >= 0.0f && in[i] < (float) LLM_ECHO_VOCAB))
			return llm_error_set(err, LLM_E_INTERNAL, "imported value %lld is not a token",
								 (long long) i);
	for (int i = 0; status == LLM_OK && i < n_pages; i++)
		for (int k = 0; k < LLM_PAGE_TOKENS; k++)
			d->store[(int64_t) pages[i] * LLM_PAGE_TOKENS + k] = (int32_t) *in++;
	return status;
}
