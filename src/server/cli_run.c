/*
 * server/cli_run.c - one prompt to text, or many prompts as JSON lines to results as JSON lines.
 *
 * Also the hook of every test of equality: --dump-logits writes the logits of each step's output
 * rows, vocab_size floats a row, in step order; --dump-all those of prompt rows as well.
 */
#include "server/cli_run.h"

#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/llm.h"
#include "server/cli_args.h"
#include "server/cli_prompts.h"

#define MAX_TOKENS_DEFAULT 256

/* Outcome of one prompt, until it is printed. */
typedef struct Outcome
{
	json_t *line; /* NULL = not there yet; owned */
	bool failed;
} Outcome;

typedef struct Run
{
	LlmEngineOptions engine_options;
	LlmModelSpec spec;
	LlmCliPrompt base; /* defaults of every prompt */
	const char *prompt, *system, *jsonl, *dump;
	LlmTokens prompt_ids; /* of --prompt-ids */
	int64_t kv_megabytes; /* 0 = the engine's default */
	bool dump_all;
	bool tokenize;
	int32_t logprobs; /* likeliest tokens beside each log-probability; -1 = none are wanted */
	bool prompt_logprobs;
	LlmCliPrompts prompts;
	LlmEngine *engine;
	FILE *dump_file;
	bool dump_failed;
	Outcome *outcomes; /* [n_outcomes] of the prompts that were submitted */
	size_t n_outcomes;
	size_t n_printed; /* outcomes printed, in the order of the prompts */
	bool failed;      /* any of them */
} Run;

static const char usage_text[] =
	"usage: llm_infer_engine run --model FILE (--prompt TEXT | --prompt-ids LIST | --jsonl FILE)\n"
	"\n"
	"Generates text from a GGUF model (or \"echo:\") and prints it.\n"
	"\n"
	"  --model FILE         model file, or echo:\n"
	"  --prompt TEXT        what to answer\n"
	"  --system TEXT        system message\n"
	"  --prompt-ids LIST    token ids of the whole prompt, such as 1,2,3\n"
	"  --jsonl FILE         many prompts, one JSON object per line (- = standard input) with the\n"
	"                       keys prompt, system, ids, max_tokens, seed, temperature, ignore_eos,\n"
	"                       raw; the results come as JSON lines in the same order. An empty line\n"
	"                       of standard input starts what stands before it, and what comes after\n"
	"                       its results is run as well, by the same engine\n"
	"  --tokenize           print the token ids of the text of the prompt, or of each line's\n"
	"  --raw                no chat template: continue the text as it is\n"
	"  --max-tokens N       tokens to generate at most (default 256)\n"
	"  --temperature X      0 = always the likeliest token (default: the model's)\n"
	"  --seed N             of the random numbers (default 0)\n"
	"  --ignore-eos         go on until --max-tokens\n"
	"  --logprobs N         with --jsonl: log-probabilities of the answer's tokens, each a list "
	"of\n"
	"                       [id, logprob] of the token and of the N likeliest (0 to 20)\n"
	"  --prompt-logprobs    the same for the tokens of the prompt\n"
	"  --threads N          compute threads (default: physical cores)\n"
	"  --isa NAME           generic, avx2, ... (default: the best there is)\n"
	"  --kv-type TYPE       f16 (default), f32 or int8\n"
	"  --kv-memory MB       memory of the KV cache (default: a quarter of what is free)\n"
	"  --context N          context length (default: the model's)\n"
	"  --batch-tokens N     tokens in a step (default 512)\n"
	"  --running N          prompts in a step (default 64)\n"
	"  --prefix-cache on|off  compute what prompts share once (default on)\n"
	"  --single-flight on|off  generate an answer once for prompts that ask the same (default on)\n"
	"  --preempt-every N    for tests: preempt a random prompt every N steps\n"
	"  --dump-logits FILE   write the logits of every step as raw 32-bit floats\n"
	"  --dump-all           those of prompt tokens as well; turns the prefix cache off\n"
	"  --help               print this\n";

