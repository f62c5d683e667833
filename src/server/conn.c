/* server/conn.c - the protocol of one connection; see conn.h for its rules. */
#include "server/conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "server/codec.h"

/* ---- answers of the I/O thread itself ---- */

static void
conn_fail(LlmConn *c, const LlmError *e)
{
	size_t former = c->stream.out.len;

	if (c->state == LLM_CONN_CLOSING)
		return;
	llm_log(LLM_LOG_WARNING, "connection closed: %s", e->text);
	llm_codec_append_error(&c->stream.out, 0, e);
	llm_stream_appended(&c->stream, former);
	c->state = LLM_CONN_CLOSING;
}

static void
conn_fail_memory(LlmConn *c)
{
	LlmError e;

	llm_error_set(&e, LLM_E_MEMORY, "out of memory for a connection");
	conn_fail(c, &e);
}

/* ---- what is in flight ---- */

static LlmInFlight *
in_flight_find(LlmConn *c, uint64_t id)
{
	for (int i = 0; i < c->n_in_flight; i++)
		if (c->in_flight[i].id == id)
			return &c->in_flight[i];
	return NULL;
}

static void
in_flight_remove(LlmConn *c, LlmInFlight *f)
{
	c->n_submits -= f->nbytes > 0;
	c->n_answered -= f->answered_at > 0;
	c->nbytes -= f->nbytes;
	*f = c->in_flight[--c->n_in_flight];
}

/* Note a request. False: a rule is broken, and the connection is CLOSING. nbytes 0 = not a SUBMIT. */
static bool
in_flight_add(LlmConn *c, uint64_t id, uint32_t nbytes)
{
	int n_control = c->n_in_flight - c->n_submits;
	LlmError e;

	if (id == 0)
		llm_error_set(&e, LLM_E_PROTOCOL, "a request without a number");
	else if (in_flight_find(c, id) != NULL)
		llm_error_set(&e, LLM_E_PROTOCOL, "request %llu is in flight already",
					  (unsigned long long) id);
	else if (nbytes > 0 && c->n_submits >= LLM_CREDIT_REQUESTS)
		llm_error_set(&e, LLM_E_PROTOCOL, "more than %d requests without an answer",
					  LLM_CREDIT_REQUESTS);
	else if (nbytes > 0 && c->n_submits > 0 && c->nbytes + nbytes > LLM_CONN_BYTES_MAX)
		llm_error_set(&e, LLM_E_PROTOCOL, "more than %llu bytes of requests without an answer",
					  (unsigned long long) LLM_CONN_BYTES_MAX);
	else if (nbytes == 0 && n_control >= LLM_CONN_CONTROL_MAX)
		llm_error_set(&e, LLM_E_PROTOCOL, "more than %d loads and questions without an answer",
					  LLM_CONN_CONTROL_MAX);
	else
	{
		c->in_flight[c->n_in_flight++] = (LlmInFlight){id, 0, nbytes};
		c->n_submits += nbytes > 0;
		c->nbytes += nbytes;
		return true;
	}
	conn_fail(c, &e);
	return false;
}

/* The answer to id has just been appended to the stream. */
static void
in_flight_answered(LlmConn *c, LlmInFlight *f)
{
	f->answered_at = c->stream.n_appended;
	c->n_answered++;
}

/* Give back the credits of answers that have been written. */
static void
in_flight_release(LlmConn *c)
{
	if (c->n_answered == 0)
		return;
	for (int i = c->n_in_flight - 1; i >= 0; i--)
	{
		uint64_t at = c->in_flight[i].answered_at;

		if (at > 0 && at <= c->stream.n_written)
			in_flight_remove(c, &c->in_flight[i]);
	}
}

/* ---- models ---- */

static LlmSpec *
handle_find(const LlmConn *c, uint32_t model)
{
	for (int i = 0; i < c->n_handles; i++)
		if (c->handles[i].model == model)
			return c->handles[i].spec;
	return NULL;
}

