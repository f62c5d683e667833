/* server/cli_prompts.h - the prompts of a run: one from the command line, or many as JSON lines. */
#ifndef LLM_SERVER_CLI_PROMPTS_H
#define LLM_SERVER_CLI_PROMPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"

/* What one prompt asks for. */
typedef struct LlmCliPrompt
{
	LlmBuf text;   /* the user's words */
	LlmBuf system; /* with has_system */
	bool has_system;
	LlmTokens ids; /* len > 0: these are the prompt, whatever text says */
	int32_t max_tokens;
	uint64_t seed;
	float temperature; /* < 0 = the model's own */
	bool ignore_eos;
	bool raw;
} LlmCliPrompt;

typedef struct LlmCliPrompts
{
	LlmCliPrompt *list; /* [n] owned, with all that they hold */
	size_t n;
	size_t cap;
	int n_lines; /* read so far */
} LlmCliPrompts;

/* Append a prompt with the scalar fields of `base` (its texts and ids are not copied); NULL when
 * memory is out. Earlier pointers into list become invalid. */
LlmCliPrompt *llm_cli_prompts_add(LlmCliPrompts *p, const LlmCliPrompt *base);

/* Append one prompt per line of a file of JSON objects; what a line does not say comes from base.
 * "-" is standard input, which is read up to an empty line after a prompt, or to its end. Errors
 * name the line: LLM_E_INVALID, LLM_E_IO. */
LlmStatus llm_cli_prompts_read(LlmCliPrompts *p, const char *path, const LlmCliPrompt *base,
							   LlmError *err);
void llm_cli_prompts_fini(LlmCliPrompts *p);

#endif
