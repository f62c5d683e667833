/*
 * test_engine_life.c - the engine on the echo device: other kinds of requests, devices, models that
 * come and go, settings, templates, hooks.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine_run.h"

/* ---- other kinds ---- */

static void
tokenize_and_detokenize(void **state)
{
	Run r;
	LlmRequest q = run_request("h\xC3\xA9<|im_end|>", 0);
	int32_t ids[] = {'o', 'k', 257, 0xC3, 0xA9, 0xF0};
	uint64_t id;
	LlmError err;

	run_echo(&r);
	q.kind = LLM_REQUEST_TOKENIZE;
	id = run_submit(&r, q);
	assert_int_equal(r.of[id].n_done, 1);
	assert_int_equal(r.of[id].tokens.len, 3 + 10); /* no BOS, no control token */
	assert_int_equal(r.of[id].tokens.ids[0], 'h');
	assert_int_equal(r.of[id].tokens.ids[1], 0xC3);
	assert_int_equal(r.of[id].tokens.ids[3], '<');

	q.kind = LLM_REQUEST_DETOKENIZE;
	q.tokens = ids;
	q.n_tokens = 6;
	id = run_submit(&r, q);
	assert_string_equal(run_text(&r.of[id]), "ok<|im_end|>\xC3\xA9");
	ids[1] = 320;
	err = run_refused(&r, q);
	assert_int_equal(err.code, LLM_E_INVALID);
	assert_non_null(strstr(err.text, "320"));
	ids[1] = -7;
	err = run_refused(&r, q);
	assert_non_null(strstr(err.text, "-7"));
	q.n_tokens = 0;
	id = run_submit(&r, q);
	assert_int_equal(r.of[id].text.len, 0);
	q.kind = LLM_REQUEST_SCORE;
	assert_int_equal(run_refused(&r, q).code, LLM_E_UNSUPPORTED);
	q.kind = LLM_REQUEST_POOL;
	assert_int_equal(run_refused(&r, q).code, LLM_E_UNSUPPORTED);
	run_fini(&r);
}

/* ---- models ---- */

static void
devices_are_chosen_by_the_list(void **state)
{
	const char *wrong[] = {"gpu", "", "cpu,", "cpu echo"};
	LlmModelSpec spec = {.path = "echo:"};
	LlmEngineOptions o = run_options();
	LlmEngineEvents none = {0};
	LlmEngine *e;
	LlmError err;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
	{
		o.devices = wrong[i];
		assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_E_INVALID);
	}
	o.devices = "cuda:0,1";
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_E_UNSUPPORTED);
	o.devices = "auto";
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_OK);
	assert_int_equal(llm_engine_load(e, &spec, &err), LLM_E_MODEL); /* echo must be named */
	llm_engine_free(e);
	o.devices = " cpu , echo ";
	o.fault = "nosuchfault";
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_OK);
	assert_int_equal(llm_engine_load(e, &spec, &err), LLM_E_INVALID);
	spec.path = "/nowhere/model.gguf";
	assert_int_equal(llm_engine_load(e, &spec, &err), LLM_E_MODEL);
	llm_engine_free(e);
}

static void
options_out_of_range_are_refused(void **state)
{
	LlmEngineOptions o = run_options();
	LlmEngineEvents none = {0};
	LlmEngine *e;
	LlmError err;

	o.max_batch_tokens = 0;
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_E_INVALID);
	o.max_batch_tokens = 8193;
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_E_INVALID);
	assert_non_null(strstr(err.text, "8193"));
	o = run_options();
	o.max_running = 1025;
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_E_INVALID);
	o = run_options();
	o.kv_nbytes = -1;
	assert_int_equal(llm_engine_create(&o, none, &e, &err), LLM_E_INVALID);
}

