/*
 * test_prefix.c - the prefix cache against a plain table of what it should hold (prefix_world.h):
 * random work, then its rules one by one.
 *
 * links: kv core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "core/rng.h"
#include "prefix_world.h"

/* ---- random work ---- */

/* The counts are the plain table's, the owners are those that the sequences know of. */
static void
world_check(World *w)
{
	LlmPageCounts c = llm_kv_prefix_counts(w->p);
	LlmError err;

	assert_int_equal(c.free, GROUPS * n_free(w));
	assert_int_equal(c.cached, GROUPS * n_idle(w));
	assert_int_equal(c.total, GROUPS * (w->n_pages - 1));
	assert_int_equal(c.untouched, GROUPS * (w->n_pages - 1 - w->n_touched));
	assert_int_equal(llm_kv_prefix_evictions(w->p), w->n_evictions);
	for (int g = 0; g < GROUPS; g++)
	{
		int32_t held[PAGES_MAX] = {0};

		for (int k = 0; k < SEQS; k++)
			for (int32_t i = 0; w->seqs[k].live && i < w->seqs[k].n_pages; i++)
				held[w->seqs[k].table[g][i]]++;
		if (!llm_kv_prefix_audit_pages(w->p, g, held, &err))
			fail_msg("%s", err.text);
	}
	for (int k = 0; k < SEQS; k++)
		seq_check(w, &w->seqs[k]);
	for (int32_t id = 1; id < w->n_pages; id++) /* what is cached has not been overwritten */
		for (int32_t k = 0; k < w->entries[id].n; k++)
		{
			const Entry *e = &w->entries[id];

			assert_true(w->slot[0][id * LLM_PAGE_TOKENS + k] == e->print[k]);
			assert_true(w->slot[1][e->twin * LLM_PAGE_TOKENS + k] == e->print[k]);
		}
	if (!llm_kv_prefix_audit(w->p, &err))
		fail_msg("%s", err.text);
}

