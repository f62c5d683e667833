/*
 * test_wire.c - frame headers, decoding on a budget, and the life of a journal entry.
 * links: server wire core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/codec.h"
#include "server/crash_marks.h"
#include "wire/frame.h"

/* ---- frames ---- */

static void
test_header_round_trip(void **state)
{
	const uint32_t sizes[] = {0, 1, 255, 256, 65536, 0x01020304, LLM_FRAME_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		uint8_t h[LLM_FRAME_HEADER];
		uint32_t body = 1;

		llm_frame_header(h, sizes[i]);
		assert_int_equal(llm_frame_peek(h, SIZE_MAX / 2, &body), LLM_FRAME_WHOLE);
		assert_int_equal(body, sizes[i]);
	}
}

static void
test_header_is_little_endian(void **state)
{
	const uint8_t expected[] = {0x04, 0x03, 0x02, 0x01};
	uint8_t h[LLM_FRAME_HEADER];

	llm_frame_header(h, 0x01020304);
	assert_memory_equal(h, expected, sizeof(h));
}

static void
test_peek_edges(void **state)
{
	uint8_t b[16] = {5, 0, 0, 0, 'a', 'b', 'c', 'd', 'e', 'f'};
	uint32_t body = 77;

	for (size_t n = 0; n < LLM_FRAME_HEADER; n++)
		assert_int_equal(llm_frame_peek(b, n, &body), LLM_FRAME_PARTIAL);
	assert_int_equal(body, 77);
	for (size_t n = LLM_FRAME_HEADER; n < LLM_FRAME_HEADER + 5; n++)
		assert_int_equal(llm_frame_peek(b, n, &body), LLM_FRAME_PARTIAL);
	assert_int_equal(llm_frame_peek(b, LLM_FRAME_HEADER + 5, &body), LLM_FRAME_WHOLE);
	assert_int_equal(body, 5);
	/* What follows belongs to the next frame. */
	assert_int_equal(llm_frame_peek(b, LLM_FRAME_HEADER + 6, &body), LLM_FRAME_WHOLE);
	assert_int_equal(body, 5);
}

static void
test_peek_limit(void **state)
{
	uint8_t h[LLM_FRAME_HEADER];
	uint32_t body = 0;

	llm_frame_header(h, LLM_FRAME_MAX);
	assert_int_equal(llm_frame_peek(h, sizeof(h), &body), LLM_FRAME_PARTIAL);
	llm_frame_header(h, LLM_FRAME_MAX + 1);
	assert_int_equal(llm_frame_peek(h, sizeof(h), &body), LLM_FRAME_TOO_LARGE);
	llm_frame_header(h, UINT32_MAX);
	assert_int_equal(llm_frame_peek(h, sizeof(h), &body), LLM_FRAME_TOO_LARGE);
}

/* ---- decoding ---- */

static void
test_every_cut_is_refused_or_whole(void **state)
{
	Llm__Submit m = LLM__SUBMIT__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	uint8_t bytes[128];
	size_t n;

	m.id = 9;
	m.model = 1;
	m.has_prompt = true;
	m.prompt.data = (uint8_t *) "some prompt";
	m.prompt.len = 11;
	f.body_case = LLM__FRAME__BODY_SUBMIT;
	f.submit = &m;
	n = llm__frame__pack(&f, bytes);
	assert_true(n <= sizeof(bytes));
	for (size_t cut = 1; cut < n; cut++)
	{
		/* An exact copy, so that a sanitizer sees a read behind its end. */
		uint8_t *copy = malloc(cut);
		Llm__Frame *g;

		assert_non_null(copy);
		memcpy(copy, bytes, cut);
		g = llm_codec_unpack(copy, cut);
		assert_null(g);
		free(copy);
	}
}

