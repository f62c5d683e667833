/* server/outbox.h - answers of a turn of the engine thread, encoded, on their way to the I/O thread. */
#ifndef LLM_SERVER_OUTBOX_H
#define LLM_SERVER_OUTBOX_H

#include <stdbool.h>

#include "core/str.h"
#include "server/exchange.h"

/* Zero-initialise; free out. Without memory for an answer the process must end: its clients ask the
 * next one. */
typedef struct LlmOutbox
{
	LlmBuf out;  /* records and frames, see exchange.h */
	bool failed; /* memory was out */
} LlmOutbox;

void llm_outbox_error(LlmOutbox *o, LlmRequestKey key, const LlmError *e);
void llm_outbox_done(LlmOutbox *o, LlmRequestKey key, uint64_t numerics_key);
void llm_outbox_text(LlmOutbox *o, LlmRequestKey key, LlmStr piece);
void llm_outbox_result(LlmOutbox *o, const LlmResult *r, bool streamed);
void llm_outbox_stats(LlmOutbox *o, LlmRequestKey key, const LlmServerStats *s,
					  const LlmPrefixRow *rows, int32_t n_rows);

#endif
