/*
 * test_prefix.c - the prefix cache against a plain list of what it should hold.
 *
 * A sequence here is a path of digits, one per page; the digit makes the page's 64 tokens, so equal
 * pages lie under different parents all the time. The "device" keeps, for each page, the salt and path
 * of who wrote it: a hit on a page with another path is a wrong hit, whatever the hash said.
 *
 * links: kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "kv/prefix.h"

#define GROUPS 2
#define DEPTH 8
#define SEQS 12
#define ENTRIES_MAX 64

/* The first n pages of a path, with its salt. */
typedef struct Path
{
	uint64_t salt;
	int32_t n;
	char digit[DEPTH];
} Path;

typedef struct Seq
{
	bool live;
	Path path;      /* all its pages */
	int32_t n_tail; /* tokens after its last full page */
	int32_t n_entered;
	int32_t table[GROUPS][DEPTH + 1];
	int32_t n_pages; /* held */
} Seq;

typedef struct Entry
{
	Path path;
	int32_t n_owners;
	uint64_t idle_since; /* order of losing the last owner */
} Entry;

typedef struct World
{
	LlmPrefix *p;
	int32_t n_pages;
	Path *store[GROUPS]; /* [n_pages] who wrote a page */
	Seq seqs[SEQS];
	Entry entries[ENTRIES_MAX]; /* the plain list */
	int32_t n_entries;
	int32_t n_own; /* held pages that are no entries */
	uint64_t clock;
	int64_t n_evictions;
	int64_t n_hits;
} World;

static void
world_init(World *w, int32_t n_pages, uint32_t hash_bits)
{
	LlmPrefixOptions o = {
		.n_groups = GROUPS, .n_pages = n_pages, .on = true, .numerics = 7, .hash_bits = hash_bits};
	LlmError err;

	memset(w, 0, sizeof(*w));
	w->n_pages = n_pages;
	assert_int_equal(llm_kv_prefix_create(&o, &w->p, &err), LLM_OK);
	for (int g = 0; g < GROUPS; g++)
		w->store[g] = calloc((size_t) n_pages, sizeof(Path));
}

static void
world_fini(World *w)
{
	LlmPageCounts c = llm_kv_prefix_counts(w->p);

	assert_int_equal(c.free + c.cached, c.total);
	llm_kv_prefix_free(w->p);
	for (int g = 0; g < GROUPS; g++)
		free(w->store[g]);
}

static Path
path_upto(const Path *path, int32_t n)
{
	Path q = {.salt = path->salt, .n = n};

	memcpy(q.digit, path->digit, (size_t) n);
	return q;
}

static bool
path_equal(const Path *a, const Path *b)
{
	return a->salt == b->salt && a->n == b->n && memcmp(a->digit, b->digit, (size_t) a->n) == 0;
}

/* The tokens of a path and a tail; returns their number. */
static int32_t
path_ids(const Seq *s, int32_t *ids)
{
	int32_t n = 0;

	for (int32_t i = 0; i < s->path.n; i++)
		for (int32_t k = 0; k < LLM_PAGE_TOKENS; k++)
			ids[n++] = s->path.digit[i] * 100 + k;
	for (int32_t k = 0; k < s->n_tail; k++)
		ids[n++] = 5000 + k;
	return n;
}

/* ---- the plain list ---- */

static Entry *
entry_of(World *w, const Path *path)
{
	for (int32_t i = 0; i < w->n_entries; i++)
		if (path_equal(&w->entries[i].path, path))
			return &w->entries[i];
	return NULL;
}

static int32_t
n_idle(const World *w)
{
	int32_t n = 0;

	for (int32_t i = 0; i < w->n_entries; i++)
		n += w->entries[i].n_owners == 0;
	return n;
}

static int32_t
n_free(const World *w)
{
	return w->n_pages - 1 - w->n_own - w->n_entries;
}

/* The entry that lost its last owner first goes. */
static void
model_evict(World *w)
{
	Entry *oldest = NULL;

	for (int32_t i = 0; i < w->n_entries; i++)
		if (w->entries[i].n_owners == 0 &&
			(oldest == NULL || w->entries[i].idle_since < oldest->idle_since))
			oldest = &w->entries[i];
	assert_non_null(oldest);
	*oldest = w->entries[--w->n_entries];
	w->n_evictions++;
}

static void
model_release(World *w, const Path *path)
{
	Entry *e = entry_of(w, path);

	assert_non_null(e);
	if (--e->n_owners == 0)
		e->idle_since = ++w->clock;
}

/* ---- what a sequence does ---- */

