/* server/stream.c - buffered frames over a non-blocking socket. */
#include "server/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE ((size_t) 64 << 10)  /* bytes asked for at once */
#define READ_SHARE ((size_t) 1 << 20)  /* bytes per readiness event, then others have their turn */
#define KEEP_SIZE ((size_t) 256 << 10) /* an empty buffer that is larger is given back */

static void
trim(LlmBuf *b, size_t *pos)
{
	if (*pos < b->len)
		return;
	*pos = 0;
	if (b->cap > KEEP_SIZE)
		llm_buf_fini(b);
	else
		llm_buf_clear(b);
}

/* Move the unparsed rest to the front, so that the buffer stays as large as its largest frame. */
static void
compact(LlmBuf *b, size_t *pos)
{
	if (*pos == 0)
		return;
	memmove(b->data, b->data + *pos, b->len - *pos);
	b->len -= *pos;
	*pos = 0;
}

LlmStreamState
llm_stream_read(LlmStream *s)
{
	size_t share = 0;

	trim(&s->in, &s->in_pos);
	compact(&s->in, &s->in_pos);
	while (share < READ_SHARE && s->in.len < (size_t) LLM_FRAME_MAX + LLM_FRAME_HEADER)
	{
		ssize_t n;

		if (!llm_buf_reserve(&s->in, READ_SIZE))
			return LLM_STREAM_CLOSED;
		n = recv(s->fd, s->in.data + s->in.len, READ_SIZE, MSG_DONTWAIT);
		if (n == 0)
			return LLM_STREAM_CLOSED;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? LLM_STREAM_OPEN : LLM_STREAM_CLOSED;
		s->in.len += (size_t) n;
		share += (size_t) n;
		if ((size_t) n < READ_SIZE)
			break;
	}
	return LLM_STREAM_OPEN;
}

LlmFramePeek
llm_stream_next(LlmStream *s, const uint8_t **body, uint32_t *nbytes)
{
	const uint8_t *p = (const uint8_t *) s->in.data + s->in_pos;
	LlmFramePeek peek;

	if (s->in.len == s->in_pos)
		return LLM_FRAME_PARTIAL;
	peek = llm_frame_peek(p, s->in.len - s->in_pos, nbytes);
	if (peek == LLM_FRAME_WHOLE)
	{
		*body = p + LLM_FRAME_HEADER;
		s->in_pos += LLM_FRAME_HEADER + (size_t) *nbytes;
	}
	return peek;
}

void
llm_stream_appended(LlmStream *s, size_t former_len)
{
	s->n_appended += s->out.len - former_len;
}

LlmStreamState
llm_stream_write(LlmStream *s)
{
	while (s->out_pos < s->out.len)
	{
		ssize_t n = send(s->fd, s->out.data + s->out_pos, s->out.len - s->out_pos,
						 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n < 0)
			return LLM_STREAM_CLOSED;
		s->out_pos += (size_t) n;
		s->n_written += (uint64_t) n;
	}
	trim(&s->out, &s->out_pos);
	if (s->out_pos > KEEP_SIZE && s->out_pos > s->out.len / 2)
		compact(&s->out, &s->out_pos);
	return LLM_STREAM_OPEN;
}

size_t
llm_stream_pending(const LlmStream *s)
{
	return s->out.len - s->out_pos;
}

void
llm_stream_fini(LlmStream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	llm_buf_fini(&s->in);
	llm_buf_fini(&s->out);
	s->in_pos = s->out_pos = 0;
}
