/* engine/kv_rule.c - the bounds of a KV cache, one after the other. */
#include "engine/kv_rule.h"

#include "core/mem.h"
#include "tensor/kv_spec.h"

#define DEFAULT_NBYTES_MAX ((int64_t) 4 << 30)
#define LEAST_PAGES 64
#define CONTEXTS_PER_SEQ 2

static void
bound(LlmKvSize *s, int64_t nbytes, const char *why)
{
	if (nbytes < s->nbytes)
		*s = (LlmKvSize){nbytes, why};
}

static int64_t
context_pages(int32_t context_length)
{
	return (context_length + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS;
}

LlmKvSize
llm_kv_rule(const LlmEngineOptions *o, int64_t page_nbytes, int32_t context_length, int64_t left)
{
	LlmKvSize s = {o->kv_nbytes, "what kv_cache_memory says"};

	if (o->kv_nbytes == 0)
	{
		s = (LlmKvSize){DEFAULT_NBYTES_MAX, "4 GB at most by default"};
		bound(&s, llm_memory_available() / 4, "a quarter of the free memory");
		if (o->memory_limit > 0)
			bound(&s, o->memory_limit / 4, "a quarter of memory_limit");
	}
	bound(&s, CONTEXTS_PER_SEQ * context_pages(context_length) * o->max_running * page_nbytes,
		  "two whole contexts for each of max_running");
	if (left >= 0)
		bound(&s, left, "what memory_limit leaves");
	return s;
}

int64_t
llm_kv_rule_least(const LlmEngineOptions *o, int64_t page_nbytes, int32_t context_length,
				  LlmKvSize size)
{
	int64_t pages = context_pages(context_length);
	int64_t nbytes = (pages < LEAST_PAGES ? pages : LEAST_PAGES) * page_nbytes;

	return o->kv_nbytes > 0 || size.nbytes < nbytes ? size.nbytes : nbytes;
}