static void
load_unload_and_residence(void **state)
{
	Run r;
	LlmEngineOptions o = run_options();
	LlmModelSpec spec = {.path = "echo:", .context_length = RUN_CONTEXT};
	LlmModelSpec other = {.path = "echo:"};
	LlmModelInfo info;
	LlmError err;
	uint64_t progress, id;
	bool idle;

	run_init(&r, &o, NULL);
	assert_false(llm_engine_model(r.e, &info));
	assert_int_equal(run_refused(&r, run_request("x", 1)).code, LLM_E_MODEL);
	assert_int_equal(llm_engine_step(r.e, &idle, &err), LLM_OK);
	assert_true(idle);
	progress = llm_engine_progress(r.e);
	assert_int_equal(llm_engine_load(r.e, &spec, &err), LLM_OK);
	assert_true(llm_engine_progress(r.e) > progress);
	assert_true(llm_engine_model(r.e, &info));
	assert_string_equal(info.arch, "echo");
	assert_string_equal(info.device, "echo");
	assert_int_equal(info.context_length, RUN_CONTEXT);
	assert_int_equal(info.vocab_size, 320);
	assert_true(info.has_template);

	id = run_submit(&r, run_request("x", 4));
	assert_int_equal(llm_engine_load(r.e, &other, &err), LLM_E_BUSY);
	llm_engine_unload(r.e);
	assert_int_equal(r.of[id].n_done, 1);
	assert_int_equal(r.of[id].status, LLM_E_CANCELLED);
	assert_false(llm_engine_model(r.e, &info));
	assert_int_equal(llm_engine_load(r.e, &other, &err), LLM_OK);
	llm_engine_model(r.e, &info);
	assert_int_equal(info.context_length, 4096);
	assert_string_equal(run_text(run_one(&r, run_request("again", 10))), "again");
	other.kv_type = "q8";
	assert_int_equal(llm_engine_load(r.e, &other, &err), LLM_E_INVALID);
	assert_false(llm_engine_model(r.e, &info)); /* no model is resident after a failure */
	run_fini(&r);
}

/* An engine that is freed in the middle of everything gives all memory back (sanitizers look). */
static void
free_with_requests_in_every_state(void **state)
{
	Run r;
	LlmEngineOptions o = run_options();

	o.max_running = 2;
	run_echo_with(&r, o, RUN_CONTEXT);
	for (int i = 0; i < 6; i++)
		run_submit(&r, run_request("left behind", 30));
	run_step(&r);
	llm_engine_free(r.e);
	assert_int_equal(r.n_done, 0);
	run_forget(&r);
}

static void
settings_change_a_running_engine(void **state)
{
	Run r;
	LlmEngineOptions o = run_options();
	LlmRequest q = run_request(run_text_of(80), 4);
	LlmError err;
	uint64_t id;

	run_echo_with(&r, o, 512);
	o.max_batch_tokens = 10;
	o.max_running = 1;
	assert_int_equal(llm_engine_settings(r.e, &o, &err), LLM_OK);
	id = run_submit(&r, q);
	for (int i = 0; i < 9; i++) /* 100 prompt tokens take ten steps */
		run_step(&r);
	assert_true(r.of[id].n_done == 0);
	o.max_batch_tokens = 8192; /* more than was loaded for: as much as there is room for */
	o.max_running = 1024;
	assert_int_equal(llm_engine_settings(r.e, &o, &err), LLM_OK);
	run_all(&r);
	assert_int_equal(r.n_steps, 13);
	o.max_running = 0;
	assert_int_equal(llm_engine_settings(r.e, &o, &err), LLM_E_INVALID);
	run_fini(&r);
}

/* BOS is there exactly once, whether the template writes it or not. */
static void
bos_comes_once(void **state)
{
	const char *templates[] = {"{{ bos_token }}{{ messages[0].content }}",
							   "{{ messages[0].content }}",
							   "{{ bos_token }}{{ bos_token }}{{ messages[0].content }}"};
	const int want[] = {1 + 3, 1 + 3, 2 + 3}; /* what the template doubles itself stays */

	for (int i = 0; i < 3; i++)
	{
		Run r;
		LlmEngineOptions o = run_options();
		LlmModelSpec spec = {.path = "echo:", .chat_template = templates[i]};

		run_init(&r, &o, &spec);
		assert_int_equal(run_one(&r, run_request("abc", 4))->prompt_tokens, want[i]);
		run_fini(&r);
	}
}

/* A template whose fault shows while it runs loads, and fails at each rendering with its line. */
static void
a_broken_template_fails_when_it_is_used(void **state)
{
	const char *templates[] = {"\n{{ messages | nosuchfilter }}",
							   "\n{% for i in range(1000000000) %}x{% endfor %}",
							   "\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
							   "\n{{ raise_exception('no') }}"};

	for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
	{
		Run r;
		LlmEngineOptions o = run_options();
		LlmModelSpec spec = {.path = "echo:", .chat_template = templates[i]};
		LlmRequest q = run_request("abc", 4);

		run_init(&r, &o, &spec);
		for (int twice = 0; twice < 2; twice++)
		{
			LlmError err = run_refused(&r, q);

			assert_int_equal(err.code, LLM_E_MODEL);
			if (strstr(err.text, "line 2") == NULL && strstr(err.detail, "line 2") == NULL)
				fail_msg("no line in: %s (%s)", err.text, err.detail);
		}
		q.raw = true;
		assert_string_equal(run_text(run_one(&r, q)), "abc");
		run_fini(&r);
	}
}

