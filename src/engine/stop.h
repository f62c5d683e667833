/*
 * engine/stop.h - stop strings: where a text ends, and how much of it may be shown already.
 *
 * The text is read byte by byte, so the result is the same however tokens cut it. It ends at the
 * first byte that completes a stop string; when one byte completes several, the longest counts. The
 * stop string itself is not part of the text. A tail that may be the beginning of a stop string is
 * held back until the next bytes decide. (Knuth, Morris, Pratt 1977, one automaton per string.)
 */
#ifndef LLM_ENGINE_STOP_H
#define LLM_ENGINE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"
#include "engine/llm.h"

/* One stop string and how many of its bytes the text ends with. */
typedef struct LlmStopString
{
	const char *p;       /* [len] owned by LlmStop.memory */
	const int16_t *back; /* [len] longest proper border of p[0..i] */
	int32_t len;
	int32_t matched;
} LlmStopString;

/* Zero-initialise: no stop strings. */
typedef struct LlmStop
{
	LlmStopString strings[LLM_STOPS_MAX];
	int32_t n;
	size_t scanned; /* bytes of the text read so far */
	void *memory;   /* owned */
} LlmStop;

/* Copies the strings. LLM_E_INVALID for a wrong number or length, LLM_E_ENCODING for bytes that are
 * not UTF-8, LLM_E_MEMORY. On failure there is nothing to free. */
LlmStatus llm_stop_init(LlmStop *s, const LlmStr *strings, int32_t n, LlmError *err);
void llm_stop_fini(LlmStop *s);

/* Read what was appended to text since the last call. True when a stop string is complete and may_end
 * is true: text then ends before it, and the call must not be made again. While may_end is false, a
 * complete stop string is text like any other; its tail may still begin another one. */
bool llm_stop_scan(LlmStop *s, LlmBuf *text, bool may_end);

/* How many bytes at the beginning of the scanned text can no longer be part of a stop string. Whole
 * characters when the text is. */
size_t llm_stop_safe(const LlmStop *s);

#endif
