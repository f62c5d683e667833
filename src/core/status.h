/*
 * core/status.h - how every engine function reports failure.
 *
 * A function returns an LlmStatus and, when it is not LLM_OK, has filled the caller's LlmError.
 * The text tells the user what was wrong with the numbers in it; no layer above re-words it. The
 * code travels over the wire as its number, so values are append-only. src/pg/error.c alone turns
 * a code into an SQLSTATE.
 */
#ifndef LLM_CORE_STATUS_H
#define LLM_CORE_STATUS_H

#include <stdint.h>

typedef enum LlmStatus
{
	LLM_OK = 0,
	LLM_E_INVALID = 1,     /* an argument or option is wrong: 22023 */
	LLM_E_CONTEXT = 2,     /* prompt over the model's context: 54000; got, limit are tokens */
	LLM_E_KV_MEMORY = 3,   /* the KV pool can never hold the request: 53200; got, limit are pages */
	LLM_E_BUSY = 4,        /* queue, credits or quota full past the timeout: 53400 */
	LLM_E_MODEL = 5,       /* no model, or its file cannot be used: 55000 */
	LLM_E_TIMEOUT = 6,     /* the request's own timeout passed: 55P03 */
	LLM_E_CRASHED = 7,     /* crashed the engine when it ran alone: 58000 */
	LLM_E_UNAVAILABLE = 8, /* no engine, or the peer is gone: 08006 */
	LLM_E_ENCODING = 9,    /* text that is not valid UTF-8: 22021 */
	LLM_E_UNSUPPORTED = 10, /* known, but not built: 0A000 */
	LLM_E_CANCELLED = 11,   /* cancelled by its client */
	LLM_E_MEMORY = 12,      /* out of memory: 53200 */
	LLM_E_PROTOCOL = 13,    /* a frame that no correct peer sends: 08P01 */
	LLM_E_INTERNAL = 14,    /* a broken invariant: XX000 */
	LLM_E_IO = 15           /* a file or socket call failed: 58030 */
} LlmStatus;

/* Filled by the function that fails; plain memory, copied by assignment, owned by the caller. */
typedef struct LlmError
{
	LlmStatus code;
	char text[200];   /* one line, lower case, no period; whole UTF-8 characters */
	char detail[200]; /* file, key, tensor, template line; '' when there is none */
	char hint[200];   /* what the user can do; '' when there is none */
	int64_t limit;    /* what would have been allowed, when the failure is about a number */
	int64_t got;      /* what was asked for */
} LlmError;

/* Fill err (which may be NULL) and return code, so that callers write `return llm_error_set(...)`.
 * Clears detail, hint, limit and got. Overlong text is cut at a whole UTF-8 character. */
LlmStatus llm_error_set(LlmError *err, LlmStatus code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Add detail or hint to an error that has been set. err may be NULL. */
void llm_error_detail(LlmError *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void llm_error_hint(LlmError *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The two numbers behind a limit; the text should hold them as well. err may be NULL. */
void llm_error_numbers(LlmError *err, int64_t got, int64_t limit);

/* A short name for logs, such as "context" or "model"; never NULL. */
const char *llm_status_name(LlmStatus code);

#endif
