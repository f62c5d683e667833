/*
 * engine_client.h - starts a real engine process for a test and speaks its protocol.
 *
 * The program is named by the environment variable LLM_ENGINE. Its listening socket has a name that
 * the kernel picks, so that tests can run side by side. Everything here fails the running test when
 * it does not work; a read gives up after 20 seconds.
 */
#ifndef LLM_TEST_ENGINE_CLIENT_H
#define LLM_TEST_ENGINE_CLIENT_H

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/status.h"
#include "wire/frame.h"
#include "wire/journal.h"

#include "llm.pb-c.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false /* the engine under test is built like this test */
#endif

#define COOKIE UINT64_C(0x0123456789ABCDEF)
#define READ_TIMEOUT_S 20

/* A prompt that keeps the engine busy for two seconds, in short steps. */
#define LONG "@slow=5 @tokens=400 long "

/* What a supervisor keeps across engines. */
typedef struct Engine
{
	pid_t pid;
	int listen_fd;
	int control_fd; /* our end */
	int journal_fd;
	struct sockaddr_un addr;
	socklen_t addr_len;
	uint32_t generation;
	/* SETTINGS, for tests that change them; engine_init gives them these values: */
	const char *model_dir; /* "test/golden" */
	int64_t kv_nbytes;     /* 16 MiB */
	int64_t memory_limit;  /* 0 */
} Engine;

static inline int64_t
clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- frames on a blocking socket ---- */

static inline void
send_bytes(int fd, const void *p, size_t n)
{
	const char *b = p;

	while (n > 0)
	{
		ssize_t m = send(fd, b, n, MSG_NOSIGNAL);

		assert_true(m > 0);
		b += m;
		n -= (size_t) m;
	}
}

static inline void
send_frame(int fd, const Llm__Frame *f)
{
	size_t n = llm__frame__get_packed_size(f);
	uint8_t *p = malloc(n + LLM_FRAME_HEADER);

	assert_non_null(p);
	llm_frame_header(p, (uint32_t) n);
	llm__frame__pack(f, p + LLM_FRAME_HEADER);
	send_bytes(fd, p, n + LLM_FRAME_HEADER);
	free(p);
}

/* False at end of file or reset. */
static inline bool
recv_bytes(int fd, void *p, size_t n)
{
	char *b = p;

	while (n > 0)
	{
		ssize_t m = recv(fd, b, n, 0);

		if (m <= 0)
		{
			/* Silence is a failure of the test, a closed socket is an answer. */
			assert_true(m == 0 || (errno != EAGAIN && errno != EWOULDBLOCK));
			return false;
		}
		b += m;
		n -= (size_t) m;
	}
	return true;
}

/* The next frame, or NULL when the peer has closed. Free with drop(). */
static inline Llm__Frame *
recv_frame(int fd)
{
	uint8_t header[LLM_FRAME_HEADER];
	uint32_t n = 0;
	uint8_t *body;
	Llm__Frame *f;

	if (!recv_bytes(fd, header, sizeof(header)))
		return NULL;
	assert_int_not_equal(llm_frame_peek(header, sizeof(header), &n), LLM_FRAME_TOO_LARGE);
	body = malloc((size_t) n + 1);
	assert_non_null(body);
	assert_true(recv_bytes(fd, body, n));
	f = llm__frame__unpack(NULL, n, body);
	assert_non_null(f);
	free(body);
	return f;
}

static inline void
drop(Llm__Frame *f)
{
	llm__frame__free_unpacked(f, NULL);
}

static inline bool
readable_within(int fd, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, ms) == 1;
}

/* ---- the supervisor's side ---- */

static inline void
engine_init(Engine *e)
{
	memset(e, 0, sizeof(*e));
	e->addr.sun_family = AF_UNIX;
	e->addr_len = sizeof(e->addr);
	e->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(e->listen_fd >= 0);
	assert_int_equal(bind(e->listen_fd, (struct sockaddr *) &e->addr, sizeof(sa_family_t)), 0);
	assert_int_equal(getsockname(e->listen_fd, (struct sockaddr *) &e->addr, &e->addr_len), 0);
	assert_int_equal(listen(e->listen_fd, 128), 0);
	e->journal_fd = memfd_create("journal", MFD_CLOEXEC);
	assert_true(e->journal_fd >= 0);
	e->control_fd = -1;
	e->model_dir = "test/golden";
	e->kv_nbytes = (int64_t) 16 << 20;
}

/* In the child: put a descriptor above those that the engine inherits. */
static inline int
out_of_the_way(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 10);
}

static inline void
engine_spawn(Engine *e)
{
	struct timeval tv = {READ_TIMEOUT_S, 0};
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	e->generation++;
	e->pid = fork();
	assert_true(e->pid >= 0);
	if (e->pid == 0)
	{
		int fds[3] = {out_of_the_way(e->listen_fd), out_of_the_way(pair[1]),
					  out_of_the_way(e->journal_fd)};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(fds[0], LLM_FD_LISTEN) < 0 || dup2(fds[1], LLM_FD_CONTROL) < 0 ||
			dup2(fds[2], LLM_FD_JOURNAL) < 0)
			_exit(3);
		execl(getenv("LLM_ENGINE"), "llm_infer_engine", "serve", (char *) NULL);
		_exit(4);
	}
	close(pair[1]);
	e->control_fd = pair[0];
}

