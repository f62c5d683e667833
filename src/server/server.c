/*
 * server/server.c - the I/O thread.
 *
 * Two threads. This one accepts, reads, decodes, writes and answers PING and STATS; it never touches
 * the engine, so it is awake whatever a step or a load takes. The engine thread (engine_thread.c)
 * owns the LlmEngines. They meet in exchange.h, under its one lock; connections, streams and the
 * control descriptor belong to this thread alone and need none.
 *
 * A request's way: conn.c checks its frame and makes a ticket -> command -> models.c queues it until
 * its model is resident -> llm_engine_submit -> callbacks encode frames -> once per step they come
 * back here and go to the connection whose serial they carry. A connection that has gone meanwhile
 * is not found by its serial, and the frame is dropped.
 *
 * Serials: the low 16 bits are the place in `conns`, the rest counts, so that a place that is used
 * again has another serial.
 *
 * Nothing is accepted before the first SETTINGS, which bring the cookie: clients wait in the backlog
 * of the listening socket, which the supervisor keeps open across engines.
 */
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "server/conn.h"
#include "server/control.h"
#include "server/engine_thread.h"
#include "server/exchange.h"
#include "server/crash_marks.h"

#define CONNS_MAX 8192
#define EVENTS_MAX 64
#define ACCEPTS_MAX 64      /* per readiness event */
#define ACCEPT_PAUSE_MS 100 /* when descriptors are out */
#define STOP_WAIT_MS 2000   /* for the running step at SIGTERM */

typedef struct Server
{
	int epoll_fd;
	int listen_fd;
	int signal_fd;
	bool accepting;    /* listen_fd is in the epoll set */
	bool full;         /* places or descriptors were out, and this was logged */
	bool ended;        /* leave the loop, see end */
	int64_t resume_ms; /* monotonic time to accept again; 0 = not paused */
	int64_t silent_ms; /* monotonic time to look for clients without HELLO; 0 = there is none */
	LlmServerEnd end;
	LlmControl control;
	LlmConnHost host;
	LlmExchange exchange;
	LlmJournalWriter journal;
	LlmEngineThread *engine;
	LlmBuf output;             /* what came from the engine thread */
	LlmConn *conns[CONNS_MAX]; /* by place; NULL = free */
	int n_conns;
	int conns_top;        /* places above were never used */
	uint64_t next_serial; /* high bits of the next serial */
	LlmConn *gone; /* dropped in this turn, linked by next_gone: later events may still name them */
} Server;

static bool
watch(Server *s, int op, int fd, uint32_t events, void *what)
{
	struct epoll_event ev = {.events = events, .data.ptr = what};

	if (epoll_ctl(s->epoll_fd, op, fd, &ev) == 0)
		return true;
	llm_log(LLM_LOG_ERROR, "epoll: %s", strerror(errno));
	return false;
}

static void
finish(Server *s, LlmServerEnd end)
{
	if (!s->ended)
		s->end = end;
	s->ended = true;
}

/* ---- connections ---- */

/* Another connection of the same backend: it has closed one and opened the next. */
static bool
has_twin(const Server *s, const LlmConn *c)
{
	for (int i = 0; i < s->conns_top; i++)
		if (s->conns[i] != NULL && s->conns[i] != c && s->conns[i]->greeted &&
			s->conns[i]->connection == c->connection)
			return true;
	return false;
}

/* Cancel all that the client has asked for; once. */
static void
conn_cancel_all(Server *s, LlmConn *c)
{
	LlmCommand *cmd;

	if (!c->greeted)
		return;
	c->greeted = false;
	cmd = llm_command_create(LLM_COMMAND_CLOSE);
	if (cmd == NULL)
	{
		llm_log(LLM_LOG_ERROR, "out of memory for closing a connection");
		finish(s, LLM_SERVER_BROKEN);
		return;
	}
	cmd->key.client = c->serial;
	cmd->connection = c->connection;
	cmd->last = !has_twin(s, c);
	llm_exchange_post(&s->exchange, cmd);
}

static void
conn_drop(Server *s, LlmConn *c)
{
	conn_cancel_all(s, c);
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->stream.fd, NULL);
	s->conns[c->serial & 0xFFFF] = NULL;
	s->n_conns--;
	c->next_gone = s->gone;
	s->gone = c;
}