static void
seq_tables(Seq *s, int32_t *table[GROUPS])
{
	for (int g = 0; g < GROUPS; g++)
		table[g] = s->table[g];
}

/* Every entered page of s was written by its own path. */
static void
seq_check(const World *w, const Seq *s)
{
	for (int32_t i = 0; i < s->n_entered; i++)
		for (int g = 0; g < GROUPS; g++)
		{
			Path want = path_upto(&s->path, i + 1);

			assert_in_range(s->table[g][i], 1, w->n_pages - 1);
			if (!path_equal(&w->store[g][s->table[g][i]], &want))
				fail_msg("page %d of a sequence holds other tokens", i);
		}
}

/* Find and take what is cached; pages from n_entered on are the sequence's own until then. */
static void
seq_hit(World *w, Seq *s)
{
	int32_t ids[(DEPTH + 1) * LLM_PAGE_TOKENS];
	int32_t n = path_ids(s, ids);
	LlmPrefixHit hit = llm_kv_prefix_find(w->p, s->path.salt, ids, n);
	int32_t want = 0;
	int32_t want_idle = 0;
	int32_t *table[GROUPS];

	for (; (want + 1) * LLM_PAGE_TOKENS < n; want++)
	{
		Path q = path_upto(&s->path, want + 1);
		const Entry *e = entry_of(w, &q);

		if (e == NULL)
			break;
		want_idle += e->n_owners == 0;
	}
	assert_int_equal(hit.n_pages, want);
	assert_int_equal(hit.n_idle, want_idle);
	if (want <= s->n_entered)
		return;
	seq_tables(s, table);
	llm_kv_prefix_take(w->p, &hit, s->n_entered, s->n_pages, table);
	for (int32_t i = s->n_entered; i < want; i++)
	{
		Path q = path_upto(&s->path, i + 1);

		entry_of(w, &q)->n_owners++;
		w->n_own -= i < s->n_pages;
		w->n_hits++;
	}
	s->n_entered = want;
	s->n_pages = s->n_pages > want ? s->n_pages : want;
	seq_check(w, s);
}

static void
seq_grow(World *w, Seq *s)
{
	int32_t need = s->path.n + (s->n_tail > 0);
	int32_t *table[GROUPS];

	seq_tables(s, table);
	for (; s->n_pages < need && llm_kv_prefix_available(w->p) > 0; s->n_pages++)
	{
		if (n_free(w) == 0)
			model_evict(w);
		llm_kv_prefix_alloc(w->p, table, s->n_pages);
		w->n_own++;
	}
}

/* Store the next page, then enter it. */
static void
seq_enter(World *w, Seq *s)
{
	int32_t ids[(DEPTH + 1) * LLM_PAGE_TOKENS];
	int32_t i = s->n_entered;
	Path q = path_upto(&s->path, i + 1);
	int32_t *table[GROUPS];
	Entry *e;

	if (i >= s->path.n || i >= s->n_pages)
		return;
	for (int g = 0; g < GROUPS; g++)
		w->store[g][s->table[g][i]] = q;
	path_ids(s, ids);
	seq_tables(s, table);
	assert_true(llm_kv_prefix_enter(w->p, s->path.salt, ids, i, table));
	s->n_entered++;
	w->n_own--;
	if ((e = entry_of(w, &q)) == NULL)
	{
		assert_in_range(w->n_entries, 0, ENTRIES_MAX - 1);
		e = &w->entries[w->n_entries++];
		*e = (Entry){.path = q};
	}
	e->n_owners++;
	seq_check(w, s);
}

static void
seq_drop(World *w, Seq *s)
{
	int32_t *table[GROUPS];

	seq_tables(s, table);
	while (s->n_pages > 0)
	{
		Path q = path_upto(&s->path, s->n_pages <= s->n_entered ? s->n_pages : 0);

		llm_kv_prefix_release(w->p, table, --s->n_pages);
		if (q.n > 0)
			model_release(w, &q);
		else
			w->n_own--;
	}
	s->live = false;
}

static void
seq_start(World *w, Seq *s, const Path *path, int32_t n_tail)
{
	*s = (Seq){.live = true, .path = *path, .n_tail = n_tail};
	seq_hit(w, s);
	seq_grow(w, s);
}

