/*
 * test_server_models.c - several models in one engine: beside each other, under a limit, and files
 * that are replaced while they are used.
 * links: wire core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include "engine_client.h"

/* Bytes of KV that an echo model of this context takes: 64 requests with two contexts each, pages of
 * 64 tokens and 256 bytes. It has no weights. */
#define ECHO_NBYTES(context) ((int64_t) 2 * 64 * ((context) / 64) * 256)
/* Room for the echo model of context 1024 or that of 512, not for both, and a small one. */
#define ONE_MODEL (ECHO_NBYTES(1024) + ECHO_NBYTES(128))

/* New settings, in force for whatever is sent to the engine afterwards. */
static void
set_sizes(int64_t memory_limit, int64_t kv_nbytes)
{
	static uint64_t seq = 0;

	engine.memory_limit = memory_limit;
	engine.kv_nbytes = kv_nbytes;
	engine_settings(&engine, "echo");
	drop(engine_ping(&engine, ++seq));
}

static void
set_limit(int64_t nbytes)
{
	set_sizes(nbytes, (int64_t) 16 << 20);
}

/* Contexts of the resident echo models, in the order in which they were loaded, as "512 1024". */
static void
expect_resident(int fd, const char *contexts)
{
	static uint64_t id = 5000000;
	char got[200] = "";
	Llm__Frame *f = client_stats(fd, ++id);

	for (size_t i = 0; i < f->stats_reply->n_models; i++)
	{
		size_t len = strlen(got);

		assert_string_equal(f->stats_reply->models[i]->state, "resident");
		snprintf(got + len, sizeof(got) - len, "%s%u", i == 0 ? "" : " ",
				 f->stats_reply->models[i]->spec->context_length);
	}
	assert_true(f->stats_reply->memory_nbytes <= f->stats_reply->memory_limit);
	drop(f);
	assert_string_equal(got, contexts);
}

static void
unload_all(int fd)
{
	static const uint32_t contexts[] = {128, 256, 512, 1024};

	for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]); i++)
	{
		client_unload(fd, 6000000 + i, "echo:", contexts[i]);
		expect_done(fd, 6000000 + i, NULL);
	}
	expect_resident(fd, "");
}

static void
wait_running(int fd, int32_t n)
{
	static uint64_t id = 7000000;
	int32_t running = -1;

	for (int i = 0; i < 2000 && running != n; i++)
	{
		Llm__Frame *f = client_stats(fd, ++id);

		running = f->stats_reply->running;
		drop(f);
		usleep(1000);
	}
	assert_int_equal(running, n);
}

/* ---- beside each other ---- */

/* Both work at the same time: the one that came later does not wait for the first to end. */
static void
test_two_models_beside(void **state)
{
	int one = client_open(&engine, 1);
	int two = client_open(&engine, 2);

	client_submit(one, 1, 1, "@slow=10 @tokens=100 x");
	wait_running(two, 1);
	client_submit(two, 1, 2, "@slow=10 @tokens=30 y");
	wait_running(one, 2);
	expect_done(two, 1, NULL);
	assert_false(readable_within(one, 0));
	expect_done(one, 1, NULL);
	expect_resident(one, "512 1024");
	close(one);
	close(two);
}

/* A load beside a stream of answers, which goes on; an unload waits for the model's last answer. */
static void
test_load_and_unload(void **state)
{
	int busy = client_open(&engine, 1);
	int fd = client_open(&engine, 2);
	Llm__Frame *f;

	unload_all(fd);
	client_submit(busy, 1, 1, "@slow=5 @tokens=300 busy ");
	wait_running(fd, 1);
	client_load(fd, 10, 2, "echo:", 1024, true);
	expect_done(fd, 10, NULL);
	assert_false(readable_within(busy, 0));
	expect_resident(fd, "512 1024");
	client_unload(fd, 11, "echo:", 512);
	client_submit(fd, 12, 2, "meanwhile");
	expect_done(fd, 12, "meanwhile");
	assert_false(readable_within(busy, 0));
	expect_done(busy, 1, NULL);
	expect_done(fd, 11, NULL);
	expect_resident(fd, "1024");
	/* Not resident any more: done as well. What is behind an unload loads again. */
	client_unload(fd, 13, "echo:", 512);
	client_submit(fd, 14, 1, "back");
	expect_done(fd, 13, NULL);
	expect_done(fd, 14, "back");
	f = client_stats(fd, 15);
	assert_true(f->stats_reply->requests >= 3); /* those of the unloaded one are not forgotten */
	drop(f);
	close(busy);
	close(fd);
}

