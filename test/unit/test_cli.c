/*
 * test_cli.c - values of command-line options, prompts as JSON lines, the benchmark's report.
 * links: server core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli_args.h"
#include "server/cli_prompts.h"

static int saved_stderr; /* cmocka's summary goes there */

/* What is refused is told on stderr, which the tests keep quiet. */
static int
quiet(void **state)
{
	saved_stderr = dup(STDERR_FILENO);
	return saved_stderr < 0 || freopen("/dev/null", "w", stderr) == NULL;
}

static int
loud(void **state)
{
	fflush(stderr);
	return dup2(saved_stderr, STDERR_FILENO) < 0;
}

static void
test_numbers(void **state)
{
	static const char *const bad_int[] = {"",    " 5",  "5 ",  "5x",
										  "x",   "+5",  "1e3", "0x10",
										  "--5", "101", "-11", "99999999999999999999"};
	static const char *const bad_float[] = {"", "nan", "inf", "1e39", "-1", "1x", " 1", "+1"};
	static const char *const bad_u64[] = {"", "-1", "1.5", "18446744073709551616", "x"};
	int64_t v;
	uint64_t u;
	float f;

	assert_true(llm_cli_int("--n", "100", -10, 100, &v) && v == 100);
	assert_true(llm_cli_int("--n", "-10", -10, 100, &v) && v == -10);
	for (size_t i = 0; i < sizeof(bad_int) / sizeof(bad_int[0]); i++)
		assert_false(llm_cli_int("--n", bad_int[i], -10, 100, &v));
	assert_true(llm_cli_u64("--seed", "18446744073709551615", &u) && u == UINT64_MAX);
	for (size_t i = 0; i < sizeof(bad_u64) / sizeof(bad_u64[0]); i++)
		assert_false(llm_cli_u64("--seed", bad_u64[i], &u));
	assert_true(llm_cli_float("--x", ".5", 0, FLT_MAX, &f) && f == 0.5f);
	assert_true(llm_cli_float("--x", "1e-40", 0, FLT_MAX, &f) && f == 1e-40f);
	for (size_t i = 0; i < sizeof(bad_float) / sizeof(bad_float[0]); i++)
		assert_false(llm_cli_float("--x", bad_float[i], 0, FLT_MAX, &f));
}

static void
test_lists(void **state)
{
	static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "1,6", "1;2", "1, 2"};
	LlmTokens t = {0};

	assert_true(llm_cli_list("--ids", "1,0,5", 5, &t));
	assert_int_equal(t.len, 3);
	assert_int_equal(t.ids[2], 5);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(llm_cli_list("--ids", bad[i], 5, &t));
	llm_tokens_fini(&t);
}

static void
test_on_and_off(void **state)
{
	bool v = true;
	const LlmCliOption table[] = {{"cache", LLM_CLI_ONOFF, &v}};
	char *argv[] = {"run", "--cache", "off", NULL};

	assert_int_equal(llm_cli_options_read(3, argv, table, 1, ""), -1);
	assert_false(v);
	argv[2] = "on";
	assert_int_equal(llm_cli_options_read(3, argv, table, 1, ""), -1);
	assert_true(v);
	argv[2] = "yes";
	assert_int_equal(llm_cli_options_read(3, argv, table, 1, ""), LLM_CLI_USAGE_STATUS);
	argv[2] = "";
	assert_int_equal(llm_cli_options_read(3, argv, table, 1, ""), LLM_CLI_USAGE_STATUS);
}

/* Read text as a file of prompts. */
static LlmStatus
read_text(LlmCliPrompts *p, const char *text, LlmError *err)
{
	static const LlmCliPrompt base = {.max_tokens = 9, .temperature = -1.0f, .seed = 3};
	char path[] = "/tmp/llm_cli_XXXXXX";
	int fd = mkstemp(path);
	LlmStatus status;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	memset(p, 0, sizeof(*p));
	status = llm_cli_prompts_read(p, path, &base, err);
	unlink(path);
	return status;
}

static void
test_prompts(void **state)
{
	LlmCliPrompts p;
	LlmError err;

	assert_int_equal(read_text(&p,
							   "{\"prompt\": \"h\\u00e9 \\u0000x\", \"system\": \"\"}\n\n"
							   "{\"ids\": [1, 2], \"max_tokens\": 0, \"seed\": 7, "
							   "\"temperature\": 0, \"ignore_eos\": true, \"raw\": true}",
							   &err),
					 LLM_E_INVALID); /* no NUL in a text */
	llm_cli_prompts_fini(&p);
	assert_int_equal(read_text(&p,
							   "{\"prompt\": \"h\\u00e9\", \"system\": \"\"}\n \t\n"
							   "{\"ids\": [1, 2], \"max_tokens\": 0, \"seed\": 7, "
							   "\"temperature\": 0, \"ignore_eos\": true, \"raw\": true}",
							   &err),
					 LLM_OK);
	assert_int_equal(p.n, 2);
	assert_string_equal(p.list[0].text.data, "h\xc3\xa9");
	assert_true(p.list[0].has_system && p.list[0].system.len == 0);
	assert_true(p.list[0].max_tokens == 9 && p.list[0].seed == 3 && p.list[0].temperature < 0);
	assert_false(p.list[1].has_system);
	assert_int_equal(p.list[1].ids.len, 2);
	assert_true(p.list[1].max_tokens == 0 && p.list[1].seed == 7 && p.list[1].temperature == 0);
	assert_true(p.list[1].ignore_eos && p.list[1].raw);
	llm_cli_prompts_fini(&p);
	assert_int_equal(read_text(&p, "", &err), LLM_OK);
	assert_int_equal(p.n, 0);
	llm_cli_prompts_fini(&p);
	assert_int_equal(llm_cli_prompts_read(&p, "/nonexistent/x", NULL, &err), LLM_E_IO);
}