static void
storm_op(World *w, uint64_t seed, uint32_t op)
{
	uint32_t r = llm_rng_u32(seed, op, 0);
	Seq *s = &w->seqs[r % SEQS];
	char digits[DEPTH];
	Seq waiting;

	r /= SEQS;
	for (uint32_t i = 0; i < DEPTH; i++)
		digits[i] = (char) (llm_rng_u32(seed, op, 1 + i) % 5 / 2);
	if (!s->live)
		seq_start(w, s, r % 8 == 0, digits, 1 + (int32_t) ((r >> 3) % LEN_MAX));
	else if (r % 16 == 0)
		seq_drop(w, s);
	else if (r % 16 < 3)
		seq_hit(w, s);
	else if (r % 16 < 5)
		seq_grow(w, s, (s->n + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS);
	else if (r % 16 == 5)
		world_pin(w, s);
	else if (r % 16 == 6)
		world_unpin(w, &w->pins[(r >> 4) % PINS_MAX]);
	else if (r % 16 == 7)
	{
		text_make(&waiting, 0, digits, 1 + (int32_t) ((r >> 4) % LEN_MAX));
		world_mark(w, s, &waiting);
	}
	else
		seq_store(w, s, 1 + (int32_t) ((r >> 4) % 100));
}

/* Returns how often pages were used again though untouched ones were left. */
static int64_t
storm(uint64_t seed, int n_ops, int32_t n_pages, uint32_t hash_bits, int32_t idle_limit)
{
	World w;

	world_init_limit(&w, n_pages, hash_bits, idle_limit);
	for (int op = 0; op < n_ops; op++)
	{
		storm_op(&w, seed, (uint32_t) op);
		world_check(&w);
	}
	for (int k = 0; k < SEQS; k++)
		seq_drop(&w, &w.seqs[k]);
	for (int i = 0; i < PINS_MAX; i++)
		world_unpin(&w, &w.pins[i]);
	world_check(&w);
	assert_true(w.n_hits > n_ops / 100);
	assert_true(w.n_copied > n_ops / 10);
	assert_true(w.n_evictions > n_ops / 100);
	assert_true(w.n_pins > n_ops / 1000);
	assert_true(w.n_spared > 0 || n_ops < 1000);
	world_fini(&w);
	return w.n_reused;
}

static void
random_work_equals_the_plain_table(void **state)
{
	storm(1, 40000, 30, 0, 0);
	storm(2, 40000, 60, 0, 0);
	storm(3, 10000, 9, 0, 0);
}

/* Short lives: the limit soon grows to the whole pool. */
static void
random_work_with_a_limit_equals_the_plain_table(void **state)
{
	int64_t n_reused = 0;

	for (uint64_t seed = 10; seed < 60; seed++)
		n_reused += storm(seed, 900, 64, seed % 4 == 0 ? 3 : 0, 1 + (int32_t) (seed % 9));
	assert_true(n_reused > 500);
}

/* With a hash of one or three bits almost everything collides; nothing else changes. */
static void
colliding_hashes_never_give_a_wrong_hit(void **state)
{
	storm(4, 20000, 50, 1, 0);
	storm(5, 20000, 30, 3, 0);
}

/* ---- single rules ---- */

/* A sequence of n tokens, all of them stored. */
static void
seq_stored(World *w, Seq *s, uint64_t salt, const char *digits, int32_t n)
{
	seq_start(w, s, salt, digits, n);
	seq_store(w, s, n);
	world_check(w);
}

static int32_t
tokens_found(World *w, uint64_t salt, const char *digits, int32_t n)
{
	LlmPrefixHit hit;
	Seq s;

	text_make(&s, salt, digits, n);
	hit = seq_find(w, &s);
	return llm_kv_prefix_hit_tokens(&hit);
}

static void
the_last_token_is_never_a_hit(void **state)
{
	static const int32_t n[] = {1, 2, 63, 64, 65, 127, 128, 129, 150, 151, 180};
	static const int32_t want[] = {0, 1, 62, 63, 64, 126, 127, 128, 149, 150, 150};
	World w;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abc", 150);
	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		assert_int_equal(tokens_found(&w, 1, "abc", n[i]), want[i]);
	seq_drop(&w, &w.seqs[0]);
	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		assert_int_equal(tokens_found(&w, 1, "abc", n[i]), want[i]);
	world_fini(&w);
}

static void
a_salt_finds_only_its_own(void **state)
{
	World w;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abc", 150);
	assert_int_equal(tokens_found(&w, 1, "abcd", 256), 150);
	assert_int_equal(tokens_found(&w, 2, "abcd", 256), 0);
	assert_int_equal(tokens_found(&w, 0, "abcd", 256), 0);
	seq_stored(&w, &w.seqs[1], 2, "abc", 150);
	assert_int_equal(tokens_found(&w, 2, "abcd", 256), 150);
	for (int32_t i = 0; i < 3; i++)
		assert_int_not_equal(w.seqs[0].table[0][i], w.seqs[1].table[0][i]);
	seq_drop(&w, &w.seqs[0]);
	seq_drop(&w, &w.seqs[1]);
	world_fini(&w);
}

/* Equal tokens after other tokens are other pages; a page that differs shares how it begins. */
static void
a_page_is_known_by_what_precedes_it(void **state)
{
	World w;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "ab", 128);
	assert_int_equal(tokens_found(&w, 1, "abx", 192), 128);
	assert_int_equal(tokens_found(&w, 1, "bbx", 192), ALIKE);
	assert_int_equal(tokens_found(&w, 1, "axb", 192), 64 + ALIKE);
	seq_drop(&w, &w.seqs[0]);
	world_fini(&w);
}

/* n texts that begin as all do, and then like nothing before. */
static void
strangers_come(World *w, char *digit, int n)
{
	for (int i = 0; i < n; i++)
	{
		char digits[2] = {(*digit)++, '\0'};

		seq_stored(w, &w->seqs[1], 1, digits, 30);
		seq_drop(w, &w->seqs[1]);
	}
}

/* Only the children used last are looked at; one that is copied from has been used. */
static void
a_child_that_is_used_stays_in_sight(void **state)
{
	char digit = 'b';
	World w;

	world_init(&w, 60, 0);
	seq_stored(&w, &w.seqs[0], 1, "a", 50);
	seq_drop(&w, &w.seqs[0]);
	strangers_come(&w, &digit, LLM_PREFIX_CHILDREN - 1);
	seq_start(&w, &w.seqs[0], 1, "a", 51);
	assert_int_equal(w.seqs[0].n_stored, 50);
	seq_drop(&w, &w.seqs[0]);
	strangers_come(&w, &digit, LLM_PREFIX_CHILDREN - 1);
	assert_int_equal(tokens_found(&w, 1, "a", 60), 50);
	strangers_come(&w, &digit, 1);
	assert_int_equal(tokens_found(&w, 1, "a", 60), ALIKE);
	world_fini(&w);
}

