/*
 * test_server.c - the protocol of a running engine on the echo device.
 * links: wire core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>

#include "engine_client.h"

/* ---- HELLO ---- */

static void
test_generate(void **state)
{
	int fd = client_open(&engine, 1);

	client_submit(fd, 7, 1, "hello, world");
	expect_done(fd, 7, "hello, world");
	client_submit(fd, 8, 1, "");
	expect_done(fd, 8, NULL);
	close(fd);
}

static void
test_waits_for_settings(void **state)
{
	Engine e;
	int fd;
	Llm__Frame *f;

	engine_init(&e);
	engine_spawn(&e);
	fd = client_connect(&e);
	client_hello(fd, LLM_WIRE_VERSION, COOKIE, 1);
	assert_false(readable_within(fd, 100));
	engine_settings(&e, "echo");
	f = recv_frame(fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_WELCOME);
	drop(f);
	close(fd);
	engine_fini(&e);
}

static void
test_bad_hello(void **state)
{
	const struct
	{
		uint32_t version;
		uint64_t cookie;
	} bad[] = {
		{LLM_WIRE_VERSION, COOKIE + 1},
		{LLM_WIRE_VERSION, 0},
		{LLM_WIRE_VERSION + 1, COOKIE},
		{0, COOKIE},
	};
	int fd;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		fd = client_connect(&engine);
		client_hello(fd, bad[i].version, bad[i].cookie, 1);
		expect_closed(fd, LLM_E_PROTOCOL);
		close(fd);
	}
	fd = client_connect(&engine);
	client_submit(fd, 1, 1, "no greeting");
	expect_closed(fd, LLM_E_PROTOCOL);
	close(fd);
	fd = client_open(&engine, 1);
	client_hello(fd, LLM_WIRE_VERSION, COOKIE, 1);
	expect_closed(fd, LLM_E_PROTOCOL);
	close(fd);
	expect_alive(&engine);
}

/* One that says nothing is dropped, with or without half a HELLO; one that has greeted may idle. */
static void
test_silent_client(void **state)
{
	const uint8_t half[] = {20, 0, 0, 0, 0x0A};
	int64_t begin = clock_ms();
	int idle = client_open(&engine, 1);
	int silent = client_connect(&engine);
	int slow = client_connect(&engine);

	send_bytes(slow, half, sizeof(half));
	assert_null(recv_frame(silent));
	assert_null(recv_frame(slow));
	assert_in_range(clock_ms() - begin, 1000, 10000);
	client_submit(idle, 1, 1, "still here");
	expect_done(idle, 1, "still here");
	close(idle);
	close(silent);
	close(slow);
}

/* ---- broken frames ---- */

static void
test_garbage(void **state)
{
	const uint8_t oversized[] = {0xFF, 0xFF, 0xFF, 0x7F, 1, 2, 3};
	const uint8_t empty[] = {0, 0, 0, 0};
	const uint8_t noise[] = {6, 0, 0, 0, 0xFF, 0x07, 0x13, 0x37, 0xAB, 0xCD};
	/* A SUBMIT whose length points behind its frame. */
	const uint8_t overlong[] = {4, 0, 0, 0, 0x2A, 0x7F, 8, 1};
	const struct
	{
		const uint8_t *p;
		size_t n;
	} bad[] = {
		{oversized, sizeof(oversized)},
		{empty, sizeof(empty)},
		{noise, sizeof(noise)},
		{overlong, sizeof(overlong)},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		int fd = client_open(&engine, 1);

		send_bytes(fd, bad[i].p, bad[i].n);
		expect_closed(fd, LLM_E_PROTOCOL);
		close(fd);
	}
	expect_alive(&engine);
}

static void
test_half_frame_then_close(void **state)
{
	const uint8_t half[] = {100, 0, 0, 0, 0x2A, 98, 8, 1};
	int fd;

	for (size_t n = 1; n <= sizeof(half); n++)
	{
		fd = client_open(&engine, 1);
		client_submit(fd, 1, 1, LONG);
		send_bytes(fd, half, n);
		close(fd);
	}
	expect_alive(&engine);
}

static void
test_frame_in_pieces(void **state)
{
	Llm__Submit m = submit_of(5, 1, "in pieces");
	Llm__Frame f = LLM__FRAME__INIT;
	uint8_t bytes[200];
	int fd = client_open(&engine, 1);
	size_t n;

	f.body_case = LLM__FRAME__BODY_SUBMIT;
	f.submit = &m;
	n = llm__frame__pack(&f, bytes + LLM_FRAME_HEADER);
	llm_frame_header(bytes, (uint32_t) n);
	for (size_t i = 0; i < n + LLM_FRAME_HEADER; i++)
	{
		send_bytes(fd, bytes + i, 1);
		usleep(500);
	}
	expect_done(fd, 5, "in pieces");
	close(fd);
}

