/*
 * template/template.h - chat templates: a subset of Jinja whose output remembers who wrote it.
 *
 * A template comes from a model file, so it is not trusted: it can compute on what it is given and
 * nothing else (no attributes beyond the fields of its values), and steps, depth and memory are
 * bounded. Text that stems from the template's own source, bos_token or eos_token is trusted; text
 * from messages, tools or keyword arguments never is, whatever filters it went through.
 */
#ifndef LLM_TEMPLATE_TEMPLATE_H
#define LLM_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"

typedef struct LlmTemplate LlmTemplate;

/* A plain message; for richer ones (tool calls, parts) use messages_json. */
typedef struct LlmMessage
{
	LlmStr role;
	LlmStr content;
} LlmMessage;

/* What a template may see. All borrowed for the call. */
typedef struct LlmTemplateInput
{
	const LlmMessage *messages; /* [n_messages], ignored when messages_json is given */
	size_t n_messages;
	const json_t *messages_json; /* NULL, or an array of objects */
	const json_t *tools;         /* NULL = none, or an array */
	const json_t *kwargs;        /* NULL, or an object of further variables */
	LlmStr bos_token;
	LlmStr eos_token;
	bool add_generation_prompt;
	int64_t now; /* seconds since 1970 UTC, for strftime_now */
} LlmTemplateInput;

/* Bounds of one rendering; a template that passes one fails with LLM_E_MODEL. */
#define LLM_TEMPLATE_STEPS_MAX 2000000
#define LLM_TEMPLATE_DEPTH_MAX 64
#define LLM_TEMPLATE_SOURCE_MAX ((size_t) 1 << 20)
/* Memory bound: 16 MiB plus 32 times the size of the input. */

/* Parse. LLM_E_MODEL with "line N" in the text for anything that is not understood. The source is
 * copied. */
LlmStatus llm_template_parse(LlmStr source, LlmTemplate **out, LlmError *err);
void llm_template_free(LlmTemplate *t);

/* Render into out (appended). Errors: LLM_E_MODEL with the line of the template; raise_exception's
 * own message is the text. */
LlmStatus llm_template_render(const LlmTemplate *t, const LlmTemplateInput *in, LlmMarkedText *out,
							  LlmError *err);

#endif
