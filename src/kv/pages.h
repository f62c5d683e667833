/*
 * kv/pages.h - who owns which page of a KV group: ids, a free list and reference counts.
 *
 * Knows no tensors: a page is a number in 1 .. n_pages - 1. Page 0 is all zeros on the device, is
 * never handed out and never written. At any time every page is either free (no reference, on the
 * free list) or referenced; llm_kv_pages_audit proves it against what the holders say they hold.
 */
#ifndef LLM_KV_PAGES_H
#define LLM_KV_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

typedef struct LlmPages LlmPages;

/* free + cached + referenced = total. */
typedef struct LlmPageCounts
{
	int32_t total;      /* without page 0 */
	int32_t free;       /* without a reference and without content worth keeping */
	int32_t cached;     /* without a reference, but with content that may be used again */
	int32_t referenced; /* held by one or more owners */
} LlmPageCounts;

/* n_pages counts page 0, so it is at least 2. LLM_E_INVALID or LLM_E_MEMORY. */
LlmStatus llm_kv_pages_create(int32_t n_pages, LlmPages **out, LlmError *err);
void llm_kv_pages_free(LlmPages *p);

/* A page with one reference, or 0 when none is free. Its content is what its last owner left. */
int32_t llm_kv_pages_alloc(LlmPages *p);
/* One more owner of a referenced page. */
void llm_kv_pages_ref(LlmPages *p, int32_t page);
/* One owner less; the page is free when it was the last. Releasing a page that nobody holds, or an
 * id out of range, changes nothing but makes every later audit fail. */
void llm_kv_pages_release(LlmPages *p, int32_t page);

LlmPageCounts llm_kv_pages_counts(const LlmPages *p);

/* True when the free list and the counts are consistent and held[page] equals the references of
 * every page. held [n_pages] is filled by the caller with the references that owners know of. */
bool llm_kv_pages_audit(const LlmPages *p, const int32_t *held, LlmError *err);

#endif