/* The counts are the plain list's, the owners are those that the sequences know of. */
static void
world_check(World *w)
{
	LlmPageCounts c = llm_kv_prefix_counts(w->p);
	LlmError err;

	assert_int_equal(c.free, GROUPS * n_free(w));
	assert_int_equal(c.cached, GROUPS * n_idle(w));
	assert_int_equal(c.total, GROUPS * (w->n_pages - 1));
	assert_int_equal(llm_kv_prefix_evictions(w->p), w->n_evictions);
	for (int g = 0; g < GROUPS; g++)
	{
		int32_t held[ENTRIES_MAX] = {0};

		for (int k = 0; k < SEQS; k++)
			for (int32_t i = 0; w->seqs[k].live && i < w->seqs[k].n_pages; i++)
				held[w->seqs[k].table[g][i]]++;
		if (!llm_kv_prefix_audit_pages(w->p, g, held, &err))
			fail_msg("%s", err.text);
	}
	if (!llm_kv_prefix_audit(w->p, &err))
		fail_msg("%s", err.text);
}

static void
storm(uint64_t seed, int n_ops, int32_t n_pages, uint32_t hash_bits)
{
	World w;

	world_init(&w, n_pages, hash_bits);
	for (int op = 0; op < n_ops; op++)
	{
		uint32_t r = llm_rng_u32(seed, (uint32_t) op, 0);
		Seq *s = &w.seqs[r % SEQS];

		r /= SEQS;
		if (!s->live)
		{
			Path path = {.salt = r % 8 == 0, .n = (int32_t) ((r >> 3) % (DEPTH + 1))};

			for (int32_t i = 0; i < path.n; i++)
				path.digit[i] = (char) (llm_rng_u32(seed, (uint32_t) op, 1 + (uint32_t) i) % 5 / 2);
			seq_start(&w, s, &path, (int32_t) ((r >> 8) % 3) * 20);
		}
		else if (r % 8 == 0)
			seq_drop(&w, s);
		else if (r % 8 == 1)
			seq_hit(&w, s);
		else if (r % 8 == 2)
			seq_grow(&w, s);
		else
			seq_enter(&w, s);
		world_check(&w);
	}
	for (int k = 0; k < SEQS; k++)
		seq_drop(&w, &w.seqs[k]);
	world_check(&w);
	assert_true(w.n_hits > n_ops / 100);
	assert_true(w.n_evictions > n_ops / 100);
	world_fini(&w);
}

static void
random_work_equals_the_plain_list(void **state)
{
	storm(1, 50000, 30, 0);
	storm(2, 50000, 50, 0);
	storm(3, 10000, 6, 0);
}

/* With a hash of one or three bits almost everything collides; nothing else changes. */
static void
colliding_hashes_never_give_a_wrong_hit(void **state)
{
	storm(4, 20000, 50, 1);
	storm(5, 20000, 30, 3);
}

/* ---- single rules ---- */

/* A sequence of these digits that has entered all its pages. */
static void
seq_stored(World *w, Seq *s, uint64_t salt, const char *digits)
{
	Path path = {.salt = salt, .n = (int32_t) strlen(digits)};

	memcpy(path.digit, digits, strlen(digits));
	seq_start(w, s, &path, 1);
	while (s->n_entered < s->path.n)
		seq_enter(w, s);
	world_check(w);
}

static int32_t
pages_found(World *w, uint64_t salt, const char *digits, int32_t n)
{
	Seq s = {.path = {.salt = salt, .n = (int32_t) strlen(digits)}};
	int32_t ids[(DEPTH + 1) * LLM_PAGE_TOKENS];

	memcpy(s.path.digit, digits, strlen(digits));
	path_ids(&s, ids);
	return llm_kv_prefix_find(w->p, salt, ids, n).n_pages;
}

static void
the_last_token_is_never_a_hit(void **state)
{
	static const int32_t n[] = {0, 1, 63, 64, 65, 127, 128, 129, 191, 192};
	static const int32_t want[] = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2};
	World w;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abc");
	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		assert_int_equal(pages_found(&w, 1, "abc", n[i]), want[i]);
	seq_drop(&w, &w.seqs[0]);
	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		assert_int_equal(pages_found(&w, 1, "abc", n[i]), want[i]);
	world_fini(&w);
}

static void
a_salt_finds_only_its_own(void **state)
{
	World w;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abc");
	assert_int_equal(pages_found(&w, 1, "abcd", 256), 3);
	assert_int_equal(pages_found(&w, 2, "abcd", 256), 0);
	assert_int_equal(pages_found(&w, 0, "abcd", 256), 0);
	seq_stored(&w, &w.seqs[1], 2, "abc");
	assert_int_equal(pages_found(&w, 2, "abcd", 256), 3);
	for (int32_t i = 0; i < 3; i++)
		assert_int_not_equal(w.seqs[0].table[0][i], w.seqs[1].table[0][i]);
	seq_drop(&w, &w.seqs[0]);
	seq_drop(&w, &w.seqs[1]);
	world_fini(&w);
}

