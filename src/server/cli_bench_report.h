/* server/cli_bench_report.h - what a benchmark measured, as text or JSON. */
#ifndef LLM_SERVER_CLI_BENCH_REPORT_H
#define LLM_SERVER_CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/llm.h"

#define LLM_BENCH_REPS_MAX 100
#define LLM_BENCH_OPS_MAX 32

/* One line of the report: a phase at a batch size. */
typedef struct LlmBenchPhase
{
	char name[8];                       /* "prefill" or "decode" */
	int32_t batch;                      /* requests */
	int64_t tokens;                     /* per repetition */
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
	const LlmBenchPhase *phases; /* [n_phases] op counts are sums over all repetitions */
	size_t n_phases;
} LlmBenchReport;

/* To stdout. profile: the times of ops were measured, so text shows them. */
void llm_bench_report_print(const LlmBenchReport *r, bool profile, bool json);

#endif
