/* pg/engine_log.h - lines of the engine's stderr become lines of the server log. */
#ifndef LLM_PG_ENGINE_LOG_H
#define LLM_PG_ENGINE_LOG_H

#include "postgres.h"

#define LLM_ENGINE_LOG_LINE 1024

typedef struct LlmEngineLog
{
	int fd;                         /* non-blocking, owned; -1 = closed */
	int len;                        /* bytes in line */
	char line[LLM_ENGINE_LOG_LINE]; /* the incomplete last line */
	char last_error[256];           /* text of the last ERROR line, '' = none: why it ended */
} LlmEngineLog;

extern void llm_engine_log_open(LlmEngineLog *log, int fd);
extern void llm_engine_log_close(LlmEngineLog *log);

/* Forward what has arrived, a bounded amount; true while there may be more. Closes at the end. */
extern bool llm_engine_log_forward(LlmEngineLog *log);

#endif
