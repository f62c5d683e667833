/*
 * kv/store.h - the KV memory of a model: sized, created and copied through the device table.
 *
 * The layout is the device's own. All groups have the same number of pages; page ids are owned
 * elsewhere (kv/pages.h), the store only checks that they are in range.
 */
#ifndef LLM_KV_STORE_H
#define LLM_KV_STORE_H

#include <stdint.h>

#include "core/status.h"
#include "tensor/device.h"
#include "tensor/kv_spec.h"

/* The caller's memory; the device owns the pages and frees them with model_clear. */
typedef struct LlmKvStore
{
	LlmDevice *dev; /* borrowed */
	LlmKvGroup groups[LLM_KV_GROUPS_MAX];
	int32_t n_groups;
	int32_t n_pages;     /* in each group, with page 0 */
	int64_t page_nbytes; /* of one page over all groups and layers */
} LlmKvStore;

/* As many pages as nbytes hold, at most max_pages (page 0 comes on top of both). LLM_E_KV_MEMORY
 * with the numbers when not even one fits, or what the device reports. */
LlmStatus llm_kv_store_create(LlmKvStore *s, LlmDevice *dev, const LlmKvGroup *groups, int n_groups,
							  int64_t nbytes, int32_t max_pages, LlmError *err);

/* Bytes of one token over all groups and layers, rounded up. */
int32_t llm_kv_store_token_nbytes(const LlmKvStore *s);

/* Copy the first n_tokens (0 .. 64) of page `from` to page `to` in all layers of the group.
 * LLM_E_INVALID for ids out of range or to = 0. */
LlmStatus llm_kv_store_copy(LlmKvStore *s, int group, int32_t from, int32_t to, int32_t n_tokens,
							LlmError *err);

#endif
