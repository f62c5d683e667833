/*
 * bench_table.c - rows per second of a table whose prompts begin alike, and the time of a step,
 * each with the prefix cache on and off.
 *
 * A row is --shared random ids that all rows have, --own ids of its own, and --gen greedy tokens. The
 * rows are the same in every round, but have a salt of the round, so that nothing cached by one helps
 * the next; rounds with the cache on and off take turns, and medians count. All rounds must give the
 * same tokens: that is checked, and a difference is a failure.
 *
 * The time of a step is that of decoding alone: from when all sequences of the batch have their first
 * token until one has its last.
 *
 * links: server engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/rng.h"
#include "engine/llm.h"
#include "server/cli_args.h"

#define ROUNDS_MAX 100
#define STEPS_TIMED 16 /* at least */

typedef struct Table
{
	LlmEngineOptions engine_options;
	LlmModelSpec spec;
	int32_t rows, shared, own, gen, rounds;
	LlmTokens batches;
	LlmEngine *engine;
	LlmModelInfo info;
	bool failed;    /* a request ended with an error */
	LlmError error; /* which is this */
	uint64_t salt;  /* of the round */
	uint64_t sum;   /* over all tokens of the round, whatever their order of arrival */
} Table;

static const char usage_text[] =
	"usage: bench_table --model FILE [OPTIONS]\n"
	"\n"
	"Measures rows per second of a table whose prompts begin alike, and the time of a step, each\n"
	"with the prefix cache on and off, in turns.\n"
	"\n"
	"  --model FILE        model file\n"
	"  --threads N         compute threads (default: physical cores)\n"
	"  --kv-type TYPE      f16 (default), f32 or int8\n"
	"  --kv-memory MB      memory of the KV cache (default: a quarter of what is free)\n"
	"  --rows N            of the table (default 256; 0 = steps only)\n"
	"  --shared N          tokens with which every prompt begins (default 354)\n"
	"  --own N             tokens of each prompt's own (default 68)\n"
	"  --gen N             tokens to generate per row (default 16)\n"
	"  --batch LIST        sequences in the steps that are timed (default 1,8,16,64)\n"
	"  --rounds N          medians are of so many (default 3)\n"
	"  --help              print this\n";

/* -1 = go on; otherwise the exit status. */
static int
options_read(Table *t, int64_t *kv_megabytes, int argc, char **argv)
{
	const LlmCliOption table[] = {
		{"model", LLM_CLI_TEXT, &t->spec.path},
		{"threads", LLM_CLI_I32, &t->engine_options.threads, 1, 256},
		{"kv-type", LLM_CLI_TEXT, &t->spec.kv_type},
		{"kv-memory", LLM_CLI_I64, kv_megabytes, 1, 1 << 24},
		{"rows", LLM_CLI_I32, &t->rows, 0, 1 << 20},
		{"shared", LLM_CLI_I32, &t->shared, 0, 1 << 20},
		{"own", LLM_CLI_I32, &t->own, 1, 1 << 20},
		{"gen", LLM_CLI_I32, &t->gen, 1, 1 << 20},
		{"batch", LLM_CLI_LIST, &t->batches, 1, 1024},
		{"rounds", LLM_CLI_I32, &t->rounds, 1, ROUNDS_MAX},
	};
	int rc = llm_cli_options_read(argc, argv, table, sizeof(table) / sizeof(table[0]), usage_text);

	if (rc >= 0)
		return rc;
	if (t->spec.path == NULL)
	{
		fprintf(stderr, "bench_table: --model is missing\n");
		return LLM_CLI_USAGE_STATUS;
	}
	return -1;
}

static void
on_done(void *arg, const LlmResult *res)
{
	Table *t = arg;

	if (res->status != LLM_OK)
	{
		t->failed = true;
		t->error = *res->error;
		return;
	}
	for (int32_t i = 0; i < res->completion_tokens; i++)
		t->sum += (uint64_t) llm_rng_u32(res->key.id, (uint32_t) i, (uint32_t) res->generated[i]);
}

