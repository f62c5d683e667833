/* wire/frame.c - the four bytes before a frame. */
#include "wire/frame.h"

LlmFramePeek
llm_frame_peek(const void *p, size_t n, uint32_t *body)
{
	const uint8_t *b = p;
	uint32_t len;

	if (n < LLM_FRAME_HEADER)
		return LLM_FRAME_PARTIAL;
	len = (uint32_t) b[0] | (uint32_t) b[1] << 8 | (uint32_t) b[2] << 16 | (uint32_t) b[3] << 24;
	if (len > LLM_FRAME_MAX)
		return LLM_FRAME_TOO_LARGE;
	*body = len;
	return n - LLM_FRAME_HEADER < len ? LLM_FRAME_PARTIAL : LLM_FRAME_WHOLE;
}

void
llm_frame_header(uint8_t out[LLM_FRAME_HEADER], uint32_t nbytes)
{
	for (int i = 0; i < LLM_FRAME_HEADER; i++)
		out[i] = (uint8_t) (nbytes >> (8 * i));
}
