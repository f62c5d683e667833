/*
 * test_file_digest.c - a model file's digest, taken beside its loading: it is the file's, and it ends at
 * once when the file is refused, however large that is.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/file_digest.h"
#include "engine/loader.h"

#define GOLDEN "test/golden/models/llama-gqa/model.gguf"
#define LARGE ((int64_t) 16 << 30) /* bytes, nearly all of them a hole: seconds of reading */
#define CHUNK ((int64_t) 16 << 20) /* bytes between two looks at whether it is stopped */
#define PATIENCE 60.0              /* seconds */

static char path[] = "/tmp/llm-test-digest-XXXXXX";

/* The golden model with a hole of `LARGE` bytes behind it. */
static int
file_write(void **state)
{
	FILE *from = fopen(GOLDEN, "rb");
	FILE *to = fdopen(mkstemp(path), "wb");
	char block[4096];
	size_t n;

	assert_non_null(from);
	assert_non_null(to);
	while ((n = fread(block, 1, sizeof(block), from)) > 0)
		assert_int_equal(fwrite(block, 1, n, to), n);
	fclose(from);
	assert_int_equal(fclose(to), 0);
	assert_int_equal(truncate(path, LARGE), 0);
	return 0;
}

static int
file_remove(void **state)
{
	return unlink(path);
}

static void
nothing(void *arg)
{
	(void) arg;
}

static void
the_digest_is_that_of_the_file(void **state)
{
	LlmFileDigest d;
	LlmGguf *g;
	LlmError err;
	uint64_t want[2], got[2];

	assert_int_equal(llm_gguf_open(NULL, GOLDEN, &g, &err), LLM_OK);
	assert_int_equal(llm_gguf_digest(g, NULL, NULL, want, &err), LLM_OK);
	assert_int_equal(llm_file_digest_begin(&d, g, nothing, NULL, &err), LLM_OK);
	assert_int_equal(llm_file_digest_end(&d, got, &err), LLM_OK);
	assert_memory_equal(got, want, sizeof(want));
	llm_gguf_close(g);
}

/* Keep the thread between two chunks until it is to stop. */
typedef struct Gate
{
	LlmFileDigest d;
	double until; /* the latest: the test has failed by then */
	int n_calls;
} Gate;

static void
gate_wait(void *arg)
{
	Gate *g = arg;

	g->n_calls++;
	while (!atomic_load(&g->d.stopped) && llm_clock_seconds() < g->until)
		usleep(100);
}

static void
not_one_more_chunk_is_read(void **state)
{
	Gate gate = {.until = llm_clock_seconds() + PATIENCE};
	LlmGguf *g;
	LlmError err;

	assert_int_equal(llm_gguf_open(NULL, path, &g, &err), LLM_OK);
	assert_int_equal(llm_file_digest_begin(&gate.d, g, gate_wait, &gate, &err), LLM_OK);
	llm_file_digest_stop(&gate.d);
	assert_int_equal(gate.n_calls, 1);
	assert_int_equal(gate.d.status, LLM_E_CANCELLED);
	llm_gguf_close(g);
}

/* Who calls whom back while a model is loaded. */
typedef struct Load
{
	pthread_t loader;
	int n_chunks; /* calls by others: the digest's thread, once a chunk */
} Load;

static void
load_note(void *arg)
{
	Load *l = arg;

	l->n_chunks += !pthread_equal(pthread_self(), l->loader);
}

/* Load the large file, which is refused; the error. */
static LlmError
refused_load(const LlmModelSpec *spec)
{
	LlmEngineOptions o = llm_engine_options_default();
	Load l = {.loader = pthread_self()};
	LlmLoaderArgs a = {.options = &o, .spec = spec, .progress = load_note, .arg = &l};
	LlmLoaded m;
	LlmError err = {0};

	o.threads = 1;
	assert_int_not_equal(llm_loader_open(&a, &m, &err), LLM_OK);
	assert_in_range(l.n_chunks, 0, LARGE / CHUNK - 1);
	return err;
}

/* Say that a tensor of the file is Q2_K, which cannot be read. */
static void
tensor_alter(const char *name)
{
	FILE *f = fopen(path, "r+b");
	uint32_t n_dims, type = 10;
	char head[1 << 16], *at;

	assert_non_null(f);
	assert_int_equal(fread(head, 1, sizeof(head), f), sizeof(head));
	at = memmem(head, sizeof(head), name, strlen(name));
	assert_non_null(at);
	at += strlen(name);
	memcpy(&n_dims, at, sizeof(n_dims));
	at += sizeof(n_dims) + n_dims * sizeof(uint64_t);
	assert_int_equal(fseek(f, at - head, SEEK_SET), 0);
	assert_int_equal(fwrite(&type, sizeof(type), 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

static void
a_refused_file_is_not_read_to_its_end(void **state)
{
	LlmError err = refused_load(&(LlmModelSpec){.path = path, .chat_template = "{% if"});

	assert_int_equal(err.code, LLM_E_MODEL);
	err = refused_load(&(LlmModelSpec){.path = path, .context_length = INT32_MAX});
	assert_int_equal(err.code, LLM_E_INVALID);
	tensor_alter("blk.1.ffn_down.weight");
	err = refused_load(&(LlmModelSpec){.path = path});
	assert_non_null(strstr(err.text, "blk.1.ffn_down.weight"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_digest_is_that_of_the_file),
		cmocka_unit_test(not_one_more_chunk_is_read),
		cmocka_unit_test(a_refused_file_is_not_read_to_its_end),
	};

	return cmocka_run_group_tests(tests, file_write, file_remove);
}
