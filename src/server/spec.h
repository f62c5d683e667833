/* server/spec.h - a model spec that connections, tickets and statistics share by reference. */
#ifndef LLM_SERVER_SPEC_H
#define LLM_SERVER_SPEC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/status.h"
#include "engine/llm.h"

#include "llm.pb-c.h"

/* Immutable once created, so both threads may read it; the count alone is shared. */
typedef struct LlmSpec
{
	atomic_int refs;   /* holders; the last release frees */
	LlmModelSpec spec; /* strings owned */
} LlmSpec;

/* A copy of the wire's spec with one reference. Errors: LLM_E_PROTOCOL for a context length that no
 * correct peer sends, LLM_E_MEMORY. */
LlmStatus llm_spec_create(const Llm__ModelSpec *m, LlmSpec **out, LlmError *err);
LlmSpec *llm_spec_retain(LlmSpec *s);
void llm_spec_release(LlmSpec *s); /* NULL is fine */

/* True when both name the same model in the same way. */
bool llm_spec_equal(const LlmSpec *a, const LlmSpec *b);

#endif
