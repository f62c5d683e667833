/*
 * server/cli_bench.c - tokens per second of prefill and decode, with the work of each op.
 *
 * Prefill is one prompt of random ids, timed to its first token. Decode is a batch of prompts of
 * DECODE_PROMPT ids, timed from the step after which all of them generate until the last has ended.
 * Each is run --reps times, the median counts. Bandwidth and peaks of the machine are measured
 * before, between and after, on the same threads, and the largest value is what fractions refer to:
 * a fraction of bandwidth says how near decode is to its bound, a fraction of peak how near prefill
 * is.
 */
#include "server/cli_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/rng.h"
#include "engine/llm.h"
#include "server/cli_args.h"
#include "server/cli_bench_report.h"

#define DECODE_PROMPT 8 /* ids before the generated ones */
#define BATCHES_MAX 16
#define MEASURE_SECONDS 0.4 /* each time */

typedef struct Bench
{
	LlmEngineOptions engine_options;
	LlmModelSpec spec;
	int64_t prompt_tokens, gen_tokens, reps;
	LlmTokens batches;
	bool json, profile;
	LlmEngine *engine;
	LlmModelInfo info;
	LlmMachineLimits limits;
	bool failed;      /* a request ended with an error */
	LlmError error;   /* which is this */
	uint64_t n_asked; /* requests so far: id, seed and salt of the next one */
} Bench;

static const char usage_text[] =
	"usage: llm_infer_engine bench --model FILE [OPTIONS]\n"
	"\n"
	"Measures prefill and decode of a GGUF model, and the machine in the same run.\n"
	"\n"
	"  --model FILE        model file\n"
	"  --threads N         compute threads (default: physical cores)\n"
	"  --isa NAME          generic, avx2, ... (default: the best there is)\n"
	"  --kv-type TYPE      f16 (default), f32 or int8\n"
	"  --prompt-tokens N   of the prefill (default 512)\n"
	"  --gen-tokens N      of the decode, per request (default 128)\n"
	"  --batch LIST        requests that decode together (default 1,8)\n"
	"  --reps N            repetitions; the median counts (default 3)\n"
	"  --profile           time and work of each op of a step\n"
	"  --json              one JSON object instead of text\n"
	"  --help              print this\n";

/* -1 = go on; otherwise the exit status. */
static int
options_read(Bench *b, int argc, char **argv)
{
	const LlmCliOption table[] = {
		{"model", LLM_CLI_TEXT, &b->spec.path},
		{"threads", LLM_CLI_I32, &b->engine_options.threads, 1, 256},
		{"isa", LLM_CLI_TEXT, &b->engine_options.isa},
		{"kv-type", LLM_CLI_TEXT, &b->spec.kv_type},
		{"prompt-tokens", LLM_CLI_I64, &b->prompt_tokens, 1, 1 << 20},
		{"gen-tokens", LLM_CLI_I64, &b->gen_tokens, 2, 1 << 20},
		{"batch", LLM_CLI_LIST, &b->batches, 0, 1024},
		{"reps", LLM_CLI_I64, &b->reps, 1, LLM_BENCH_REPS_MAX},
		{"profile", LLM_CLI_FLAG, &b->profile},
		{"json", LLM_CLI_FLAG, &b->json},
	};
	int rc = llm_cli_options_read(argc, argv, table, sizeof(table) / sizeof(table[0]), usage_text);

	if (rc >= 0)
		return rc;
	if (b->spec.path == NULL)
		return llm_cli_usage_error("bench", "--model is missing");
	for (size_t i = 0; i < b->batches.len; i++)
		if (b->batches.ids[i] == 0 || b->batches.len > BATCHES_MAX)
			return llm_cli_usage_error("bench", "--batch takes up to 16 sizes of 1 and more");
	return -1;
}

static void
on_done(void *arg, const LlmResult *res)
{
	Bench *b = arg;

	if (res->status != LLM_OK)
	{
		b->failed = true;
		b->error = *res->error;
	}
}

/* Queue one request of n random ids; its own salt keeps cached prefixes out of the measurement. */
static LlmStatus
ask(Bench *b, int64_t n, int64_t max_tokens, LlmError *err)
{
	uint64_t id = ++b->n_asked;
	LlmRequest req = {
		.key = {1, id},
		.kind = LLM_REQUEST_GENERATE,
		.prompt = {"", 0},
		.sample = {.top_p = 1.0f, .repetition_penalty = 1.0f},
		.max_tokens = (int32_t) max_tokens,
		.raw = true,
		.ignore_eos = true,
		.salt = id,
	};
	LlmTokens ids = {0};
	LlmStatus status = LLM_OK;

	for (int64_t i = 0; status == LLM_OK && i < n; i++)
		if (!llm_tokens_push(&ids, (int32_t) (llm_rng_u32(id, (uint32_t) i, 0) %
											  (uint32_t) b->info.vocab_size)))
			status = llm_error_set(err, LLM_E_MEMORY, "out of memory");
	if (status == LLM_OK)
	{
		llm_engine_force_prompt(b->engine, ids.ids, (int32_t) ids.len);
		status = llm_engine_submit(b->engine, &req, err);
	}
	llm_tokens_fini(&ids);
	return status;
}

/* Step until `generated` tokens have come since the engine's count was `base`, or all is idle. */
static LlmStatus
steps_run(Bench *b, int64_t base, int64_t generated, LlmError *err)
{
	bool idle = false;
	LlmStatus status = LLM_OK;
	LlmEngineStats stats = {0};

	while (status == LLM_OK && !idle && stats.generated_tokens - base < generated)
	{
		status = llm_engine_step(b->engine, &idle, err);
		llm_engine_stats(b->engine, &stats);
		if (b->failed && err != NULL)
		{
			*err = b->error;
			return b->error.code;
		}
	}
	return status;
}