static void
ends_are_evicted_before_beginnings_and_old_before_new(void **state)
{
	World w;

	world_init(&w, 9, 0); /* 8 pages */
	seq_stored(&w, &w.seqs[0], 1, "abc", 192);
	seq_drop(&w, &w.seqs[0]);
	seq_stored(&w, &w.seqs[1], 1, "pq", 100);
	seq_drop(&w, &w.seqs[1]);
	seq_stored(&w, &w.seqs[0], 1, "ab", 66); /* a is used again and b copied from: now newest */
	seq_drop(&w, &w.seqs[0]);
	seq_start(&w, &w.seqs[2], 9, "xyzu", 193); /* 3 free pages of 4 needed: one must go */
	world_check(&w);
	assert_int_equal(tokens_found(&w, 1, "abcd", 256), 128);
	assert_int_equal(tokens_found(&w, 1, "pqr", 192), 100);
	seq_drop(&w, &w.seqs[2]);
	seq_start(&w, &w.seqs[2], 9, "xyzuvw", 370); /* six of eight: q and p go after c */
	world_check(&w);
	assert_int_equal(tokens_found(&w, 1, "abcd", 256), 128);
	assert_int_equal(tokens_found(&w, 1, "pqr", 192), ALIKE);
	seq_drop(&w, &w.seqs[2]);
	world_fini(&w);
}

/* What is marked outlives what is newer, and goes when there is nothing else. */
static void
what_is_waited_for_goes_last(void **state)
{
	World w;
	Seq wanted, nobody = {0};

	world_init(&w, 7, 0);
	seq_stored(&w, &w.seqs[0], 1, "ab", 100);
	seq_drop(&w, &w.seqs[0]);
	seq_stored(&w, &w.seqs[1], 1, "pqr", 150);
	seq_drop(&w, &w.seqs[1]);
	text_make(&wanted, 1, "abz", 130);
	world_mark(&w, &wanted, &nobody);
	seq_start(&w, &w.seqs[2], 9, "xyzu", 256);
	world_check(&w);
	assert_int_equal(tokens_found(&w, 1, "abz", 130), 100);
	assert_int_equal(tokens_found(&w, 1, "pqr", 150), ALIKE);
	seq_drop(&w, &w.seqs[2]);
	seq_start(&w, &w.seqs[2], 9, "xyzuvw", 300);
	world_check(&w);
	assert_int_equal(tokens_found(&w, 1, "abz", 130), 64);
	seq_drop(&w, &w.seqs[2]);
	world_fini(&w);
}

/* n texts of three pages, the first of which is everybody's, one after the other; returns the tokens
 * that were found. */
static int32_t
scan(World *w, int n)
{
	int32_t n_found = 0;

	for (int i = 0; i < n; i++)
	{
		char digits[4] = {'a', (char) (-1 - i), 'c', '\0'};

		n_found += tokens_found(w, 1, digits, 192);
		seq_stored(w, &w->seqs[0], 1, digits, 192);
		seq_drop(w, &w->seqs[0]);
	}
	return n_found;
}

/* However many texts come, they use few pages again, and what all begin with stays. */
static void
a_scan_uses_its_pages_again(void **state)
{
	World w;

	world_init_limit(&w, 60, 0, 8);
	assert_int_equal(scan(&w, 100), 99 * (64 + ALIKE));
	assert_int_equal(w.n_touched, 3 + 8);
	assert_int_equal(w.n_evictions, 1 + 2 * 100 - w.n_touched);
	assert_int_equal(llm_kv_prefix_idle_limit(w.p), 8);
	world_fini(&w);
}

/* Ten texts return, of which the last three are still there. The others take pages that nobody has
 * used, since they were evicted too early, and from then on all are found. */
