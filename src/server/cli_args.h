/* server/cli_args.h - values of command-line options, read strictly. */
#ifndef LLM_SERVER_CLI_ARGS_H
#define LLM_SERVER_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"

#define LLM_CLI_USAGE_STATUS 2 /* exit status of a wrong command line */

/* Each reads the whole of text into *out and is false, with a line on stderr that names the option
 * and the range, when it is anything else. */
bool llm_cli_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *out);
bool llm_cli_u64(const char *option, const char *text, uint64_t *out);
bool llm_cli_float(const char *option, const char *text, double min, double max, float *out);
/* "1,2,3": appended to out; at least one, each within 0 .. max. */
bool llm_cli_list(const char *option, const char *text, int64_t max, LlmTokens *out);

/* "llm_infer_engine COMMAND: text", detail and hint as lines on stderr. */
void llm_cli_error_print(const char *command, const LlmError *err);

#endif