static void
test_broken_model(void **state)
{
	int fd = client_open(&engine, 1);

	client_load(fd, 20, 3, "no-such-file.gguf", 0, true);
	expect_error(fd, 20, LLM_E_MODEL);
	for (uint64_t id = 1; id <= 5; id++)
		client_submit(fd, id, 3, "x");
	for (uint64_t id = 1; id <= 5; id++)
		expect_error(fd, id, LLM_E_MODEL);
	client_submit(fd, 6, 1, "good");
	expect_done(fd, 6, "good");
	/* The handle may be given another spec. */
	client_load(fd, 21, 3, "echo:", 512, false);
	client_submit(fd, 7, 3, "mended");
	expect_done(fd, 7, "mended");
	close(fd);
}

/* ---- prefix caches ---- */

/* Rows of a STATS that asks for prefix caches: those of everybody, or of a database and role. */
static Llm__Frame *
ask_prefixes(int fd, uint64_t id, uint32_t database, uint32_t role)
{
	Llm__StatsRequest m = LLM__STATS_REQUEST__INIT;

	m.id = id;
	m.has_prefixes = m.prefixes = true;
	m.has_database = m.has_role = database > 0;
	m.database = database;
	m.role = role;
	return client_ask_stats(fd, &m);
}

static void
test_prefixes_by_model_and_role(void **state)
{
	int fd = client_open(&engine, 1);
	char prompt[300];
	Llm__Frame *f;

	unload_all(fd);
	memset(prompt, 'p', sizeof(prompt) - 1);
	prompt[sizeof(prompt) - 1] = '\0';
	for (uint64_t id = 1; id <= 6; id++)
	{
		/* role 70 asks both models, role 71 the first */
		Llm__Submit m = submit_of(id, id <= 2 ? 2 : 1, prompt);

		m.has_database = m.has_role = m.has_max_tokens = true;
		m.database = 5;
		m.role = id <= 4 ? 70 : 71;
		m.max_tokens = 1;
		client_send_submit(fd, &m);
		expect_done(fd, id, NULL);
	}
	f = ask_prefixes(fd, 20, 0, 0);
	assert_int_equal(f->stats_reply->n_models, 2);
	assert_int_equal(f->stats_reply->n_prefixes, 3);
	for (size_t i = 0; i < 3; i++)
	{
		const Llm__PrefixStat *p = f->stats_reply->prefixes[i];

		assert_string_equal(p->spec->path, "echo:");
		assert_int_equal(p->database, 5);
		assert_true(p->role == 70 || (p->role == 71 && p->spec->context_length == 512));
		assert_true(p->blocks >= 4);
		assert_int_equal(p->lookups, 2);
		assert_int_equal(p->hits, 1);
		assert_true(p->tokens_saved >= 256);
	}
	drop(f);
	f = ask_prefixes(fd, 21, 5, 71);
	assert_int_equal(f->stats_reply->n_prefixes, 1);
	assert_int_equal(f->stats_reply->prefixes[0]->role, 71);
	drop(f);
	f = ask_prefixes(fd, 22, 6, 70);
	assert_int_equal(f->stats_reply->n_prefixes, 0);
	drop(f);
	close(fd);
}

