/* model/arch.h - what a family of models provides; one table in arch.c names them all. */
#ifndef LLM_MODEL_ARCH_H
#define LLM_MODEL_ARCH_H

#include "core/str.h"
#include "model/model.h"

typedef struct LlmArch
{
	const char *name; /* value of general.architecture */
	/* Refuse what the family knows of but cannot compute. The configuration has been read. */
	LlmStatus (*config_check)(const LlmGguf *g, const LlmModelConfig *c, LlmError *err);
	/* As llm_model_create, with the configuration read. */
	LlmStatus (*create)(const LlmGguf *g, const LlmModelConfig *c, LlmDevice *dev,
						LlmModelProgress progress, void *arg, LlmModel **out, LlmError *err);
} LlmArch;

/* NULL when the family is not known. */
const LlmArch *llm_arch_find(LlmStr name);

/* Names of all families for an error's hint, separated by commas. */
const char *llm_arch_names(void);

/* llama.c */
LlmStatus llm_llama_config_check(const LlmGguf *g, const LlmModelConfig *c, LlmError *err);
LlmStatus llm_llama_create(const LlmGguf *g, const LlmModelConfig *c, LlmDevice *dev,
						   LlmModelProgress progress, void *arg, LlmModel **out, LlmError *err);

#endif
