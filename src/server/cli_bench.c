/*
 * server/cli_bench.c - tokens per second of prefill and decode, with the work of each op.
 *
 * Prefill is one prompt of random ids, timed to its first token. Decode is a batch of requests whose
 * prompts of --depth ids are in the prefix cache, so that all begin within a few steps; what is
 * timed are the steps in which every one of them generates. Each is run --reps times, the median
 * counts. Bandwidth and peaks of the machine are measured before and after, on the same
 * threads; fractions refer to the best values: a fraction of bandwidth says how near decode is to
 * its bound, a fraction of peak how near prefill is.
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

#define LIST_MAX 16
#define MARGIN 4            /* tokens of each request before and after the timed ones */
#define MEASURE_SECONDS 0.3 /* each time */
#define DECODE_SEED 1       /* of the ids before decodes: phases find each other's in the cache */

typedef struct Bench
{
	LlmEngineOptions engine_options;
	LlmModelSpec spec;
	LlmTokens prompts, depths, batches;
	int64_t shared, gen_tokens, reps;
	int64_t kv_megabytes; /* 0 = the engine's default */
	bool json, profile;
	LlmEngine *engine;
	LlmModelInfo info;
	bool failed;      /* a request ended with an error */
	LlmError error;   /* which is this */
	uint64_t n_asked; /* requests so far: id of the next one */
	int64_t cached;   /* of the prompts of requests that ended, tokens from the prefix cache */
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
	"  --kv-memory MB      memory of the KV cache (default: a quarter of what is free)\n"
	"  --prompt-tokens LIST  of the prefill; 0 = none (default 512)\n"
	"  --gen-tokens N      of the decode, per request (default 128)\n"
	"  --batch LIST        requests that decode together; 0 = none (default 1,8)\n"
	"  --depth LIST        tokens before the generated ones, for each batch (default 0)\n"
	"  --shared N          of them, tokens that all of a batch begin with (default 0)\n"
	"  --reps N            repetitions; the median counts (default 3)\n"
	"  --profile           time and work of each op of a step; slows small steps by some 0.3%\n"
	"  --json              one JSON object instead of text\n"
	"  --help              print this\n";

/* A list without its zeroes, or the default when none was given. */
static bool
list_finish(LlmTokens *list, int32_t none, bool zeroes)
{
	size_t n = 0;

	if (list->len == 0)
		return llm_tokens_push(list, none);
	for (size_t i = 0; i < list->len; i++)
		if (zeroes || list->ids[i] > 0)
			list->ids[n++] = list->ids[i];
	list->len = n;
	return n <= LIST_MAX;
}

/* -1 = go on; otherwise the exit status. */
static int
options_read(Bench *b, int argc, char **argv)
{
	const LlmCliOption table[] = {
		{"model", LLM_CLI_TEXT, &b->spec.path},
		{"threads", LLM_CLI_I32, &b->engine_options.threads, 1, 256},
		{"isa", LLM_CLI_TEXT, &b->engine_options.isa},
		{"kv-type", LLM_CLI_TEXT, &b->spec.kv_type},
		{"kv-memory", LLM_CLI_I64, &b->kv_megabytes, 1, 1 << 24},
		{"prompt-tokens", LLM_CLI_LIST, &b->prompts, 0, 1 << 20},
		{"gen-tokens", LLM_CLI_I64, &b->gen_tokens, 2 * MARGIN + 1, 1 << 20},
		{"batch", LLM_CLI_LIST, &b->batches, 0, 1024},
		{"depth", LLM_CLI_LIST, &b->depths, 0, 1 << 20},
		{"shared", LLM_CLI_I64, &b->shared, 0, 1 << 20},
		{"reps", LLM_CLI_I64, &b->reps, 1, LLM_BENCH_REPS_MAX},
		{"profile", LLM_CLI_FLAG, &b->profile},
		{"json", LLM_CLI_FLAG, &b->json},
	};
	int rc = llm_cli_options_read(argc, argv, table, sizeof(table) / sizeof(table[0]), usage_text);
	bool batches_given;

	if (rc >= 0)
		return rc;
	if (b->spec.path == NULL)
		return llm_cli_usage_error("bench", "--model is missing");
	batches_given = b->batches.len > 0;
	if (!list_finish(&b->prompts, 512, false) || !list_finish(&b->batches, 1, false) ||
		!list_finish(&b->depths, 0, true) || (!batches_given && !llm_tokens_push(&b->batches, 8)))
		return llm_cli_usage_error("bench", "a list has up to 16 values");
	return -1;
}

static void
on_done(void *arg, const LlmResult *res)
{
	Bench *b = arg;

	b->cached += res->cached_tokens;
	if (res->status != LLM_OK)
	{
		b->failed = true;
		b->error = *res->error;
	}
}

/* Queue request i of a phase: ids that depend on `seed`, the first p->shared on it alone. */
static LlmStatus
ask(Bench *b, const LlmBenchPhase *p, uint64_t seed, int32_t i, int64_t max_tokens, LlmError *err)
{
	LlmRequest req = {
		.key = {1, ++b->n_asked},
		.kind = LLM_REQUEST_GENERATE,
		.prompt = {"", 0},
		.sample = {.top_p = 1.0f, .repetition_penalty = 1.0f},
		.max_tokens = (int32_t) max_tokens,
		.raw = true,
		.ignore_eos = true,
		.salt = seed,
	};
	LlmTokens ids = {0};
	LlmStatus status = LLM_OK;

	for (int32_t k = 0; status == LLM_OK && k < p->prompt; k++)
	{
		uint32_t stream = k < p->shared ? 0 : 1 + (uint32_t) i;

		if (!llm_tokens_push(&ids, (int32_t) (llm_rng_u32(seed, (uint32_t) k, stream) %
											  (uint32_t) b->info.vocab_size)))
			status = llm_error_set(err, LLM_E_MEMORY, "out of memory");
	}
	if (status == LLM_OK)
	{
		llm_engine_force_prompt(b->engine, ids.ids, (int32_t) ids.len);
		status = llm_engine_submit(b->engine, &req, err);
	}
	llm_tokens_fini(&ids);
	return status;
}

static int64_t
generated(const Bench *b)
{
	LlmEngineStats stats;

	llm_engine_stats(b->engine, &stats);
	return stats.generated_tokens;
}

/* Step until the engine has generated `end` tokens in its life, or all is idle. */
static LlmStatus
steps_run(Bench *b, int64_t end, LlmError *err)
{
	bool idle = false;
	LlmStatus status = LLM_OK;

	while (status == LLM_OK && !idle && generated(b) < end)
	{
		status = llm_engine_step(b->engine, &idle, err);
		if (b->failed && err != NULL)
		{
			*err = b->error;
			return b->error.code;
		}
	}
	return status;
}

/* Run to `end` with the clock on: one repetition of the phase. */
static LlmStatus
steps_time(Bench *b, LlmBenchPhase *p, int rep, int64_t end, LlmError *err)
{
	LlmEngineOpStat ops[LLM_BENCH_OPS_MAX];
	LlmStatus status;
	double start;

	llm_engine_op_stats(b->engine, ops, LLM_BENCH_OPS_MAX, true);
	start = llm_clock_seconds();
	status = steps_run(b, end, err);
	p->seconds[rep] = llm_clock_seconds() - start;
	p->n_ops = llm_engine_op_stats(b->engine, ops, LLM_BENCH_OPS_MAX, true);
	for (int i = 0; i < p->n_ops; i++)
	{
		LlmEngineOpStat *o = &p->ops[i];

		memcpy(o->name, ops[i].name, sizeof(o->name));
		o->calls += ops[i].calls;
		o->seconds += ops[i].seconds;
		o->waited += ops[i].waited;
		o->nbytes += ops[i].nbytes;
		o->ops += ops[i].ops;
	}
	return status;
}

/* rep -1 touches every page of the weights once and is not timed. */
static LlmStatus
prefill_run(Bench *b, LlmBenchPhase *p, int rep, LlmError *err)
{
	LlmStatus status = ask(b, p, DECODE_SEED + 1 + b->n_asked, 0, 1, err);

	p->tokens = p->prompt;
	if (status != LLM_OK)
		return status;
	return rep < 0 ? steps_run(b, INT64_MAX, err) : steps_time(b, p, rep, INT64_MAX, err);
}

/* rep -1 computes the prompts, so that the others find them in the prefix cache. */
static LlmStatus
decode_run(Bench *b, LlmBenchPhase *p, int rep, LlmError *err)
{
	int64_t base = generated(b), n = p->batch;
	LlmStatus status = LLM_OK;

	b->cached = 0;
	for (int32_t i = 0; status == LLM_OK && i < p->batch; i++)
		status = ask(b, p, DECODE_SEED, i, rep < 0 ? 1 : b->gen_tokens, err);
	if (status == LLM_OK && rep >= 0)
		status = steps_run(b, base + n * MARGIN, err);
	if (status == LLM_OK && rep >= 0)
	{
		p->tokens = -generated(b);
		status = steps_time(b, p, rep, base + n * (b->gen_tokens - MARGIN), err);
		p->tokens += generated(b);
	}
	if (status == LLM_OK)
		status = steps_run(b, INT64_MAX, err);
	if (status == LLM_OK && rep >= 0 && b->cached < n * (p->prompt - LLM_PAGE_TOKENS))
	{
		status = llm_error_set(err, LLM_E_KV_MEMORY,
							   "%d contexts of %d tokens do not fit into the KV cache", p->batch,
							   p->prompt);
		llm_error_hint(err, "Give it more with --kv-memory.");
	}
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
	LlmStatus status = LLM_OK;

	for (int rep = -1; status == LLM_OK && rep < b->reps; rep++)
		status = p->batch == 0 ? prefill_run(b, p, rep, err) : decode_run(b, p, rep, err);
	qsort(p->seconds, (size_t) b->reps, sizeof(double), double_cmp);
	return status;
}

/* Prefills, then the batches at each depth. Returns how many phases; fills them unless NULL. */
static size_t
phases_plan(Bench *b, LlmBenchPhase *out)
{
	size_t n = 0;

	for (size_t i = 0; i < b->prompts.len; i++, n++)
		if (out != NULL)
			out[n] = (LlmBenchPhase){.prompt = b->prompts.ids[i]};
	for (size_t i = 0; i < b->depths.len; i++)
		for (size_t j = 0; j < b->batches.len; j++, n++)
		{
			int32_t depth = b->depths.ids[i], shared = (int32_t) b->shared;

			if (out == NULL)
				continue;
			depth = depth > shared ? depth : shared + 1; /* also: a prompt has a token */
			out[n] = (LlmBenchPhase){b->batches.ids[j], depth, shared};
			if (b->engine_options.max_running < out[n].batch)
				b->engine_options.max_running = out[n].batch;
		}
	return n;
}

static LlmStatus
phases_run(Bench *b, LlmBenchPhase *phases, size_t n, LlmMachineLimits limits[2], LlmError *err)
{
	LlmEngineEvents events = {.arg = b, .done = on_done};
	LlmStatus status = llm_engine_create(&b->engine_options, events, &b->engine, err);

	if (status == LLM_OK)
		status = llm_engine_load(b->engine, &b->spec, err);
	if (status == LLM_OK)
	{
		llm_engine_model(b->engine, &b->info);
		llm_engine_op_times(b->engine, b->profile);
		llm_engine_measure(b->engine, MEASURE_SECONDS, &limits[0]);
	}
	for (size_t i = 0; status == LLM_OK && i < n; i++)
		status = phase_run(b, &phases[i], err);
	if (status == LLM_OK)
		llm_engine_measure(b->engine, MEASURE_SECONDS, &limits[1]);
	return status;
}

static LlmStatus
bench_run(Bench *b, LlmError *err)
{
	size_t n = phases_plan(b, NULL);
	LlmBenchPhase *phases = calloc(n + 1, sizeof(*phases));
	LlmMachineLimits limits[2] = {0};
	LlmStatus status = llm_error_set(err, LLM_E_MEMORY, "out of memory");

	if (phases != NULL)
	{
		phases_plan(b, phases);
		status = phases_run(b, phases, n, limits, err);
	}
	if (status == LLM_OK)
	{
		LlmBenchReport r = {.info = &b->info,
							.limits = llm_bench_limits(limits, 2),
							.reps = (int) b->reps,
							.int8_kv =
								b->spec.kv_type != NULL && strcmp(b->spec.kv_type, "int8") == 0,
							.phases = phases,
							.n_phases = n};
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
	Bench b = {.engine_options = llm_engine_options_default(), .gen_tokens = 128, .reps = 3};
	LlmError err = {.text = "out of memory"};
	int rc = options_read(&b, argc, argv);

	if (rc < 0)
	{
		rc = 0;
		b.engine_options.devices = "cpu,echo";
		b.engine_options.single_flight = false;
		b.engine_options.idle_pages =
			INT32_MAX; /* a batch decodes after its prompts were computed */
		b.engine_options.kv_nbytes = b.kv_megabytes << 20;
		if (bench_run(&b, &err) != LLM_OK)
		{
			llm_cli_error_print("bench", &err);
			rc = 1;
		}
	}
	llm_tokens_fini(&b.prompts);
	llm_tokens_fini(&b.depths);
	llm_tokens_fini(&b.batches);
	return rc;
}
