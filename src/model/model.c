/* model/model.c - the questions that every model answers, whatever its family. */
#include "model/model.h"

#include "model/model_impl.h"

void
llm_model_free(LlmModel *m)
{
	if (m != NULL)
		m->free(m);
}

const LlmModelConfig *
llm_model_config(const LlmModel *m)
{
	return &m->config;
}

int
llm_model_kv_groups(const LlmModel *m, LlmDtype kv_type, LlmKvGroup out[LLM_KV_GROUPS_MAX])
{
	for (int i = 0; i < m->n_groups; i++)
	{
		out[i] = m->groups[i];
		if (out[i].kind != LLM_KV_TOKENS)
			out[i].k_type = out[i].v_type = kv_type;
	}
	return m->n_groups;
}

LlmDeviceLimits
llm_model_limits(const LlmModel *m, int32_t max_rows, int32_t max_out)
{
	return (LlmDeviceLimits){
		.max_rows = max_rows,
		.max_out = max_out,
		.max_seqs = max_rows, /* a sequence in a step has at least one row */
		.max_cols = m->max_cols,
		.vocab_size = m->config.vocab_size,
		.max_pos = m->config.context_length,
		.n_acts = m->n_acts,
	};
}

LlmAct
llm_model_forward(const LlmModel *m, LlmDevice *dev, const LlmBatch *batch)
{
	return m->forward(m, dev, batch);
}