/* Two bytes on the wire per empty stop string become sixteen in memory: refused by the budget. */
static void
test_budget(void **state)
{
	Llm__Submit m = LLM__SUBMIT__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	size_t n_stops = 100000;
	ProtobufCBinaryData *stops = calloc(n_stops, sizeof(*stops));
	uint8_t *bytes = malloc(3 * n_stops + 100);
	size_t n;
	Llm__Frame *g;

	assert_non_null(stops);
	assert_non_null(bytes);
	m.id = 1;
	m.model = 1;
	m.stop = stops;
	m.n_stop = n_stops;
	f.body_case = LLM__FRAME__BODY_SUBMIT;
	f.submit = &m;
	n = llm__frame__pack(&f, bytes);
	assert_null(llm_codec_unpack(bytes, n));
	m.n_stop = 100;
	n = llm__frame__pack(&f, bytes);
	g = llm_codec_unpack(bytes, n);
	assert_non_null(g);
	assert_int_equal(g->submit->n_stop, 100);
	llm_codec_free(g);
	free(bytes);
	free(stops);
}

static void
test_request_defaults(void **state)
{
	Llm__Submit m = LLM__SUBMIT__INIT;
	LlmRequest r, other;
	void *lists;
	LlmError e;

	m.id = 3;
	m.model = 1;
	m.has_prompt = true;
	assert_int_equal(llm_codec_request(&m, LLM__PREFIX_SCOPE__SCOPE_ROLE, &r, &lists, &e), LLM_OK);
	assert_int_equal(r.key.id, 3);
	assert_int_equal(r.max_tokens, LLM_MAX_TOKENS_REST);
	assert_true(r.sample.temperature < 0);
	assert_true(r.sample.top_p == 1 && r.sample.min_p == 0 && r.sample.top_k == 0);
	assert_true(r.sample.repetition_penalty == 1);
	assert_non_null(r.prompt.p);
	assert_null(r.system.p);
	/* An empty system prompt is not the same as none. */
	m.has_system = true;
	assert_int_equal(llm_codec_request(&m, LLM__PREFIX_SCOPE__SCOPE_ROLE, &r, &lists, &e), LLM_OK);
	assert_non_null(r.system.p);
	/* Prefixes are shared within a database and role only. */
	m.has_database = m.has_role = true;
	m.database = 5;
	m.role = 10;
	assert_int_equal(llm_codec_request(&m, LLM__PREFIX_SCOPE__SCOPE_ROLE, &r, &lists, &e), LLM_OK);
	m.database = 10;
	m.role = 5;
	assert_int_equal(llm_codec_request(&m, LLM__PREFIX_SCOPE__SCOPE_ROLE, &other, &lists, &e),
					 LLM_OK);
	assert_true(r.salt != other.salt);
	/* Wider scopes forget the role, then the database. */
	m.role = 6;
	for (int scope = LLM__PREFIX_SCOPE__SCOPE_ROLE; scope <= LLM__PREFIX_SCOPE__SCOPE_CLUSTER;
		 scope++)
	{
		m.database = 10;
		m.role = 6;
		assert_int_equal(llm_codec_request(&m, scope, &r, &lists, &e), LLM_OK);
		m.role = 7;
		assert_int_equal(llm_codec_request(&m, scope, &other, &lists, &e), LLM_OK);
		assert_int_equal(r.salt == other.salt, scope >= LLM__PREFIX_SCOPE__SCOPE_DATABASE);
		m.database = 11;
		m.role = 6;
		assert_int_equal(llm_codec_request(&m, scope, &other, &lists, &e), LLM_OK);
		assert_int_equal(r.salt == other.salt, scope == LLM__PREFIX_SCOPE__SCOPE_CLUSTER);
	}
}

/* ---- the journal ---- */

static LlmJournalWriter *
journal_open(int fd)
{
	LlmJournalWriter *j = malloc(sizeof(*j));
	LlmError e;

	assert_non_null(j);
	assert_int_equal(llm_journal_open(j, fd, &e), LLM_OK);
	return j;
}