/* Name spec (reference taken over) by a handle. */
static LlmStatus
handle_set(LlmConn *c, uint32_t model, LlmSpec *spec, LlmError *err)
{
	LlmHandle *grown;

	for (int i = 0; i < c->n_handles; i++)
		if (c->handles[i].model == model)
		{
			llm_spec_release(c->handles[i].spec);
			c->handles[i].spec = spec;
			return LLM_OK;
		}
	if (c->n_handles >= LLM_CONN_MODELS_MAX)
	{
		llm_spec_release(spec);
		return llm_error_set(err, LLM_E_PROTOCOL, "more than %d models on a connection",
							 LLM_CONN_MODELS_MAX);
	}
	grown = realloc(c->handles, ((size_t) c->n_handles + 1) * sizeof(*grown));
	if (grown == NULL)
	{
		llm_spec_release(spec);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a connection");
	}
	c->handles = grown;
	c->handles[c->n_handles++] = (LlmHandle){model, spec};
	return LLM_OK;
}

/* ---- frames ---- */

/* What a SUBMIT brings: the request borrows from frame and lists. */
typedef struct Submission
{
	Llm__Frame *frame;
	void *lists;
	LlmRequest request;
} Submission;

/* Hand a ticket to the engine thread; the memory of s (NULL = not a SUBMIT) is taken over when true is
 * returned. */
static bool
post_ticket(LlmConn *c, const LlmConnHost *h, LlmTicketKind kind, uint64_t id, LlmSpec *spec,
			const Submission *s)
{
	LlmRequestKey key = {c->serial, id};
	LlmCommand *cmd = llm_command_create(LLM_COMMAND_TICKET);
	LlmTicket *t =
		cmd == NULL ? NULL : llm_ticket_create(kind, key, spec, s == NULL ? NULL : s->frame);

	if (t == NULL)
	{
		free(cmd);
		conn_fail_memory(c);
		return false;
	}
	t->connection = c->connection;
	if (s != NULL)
	{
		t->lists = s->lists;
		t->request = s->request;
	}
	t->request.key = key;
	cmd->ticket = t;
	llm_exchange_post(h->exchange, cmd);
	return true;
}

static void
on_hello(LlmConn *c, const LlmConnHost *h, const Llm__Hello *m)
{
	Llm__Welcome w = LLM__WELCOME__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	size_t former = c->stream.out.len;
	LlmError e;

	if (c->state != LLM_CONN_HELLO)
		llm_error_set(&e, LLM_E_PROTOCOL, "a second HELLO");
	else if (m->version == 0 || m->version > LLM_WIRE_VERSION || m->version + 1 < LLM_WIRE_VERSION)
	{
		llm_error_set(&e, LLM_E_PROTOCOL, "protocol version %u is not served, this engine has %d",
					  m->version, LLM_WIRE_VERSION);
		llm_error_numbers(&e, m->version, LLM_WIRE_VERSION);
		llm_error_hint(&e, "The session is of another version of the extension. Reconnect.");
	}
	else if (m->cookie != h->cookie)
		llm_error_set(&e, LLM_E_PROTOCOL, "the cookie is not that of this cluster");
	else
	{
		c->connection = m->connection;
		c->state = LLM_CONN_OPEN;
		c->greeted = true;
		w.version = m->version;
		w.generation = h->generation;
		w.credit_requests = LLM_CREDIT_REQUESTS;
		w.credit_bytes = LLM_CREDIT_BYTES;
		w.build = LLM_VERSION;
		f.body_case = LLM__FRAME__BODY_WELCOME;
		f.welcome = &w;
		if (!llm_codec_append(&c->stream.out, &f))
			conn_fail_memory(c);
		llm_stream_appended(&c->stream, former);
		return;
	}
	conn_fail(c, &e);
}

static void
on_load(LlmConn *c, const LlmConnHost *h, const Llm__Load *m)
{
	LlmSpec *spec;
	LlmError e;

	if (llm_spec_create(m->spec, &spec, &e) != LLM_OK ||
		handle_set(c, m->model, spec, &e) != LLM_OK)
	{
		conn_fail(c, &e);
		return;
	}
	if (m->has_now && m->now && in_flight_add(c, m->id, 0))
		post_ticket(c, h, LLM_TICKET_LOAD, m->id, spec, NULL);
}

