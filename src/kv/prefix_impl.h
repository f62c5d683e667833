/*
 * kv/prefix_impl.h - what the files of the prefix cache share: prefix.c (pages and hits), entry.c
 * (entries: map, children, order of use), root.c (salts and their counters), pin.c, prefix_audit.c.
 *
 * An entry's id is its page in group 0, so all tables are arrays by page and nothing is allocated
 * after creation. Id 0 is no entry: it ends lists, stands for "no parent", and is the sentinel of
 * the circular list of entries without an owner, whose `newer` is the oldest. Root 0 is no root.
 */
#ifndef LLM_KV_PREFIX_IMPL_H
#define LLM_KV_PREFIX_IMPL_H

#include "kv/prefix.h"

typedef struct LlmKvEntry
{
	LlmPageHash hash; /* of a full entry */
	int32_t n_tokens; /* 1 .. 64 that are stored; 64 = full */
	int32_t root;
	int32_t parent; /* entry of the page before, 0 = first page */
	int32_t chain;  /* full: next entry of the bucket */
	int32_t older;  /* neighbours among entries without an owner */
	int32_t newer;
	int32_t child;  /* full: the child used last */
	int32_t before; /* neighbours among the parent's children: used later, */
	int32_t after;  /* and used earlier */
	int32_t n_pins;
	uint64_t mark; /* what waits needs it, if it is the mark in force */
} LlmKvEntry;

/* A salt. */
typedef struct LlmKvRoot
{
	LlmPrefixStat stat;
	int32_t child; /* first page used last */
	int32_t chain; /* next root of the bucket */
	uint64_t seen; /* when it was last looked for */
} LlmKvRoot;

/* A chain that stays. */
typedef struct LlmKvPin
{
	int32_t last;     /* its last entry */
	int32_t n_tokens; /* of the whole chain; 0 = no pin here */
} LlmKvPin;

struct LlmPrefix
{
	LlmPrefixOptions o;
	LlmPages *pages[LLM_KV_GROUPS_MAX];
	LlmKvEntry *entries;              /* [n_pages] */
	int32_t *tokens;                  /* [n_pages, 64] of the entries */
	int32_t *twin[LLM_KV_GROUPS_MAX]; /* [n_pages] the entry's page in group g > 0 */
	int32_t *buckets;                 /* [bucket_mask + 1] first full entry of each chain */
	uint32_t bucket_mask;
	uint64_t *ghosts;   /* [bucket_mask + 1] by hash: the last full entry there that was evicted */
	int32_t idle_limit; /* see llm_kv_prefix_idle_limit */
	int32_t n_entries;
	int32_t n_pinned; /* entries with a pin */
	int32_t n_promised;
	int64_t n_evictions;
	uint64_t mark;    /* in force, from 1 */
	LlmKvRoot *roots; /* [1 + LLM_PREFIX_ROOTS] */
	int32_t root_buckets[LLM_PREFIX_ROOTS];
	int32_t n_roots; /* in use are 1 .. n_roots */
	uint64_t clock;  /* of roots[].seen */
	LlmKvPin pins[LLM_PREFIX_PINS];
	int32_t *place; /* [n_pages] scratch of the audit: order in the list, or owners */
};

/* ---- entry.c ---- */

static inline const int32_t *
llm_kv_entry_tokens(const LlmPrefix *p, int32_t id)
{
	return p->tokens + (size_t) id * LLM_PAGE_TOKENS;
}

/* True for a page of group 0 that is an entry, and for one that is an entry but not full. */
bool llm_kv_entry_is(const LlmPrefix *p, int32_t id);
bool llm_kv_entry_is_tail(const LlmPrefix *p, int32_t id);

/* Hash of the page with these 64 tokens after the page whose hash is parent; of no page at all. */
LlmPageHash llm_kv_entry_hash(const LlmPrefix *p, LlmPageHash parent, const int32_t *ids);
LlmPageHash llm_kv_entry_hash_key(const LlmPrefix *p, uint64_t salt);

/* The full entry of these tokens after parent, 0 = none. */
int32_t llm_kv_entry_find(const LlmPrefix *p, LlmPageHash h, int32_t root, int32_t parent,
						  const int32_t *ids);
/* Of the first n_children children of parent (0: of the root) the one that begins with most of
 * ids[0..n); *n_common gets how many. 0 = none begins so. */
int32_t llm_kv_entry_child(const LlmPrefix *p, int32_t root, int32_t parent, int32_t n_children,
						   const int32_t *ids, int32_t n, int32_t *n_common);
/* The page at place i, held by somebody, becomes an entry after parent; it has no tokens yet. */
void llm_kv_entry_add(LlmPrefix *p, int32_t root, int32_t parent, int32_t *const *table, int32_t i);
/* Its tokens are ids[0..n); those that it has already are the first of them. */
void llm_kv_entry_grow(LlmPrefix *p, int32_t id, const int32_t *ids, int32_t n);
/* With 64 tokens: known by this hash from now on. If it was evicted, that was too early: the limit of
 * idle entries grows. */
void llm_kv_entry_publish(LlmPrefix *p, int32_t id, LlmPageHash h);
/* No entry any more; its page is free at once, or when its owner releases it. It has no child. */
void llm_kv_entry_forget(LlmPrefix *p, int32_t id);

/* One owner more, one less. */
void llm_kv_entry_ref(LlmPrefix *p, int32_t id);
void llm_kv_entry_release(LlmPrefix *p, int32_t id);
/* Used now: the first among its siblings and, without an owner, the newest. Its ancestors have
 * owners. */
void llm_kv_entry_touch(LlmPrefix *p, int32_t id);
/* The entry without an owner that is needed least leaves the cache; there is one. While a page is free
 * what somebody waits for stays. */
void llm_kv_entry_evict(LlmPrefix *p);

/* ---- root.c ---- */

/* The salt's root; 0 = none. The second makes one, in place of one without entries if all are in
 * use. */
int32_t llm_kv_root_find(const LlmPrefix *p, uint64_t salt);
int32_t llm_kv_root_get(LlmPrefix *p, uint64_t salt);

/* ---- prefix.c, pin.c ---- */

/* The hit for the first `most` tokens of a text, looking at n_children children of a page. */
LlmPrefixHit llm_kv_prefix_walk(const LlmPrefix *p, const LlmPrefixText *text, int32_t most,
								int32_t n_children);
/* Nothing is pinned any more. */
void llm_kv_pin_clear(LlmPrefix *p);

#endif
