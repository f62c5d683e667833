/*
 * test_server_faults.c - crashes, hangs and broken settings of a running engine.
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

/* Eight requests, but for those that are answered; 5 to last_poison ask the same and crash. */
static void
submit_batch(int fd, uint64_t last_poison, const bool *answered)
{
	for (uint64_t id = 1; id <= 8; id++)
	{
		char prompt[32] = "@crash boom";

		if (id < 5 || id > last_poison)
			snprintf(prompt, sizeof(prompt), "@slow=5 mate %d", (int) id);
		if (!answered[id])
			client_submit(fd, id, 1, prompt);
	}
}

/* A poison prompt among others, asked once or more: the batch crashes, then it crashes alone, then it
 * is refused, and its mates get their answers. Each who asks has at most two crashes for that. */
static void
poison_prompt(uint64_t last_poison)
{
	bool answered[9] = {false};
	int fd = client_open(&engine, BACKEND);
	int n_poison = (int) last_poison - 4;
	int n_answered = 0;
	int n_crashes = 0;

	submit_batch(fd, last_poison, answered);
	while (n_answered < 8)
	{
		Llm__Frame *f = recv_frame(fd);
		uint64_t id;

		if (f == NULL) /* the engine died: what a backend does is to resubmit */
		{
			close(fd);
			expect_crash(engine_reap(&engine));
			assert_true(++n_crashes <= 2 * n_poison);
			engine_start(&engine);
			fd = client_open(&engine, BACKEND);
			submit_batch(fd, last_poison, answered);
			continue;
		}
		if (f->body_case == LLM__FRAME__BODY_ERROR)
		{
			id = f->error->id;
			assert_in_range(id, 5, last_poison);
			assert_int_equal(f->error->status, LLM_E_CRASHED);
			assert_non_null(f->error->hint);
		}
		else
		{
			assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
			id = f->done->id;
			assert_true(id < 5 || id > last_poison);
		}
		assert_false(answered[id]);
		answered[id] = true;
		n_answered++;
		drop(f);
	}
	assert_in_range(n_crashes, n_poison + 1, 2 * n_poison);
	/* The verdict stands while the connection does, then it is forgotten. */
	assert_int_equal(count_entries(LLM_JOURNAL_GUILTY), n_poison);
	assert_int_equal(count_entries(LLM_JOURNAL_SUSPECT), 0);
	close(fd);
	for (int i = 0; i < 5000 && count_entries(LLM_JOURNAL_GUILTY) > 0; i++)
		usleep(2000);
	assert_int_equal(count_entries(LLM_JOURNAL_GUILTY), 0);
	expect_alive(&engine);
}

static void
test_poison_prompt(void **state)
{
	poison_prompt(5);
}

/* Only the leader of those who ask the same is in the journal: the others come to be blamed as well. */
static void
test_poison_prompt_asked_twice(void **state)
{
	poison_prompt(6);
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
	for (int i = 0; i < 20000 && count_entries(LLM_JOURNAL_RUNNING) < 8; i++)
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
	for (int i = 0; i < 20000 && count_entries(LLM_JOURNAL_RUNNING) < 1; i++)
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
	for (int i = 0; i < 20000 && count_entries(LLM_JOURNAL_RUNNING) < 1; i++)
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
	for (uint64_t seq = 1; seq < 2000 && still < 5; seq++)
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

/* Four requests of model 1 that run for a second, each with its own text; they are in the batch. */
static void
submit_innocents(int fd)
{
	char prompt[64];

	for (uint64_t id = 1; id <= 4; id++)
	{
		snprintf(prompt, sizeof(prompt), "@slow=5 @tokens=200 innocent %d", (int) id);
		client_submit(fd, id, 1, prompt);
	}
	for (int i = 0; i < 20000 && count_entries(LLM_JOURNAL_RUNNING) < 4; i++)
		usleep(1000);
	assert_int_equal(count_entries(LLM_JOURNAL_RUNNING), 4);
}

/* Two models at work: the batch that rests is not blamed for the other's crash. */
static void
test_crash_of_another_model(void **state)
{
	int fd = client_open(&engine, BACKEND);

	close(fd); /* the blame that another test has left goes with it */
	for (int i = 0; i < 5000 && count_entries(LLM_JOURNAL_SUSPECT) > 0; i++)
		usleep(2000);
	fd = client_open(&engine, BACKEND);
	submit_innocents(fd);
	client_submit(fd, 5, 2, "@crash boom");
	expect_crash(engine_reap(&engine));
	close(fd);
	engine_start(&engine);
	assert_int_equal(count_entries(LLM_JOURNAL_SUSPECT), 1);
	/* It is guilty once it has crashed by itself, also between steps of the others. */
	fd = client_open(&engine, BACKEND);
	submit_innocents(fd);
	client_submit(fd, 5, 2, "@crash boom");
	expect_crash(engine_reap(&engine));
	close(fd);
	engine_start(&engine);
	assert_int_equal(count_entries(LLM_JOURNAL_SUSPECT), 0);
	assert_int_equal(count_entries(LLM_JOURNAL_GUILTY), 1);
	fd = client_open(&engine, BACKEND);
	client_submit(fd, 5, 2, "@crash boom");
	expect_error(fd, 5, LLM_E_CRASHED);
	client_submit(fd, 1, 1, "innocent");
	expect_done(fd, 1, "innocent");
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
		cmocka_unit_test(test_poison_prompt_asked_twice),
		cmocka_unit_test(test_killed_engine),
		cmocka_unit_test(test_terminated_engine_blames_nobody),
		cmocka_unit_test(test_terminated_in_a_step),
		cmocka_unit_test(test_hang_is_visible),
		cmocka_unit_test(test_crash_of_another_model),
		cmocka_unit_test(test_unknown_device),
		cmocka_unit_test(test_descriptors_are_checked),
	};

	if (getenv("LLM_ENGINE") == NULL)
	{
		puts("SKIP: LLM_ENGINE does not name an engine");
		return 0;
	}
	return cmocka_run_group_tests(tests, engine_setup, engine_teardown);
}
