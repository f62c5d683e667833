/*
 * prefix_world.h - the prefix cache under test, and a plain table of what it should hold.
 *
 * The "device" keeps in each slot a fingerprint of the salt and of all tokens up to there, written by
 * who computed it and moved by copies: a slot with another fingerprint than the sequence's own is a
 * wrong hit, whatever the hash said. The table knows entries by these fingerprints and by looking at
 * all of them. Pages are made of digits; all digits begin alike, so that they share a part too.
 */
#ifndef LLM_TEST_PREFIX_WORLD_H
#define LLM_TEST_PREFIX_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "kv/prefix.h"

#define GROUPS 2
#define DEPTH 6
#define LEN_MAX (DEPTH * LLM_PAGE_TOKENS)
#define SEQS 12
#define PAGES_MAX 64
#define PINS_MAX 6
#define ALIKE 20 /* tokens that pages of all digits begin with */

typedef struct Seq
{
	bool live;
	uint64_t salt;
	int32_t n; /* tokens */
	int32_t ids[LEN_MAX + 1];
	uint64_t print[LEN_MAX]; /* of the salt and the tokens up to each */
	int32_t n_stored;
	int32_t n_entered;
	int32_t n_pages; /* held */
	int32_t table[GROUPS][DEPTH];
	LlmPageHash hashes[DEPTH + 1];
} Seq;

/* A page of group 0 as the table has it. */
typedef struct Entry
{
	int32_t n; /* tokens, 0 = no entry */
	uint64_t print[LLM_PAGE_TOKENS];
	uint64_t before; /* print of the page before */
	int32_t parent;
	int32_t twin; /* its page in group 1 */
	int32_t n_owners;
	int32_t n_pins;
	uint64_t idle_since; /* order of losing the last owner or of being used */
	bool marked;
} Entry;

typedef struct Pin
{
	Seq text; /* n tokens; live */
	int32_t last;
} Pin;

typedef struct World
{
	LlmPrefix *p;
	int32_t n_pages;
	uint64_t *slot[GROUPS]; /* [n_pages * 64] what the device holds */
	Seq seqs[SEQS];
	Entry entries[PAGES_MAX];
	Pin pins[PINS_MAX];
	int32_t n_own;     /* held pages that are no entries */
	int32_t n_touched; /* pages that were handed out at some time */
	uint64_t clock;
	int64_t n_evictions;
	int64_t n_hits;
	int64_t n_copied;
	int64_t n_pins;
	int64_t n_spared; /* evictions that a mark turned away from the oldest */
	int64_t n_reused; /* evictions while there were pages that nobody had touched */
} World;

static inline void
world_init_limit(World *w, int32_t n_pages, uint32_t hash_bits, int32_t idle_limit)
{
	LlmPrefixOptions o = {.n_groups = GROUPS,
						  .n_pages = n_pages,
						  .on = true,
						  .numerics = 7,
						  .hash_bits = hash_bits,
						  .idle_limit = idle_limit};
	LlmError err;

	assert_in_range(n_pages, 2, PAGES_MAX);
	memset(w, 0, sizeof(*w));
	w->n_pages = n_pages;
	assert_int_equal(llm_kv_prefix_create(&o, &w->p, &err), LLM_OK);
	for (int g = 0; g < GROUPS; g++)
		w->slot[g] = calloc((size_t) n_pages * LLM_PAGE_TOKENS, sizeof(uint64_t));
}

static inline void
world_init(World *w, int32_t n_pages, uint32_t hash_bits)
{
	world_init_limit(w, n_pages, hash_bits, 0);
}

static inline void
world_fini(World *w)
{
	LlmPageCounts c = llm_kv_prefix_counts(w->p);

	assert_int_equal(c.free + c.cached, c.total);
	llm_kv_prefix_free(w->p);
	for (int g = 0; g < GROUPS; g++)
		free(w->slot[g]);
}

/* ---- texts ---- */

static inline uint64_t
print_first(uint64_t salt)
{
	return (salt + 77) * 0xBF58476D1CE4E5B9u;
}

static inline uint64_t
print_next(uint64_t print, int32_t id)
{
	print = (print ^ ((uint64_t) id + 1)) * 0x9E3779B97F4A7C15u;
	return print ^ print >> 29;
}