static void
on_unload(LlmConn *c, const LlmConnHost *h, const Llm__Unload *m)
{
	LlmSpec *spec;
	LlmError e;

	if (llm_spec_create(m->spec, &spec, &e) != LLM_OK)
	{
		conn_fail(c, &e);
		return;
	}
	if (in_flight_add(c, m->id, 0))
		post_ticket(c, h, LLM_TICKET_UNLOAD, m->id, spec, NULL);
	llm_spec_release(spec);
}

/* True when the frame was taken over. */
static bool
on_submit(LlmConn *c, const LlmConnHost *h, Llm__Frame *f, uint32_t nbytes)
{
	const Llm__Submit *m = f->submit;
	LlmSpec *spec = handle_find(c, m->model);
	Submission s = {.frame = f};
	LlmError e;
	LlmStatus st = llm_codec_request(m, h->prefix_scope, &s.request, &s.lists, &e);
	bool posted;

	if (spec == NULL)
		st = llm_error_set(&e, LLM_E_PROTOCOL, "model handle %u was never loaded", m->model);
	if (st == LLM_E_PROTOCOL)
		conn_fail(c, &e);
	if (st == LLM_E_PROTOCOL || !in_flight_add(c, m->id, nbytes))
	{
		free(s.lists);
		return false;
	}
	if (st != LLM_OK)
	{
		size_t former = c->stream.out.len;

		if (!llm_codec_append_error(&c->stream.out, m->id, &e))
			conn_fail_memory(c);
		llm_stream_appended(&c->stream, former);
		in_flight_answered(c, in_flight_find(c, m->id));
		return false;
	}
	posted = post_ticket(c, h, LLM_TICKET_SUBMIT, m->id, spec, &s);
	if (!posted)
		free(s.lists);
	return posted;
}

static void
on_cancel(LlmConn *c, const LlmConnHost *h, const Llm__Cancel *m)
{
	LlmInFlight *f = in_flight_find(c, m->id);
	LlmCommand *cmd;

	if (f == NULL)
		return;
	if (f->answered_at > 0)
	{
		in_flight_remove(c, f); /* the answer is in our buffer; the client will drop it */
		return;
	}
	cmd = llm_command_create(LLM_COMMAND_CANCEL);
	if (cmd == NULL)
	{
		conn_fail_memory(c);
		return;
	}
	cmd->key = (LlmRequestKey){c->serial, m->id};
	in_flight_remove(c, f);
	llm_exchange_post(h->exchange, cmd);
}

/* The engine thread answers: it alone may look into the prefix caches. */
static void
ask_prefixes(LlmConn *c, const LlmConnHost *h, const Llm__StatsRequest *m)
{
	LlmCommand *cmd = llm_command_create(LLM_COMMAND_STATS);

	if (cmd == NULL)
	{
		conn_fail_memory(c);
		return;
	}
	cmd->key = (LlmRequestKey){c->serial, m->id};
	cmd->all_prefixes = !m->has_database;
	cmd->database = m->database;
	cmd->role = m->has_role ? m->role : 0;
	llm_exchange_post(h->exchange, cmd);
}

static void
on_stats(LlmConn *c, const LlmConnHost *h, const Llm__StatsRequest *m)
{
	LlmServerStats s;
	size_t former = c->stream.out.len;

	if (!in_flight_add(c, m->id, 0))
		return;
	if (m->has_prefixes && m->prefixes)
	{
		ask_prefixes(c, h, m);
		return;
	}
	llm_exchange_stats(h->exchange, &s);
	if (!llm_server_stats_append(&c->stream.out, m->id, &s, NULL, 0))
		conn_fail_memory(c);
	llm_server_stats_clear(&s);
	llm_stream_appended(&c->stream, former);
	in_flight_answered(c, in_flight_find(c, m->id));
}