/* -1 = go on; otherwise the exit status. */
static int
options_read(Run *r, int argc, char **argv)
{
	LlmEngineOptions *o = &r->engine_options;
	const LlmCliOption table[] = {
		{"model", LLM_CLI_TEXT, &r->spec.path},
		{"prompt", LLM_CLI_TEXT, &r->prompt},
		{"system", LLM_CLI_TEXT, &r->system},
		{"prompt-ids", LLM_CLI_LIST, &r->prompt_ids, 0, INT32_MAX},
		{"jsonl", LLM_CLI_TEXT, &r->jsonl},
		{"tokenize", LLM_CLI_FLAG, &r->tokenize},
		{"raw", LLM_CLI_FLAG, &r->base.raw},
		{"max-tokens", LLM_CLI_I32, &r->base.max_tokens, 0, INT32_MAX},
		{"temperature", LLM_CLI_FLOAT, &r->base.temperature, 0, FLT_MAX},
		{"seed", LLM_CLI_U64, &r->base.seed},
		{"ignore-eos", LLM_CLI_FLAG, &r->base.ignore_eos},
		{"logprobs", LLM_CLI_I32, &r->logprobs, 0, LLM_TOP_LOGPROBS_MAX},
		{"prompt-logprobs", LLM_CLI_FLAG, &r->prompt_logprobs},
		{"threads", LLM_CLI_I32, &o->threads, 1, 256},
		{"isa", LLM_CLI_TEXT, &o->isa},
		{"kv-type", LLM_CLI_TEXT, &r->spec.kv_type},
		{"kv-memory", LLM_CLI_I64, &r->kv_megabytes, 1, 1 << 24},
		{"context", LLM_CLI_I32, &r->spec.context_length, 1, INT32_MAX},
		{"batch-tokens", LLM_CLI_I32, &o->max_batch_tokens, 1, 8192},
		{"running", LLM_CLI_I32, &o->max_running, 1, 1024},
		{"prefix-cache", LLM_CLI_ONOFF, &o->prefix_cache},
		{"single-flight", LLM_CLI_ONOFF, &o->single_flight},
		{"preempt-every", LLM_CLI_I32, &o->preempt_every, 0, UINT32_MAX},
		{"dump-logits", LLM_CLI_TEXT, &r->dump},
		{"dump-all", LLM_CLI_FLAG, &r->dump_all},
	};
	int rc = llm_cli_options_read(argc, argv, table, sizeof(table) / sizeof(table[0]), usage_text);

	if (rc >= 0)
		return rc;
	o->kv_nbytes = r->kv_megabytes << 20;
	o->prefix_cache = o->prefix_cache && !r->dump_all; /* a hit has no rows to dump */
	if (r->spec.path == NULL)
		return llm_cli_usage_error("run", "--model is missing");
	if ((r->prompt != NULL) + (r->prompt_ids.len > 0) + (r->jsonl != NULL) != 1)
		return llm_cli_usage_error("run", "one of --prompt, --prompt-ids and --jsonl is needed");
	if (r->tokenize && r->prompt == NULL && r->jsonl == NULL)
		return llm_cli_usage_error("run", "--tokenize needs --prompt or --jsonl");
	if (r->system != NULL && r->prompt == NULL)
		return llm_cli_usage_error("run", "--system needs --prompt");
	if ((r->logprobs >= 0 || r->prompt_logprobs) && r->jsonl == NULL)
		return llm_cli_usage_error("run", "log-probabilities need --jsonl");
	if (r->dump_all && r->dump == NULL)
		return llm_cli_usage_error("run", "--dump-all needs --dump-logits");
	return -1;
}

static LlmStatus
prompts_collect(Run *r, LlmError *err)
{
	LlmCliPrompt *q;

	if (r->jsonl != NULL)
		return llm_cli_prompts_read(&r->prompts, r->jsonl, &r->base, err);
	q = llm_cli_prompts_add(&r->prompts, &r->base);
	if (q == NULL || !llm_buf_append(&q->text, r->prompt, llm_str(r->prompt).len) ||
		!llm_buf_append(&q->system, r->system, llm_str(r->system).len) ||
		!llm_tokens_append(&q->ids, r->prompt_ids.ids, r->prompt_ids.len))
		return llm_error_set(err, LLM_E_MEMORY, "out of memory");
	q->has_system = r->system != NULL;
	return LLM_OK;
}

/* ---- results ---- */

/* Print what is ready, in the order of the prompts. */
static void
outcomes_print(Run *r)
{
	for (; r->n_printed < r->n_outcomes && r->outcomes[r->n_printed].line != NULL; r->n_printed++)
	{
		json_t **line = &r->outcomes[r->n_printed].line;

		json_dumpf(*line, stdout, JSON_COMPACT);
		fputc('\n', stdout);
		json_decref(*line);
		*line = NULL;
	}
	fflush(stdout);
}

/* A prompt failed: a line of its own in a JSON run, text on stderr otherwise. */
static void
outcome_fail(Run *r, size_t i, const LlmError *err)
{
	r->failed = true;
	if (r->jsonl == NULL)
	{
		llm_cli_error_print("run", err);
		return;
	}
	r->outcomes[i].line = json_pack("{s:I, s:s, s:s}", "id", (json_int_t) i, "error", err->text,
									"status", llm_status_name(err->code));
	outcomes_print(r);
}

static const char *
finish_name(LlmFinish finish)
{
	static const char *const names[] = {"stop", "length", "cancelled", "error"};

	return names[finish];
}

static void
on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	fwrite(piece.p, 1, piece.len, stdout);
	fflush(stdout);
}

