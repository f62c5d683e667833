/*
 * kv/pages.h - who owns which page of a KV group: ids, a free list and reference counts.
 *
 * Knows no tensors: a page is a number in 1 .. n_pages - 1. Page 0 is all zeros on the device, is
 * never handed out and never written. At any time every page is in one of three states, and
 * llm_kv_pages_audit proves it against what the holders say they hold:
 *   free        no reference, not kept, on the free list
 *   cached      no reference, but kept: its content may be used again
 *   referenced  by one or more owners, kept or not
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
	int32_t untouched;  /* of these, how many were never handed out: memory nobody has used yet */
	int32_t cached;     /* without a reference, but with content that may be used again */
	int32_t referenced; /* held by one or more owners */
} LlmPageCounts;

/* n_pages counts page 0, so it is at least 2. LLM_E_INVALID or LLM_E_MEMORY. */
LlmStatus llm_kv_pages_create(int32_t n_pages, LlmPages **out, LlmError *err);
void llm_kv_pages_free(LlmPages *p);

/* A page with one reference, or 0 when none is free: one that was given back if there is such a page,
 * else the first untouched one. Its content is what its last owner left. */
int32_t llm_kv_pages_alloc(LlmPages *p);
/* One more owner of a referenced or cached page. */
void llm_kv_pages_ref(LlmPages *p, int32_t page);
/* One owner less; when it was the last, a kept page is cached and any other free. Releasing a page
 * that nobody holds, or an id out of range, changes nothing but makes every later audit fail. */
void llm_kv_pages_release(LlmPages *p, int32_t page);

/* Keep a referenced page's content beyond its last owner. */
void llm_kv_pages_keep(LlmPages *p, int32_t page);
/* Its content is of no more use: a cached page is free at once, a referenced one after its last
 * owner. */
void llm_kv_pages_forget(LlmPages *p, int32_t page);
bool llm_kv_pages_kept(const LlmPages *p, int32_t page);
/* Owners of a page. */
int32_t llm_kv_pages_refs(const LlmPages *p, int32_t page);

LlmPageCounts llm_kv_pages_counts(const LlmPages *p);

/* True when the free list, the kept pages and the counts are consistent and held[page] equals the
 * references of every page. held [n_pages] is filled by the caller with the references that owners
 * know of. */
bool llm_kv_pages_audit(const LlmPages *p, const int32_t *held, LlmError *err);

#endif