/* ---- many requests, credits, cancel ---- */

/* Read n answers of ids base .. base + n - 1, each once and with its own text. */
static void
expect_all(int fd, uint64_t base, int n)
{
	bool seen[LLM_CREDIT_REQUESTS] = {false};

	for (int i = 0; i < n; i++)
	{
		Llm__Frame *f = recv_frame(fd);
		char text[64];
		uint64_t k;

		assert_non_null(f);
		assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
		k = f->done->id - base;
		assert_true(k < (uint64_t) n);
		assert_false(seen[k]);
		seen[k] = true;
		snprintf(text, sizeof(text), "row %llu", (unsigned long long) f->done->id);
		assert_int_equal(f->done->text.len, strlen(text));
		assert_memory_equal(f->done->text.data, text, strlen(text));
		drop(f);
	}
}

static void
submit_rows(int fd, uint64_t base, int n)
{
	for (int i = 0; i < n; i++)
	{
		char text[64];

		snprintf(text, sizeof(text), "row %llu", (unsigned long long) (base + (uint64_t) i));
		client_submit(fd, base + (uint64_t) i, 1, text);
	}
}

static void
test_all_credits(void **state)
{
	int fd = client_open(&engine, 1);

	for (uint64_t round = 0; round < 2; round++)
	{
		submit_rows(fd, 1 + round * LLM_CREDIT_REQUESTS, LLM_CREDIT_REQUESTS);
		expect_all(fd, 1 + round * LLM_CREDIT_REQUESTS, LLM_CREDIT_REQUESTS);
	}
	close(fd);
}

static void
test_over_credit(void **state)
{
	int fd = client_open(&engine, 1);
	int other = client_open(&engine, 2);

	for (uint64_t i = 1; i <= LLM_CREDIT_REQUESTS + 1; i++)
		client_submit(fd, i, 1, LONG);
	expect_closed(fd, LLM_E_PROTOCOL);
	close(fd);
	client_submit(other, 1, 1, "unharmed");
	expect_done(other, 1, "unharmed");
	close(other);
}

static void
test_duplicate_id(void **state)
{
	int fd = client_open(&engine, 1);

	client_submit(fd, 5, 1, LONG);
	client_submit(fd, 5, 1, "second");
	expect_closed(fd, LLM_E_PROTOCOL);
	close(fd);
}

static void
test_cancel(void **state)
{
	int fd = client_open(&engine, 1);

	client_submit(fd, 1, 1, LONG);
	client_cancel(fd, 1);
	client_cancel(fd, 1);
	client_cancel(fd, 12345);
	client_submit(fd, 2, 1, "next");
	expect_done(fd, 2, "next");
	/* Cancelled credits are there again, and their requests never answer. */
	for (uint64_t i = 100; i < 100 + LLM_CREDIT_REQUESTS; i++)
		client_submit(fd, i, 1, LONG);
	for (uint64_t i = 100; i < 100 + LLM_CREDIT_REQUESTS; i++)
		client_cancel(fd, i);
	submit_rows(fd, 1000, LLM_CREDIT_REQUESTS);
	expect_all(fd, 1000, LLM_CREDIT_REQUESTS);
	assert_false(readable_within(fd, 50));
	close(fd);
}

static void
test_closed_connection_frees_the_engine(void **state)
{
	int fd = client_open(&engine, 1);
	Llm__Frame *f;
	int32_t left = -1;

	for (uint64_t i = 1; i <= LLM_CREDIT_REQUESTS; i++)
		client_submit(fd, i, 1, LONG);
	close(fd);
	fd = client_open(&engine, 2);
	for (int i = 0; i < 200 && left != 0; i++)
	{
		f = client_stats(fd, 50);
		left = f->stats_reply->running + f->stats_reply->waiting;
		drop(f);
		usleep(10000);
	}
	assert_int_equal(left, 0);
	close(fd);
}

static void
test_idle_reader_slows_nobody(void **state)
{
	int idle = client_open(&engine, 1);
	int busy = client_open(&engine, 2);
	int n_cancelled = LLM_CREDIT_REQUESTS / 2;

	for (uint64_t i = 1; i <= LLM_CREDIT_REQUESTS; i++)
		client_submit(idle, i, 2, "@tokens=600 the quick brown fox ");
	for (uint64_t i = 1; i <= 50; i++)
	{
		client_submit(busy, i, 2, "quick");
		expect_done(busy, i, "quick");
	}
	close(busy);
	/* What waits unread may be cancelled, and its credit is good at once. */
	for (int i = 1; i <= n_cancelled; i++)
		client_cancel(idle, (uint64_t) i);
	for (int i = 0; i < n_cancelled; i++)
		client_submit(idle, 5000 + (uint64_t) i, 2, "after");
	for (int left = LLM_CREDIT_REQUESTS; left > 0;)
	{
		Llm__Frame *f = recv_frame(idle);

		assert_non_null(f);
		assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
		left -= f->done->id > (uint64_t) n_cancelled;
		assert_int_equal(f->done->text.len, f->done->id >= 5000 ? 5 : 600);
		drop(f);
	}
	close(idle);
}

