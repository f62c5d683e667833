/*
 * kv/prefix.h - the pages of all KV groups, and the cache of prefixes that lie in them.
 *
 * Pages are held in step over the groups: what owns page i of its table owns it in each group. A
 * full page whose 64 tokens are stored may be entered into the cache; then a later sequence that
 * begins with the same tokens takes the page instead of computing it again.
 *
 * An entry is a page, known by a hash over (hash of its parent, its 64 tokens); the first one's
 * parent is a hash over the parts of the key, each with a tag of its own: the salt, which says who
 * may share and is chosen by the server, never by a caller, and the numerics key. The hash only
 * finds: a hit compares the tokens, the parent's entry and the salt, so a collision costs a
 * comparison and never gives a wrong page. (A chain of block hashes as in vLLM; comparing the tokens
 * as in nano-vllm.)
 *
 * Invariants, proved by llm_kv_prefix_audit:
 *   - publish after write: the caller enters a page when a finished step has stored its last token;
 *     an entered page is never written again;
 *   - the last token of a sequence is never a hit: something must be computed to go on from;
 *   - an entry is there once: who computed the same page meanwhile is given the entry's;
 *   - who owns an entry's page owns its ancestors' too, so an entry without an owner has only
 *     descendants without one, and they were released before it: the oldest entry of the list of
 *     those without an owner never has a child;
 *   - such entries (cached pages) are evicted, least recently used first, when no page is free;
 *   - free + cached + referenced pages = all pages, and no page is both free and an entry.
 *
 * Everything is sized at creation. Not thread-safe. Pages must mean the same bits whoever wrote
 * them: a device that computes prompt and generated tokens differently needs the phase in the key.
 */
#ifndef LLM_KV_PREFIX_H
#define LLM_KV_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "kv/pages.h"
#include "tensor/kv_spec.h"

typedef struct LlmPrefix LlmPrefix;

typedef struct LlmPrefixOptions
{
	int32_t n_groups;
	int32_t n_pages;    /* of each group, with page 0 */
	bool on;            /* see llm_kv_prefix_switch */
	uint64_t numerics;  /* what decides over the bits that are stored; part of every key */
	uint32_t hash_bits; /* 0 = all; tests: so few that hashes collide */
} LlmPrefixOptions;

/* The longest cached prefix of a list of tokens. */
typedef struct LlmPrefixHit
{
	int32_t n_pages; /* full pages of it, 0 = no hit */
	int32_t n_idle;  /* of these, how many have no owner: taking them makes fewer available */
	int32_t last;    /* entry of the last page */
} LlmPrefixHit;

/* LLM_E_INVALID or LLM_E_MEMORY. */
LlmStatus llm_kv_prefix_create(const LlmPrefixOptions *o, LlmPrefix **out, LlmError *err);
void llm_kv_prefix_free(LlmPrefix *p);
/* Off: no hits, nothing is entered, and cached pages are free as soon as nobody owns them. */
void llm_kv_prefix_switch(LlmPrefix *p, bool on);

/* ---- pages: table[g][i] is page i of a sequence in group g ---- */

/* Pages that llm_kv_prefix_alloc can still give: free and cached ones. */
int32_t llm_kv_prefix_available(const LlmPrefix *p);
/* A page for place i in each group; evicts when none is free. One must be available. */
void llm_kv_prefix_alloc(LlmPrefix *p, int32_t *const *table, int32_t i);
/* Give the page at place i back. A sequence releases its last page first. */
void llm_kv_prefix_release(LlmPrefix *p, int32_t *const *table, int32_t i);

/* ---- the cache ---- */

/* The hit for ids[0..n), at most (n - 1) / 64 pages; changes nothing. */
LlmPrefixHit llm_kv_prefix_find(const LlmPrefix *p, uint64_t salt, const int32_t *ids, int32_t n);
/* Make the hit's pages from place `from` on the sequence's: those before are the hit's already, those
 * up to n_own are its own and are given back. */
void llm_kv_prefix_take(LlmPrefix *p, const LlmPrefixHit *hit, int32_t from, int32_t n_own,
						int32_t *const *table);
/* Enter page i, whose tokens ids[64 i .. 64 i + 64) are all stored; the pages before it are entries.
 * When there is such an entry already, the table gets its page instead. Does nothing when off. */
bool llm_kv_prefix_enter(LlmPrefix *p, uint64_t salt, const int32_t *ids, int32_t i,
						 int32_t *const *table);

/* ---- watching ---- */

LlmPageCounts llm_kv_prefix_counts(const LlmPrefix *p); /* sum over groups */
int64_t llm_kv_prefix_evictions(const LlmPrefix *p);    /* since creation */
/* True when the pages of group g have exactly the owners held[n_pages] says (see kv/pages.h). */
bool llm_kv_prefix_audit_pages(const LlmPrefix *p, int g, const int32_t *held, LlmError *err);
/* True when the invariants above hold. */
bool llm_kv_prefix_audit(const LlmPrefix *p, LlmError *err);

#endif