/* Standard input is read table by table; an empty line ends one. */
static void
test_prompts_in_tables(void **state)
{
	static const char text[] =
		"\n{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n\n\n{\"prompt\": \"c\"}\n\n{";
	static const LlmCliPrompt base = {0};
	LlmCliPrompts p = {0};
	FILE *file = tmpfile();
	LlmError err;

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	rewind(file);
	assert_true(dup2(fileno(file), STDIN_FILENO) == STDIN_FILENO);
	fclose(file);
	assert_int_equal(llm_cli_prompts_read(&p, "-", &base, &err), LLM_OK);
	assert_int_equal(p.n, 2);
	assert_int_equal(llm_cli_prompts_read(&p, "-", &base, &err), LLM_OK);
	assert_int_equal(p.n, 3);
	assert_int_equal(llm_cli_prompts_read(&p, "-", &base, &err), LLM_E_INVALID);
	assert_non_null(strstr(err.text, "line 8"));
	llm_cli_prompts_fini(&p);
}

static void
test_prompts_refused(void **state)
{
	static const struct
	{
		const char *text, *why;
	} cases[] = {
		{"{\"prompt\": \"a\"}\n{\"prompt\": }", "line 2: not a JSON object"},
		{"[1]", "line 1: not a JSON object"},
		{"{\"prompt\": 1}", "key \"prompt\": a text"},
		{"{\"prompt\": \"a\", \"bogus\": 1}", "key \"bogus\": it is not known"},
		{"{\"prompt\": \"a\", \"prompt\": \"b\"}", "not a JSON object"},
		{"{\"seed\": 1}", "neither"},
		{"{\"ids\": []}", "key \"ids\": a list"},
		{"{\"ids\": [1, -1]}", "key \"ids\": a whole number"},
		{"{\"ids\": [1, 2147483648]}", "key \"ids\": a whole number"},
		{"{\"prompt\": \"a\", \"max_tokens\": -1}", "key \"max_tokens\""},
		{"{\"prompt\": \"a\", \"temperature\": -1}", "key \"temperature\""},
		{"{\"prompt\": \"a\", \"raw\": 1}", "key \"raw\""},
		{"{\"prompt\": \"\xff\"}", "not a JSON object"},
	};
	LlmCliPrompts p;
	LlmError err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		assert_int_equal(read_text(&p, cases[i].text, &err), LLM_E_INVALID);
		assert_non_null(strstr(err.text, cases[i].why));
		llm_cli_prompts_fini(&p);
	}
}

/* The JSON report of a benchmark of a tiny model. */
static json_t *
bench_report(const char *options)
{
	char command[400];
	FILE *pipe;
	json_t *report;

	snprintf(command, sizeof(command),
			 "%s bench --model test/golden/models/llama256-q8_0/model.gguf --threads 2 --reps 2 "
			 "--kv-memory 16 --json %s",
			 getenv("LLM_ENGINE"), options);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	report = json_loadf(pipe, 0, NULL);
	assert_int_equal(pclose(pipe), 0);
	assert_non_null(report);
	return report;
}

static double
number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static void
test_bench(void **state)
{
	json_t *report, *phases, *decode, *op;
	size_t i;

	if (getenv("LLM_ENGINE") == NULL)
		skip();
	report = bench_report("--prompt-tokens 0 --gen-tokens 9");
	phases = json_object_get(report, "phases");
	assert_int_equal(json_array_size(phases),
					 2); /* batches of 1 and 8, unless others are asked for */
	assert_true(number(json_array_get(phases, 0), "batch") == 1);
	assert_true(number(json_array_get(phases, 1), "batch") == 8);
	json_decref(report);

	report = bench_report("--prompt-tokens 30,50 --batch 0");
	phases = json_object_get(report, "phases");
	assert_int_equal(json_array_size(phases), 2);
	assert_true(number(json_array_get(phases, 1), "prompt") == 50);
	assert_true(number(json_array_get(phases, 1), "tokens_per_second") > 0);
	json_array_foreach(json_object_get(json_array_get(phases, 1), "ops"), i, op)
	{
		assert_true(number(op, "seconds") == 0); /* nobody asked for times */
	}
	json_decref(report);

	/* of 16 tokens 4 go by before and after the timed ones */
	report = bench_report("--prompt-tokens 0 --batch 3 --depth 100 --shared 70 --gen-tokens 16 "
						  "--profile");
	decode = json_array_get(json_object_get(report, "phases"), 0);
	assert_true(number(decode, "depth") == 100 && number(decode, "shared") == 70);
	assert_true(number(decode, "tokens") == 3 * 8);
	json_array_foreach(json_object_get(decode, "ops"), i, op)
	{
		const char *name = json_string_value(json_object_get(op, "name"));

		if (strcmp(name, "head") == 0 || strcmp(name, "qkv") == 0)
			assert_true(number(op, "calls") == 8 && number(op, "seconds") > 0);
		assert_string_not_equal(name, "linear"); /* every product has a role */
	}
	assert_true(number(report, "read_bandwidth") >= number(report, "read_bandwidth_median"));
	assert_true(number(report, "read_bandwidth_weights") == 0); /* they are few */
	json_decref(report);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_on_and_off),
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_prompts_in_tables),
		cmocka_unit_test(test_prompts_refused),
		cmocka_unit_test(test_bench),
	};

	return cmocka_run_group_tests(tests, quiet, loud);
}
