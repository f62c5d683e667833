/* server/server.h - `llm_infer_engine serve`: the engine as a service of one PostgreSQL cluster. */
#ifndef LLM_SERVER_SERVER_H
#define LLM_SERVER_SERVER_H

#include "core/status.h"

typedef struct LlmServerOptions
{
	int listen_fd;     /* listening AF_UNIX stream socket */
	int control_fd;    /* connected socket to the supervisor */
	int journal_fd;    /* the crash journal, see wire/journal.h */
	const char *fault; /* NULL, or a fault of the echo device for tests */
} LlmServerOptions;

typedef enum LlmServerEnd
{
	LLM_SERVER_TERMINATED = 0, /* SIGTERM; everything is freed */
	LLM_SERVER_STUCK = 1,      /* SIGTERM, but a step does not end: leave by _exit */
	LLM_SERVER_ORPHANED = 2,   /* the supervisor is gone: leave by _exit */
	LLM_SERVER_BROKEN = 3      /* the engine cannot go on; the log says why: leave by _exit */
} LlmServerEnd;

/* Serve until told to end. Call with one thread and default signal dispositions; blocks SIGTERM and
 * ignores SIGPIPE. Errors (of the descriptors): LLM_E_IO, LLM_E_MEMORY. */
LlmStatus llm_server_run(const LlmServerOptions *o, LlmServerEnd *end, LlmError *err);

#endif
