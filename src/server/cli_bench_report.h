/* server/cli_bench_report.h - what a benchmark measured, as text or JSON. */
#ifndef LLM_SERVER_CLI_BENCH_REPORT_H
#define LLM_SERVER_CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/llm.h"

#define LLM_BENCH_REPS_MAX 100
#define LLM_BENCH_OPS_MAX 32

/* One line of the report. */
typedef struct LlmBenchPhase
{
	int32_t batch;  /* requests that decode; 0 = a prefill of one */
	int32_t prompt; /* tokens of each prompt: prefilled, or there before */
	int32_t shared; /* of them, the first ones that all requests have in common */
	int64_t tokens; /* per repetition */
	double seconds[LLM_BENCH_REPS_MAX]; /* [reps], sorted at the end */
	LlmEngineOpStat ops[LLM_BENCH_OPS_MAX];
	int n_ops;
} LlmBenchPhase;

typedef struct LlmBenchReport
{
	const LlmModelInfo *info;
	LlmMachineLimits limits;
	int32_t threads;
	int reps;
	bool int8_kv;
	const LlmBenchPhase *phases; /* [n_phases] op counts are sums over all repetitions */
	size_t n_phases;
} LlmBenchReport;

/* The best and the medians of n measurements of the machine. */
LlmMachineLimits llm_bench_limits(const LlmMachineLimits *list, size_t n);

/* To stdout. profile: the times of ops were measured, so text shows them. */
void llm_bench_report_print(const LlmBenchReport *r, bool profile, bool json);

#endif
