/* kv/entry.c - entries of the prefix cache: by hash, by parent, and in order of use. */
#include <string.h>

#include "kv/prefix_impl.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Entries without an owner that an eviction looks at for one that nobody waits for. */
#define EVICT_SCAN 256
/* Entries more that are kept for one that was evicted too early. To compute a page again costs 10 to
 * 1000 times as much as the first use of its memory. And it is more than the pages that come with the
 * one, so that who comes back to many prefixes loses no more than those that were gone by then. */
#define IDLE_GROW 16

/* Tags of what is hashed: values of different kinds never look the same. */
enum
{
	TAG_SALT = 0x73616c74,
	TAG_NUMERICS = 0x6e756d65,
	TAG_PAGE = 0x70616765
};

bool
llm_kv_entry_is(const LlmPrefix *p, int32_t id)
{
	return llm_kv_pages_kept(p->pages[0], id);
}

bool
llm_kv_entry_is_tail(const LlmPrefix *p, int32_t id)
{
	return llm_kv_entry_is(p, id) && p->entries[id].n_tokens < LLM_PAGE_TOKENS;
}

/* ---- by hash ---- */

static LlmPageHash
shorten(const LlmPrefix *p, XXH128_hash_t h)
{
	if (p->o.hash_bits > 0 && p->o.hash_bits < 64)
		return (LlmPageHash){h.low64 & (((uint64_t) 1 << p->o.hash_bits) - 1), 0};
	return (LlmPageHash){h.low64, h.high64};
}

LlmPageHash
llm_kv_entry_hash_key(const LlmPrefix *p, uint64_t salt)
{
	uint64_t parts[4] = {TAG_SALT, salt, TAG_NUMERICS, p->o.numerics};

	return shorten(p, XXH3_128bits(parts, sizeof(parts)));
}

LlmPageHash
llm_kv_entry_hash(const LlmPrefix *p, LlmPageHash parent, const int32_t *ids)
{
	struct
	{
		uint64_t tag;
		LlmPageHash parent;
		int32_t ids[LLM_PAGE_TOKENS];
	} text = {.tag = TAG_PAGE, .parent = parent};

	memcpy(text.ids, ids, sizeof(text.ids));
	return shorten(p, XXH3_128bits(&text, sizeof(text)));
}

static int32_t *
bucket_of(const LlmPrefix *p, LlmPageHash h)
{
	return &p->buckets[h.lo & p->bucket_mask];
}

int32_t
llm_kv_entry_find(const LlmPrefix *p, LlmPageHash h, int32_t root, int32_t parent,
				  const int32_t *ids)
{
	int32_t id = *bucket_of(p, h);

	for (; id != 0; id = p->entries[id].chain)
	{
		const LlmKvEntry *e = &p->entries[id];

		if (e->hash.lo == h.lo && e->hash.hi == h.hi && e->parent == parent && e->root == root &&
			memcmp(llm_kv_entry_tokens(p, id), ids, LLM_PAGE_TOKENS * sizeof(*ids)) == 0)
			break;
	}
	return id;
}

static uint64_t *
ghost_of(const LlmPrefix *p, LlmPageHash h)
{
	return &p->ghosts[h.lo & p->bucket_mask];
}

void
llm_kv_entry_publish(LlmPrefix *p, int32_t id, LlmPageHash h)
{
	int32_t *head = bucket_of(p, h);
	uint64_t *ghost = ghost_of(p, h);

	if (*ghost == h.lo && h.lo != 0)
	{
		*ghost = 0;
		p->idle_limit += p->idle_limit < p->o.n_pages ? IDLE_GROW : 0;
	}
	p->entries[id].hash = h;
	p->entries[id].chain = *head;
	*head = id;
}

static void
unpublish(LlmPrefix *p, int32_t id)
{
	int32_t *link = bucket_of(p, p->entries[id].hash);

	while (*link != id)
		link = &p->entries[*link].chain;
	*link = p->entries[id].chain;
}

/* ---- by parent ---- */

static int32_t *
children_of(const LlmPrefix *p, int32_t root, int32_t parent)
{
	return parent == 0 ? &p->roots[root].child : &p->entries[parent].child;
}

static void
child_link(LlmPrefix *p, int32_t id)
{
	LlmKvEntry *e = &p->entries[id];
	int32_t *head = children_of(p, e->root, e->parent);

	e->before = 0;
	e->after = *head;
	if (e->after != 0)
		p->entries[e->after].before = id;
	*head = id;
}

static void
child_unlink(LlmPrefix *p, int32_t id)
{
	LlmKvEntry *e = &p->entries[id];

	if (e->before != 0)
		p->entries[e->before].after = e->after;
	else
		*children_of(p, e->root, e->parent) = e->after;
	if (e->after != 0)
		p->entries[e->after].before = e->before;
}

/* Tokens that both begin with. */
static int32_t
common(const int32_t *a, const int32_t *b, int32_t n)
{
	int32_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i;
}