/* ---- values ---- */

static void
test_values_out_of_range(void **state)
{
	int fd = client_open(&engine, 1);
	ProtobufCBinaryData stops[17];
	uint8_t long_stop[1025];
	Llm__Submit m[8];

	memset(long_stop, 'x', sizeof(long_stop));
	for (int i = 0; i < 8; i++)
		m[i] = submit_of((uint64_t) i + 1, 1, "x");
	m[0].has_max_tokens = true;
	m[0].max_tokens = -2;
	m[1].has_top_p = true;
	m[1].top_p = 0;
	m[2].has_temperature = true;
	m[2].temperature = NAN;
	m[3].has_timeout_ms = true;
	m[3].timeout_ms = -1;
	m[4].stop = stops;
	m[4].n_stop = 17;
	for (int i = 0; i < 17; i++)
		stops[i] = (ProtobufCBinaryData){1, long_stop};
	m[5].has_top_k = true;
	m[5].top_k = -1;
	m[6].has_repetition_penalty = true;
	m[6].repetition_penalty = 0;
	m[7].has_min_p = true;
	m[7].min_p = 1.5f;
	for (int i = 0; i < 8; i++)
	{
		client_send_submit(fd, &m[i]);
		expect_error(fd, (uint64_t) i + 1, LLM_E_INVALID);
	}
	m[4].n_stop = 1;
	stops[0].len = sizeof(long_stop);
	client_send_submit(fd, &m[4]);
	expect_error(fd, 5, LLM_E_INVALID);
	client_submit(fd, 20, 1, "still open");
	expect_done(fd, 20, "still open");
	close(fd);
}

static void
test_shapes_that_no_peer_sends(void **state)
{
	Llm__Submit m[4];

	for (int i = 0; i < 4; i++)
		m[i] = submit_of(1, 1, "x");
	m[0].kind = (Llm__Kind) 77;
	m[1].has_prompt = false;
	m[2].model = 3; /* a handle that was never named */
	m[3].id = 0;
	for (int i = 0; i < 4; i++)
	{
		int fd = client_open(&engine, 1);

		client_send_submit(fd, &m[i]);
		expect_closed(fd, LLM_E_PROTOCOL);
		close(fd);
	}
}