static void
report_print(const LlmResult *res)
{
	double decode_ms = res->total_ms - res->first_token_ms;

	fprintf(stderr, "%d prompt tokens (%d cached) in %.0f ms, %d tokens", res->prompt_tokens,
			res->cached_tokens, res->first_token_ms, res->completion_tokens);
	if (res->completion_tokens > 1 && decode_ms > 0)
		fprintf(stderr, ", %.1f tokens/s", 1e3 * (res->completion_tokens - 1) / decode_ms);
	fprintf(stderr, ", finish: %s\n", finish_name(res->finish));
}

static json_t *
id_list(const int32_t *ids, int32_t n)
{
	json_t *list = json_array();

	for (int32_t k = 0; k < n; k++)
		json_array_append_new(list, json_integer(ids[k]));
	return list;
}

/* n rows of [1 + n_top] as lists of [id, logprob]; what is no number is null. */
static json_t *
logprob_list(const LlmLogprob *rows, int32_t n, int32_t n_top)
{
	json_t *list = json_array();

	for (int32_t i = 0; i < n; i++)
	{
		json_t *row = json_array();

		for (int32_t k = 0; k <= n_top; k++, rows++)
			if (rows->token >= 0)
				json_array_append_new(row, isfinite(rows->logprob)
											   ? json_pack("[i, f]", rows->token, rows->logprob)
											   : json_pack("[i, n]", rows->token));
		json_array_append_new(list, row);
	}
	return list;
}

static void
on_done(void *arg, const LlmResult *res)
{
	Run *r = arg;
	size_t i = (size_t) res->key.id;
	json_t *tokens;

	if (res->status != LLM_OK)
	{
		outcome_fail(r, i, res->error);
		return;
	}
	if (r->tokenize && r->jsonl == NULL)
	{
		for (int32_t k = 0; k < res->n_tokens; k++)
			printf("%s%d", k == 0 ? "" : " ", res->tokens[k]);
		putchar('\n');
		return;
	}
	if (r->jsonl == NULL)
	{
		putchar('\n');
		fflush(stdout); /* the report goes to stderr */
		report_print(res);
		return;
	}
	tokens = r->tokenize ? id_list(res->tokens, res->n_tokens)
						 : id_list(res->generated, res->completion_tokens);
	if (r->tokenize)
		r->outcomes[i].line = json_pack("{s:I, s:o}", "id", (json_int_t) i, "tokens", tokens);
	else
		r->outcomes[i].line =
			json_pack("{s:I, s:s%, s:o, s:s, s:i, s:i, s:i}", "id", (json_int_t) i, "text",
					  res->text.len > 0 ? res->text.p : "", res->text.len, "tokens", tokens,
					  "finish", finish_name(res->finish), "prompt_tokens", res->prompt_tokens,
					  "cached_tokens", res->cached_tokens, "completion_tokens",
					  res->completion_tokens);
	if (res->logprobs != NULL)
		json_object_set_new(r->outcomes[i].line, "logprobs",
							logprob_list(res->logprobs, res->completion_tokens, res->n_top));
	if (res->prompt_logprobs != NULL)
		json_object_set_new(r->outcomes[i].line, "prompt_logprobs",
							logprob_list(res->prompt_logprobs, res->prompt_tokens, res->n_top));
	outcomes_print(r);
}

static void
on_logits(void *arg, LlmRequestKey key, int32_t position, const float *logits, int32_t vocab_size)
{
	Run *r = arg;
	size_t n = (size_t) vocab_size;

	if (fwrite(logits, sizeof(float), n, r->dump_file) != n)
		r->dump_failed = true;
}

/* ---- the run ---- */

static LlmStatus
engine_open(Run *r, LlmError *err)
{
	LlmEngineEvents events = {.arg = r, .text = on_text, .done = on_done};
	LlmModelInfo info;
	LlmEngineStats stats;
	LlmStatus status = llm_engine_create(&r->engine_options, events, &r->engine, err);

	if (status == LLM_OK && r->dump != NULL)
	{
		r->dump_file = fopen(r->dump, "we");
		if (r->dump_file == NULL)
			return llm_error_set(err, LLM_E_IO, "could not open \"%s\": %s", r->dump,
								 strerror(errno));
		llm_engine_logits_hook(r->engine, on_logits, r, r->dump_all);
	}
	if (status == LLM_OK)
		status = llm_engine_load(r->engine, &r->spec, err);
	if (status != LLM_OK || !llm_engine_model(r->engine, &info))
		return status;
	llm_engine_stats(r->engine, &stats);
	fprintf(
		stderr,
		"%s %s, %.1f million parameters, %s %s, %d threads, context %d, %.1f MB on the device\n",
		info.arch, info.quantization, (double) info.n_params * 1e-6, info.device, info.isa,
		stats.threads, info.context_length, (double) info.device_nbytes * 1e-6);
	return LLM_OK;
}

