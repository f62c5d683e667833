/* engine/file_digest.h - the digest of a model file, taken by a thread beside its loading. */
#ifndef LLM_ENGINE_FILE_DIGEST_H
#define LLM_ENGINE_FILE_DIGEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "model/gguf.h"

/* The caller's; its thread works between begin and end. */
typedef struct LlmFileDigest
{
	const LlmGguf *g; /* stays open until the end */
	void (*progress)(void *arg);
	void *arg;
	_Atomic bool stopped;
	uint64_t digest[2];
	LlmStatus status;
	LlmError err;
	pthread_t thread;
} LlmFileDigest;

/* Start to read g; progress(arg) is called now and then, by that thread. LLM_E_MEMORY when the system
 * gives no thread: then there is nothing to end. */
LlmStatus llm_file_digest_begin(LlmFileDigest *d, const LlmGguf *g, void (*progress)(void *arg),
								void *arg, LlmError *err);
/* Wait for the digest; LLM_E_MEMORY, or LLM_E_CANCELLED when the file has changed (llm_gguf_check). */
LlmStatus llm_file_digest_end(LlmFileDigest *d, uint64_t digest[2], LlmError *err);
/* End without it, at once. */
void llm_file_digest_stop(LlmFileDigest *d);

#endif