/* ---- hooks ---- */

typedef struct Seen
{
	int n;
	int32_t positions[256];
} Seen;

static void
see(void *arg, LlmRequestKey key, int32_t position, const float *logits, int32_t vocab_size)
{
	Seen *s = arg;

	assert_int_equal(vocab_size, 320);
	assert_true(logits[0] == logits[0]);
	s->positions[s->n++] = position;
}

static void
the_logits_hook_sees_positions_in_order(void **state)
{
	Run r;
	Seen s = {0};
	LlmEngineOptions o = run_options();
	const int32_t ids[] = {256, 'a', 'b', 'c'};

	o.max_batch_tokens = 3;
	o.prefix_cache = false; /* what is cached is not computed */
	run_echo_with(&r, o, RUN_CONTEXT);
	llm_engine_logits_hook(r.e, see, &s, false);
	llm_engine_force_prompt(r.e, ids, 4);
	assert_string_equal(run_text(run_one(&r, run_request("not read", 3))), "abc");
	assert_int_equal(s.n, 3); /* positions 3, 4, 5 give the tokens 4, 5, 6 */
	for (int i = 0; i < s.n; i++)
		assert_int_equal(s.positions[i], 3 + i);

	s.n = 0;
	llm_engine_logits_hook(r.e, see, &s, true);
	llm_engine_force_prompt(r.e, ids, 4);
	run_one(&r, run_request("not read", 3));
	assert_int_equal(s.n, 6);
	for (int i = 0; i < s.n; i++)
		assert_int_equal(s.positions[i], i);
	llm_engine_logits_hook(r.e, NULL, NULL, false);
	llm_engine_force_prompt(r.e, (const int32_t[]){5, 999}, 2);
	assert_int_equal(run_refused(&r, run_request("", 3)).code, LLM_E_INVALID);
	assert_string_equal(run_text(run_one(&r, run_request("own text", 20))), "own text");
	run_fini(&r);
}

/* ---- a device that fails ---- */

static const LlmDeviceOps *sound;

static LlmStatus
fail_wait(LlmDevice *dev, uint64_t step, LlmStepOut *out, LlmError *err)
{
	sound->step_wait(dev, step, out, err);
	return llm_error_set(err, LLM_E_INTERNAL, "the device is lost");
}

/* All that runs ends with the device's error, with rows in the step or without; what waits goes on when
 * the device does, and so does what was cached before. */
static void
a_failed_step_ends_all_that_runs(void **state)
{
	char text[100];
	LlmEngineOptions o = run_options();
	LlmDeviceOps broken;
	bool idle;
	LlmError err;
	Run r;

	memcpy(text, run_text_of(sizeof(text) - 1), sizeof(text));
	o.max_running = 2;
	run_echo_with(&r, o, 512);
	text[80] = '\0';
	assert_string_equal(run_text(run_one(&r, run_request(text, 200))), text);
	for (int i = 0; i < 3; i++) /* two run: the second waits for the first; one waits for a place */
	{
		text[80] = 'A';
		run_submit(&r, run_request(text, 200 + i));
	}
	sound = r.e->m.dev->ops;
	broken = *sound;
	broken.step_wait = fail_wait;
	r.e->m.dev->ops = &broken;
	assert_int_equal(llm_engine_step(r.e, &idle, &err), LLM_E_INTERNAL);
	assert_string_equal(err.text, "the device is lost");
	assert_true(llm_engine_audit(r.e, &err));
	assert_int_equal(r.n_keys, 1); /* one alone had rows */
	for (int i = 2; i <= 3; i++)
	{
		assert_int_equal(r.of[i].n_done, 1);
		assert_int_equal(r.of[i].status, LLM_E_INTERNAL);
		assert_string_equal(r.of[i].error.text, "the device is lost");
	}
	r.e->m.dev->ops = sound;
	run_all(&r);
	assert_string_equal(run_text(&r.of[4]), text);
	assert_in_range(r.of[4].cached_tokens, 80, 80 + RUN_AROUND);
	run_fini(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokenize_and_detokenize),
		cmocka_unit_test(devices_are_chosen_by_the_list),
		cmocka_unit_test(options_out_of_range_are_refused),
		cmocka_unit_test(load_unload_and_residence),
		cmocka_unit_test(free_with_requests_in_every_state),
		cmocka_unit_test(settings_change_a_running_engine),
		cmocka_unit_test(bos_comes_once),
		cmocka_unit_test(a_broken_template_fails_when_it_is_used),
		cmocka_unit_test(the_logits_hook_sees_positions_in_order),
		cmocka_unit_test(a_failed_step_ends_all_that_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