static void
who_comes_back_gets_the_whole_pool(void **state)
{
	World w;

	world_init_limit(&w, 60, 0, 8);
	scan(&w, 10);
	assert_int_equal(w.n_touched, 3 + 8);
	assert_int_equal(llm_kv_prefix_idle_limit(w.p), 8);
	scan(&w, 10);
	assert_true(llm_kv_prefix_idle_limit(w.p) > 20);
	assert_int_equal(scan(&w, 10), 10 * 191);
	assert_int_equal(w.n_touched,
					 1 + 10 * 2 + 1); /* the last token is computed in a page of its own */
	world_fini(&w);
}

/* Rather than lose what is marked, memory is touched. */
static void
what_is_waited_for_is_not_evicted_for_new_memory(void **state)
{
	World w;
	Seq wanted, nobody = {0};

	world_init_limit(&w, 20, 0, 2);
	seq_stored(&w, &w.seqs[0], 1, "abcd", 256);
	seq_drop(&w, &w.seqs[0]);
	assert_int_equal(llm_kv_prefix_empty(w.p), 0);
	text_make(&wanted, 1, "abcz", 200);
	world_mark(&w, &wanted, &nobody);
	seq_start(&w, &w.seqs[1], 9, "xyz", 192);
	world_check(&w);
	assert_int_equal(w.n_evictions, 0);
	assert_int_equal(w.n_touched, 7);
	world_mark(&w, &nobody, &nobody);
	seq_grow(&w, &w.seqs[1], 6);
	world_check(&w);
	assert_int_equal(w.n_evictions, 2); /* d and c, then no more than the limit are idle */
	assert_int_equal(llm_kv_prefix_empty(w.p), 11);
	assert_int_equal(tokens_found(&w, 1, "abcd", 256), 128);
	seq_drop(&w, &w.seqs[1]);
	world_fini(&w);
}

static void
off_drops_what_nobody_owns_and_the_pins(void **state)
{
	World w;
	int32_t *table[GROUPS];
	LlmPrefixText text;
	LlmPageCounts c;
	LlmError err;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abc", 190);
	world_pin(&w, &w.seqs[0]);
	seq_stored(&w, &w.seqs[1], 1, "abd", 192);
	seq_drop(&w, &w.seqs[0]);
	assert_int_equal(llm_kv_prefix_pinned(w.p), 3);
	llm_kv_prefix_switch(w.p, false);
	c = llm_kv_prefix_counts(w.p);
	assert_int_equal(c.cached, 0);
	assert_int_equal(c.referenced, GROUPS * 3);
	assert_int_equal(llm_kv_prefix_pinned(w.p), 0);
	text = text_of(&w, &w.seqs[1], 192);
	assert_int_equal(llm_kv_prefix_find(w.p, &text).n_pages, 0);
	seq_tables(&w.seqs[1], table);
	assert_false(llm_kv_prefix_enter(w.p, &text, 2, table));
	assert_int_equal(llm_kv_prefix_pin(w.p, &text, 9, &err), LLM_E_UNSUPPORTED);
	assert_false(llm_kv_prefix_unpin(w.p, &text));
	while (w.seqs[1].n_pages > 0)
		llm_kv_prefix_release(w.p, table, --w.seqs[1].n_pages);
	assert_true(llm_kv_prefix_audit(w.p, &err));
	c = llm_kv_prefix_counts(w.p);
	assert_int_equal(c.free, c.total);
	llm_kv_prefix_switch(w.p, true);
	assert_int_equal(llm_kv_prefix_find(w.p, &text).n_pages, 0);
	world_fini(&w);
}

/* More pins than there is room to note are refused, and so is what is not there. */
static void
pins_are_bounded(void **state)
{
	World w;
	LlmPrefixText text;
	LlmError err;

	world_init(&w, 20, 0);
	seq_stored(&w, &w.seqs[0], 1, "abcdef", 300);
	text = text_of(&w, &w.seqs[0], 299);
	for (text.n = 299; text.n > 299 - LLM_PREFIX_PINS; text.n--)
		assert_int_equal(llm_kv_prefix_pin(w.p, &text, 9, &err), LLM_OK);
	assert_int_equal(llm_kv_prefix_pin(w.p, &text, 9, &err), LLM_E_BUSY);
	assert_int_equal(err.limit, LLM_PREFIX_PINS);
	assert_int_equal(llm_kv_prefix_pinned(w.p), 5);
	text.n = 299;
	assert_int_equal(llm_kv_prefix_pin(w.p, &text, 9, &err), LLM_OK);
	text.salt = 2;
	assert_int_equal(llm_kv_prefix_pin(w.p, &text, 9, &err), LLM_E_INTERNAL);
	assert_false(llm_kv_prefix_unpin(w.p, &text));
	text.salt = 1;
	for (text.n = 299; text.n > 299 - LLM_PREFIX_PINS; text.n--)
		assert_true(llm_kv_prefix_unpin(w.p, &text));
	assert_int_equal(llm_kv_prefix_pinned(w.p), 0);
	seq_drop(&w, &w.seqs[0]);
	world_fini(&w);
}

