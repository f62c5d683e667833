/* server/cli_table.h - `llm_infer_engine table`: what sharing is worth on a table of prompts. */
#ifndef LLM_SERVER_CLI_TABLE_H
#define LLM_SERVER_CLI_TABLE_H

/* argv[0] is "table". Returns the exit status: 0, 1 when the model failed or an answer was another one
 * than before, 2 for a wrong command line. */
int llm_cli_table(int argc, char **argv);

#endif