/* n tokens of pages with these digits. */
static inline void
text_make(Seq *s, uint64_t salt, const char *digits, int32_t n)
{
	uint64_t print = print_first(salt);

	memset(s, 0, sizeof(*s));
	s->salt = salt;
	s->n = n;
	for (int32_t i = 0; i < n; i++)
	{
		int32_t k = i % LLM_PAGE_TOKENS;

		s->ids[i] = k < ALIKE ? k : digits[i / LLM_PAGE_TOKENS] * 100 + k;
		s->print[i] = print = print_next(print, s->ids[i]);
	}
}

static inline LlmPrefixText
text_of(const World *w, Seq *s, int32_t n)
{
	llm_kv_prefix_hash(w->p, s->salt, s->ids, n, s->hashes, 0);
	return (LlmPrefixText){s->salt, s->ids, n, s->hashes};
}

/* Of the page before page i. */
static inline uint64_t
print_before(const Seq *s, int32_t i)
{
	return i == 0 ? print_first(s->salt) : s->print[i * LLM_PAGE_TOKENS - 1];
}

/* ---- the plain table ---- */

static inline bool
is_idle(const Entry *e)
{
	return e->n > 0 && e->n_owners == 0;
}

static inline int32_t
n_idle(const World *w)
{
	int32_t n = 0;

	for (int32_t id = 1; id < w->n_pages; id++)
		n += is_idle(&w->entries[id]);
	return n;
}

static inline int32_t
n_free(const World *w)
{
	int32_t n = w->n_pages - 1 - w->n_own;

	for (int32_t id = 1; id < w->n_pages; id++)
		n -= w->entries[id].n > 0;
	return n;
}

/* The full entry of page i of a text, 0 = none. */
static inline int32_t
table_full(const World *w, const Seq *s, int32_t i)
{
	int32_t found = 0;

	for (int32_t id = 1; id < w->n_pages; id++)
		if (w->entries[id].n == LLM_PAGE_TOKENS &&
			w->entries[id].print[LLM_PAGE_TOKENS - 1] == s->print[(i + 1) * LLM_PAGE_TOKENS - 1])
		{
			assert_int_equal(found, 0); /* it is there once */
			found = id;
		}
	return found;
}

/* Tokens from page i on, up to token n, that an entry begins with. */
static inline int32_t
table_common(const Entry *e, const Seq *s, int32_t i, int32_t n)
{
	int32_t k = 0;

	if (e->n == 0 || e->before != print_before(s, i))
		return 0;
	while (k < e->n && i * LLM_PAGE_TOKENS + k < n &&
		   e->print[k] == s->print[i * LLM_PAGE_TOKENS + k])
		k++;
	return k;
}

/* The most that any entry after page i - 1 begins with; *n_children gets how many there are. */
static inline int32_t
table_best(const World *w, const Seq *s, int32_t i, int32_t n, int32_t *n_children)
{
	int32_t best = 0;

	*n_children = 0;
	for (int32_t id = 1; id < w->n_pages; id++)
	{
		const Entry *e = &w->entries[id];
		int32_t k = table_common(e, s, i, n);

		*n_children += e->n > 0 && e->before == print_before(s, i);
		best = k > best ? k : best;
	}
	return best;
}

static inline void
table_own(World *w, int32_t id)
{
	w->entries[id].n_owners++;
}

static inline void
table_release(World *w, int32_t id)
{
	assert_true(w->entries[id].n_owners > 0);
	if (--w->entries[id].n_owners == 0)
		w->entries[id].idle_since = ++w->clock;
}

/* What is idle for longest goes, unless it is marked and something else is not, or pages are left. */
static inline void
table_evict(World *w)
{
	int32_t victim = 0;
	int32_t oldest = 0;

	for (int32_t id = 1; id < w->n_pages; id++)
	{
		const Entry *e = &w->entries[id];

		if (!is_idle(e))
			continue;
		if (oldest == 0 || e->idle_since < w->entries[oldest].idle_since)
			oldest = id;
		if (!e->marked && (victim == 0 || e->idle_since < w->entries[victim].idle_since))
			victim = id;
	}
	assert_true(oldest > 0);
	if (victim == 0 && n_free(w) > 0)
		return;
	victim = victim == 0 ? oldest : victim;
	for (int32_t id = 1; id < w->n_pages; id++)
		if (w->entries[id].n > 0)
			assert_int_not_equal(w->entries[id].parent, victim);
	w->n_spared += victim != oldest;
	w->n_reused += n_free(w) > 0;
	w->entries[victim].n = 0;
	w->n_evictions++;
}