/* A salt without pages makes way for a new one, one with pages does not. */
static void
salts_are_bounded(void **state)
{
	LlmPrefixOptions o = {.n_groups = 1,
						  .n_pages = LLM_PREFIX_ROOTS + 3,
						  .on = true,
						  .idle_limit = LLM_PREFIX_ROOTS + 3};
	int32_t page = 0;
	int32_t *table[1] = {&page};
	static LlmPrefixStat all[LLM_PREFIX_ROOTS];
	LlmPrefixStat stats[2];
	int n_new = 0;
	LlmPrefix *p;
	LlmError err;
	Seq s;

	assert_int_equal(llm_kv_prefix_create(&o, &p, &err), LLM_OK);
	for (uint64_t salt = 0; salt <= LLM_PREFIX_ROOTS + 1; salt++)
	{
		LlmPrefixText text;

		text_make(&s, salt, "a", 64);
		llm_kv_prefix_hash(p, salt, s.ids, 64, s.hashes, 0);
		text = (LlmPrefixText){salt, s.ids, 64, s.hashes};
		llm_kv_prefix_alloc(p, table, 0);
		assert_int_equal(llm_kv_prefix_enter(p, &text, 0, table), salt < LLM_PREFIX_ROOTS);
		llm_kv_prefix_release(p, table, 0);
		assert_int_equal(llm_kv_prefix_find(p, &text).n_copy, salt < LLM_PREFIX_ROOTS ? 63 : 0);
	}
	assert_int_equal(llm_kv_prefix_stats(p, stats, 2), 2);
	assert_int_equal(stats[0].blocks, 1);
	llm_kv_prefix_switch(p, false);
	llm_kv_prefix_switch(p, true);
	for (uint64_t salt = 5000; salt < 5002; salt++)
	{
		llm_kv_prefix_looked(p, salt);
		llm_kv_prefix_saved(p, salt, 12, true);
	}
	/* Both are there: the second one took the place of an older one than the first. */
	assert_int_equal(llm_kv_prefix_stats(p, all, LLM_PREFIX_ROOTS), LLM_PREFIX_ROOTS);
	for (int i = 0; i < LLM_PREFIX_ROOTS; i++)
		if (all[i].salt >= 5000)
		{
			assert_true(all[i].lookups == 1 && all[i].hits == 1 && all[i].tokens_saved == 12);
			n_new++;
		}
	assert_int_equal(n_new, 2);
	assert_true(llm_kv_prefix_audit(p, &err));
	llm_kv_prefix_free(p);
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
		cmocka_unit_test(random_work_equals_the_plain_table),
		cmocka_unit_test(random_work_with_a_limit_equals_the_plain_table),
		cmocka_unit_test(colliding_hashes_never_give_a_wrong_hit),
		cmocka_unit_test(the_last_token_is_never_a_hit),
		cmocka_unit_test(a_salt_finds_only_its_own),
		cmocka_unit_test(a_page_is_known_by_what_precedes_it),
		cmocka_unit_test(a_child_that_is_used_stays_in_sight),
		cmocka_unit_test(ends_are_evicted_before_beginnings_and_old_before_new),
		cmocka_unit_test(what_is_waited_for_goes_last),
		cmocka_unit_test(a_scan_uses_its_pages_again),
		cmocka_unit_test(who_comes_back_gets_the_whole_pool),
		cmocka_unit_test(what_is_waited_for_is_not_evicted_for_new_memory),
		cmocka_unit_test(off_drops_what_nobody_owns_and_the_pins),
		cmocka_unit_test(pins_are_bounded),
		cmocka_unit_test(salts_are_bounded),
		cmocka_unit_test(sizes_out_of_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
