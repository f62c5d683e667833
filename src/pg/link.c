/* pg/link.c - frames over a non-blocking socket, in palloc memory. */
#include "postgres.h"

#include "pg/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include "utils/memutils.h"
#include "wire/frame.h"

#define READ_NBYTES 65536

/* A buffer that once held a large frame is given back when it is empty. */
#define KEEP_NBYTES (1024 * 1024)

static void *
frame_alloc(void *data, size_t n)
{
	return MemoryContextAllocHuge(data, n);
}

/* Frames are freed by resetting their context. */
static void
frame_free(void *data, void *p)
{
}

ProtobufCAllocator
llm_link_allocator(MemoryContext cxt)
{
	return (ProtobufCAllocator){frame_alloc, frame_free, cxt};
}

void
llm_link_open(LlmLink *link, int fd, MemoryContext parent)
{
	MemoryContext old;

	llm_link_close(link);
	link->cxt = AllocSetContextCreate(parent, "llm_infer link", ALLOCSET_DEFAULT_SIZES);
	link->frame = AllocSetContextCreate(link->cxt, "llm_infer frame", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(link->cxt);
	initStringInfo(&link->in);
	initStringInfo(&link->out);
	MemoryContextSwitchTo(old);
	link->fd = fd;
}

void
llm_link_close(LlmLink *link)
{
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
	if (link->cxt)
		MemoryContextDelete(link->cxt);
	link->cxt = link->frame = NULL;
}

bool
llm_link_append(LlmLink *link, const Llm__Frame *frame)
{
	size_t n = llm__frame__get_packed_size(frame);
	uint8 *p;

	if (n > LLM_FRAME_MAX)
		return false;
	enlargeStringInfo(&link->out, (int) n + LLM_FRAME_HEADER);
	p = (uint8 *) link->out.data + link->out.len;
	llm_frame_header(p, (uint32_t) n);
	llm__frame__pack(frame, p + LLM_FRAME_HEADER);
	link->out.len += (int) n + LLM_FRAME_HEADER;
	return true;
}

Size
llm_link_unsent(const LlmLink *link)
{
	return link->fd >= 0 ? (Size) (link->out.len - link->out.cursor) : 0;
}

/* Drop the bytes before the cursor; give a huge buffer back when nothing is left. */
static void
compact(LlmLink *link, StringInfo s)
{
	int left = s->len - s->cursor;

	if (left > 0)
		memmove(s->data, s->data + s->cursor, left);
	else if (s->maxlen > KEEP_NBYTES)
	{
		MemoryContext old = MemoryContextSwitchTo(link->cxt);

		pfree(s->data);
		initStringInfo(s);
		MemoryContextSwitchTo(old);
	}
	s->len = left;
	s->cursor = 0;
	s->data[left] = '\0';
}

bool
llm_link_flush(LlmLink *link)
{
	StringInfo out = &link->out;

	while (out->cursor < out->len)
	{
		ssize_t n = send(link->fd, out->data + out->cursor, out->len - out->cursor, MSG_NOSIGNAL);

		if (n > 0)
			out->cursor += (int) n;
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		else
			return false;
	}
	/* Moving the rest at every partial write would be quadratic for a large frame. */
	if (out->cursor == out->len || out->cursor > KEEP_NBYTES)
		compact(link, out);
	return true;
}

bool
llm_link_fill(LlmLink *link)
{
	/* Bounded, so that a fast peer cannot keep the caller from its other work. */
	for (int turns = 0; turns < 64; turns++)
	{
		ssize_t n;

		enlargeStringInfo(&link->in, READ_NBYTES);
		n = recv(link->fd, link->in.data + link->in.len, READ_NBYTES, 0);
		if (n > 0)
		{
			link->in.len += (int) n;
			if (n < READ_NBYTES)
				return true;
		}
		else if (n < 0 && errno == EINTR)
			continue;
		else
			return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
	}
	return true;
}

const Llm__Frame *
llm_link_next(LlmLink *link, bool *bad)
{
	ProtobufCAllocator alloc = llm_link_allocator(link->frame);
	const uint8 *p = (const uint8 *) link->in.data + link->in.cursor;
	const Llm__Frame *frame;
	uint32_t body;

	*bad = false;
	switch (llm_frame_peek(p, link->in.len - link->in.cursor, &body))
	{
		case LLM_FRAME_PARTIAL:
			if (link->in.cursor > 0)
				compact(link, &link->in);
			MemoryContextReset(link->frame); /* a large answer is not kept in it */
			return NULL;
		case LLM_FRAME_TOO_LARGE:
			*bad = true;
			return NULL;
		case LLM_FRAME_WHOLE:
			break;
	}
	MemoryContextReset(link->frame);
	link->in.cursor += (int) (LLM_FRAME_HEADER + body);
	frame = llm__frame__unpack(&alloc, body, p + LLM_FRAME_HEADER);
	*bad = frame == NULL;
	return frame;
}
