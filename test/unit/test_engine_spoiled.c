/*
 * test_engine_spoiled.c - a model that makes NaNs of one token: requests with it end with an error,
 * others never notice, and nothing of it is cached.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/llm.h"
#include "model/gguf.h"

#define GOLDEN "test/golden/models/llama-gqa/model.gguf"
#define BAD 77 /* the token whose embedding is NaN */
#define N_NEW 4
#define LEN 150
#define MAX_REQS 8

static char path[] = "/tmp/llm_spoiled_XXXXXX";

typedef struct Out
{
	LlmStatus status;
	char text[200];
	int32_t generated[N_NEW];
	int32_t cached;
	bool done;
} Out;

typedef struct Rig
{
	LlmEngine *e;
	Out out[MAX_REQS];
	uint64_t n_reqs;
} Rig;

/* The golden model with one row of its embedding overwritten. */
static int
model_write(void **state)
{
	FILE *f = fopen(GOLDEN, "rb");
	LlmGguf *g;
	LlmWeightView v;
	LlmError err;
	uint8_t *bytes;
	float *row;
	long n;
	int fd = mkstemp(path);

	assert_non_null(f);
	assert_true(fd >= 0);
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	rewind(f);
	bytes = malloc((size_t) n);
	assert_int_equal(fread(bytes, 1, (size_t) n, f), n);
	fclose(f);
	assert_int_equal(llm_gguf_open_memory(bytes, (size_t) n, &g, &err), LLM_OK);
	assert_true(llm_gguf_tensor(g, "token_embd.weight", &v));
	assert_int_equal(v.type, LLM_DTYPE_F32);
	row = (float *) v.data + (size_t) BAD * (size_t) v.cols;
	for (int64_t i = 0; i < v.cols; i++)
		row[i] = NAN;
	assert_int_equal(write(fd, bytes, (size_t) n), n);
	close(fd);
	llm_gguf_close(g);
	free(bytes);
	return 0;
}

static int
model_remove(void **state)
{
	return unlink(path);
}

static void
on_done(void *arg, const LlmResult *r)
{
	Out *o = &((Rig *) arg)->out[r->key.id];

	o->status = r->status;
	o->cached = r->cached_tokens;
	o->done = true;
	if (r->status != LLM_OK)
		snprintf(o->text, sizeof(o->text), "%s", r->error->text);
	else
		memcpy(o->generated, r->generated, sizeof(o->generated));
}

static void
rig_init(Rig *rig, const char *kv_type)
{
	LlmEngineOptions o = llm_engine_options_default();
	LlmModelSpec spec = {.path = path, .kv_type = kv_type};
	LlmEngineEvents events = {.arg = rig, .done = on_done};
	LlmError err;

	memset(rig, 0, sizeof(*rig));
	o.threads = 2;
	o.max_batch_tokens = 128;
	o.max_running = 4;
	assert_int_equal(llm_engine_create(&o, events, &rig->e, &err), LLM_OK);
	if (llm_engine_load(rig->e, &spec, &err) != LLM_OK)
		fail_msg("load: %s (%s)", err.text, err.detail);
}

/* A prompt of LEN tokens of one kind, with the bad token at `bad` (-1 = nowhere). Returns its id. */
static uint64_t
ask(Rig *rig, int32_t kind, int32_t bad, int32_t n_new)
{
	uint64_t id = rig->n_reqs++;
	LlmRequest q = {.key = {1, id},
					.sample = {.top_p = 1.0f, .repetition_penalty = 1.0f},
					.max_tokens = n_new,
					.raw = true,
					.ignore_eos = true};
	int32_t ids[LEN];
	LlmError err;

	for (int32_t i = 0; i < LEN; i++)
		ids[i] = i == bad ? BAD : 100 + (i * 7 + kind * 13) % 300;
	llm_engine_force_prompt(rig->e, ids, LEN);
	assert_int_equal(llm_engine_submit(rig->e, &q, &err), LLM_OK);
	return id;
}

static void
drain(Rig *rig)
{
	LlmError err;
	bool idle = false;

	while (!idle)
	{
		assert_int_equal(llm_engine_step(rig->e, &idle, &err), LLM_OK);
		assert_true(llm_engine_audit(rig->e, &err));
	}
}

static void
check_bad(const Rig *rig, uint64_t id, int32_t cached)
{
	const Out *o = &rig->out[id];

	assert_true(o->done);
	assert_int_equal(o->status, LLM_E_INTERNAL);
	assert_string_equal(o->text, "keys or values of the attention are not numbers");
	assert_int_equal(o->cached, cached);
}

/* The bad token in the middle of a prompt, whose logits nobody wants, of which one token would be the
 * answer; in its first row; and twice, so that the second could find the first one's pages in the cache. */
static void
spoiled_requests_fail_alone(void **state)
{
	static const char *const types[] = {"f32", "f16", "int8"};

	for (int t = 0; t < 3; t++)
	{
		Rig alone, rig;
		uint64_t bad, first, good, again;

		rig_init(&alone, types[t]);
		ask(&alone, 0, -1, N_NEW);
		drain(&alone);
		assert_int_equal(alone.out[0].status, LLM_OK);
		rig_init(&rig, types[t]);
		bad = ask(&rig, 1, 140, 1);
		first = ask(&rig, 2, 0, N_NEW);
		good = ask(&rig, 0, -1, N_NEW);
		drain(&rig);
		check_bad(&rig, bad, 0);
		check_bad(&rig, first, 0);
		assert_int_equal(rig.out[good].status, LLM_OK);
		assert_memory_equal(rig.out[good].generated, alone.out[0].generated,
							sizeof(alone.out[0].generated));
		/* the pages of the step before are sound, those of the spoiled step are not there */
		again = ask(&rig, 1, 140, N_NEW);
		drain(&rig);
		check_bad(&rig, again, 128);
		again = ask(&rig, 2, 0, N_NEW);
		drain(&rig);
		check_bad(&rig, again, 0);
		llm_engine_free(alone.e);
		llm_engine_free(rig.e);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spoiled_requests_fail_alone),
	};

	return cmocka_run_group_tests(tests, model_write, model_remove);
}
