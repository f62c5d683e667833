/* pg/supervisor.h - the background worker that owns the engine process. */
#ifndef LLM_PG_SUPERVISOR_H
#define LLM_PG_SUPERVISOR_H

/* What an engine that is to be replaced has to end its step, from SIGTERM to SIGKILL. */
#define LLM_SUPERVISOR_END_MS 3000

/* Register the worker; while preloading only, after the settings. */
extern void llm_supervisor_init(void);

#endif
