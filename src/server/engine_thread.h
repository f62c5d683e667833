/* server/engine_thread.h - the thread that owns the LlmEngine: it submits, loads, steps, answers. */
#ifndef LLM_SERVER_ENGINE_THREAD_H
#define LLM_SERVER_ENGINE_THREAD_H

#include "server/exchange.h"
#include "server/crash_marks.h"

typedef struct LlmEngineThread LlmEngineThread;

/* Start it. x and journal are used until llm_engine_thread_join has succeeded; fault (NULL = none)
 * is borrowed for as long. Errors: LLM_E_MEMORY. */
LlmStatus llm_engine_thread_start(LlmExchange *x, LlmJournalWriter *journal, const char *fault,
								  LlmEngineThread **out, LlmError *err);

/* Wait at most timeout_ms for a thread that was told to stop (LLM_COMMAND_STOP), then free it with
 * its engine. False when it is still in a step: everything must then be left as it is. */
bool llm_engine_thread_join(LlmEngineThread *w, int timeout_ms);

#endif
