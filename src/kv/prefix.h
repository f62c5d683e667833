/*
 * kv/prefix.h - the pages of all KV groups, and the cache of prefixes that lie in them.
 *
 * Pages are held in step over the groups: what owns page i of its table owns it in each group. A
 * page whose tokens are stored may be entered into the cache; then a later sequence that begins with
 * the same tokens need not compute them again. An entry is such a page:
 *   full  64 tokens. It is known by a hash over (hash of its parent, its tokens); the first one's
 *         parent is a hash over the parts of the key, each with a tag of its own: the salt, which
 *         says who may share and is chosen by the server, never by a caller, and the numerics key.
 *         Whoever needs the page owns it beside others.
 *   tail  the last page of a sequence, fewer than 64 tokens. It is known only as a child of its
 *         parent, has one owner at most (pins aside), and grows while its owner stores tokens; what
 *         it holds already never changes. Nobody else takes the page: its beginning is copied.
 * Each entry has a list of its children, most recently used first; those without a parent are
 * children of the salt's root. So a hit is a chain of full pages, found by hash, and then the
 * longest beginning that one of the first few children of the last page shares, full or tail.
 *
 * The hash only finds: a hit compares the tokens, the parent's entry and the salt, so a collision
 * costs a comparison and never gives a wrong page. (A chain of block hashes as in vLLM; comparing the
 * tokens as in nano-vllm; children that share a part of a page as in TurboMind.)
 *
 * Invariants, proved by llm_kv_prefix_audit:
 *   - publish after write: the caller enters tokens when a finished step has stored them; a place
 *     that was entered is never written again, but with the same bits;
 *   - the last token of a sequence is never a hit: something must be computed to go on from;
 *   - a full entry is there once: who computed the same page meanwhile is given the entry's;
 *   - who owns an entry's page owns its ancestors' too, so an entry without an owner has only
 *     descendants without one, and they were released before it: in the list of entries without an
 *     owner, oldest first, every child goes before its parent;
 *   - a mark of what waiting sequences need is on all ancestors too. So the oldest entry of that list
 *     without a mark has no child (it would be older, and marked, and so would its parent be), and
 *     neither has the oldest of all: one of these two is evicted when no page is free;
 *   - the oldest without a mark is also evicted where a page would be the first use of its memory
 *     while more entries than a limit have no owner. So a scan of many texts uses few pages again and
 *     again. The limit grows when such a full page is entered again, which a table of hashes tells:
 *     whoever comes back soon has the whole pool. (Evidence from what was evicted, as in ARC of
 *     Megiddo and Modha, FAST 2003.);
 *   - a pin is an owner of a chain;
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

/* Children of a page that a hit looks at, tokens of whom are compared. */
#define LLM_PREFIX_CHILDREN 16
/* Salts that have something cached at the same time, and pins of all of them. */
#define LLM_PREFIX_ROOTS 1024
#define LLM_PREFIX_PINS 256

typedef struct LlmPrefix LlmPrefix;

typedef struct LlmPrefixOptions
{
	int32_t n_groups;
	int32_t n_pages;    /* of each group, with page 0 */
	bool on;            /* see llm_kv_prefix_switch */
	uint64_t numerics;  /* what decides over the bits that are stored; part of every key */
	uint32_t hash_bits; /* 0 = all; tests: so few that hashes collide */
	int32_t idle_limit; /* 0 = by n_pages; see llm_kv_prefix_idle_limit */
} LlmPrefixOptions;

/* Of a full page and all before it. */
typedef struct LlmPageHash
{
	uint64_t lo, hi;
} LlmPageHash;

/* Tokens that are looked for or entered, borrowed. */
typedef struct LlmPrefixText
{
	uint64_t salt;
	const int32_t *ids; /* [n] */
	int32_t n;
	const LlmPageHash *hashes; /* [n / 64] see llm_kv_prefix_hash */
} LlmPrefixText;

/* The longest cached prefix of a text. */
typedef struct LlmPrefixHit
{
	int32_t n_pages; /* full pages of it */
	int32_t n_idle;  /* of these, how many have no owner: taking them makes fewer available */
	int32_t last;    /* entry of the last full page, 0 = none */
	int32_t source;  /* entry whose first tokens go on from there, 0 = none */
	int32_t n_copy;  /* that many, below 64 */
} LlmPrefixHit;

/* Tokens of a hit. */
static inline int32_t
llm_kv_prefix_hit_tokens(const LlmPrefixHit *h)
{
	return h->n_pages * LLM_PAGE_TOKENS + h->n_copy;
}

/* LLM_E_INVALID or LLM_E_MEMORY. */
LlmStatus llm_kv_prefix_create(const LlmPrefixOptions *o, LlmPrefix **out, LlmError *err);
void llm_kv_prefix_free(LlmPrefix *p);
/* Off: no hits, nothing is entered, nothing is pinned, and cached pages are free as soon as nobody
 * owns them. */
void llm_kv_prefix_switch(LlmPrefix *p, bool on);
bool llm_kv_prefix_on(const LlmPrefix *p);