/* Own page at place i has n tokens of s now, as an entry. */
static inline void
table_set(World *w, const Seq *s, int32_t i, int32_t n)
{
	int32_t id = s->table[0][i];
	Entry *e = &w->entries[id];

	if (e->n == 0)
	{
		*e = (Entry){.before = print_before(s, i),
					 .parent = i == 0 ? 0 : s->table[0][i - 1],
					 .twin = s->table[1][i],
					 .n_owners = 1};
		w->n_own--;
	}
	for (int32_t k = 0; k < n; k++)
		e->print[k] = s->print[i * LLM_PAGE_TOKENS + k];
	e->n = n;
}

/* The page at place i of a sequence, its own until now, gives way to an entry. */
static inline void
table_give_way(World *w, int32_t id)
{
	Entry *e = &w->entries[id];

	if (e->n == 0)
		w->n_own--;
	else if (e->n_pins > 0)
		table_release(w, id);
	else
		e->n = 0;
}

/* ---- what a sequence does ---- */

static inline void
seq_tables(Seq *s, int32_t *table[GROUPS])
{
	for (int g = 0; g < GROUPS; g++)
		table[g] = s->table[g];
}

/* All that is stored was written for these very tokens. */
static inline void
seq_check(const World *w, const Seq *s)
{
	for (int32_t i = 0; s->live && i < s->n_stored; i++)
		for (int g = 0; g < GROUPS; g++)
		{
			int32_t page = s->table[g][i / LLM_PAGE_TOKENS];

			assert_in_range(page, 1, w->n_pages - 1);
			if (w->slot[g][page * LLM_PAGE_TOKENS + i % LLM_PAGE_TOKENS] != s->print[i])
				fail_msg("token %d of a sequence is another's", i);
		}
}

/* Find, and compare with the table. */
static inline LlmPrefixHit
seq_find(World *w, Seq *s)
{
	LlmPrefixText text = text_of(w, s, s->n);
	LlmPrefixHit hit = llm_kv_prefix_find(w->p, &text);
	int32_t want = 0;
	int32_t want_idle = 0;
	int32_t n_children;
	int32_t best;

	for (; (want + 1) * LLM_PAGE_TOKENS < s->n; want++)
	{
		int32_t id = table_full(w, s, want);

		if (id == 0)
			break;
		want_idle += is_idle(&w->entries[id]);
		assert_true(want + 1 != hit.n_pages || hit.last == id);
	}
	assert_int_equal(hit.n_pages, want);
	assert_int_equal(hit.n_idle, want_idle);
	best = table_best(w, s, want, s->n - 1, &n_children);
	assert_true(hit.n_copy <= best && (n_children > LLM_PREFIX_CHILDREN || hit.n_copy == best));
	assert_int_equal(hit.source > 0, hit.n_copy > 0);
	if (hit.source > 0)
		assert_int_equal(table_common(&w->entries[hit.source], s, want, s->n - 1), hit.n_copy);
	return hit;
}

static inline void
seq_grow(World *w, Seq *s, int32_t need)
{
	int32_t *table[GROUPS];

	seq_tables(s, table);
	for (; s->n_pages < need && llm_kv_prefix_available(w->p) > 0; s->n_pages++)
	{
		int32_t n_untouched = w->n_pages - 1 - w->n_touched;

		if (n_free(w) == 0 ||
			(n_free(w) == n_untouched && n_idle(w) > llm_kv_prefix_idle_limit(w->p)))
			table_evict(w);
		w->n_touched += n_free(w) == n_untouched;
		llm_kv_prefix_alloc(w->p, table, s->n_pages);
		w->n_own++;
	}
}

/* The source's first tokens go to place i; its page may be another's by now, but not its content. */
static inline void
seq_copy(World *w, Seq *s, int32_t i, const int32_t *from, int32_t n)
{
	for (int g = 0; g < GROUPS; g++)
		memmove(w->slot[g] + s->table[g][i] * LLM_PAGE_TOKENS,
				w->slot[g] + from[g] * LLM_PAGE_TOKENS, (size_t) n * sizeof(uint64_t));
	w->n_copied += n;
}