/* Write, then ask epoll for what the connection needs next. */
static void
conn_settle(Server *s, LlmConn *c)
{
	uint32_t events = 0;

	if (c->state == LLM_CONN_CLOSING)
		conn_cancel_all(s, c);
	if (!llm_conn_writable(c))
	{
		conn_drop(s, c);
		return;
	}
	if (c->state != LLM_CONN_CLOSING)
		events |= EPOLLIN;
	if (llm_stream_pending(&c->stream) > 0)
		events |= EPOLLOUT;
	if (events != c->events && watch(s, EPOLL_CTL_MOD, c->stream.fd, events, c))
		c->events = events;
}

static void
on_conn(Server *s, LlmConn *c, uint32_t events)
{
	if (s->conns[c->serial & 0xFFFF] != c)
		return; /* dropped by an earlier event of this turn */
	if (events & (EPOLLERR | EPOLLHUP))
	{
		conn_drop(s, c);
		return;
	}
	if ((events & EPOLLIN) && !llm_conn_readable(c, &s->host))
	{
		conn_drop(s, c);
		return;
	}
	conn_settle(s, c);
}

static void
set_accepting(Server *s, bool on)
{
	if (on != s->accepting &&
		watch(s, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->listen_fd, EPOLLIN, &s->listen_fd))
		s->accepting = on;
}

/* Give a new socket a place. */
static void
conn_add(Server *s, int fd)
{
	int place = 0;
	LlmConn *c;

	while (place < s->conns_top && s->conns[place] != NULL)
		place++;
	c = llm_conn_create(fd, ++s->next_serial << 16 | (uint64_t) place);
	if (c == NULL)
	{
		llm_log(LLM_LOG_WARNING, "out of memory for a connection");
		return;
	}
	c->events = EPOLLIN;
	c->accepted_ms = llm_clock_ms();
	if (!watch(s, EPOLL_CTL_ADD, fd, EPOLLIN, c))
	{
		llm_conn_free(c);
		return;
	}
	s->conns[place] = c;
	s->n_conns++;
	if (place == s->conns_top)
		s->conns_top++;
	if (s->silent_ms == 0)
		s->silent_ms = c->accepted_ms + LLM_CONN_HELLO_MS;
	if (c->state == LLM_CONN_CLOSING)
		conn_settle(s, c);
}