static inline void
engine_settings(Engine *e, const char *devices)
{
	Llm__Settings m = LLM__SETTINGS__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.cookie = COOKIE;
	m.generation = e->generation;
	m.model_dir = (char *) e->model_dir;
	m.devices = (char *) devices;
	m.has_threads = m.has_kv_nbytes = m.has_memory_limit = true;
	m.threads = 1;
	m.kv_nbytes = e->kv_nbytes;
	m.memory_limit = e->memory_limit;
	f.body_case = LLM__FRAME__BODY_SETTINGS;
	f.settings = &m;
	send_frame(e->control_fd, &f);
}

/* The answer to a PING; changes of state that come before it are skipped. */
static inline Llm__Frame *
engine_ping(Engine *e, uint64_t seq)
{
	Llm__Ping m = LLM__PING__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.seq = seq;
	f.body_case = LLM__FRAME__BODY_PING;
	f.ping = &m;
	send_frame(e->control_fd, &f);
	for (;;)
	{
		Llm__Frame *r = recv_frame(e->control_fd);

		assert_non_null(r);
		assert_int_equal(r->body_case, LLM__FRAME__BODY_STATE);
		if (r->state->has_seq && r->state->seq == seq)
			return r;
		drop(r);
	}
}

/* Start an engine with these devices and wait until it is ready. */
static inline void
engine_start_on(Engine *e, const char *devices)
{
	Llm__Frame *f;

	engine_spawn(e);
	engine_settings(e, devices);
	f = recv_frame(e->control_fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_STATE);
	assert_true(f->state->ready);
	drop(f);
}

static inline void
engine_start(Engine *e)
{
	engine_start_on(e, "echo");
}

/* Wait for the engine's end, whatever it is; returns the status of waitpid. */
static inline int
engine_reap(Engine *e)
{
	int status = 0;
	int64_t give_up = clock_ms() + READ_TIMEOUT_S * 1000;
	pid_t got;

	while ((got = waitpid(e->pid, &status, WNOHANG)) == 0 && clock_ms() < give_up)
		usleep(2000);
	assert_int_equal(got, e->pid);
	close(e->control_fd);
	e->control_fd = -1;
	e->pid = 0;
	return status;
}

/* SIGTERM must end it cleanly. */
static inline void
engine_stop(Engine *e)
{
	int status;

	kill(e->pid, SIGTERM);
	status = engine_reap(e);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void
engine_fini(Engine *e)
{
	if (e->pid > 0)
	{
		kill(e->pid, SIGKILL);
		waitpid(e->pid, NULL, 0);
		close(e->control_fd);
	}
	close(e->listen_fd);
	close(e->journal_fd);
}

/* The engine that all tests of a program share: fixtures of the group. */
static Engine engine;

static inline int
engine_setup(void **state)
{
	engine_init(&engine);
	engine_start(&engine);
	return 0;
}

static inline int
engine_teardown(void **state)
{
	engine_fini(&engine);
	return 0;
}

/* Resident memory of the engine in KiB. */
static inline long
engine_rss_kib(const Engine *e)
{
	char path[64], line[256];
	long kib = 0;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/status", (int) e->pid);
	in = fopen(path, "r");
	assert_non_null(in);
	while (fgets(line, sizeof(line), in) != NULL)
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(in);
	assert_true(kib > 0);
	return kib;
}

/* ---- a client ---- */

static inline int
client_connect(const Engine *e)
{
	struct timeval tv = {READ_TIMEOUT_S, 0};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	assert_int_equal(connect(fd, (const struct sockaddr *) &e->addr, e->addr_len), 0);
	return fd;
}

static inline void
client_hello(int fd, uint32_t version, uint64_t cookie, uint64_t connection)
{
	Llm__Hello m = LLM__HELLO__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.version = version;
	m.cookie = cookie;
	m.connection = connection;
	f.body_case = LLM__FRAME__BODY_HELLO;
	f.hello = &m;
	send_frame(fd, &f);
}

static inline void
client_load(int fd, uint64_t id, uint32_t model, const char *path, uint32_t context, bool now)
{
	Llm__ModelSpec spec = LLM__MODEL_SPEC__INIT;
	Llm__Load m = LLM__LOAD__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	spec.path = (char *) path;
	spec.has_context_length = context > 0;
	spec.context_length = context;
	m.id = id;
	m.model = model;
	m.spec = &spec;
	m.has_now = true;
	m.now = now;
	f.body_case = LLM__FRAME__BODY_LOAD;
	f.load = &m;
	send_frame(fd, &f);
}

/* Connect, greet, and name the echo model 1 (context 512) and 2 (context 1024). */
static inline int
client_open(const Engine *e, uint64_t connection)
{
	int fd = client_connect(e);
	Llm__Frame *f;

	client_hello(fd, LLM_WIRE_VERSION, COOKIE, connection);
	f = recv_frame(fd);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_WELCOME);
	assert_int_equal(f->welcome->version, LLM_WIRE_VERSION);
	assert_int_equal(f->welcome->generation, e->generation);
	assert_int_equal(f->welcome->credit_requests, LLM_CREDIT_REQUESTS);
	drop(f);
	client_load(fd, 1000001, 1, "echo:", 512, false);
	client_load(fd, 1000002, 2, "echo:", 1024, false);
	return fd;
}

