/* kv/pages.c - free list, reference counts and kept pages of one KV group. */
#include "kv/pages.h"

#include <stdlib.h>

struct LlmPages
{
	int32_t n_pages;    /* with page 0 */
	int32_t n_touched;  /* pages 1 .. n_touched were handed out before, the rest never */
	int32_t n_free;     /* length of the free list, which holds touched pages only */
	int32_t free_head;  /* last page that became free; 0 = none */
	int32_t *refs;      /* [n_pages] owners; page 0 has one that never goes */
	int32_t *next_free; /* [n_pages] 0 = end of the list */
	bool *kept;         /* [n_pages] content worth keeping without an owner */
	int32_t n_cached;   /* kept pages without an owner */
	int32_t bad_page;   /* first wrong release or ref, -1 = none */
};

LlmStatus
llm_kv_pages_create(int32_t n_pages, LlmPages **out, LlmError *err)
{
	LlmPages *p;

	if (n_pages < 2)
		return llm_error_set(err, LLM_E_INVALID, "a page pool needs at least 2 pages, not %d",
							 n_pages);
	if ((p = calloc(1, sizeof(*p))) == NULL ||
		(p->refs = calloc((size_t) n_pages, sizeof(int32_t))) == NULL ||
		(p->next_free = calloc((size_t) n_pages, sizeof(int32_t))) == NULL ||
		(p->kept = calloc((size_t) n_pages, sizeof(bool))) == NULL)
	{
		llm_kv_pages_free(p);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the table of %d KV pages",
							 n_pages);
	}
	p->n_pages = n_pages;
	p->bad_page = -1;
	p->refs[0] = 1;
	*out = p;
	return LLM_OK;
}

void
llm_kv_pages_free(LlmPages *p)
{
	if (p == NULL)
		return;
	free(p->refs);
	free(p->next_free);
	free(p->kept);
	free(p);
}

int32_t
llm_kv_pages_alloc(LlmPages *p)
{
	int32_t page = p->free_head;

	if (page != 0)
	{
		p->free_head = p->next_free[page];
		p->next_free[page] = 0;
		p->n_free--;
	}
	else if (p->n_touched + 1 < p->n_pages)
		page = ++p->n_touched;
	else
		return 0;
	p->refs[page] = 1;
	return page;
}

/* True when page is one that somebody holds; otherwise the mistake is remembered for the audit. */
static bool
held_by_someone(LlmPages *p, int32_t page)
{
	if (page > 0 && page < p->n_pages && p->refs[page] > 0)
		return true;
	if (p->bad_page < 0)
		p->bad_page = page < 0 ? 0 : page;
	return false;
}

void
llm_kv_pages_ref(LlmPages *p, int32_t page)
{
	if (page > 0 && page < p->n_pages && p->kept[page] && p->refs[page] == 0)
	{
		p->refs[page] = 1;
		p->n_cached--;
	}
	else if (held_by_someone(p, page))
		p->refs[page]++;
}

static void
give_back(LlmPages *p, int32_t page)
{
	p->next_free[page] = p->free_head;
	p->free_head = page;
	p->n_free++;
}

void
llm_kv_pages_release(LlmPages *p, int32_t page)
{
	if (!held_by_someone(p, page) || --p->refs[page] > 0)
		return;
	if (p->kept[page])
		p->n_cached++;
	else
		give_back(p, page);
}

void
llm_kv_pages_keep(LlmPages *p, int32_t page)
{
	if (held_by_someone(p, page))
		p->kept[page] = true;
}

void
llm_kv_pages_forget(LlmPages *p, int32_t page)
{
	if (!p->kept[page])
		return;
	p->kept[page] = false;
	if (p->refs[page] > 0)
		return;
	p->n_cached--;
	give_back(p, page);
}

bool
llm_kv_pages_kept(const LlmPages *p, int32_t page)
{
	return p->kept[page];
}

int32_t
llm_kv_pages_refs(const LlmPages *p, int32_t page)
{
	return p->refs[page];
}

LlmPageCounts
llm_kv_pages_counts(const LlmPages *p)
{
	LlmPageCounts c = {.total = p->n_pages - 1, .cached = p->n_cached};

	c.untouched = c.total - p->n_touched;
	c.free = p->n_free + c.untouched;
	c.referenced = c.total - c.free - c.cached;
	return c;
}

bool
llm_kv_pages_audit(const LlmPages *p, const int32_t *held, LlmError *err)
{
	int32_t n_free = 0;
	int32_t n_unreferenced = 0;
	int32_t n_cached = 0;

	if (p->bad_page >= 0)
	{
		llm_error_set(err, LLM_E_INTERNAL, "KV page %d was released or shared without an owner",
					  p->bad_page);
		return false;
	}
	for (int32_t page = p->free_head; page != 0; page = p->next_free[page])
	{
		if (page < 0 || page > p->n_touched || p->refs[page] != 0 || p->kept[page] ||
			++n_free >= p->n_pages)
		{
			llm_error_set(err, LLM_E_INTERNAL, "the list of free KV pages is broken at page %d",
						  page);
			return false;
		}
	}
	for (int32_t page = 1; page < p->n_pages; page++)
	{
		if (p->refs[page] != held[page])
		{
			llm_error_set(err, LLM_E_INTERNAL, "KV page %d has %d references but %d owners", page,
						  p->refs[page], held[page]);
			return false;
		}
		if (page > p->n_touched && (p->refs[page] != 0 || p->kept[page]))
		{
			llm_error_set(err, LLM_E_INTERNAL, "KV page %d is used but was never handed out", page);
			return false;
		}
		n_unreferenced += page <= p->n_touched && p->refs[page] == 0 && !p->kept[page];
		n_cached += p->refs[page] == 0 && p->kept[page];
	}
	if (n_free != p->n_free || n_free != n_unreferenced)
	{
		llm_error_set(err, LLM_E_INTERNAL, "%d KV pages are free, %d on the list, %d counted",
					  n_unreferenced, n_free, p->n_free);
		return false;
	}
	if (n_cached != p->n_cached)
	{
		llm_error_set(err, LLM_E_INTERNAL, "%d KV pages are cached, %d counted", n_cached,
					  p->n_cached);
		return false;
	}
	return true;
}