static LlmStatus
ask(Table *t, int32_t row, int32_t gen, LlmError *err)
{
	LlmRequest req = {.key = {1, (uint64_t) row},
					  .sample = {.top_p = 1.0f, .repetition_penalty = 1.0f},
					  .max_tokens = gen,
					  .raw = true,
					  .ignore_eos = true,
					  .salt = t->salt};
	LlmTokens ids = {0};
	LlmStatus status = LLM_OK;

	for (int32_t i = 0; status == LLM_OK && i < t->shared + t->own; i++)
	{
		uint64_t stream = i < t->shared ? 0 : 1 + (uint64_t) row;

		if (!llm_tokens_push(&ids, (int32_t) (llm_rng_u32(stream, (uint32_t) i, 0) %
											  (uint32_t) t->info.vocab_size)))
			status = llm_error_set(err, LLM_E_MEMORY, "out of memory");
	}
	if (status == LLM_OK)
	{
		llm_engine_force_prompt(t->engine, ids.ids, (int32_t) ids.len);
		status = llm_engine_submit(t->engine, &req, err);
	}
	llm_tokens_fini(&ids);
	return status;
}

static LlmStatus
step(Table *t, bool *idle, LlmError *err)
{
	LlmStatus status = llm_engine_step(t->engine, idle, err);

	if (status == LLM_OK && t->failed)
	{
		*err = t->error;
		return t->error.code;
	}
	return status;
}

/* A fresh salt, the cache as wanted, and n rows asked. */
static LlmStatus
round_begin(Table *t, bool cache, int32_t n, int32_t gen, LlmError *err)
{
	LlmStatus status;

	t->salt++;
	t->sum = 0;
	t->engine_options.prefix_cache = cache;
	status = llm_engine_settings(t->engine, &t->engine_options, err);
	for (int32_t row = 0; status == LLM_OK && row < n; row++)
		status = ask(t, row, gen, err);
	return status;
}

/* ---- medians of both sides ---- */

typedef struct Sides
{
	double seconds[2][ROUNDS_MAX]; /* cache off, on */
	int64_t cached[2];             /* tokens read from the cache, of the last round */
} Sides;

