/*
 * kv/prefix.c - prefix cache: a hash map of entered pages and a list of those without an owner.
 *
 * An entry's id is its page in group 0, so all tables are arrays by page and nothing is allocated
 * after creation. Id 0 is no entry: it ends chains, stands for "no parent", and is the sentinel of
 * the circular list of entries without an owner, whose `newer` is the oldest.
 */
#include "kv/prefix.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Tags of what is hashed: values of different kinds never look the same. */
enum
{
	TAG_SALT = 0x73616c74,
	TAG_NUMERICS = 0x6e756d65,
	TAG_PAGE = 0x70616765
};

typedef struct Entry
{
	XXH128_hash_t hash;
	uint64_t salt;
	int32_t parent; /* entry of the page before, 0 = first page */
	int32_t chain;  /* next entry of the bucket */
	int32_t older;  /* neighbours among entries without an owner */
	int32_t newer;
} Entry;

struct LlmPrefix
{
	LlmPrefixOptions o;
	LlmPages *pages[LLM_KV_GROUPS_MAX];
	Entry *entries;                   /* [n_pages] */
	int32_t *tokens;                  /* [n_pages, 64] of the entries */
	int32_t *twin[LLM_KV_GROUPS_MAX]; /* [n_pages] the entry's page in group g > 0 */
	int32_t *buckets;                 /* [bucket_mask + 1] first entry of each chain */
	uint32_t bucket_mask;
	int32_t n_entries;
	int64_t n_evictions;
	int32_t *place; /* [n_pages] scratch of the audit: order in the list */
};

/* ---- life ---- */

static bool
tables_create(LlmPrefix *p)
{
	size_t n = (size_t) p->o.n_pages;
	uint32_t n_buckets = 1;

	while (n_buckets < n)
		n_buckets *= 2;
	p->bucket_mask = n_buckets - 1;
	p->entries = calloc(n, sizeof(*p->entries));
	p->tokens = calloc(n * LLM_PAGE_TOKENS, sizeof(*p->tokens));
	p->buckets = calloc(n_buckets, sizeof(*p->buckets));
	p->place = calloc(n, sizeof(*p->place));
	for (int g = 1; g < p->o.n_groups; g++)
		if ((p->twin[g] = calloc(n, sizeof(int32_t))) == NULL)
			return false;
	return p->entries != NULL && p->tokens != NULL && p->buckets != NULL && p->place != NULL;
}