static LlmStatus
prompt_submit(Run *r, size_t i, LlmError *err)
{
	const LlmCliPrompt *q = &r->prompts.list[i];
	LlmRequest req = {
		.key = {1, i},
		.kind = r->tokenize ? LLM_REQUEST_TOKENIZE : LLM_REQUEST_GENERATE,
		.prompt = {q->text.data, q->text.len},
		.system = {q->has_system ? q->system.data : NULL, q->system.len},
		.sample = {.temperature = q->temperature,
				   .top_p = 1.0f,
				   .repetition_penalty = 1.0f,
				   .seed = q->seed},
		.max_tokens = q->max_tokens,
		.raw = q->raw,
		.ignore_eos = q->ignore_eos,
		.stream = r->jsonl == NULL,
		.logprobs = r->logprobs >= 0 && !r->tokenize,
		.prompt_logprobs = r->prompt_logprobs && !r->tokenize,
		.n_top = r->logprobs > 0 ? r->logprobs : 0,
	};

	if (q->ids.len > 0)
		llm_engine_force_prompt(r->engine, q->ids.ids, (int32_t) q->ids.len);
	return llm_engine_submit(r->engine, &req, err);
}

/* Run the prompts that have no outcome yet, and say on stderr how long that took. */
static LlmStatus
prompts_run(Run *r, LlmError *err)
{
	size_t n_before = r->n_outcomes, n = r->prompts.n - n_before;
	Outcome *outcomes = realloc(r->outcomes, (r->prompts.n + 1) * sizeof(*outcomes));
	LlmEngineStats was, is;
	LlmStatus status = LLM_OK;
	bool idle = false;
	double begin;
	clock_t cpu_begin;

	if (outcomes == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory");
	memset(&outcomes[n_before], 0, n * sizeof(*outcomes));
	r->outcomes = outcomes;
	r->n_outcomes = r->prompts.n;
	llm_engine_stats(r->engine, &was);
	begin = llm_clock_seconds();
	cpu_begin = clock();
	for (size_t i = n_before; i < r->n_outcomes; i++)
		if (prompt_submit(r, i, err) != LLM_OK)
			outcome_fail(r, i, err);
	while (status == LLM_OK && !idle)
		status = llm_engine_step(r->engine, &idle, err);
	if (status != LLM_OK || r->jsonl == NULL)
		return status;
	llm_engine_stats(r->engine, &is);
	fprintf(stderr,
			"%zu prompts, %lld prompt tokens (%lld cached), %lld tokens in %.3f s, %.3f s of CPU "
			"time\n",
			n, (long long) (is.prompt_tokens - was.prompt_tokens),
			(long long) (is.cached_tokens - was.cached_tokens),
			(long long) (is.generated_tokens - was.generated_tokens), llm_clock_seconds() - begin,
			(double) (clock() - cpu_begin) / CLOCKS_PER_SEC);
	return LLM_OK;
}

static LlmStatus
run_all(Run *r, LlmError *err)
{
	bool many = r->jsonl != NULL && strcmp(r->jsonl, "-") == 0;
	LlmStatus status = prompts_collect(r, err);

	if (status == LLM_OK)
		status = engine_open(r, err);
	if (status == LLM_OK)
		status = prompts_run(r, err);
	while (status == LLM_OK && many && (status = prompts_collect(r, err)) == LLM_OK &&
		   r->prompts.n > r->n_outcomes)
		status = prompts_run(r, err);
	if (status == LLM_OK)
		llm_engine_unload(r->engine);
	return status;
}

static int
run_finish(Run *r)
{
	int rc = r->failed ? 1 : 0;

	if (r->dump_file != NULL && (fclose(r->dump_file) != 0 || r->dump_failed))
	{
		fprintf(stderr, "llm_infer_engine run: could not write \"%s\"\n", r->dump);
		rc = 1;
	}
	llm_engine_free(r->engine);
	for (size_t i = 0; i < r->n_outcomes; i++)
		json_decref(r->outcomes[i].line);
	free(r->outcomes);
	llm_cli_prompts_fini(&r->prompts);
	return rc;
}

int
llm_cli_run(int argc, char **argv)
{
	Run r = {.engine_options = llm_engine_options_default(),
			 .base = {.max_tokens = MAX_TOKENS_DEFAULT, .temperature = -1.0f},
			 .logprobs = -1};
	int rc = options_read(&r, argc, argv);
	LlmError err;

	r.engine_options.devices = "cpu,echo";
	if (rc < 0)
	{
		if (run_all(&r, &err) != LLM_OK)
		{
			llm_cli_error_print("run", &err);
			r.failed = true;
		}
		rc = run_finish(&r);
	}
	llm_tokens_fini(&r.prompt_ids);
	return rc;
}