/* Model after model: one with as many rows as it keeps takes none from the next. */
static void
test_prefixes_of_many_roles(void **state)
{
	enum
	{
		ROLES = 1024
	};
	int fd = client_open(&engine, 1);
	Llm__Frame *f;
	int n_second = 0;

	unload_all(fd);
	for (uint32_t i = 0; i <= ROLES; i++)
	{
		Llm__Submit m = submit_of(1 + i, i < ROLES ? 1 : 2, "x");

		m.has_database = m.has_role = true;
		m.database = 5;
		m.role = 100 + i;
		client_send_submit(fd, &m);
		expect_done(fd, 1 + i, "x");
	}
	f = ask_prefixes(fd, 5000, 0, 0);
	assert_int_equal(f->stats_reply->n_prefixes, ROLES + 1);
	for (size_t i = 0; i < f->stats_reply->n_prefixes; i++)
		n_second += f->stats_reply->prefixes[i]->role == 100 + ROLES;
	assert_int_equal(n_second, 1);
	drop(f);
	close(fd);
}

/* ---- under a limit ---- */

static void
test_least_recently_used_goes(void **state)
{
	int fd = client_open(&engine, 1);

	unload_all(fd);
	set_limit(ECHO_NBYTES(512) + ECHO_NBYTES(1024) + ECHO_NBYTES(128));
	client_load(fd, 30, 3, "echo:", 256, false);
	client_submit(fd, 1, 1, "a");
	expect_done(fd, 1, "a");
	client_submit(fd, 2, 3, "b");
	expect_done(fd, 2, "b");
	expect_resident(fd, "512 256");
	usleep(2000);
	client_submit(fd, 3, 1, "a again");
	expect_done(fd, 3, "a again");
	client_submit(fd, 4, 2, "c");
	expect_done(fd, 4, "c");
	expect_resident(fd, "512 1024");
	/* And the other way round. */
	usleep(2000);
	client_submit(fd, 5, 3, "b again");
	expect_done(fd, 5, "b again");
	expect_resident(fd, "1024 256");
	close(fd);
}

static void
test_limit_shrinks(void **state)
{
	int fd = client_open(&engine, 1);

	set_limit(0);
	unload_all(fd);
	client_submit(fd, 1, 1, "a");
	expect_done(fd, 1, "a");
	client_submit(fd, 2, 2, "b");
	expect_done(fd, 2, "b");
	expect_resident(fd, "512 1024");
	set_limit(ONE_MODEL);
	client_submit(fd, 3, 2, "b again");
	expect_done(fd, 3, "b again");
	expect_resident(fd, "1024");
	/* A busy one ends what it does first. */
	client_submit(fd, 4, 2, "@slow=5 @tokens=60 c");
	wait_running(fd, 1);
	set_limit(ECHO_NBYTES(128));
	expect_done(fd, 4, NULL);
	client_unload(fd, 5, "echo:", 128);
	expect_done(fd, 5, NULL);
	expect_resident(fd, "");
	close(fd);
}

static void
test_larger_than_the_limit(void **state)
{
	int fd = client_open(&engine, 1);
	Llm__Frame *f;

	set_limit(ECHO_NBYTES(128) + 1);
	client_submit(fd, 1, 1, "x");
	f = recv_frame(fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_ERROR);
	assert_int_equal(f->error->status, LLM_E_MODEL);
	assert_int_equal(f->error->got, ECHO_NBYTES(512));
	assert_int_equal(f->error->limit, ECHO_NBYTES(128) + 1);
	assert_non_null(strstr(f->error->detail, "bytes of KV cache"));
	assert_non_null(strstr(f->error->hint, "llm_infer.memory_limit"));
	drop(f);
	client_load(fd, 30, 3, "echo:", 128, false);
	client_submit(fd, 2, 3, "fits");
	expect_done(fd, 2, "fits");
	close(fd);
}

