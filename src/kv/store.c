/* kv/store.c - size, create and copy KV pages by way of the device. */
#include "kv/store.h"

#include <string.h>

/* Bytes that one page takes over all groups and layers of the device's layout. */
static int64_t
page_nbytes(const LlmDevice *dev, const LlmKvGroup *groups, int n_groups)
{
	int64_t nbytes = 0;

	for (int g = 0; g < n_groups; g++)
		nbytes += dev->ops->kv_page_nbytes(dev, &groups[g]);
	return nbytes;
}

LlmStatus
llm_kv_store_create(LlmKvStore *s, LlmDevice *dev, const LlmKvGroup *groups, int n_groups,
					int64_t nbytes, int32_t max_pages, LlmError *err)
{
	int64_t n;

	if (n_groups < 1 || n_groups > LLM_KV_GROUPS_MAX || max_pages < 1 || max_pages == INT32_MAX)
		return llm_error_set(err, LLM_E_INVALID, "a KV store of %d groups and %d pages", n_groups,
							 max_pages);
	memset(s, 0, sizeof(*s));
	s->dev = dev;
	memcpy(s->groups, groups, (size_t) n_groups * sizeof(*groups));
	s->n_groups = n_groups;
	s->page_nbytes = page_nbytes(dev, groups, n_groups);
	if (s->page_nbytes <= 0)
		return llm_error_set(err, LLM_E_INTERNAL, "the device gives KV pages %lld bytes",
							 (long long) s->page_nbytes);
	n = nbytes / s->page_nbytes;
	if (n < 1)
	{
		llm_error_set(err, LLM_E_KV_MEMORY, "%lld bytes of KV memory hold no page of %lld bytes",
					  (long long) nbytes, (long long) s->page_nbytes);
		llm_error_numbers(err, s->page_nbytes, nbytes);
		return LLM_E_KV_MEMORY;
	}
	s->n_pages = (int32_t) (n < max_pages ? n : max_pages) + 1;
	return dev->ops->kv_create(dev, s->groups, n_groups, s->n_pages, err);
}

int32_t
llm_kv_store_token_nbytes(const LlmKvStore *s)
{
	return (int32_t) ((s->page_nbytes + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS);
}

LlmStatus
llm_kv_store_copy(LlmKvStore *s, int group, int32_t from, int32_t to, int32_t n_tokens,
				  LlmError *err)
{
	if (group < 0 || group >= s->n_groups)
		return llm_error_set(err, LLM_E_INVALID, "no KV group %d", group);
	if (from < 0 || from >= s->n_pages || to < 1 || to >= s->n_pages)
		return llm_error_set(err, LLM_E_INVALID, "no copy of KV page %d to page %d of 1 .. %d",
							 from, to, s->n_pages - 1);
	if (n_tokens < 0 || n_tokens > LLM_PAGE_TOKENS)
		return llm_error_set(err, LLM_E_INVALID, "a page has no %d tokens", n_tokens);
	s->dev->ops->kv_copy(s->dev, group, from, to, n_tokens);
	return LLM_OK;
}
