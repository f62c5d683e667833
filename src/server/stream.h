/* server/stream.h - frames over a non-blocking socket: bytes read but not parsed, and encoded but
 * not yet written. Owned by the I/O thread. */
#ifndef LLM_SERVER_STREAM_H
#define LLM_SERVER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/str.h"
#include "wire/frame.h"

typedef enum LlmStreamState
{
	LLM_STREAM_OPEN = 0,
	LLM_STREAM_CLOSED = 1 /* end of file, a socket error, or memory is out */
} LlmStreamState;

/* Zero-initialise and set fd. */
typedef struct LlmStream
{
	int fd;              /* owned */
	LlmBuf in;           /* received; at most one frame of LLM_FRAME_MAX and one read more */
	size_t in_pos;       /* parsed bytes of in */
	LlmBuf out;          /* encoded */
	size_t out_pos;      /* written bytes of out */
	uint64_t n_appended; /* bytes ever put into out */
	uint64_t n_written;  /* of them, given to the kernel */
} LlmStream;

/* Read what is there, up to a share that is fair to other connections. */
LlmStreamState llm_stream_read(LlmStream *s);

/* The next whole frame; its body is borrowed until the next call of llm_stream_read. */
LlmFramePeek llm_stream_next(LlmStream *s, const uint8_t **body, uint32_t *nbytes);

/* Encoders append to this buffer; call llm_stream_appended with its former length afterwards. */
void llm_stream_appended(LlmStream *s, size_t former_len);

/* Write what the socket takes. */
LlmStreamState llm_stream_write(LlmStream *s);

/* Bytes waiting to be written. */
size_t llm_stream_pending(const LlmStream *s);

void llm_stream_fini(LlmStream *s); /* closes fd */

#endif
