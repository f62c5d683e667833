/* model/arch.c - architecture name to the functions of its family. */
#include "model/arch.h"

static const LlmArch archs[] = {
	{"llama", llm_llama_config_check, llm_llama_create},
};

const LlmArch *
llm_arch_find(LlmStr name)
{
	for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
		if (llm_str_eq(name, archs[i].name))
			return &archs[i];
	return NULL;
}

const char *
llm_arch_names(void)
{
	return "llama";
}

LlmStatus
llm_model_create(const LlmGguf *g, LlmDevice *dev, LlmModelProgress progress, void *arg,
				 LlmModel **out, LlmError *err)
{
	LlmModelConfig config;
	LlmStatus status = llm_model_config_read(g, &config, err);

	*out = NULL;
	if (status != LLM_OK)
		return status;
	return llm_arch_find(llm_str(config.arch))->create(g, &config, dev, progress, arg, out, err);
}
