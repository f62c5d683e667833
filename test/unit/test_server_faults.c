/*
 * test_server_faults.c - crashes, hangs, model swaps and broken models of a running engine.
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

#define BACKEND UINT64_C(0xBACE2D0000000001)

static Engine engine;

static int
setup(void **state)
{
	engine_init(&engine);
	engine_start(&engine);
	return 0;
}

static int
teardown(void **state)
{
	engine_fini(&engine);
	return 0;
}

/* ---- crashes ---- */

static int
count_entries(uint32_t state)
{
	LlmJournal *j = mmap(NULL, sizeof(*j), PROT_READ, MAP_SHARED, engine.journal_fd, 0);
	int n = 0;

	assert_ptr_not_equal(j, MAP_FAILED);
	assert_int_equal(j->magic, LLM_JOURNAL_MAGIC);
	for (int i = 0; i < LLM_JOURNAL_ENTRIES; i++)
		n += j->entries[i].state == state;
	munmap(j, sizeof(*j));
	return n;
}

static void
expect_crash(int status)
{
	assert_true(WIFSIGNALED(status));
}

static void
submit_batch(int fd, uint64_t poison)
{
	for (uint64_t id = 1; id <= 8; id++)
		client_submit(fd, id, 1, id == poison ? "@crash boom" : "@slow=5 mate");
}

/* A poison prompt among others: the batch crashes, then it crashes alone, then it is refused, and
 * its mates get their answers. */
static void
test_poison_prompt(void **state)
{
	bool answered[9] = {false};
	int fd = client_open(&engine, BACKEND);
	int n_crashes = 0;

	submit_batch(fd, 5);
	for (;;)
	{
		Llm__Frame *f = recv_frame(fd);

		if (f == NULL) /* the engine died: what a backend does is to resubmit */
		{
			close(fd);
			expect_crash(engine_reap(&engine));
			assert_true(++n_crashes <= 2);
			engine_start(&engine);
			fd = client_open(&engine, BACKEND);
			for (uint64_t id = 1; id <= 8; id++)
				if (!answered[id])
					client_submit(fd, id, 1, id == 5 ? "@crash boom" : "@slow=5 mate");
			continue;
		}
		if (f->body_case == LLM__FRAME__BODY_ERROR)
		{
			assert_int_equal(f->error->id, 5);
			assert_int_equal(f->error->status, LLM_E_CRASHED);
			assert_non_null(f->error->hint);
			answered[5] = true;
		}
		else
		{
			assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
			assert_int_not_equal(f->done->id, 5);
			answered[f->done->id] = true;
		}
		drop(f);
		if (answered[1] && answered[2] && answered[3] && answered[4] && answered[5] &&
			answered[6] && answered[7] && answered[8])
			break;
	}
	assert_int_equal(n_crashes, 2);
	/* The verdict stands while the connection does, then it is forgotten. */
	assert_int_equal(count_entries(LLM_JOURNAL_GUILTY), 1);
	assert_int_equal(count_entries(LLM_JOURNAL_SUSPECT), 0);
	close(fd);
	for (int i = 0; i < 500 && count_entries(LLM_JOURNAL_GUILTY) > 0; i++)
		usleep(2000);
	assert_int_equal(count_entries(LLM_JOURNAL_GUILTY), 0);
	expect_alive(&engine);
}

/* Killed from outside: everybody is a suspect, nobody is guilty. */
static void
test_killed_engine(void **state)
{
	int fd = client_open(&engine, BACKEND);
	char prompt[64];

	for (uint64_t id = 1; id <= 8; id++)
	{
		snprintf(prompt, sizeof(prompt), "@slow=10 @tokens=100 innocent %d", (int) id);
		client_submit(fd, id, 1, prompt);
	}
	for (int i = 0; i < 1000 && count_entries(LLM_JOURNAL_RUNNING) < 8; i++)
		usleep(1000);
	assert_int_equal(count_entries(LLM_JOURNAL_RUNNING), 8);
	kill(engine.pid, SIGKILL);
	expect_crash(engine_reap(&engine));
	assert_null(recv_frame(fd));
	close(fd);
	engine_start(&engine);
	assert_int_equal(count_entries(LLM_JOURNAL_SUSPECT), 8);
	fd = client_open(&engine, BACKEND);
	for (uint64_t id = 1; id <= 8; id++)
		client_submit(fd, id, 1, "innocent");
	for (int i = 1; i <= 8; i++)
	{
		Llm__Frame *f = recv_frame(fd);

		assert_non_null(f);
		assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
		drop(f);
	}
	assert_int_equal(count_entries(LLM_JOURNAL_FREE), LLM_JOURNAL_ENTRIES);
	close(fd);
}