int32_t
llm_kv_entry_child(const LlmPrefix *p, int32_t root, int32_t parent, int32_t n_children,
				   const int32_t *ids, int32_t n, int32_t *n_common)
{
	int32_t id = *children_of(p, root, parent);
	int32_t best = 0;

	*n_common = 0;
	for (int32_t k = 0; k < n_children && id != 0 && *n_common < n; k++)
	{
		int32_t most = p->entries[id].n_tokens < n ? p->entries[id].n_tokens : n;
		int32_t got = common(llm_kv_entry_tokens(p, id), ids, most);

		if (got > *n_common)
		{
			best = id;
			*n_common = got;
		}
		id = p->entries[id].after;
	}
	return best;
}

/* ---- in order of use ---- */

static void
idle_push(LlmPrefix *p, int32_t id)
{
	LlmKvEntry *e = &p->entries[id];

	e->older = p->entries[0].older;
	e->newer = 0;
	p->entries[e->older].newer = id;
	p->entries[0].older = id;
}

static void
idle_remove(LlmPrefix *p, int32_t id)
{
	LlmKvEntry *e = &p->entries[id];

	p->entries[e->older].newer = e->newer;
	p->entries[e->newer].older = e->older;
	e->older = e->newer = 0;
}

void
llm_kv_entry_ref(LlmPrefix *p, int32_t id)
{
	if (llm_kv_pages_refs(p->pages[0], id) == 0)
		idle_remove(p, id);
	for (int g = 0; g < p->o.n_groups; g++)
		llm_kv_pages_ref(p->pages[g], llm_kv_prefix_page(p, g, id));
}

void
llm_kv_entry_release(LlmPrefix *p, int32_t id)
{
	for (int g = 0; g < p->o.n_groups; g++)
		llm_kv_pages_release(p->pages[g], llm_kv_prefix_page(p, g, id));
	if (llm_kv_pages_refs(p->pages[0], id) > 0)
		return;
	idle_push(p, id);
	if (!p->o.on)
		llm_kv_entry_forget(p, id); /* its children, released before it, are gone */
}

void
llm_kv_entry_touch(LlmPrefix *p, int32_t id)
{
	child_unlink(p, id);
	child_link(p, id);
	if (llm_kv_pages_refs(p->pages[0], id) > 0)
		return;
	idle_remove(p, id);
	idle_push(p, id);
}

/* ---- coming and going ---- */

void
llm_kv_entry_add(LlmPrefix *p, int32_t root, int32_t parent, int32_t *const *table, int32_t i)
{
	int32_t id = table[0][i];

	p->entries[id] = (LlmKvEntry){.root = root, .parent = parent};
	child_link(p, id);
	for (int g = 0; g < p->o.n_groups; g++)
	{
		if (g > 0)
			p->twin[g][id] = table[g][i];
		llm_kv_pages_keep(p->pages[g], table[g][i]);
	}
	p->n_entries++;
	p->roots[root].stat.blocks++;
}

void
llm_kv_entry_grow(LlmPrefix *p, int32_t id, const int32_t *ids, int32_t n)
{
	LlmKvEntry *e = &p->entries[id];

	if (n <= e->n_tokens)
		return;
	memcpy(p->tokens + (size_t) id * LLM_PAGE_TOKENS + e->n_tokens, ids + e->n_tokens,
		   (size_t) (n - e->n_tokens) * sizeof(*ids));
	e->n_tokens = n;
}

void
llm_kv_entry_forget(LlmPrefix *p, int32_t id)
{
	LlmKvEntry *e = &p->entries[id];

	if (e->n_tokens == LLM_PAGE_TOKENS)
		unpublish(p, id);
	child_unlink(p, id);
	if (llm_kv_pages_refs(p->pages[0], id) == 0)
		idle_remove(p, id);
	for (int g = 0; g < p->o.n_groups; g++)
		llm_kv_pages_forget(p->pages[g], llm_kv_prefix_page(p, g, id));
	p->n_entries--;
	p->roots[e->root].stat.blocks--;
}

void
llm_kv_entry_evict(LlmPrefix *p)
{
	int32_t oldest = p->entries[0].newer;
	int32_t id = oldest;

	for (int k = 0; k < EVICT_SCAN && id != 0 && p->entries[id].mark == p->mark; k++)
		id = p->entries[id].newer;
	if (id == 0 || p->entries[id].mark == p->mark)
	{
		if (llm_kv_pages_counts(p->pages[0]).free > 0)
			return;
		id = oldest;
	}
	/* A tail is found among the first LLM_PREFIX_CHILDREN of its parent alone, however many are kept: to keep
	 * more of them, because one comes back, would find none. */
	if (p->entries[id].n_tokens == LLM_PAGE_TOKENS)
		*ghost_of(p, p->entries[id].hash) = p->entries[id].hash.lo;
	p->n_evictions++;
	p->roots[p->entries[id].root].stat.evictions++;
	llm_kv_entry_forget(p, id);
}
