/*
 * engine/file_digest.c - the digest of a model file, taken by a thread beside its loading.
 *
 * A digest is one chain over the whole file and takes as long as packing its weights. So it goes on
 * beside all that the pool's threads do; what fails there need not wait for it.
 */
#include "engine/file_digest.h"

#include <string.h>

#include "core/thread.h"

/* A file that has changed will be refused whatever its digest is. */
static bool
go_on(void *arg)
{
	LlmFileDigest *d = arg;

	d->progress(d->arg);
	return !atomic_load(&d->stopped) && llm_gguf_check(d->g, "", LLM_OK, NULL) == LLM_OK;
}

static void *
thread_main(void *arg)
{
	LlmFileDigest *d = arg;

	d->status = llm_gguf_digest(d->g, go_on, d, d->digest, &d->err);
	return NULL;
}

LlmStatus
llm_file_digest_begin(LlmFileDigest *d, const LlmGguf *g, void (*progress)(void *arg), void *arg,
					  LlmError *err)
{
	int rc;

	*d = (LlmFileDigest){.g = g, .progress = progress, .arg = arg};
	rc = llm_thread_create(&d->thread, thread_main, d);
	if (rc != 0)
		return llm_error_set(err, LLM_E_MEMORY, "cannot start a thread for a digest: %s",
							 strerror(rc));
	return LLM_OK;
}

LlmStatus
llm_file_digest_end(LlmFileDigest *d, uint64_t digest[2], LlmError *err)
{
	pthread_join(d->thread, NULL);
	if (d->status != LLM_OK && err != NULL)
		*err = d->err;
	memcpy(digest, d->digest, sizeof(d->digest));
	return d->status;
}

void
llm_file_digest_stop(LlmFileDigest *d)
{
	atomic_store(&d->stopped, true);
	pthread_join(d->thread, NULL);
}
