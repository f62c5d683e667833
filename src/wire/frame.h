/*
 * wire/frame.h - frames on a stream socket: a 4-byte little-endian length, then one Frame of
 * llm.proto. No memory is owned here: the .so keeps bytes in palloc memory, the engine in malloc.
 */
#ifndef LLM_WIRE_FRAME_H
#define LLM_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define LLM_WIRE_VERSION 1
#define LLM_FRAME_HEADER 4
#define LLM_FRAME_MAX ((uint32_t) 64 << 20) /* bytes of a body; a larger one is a broken peer */

/* Descriptors that the engine inherits. */
#define LLM_FD_LISTEN 3
#define LLM_FD_CONTROL 4
#define LLM_FD_JOURNAL 5

/* First flow-control grant of a connection. */
#define LLM_CREDIT_REQUESTS 256
#define LLM_CREDIT_BYTES ((uint64_t) 8 << 20)

typedef enum LlmFramePeek
{
	LLM_FRAME_WHOLE = 0,    /* *body is the body's length; the frame is LLM_FRAME_HEADER + *body */
	LLM_FRAME_PARTIAL = 1,  /* more bytes are needed */
	LLM_FRAME_TOO_LARGE = 2 /* over LLM_FRAME_MAX: close the connection */
} LlmFramePeek;

/* Look at the n bytes received so far. */
LlmFramePeek llm_frame_peek(const void *p, size_t n, uint32_t *body);

/* Write the header for a body of nbytes. */
void llm_frame_header(uint8_t out[LLM_FRAME_HEADER], uint32_t nbytes);

#endif
