/*
 * engine/kv_rule.h - how large the KV cache of a model is, and why.
 *
 * The rule: what kv_cache_memory says; where it says nothing, a quarter of the memory that is free
 * when the model is loaded or a quarter of memory_limit, whichever is less, and at most 4 GiB. In all
 * cases no more than two whole contexts for each of max_running requests, beyond which memory would
 * lie idle, and no more than memory_limit leaves.
 */
#ifndef LLM_ENGINE_KV_RULE_H
#define LLM_ENGINE_KV_RULE_H

#include <stdint.h>

#include "engine/llm.h"

typedef struct LlmKvSize
{
	int64_t nbytes;
	const char *why; /* constant text: the bound that decided */
} LlmKvSize;

/* left = bytes that memory_limit leaves for it, -1 = any number. */
LlmKvSize llm_kv_rule(const LlmEngineOptions *o, int64_t page_nbytes, int32_t context_length,
					  int64_t left);

/* The least that is worth a load: what kv_cache_memory says, else one context, of which 4096 tokens
 * will do. size is what the rule gives. */
int64_t llm_kv_rule_least(const LlmEngineOptions *o, int64_t page_nbytes, int32_t context_length,
						  LlmKvSize size);

#endif