/* The engine dies: no close, the mapping goes with the process. */
static void
journal_die(LlmJournalWriter *j)
{
	munmap(j->map, sizeof(LlmJournal));
	free(j);
}

static void
journal_close(LlmJournalWriter *j)
{
	llm_journal_close(j);
	free(j);
}

static int
journal_fd(void)
{
	int fd = memfd_create("journal", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void
test_journal_suspect_then_guilty(void **state)
{
	int fd = journal_fd();
	LlmJournalWriter *j = journal_open(fd);
	int32_t a = llm_journal_take(j, 11, 1);
	int32_t b = llm_journal_take(j, 11, 2);

	assert_true(a >= 0 && b >= 0 && a != b);
	llm_journal_mark(j, a, LLM_JOURNAL_RUNNING);
	llm_journal_mark(j, b, LLM_JOURNAL_RUNNING);
	journal_die(j);

	j = journal_open(fd);
	a = llm_journal_find(j, 11, 1);
	b = llm_journal_find(j, 11, 2);
	assert_true(a >= 0 && b >= 0);
	assert_int_equal(llm_journal_state(j, a), LLM_JOURNAL_SUSPECT);
	assert_int_equal(llm_journal_find(j, 11, 3), -1);
	assert_int_equal(llm_journal_find(j, 12, 1), -1);
	/* The first proves innocent, the second dies alone. */
	assert_int_equal(llm_journal_take(j, 11, 1), a);
	llm_journal_mark(j, a, LLM_JOURNAL_ALONE);
	llm_journal_mark(j, a, LLM_JOURNAL_FREE);
	assert_int_equal(llm_journal_find(j, 11, 1), -1);
	assert_int_equal(llm_journal_take(j, 11, 2), b);
	llm_journal_mark(j, b, LLM_JOURNAL_ALONE);
	journal_die(j);

	j = journal_open(fd);
	assert_int_equal(llm_journal_find(j, 11, 1), -1);
	b = llm_journal_find(j, 11, 2);
	assert_true(b >= 0);
	assert_int_equal(llm_journal_state(j, b), LLM_JOURNAL_GUILTY);
	/* A crash by others does not acquit it. */
	journal_die(j);
	j = journal_open(fd);
	b = llm_journal_find(j, 11, 2);
	assert_int_equal(llm_journal_state(j, b), LLM_JOURNAL_GUILTY);
	llm_journal_forget(j, 11);
	assert_int_equal(llm_journal_find(j, 11, 2), -1);
	journal_close(j);
	close(fd);
}

/* Killed by somebody else, who ran alone is tried again, but not for ever. */
static void
test_journal_killed(void **state)
{
	int fd = journal_fd();
	LlmJournalWriter *j = journal_open(fd);
	int32_t a = llm_journal_take(j, 11, 1);

	llm_journal_mark(j, a, LLM_JOURNAL_RUNNING);
	for (int i = 0; i < LLM_JOURNAL_KILLS; i++)
	{
		j->map->killed = 1;
		journal_die(j);
		j = journal_open(fd);
		assert_int_equal(j->map->killed, 0);
		assert_int_equal(llm_journal_state(j, a), LLM_JOURNAL_SUSPECT);
		assert_int_equal(llm_journal_take(j, 11, 1), a);
		llm_journal_mark(j, a, LLM_JOURNAL_ALONE);
	}
	j->map->killed = 1;
	journal_die(j);
	j = journal_open(fd);
	assert_int_equal(llm_journal_state(j, a), LLM_JOURNAL_GUILTY);
	/* whoever has the entry next begins anew, and a crash is no kill */
	llm_journal_mark(j, a, LLM_JOURNAL_FREE);
	assert_int_equal(llm_journal_take(j, 12, 1), a);
	llm_journal_mark(j, a, LLM_JOURNAL_ALONE);
	j->map->killed = 1;
	journal_die(j);
	j = journal_open(fd);
	assert_int_equal(llm_journal_state(j, a), LLM_JOURNAL_SUSPECT);
	llm_journal_mark(j, a, LLM_JOURNAL_ALONE);
	journal_die(j);
	j = journal_open(fd);
	assert_int_equal(llm_journal_state(j, a), LLM_JOURNAL_GUILTY);
	journal_close(j);
	close(fd);
}

static void
test_journal_clean_end_blames_nobody(void **state)
{
	int fd = journal_fd();
	LlmJournalWriter *j = journal_open(fd);
	int32_t a = llm_journal_take(j, 1, 1);

	llm_journal_mark(j, a, LLM_JOURNAL_RUNNING);
	journal_close(j);
	j = journal_open(fd);
	assert_int_equal(j->n_blamed, 0);
	assert_int_equal(j->n_free, LLM_JOURNAL_ENTRIES);
	journal_close(j);
	close(fd);
}

/* Full of old suspects, the oldest give way; full of running requests, nothing does. */
static void
test_journal_full(void **state)
{
	int fd = journal_fd();
	LlmJournalWriter *j = journal_open(fd);
	int32_t slot;

	for (uint64_t i = 0; i < 10; i++)
		llm_journal_mark(j, llm_journal_take(j, 1, i), LLM_JOURNAL_RUNNING);
	journal_die(j);
	j = journal_open(fd);
	for (uint64_t i = 10; i < LLM_JOURNAL_ENTRIES; i++)
		llm_journal_mark(j, llm_journal_take(j, 2, i), LLM_JOURNAL_RUNNING);
	journal_die(j);
	j = journal_open(fd);
	assert_int_equal(j->n_free, 0);
	for (uint64_t i = 0; i < 10; i++)
	{
		slot = llm_journal_take(j, 3, i);
		assert_true(slot >= 0);
		llm_journal_mark(j, slot, LLM_JOURNAL_RUNNING);
		assert_int_equal(llm_journal_find(j, 2, 10 + i) >= 0, 1);
	}
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(llm_journal_find(j, 1, i), -1);
	for (uint64_t i = 10; i < LLM_JOURNAL_ENTRIES; i++)
		llm_journal_mark(j, llm_journal_take(j, 3, i), LLM_JOURNAL_RUNNING);
	assert_int_equal(llm_journal_take(j, 3, 1000000), -1);
	llm_journal_mark(j, slot, LLM_JOURNAL_FREE);
	assert_int_equal(llm_journal_take(j, 3, 1000000), slot);
	journal_close(j);
	close(fd);
}

/* Anything may be in the memory that is handed to an engine. */
static void
test_journal_of_garbage(void **state)
{
	int fd = journal_fd();
	LlmJournal *map;
	LlmJournalWriter *j;

	assert_int_equal(ftruncate(fd, sizeof(LlmJournal)), 0);
	map = mmap(NULL, sizeof(*map), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	memset(map, 0xA5, sizeof(*map));
	j = journal_open(fd);
	assert_int_equal(map->magic, LLM_JOURNAL_MAGIC);
	assert_int_equal(j->n_free, LLM_JOURNAL_ENTRIES);
	journal_close(j);
	/* A right head over a wrong entry. */
	map->entries[7].state = 99;
	j = journal_open(fd);
	assert_int_equal(map->entries[7].state, LLM_JOURNAL_FREE);
	journal_close(j);
	munmap(map, sizeof(*map));
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_round_trip),
		cmocka_unit_test(test_header_is_little_endian),
		cmocka_unit_test(test_peek_edges),
		cmocka_unit_test(test_peek_limit),
		cmocka_unit_test(test_every_cut_is_refused_or_whole),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_request_defaults),
		cmocka_unit_test(test_journal_suspect_then_guilty),
		cmocka_unit_test(test_journal_killed),
		cmocka_unit_test(test_journal_clean_end_blames_nobody),
		cmocka_unit_test(test_journal_full),
		cmocka_unit_test(test_journal_of_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