/* A clean end is no crash. */
static void
test_terminated_engine_blames_nobody(void **state)
{
	int fd = client_open(&engine, BACKEND);

	client_submit(fd, 1, 1, LONG);
	for (int i = 0; i < 1000 && count_entries(LLM_JOURNAL_RUNNING) < 1; i++)
		usleep(1000);
	engine_stop(&engine);
	close(fd);
	assert_int_equal(count_entries(LLM_JOURNAL_FREE), LLM_JOURNAL_ENTRIES);
	engine_start(&engine);
}

/* Nor is one whose step does not end. */
static void
test_terminated_in_a_step(void **state)
{
	int fd = client_open(&engine, BACKEND);

	client_submit(fd, 1, 1, "@hang");
	for (int i = 0; i < 1000 && count_entries(LLM_JOURNAL_RUNNING) < 1; i++)
		usleep(1000);
	engine_stop(&engine);
	close(fd);
	assert_int_equal(count_entries(LLM_JOURNAL_FREE), LLM_JOURNAL_ENTRIES);
	engine_start(&engine);
}

/* PING is answered while a step hangs, and shows that nothing moves. */
static void
test_hang_is_visible(void **state)
{
	int fd = client_open(&engine, BACKEND);
	Llm__Frame *f;
	uint64_t progress = 0;
	int still = 0;

	client_submit(fd, 1, 1, "@hang");
	for (uint64_t seq = 1; seq < 200 && still < 5; seq++)
	{
		usleep(10000);
		f = engine_ping(&engine, seq);
		still = f->state->busy && f->state->progress == progress ? still + 1 : 0;
		progress = f->state->progress;
		drop(f);
	}
	assert_int_equal(still, 5);
	/* STATS are answered as well. */
	f = client_stats(fd, 2);
	drop(f);
	kill(engine.pid, SIGKILL);
	expect_crash(engine_reap(&engine));
	close(fd);
	engine_start(&engine);
	assert_int_equal(count_entries(LLM_JOURNAL_SUSPECT), 1);
}

/* ---- models ---- */