/* Find and take what is cached. */
static inline void
seq_hit(World *w, Seq *s)
{
	LlmPrefixHit hit = seq_find(w, s);
	int32_t n = llm_kv_prefix_hit_tokens(&hit);
	int32_t from[GROUPS] = {0};
	int32_t *table[GROUPS];

	if (n <= s->n_stored)
		return;
	for (int g = 0; g < GROUPS && hit.source > 0; g++)
		from[g] = llm_kv_prefix_page(w->p, g, hit.source);
	seq_tables(s, table);
	for (int32_t i = hit.n_pages - 1; i >= s->n_entered; i--)
	{
		if (i < s->n_pages)
			table_give_way(w, s->table[0][i]);
		table_own(w, table_full(w, s, i));
		w->n_hits++;
	}
	llm_kv_prefix_take(w->p, &hit, s->n_entered, s->n_pages, table);
	if (hit.source > 0 && is_idle(&w->entries[hit.source]))
		w->entries[hit.source].idle_since = ++w->clock;
	s->n_entered = hit.n_pages;
	s->n_pages = s->n_pages > hit.n_pages ? s->n_pages : hit.n_pages;
	s->n_stored = hit.n_pages * LLM_PAGE_TOKENS;
	if (hit.n_copy == 0)
		return;
	seq_grow(w, s, hit.n_pages + 1);
	if (s->n_pages == hit.n_pages)
		return; /* no page for the rest */
	seq_copy(w, s, hit.n_pages, from, hit.n_copy);
	s->n_stored = n;
}

/* What enters is as the table says; the tail may be left out where one of many children has it. */
static inline void
seq_enter(World *w, Seq *s)
{
	LlmPrefixText text = text_of(w, s, s->n_stored);
	int32_t *table[GROUPS];
	int32_t rest = s->n_stored % LLM_PAGE_TOKENS;
	int32_t n_children;
	LlmPrefixStat before[4], after[4];
	int64_t grown = 0;

	seq_tables(s, table);
	for (; (s->n_entered + 1) * LLM_PAGE_TOKENS <= s->n_stored; s->n_entered++)
	{
		int32_t id = table_full(w, s, s->n_entered);

		if (id == 0)
			table_set(w, s, s->n_entered, LLM_PAGE_TOKENS);
		else
		{
			table_give_way(w, s->table[0][s->n_entered]);
			table_own(w, id);
		}
		assert_true(llm_kv_prefix_enter(w->p, &text, s->n_entered, table));
		assert_true(id == 0 || s->table[0][s->n_entered] == id);
	}
	for (int32_t i = llm_kv_prefix_stats(w->p, before, 4) - 1; i >= 0; i--)
		grown -= before[i].blocks;
	llm_kv_prefix_enter_tail(w->p, &text, table);
	for (int32_t i = llm_kv_prefix_stats(w->p, after, 4) - 1; i >= 0; i--)
		grown += after[i].blocks;
	if (rest == 0)
	{
		assert_int_equal(grown, 0);
		return;
	}
	if (w->entries[s->table[0][s->n_entered]].n > 0)
	{
		assert_int_equal(grown, 0);
		if (w->entries[s->table[0][s->n_entered]].n < rest)
			table_set(w, s, s->n_entered, rest);
		return;
	}
	if (table_best(w, s, s->n_entered, s->n_stored, &n_children) < rest)
		assert_int_equal(grown, 1);
	else if (n_children <= LLM_PREFIX_CHILDREN)
		assert_int_equal(grown, 0);
	if (grown > 0)
		table_set(w, s, s->n_entered, rest);
}

/* Store up to n more tokens, then enter them. */
static inline void
seq_store(World *w, Seq *s, int32_t n)
{
	for (; n > 0 && s->n_stored < s->n && s->n_stored < s->n_pages * LLM_PAGE_TOKENS; n--)
	{
		for (int g = 0; g < GROUPS; g++)
			w->slot[g][s->table[g][s->n_stored / LLM_PAGE_TOKENS] * LLM_PAGE_TOKENS +
					   s->n_stored % LLM_PAGE_TOKENS] = s->print[s->n_stored];
		s->n_stored++;
	}
	seq_enter(w, s);
}