static void
on_listen(Server *s)
{
	for (int i = 0; i < ACCEPTS_MAX; i++)
	{
		int fd = s->n_conns >= CONNS_MAX
					 ? -1
					 : accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
		{
			s->full = false;
			conn_add(s, fd);
			continue;
		}
		if (s->n_conns < CONNS_MAX && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (s->n_conns < CONNS_MAX && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		/* Descriptors or places are out: clients wait in the backlog until some are free again. */
		if (!s->full)
			llm_log(LLM_LOG_WARNING, "too many connections: %d", s->n_conns);
		s->full = true;
		set_accepting(s, false);
		s->resume_ms = llm_clock_ms() + ACCEPT_PAUSE_MS;
		return;
	}
}

/* A client that never says HELLO holds a place for nothing. */
static void
drop_silent(Server *s, int64_t now)
{
	s->silent_ms = 0;
	for (int i = 0; i < s->conns_top; i++)
	{
		LlmConn *c = s->conns[i];
		int64_t due;

		if (c == NULL || c->state != LLM_CONN_HELLO)
			continue;
		due = c->accepted_ms + LLM_CONN_HELLO_MS;
		if (due <= now)
		{
			llm_log(LLM_LOG_WARNING, "connection closed: no HELLO within %d ms", LLM_CONN_HELLO_MS);
			conn_drop(s, c);
		}
		else if (s->silent_ms == 0 || due < s->silent_ms)
			s->silent_ms = due;
	}
}

/* Do what is due. Returns how long epoll may wait for the next, -1 = for ever. */
static int
on_time(Server *s)
{
	int64_t now;
	int64_t next;

	if (s->resume_ms == 0 && s->silent_ms == 0)
		return -1;
	now = llm_clock_ms();
	if (s->resume_ms != 0 && s->resume_ms <= now)
	{
		s->resume_ms = 0;
		set_accepting(s, true);
	}
	if (s->silent_ms != 0 && s->silent_ms <= now)
		drop_silent(s, now);
	next = s->resume_ms;
	if (next == 0 || (s->silent_ms != 0 && s->silent_ms < next))
		next = s->silent_ms;
	return next == 0 ? -1 : (int) (next - now);
}

/* ---- the engine thread and the supervisor ---- */

/* Move frames of the engine thread to their connections. */
static void
deliver(Server *s)
{
	size_t at = 0;

	llm_exchange_take_output(&s->exchange, &s->output);
	while (at < s->output.len)
	{
		LlmOutRecord r;
		LlmConn *c;

		memcpy(&r, s->output.data + at, sizeof(r));
		at += sizeof(r);
		c = s->conns[r.key.client & 0xFFFF];
		if (c != NULL && c->serial == r.key.client)
			llm_conn_deliver(c, &r, s->output.data + at);
		at += r.nbytes;
	}
	if (s->output.cap > (size_t) 4 << 20)
		llm_buf_fini(&s->output);
	llm_buf_clear(&s->output);
}

static void
control_settle(Server *s)
{
	uint32_t events = EPOLLIN;

	if (!llm_control_writable(&s->control))
	{
		finish(s, LLM_SERVER_ORPHANED);
		return;
	}
	if (llm_stream_pending(&s->control.stream) > 0)
		events |= EPOLLOUT;
	if (events != s->control.events &&
		watch(s, EPOLL_CTL_MOD, s->control.stream.fd, events, &s->control))
		s->control.events = events;
}

static void
on_event(Server *s)
{
	uint64_t n;

	if (read(s->exchange.event_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		llm_log(LLM_LOG_WARNING, "event descriptor: %s", strerror(errno));
	deliver(s);
	llm_control_tell_change(&s->control, &s->exchange, s->n_conns);
	control_settle(s);
	if (atomic_load(&s->exchange.ended))
		finish(s, LLM_SERVER_BROKEN);
	/* One whose socket is full waits for EPOLLOUT. */
	for (int i = 0; i < s->conns_top; i++)
	{
		LlmConn *c = s->conns[i];

		if (c != NULL && c->stream.out.len > 0 && !(c->events & EPOLLOUT))
			conn_settle(s, c);
	}
}

static void
on_control(Server *s, uint32_t events)
{
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) &&
		!llm_control_readable(&s->control, &s->host, s->n_conns))
	{
		finish(s, LLM_SERVER_ORPHANED);
		return;
	}
	if (s->control.has_settings && s->resume_ms == 0)
		set_accepting(s, true);
	control_settle(s);
}

static void
on_signal(Server *s)
{
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) == (ssize_t) sizeof(info))
		finish(s, LLM_SERVER_TERMINATED);
}

static void
dispatch(Server *s, const struct epoll_event *ev)
{
	void *what = ev->data.ptr;

	if (what == &s->listen_fd)
		on_listen(s);
	else if (what == &s->exchange)
		on_event(s);
	else if (what == &s->control)
		on_control(s, ev->events);
	else if (what == &s->signal_fd)
		on_signal(s);
	else
		on_conn(s, what, ev->events);
}

static void
free_gone(Server *s)
{
	while (s->gone != NULL)
	{
		LlmConn *c = s->gone;

		s->gone = c->next_gone;
		llm_conn_free(c);
	}
}

static void
loop(Server *s)
{
	struct epoll_event events[EVENTS_MAX];

	while (!s->ended)
	{
		int timeout_ms = on_time(s);
		int n;

		free_gone(s);
		n = epoll_wait(s->epoll_fd, events, EVENTS_MAX, timeout_ms);
		if (n < 0 && errno != EINTR)
		{
			llm_log(LLM_LOG_ERROR, "epoll: %s", strerror(errno));
			finish(s, LLM_SERVER_BROKEN);
		}
		for (int i = 0; i < n && !s->ended; i++)
			dispatch(s, &events[i]);
		llm_exchange_hand_over(&s->exchange);
	}
	free_gone(s);
}

