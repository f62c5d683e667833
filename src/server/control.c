/* server/control.c - SETTINGS, PING and STATE. */
#include "server/control.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "server/codec.h"

/* seq NULL = not the answer to a PING. */
static void
tell_state(LlmControl *c, LlmExchange *x, int n_connections, const uint64_t *seq)
{
	LlmServerState s;
	Llm__State m = LLM__STATE__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	size_t former = c->stream.out.len;

	llm_exchange_state(x, &s);
	m.has_seq = seq != NULL;
	m.seq = seq != NULL ? *seq : 0;
	m.busy = llm_exchange_busy(x, &m.progress);
	m.has_ready = true;
	m.ready = s.ready;
	m.has_connections = true;
	m.connections = n_connections;
	m.message = s.message[0] == '\0' ? NULL : s.message;
	f.body_case = LLM__FRAME__BODY_STATE;
	f.state = &m;
	if (!llm_codec_append(&c->stream.out, &f))
		return; /* the next PING asks again */
	llm_stream_appended(&c->stream, former);
	c->state_version = s.version;
}

/* The engine's options; NULL when memory is out. */
static LlmServerSettings *
decode_settings(const Llm__Settings *m)
{
	LlmServerSettings *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->model_dir = strdup(m->model_dir == NULL ? "." : m->model_dir);
	s->devices = strdup(m->devices == NULL ? "auto" : m->devices);
	if (s->model_dir == NULL || s->devices == NULL)
	{
		llm_settings_free(s);
		return NULL;
	}
	s->options = llm_engine_options_default();
	s->options.model_dir = s->model_dir;
	s->options.devices = s->devices;
	if (m->has_threads)
		s->options.threads = m->threads;
	if (m->has_kv_nbytes)
		s->options.kv_nbytes = m->kv_nbytes;
	if (m->has_max_batch_tokens)
		s->options.max_batch_tokens = m->max_batch_tokens;
	if (m->has_max_running)
		s->options.max_running = m->max_running;
	if (m->has_memory_limit)
		s->options.memory_limit = m->memory_limit;
	if (m->has_prefix_cache)
		s->options.prefix_cache = m->prefix_cache;
	return s;
}

static bool
on_settings(LlmControl *c, LlmConnHost *host, const Llm__Settings *m)
{
	LlmCommand *cmd = llm_command_create(LLM_COMMAND_SETTINGS);

	if (cmd == NULL || (cmd->settings = decode_settings(m)) == NULL)
	{
		llm_log(LLM_LOG_ERROR, "out of memory for settings");
		free(cmd);
		return false;
	}
	host->cookie = m->cookie;
	host->generation = m->generation;
	host->prefix_scope = m->has_prefix_scope ? m->prefix_scope : LLM__PREFIX_SCOPE__SCOPE_ROLE;
	llm_exchange_post(host->exchange, cmd);
	c->has_settings = true;
	return true;
}

bool
llm_control_readable(LlmControl *c, LlmConnHost *host, int n_connections)
{
	LlmFramePeek peek;
	const uint8_t *body;
	uint32_t nbytes;
	bool ok = true;

	if (llm_stream_read(&c->stream) == LLM_STREAM_CLOSED)
		return false;
	while (ok && (peek = llm_stream_next(&c->stream, &body, &nbytes)) != LLM_FRAME_PARTIAL)
	{
		Llm__Frame *f = peek == LLM_FRAME_WHOLE ? llm_codec_unpack(body, nbytes) : NULL;

		if (f != NULL && f->body_case == LLM__FRAME__BODY_SETTINGS)
			ok = on_settings(c, host, f->settings);
		else if (f != NULL && f->body_case == LLM__FRAME__BODY_PING)
			tell_state(c, host->exchange, n_connections, &f->ping->seq);
		else
		{
			llm_log(LLM_LOG_ERROR, "the supervisor has sent a frame that is not one of ours");
			ok = false;
		}
		llm_codec_free(f);
	}
	return ok;
}

bool
llm_control_writable(LlmControl *c)
{
	return llm_stream_write(&c->stream) == LLM_STREAM_OPEN;
}

void
llm_control_tell_change(LlmControl *c, LlmExchange *x, int n_connections)
{
	LlmServerState s;

	llm_exchange_state(x, &s);
	if (s.version != c->state_version)
		tell_state(c, x, n_connections, NULL);
}
