/* server/cli_run.h - `llm_infer_engine run`: generate from a model file, without PostgreSQL. */
#ifndef LLM_SERVER_CLI_RUN_H
#define LLM_SERVER_CLI_RUN_H

/* argv[0] is "run". Returns the exit status: 0, 1 when a prompt or the model failed, 2 for a wrong
 * command line. */
int llm_cli_run(int argc, char **argv);

#endif
