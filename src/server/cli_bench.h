/* server/cli_bench.h - `llm_infer_engine bench`: speed of a model, beside what the machine can do. */
#ifndef LLM_SERVER_CLI_BENCH_H
#define LLM_SERVER_CLI_BENCH_H

/* argv[0] is "bench". Returns the exit status: 0, 1 when the model failed, 2 for a wrong command
 * line. */
int llm_cli_bench(int argc, char **argv);

#endif
