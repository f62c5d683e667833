/* kv/prefix.c - the prefix cache as a whole: its life, pages, hits, and what is entered. */
#include "kv/prefix.h"

#include <stdlib.h>

#include "kv/prefix_impl.h"

/* Idle entries that a pool begins to keep: a part of it, but 8192 tokens at least, a few
 * conversations. A pool that has no more pages is not limited. */
#define IDLE_PART 8
#define IDLE_MIN 128

/* ---- life ---- */

static int32_t
idle_limit_first(int32_t n_pages)
{
	return n_pages / IDLE_PART > IDLE_MIN ? n_pages / IDLE_PART : IDLE_MIN;
}

static bool
tables_create(LlmPrefix *p)
{
	size_t n = (size_t) p->o.n_pages;
	uint32_t n_buckets = 1;

	while (n_buckets < n)
		n_buckets *= 2;
	p->bucket_mask = n_buckets - 1;
	p->mark = 1;
	p->entries = calloc(n, sizeof(*p->entries));
	p->tokens = calloc(n * LLM_PAGE_TOKENS, sizeof(*p->tokens));
	p->buckets = calloc(n_buckets, sizeof(*p->buckets));
	p->ghosts = calloc(n_buckets, sizeof(*p->ghosts));
	p->roots = calloc(1 + LLM_PREFIX_ROOTS, sizeof(*p->roots));
	p->place = calloc(n, sizeof(*p->place));
	for (int g = 1; g < p->o.n_groups; g++)
		if ((p->twin[g] = calloc(n, sizeof(int32_t))) == NULL)
			return false;
	return p->entries != NULL && p->tokens != NULL && p->buckets != NULL && p->ghosts != NULL &&
		   p->roots != NULL && p->place != NULL;
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
	p->idle_limit = o->idle_limit > 0 ? o->idle_limit : idle_limit_first(o->n_pages);
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
	free(p->ghosts);
	free(p->roots);
	free(p->place);
	free(p);
}

void
llm_kv_prefix_switch(LlmPrefix *p, bool on)
{
	p->o.on = on;
	if (on)
		return;
	while (p->entries[0].newer != 0)
		llm_kv_entry_forget(p, p->entries[0].newer);
	llm_kv_pin_clear(p); /* after those without an owner: their descendants are among these */
}

bool
llm_kv_prefix_on(const LlmPrefix *p)
{
	return p->o.on;
}

/* ---- pages ---- */

int32_t
llm_kv_prefix_available(const LlmPrefix *p)
{
	LlmPageCounts c = llm_kv_pages_counts(p->pages[0]); /* the groups are in step */

	return c.free + c.cached - p->n_promised;
}

void
llm_kv_prefix_promise(LlmPrefix *p, int32_t n)
{
	p->n_promised += n;
}

int32_t
llm_kv_prefix_promised(const LlmPrefix *p)
{
	return p->n_promised;
}

int32_t
llm_kv_prefix_empty(const LlmPrefix *p)
{
	LlmPageCounts c = llm_kv_pages_counts(p->pages[0]);

	return c.cached > p->idle_limit ? c.free - c.untouched : c.free;
}

int32_t
llm_kv_prefix_idle_limit(const LlmPrefix *p)
{
	return p->idle_limit;
}

void
llm_kv_prefix_alloc(LlmPrefix *p, int32_t *const *table, int32_t i)
{
	if (llm_kv_prefix_empty(p) == 0)
		llm_kv_entry_evict(p);
	for (int g = 0; g < p->o.n_groups; g++)
		table[g][i] = llm_kv_pages_alloc(p->pages[g]);
}

void
llm_kv_prefix_release(LlmPrefix *p, int32_t *const *table, int32_t i)
{
	if (llm_kv_entry_is(p, table[0][i]))
		llm_kv_entry_release(p, table[0][i]);
	else
		for (int g = 0; g < p->o.n_groups; g++)
			llm_kv_pages_release(p->pages[g], table[g][i]);
}

int32_t
llm_kv_prefix_page(const LlmPrefix *p, int g, int32_t entry)
{
	return g == 0 ? entry : p->twin[g][entry];
}

/* ---- hits ---- */

void
llm_kv_prefix_hash(const LlmPrefix *p, uint64_t salt, const int32_t *ids, int32_t n,
				   LlmPageHash *hashes, int32_t n_done)
{
	for (int32_t i = n_done; i < n / LLM_PAGE_TOKENS; i++)
		hashes[i] = llm_kv_entry_hash(p, i == 0 ? llm_kv_entry_hash_key(p, salt) : hashes[i - 1],
									  ids + (size_t) i * LLM_PAGE_TOKENS);
}