static inline void
seq_drop(World *w, Seq *s)
{
	int32_t *table[GROUPS];

	seq_tables(s, table);
	while (s->n_pages > 0)
	{
		int32_t id = s->table[0][--s->n_pages];

		if (w->entries[id].n > 0)
			table_release(w, id);
		else
			w->n_own--;
		llm_kv_prefix_release(w->p, table, s->n_pages);
	}
	s->live = false;
}

static inline void
seq_start(World *w, Seq *s, uint64_t salt, const char *digits, int32_t n)
{
	text_make(s, salt, digits, n);
	s->live = true;
	seq_hit(w, s);
	seq_grow(w, s, (n + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS);
}

/* ---- pins and marks ---- */

static inline bool
is_pin_of(const Pin *pin, const Seq *s)
{
	return pin->text.live && s->n_stored > 0 && pin->text.n == s->n_stored &&
		   pin->text.print[s->n_stored - 1] == s->print[s->n_stored - 1];
}

/* Pin what a sequence has stored; the table then owns the chain once more. */
static inline void
world_pin(World *w, Seq *s)
{
	int32_t most = (w->n_pages - 1) / 2;
	int32_t n = llm_kv_prefix_pinned(w->p);
	LlmPrefixText text = text_of(w, s, s->n_stored + 1);
	LlmPrefixHit hit = llm_kv_prefix_find(w->p, &text);
	int32_t last = hit.n_copy > 0 ? hit.source : hit.last;
	Pin *pin = NULL;
	LlmError err;

	text.n = s->n_stored;
	for (int i = 0; i < PINS_MAX; i++)
	{
		if (is_pin_of(&w->pins[i], s))
		{
			assert_int_equal(llm_kv_prefix_pin(w->p, &text, most, &err), LLM_OK);
			assert_int_equal(llm_kv_prefix_pinned(w->p), n); /* twice is once */
			return;
		}
		pin = w->pins[i].text.live ? pin : &w->pins[i];
	}
	if (pin == NULL || s->n_stored == 0 || llm_kv_prefix_hit_tokens(&hit) != s->n_stored)
		return; /* one of very many children may be hard to find */
	for (int32_t id = last; id != 0; id = w->entries[id].parent)
		n += w->entries[id].n_pins == 0;
	if (n > most)
	{
		assert_int_equal(llm_kv_prefix_pin(w->p, &text, most, &err), LLM_E_KV_MEMORY);
		assert_int_equal(err.got, n);
		assert_int_equal(err.limit, most);
		return;
	}
	assert_int_equal(llm_kv_prefix_pin(w->p, &text, most, &err), LLM_OK);
	assert_int_equal(llm_kv_prefix_pinned(w->p), n);
	*pin = (Pin){*s, last};
	pin->text.n = s->n_stored;
	pin->text.live = true;
	w->n_pins++;
	for (int32_t id = last; id != 0; id = w->entries[id].parent)
	{
		w->entries[id].n_pins++;
		table_own(w, id);
	}
}

static inline void
world_unpin(World *w, Pin *pin)
{
	LlmPrefixText text = text_of(w, &pin->text, pin->text.n);

	if (!pin->text.live)
		return;
	assert_true(llm_kv_prefix_unpin(w->p, &text));
	assert_false(llm_kv_prefix_unpin(w->p, &text));
	for (int32_t id = pin->last; id != 0; id = w->entries[id].parent)
	{
		w->entries[id].n_pins--;
		table_release(w, id);
	}
	pin->text.live = false;
}

/* Mark what two texts need. */
static inline void
world_mark(World *w, Seq *a, Seq *b)
{
	Seq *both[2] = {a, b};

	for (int32_t id = 1; id < w->n_pages; id++)
		w->entries[id].marked = false;
	llm_kv_prefix_marks_begin(w->p);
	for (int i = 0; i < 2; i++)
		if (both[i]->n > 0)
		{
			LlmPrefixText text = text_of(w, both[i], both[i]->n);
			LlmPrefixHit hit = seq_find(w, both[i]);

			llm_kv_prefix_mark(w->p, &text);
			w->entries[hit.source].marked = true;
			for (int32_t id = hit.last; id != 0; id = w->entries[id].parent)
				w->entries[id].marked = true;
		}
}

#endif
