/* pg/supervisor.h - the background worker that owns the engine process. */
#ifndef LLM_PG_SUPERVISOR_H
#define LLM_PG_SUPERVISOR_H

/* Register the worker; while preloading only, after the settings. */
extern void llm_supervisor_init(void);

#endif
