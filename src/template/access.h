/* template/access.h - attributes, subscripts, slices and operators. */
#ifndef LLM_TEMPLATE_ACCESS_H
#define LLM_TEMPLATE_ACCESS_H

#include "template/builtin.h"

/* object.name: methods first, then fields. object[key]: fields first. Undefined when there is
 * neither; names that begin with two underscores do not exist at all. */
LlmValue llm_tmpl_get_attr(LlmRun *run, LlmValue object, const LlmStr *name);
LlmValue llm_tmpl_get_item(LlmRun *run, LlmValue object, LlmValue key);
/* What filters call an attribute: an index, or names with dots between. */
LlmValue llm_tmpl_get_path(LlmRun *run, LlmValue object, LlmValue path);
/* object[start:stop:step]; a bound that is ABSENT or none is the default. */
LlmValue llm_tmpl_get_slice(LlmRun *run, LlmValue object, const LlmValue bounds[3]);

/* a op b, arithmetic operators only. */
LlmValue llm_tmpl_math(LlmRun *run, LlmOp op, LlmValue a, LlmValue b);
/* a op b, comparisons only. */
bool llm_tmpl_holds(LlmRun *run, LlmOp op, LlmValue a, LlmValue b);

#endif