/* DONE comes when no request of the model is left. */
static inline void
client_unload(int fd, uint64_t id, const char *path, uint32_t context)
{
	Llm__ModelSpec spec = LLM__MODEL_SPEC__INIT;
	Llm__Unload m = LLM__UNLOAD__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	spec.path = (char *) path;
	spec.has_context_length = context > 0;
	spec.context_length = context;
	m.id = id;
	m.spec = &spec;
	f.body_case = LLM__FRAME__BODY_UNLOAD;
	f.unload = &m;
	send_frame(fd, &f);
}

static inline Llm__Submit
submit_of(uint64_t id, uint32_t model, const char *prompt)
{
	Llm__Submit m = LLM__SUBMIT__INIT;

	m.id = id;
	m.model = model;
	m.kind = LLM__KIND__GENERATE;
	m.has_prompt = true;
	m.prompt.data = (uint8_t *) prompt;
	m.prompt.len = strlen(prompt);
	m.has_temperature = true;
	m.temperature = 0;
	return m;
}

static inline void
client_send_submit(int fd, Llm__Submit *m)
{
	Llm__Frame f = LLM__FRAME__INIT;

	f.body_case = LLM__FRAME__BODY_SUBMIT;
	f.submit = m;
	send_frame(fd, &f);
}

static inline void
client_submit(int fd, uint64_t id, uint32_t model, const char *prompt)
{
	Llm__Submit m = submit_of(id, model, prompt);

	client_send_submit(fd, &m);
}

static inline void
client_cancel(int fd, uint64_t id)
{
	Llm__Cancel m = LLM__CANCEL__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.id = id;
	f.body_case = LLM__FRAME__BODY_CANCEL;
	f.cancel = &m;
	send_frame(fd, &f);
}

static inline Llm__Frame *
client_ask_stats(int fd, Llm__StatsRequest *m)
{
	Llm__Frame f = LLM__FRAME__INIT;
	Llm__Frame *r;

	f.body_case = LLM__FRAME__BODY_STATS;
	f.stats = m;
	send_frame(fd, &f);
	r = recv_frame(fd);
	assert_non_null(r);
	assert_int_equal(r->body_case, LLM__FRAME__BODY_STATS_REPLY);
	assert_int_equal(r->stats_reply->id, m->id);
	return r;
}

static inline Llm__Frame *
client_stats(int fd, uint64_t id)
{
	Llm__StatsRequest m = LLM__STATS_REQUEST__INIT;

	m.id = id;
	return client_ask_stats(fd, &m);
}

/* The next frame is DONE of id with this text (NULL = any). */
static inline void
expect_done(int fd, uint64_t id, const char *text)
{
	Llm__Frame *f = recv_frame(fd);

	assert_non_null(f);
	if (f->body_case == LLM__FRAME__BODY_ERROR)
		print_message("unexpected error: %s\n", f->error->text);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
	assert_int_equal(f->done->id, id);
	if (text != NULL)
	{
		assert_int_equal(f->done->text.len, strlen(text));
		assert_memory_equal(f->done->text.data, text, strlen(text));
	}
	drop(f);
}

static inline void
expect_error(int fd, uint64_t id, LlmStatus status)
{
	Llm__Frame *f = recv_frame(fd);

	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_ERROR);
	assert_int_equal(f->error->id, id);
	if (f->error->status != (uint32_t) status)
		print_message("error: %s\n", f->error->text);
	assert_int_equal(f->error->status, status);
	assert_true(f->error->text[0] != '\0');
	drop(f);
}

/* An ERROR of the connection, then its end. Other answers may come before. */
static inline void
expect_closed(int fd, LlmStatus status)
{
	Llm__Frame *f;

	while ((f = recv_frame(fd)) != NULL && f->body_case != LLM__FRAME__BODY_ERROR)
		drop(f);
	assert_non_null(f);
	assert_int_equal(f->error->id, 0);
	assert_int_equal(f->error->status, status);
	drop(f);
	assert_null(recv_frame(fd));
}

/* One request there and back: the engine is alive and serves. */
static inline void
expect_alive(const Engine *e)
{
	int fd = client_open(e, 999999);

	client_submit(fd, 1, 1, "still here");
	expect_done(fd, 1, "still here");
	close(fd);
}

#endif