static int
double_cmp(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static double
median(double *seconds, int32_t n)
{
	qsort(seconds, (size_t) n, sizeof(double), double_cmp);
	return seconds[n / 2];
}

/* ---- rows per second ---- */

static LlmStatus
rows_run(Table *t, bool cache, double *seconds, int64_t *cached, LlmError *err)
{
	LlmEngineStats before, after;
	bool idle = false;
	LlmStatus status;

	llm_engine_stats(t->engine, &before);
	*seconds = llm_clock_seconds();
	status = round_begin(t, cache, t->rows, t->gen, err);
	while (status == LLM_OK && !idle)
		status = step(t, &idle, err);
	*seconds = llm_clock_seconds() - *seconds;
	llm_engine_stats(t->engine, &after);
	*cached = after.cached_tokens - before.cached_tokens;
	return status;
}

static LlmStatus
rows_measure(Table *t, LlmError *err)
{
	Sides s;
	uint64_t sum = 0;
	int64_t n_prompt = (int64_t) t->rows * (t->shared + t->own);

	for (int32_t i = 0; i < 2 * t->rounds; i++)
	{
		int side = i % 2;
		LlmStatus status = rows_run(t, side == 1, &s.seconds[side][i / 2], &s.cached[side], err);

		if (status != LLM_OK)
			return status;
		if (i > 0 && t->sum != sum)
			return llm_error_set(err, LLM_E_INTERNAL, "the answers of two rounds differ");
		sum = t->sum;
	}
	printf("\n%d rows of %d shared and %d own tokens, %d generated\n", t->rows, t->shared, t->own,
		   t->gen);
	printf("%-16s %10s %10s %10s\n", "prefix cache", "rows/s", "best", "cached");
	for (int side = 1; side >= 0; side--)
	{
		double m = median(s.seconds[side], t->rounds);

		printf("%-16s %10.2f %10.2f %9.1f%%\n", side == 1 ? "on" : "off", t->rows / m,
			   t->rows / s.seconds[side][0], 100.0 * (double) s.cached[side] / (double) n_prompt);
	}
	printf("%-16s %10.2f\n", "on / off",
		   median(s.seconds[0], t->rounds) / median(s.seconds[1], t->rounds));
	fflush(stdout);
	return LLM_OK;
}

/* ---- the time of a step ---- */

/* Seconds of a decoding step of n sequences; 0 when they never ran all together. */
static LlmStatus
steps_run(Table *t, int32_t n, bool cache, double *seconds, LlmError *err)
{
	int32_t per_step = t->engine_options.max_batch_tokens;
	int64_t n_prompt = (int64_t) n * (t->shared + t->own);
	/* as many tokens as steps may pass until the last has begun, and those that are timed */
	int32_t gen = (int32_t) (2 * n_prompt / per_step) + n / 8 + 2 * STEPS_TIMED;
	LlmEngineStats base, s;
	int64_t first = 0;
	double begin = 0;
	bool idle = false;
	LlmStatus status;

	*seconds = 0;
	llm_engine_stats(t->engine, &base);
	status = round_begin(t, cache, n, gen, err);
	while (status == LLM_OK && !idle)
	{
		status = step(t, &idle, err);
		llm_engine_stats(t->engine, &s);
		if (first == 0 && s.running == n && s.prompt_tokens - base.prompt_tokens == n_prompt)
		{
			first = s.steps;
			begin = llm_clock_seconds();
		}
		else if (first > 0 && s.running == n)
			*seconds = (llm_clock_seconds() - begin) / (double) (s.steps - first);
	}
	return status;
}

static LlmStatus
steps_measure(Table *t, LlmError *err)
{
	printf("\na step that decodes, ms, %d shared and %d own tokens before it\n", t->shared, t->own);
	printf("%-16s %10s %10s %10s\n", "sequences", "shared", "own pages", "ratio");
	for (size_t k = 0; k < t->batches.len; k++)
	{
		int32_t n = t->batches.ids[k];
		double ms[2];
		Sides s;

		for (int32_t i = 0; i < 2 * t->rounds; i++)
		{
			LlmStatus status = steps_run(t, n, i % 2 == 1, &s.seconds[i % 2][i / 2], err);

			if (status != LLM_OK)
				return status;
		}
		for (int side = 0; side < 2; side++)
			ms[side] = 1e3 * median(s.seconds[side], t->rounds);
		if (ms[0] > 0 && ms[1] > 0)
			printf("%-16d %10.2f %10.2f %10.2f\n", n, ms[1], ms[0], ms[0] / ms[1]);
		else
			printf("%-16d do not fit into the KV cache together\n", n);
		fflush(stdout);
	}
	return LLM_OK;
}

static LlmStatus
table_run(Table *t, LlmError *err)
{
	LlmEngineEvents events = {.arg = t, .done = on_done};
	LlmStatus status;

	for (size_t k = 0; k < t->batches.len; k++)
		if (t->engine_options.max_running < t->batches.ids[k])
			t->engine_options.max_running = t->batches.ids[k];
	status = llm_engine_create(&t->engine_options, events, &t->engine, err);
	if (status == LLM_OK)
		status = llm_engine_load(t->engine, &t->spec, err);
	if (status == LLM_OK)
	{
		LlmEngineStats s;

		llm_engine_model(t->engine, &t->info);
		llm_engine_stats(t->engine, &s);
		printf("%s %s, %.1f million parameters, %s %s, %d threads\n", t->info.arch,
			   t->info.quantization, (double) t->info.n_params * 1e-6, t->info.device, t->info.isa,
			   s.threads);
	}
	if (status == LLM_OK && t->rows > 0)
		status = rows_measure(t, err);
	if (status == LLM_OK)
		status = steps_measure(t, err);
	llm_engine_free(t->engine);
	return status;
}

int
main(int argc, char **argv)
{
	Table t = {.engine_options = llm_engine_options_default(),
			   .rows = 256,
			   .shared = 354,
			   .own = 68,
			   .gen = 16,
			   .rounds = 3};
	LlmError err = {.text = "out of memory"};
	int64_t kv_megabytes = 0;
	int rc = options_read(&t, &kv_megabytes, argc, argv);

	if (rc < 0)
	{
		rc = 0;
		t.engine_options.devices = "cpu,echo";
		t.engine_options.kv_nbytes = kv_megabytes << 20;
		if ((t.batches.len == 0 && !llm_cli_list("--batch", "1,8,16,64", 1024, &t.batches)) ||
			table_run(&t, &err) != LLM_OK)
		{
			fprintf(stderr, "bench_table: %s\n", err.text);
			rc = 1;
		}
	}
	llm_tokens_fini(&t.batches);
	return rc;
}
