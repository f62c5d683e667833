/* model/echo.c - the model without weights: its forward stores the tokens and asks for a reply. */
#include "model/model.h"

#include <stdlib.h>

#include "model/model_impl.h"

#define VOCAB_SIZE 320 /* of the echo device's built-in vocabulary */
#define CONTEXT_DEFAULT 4096

static LlmAct
echo_forward(const LlmModel *m, LlmDevice *dev, const LlmBatch *batch)
{
	const LlmDeviceOps *ops = dev->ops;
	LlmAttn attn = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 1};
	LlmAct x = ops->act_create(dev, LLM_ACT_F32, batch->n_rows, 1);
	LlmAct q = ops->act_create(dev, LLM_ACT_F32, batch->n_rows, 1);
	LlmAct logits = ops->act_create(dev, LLM_ACT_F32, batch->n_out, m->config.vocab_size);

	ops->embed(dev, NULL, x);
	ops->rope_kv_write(dev, x, &attn, q);
	ops->gather_rows(dev, q, logits);
	return logits;
}

static void
echo_free(LlmModel *m)
{
	free(m);
}

LlmStatus
llm_model_create_echo(LlmDevice *dev, int32_t context_length, LlmModel **out, LlmError *err)
{
	LlmModel *m = calloc(1, sizeof(*m));

	*out = m;
	if (m == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the echo model");
	m->config = (LlmModelConfig){
		.arch = "echo",
		.quantization = "none",
		.n_layers = 1,
		.dim = 1,
		.hidden_dim = 1,
		.n_heads = 1,
		.n_kv_heads = 1,
		.head_dim = 1,
		.vocab_size = VOCAB_SIZE,
		.context_length = context_length > 0 ? context_length : CONTEXT_DEFAULT,
	};
	m->groups[0] = (LlmKvGroup){
		.kind = LLM_KV_TOKENS, .n_layers = 1, .n_kv_heads = 1, .k_dim = 1, .k_type = LLM_DTYPE_F32};
	m->n_groups = 1;
	m->forward = echo_forward;
	m->free = echo_free;
	m->max_cols = 1;
	m->n_acts = 3;
	return LLM_OK;
}