/* True when the frame was taken over. */
static bool
on_frame(LlmConn *c, const LlmConnHost *h, Llm__Frame *f, uint32_t nbytes)
{
	LlmError e;

	if (c->state == LLM_CONN_HELLO && f->body_case != LLM__FRAME__BODY_HELLO)
	{
		llm_error_set(&e, LLM_E_PROTOCOL, "the first frame is not HELLO");
		conn_fail(c, &e);
		return false;
	}
	switch (f->body_case)
	{
		case LLM__FRAME__BODY_HELLO:
			on_hello(c, h, f->hello);
			return false;
		case LLM__FRAME__BODY_LOAD:
			on_load(c, h, f->load);
			return false;
		case LLM__FRAME__BODY_UNLOAD:
			on_unload(c, h, f->unload);
			return false;
		case LLM__FRAME__BODY_SUBMIT:
			return on_submit(c, h, f, nbytes);
		case LLM__FRAME__BODY_CANCEL:
			on_cancel(c, h, f->cancel);
			return false;
		case LLM__FRAME__BODY_STATS:
			on_stats(c, h, f->stats);
			return false;
		default:
			llm_error_set(&e, LLM_E_PROTOCOL, "a frame that no client sends: number %d",
						  (int) f->body_case);
			conn_fail(c, &e);
			return false;
	}
}

/* ---- the socket ---- */

LlmConn *
llm_conn_create(int fd, uint64_t serial)
{
	LlmConn *c = calloc(1, sizeof(*c));
	struct ucred peer;
	socklen_t len = sizeof(peer);
	LlmError e;

	if (c == NULL)
	{
		close(fd);
		return NULL;
	}
	c->stream.fd = fd;
	c->serial = serial;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid != geteuid())
	{
		llm_error_set(&e, LLM_E_PROTOCOL, "the peer is another user of the operating system");
		conn_fail(c, &e);
	}
	return c;
}

void
llm_conn_free(LlmConn *c)
{
	llm_stream_fini(&c->stream);
	for (int i = 0; i < c->n_handles; i++)
		llm_spec_release(c->handles[i].spec);
	free(c->handles);
	free(c);
}

bool
llm_conn_readable(LlmConn *c, const LlmConnHost *h)
{
	LlmFramePeek peek = LLM_FRAME_PARTIAL;
	const uint8_t *body;
	uint32_t nbytes;
	LlmError e;

	if (llm_stream_read(&c->stream) == LLM_STREAM_CLOSED)
		return false;
	while (c->state != LLM_CONN_CLOSING &&
		   (peek = llm_stream_next(&c->stream, &body, &nbytes)) == LLM_FRAME_WHOLE)
	{
		Llm__Frame *f = llm_codec_unpack(body, nbytes);

		if (f == NULL || f->body_case == LLM__FRAME__BODY__NOT_SET)
		{
			llm_error_set(&e, LLM_E_PROTOCOL, "a frame of %u bytes that is not one of ours",
						  nbytes);
			conn_fail(c, &e);
		}
		if (f == NULL || c->state == LLM_CONN_CLOSING || !on_frame(c, h, f, nbytes))
			llm_codec_free(f);
	}
	if (peek == LLM_FRAME_TOO_LARGE)
	{
		llm_error_set(&e, LLM_E_PROTOCOL, "a frame of more than %u bytes", LLM_FRAME_MAX);
		conn_fail(c, &e);
	}
	return true;
}

bool
llm_conn_writable(LlmConn *c)
{
	if (llm_stream_write(&c->stream) == LLM_STREAM_CLOSED)
		return false;
	in_flight_release(c);
	if (llm_stream_pending(&c->stream) > LLM_CONN_OUTPUT_MAX)
	{
		llm_log(LLM_LOG_WARNING, "connection closed: it leaves its answers unread");
		return false;
	}
	return c->state != LLM_CONN_CLOSING || llm_stream_pending(&c->stream) > 0;
}

void
llm_conn_deliver(LlmConn *c, const LlmOutRecord *r, const char *frame)
{
	LlmInFlight *f = in_flight_find(c, r->key.id);
	size_t former = c->stream.out.len;

	if (f == NULL || f->answered_at > 0 || c->state == LLM_CONN_CLOSING)
		return;
	if (!llm_buf_append(&c->stream.out, frame, r->nbytes))
	{
		conn_fail_memory(c);
		return;
	}
	llm_stream_appended(&c->stream, former);
	if (r->final)
		in_flight_answered(c, f);
}
