/*
 * pg/subxact.h - try a step in a subtransaction of its own.
 */
#ifndef LLM_PG_SUBXACT_H
#define LLM_PG_SUBXACT_H

/* Runs step(arg) in a subtransaction, which is released, or rolled back when it fails. Returns its error,
 * a copy in the current memory context; NULL = none. Errors of the server's state (SQLSTATE classes 53,
 * 57 and 58) say nothing about what the step was given: they are raised. Memory context and resource owner
 * are the caller's again; requests in flight belong to the outer level and do not notice. */
extern ErrorData *llm_subxact_try(void (*step)(void *arg), void *arg);

/* The same, and those errors are returned too. */
extern ErrorData *llm_subxact_try_all(void (*step)(void *arg), void *arg);

#endif
