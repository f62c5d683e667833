/* server/cli_args.h - command-line options from a table, with values that are read strictly. */
#ifndef LLM_SERVER_CLI_ARGS_H
#define LLM_SERVER_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
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

/* What an option takes, and the type behind `to`. */
typedef enum LlmCliKind
{
	LLM_CLI_FLAG,  /* nothing; bool, set to true */
	LLM_CLI_ONOFF, /* "on" or "off"; bool */
	LLM_CLI_TEXT,  /* const char *, borrowed from argv */
	LLM_CLI_I32,   /* int32_t or uint32_t, min .. max */
	LLM_CLI_I64,   /* int64_t, min .. max */
	LLM_CLI_U64,   /* uint64_t */
	LLM_CLI_FLOAT, /* float, min .. max */
	LLM_CLI_LIST   /* LlmTokens, each 0 .. max */
} LlmCliKind;

typedef struct LlmCliOption
{
	const char *name; /* without dashes */
	LlmCliKind kind;
	void *to;
	double min, max;
} LlmCliOption;

#define LLM_CLI_OPTIONS_MAX 32

/* Read argv, whose first word is the command, by a table of n options; the last value of an option
 * counts. -1 = go on; otherwise the exit status: 0 after --help, which prints usage. */
int llm_cli_options_read(int argc, char **argv, const LlmCliOption *table, size_t n,
						 const char *usage);
/* Say what is wrong with the command line, on stderr; gives LLM_CLI_USAGE_STATUS. */
int llm_cli_usage_error(const char *command, const char *text);

/* "llm_infer_engine COMMAND: text", detail and hint as lines on stderr. */
void llm_cli_error_print(const char *command, const LlmError *err);

#endif
