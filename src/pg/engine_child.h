/* pg/engine_child.h - the engine process as a child of the supervisor. */
#ifndef LLM_PG_ENGINE_CHILD_H
#define LLM_PG_ENGINE_CHILD_H

#include "postgres.h"

typedef struct LlmEngineChild
{
	pid_t pid;      /* 0 = none */
	int control_fd; /* supervisor's end of the control socket, non-blocking; -1 = taken or none */
	int log_fd;     /* read end of the engine's stderr, non-blocking; -1 = taken or none */
} LlmEngineChild;

/* A memfd for an LlmJournal, which the first engine makes; -1 with errno set. */
extern int llm_engine_child_journal(void);

/* Fork and exec the engine with the listening socket and the journal. False with the reason in why
 * [n_why]. The child has default signals, dies with this process, and is what the out-of-memory
 * killer takes first. */
extern bool llm_engine_child_start(LlmEngineChild *child, int listen_fd, int journal_fd, char *why,
								   Size n_why);

/* Signal it, when it is there; its death is seen by llm_engine_child_reap. */
extern void llm_engine_child_signal(const LlmEngineChild *child, int signal);

/* True when the child has ended; how [n_how] says how, and *killed that it was by SIGKILL. Never blocks.
 * Leaves the descriptors. */
extern bool llm_engine_child_reap(LlmEngineChild *child, char *how, Size n_how, bool *killed);

/* Note in the journal that somebody else killed the child that has ended. */
extern void llm_engine_child_excuse(int journal_fd);

#endif