static void
test_swaps_serve_everybody(void **state)
{
	int fd[4];

	for (int i = 0; i < 4; i++)
		fd[i] = client_open(&engine, BACKEND + (uint64_t) i);
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

/* A stream of requests to one model does not starve the other. */
static void
test_no_starvation(void **state)
{
	int one = client_open(&engine, BACKEND);
	int two = client_open(&engine, BACKEND + 1);
	int n_before = 0;

	for (uint64_t id = 1; id <= 4; id++)
		client_submit(one, id, 1, "@slow=4 steady");
	client_submit(two, 1, 2, "other model");
	/* The steady client asks again as soon as it is answered. */
	for (uint64_t id = 5; id < 200 && !readable_within(two, 0); id++)
	{
		if (!readable_within(one, 50))
			continue;
		drop(recv_frame(one));
		client_submit(one, id, 1, "@slow=4 steady");
		n_before++;
	}
	expect_done(two, 1, "other model");
	assert_true(n_before <= 8);
	close(one);
	close(two);
}

static void
test_load_and_unload(void **state)
{
	int fd = client_open(&engine, BACKEND);
	Llm__ModelSpec spec = LLM__MODEL_SPEC__INIT;
	Llm__Unload m = LLM__UNLOAD__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	Llm__Frame *r;

	client_load(fd, 10, 2, "echo:", 1024, true);
	expect_done(fd, 10, NULL);
	r = client_stats(fd, 11);
	assert_int_equal(r->stats_reply->n_models, 1);
	assert_int_equal(r->stats_reply->models[0]->spec->context_length, 1024);
	drop(r);
	spec.path = "echo:";
	spec.has_context_length = true;
	spec.context_length = 1024;
	m.id = 12;
	m.spec = &spec;
	f.body_case = LLM__FRAME__BODY_UNLOAD;
	f.unload = &m;
	send_frame(fd, &f);
	expect_done(fd, 12, NULL);
	r = client_stats(fd, 13);
	assert_int_equal(r->stats_reply->n_models, 0);
	drop(r);
	/* Not resident any more: done as well. */
	m.id = 14;
	send_frame(fd, &f);
	expect_done(fd, 14, NULL);
	client_submit(fd, 15, 2, "back");
	expect_done(fd, 15, "back");
	close(fd);
}

static void
test_broken_model(void **state)
{
	int fd = client_open(&engine, BACKEND);

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

/* Waiting for a swap can be cancelled, and times out. */
static void
test_waiting_for_a_model(void **state)
{
	int holder = client_open(&engine, BACKEND);
	int fd = client_open(&engine, BACKEND + 1);
	Llm__Submit m = submit_of(1, 2, "too late");
	int32_t running = 0;
	int64_t begin;

	client_submit(holder, 1, 1, "@slow=10 @tokens=70 held");
	for (uint64_t id = 100; running == 0 && id < 2000; id++)
	{
		Llm__Frame *f = client_stats(fd, id);

		running = f->stats_reply->running;
		drop(f);
		usleep(1000);
	}
	assert_int_equal(running, 1);
	m.has_timeout_ms = true;
	m.timeout_ms = 150;
	begin = clock_ms();
	client_send_submit(fd, &m);
	client_submit(fd, 2, 2, "cancelled");
	client_cancel(fd, 2);
	expect_error(fd, 1, LLM_E_TIMEOUT);
	assert_true(clock_ms() - begin >= 140);
	assert_false(readable_within(holder, 0)); /* it did not have to wait for the swap */
	expect_done(holder, 1, NULL);
	client_submit(fd, 3, 2, "after");
	expect_done(fd, 3, "after");
	close(holder);
	close(fd);
}

/* ---- an engine that cannot be ---- */

static void
test_unknown_device(void **state)
{
	Engine e;
	Llm__Frame *f;
	int fd;

	engine_init(&e);
	engine_spawn(&e);
	engine_settings(&e, "abacus");
	f = recv_frame(e.control_fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_STATE);
	assert_false(f->state->ready);
	assert_non_null(f->state->message);
	assert_non_null(strstr(f->state->message, "abacus"));
	drop(f);
	fd = client_open(&e, BACKEND);
	client_submit(fd, 1, 1, "anybody there?");
	f = recv_frame(fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_ERROR);
	assert_int_equal(f->error->id, 1);
	assert_non_null(strstr(f->error->text, "abacus"));
	drop(f);
	/* Other settings may mend it. */
	engine_settings(&e, "echo");
	f = recv_frame(e.control_fd);
	assert_non_null(f);
	assert_true(f->state->ready);
	drop(f);
	client_submit(fd, 2, 1, "now there is");
	expect_done(fd, 2, "now there is");
	close(fd);
	engine_stop(&e);
	engine_fini(&e);
}

static void
test_descriptors_are_checked(void **state)
{
	Engine e;
	int status;
	int wrong;

	engine_init(&e);
	wrong = e.listen_fd;
	e.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* does not listen */
	engine_spawn(&e);
	status = engine_reap(&e);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 2);
	close(wrong);
	engine_fini(&e);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_poison_prompt),
		cmocka_unit_test(test_killed_engine),
		cmocka_unit_test(test_terminated_engine_blames_nobody),
		cmocka_unit_test(test_terminated_in_a_step),
		cmocka_unit_test(test_hang_is_visible),
		cmocka_unit_test(test_swaps_serve_everybody),
		cmocka_unit_test(test_no_starvation),
		cmocka_unit_test(test_load_and_unload),
		cmocka_unit_test(test_broken_model),
		cmocka_unit_test(test_waiting_for_a_model),
		cmocka_unit_test(test_unknown_device),
		cmocka_unit_test(test_descriptors_are_checked),
	};

	if (getenv("LLM_ENGINE") == NULL)
	{
		puts("SKIP: LLM_ENGINE does not name an engine");
		return 0;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