static void
test_turns_serve_everybody(void **state)
{
	int fd[4];

	set_limit(ONE_MODEL);
	for (int i = 0; i < 4; i++)
		fd[i] = client_open(&engine, (uint64_t) i);
	for (uint64_t id = 1; id <= 40; id++)
		for (int i = 0; i < 4; i++)
			client_submit(fd[i], id, 1 + (uint32_t) i % 2, "@slow=1 either");
	for (int i = 0; i < 4; i++)
	{
		for (int n = 0; n < 40; n++)
		{
			Llm__Frame *f = recv_frame(fd[i]);

			assert_non_null(f);
			assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
			drop(f);
		}
		close(fd[i]);
	}
}

/* Each with its own text: identical ones would be generated once. */
static void
submit_steady(int fd, uint64_t id)
{
	char text[64];

	snprintf(text, sizeof(text), "@slow=4 steady %llu", (unsigned long long) id);
	client_submit(fd, id, 1, text);
}

/* A stream of requests to one model does not starve another that needs its room; a third that fits
 * beside either goes on all the time. */
static void
test_no_starvation(void **state)
{
	int one = client_open(&engine, 1);
	int two = client_open(&engine, 2);
	int three = client_open(&engine, 3);
	int n_before = 0;

	set_limit(ONE_MODEL);
	client_load(three, 30, 3, "echo:", 128, false);
	for (uint64_t id = 1; id <= 4; id++)
		submit_steady(one, id);
	wait_running(two, 4);
	client_submit(three, 1, 3, "@slow=4 @tokens=120 beside");
	wait_running(two, 5);
	client_submit(two, 1, 2, "other model");
	/* The steady client asks again as soon as it is answered. */
	for (uint64_t id = 5; id < 200 && !readable_within(two, 0); id++)
	{
		if (!readable_within(one, 50))
			continue;
		drop(recv_frame(one));
		submit_steady(one, id);
		n_before++;
	}
	expect_done(two, 1, "other model");
	assert_true(n_before <= 8);
	assert_false(readable_within(three, 0));
	expect_done(three, 1, NULL);
	close(one);
	close(two);
	close(three);
}

/* Waiting for room can be cancelled, and times out. */
static void
test_waiting_for_room(void **state)
{
	int holder = client_open(&engine, 1);
	int fd = client_open(&engine, 2);
	Llm__Submit m = submit_of(1, 2, "too late");
	int64_t begin;

	set_limit(ONE_MODEL);
	client_submit(holder, 1, 1, "@slow=10 @tokens=120 held");
	wait_running(fd, 1);
	m.has_timeout_ms = true;
	m.timeout_ms = 150;
	begin = clock_ms();
	client_send_submit(fd, &m);
	client_submit(fd, 2, 2, "cancelled");
	client_cancel(fd, 2);
	expect_error(fd, 1, LLM_E_TIMEOUT);
	assert_true(clock_ms() - begin >= 140);
	assert_false(readable_within(holder, 0));
	/* Nobody waits for room any more: the holder's model takes tickets again. */
	client_submit(fd, 4, 1, "let in");
	expect_done(fd, 4, "let in");
	assert_false(readable_within(holder, 0));
	expect_done(holder, 1, NULL);
	client_submit(fd, 3, 2, "after");
	expect_done(fd, 3, "after");
	close(holder);
	close(fd);
}

/* Another size of the KV cache: idle models are closed for it at once, busy ones when they are idle. */
static void
test_kv_size_changes(void **state)
{
	int fd = client_open(&engine, 1);
	Llm__Frame *f;

	set_limit(0);
	client_submit(fd, 1, 1, "a");
	expect_done(fd, 1, "a");
	client_submit(fd, 2, 2, "@slow=5 @tokens=60 b");
	wait_running(fd, 1);
	set_sizes(0, 100 * 256);
	expect_done(fd, 2, NULL);
	client_submit(fd, 3, 1, "a");
	expect_done(fd, 3, "a");
	client_submit(fd, 4, 2, "b");
	expect_done(fd, 4, "b");
	f = client_stats(fd, 5);
	assert_int_equal(f->stats_reply->n_models, 2);
	for (int i = 0; i < 2; i++)
	{
		assert_int_equal(f->stats_reply->models[i]->kv_pages, 100);
		assert_string_equal(f->stats_reply->models[i]->kv_rule, "what kv_cache_memory says");
	}
	drop(f);
	set_limit(0);
	close(fd);
}

