/* kv/prefix_audit.c - counts of the prefix cache, and proof of its invariants. */
#include <string.h>

#include "kv/prefix_impl.h"

LlmPageCounts
llm_kv_prefix_counts(const LlmPrefix *p)
{
	LlmPageCounts sum = {0};

	for (int g = 0; g < p->o.n_groups; g++)
	{
		LlmPageCounts c = llm_kv_pages_counts(p->pages[g]);

		sum.total += c.total;
		sum.free += c.free;
		sum.untouched += c.untouched;
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
	memcpy(p->place, held, (size_t) p->o.n_pages * sizeof(*held));
	for (int i = 0; i < LLM_PREFIX_PINS; i++)
		for (int32_t id = p->pins[i].n_tokens == 0 ? 0 : p->pins[i].last; id != 0;
			 id = p->entries[id].parent)
			p->place[llm_kv_prefix_page(p, g, id)]++;
	return llm_kv_pages_audit(p->pages[g], p->place, err);
}

/* The list holds what has no owner, in order; place[] gets the places from 1, 0 = not in it. */
static int32_t
audit_list(const LlmPrefix *p)
{
	int32_t n = 0;

	memset(p->place, 0, (size_t) p->o.n_pages * sizeof(*p->place));
	for (int32_t id = p->entries[0].newer; id != 0; id = p->entries[id].newer)
	{
		if (p->place[id] != 0 || !llm_kv_entry_is(p, id) ||
			llm_kv_pages_refs(p->pages[0], id) != 0 || p->entries[p->entries[id].newer].older != id)
			return -1;
		p->place[id] = ++n;
	}
	return n;
}

/* Children know their parent and each other; returns their number, -1 = they do not. */
static int32_t
audit_children(const LlmPrefix *p, int32_t root, int32_t parent, int32_t first)
{
	int32_t before = 0;
	int32_t n = 0;

	for (int32_t id = first; id != 0; id = p->entries[id].after)
	{
		const LlmKvEntry *e = &p->entries[id];

		if (!llm_kv_entry_is(p, id) || e->parent != parent || e->root != root ||
			e->before != before || ++n > p->n_entries)
			return -1;
		before = id;
	}
	return n;
}

/* Pages are kept and have as many owners in each group. */
static bool
audit_twins(const LlmPrefix *p, int32_t id)
{
	int32_t refs = llm_kv_pages_refs(p->pages[0], id);

	for (int g = 1; g < p->o.n_groups; g++)
		if (!llm_kv_pages_kept(p->pages[g], p->twin[g][id]) ||
			llm_kv_pages_refs(p->pages[g], p->twin[g][id]) != refs)
			return false;
	return p->entries[id].n_pins <= refs && (refs == 0) == (p->place[id] > 0);
}

/* A full entry has the hash of its tokens and is found by it; a tail has no child, and one owner at
 * most that is no pin. */
static bool
audit_kind(const LlmPrefix *p, int32_t id)
{
	const LlmKvEntry *e = &p->entries[id];
	const int32_t *ids = llm_kv_entry_tokens(p, id);
	LlmPageHash h;

	if (e->n_tokens < LLM_PAGE_TOKENS)
		return e->n_tokens > 0 && e->child == 0 &&
			   llm_kv_pages_refs(p->pages[0], id) - e->n_pins <= 1;
	h = e->parent == 0 ? llm_kv_entry_hash_key(p, p->roots[e->root].stat.salt)
					   : p->entries[e->parent].hash;
	h = llm_kv_entry_hash(p, h, ids);
	return e->n_tokens == LLM_PAGE_TOKENS && h.lo == e->hash.lo && h.hi == e->hash.hi &&
		   llm_kv_entry_find(p, h, e->root, e->parent, ids) == id;
}

/* The parent is a full entry of the same salt with at least the owners, pins and mark of its child,
 * and goes after it. */
static bool
audit_parent(const LlmPrefix *p, int32_t id)
{
	const LlmKvEntry *e = &p->entries[id];
	const LlmKvEntry *parent = &p->entries[e->parent];

	if (e->parent == 0)
		return true;
	return llm_kv_entry_is(p, e->parent) && parent->n_tokens == LLM_PAGE_TOKENS &&
		   parent->root == e->root && parent->n_pins >= e->n_pins &&
		   (e->mark != p->mark || parent->mark == p->mark) &&
		   llm_kv_pages_refs(p->pages[0], e->parent) >= llm_kv_pages_refs(p->pages[0], id) &&
		   (p->place[e->parent] == 0 || p->place[e->parent] > p->place[id]);
}

/* What the roots count is what there is; returns the entries without a parent, -1 = it is not. */
static int32_t
audit_roots(const LlmPrefix *p)
{
	int64_t n_blocks = 0;
	int64_t n_pinned = 0;
	int32_t n_children = 0;

	for (int32_t r = 1; r <= p->n_roots; r++)
	{
		int32_t n = audit_children(p, r, 0, p->roots[r].child);

		if (n < 0 || llm_kv_root_find(p, p->roots[r].stat.salt) != r)
			return -1;
		n_children += n;
		n_blocks += p->roots[r].stat.blocks;
		n_pinned += p->roots[r].stat.pinned;
	}
	return n_blocks == p->n_entries && n_pinned == p->n_pinned ? n_children : -1;
}

bool
llm_kv_prefix_audit(const LlmPrefix *p, LlmError *err)
{
	int32_t n_entries = 0;
	int32_t n_pinned = 0;
	int32_t n_idle = audit_list(p);
	int32_t n_children = audit_roots(p);
	bool ok = n_idle >= 0 && n_children >= 0;

	for (int32_t id = 1; id < p->o.n_pages && ok; id++)
		if (llm_kv_entry_is(p, id))
		{
			const LlmKvEntry *e = &p->entries[id];
			int32_t n = audit_children(p, e->root, id, e->child);

			n_entries++;
			n_pinned += e->n_pins > 0;
			n_children += n;
			ok = n >= 0 && audit_twins(p, id) && audit_kind(p, id) && audit_parent(p, id);
		}
	for (int g = 0; g < p->o.n_groups && ok; g++)
	{
		LlmPageCounts c = llm_kv_pages_counts(p->pages[g]);

		ok = c.cached == n_idle && c.untouched == llm_kv_pages_counts(p->pages[0]).untouched &&
			 p->idle_limit > 0;
	}
	if (ok && n_entries == p->n_entries && n_children == n_entries && n_pinned == p->n_pinned)
		return true;
	llm_error_set(err, LLM_E_INTERNAL,
				  "the prefix cache is broken: %d entries, %d counted, %d idle, %d children",
				  n_entries, p->n_entries, n_idle, n_children);
	return false;
}