LlmStatus
llm_kv_prefix_create(const LlmPrefixOptions *o, LlmPrefix **out, LlmError *err)
{
	LlmPrefix *p;
	LlmStatus st = LLM_OK;

	if (o->n_groups < 1 || o->n_groups > LLM_KV_GROUPS_MAX || o->n_pages < 2)
		return llm_error_set(err, LLM_E_INVALID, "a prefix cache of %d groups of %d pages",
							 o->n_groups, o->n_pages);
	if ((p = calloc(1, sizeof(*p))) == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the prefix cache");
	p->o = *o;
	for (int g = 0; g < o->n_groups && st == LLM_OK; g++)
		st = llm_kv_pages_create(o->n_pages, &p->pages[g], err);
	if (st == LLM_OK && !tables_create(p))
		st = llm_error_set(err, LLM_E_MEMORY, "out of memory for a prefix cache of %d pages",
						   o->n_pages);
	if (st == LLM_OK)
		*out = p;
	else
		llm_kv_prefix_free(p);
	return st;
}

void
llm_kv_prefix_free(LlmPrefix *p)
{
	if (p == NULL)
		return;
	for (int g = 0; g < LLM_KV_GROUPS_MAX; g++)
	{
		llm_kv_pages_free(p->pages[g]);
		free(p->twin[g]);
	}
	free(p->entries);
	free(p->tokens);
	free(p->buckets);
	free(p->place);
	free(p);
}

/* ---- entries without an owner ---- */

static void
list_push(LlmPrefix *p, int32_t id)
{
	Entry *e = &p->entries[id];

	e->older = p->entries[0].older;
	e->newer = 0;
	p->entries[e->older].newer = id;
	p->entries[0].older = id;
}

static void
list_remove(LlmPrefix *p, int32_t id)
{
	Entry *e = &p->entries[id];

	p->entries[e->older].newer = e->newer;
	p->entries[e->newer].older = e->older;
	e->older = e->newer = 0;
}

/* ---- the map ---- */

static int32_t
page_of(const LlmPrefix *p, int g, int32_t id)
{
	return g == 0 ? id : p->twin[g][id];
}

static XXH128_hash_t
shorten(const LlmPrefix *p, XXH128_hash_t h)
{
	if (p->o.hash_bits > 0 && p->o.hash_bits < 64)
	{
		h.low64 &= ((uint64_t) 1 << p->o.hash_bits) - 1;
		h.high64 = 0;
	}
	return h;
}

static XXH128_hash_t
hash_key(const LlmPrefix *p, uint64_t salt)
{
	uint64_t parts[4] = {TAG_SALT, salt, TAG_NUMERICS, p->o.numerics};

	return shorten(p, XXH3_128bits(parts, sizeof(parts)));
}

/* Of the page with these 64 tokens after the page whose hash is parent. */
static XXH128_hash_t
hash_page(const LlmPrefix *p, XXH128_hash_t parent, const int32_t *ids)
{
	struct
	{
		uint64_t tag;
		uint64_t parent[2];
		int32_t ids[LLM_PAGE_TOKENS];
	} text = {.tag = TAG_PAGE, .parent = {parent.low64, parent.high64}};

	memcpy(text.ids, ids, sizeof(text.ids));
	return shorten(p, XXH3_128bits(&text, sizeof(text)));
}

static int32_t *
bucket_of(const LlmPrefix *p, XXH128_hash_t h)
{
	return &p->buckets[h.low64 & p->bucket_mask];
}

static bool
is_entry(const LlmPrefix *p, int32_t id, XXH128_hash_t h, uint64_t salt, int32_t parent,
		 const int32_t *ids)
{
	const Entry *e = &p->entries[id];

	return XXH128_isEqual(e->hash, h) && e->parent == parent && e->salt == salt &&
		   memcmp(p->tokens + (size_t) id * LLM_PAGE_TOKENS, ids, LLM_PAGE_TOKENS * sizeof(*ids)) ==
			   0;
}

/* The entry of these tokens after parent, 0 = none. */
static int32_t
lookup(const LlmPrefix *p, XXH128_hash_t h, uint64_t salt, int32_t parent, const int32_t *ids)
{
	int32_t id = *bucket_of(p, h);

	while (id != 0 && !is_entry(p, id, h, salt, parent, ids))
		id = p->entries[id].chain;
	return id;
}

/* The oldest entry without an owner leaves the cache; its pages are free. */
static void
evict(LlmPrefix *p)
{
	int32_t id = p->entries[0].newer;
	int32_t *link = bucket_of(p, p->entries[id].hash);

	while (*link != id)
		link = &p->entries[*link].chain;
	*link = p->entries[id].chain;
	list_remove(p, id);
	for (int g = 0; g < p->o.n_groups; g++)
		llm_kv_pages_forget(p->pages[g], page_of(p, g, id));
	p->n_entries--;
	p->n_evictions++;
}

void
llm_kv_prefix_switch(LlmPrefix *p, bool on)
{
	p->o.on = on;
	while (!on && p->entries[0].newer != 0)
		evict(p);
}

/* ---- pages ---- */

int32_t
llm_kv_prefix_available(const LlmPrefix *p)
{
	LlmPageCounts c = llm_kv_pages_counts(p->pages[0]); /* the groups are in step */

	return c.free + c.cached;
}

void
llm_kv_prefix_alloc(LlmPrefix *p, int32_t *const *table, int32_t i)
{
	if (llm_kv_pages_counts(p->pages[0]).free == 0)
		evict(p);
	for (int g = 0; g < p->o.n_groups; g++)
		table[g][i] = llm_kv_pages_alloc(p->pages[g]);
}

void
llm_kv_prefix_release(LlmPrefix *p, int32_t *const *table, int32_t i)
{
	int32_t id = table[0][i];

	for (int g = 0; g < p->o.n_groups; g++)
		llm_kv_pages_release(p->pages[g], table[g][i]);
	if (!llm_kv_pages_kept(p->pages[0], id) || llm_kv_pages_refs(p->pages[0], id) > 0)
		return;
	list_push(p, id);
	if (!p->o.on)
		evict(p); /* nothing older is there when off */
}

/* ---- the cache ---- */

LlmPrefixHit
llm_kv_prefix_find(const LlmPrefix *p, uint64_t salt, const int32_t *ids, int32_t n)
{
	LlmPrefixHit hit = {0};
	XXH128_hash_t h = hash_key(p, salt);

	for (; p->o.on && (hit.n_pages + 1) * LLM_PAGE_TOKENS < n; hit.n_pages++)
	{
		const int32_t *page = ids + (size_t) hit.n_pages * LLM_PAGE_TOKENS;
		int32_t id;

		h = hash_page(p, h, page);
		if ((id = lookup(p, h, salt, hit.last, page)) == 0)
			break;
		hit.n_idle += llm_kv_pages_refs(p->pages[0], id) == 0;
		hit.last = id;
	}
	return hit;
}

/* The entry's page at place i of a table, with one more owner. */
static void
take_entry(LlmPrefix *p, int32_t id, int32_t *const *table, int32_t i)
{
	if (llm_kv_pages_refs(p->pages[0], id) == 0)
		list_remove(p, id);
	for (int g = 0; g < p->o.n_groups; g++)
	{
		table[g][i] = page_of(p, g, id);
		llm_kv_pages_ref(p->pages[g], table[g][i]);
	}
}

void
llm_kv_prefix_take(LlmPrefix *p, const LlmPrefixHit *hit, int32_t from, int32_t n_own,
				   int32_t *const *table)
{
	int32_t id = hit->last;

	for (int32_t i = hit->n_pages - 1; i >= from; i--)
	{
		if (i < n_own)
			llm_kv_prefix_release(p, table, i);
		take_entry(p, id, table, i);
		id = p->entries[id].parent;
	}
}

static void
insert(LlmPrefix *p, XXH128_hash_t h, uint64_t salt, int32_t parent, const int32_t *ids,
	   int32_t *const *table, int32_t i)
{
	int32_t id = table[0][i];
	int32_t *head = bucket_of(p, h);

	p->entries[id] = (Entry){.hash = h, .salt = salt, .parent = parent, .chain = *head};
	*head = id;
	memcpy(p->tokens + (size_t) id * LLM_PAGE_TOKENS, ids, LLM_PAGE_TOKENS * sizeof(*ids));
	for (int g = 0; g < p->o.n_groups; g++)
	{
		if (g > 0)
			p->twin[g][id] = table[g][i];
		llm_kv_pages_keep(p->pages[g], table[g][i]);
	}
	p->n_entries++;
}

bool
llm_kv_prefix_enter(LlmPrefix *p, uint64_t salt, const int32_t *ids, int32_t i,
					int32_t *const *table)
{
	const int32_t *page = ids + (size_t) i * LLM_PAGE_TOKENS;
	int32_t parent = i == 0 ? 0 : table[0][i - 1];
	XXH128_hash_t h;
	int32_t id;

	if (!p->o.on)
		return false;
	h = hash_page(p, i == 0 ? hash_key(p, salt) : p->entries[parent].hash, page);
	if ((id = lookup(p, h, salt, parent, page)) == 0)
		insert(p, h, salt, parent, page, table, i);
	else
	{
		llm_kv_prefix_release(p, table, i);
		take_entry(p, id, table, i);
	}
	return true;
}

/* ---- watching ---- */

LlmPageCounts
llm_kv_prefix_counts(const LlmPrefix *p)
{
	LlmPageCounts sum = {0};

	for (int g = 0; g < p->o.n_groups; g++)
	{
		LlmPageCounts c = llm_kv_pages_counts(p->pages[g]);

		sum.total += c.total;
		sum.free += c.free;
		sum.cached += c.cached;
		sum.referenced += c.referenced;
	}
	return sum;
}

int64_t
llm_kv_prefix_evictions(const LlmPrefix *p)
{
	return p->n_evictions;
}

bool
llm_kv_prefix_audit_pages(const LlmPrefix *p, int g, const int32_t *held, LlmError *err)
{
	return llm_kv_pages_audit(p->pages[g], held, err);
}

/* The list holds what has no owner, in order; place[] gets the places from 1, 0 = not in it. */
static int32_t
audit_list(const LlmPrefix *p)
{
	int32_t n = 0;

	memset(p->place, 0, (size_t) p->o.n_pages * sizeof(*p->place));
	for (int32_t id = p->entries[0].newer; id != 0; id = p->entries[id].newer)
	{
		if (p->place[id] != 0 || !llm_kv_pages_kept(p->pages[0], id) ||
			llm_kv_pages_refs(p->pages[0], id) != 0 || p->entries[p->entries[id].newer].older != id)
			return -1;
		p->place[id] = ++n;
	}
	return n;
}

/* One entry: its pages are kept, its hash is that of its tokens and it is found by it, its parent is
 * an entry with at least its owners, and goes after it. */
static bool
audit_entry(const LlmPrefix *p, int32_t id)
{
	const Entry *e = &p->entries[id];
	const int32_t *ids = p->tokens + (size_t) id * LLM_PAGE_TOKENS;
	int32_t refs = llm_kv_pages_refs(p->pages[0], id);
	XXH128_hash_t above = e->parent == 0 ? hash_key(p, e->salt) : p->entries[e->parent].hash;

	for (int g = 1; g < p->o.n_groups; g++)
		if (!llm_kv_pages_kept(p->pages[g], p->twin[g][id]) ||
			llm_kv_pages_refs(p->pages[g], p->twin[g][id]) != refs)
			return false;
	if (!XXH128_isEqual(hash_page(p, above, ids), e->hash) ||
		lookup(p, e->hash, e->salt, e->parent, ids) != id || (refs == 0) != (p->place[id] > 0))
		return false;
	return e->parent == 0 || (llm_kv_pages_kept(p->pages[0], e->parent) &&
							  llm_kv_pages_refs(p->pages[0], e->parent) >= refs &&
							  (p->place[e->parent] == 0 || p->place[e->parent] > p->place[id]));
}

bool
llm_kv_prefix_audit(const LlmPrefix *p, LlmError *err)
{
	int32_t n_entries = 0;
	int32_t n_idle = audit_list(p);
	bool ok = n_idle >= 0;

	for (int32_t id = 1; id < p->o.n_pages && ok; id++)
		if (llm_kv_pages_kept(p->pages[0], id))
		{
			n_entries++;
			ok = audit_entry(p, id);
		}
	for (int g = 0; g < p->o.n_groups && ok; g++)
		ok = llm_kv_pages_counts(p->pages[g]).cached == n_idle;
	if (ok && n_entries == p->n_entries)
		return true;
	llm_error_set(err, LLM_E_INTERNAL,
				  "the prefix cache is broken: %d entries, %d counted, %d idle", n_entries,
				  p->n_entries, n_idle);
	return false;
}