/* One repetition: p->batch requests of n_prompt ids and n_gen tokens. What is timed begins after
 * the first `skip` tokens of all. */
static LlmStatus
repetition_run(Bench *b, LlmBenchPhase *p, int64_t n_prompt, int64_t n_gen, int64_t skip,
			   double *seconds, LlmError *err)
{
	LlmEngineOpStat ignored[LLM_BENCH_OPS_MAX];
	LlmEngineOpStat ops[LLM_BENCH_OPS_MAX];
	LlmEngineStats stats;
	LlmStatus status = LLM_OK;
	int64_t base;
	int n;

	llm_engine_stats(b->engine, &stats);
	base = stats.generated_tokens;
	for (int32_t i = 0; status == LLM_OK && i < p->batch; i++)
		status = ask(b, n_prompt, n_gen, err);
	if (status == LLM_OK && skip > 0)
		status = steps_run(b, base, skip, err);
	if (status != LLM_OK)
		return status;
	llm_engine_stats(b->engine, &stats);
	p->tokens = skip > 0 ? base + p->batch * n_gen - stats.generated_tokens : p->batch * n_prompt;
	llm_engine_op_stats(b->engine, ignored, LLM_BENCH_OPS_MAX, true);
	*seconds = llm_clock_seconds();
	status = steps_run(b, base, INT64_MAX, err);
	*seconds = llm_clock_seconds() - *seconds;
	n = llm_engine_op_stats(b->engine, ops, LLM_BENCH_OPS_MAX, true);
	for (int i = 0; i < n; i++)
	{
		LlmEngineOpStat *o = &p->ops[i];

		if (i >= p->n_ops)
			*o = ops[i];
		else
		{
			o->calls += ops[i].calls;
			o->seconds += ops[i].seconds;
			o->nbytes += ops[i].nbytes;
			o->ops += ops[i].ops;
		}
	}
	p->n_ops = n;
	return status;
}

static int
double_cmp(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static LlmStatus
phase_run(Bench *b, LlmBenchPhase *p, LlmError *err)
{
	bool prefill = strcmp(p->name, "prefill") == 0;
	LlmStatus status = LLM_OK;
	LlmBenchPhase warm = *p;
	double ignored;

	if (prefill) /* touch every page of the weights once */
		status = repetition_run(b, &warm, b->prompt_tokens, 1, 0, &ignored, err);
	for (int64_t i = 0; status == LLM_OK && i < b->reps; i++)
		status = prefill ? repetition_run(b, p, b->prompt_tokens, 1, 0, &p->seconds[i], err)
						 : repetition_run(b, p, DECODE_PROMPT, b->gen_tokens, p->batch,
										  &p->seconds[i], err);
	qsort(p->seconds, (size_t) b->reps, sizeof(double), double_cmp);
	return status;
}

static void
limits_measure(Bench *b)
{
	LlmMachineLimits m = {0};

	llm_engine_measure(b->engine, MEASURE_SECONDS, &m);
	if (m.read_bandwidth > b->limits.read_bandwidth)
		b->limits.read_bandwidth = m.read_bandwidth;
	if (m.int8_ops > b->limits.int8_ops)
		b->limits.int8_ops = m.int8_ops;
	if (m.f32_ops > b->limits.f32_ops)
		b->limits.f32_ops = m.f32_ops;
}

static LlmStatus
bench_run(Bench *b, LlmError *err)
{
	LlmEngineEvents events = {.arg = b, .done = on_done};
	size_t n = 1 + b->batches.len;
	LlmBenchPhase *phases = calloc(n, sizeof(*phases));
	LlmStatus status;

	if (phases == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory");
	strcpy(phases[0].name, "prefill");
	phases[0].batch = 1;
	for (size_t i = 1; i < n; i++)
	{
		strcpy(phases[i].name, "decode");
		phases[i].batch = b->batches.ids[i - 1];
		if (b->engine_options.max_running < phases[i].batch)
			b->engine_options.max_running = phases[i].batch;
	}
	status = llm_engine_create(&b->engine_options, events, &b->engine, err);
	if (status == LLM_OK)
		status = llm_engine_load(b->engine, &b->spec, err);
	if (status == LLM_OK)
	{
		llm_engine_model(b->engine, &b->info);
		llm_engine_op_times(b->engine, b->profile);
		limits_measure(b);
	}
	for (size_t i = 0; status == LLM_OK && i < n; i++)
	{
		status = phase_run(b, &phases[i], err);
		limits_measure(b);
	}
	if (status == LLM_OK)
	{
		LlmBenchReport r = {&b->info, b->limits, 0, (int) b->reps, phases, n};
		LlmEngineStats stats;

		llm_engine_stats(b->engine, &stats);
		r.threads = stats.threads;
		llm_bench_report_print(&r, b->profile, b->json);
	}
	llm_engine_free(b->engine);
	free(phases);
	return status;
}

int
llm_cli_bench(int argc, char **argv)
{
	Bench b = {.engine_options = llm_engine_options_default(),
			   .prompt_tokens = 512,
			   .gen_tokens = 128,
			   .reps = 3};
	LlmError err = {.text = "out of memory"};
	int rc = options_read(&b, argc, argv);

	if (rc < 0)
	{
		rc = 0;
		b.engine_options.devices = "cpu,echo";
		if ((b.batches.len == 0 && !llm_cli_list("--batch", "1,8", 1024, &b.batches)) ||
			bench_run(&b, &err) != LLM_OK)
		{
			llm_cli_error_print("bench", &err);
			rc = 1;
		}
	}
	llm_tokens_fini(&b.batches);
	return rc;
}
