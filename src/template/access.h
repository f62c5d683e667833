/* template/access.h - attributes, subscripts, slices, arithmetic and formatting. */
#ifndef LLM_TEMPLATE_ACCESS_H
#define LLM_TEMPLATE_ACCESS_H

#include "template/builtin.h"

/* object.name: methods first, then fields. object[key]: fields first. Undefined when there is
 * neither; names that begin with two underscores do not exist at all. */
LlmValue llm_tmpl_get_attr(LlmRun *run, LlmValue object, const LlmStr *name);
LlmValue llm_tmpl_get_item(LlmRun *run, LlmValue object, LlmValue key);
/* What filters call an attribute: an index, or keys with dots between. */
LlmValue llm_tmpl_get_path(LlmRun *run, LlmValue object, LlmValue path);
/* object[start:stop:step]; a bound that is ABSENT or none is the default. */
LlmValue llm_tmpl_get_slice(LlmRun *run, LlmValue object, const LlmValue bounds[3]);

/* a op b, arithmetic operators only. */
LlmValue llm_tmpl_math(LlmRun *run, LlmOp op, LlmValue a, LlmValue b);

/* Python's "format % args" and the format filter: args is one value or a tuple. */
LlmText llm_tmpl_format_percent(LlmRun *run, LlmText format, LlmValue args);
/* Python's str.format, without format specifications. */
LlmText llm_tmpl_format_braces(LlmRun *run, LlmText format, const LlmArgs *args);
/* strftime in UTC for seconds since 1970. */
LlmText llm_tmpl_format_time(LlmRun *run, LlmText format, int64_t seconds);

#endif
