/*
 * pg/error.h - failures of calls: kept as values until their row is due, then raised.
 *
 * The only place where an LlmStatus becomes an SQLSTATE.
 */
#ifndef LLM_PG_ERROR_H
#define LLM_PG_ERROR_H

#include "postgres.h"

#include "core/status.h"

/* PostgreSQL's own macro names the compiler that the server was built with. */
#define LLM_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Strings are palloc'd where they were set, in the database's encoding. */
typedef struct LlmFailure
{
	int sqlstate;  /* 0 = no failure */
	char *message; /* lower case, no period */
	char *detail;  /* NULL = none */
	char *hint;    /* NULL = none */
} LlmFailure;

/* Set f (memory of CurrentMemoryContext) and give back false, so that callers can write
 * `return llm_failure_set(...)`. Clears detail and hint. */
extern bool llm_failure_set(LlmFailure *f, int sqlstate, const char *fmt, ...) LLM_PRINTF(3, 4);
extern void llm_failure_detail(LlmFailure *f, const char *fmt, ...) LLM_PRINTF(2, 3);
extern void llm_failure_hint(LlmFailure *f, const char *fmt, ...) LLM_PRINTF(2, 3);

/* Set f from the engine's answer; the texts are UTF-8, detail and hint may be NULL. */
extern void llm_failure_set_status(LlmFailure *f, LlmStatus status, const char *text,
								   const char *detail, const char *hint);

/* True for failures of one row, which on_error => 'null' may hide. A wrong statement (options,
 * rights, models), a missing engine or a spent quota would fail every row and is always raised. */
extern bool llm_failure_hideable(const LlmFailure *f);

extern _Noreturn void llm_failure_raise(const LlmFailure *f);

#endif