/* ---- pages: table[g][i] is page i of a sequence in group g ---- */

/* Pages that can still be promised: free and cached ones without those that are. It is negative when
 * a pin took what was promised: a tail that nobody owned, or one that gave way and stays. */
int32_t llm_kv_prefix_available(const LlmPrefix *p);
/* Promise n pages more, or give back -n promises. Who needs a page later has it promised, so that
 * pages are handed out in the order in which they are written: those of who waits would leave holes
 * in the memory that is used. */
void llm_kv_prefix_promise(LlmPrefix *p, int32_t n);
int32_t llm_kv_prefix_promised(const LlmPrefix *p);
/* Pages that llm_kv_prefix_alloc can give without evicting, unless entries lose their owners
 * meanwhile. */
int32_t llm_kv_prefix_empty(const LlmPrefix *p);
/* Entries without an owner from which on a page is evicted rather than untouched memory used. */
int32_t llm_kv_prefix_idle_limit(const LlmPrefix *p);
/* A page for place i in each group; evicts when none is free, or none but untouched ones and more
 * entries without an owner than the limit. One must be free or cached. */
void llm_kv_prefix_alloc(LlmPrefix *p, int32_t *const *table, int32_t i);
/* Give the page at place i back. A sequence releases its last page first. */
void llm_kv_prefix_release(LlmPrefix *p, int32_t *const *table, int32_t i);

/* ---- the cache ---- */

/* Hashes of the full pages of ids[0..n), of which the first n_done are there. */
void llm_kv_prefix_hash(const LlmPrefix *p, uint64_t salt, const int32_t *ids, int32_t n,
						LlmPageHash *hashes, int32_t n_done);
/* The hit for a text, at most n - 1 tokens; changes nothing. */
LlmPrefixHit llm_kv_prefix_find(const LlmPrefix *p, const LlmPrefixText *text);
/* Make the hit's full pages from place `from` on the sequence's: those before are the hit's already,
 * those up to n_own are its own and are given back. source counts as used now. */
void llm_kv_prefix_take(LlmPrefix *p, const LlmPrefixHit *hit, int32_t from, int32_t n_own,
						int32_t *const *table);
/* The page of an entry in group g: valid as what a copy is made from until something is allocated. */
int32_t llm_kv_prefix_page(const LlmPrefix *p, int g, int32_t entry);
/* Enter page i of the text, all of whose tokens are stored; the pages before it are full entries.
 * When there is such an entry already, the table gets its page instead. False when nothing can be
 * entered: the cache is off, or holds pages of too many salts. */
bool llm_kv_prefix_enter(LlmPrefix *p, const LlmPrefixText *text, int32_t i, int32_t *const *table);
/* Enter the text's last page, which is not full, as a tail, or let it grow; the pages before it are
 * full entries. Does nothing when a child of the page before holds its tokens already. */
void llm_kv_prefix_enter_tail(LlmPrefix *p, const LlmPrefixText *text, int32_t *const *table);

/* Say anew what is needed: marks from before no longer count, then mark what each text would find. */
void llm_kv_prefix_marks_begin(LlmPrefix *p);
void llm_kv_prefix_mark(LlmPrefix *p, const LlmPrefixText *text);

/* ---- pins ---- */

/* Own the chain that holds exactly this text until it is unpinned or the cache is switched off; twice
 * is once. At most max_pages pages are pinned over all. LLM_E_KV_MEMORY with the numbers when there
 * would be more, LLM_E_UNSUPPORTED when the cache is off, LLM_E_BUSY when there are too many
 * pins, LLM_E_INTERNAL when the text is not cached. */
LlmStatus llm_kv_prefix_pin(LlmPrefix *p, const LlmPrefixText *text, int32_t max_pages,
							LlmError *err);
/* False when it was not pinned. Needs no hashes. */
bool llm_kv_prefix_unpin(LlmPrefix *p, const LlmPrefixText *text);
/* Pages of a group that are pinned. */
int32_t llm_kv_prefix_pinned(const LlmPrefix *p);

/* ---- watching ---- */

/* A sequence looked for its prefix; it went on from n_tokens more than it had, its first ones or
 * not. Counted only for salts that are known. */
void llm_kv_prefix_looked(LlmPrefix *p, uint64_t salt);
void llm_kv_prefix_saved(LlmPrefix *p, uint64_t salt, int32_t n_tokens, bool first);
/* Up to n salts, most blocks first; returns how many. */
int32_t llm_kv_prefix_stats(const LlmPrefix *p, LlmPrefixStat *out, int32_t n);

LlmPageCounts llm_kv_prefix_counts(const LlmPrefix *p); /* sum over groups */
int64_t llm_kv_prefix_evictions(const LlmPrefix *p);    /* since creation */
/* True when the pages of group g have exactly the owners that held[n_pages] and the pins say (see
 * kv/pages.h). */
bool llm_kv_prefix_audit_pages(const LlmPrefix *p, int g, const int32_t *held, LlmError *err);
/* True when the invariants above hold. */
bool llm_kv_prefix_audit(const LlmPrefix *p, LlmError *err);

#endif