/* ---- files ---- */

/* What a model took is given back when it goes. */
static void
test_memory_returns(void **state)
{
	Engine e;
	int fd;
	long before = 0;

	engine_init(&e);
	engine_start_on(&e, "cpu");
	fd = client_connect(&e);
	client_hello(fd, LLM_WIRE_VERSION, COOKIE, 1);
	drop(recv_frame(fd));
	for (uint64_t round = 0; round < 30; round++)
	{
		client_load(fd, 100 + round, 9, "models/llama256-q8_0/model.gguf", 0, true);
		expect_done(fd, 100 + round, NULL);
		client_unload(fd, 200 + round, "models/llama256-q8_0/model.gguf", 0);
		expect_done(fd, 200 + round, NULL);
		if (round == 9)
			before = engine_rss_kib(&e);
	}
	if (SANITIZED)
		puts("SKIP: memory growth cannot be seen under AddressSanitizer, which keeps freed memory");
	else
		assert_true(engine_rss_kib(&e) - before < 512);
	close(fd);
	engine_stop(&e);
	engine_fini(&e);
}

static char files_dir[] = "/tmp/llm_server_models.XXXXXX";

/* dir/name becomes a copy of a golden model, by way of another name when at_once. */
static void
put_model(const char *golden, const char *name, bool at_once)
{
	char from[200], to[220], path[200];
	char bytes[65536];
	size_t n;
	FILE *in, *out;

	snprintf(from, sizeof(from), "test/golden/models/%s/model.gguf", golden);
	snprintf(path, sizeof(path), "%s/%s", files_dir, name);
	snprintf(to, sizeof(to), "%s%s", path, at_once ? ".new" : "");
	in = fopen(from, "rb");
	out = fopen(to, "wb");
	assert_non_null(in);
	assert_non_null(out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		assert_int_equal(fwrite(bytes, 1, n, out), n);
	fclose(in);
	assert_int_equal(fclose(out), 0);
	if (at_once)
		assert_int_equal(rename(to, path), 0);
}

/* A greedy answer of model handle 9. */
typedef struct Answer
{
	LlmStatus status; /* the rest counts when it is LLM_OK */
	uint64_t key;
	size_t len;
	char text[256];
} Answer;

static Answer
ask(int fd, uint64_t id, int32_t max_tokens)
{
	Llm__Submit m = submit_of(id, 9, "a b");
	Answer a = {0};
	Llm__Frame *f;

	m.has_raw = m.raw = true;
	m.has_max_tokens = true;
	m.max_tokens = max_tokens;
	client_send_submit(fd, &m);
	f = recv_frame(fd);
	assert_non_null(f);
	if (f->body_case == LLM__FRAME__BODY_ERROR)
		a.status = (LlmStatus) f->error->status;
	else
	{
		assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
		a.key = f->done->numerics_key;
		a.len = f->done->text.len;
		assert_true(a.len < sizeof(a.text));
		memcpy(a.text, f->done->text.data, a.len);
	}
	drop(f);
	return a;
}

static bool
same_answer(const Answer *a, const Answer *b)
{
	return a->status == b->status && a->key == b->key && a->len == b->len &&
		   memcmp(a->text, b->text, a->len) == 0;
}

/* Ask until it is answered as `now` says, for 20 seconds; every answer before is `then`. */
static void
expect_change(int fd, uint64_t id, const Answer *then, const Answer *now)
{
	int64_t give_up = clock_ms() + 20000;
	Answer a;

	for (;;)
	{
		a = ask(fd, id++, 12);
		if (same_answer(&a, now))
			break;
		assert_true(same_answer(&a, then));
		assert_true(clock_ms() < give_up);
		usleep(10000);
	}
	a = ask(fd, id, 12);
	assert_true(same_answer(&a, now));
}

/* A LOAD looks at the file at once, and tells whose answers will come. */
static void
expect_load(int fd, uint64_t id, const Answer *now)
{
	Llm__Frame *f;
	Answer a;

	client_load(fd, id, 9, "m.gguf", 0, true);
	f = recv_frame(fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
	assert_int_equal(f->done->id, id);
	assert_true(f->done->numerics_key == now->key);
	drop(f);
	a = ask(fd, id + 1, 12);
	assert_true(same_answer(&a, now));
}

static void
test_file_is_replaced(void **state)
{
	Engine e;
	Answer first, second;
	const Answer refused = {.status = LLM_E_MODEL};
	char path[200], command[200];
	int fd;

	assert_non_null(mkdtemp(files_dir));
	snprintf(path, sizeof(path), "%s/m.gguf", files_dir);
	engine_init(&e);
	e.model_dir = files_dir;
	engine_start_on(&e, "cpu");
	fd = client_connect(&e);
	client_hello(fd, LLM_WIRE_VERSION, COOKIE, 1);
	drop(recv_frame(fd));
	client_load(fd, 1000009, 9, "m.gguf", 0, false);

	put_model("llama256-q4_0", "m.gguf", true);
	second = ask(fd, 1, 12);
	assert_int_equal(second.status, LLM_OK);
	put_model("llama256-q8_0", "m.gguf", true);
	client_unload(fd, 2, "m.gguf", 0);
	expect_done(fd, 2, NULL);
	first = ask(fd, 3, 12);
	assert_int_equal(first.status, LLM_OK);
	assert_true(first.key != second.key);

	/* Another file by the same name, then the former again. */
	put_model("llama256-q4_0", "m.gguf", true);
	expect_change(fd, 1000, &first, &second);
	put_model("llama256-q8_0", "m.gguf", true);
	expect_change(fd, 2000, &second, &first);
	put_model("llama256-q4_0", "m.gguf", true);
	expect_load(fd, 6000, &second);
	put_model("llama256-q8_0", "m.gguf", true);
	expect_load(fd, 6010, &first);
	expect_load(fd, 6020, &first);
	/* Cut short while it is resident: what was read stays whole, but it is not read again. */
	assert_int_equal(truncate(path, 4096), 0);
	expect_change(fd, 3000, &first, &refused);
	put_model("llama256-q8_0", "m.gguf", false);
	expect_change(fd, 4000, &refused, &first);
	assert_int_equal(unlink(path), 0);
	expect_change(fd, 5000, &first, &refused);

	close(fd);
	engine_stop(&e);
	engine_fini(&e);
	snprintf(command, sizeof(command), "rm -r %s", files_dir);
	assert_int_equal(system(command), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_models_beside),
		cmocka_unit_test(test_load_and_unload),
		cmocka_unit_test(test_broken_model),
		cmocka_unit_test(test_prefixes_by_model_and_role),
		cmocka_unit_test(test_prefixes_of_many_roles),
		cmocka_unit_test(test_least_recently_used_goes),
		cmocka_unit_test(test_limit_shrinks),
		cmocka_unit_test(test_larger_than_the_limit),
		cmocka_unit_test(test_turns_serve_everybody),
		cmocka_unit_test(test_no_starvation),
		cmocka_unit_test(test_waiting_for_room),
		cmocka_unit_test(test_kv_size_changes),
		cmocka_unit_test(test_memory_returns),
		cmocka_unit_test(test_file_is_replaced),
	};

	if (getenv("LLM_ENGINE") == NULL)
	{
		puts("SKIP: LLM_ENGINE does not name an engine");
		return 0;
	}
	return cmocka_run_group_tests(tests, engine_setup, engine_teardown);
}