/* ---- start and end ---- */

static LlmStatus
check_descriptors(const LlmServerOptions *o, LlmError *err)
{
	int listening = 0;
	socklen_t len = sizeof(listening);

	if (getsockopt(o->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) != 0 || !listening)
		return llm_error_set(err, LLM_E_IO, "descriptor %d is not a listening socket",
							 o->listen_fd);
	if (getsockopt(o->control_fd, SOL_SOCKET, SO_TYPE, &listening, &len) != 0 ||
		listening != SOCK_STREAM)
		return llm_error_set(err, LLM_E_IO, "descriptor %d is not the supervisor's socket",
							 o->control_fd);
	if (fcntl(o->listen_fd, F_SETFL, O_NONBLOCK) != 0)
		return llm_error_set(err, LLM_E_IO, "cannot prepare the listening socket: %s",
							 strerror(errno));
	return LLM_OK;
}

/* As many connections as the hard limit lets in: the soft one is made for select(). */
static void
raise_descriptor_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur >= CONNS_MAX + 256)
		return;
	lim.rlim_cur = lim.rlim_max < CONNS_MAX + 256 ? lim.rlim_max : CONNS_MAX + 256;
	if (setrlimit(RLIMIT_NOFILE, &lim) != 0)
		llm_log(LLM_LOG_WARNING, "cannot raise the limit of descriptors: %s", strerror(errno));
}

/* Signals go to a descriptor; the threads that follow inherit the mask. */
static LlmStatus
open_events(Server *s, LlmError *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->control.events = EPOLLIN;
	if (s->signal_fd < 0 || s->epoll_fd < 0 ||
		!watch(s, EPOLL_CTL_ADD, s->signal_fd, EPOLLIN, &s->signal_fd) ||
		!watch(s, EPOLL_CTL_ADD, s->exchange.event_fd, EPOLLIN, &s->exchange) ||
		!watch(s, EPOLL_CTL_ADD, s->control.stream.fd, EPOLLIN, &s->control))
		return llm_error_set(err, LLM_E_IO, "cannot watch descriptors: %s", strerror(errno));
	return LLM_OK;
}

/* End the engine thread; false when it is stuck in a step. */
static bool
stop_engine(Server *s)
{
	LlmCommand *cmd = llm_command_create(LLM_COMMAND_STOP);

	if (cmd == NULL)
		return false;
	llm_exchange_post(&s->exchange, cmd);
	llm_exchange_hand_over(&s->exchange);
	return llm_engine_thread_join(s->engine, STOP_WAIT_MS);
}

static void
server_free(Server *s)
{
	for (int i = 0; i < s->conns_top; i++)
		if (s->conns[i] != NULL)
			llm_conn_free(s->conns[i]);
	llm_stream_fini(&s->control.stream);
	llm_buf_fini(&s->output);
	llm_journal_close(&s->journal);
	llm_exchange_fini(&s->exchange);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	free(s);
}

LlmStatus
llm_server_run(const LlmServerOptions *o, LlmServerEnd *end, LlmError *err)
{
	Server *s;
	LlmStatus st;

	if ((st = check_descriptors(o, err)) != LLM_OK)
		return st;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the server");
	if ((st = llm_exchange_init(&s->exchange, err)) != LLM_OK)
	{
		free(s);
		return st;
	}
	raise_descriptor_limit();
	s->signal_fd = s->epoll_fd = -1;
	s->listen_fd = o->listen_fd;
	s->control.stream.fd = o->control_fd;
	s->host.exchange = &s->exchange;
	if ((st = llm_journal_open(&s->journal, o->journal_fd, err)) == LLM_OK &&
		(st = open_events(s, err)) == LLM_OK)
		st = llm_engine_thread_start(&s->exchange, &s->journal, o->fault, &s->engine, err);
	if (st != LLM_OK)
	{
		server_free(s);
		return st;
	}
	loop(s);
	*end = s->end;
	if (*end != LLM_SERVER_TERMINATED)
		return LLM_OK;
	if (stop_engine(s))
		server_free(s);
	else
	{
		llm_journal_pardon(&s->journal);
		*end = LLM_SERVER_STUCK;
	}
	return LLM_OK;
}