static void
test_tokenize_and_back(void **state)
{
	int fd = client_open(&engine, 1);
	Llm__Submit m = submit_of(1, 1, "caf\xC3\xA9");
	Llm__Submit back = submit_of(2, 1, "");
	Llm__Frame *f;

	m.kind = LLM__KIND__TOKENIZE;
	m.has_raw = m.raw = true;
	client_send_submit(fd, &m);
	f = recv_frame(fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
	assert_true(f->done->n_tokens >= 5);
	back.kind = LLM__KIND__DETOKENIZE;
	back.has_prompt = false;
	back.tokens = f->done->tokens;
	back.n_tokens = f->done->n_tokens;
	client_send_submit(fd, &back);
	expect_done(fd, 2, "caf\xC3\xA9");
	drop(f);
	close(fd);
}

static void
test_stream(void **state)
{
	int fd = client_open(&engine, 1);
	Llm__Submit m = submit_of(1, 1, "in pieces of whole characters: \xE2\x82\xAC.");
	char text[200];
	size_t len = 0;

	m.has_stream = m.stream = true;
	client_send_submit(fd, &m);
	for (;;)
	{
		Llm__Frame *f = recv_frame(fd);

		assert_non_null(f);
		if (f->body_case == LLM__FRAME__BODY_DONE)
		{
			assert_false(f->done->has_text);
			drop(f);
			break;
		}
		assert_int_equal(f->body_case, LLM__FRAME__BODY_TOKENS);
		assert_true(len + f->tokens->text.len <= sizeof(text));
		/* No piece begins inside a character. */
		assert_true(f->tokens->text.len > 0 && (f->tokens->text.data[0] & 0xC0) != 0x80);
		memcpy(text + len, f->tokens->text.data, f->tokens->text.len);
		len += f->tokens->text.len;
		drop(f);
	}
	assert_int_equal(len, m.prompt.len);
	assert_memory_equal(text, m.prompt.data, len);
	close(fd);
}

static void
test_stats(void **state)
{
	int fd = client_open(&engine, 1);
	const Llm__ModelInfo *m;
	Llm__Frame *f;
	int64_t before;

	client_unload(fd, 9, "echo:", 1024);
	expect_done(fd, 9, NULL);
	client_submit(fd, 1, 1, "count me");
	expect_done(fd, 1, "count me");
	f = client_stats(fd, 2);
	before = f->stats_reply->requests;
	assert_true(before >= 1);
	m = f->stats_reply->models[0];
	assert_int_equal(f->stats_reply->n_models, 1);
	assert_string_equal(m->spec->path, "echo:");
	assert_string_equal(m->state, "resident");
	assert_int_equal(m->spec->context_length, 512);
	assert_int_equal(m->kv_pages, f->stats_reply->kv_pages_total);
	assert_int_equal(f->stats_reply->threads_used, 1);
	assert_true(m->kv_pages > 0 && m->kv_page_nbytes > 0 && m->kv_rule[0] != '\0');
	assert_true(m->has_last_used_ms && m->last_used_ms < 10000);
	assert_true(f->stats_reply->memory_nbytes >= m->kv_pages * m->kv_page_nbytes);
	assert_true(f->stats_reply->memory_limit > f->stats_reply->memory_nbytes);
	assert_int_equal(f->stats_reply->running, 0);
	drop(f);
	client_submit(fd, 3, 1, "and me");
	expect_done(fd, 3, "and me");
	f = client_stats(fd, 4);
	assert_int_equal(f->stats_reply->requests, before + 1);
	drop(f);
	close(fd);
}

/* ---- the control descriptor ---- */

static void
test_ping(void **state)
{
	bool busy = true;

	/* The engine still tidies up after connections that have just closed. */
	for (uint64_t seq = 40; busy && seq < 10000; seq++)
	{
		Llm__Frame *f = engine_ping(&engine, seq);

		assert_true(f->state->ready);
		busy = f->state->busy;
		drop(f);
		usleep(2000);
	}
	assert_false(busy);
}

static void
test_sigterm_is_clean(void **state)
{
	Engine e;
	int fd;

	engine_init(&e);
	engine_start(&e);
	fd = client_open(&e, 1);
	client_submit(fd, 1, 1, LONG);
	usleep(50000);
	engine_stop(&e);
	close(fd);
	engine_fini(&e);
}

static void
test_orphan_ends(void **state)
{
	Engine e;
	int fd;
	int status;

	engine_init(&e);
	engine_start(&e);
	fd = client_open(&e, 1);
	client_submit(fd, 1, 1, LONG);
	usleep(20000);
	shutdown(e.control_fd, SHUT_RDWR);
	status = engine_reap(&e);
	assert_true(WIFEXITED(status));
	close(fd);
	engine_fini(&e);
}

/* ---- memory ---- */

static void
test_no_growth(void **state)
{
	long before = 0;
	int fd = client_open(&engine, 1);

	for (uint64_t round = 0; round < 12; round++)
	{
		int extra = client_open(&engine, 100 + round);

		submit_rows(fd, 1 + round * LLM_CREDIT_REQUESTS, LLM_CREDIT_REQUESTS);
		client_submit(extra, 1, 1, LONG);
		expect_all(fd, 1 + round * LLM_CREDIT_REQUESTS, LLM_CREDIT_REQUESTS);
		close(extra);
		if (round == 3)
			before = engine_rss_kib(&engine);
	}
	close(fd);
	if (SANITIZED)
		puts("SKIP: memory growth cannot be seen under AddressSanitizer, which keeps freed memory");
	else
		assert_true(engine_rss_kib(&engine) - before < 1024);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_generate),
		cmocka_unit_test(test_waits_for_settings),
		cmocka_unit_test(test_bad_hello),
		cmocka_unit_test(test_silent_client),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_half_frame_then_close),
		cmocka_unit_test(test_frame_in_pieces),
		cmocka_unit_test(test_all_credits),
		cmocka_unit_test(test_over_credit),
		cmocka_unit_test(test_duplicate_id),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_closed_connection_frees_the_engine),
		cmocka_unit_test(test_idle_reader_slows_nobody),
		cmocka_unit_test(test_values_out_of_range),
		cmocka_unit_test(test_shapes_that_no_peer_sends),
		cmocka_unit_test(test_tokenize_and_back),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stats),
		cmocka_unit_test(test_ping),
		cmocka_unit_test(test_sigterm_is_clean),
		cmocka_unit_test(test_orphan_ends),
		cmocka_unit_test(test_no_growth),
	};

	if (getenv("LLM_ENGINE") == NULL)
	{
		puts("SKIP: LLM_ENGINE does not name an engine");
		return 0;
	}
	return cmocka_run_group_tests(tests, engine_setup, engine_teardown);
}