LlmPrefixHit
llm_kv_prefix_walk(const LlmPrefix *p, const LlmPrefixText *text, int32_t most, int32_t n_children)
{
	LlmPrefixHit hit = {0};
	int32_t root = llm_kv_root_find(p, text->salt);

	if (!p->o.on || root == 0)
		return hit;
	for (; (hit.n_pages + 1) * LLM_PAGE_TOKENS <= most; hit.n_pages++)
	{
		int32_t id = llm_kv_entry_find(p, text->hashes[hit.n_pages], root, hit.last,
									   text->ids + (size_t) hit.n_pages * LLM_PAGE_TOKENS);

		if (id == 0)
			break;
		hit.n_idle += llm_kv_pages_refs(p->pages[0], id) == 0;
		hit.last = id;
	}
	hit.source = llm_kv_entry_child(p, root, hit.last, n_children,
									text->ids + (size_t) hit.n_pages * LLM_PAGE_TOKENS,
									most - hit.n_pages * LLM_PAGE_TOKENS, &hit.n_copy);
	return hit;
}

LlmPrefixHit
llm_kv_prefix_find(const LlmPrefix *p, const LlmPrefixText *text)
{
	return llm_kv_prefix_walk(p, text, text->n - 1, LLM_PREFIX_CHILDREN);
}

/* The entry's page at place i of a table, with one more owner. */
static void
take_entry(LlmPrefix *p, int32_t id, int32_t *const *table, int32_t i)
{
	for (int g = 0; g < p->o.n_groups; g++)
		table[g][i] = llm_kv_prefix_page(p, g, id);
	llm_kv_entry_ref(p, id);
}

/* The page at place i gives way to an entry with at least its tokens: as a tail it is of no more use,
 * unless it is pinned. */
static void
give_way(LlmPrefix *p, int32_t *const *table, int32_t i)
{
	int32_t id = table[0][i];

	if (llm_kv_entry_is_tail(p, id) && p->entries[id].n_pins == 0)
		llm_kv_entry_forget(p, id);
	llm_kv_prefix_release(p, table, i);
}

void
llm_kv_prefix_take(LlmPrefix *p, const LlmPrefixHit *hit, int32_t from, int32_t n_own,
				   int32_t *const *table)
{
	int32_t id = hit->last;

	for (int32_t i = hit->n_pages - 1; i >= from; i--)
	{
		if (i < n_own)
			give_way(p, table, i);
		take_entry(p, id, table, i);
		id = p->entries[id].parent;
	}
	if (hit->source != 0)
		llm_kv_entry_touch(p, hit->source);
}

/* ---- what is entered ---- */

bool
llm_kv_prefix_enter(LlmPrefix *p, const LlmPrefixText *text, int32_t i, int32_t *const *table)
{
	const int32_t *ids = text->ids + (size_t) i * LLM_PAGE_TOKENS;
	int32_t parent = i == 0 ? 0 : table[0][i - 1];
	int32_t root = p->o.on ? llm_kv_root_get(p, text->salt) : 0;
	int32_t id;

	if (root == 0)
		return false;
	if ((id = llm_kv_entry_find(p, text->hashes[i], root, parent, ids)) != 0)
	{
		give_way(p, table, i);
		take_entry(p, id, table, i);
		return true;
	}
	id = table[0][i];
	if (!llm_kv_entry_is(p, id))
		llm_kv_entry_add(p, root, parent, table, i);
	llm_kv_entry_grow(p, id, ids, LLM_PAGE_TOKENS);
	llm_kv_entry_publish(p, id, text->hashes[i]);
	return true;
}

void
llm_kv_prefix_enter_tail(LlmPrefix *p, const LlmPrefixText *text, int32_t *const *table)
{
	int32_t i = text->n / LLM_PAGE_TOKENS;
	int32_t n = text->n % LLM_PAGE_TOKENS;
	const int32_t *ids = text->ids + (size_t) i * LLM_PAGE_TOKENS;
	int32_t parent = i == 0 ? 0 : table[0][i - 1];
	int32_t root = p->o.on && n > 0 ? llm_kv_root_get(p, text->salt) : 0;
	int32_t n_known = 0;

	if (root == 0)
		return;
	if (!llm_kv_entry_is(p, table[0][i]))
	{
		llm_kv_entry_child(p, root, parent, LLM_PREFIX_CHILDREN, ids, n, &n_known);
		if (n_known == n)
			return;
		llm_kv_entry_add(p, root, parent, table, i);
	}
	llm_kv_entry_grow(p, table[0][i], ids, n);
}

/* ---- what is needed ---- */

void
llm_kv_prefix_marks_begin(LlmPrefix *p)
{
	p->mark++;
}

void
llm_kv_prefix_mark(LlmPrefix *p, const LlmPrefixText *text)
{
	LlmPrefixHit hit = llm_kv_prefix_find(p, text);

	if (hit.source != 0)
		p->entries[hit.source].mark = p->mark;
	for (int32_t id = hit.last; id != 0; id = p->entries[id].parent)
		p->entries[id].mark = p->mark;
}
