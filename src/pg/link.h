/*
 * pg/link.h - one framed, non-blocking stream: whole frames in, whole frames out.
 *
 * Used by a backend's connection and by the supervisor's control descriptor. Buffers live in the
 * link's own memory context for as long as the link is open; a frame that was appended stays whole,
 * so that a partial write goes on later.
 */
#ifndef LLM_PG_LINK_H
#define LLM_PG_LINK_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "llm.pb-c.h"

typedef struct LlmLink
{
	int fd;              /* -1 = closed; owned */
	MemoryContext cxt;   /* of the buffers and the last frame; NULL = closed */
	MemoryContext frame; /* of the last frame, below cxt */
	StringInfoData in;   /* bytes received, from in.cursor on */
	StringInfoData out;  /* bytes to send, from out.cursor on */
} LlmLink;

/* Take over fd (non-blocking; -1 = it is set later). parent must live as long as the link. What an
 * attempt that ended by an error has left is freed. */
extern void llm_link_open(LlmLink *link, int fd, MemoryContext parent);
/* Close fd and free the buffers; a closed link stays closed. */
extern void llm_link_close(LlmLink *link);

/* Append one frame. False when it is larger than LLM_FRAME_MAX. */
extern bool llm_link_append(LlmLink *link, const Llm__Frame *frame);
/* Bytes that wait to be sent. */
extern Size llm_link_unsent(const LlmLink *link);

/* Send and receive what goes without blocking. False when the peer is gone (bytes received before
 * can still be taken). */
extern bool llm_link_flush(LlmLink *link);
extern bool llm_link_fill(LlmLink *link);

/* The next whole frame, valid until the next call; NULL when there is none. *bad is set when the
 * bytes are no frame: the link must be closed then. */
extern const Llm__Frame *llm_link_next(LlmLink *link, bool *bad);

/* Unpacked messages in cxt: they are freed by resetting it, never one by one. */
extern ProtobufCAllocator llm_link_allocator(MemoryContext cxt);

#endif