/* Equal tokens after other tokens are other pages. */
static void
a_page_is_known_by_what_precedes_it(void **state)
{
	World w;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "ab");
	assert_int_equal(pages_found(&w, 1, "abx", 192), 2);
	assert_int_equal(pages_found(&w, 1, "bbx", 192), 0);
	assert_int_equal(pages_found(&w, 1, "axb", 192), 1);
	seq_drop(&w, &w.seqs[0]);
	world_fini(&w);
}

static void
tails_are_evicted_before_heads_and_old_before_new(void **state)
{
	World w;
	Path other = {.salt = 9, .n = 3, .digit = "xyz"};

	world_init(&w, 9, 0); /* 8 pages */
	seq_stored(&w, &w.seqs[0], 1, "abc");
	seq_drop(&w, &w.seqs[0]);
	seq_stored(&w, &w.seqs[1], 1, "pq");
	seq_drop(&w, &w.seqs[1]);
	seq_stored(&w, &w.seqs[0], 1, "a"); /* a is used again: now the newest */
	seq_drop(&w, &w.seqs[0]);
	seq_start(&w, &w.seqs[2], &other, 2); /* 3 free pages of 4 needed: one must go */
	world_check(&w);
	assert_int_equal(pages_found(&w, 1, "abcd", 256), 2);
	assert_int_equal(pages_found(&w, 1, "pqr", 192), 2);
	seq_drop(&w, &w.seqs[2]);
	other.n = 6;
	memcpy(other.digit, "xyzuvw", 6);
	seq_start(&w, &w.seqs[2], &other, 2); /* seven of eight pages: b, q and p go after c */
	world_check(&w);
	assert_int_equal(pages_found(&w, 1, "abcd", 256), 1);
	assert_int_equal(pages_found(&w, 1, "pqr", 192), 0);
	seq_drop(&w, &w.seqs[2]);
	world_fini(&w);
}

static void
off_drops_what_nobody_owns(void **state)
{
	World w;
	int32_t ids[(DEPTH + 1) * LLM_PAGE_TOKENS];
	int32_t *table[GROUPS];
	LlmPageCounts c;
	LlmError err;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abc");
	seq_stored(&w, &w.seqs[1], 1, "abd");
	seq_drop(&w, &w.seqs[0]);
	llm_kv_prefix_switch(w.p, false);
	c = llm_kv_prefix_counts(w.p);
	assert_int_equal(c.cached, 0);
	assert_int_equal(c.referenced, GROUPS * 4);
	assert_int_equal(pages_found(&w, 1, "abd", 192), 0);
	path_ids(&w.seqs[1], ids);
	seq_tables(&w.seqs[1], table);
	assert_false(llm_kv_prefix_enter(w.p, 1, ids, 2, table));
	while (w.seqs[1].n_pages > 0)
		llm_kv_prefix_release(w.p, table, --w.seqs[1].n_pages);
	assert_true(llm_kv_prefix_audit(w.p, &err));
	c = llm_kv_prefix_counts(w.p);
	assert_int_equal(c.free, c.total);
	llm_kv_prefix_switch(w.p, true);
	assert_int_equal(pages_found(&w, 1, "abd", 192), 0);
	world_fini(&w);
}

static void
sizes_out_of_range_are_refused(void **state)
{
	LlmPrefixOptions o = {.n_groups = 1, .n_pages = 1};
	LlmPrefix *p = NULL;
	LlmError err;

	assert_int_equal(llm_kv_prefix_create(&o, &p, &err), LLM_E_INVALID);
	o = (LlmPrefixOptions){.n_groups = LLM_KV_GROUPS_MAX + 1, .n_pages = 5};
	assert_int_equal(llm_kv_prefix_create(&o, &p, &err), LLM_E_INVALID);
	assert_null(p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_work_equals_the_plain_list),
		cmocka_unit_test(colliding_hashes_never_give_a_wrong_hit),
		cmocka_unit_test(the_last_token_is_never_a_hit),
		cmocka_unit_test(a_salt_finds_only_its_own),
		cmocka_unit_test(a_page_is_known_by_what_precedes_it),
		cmocka_unit_test(tails_are_evicted_before_heads_and_old_before_new),
		cmocka_unit_test(off_drops_what_nobody_owns),
		cmocka_unit_test(sizes_out_of_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
