/*
 * model/model.h - a model: its configuration, its weights on a device, and one forward per family.
 *
 * A forward records ops on a device; it computes nothing itself and holds no state between steps.
 * Adding a family = one file with a forward and one line in the table of arch.c.
 */
#ifndef LLM_MODEL_MODEL_H
#define LLM_MODEL_MODEL_H

#include <stdint.h>

#include "core/status.h"
#include "model/gguf.h"
#include "tensor/device.h"

/* Hyperparameters, read and checked. */
typedef struct LlmModelConfig
{
	char arch[32];         /* "llama", "echo" */
	char quantization[16]; /* type that holds most parameters: "Q4_1" */
	int32_t n_layers;      /* 1 .. 512 */
	int32_t dim;           /* of the residual stream */
	int32_t hidden_dim;    /* of the feed-forward */
	int32_t n_heads;
	int32_t n_kv_heads; /* divides n_heads */
	int32_t head_dim;
	int32_t vocab_size;
	int32_t context_length; /* positions the model was made for */
	float norm_eps;
	float rope_base;
	int32_t rope_dims; /* values per head that turn, even, <= head_dim */
	int64_t n_params;
	int64_t file_nbytes;
} LlmModelConfig;

typedef struct LlmModel LlmModel;

/* Read and check the configuration alone; cheap. LLM_E_MODEL or LLM_E_UNSUPPORTED naming key and
 * value. */
LlmStatus llm_model_config_read(const LlmGguf *g, LlmModelConfig *out, LlmError *err);

/* Called while weights are repacked: nbytes done so far. */
typedef void (*LlmModelProgress)(void *arg, int64_t nbytes_done);

/* Configuration, tensor shapes, and weights repacked on the device. g may be closed afterwards. On
 * failure nothing stays on the device. LLM_E_MODEL, or LLM_E_UNSUPPORTED for what is known but not
 * built, naming key or tensor. */
LlmStatus llm_model_create(const LlmGguf *g, LlmDevice *dev, LlmModelProgress progress, void *arg,
						   LlmModel **out, LlmError *err);
/* The echo device's model: no weights, a store that holds token ids. */
LlmStatus llm_model_create_echo(LlmDevice *dev, int32_t context_length, LlmModel **out,
								LlmError *err);
/* Frees the model's own memory; its linears go with the device's model_clear. */
void llm_model_free(LlmModel *m);

const LlmModelConfig *llm_model_config(const LlmModel *m);

/* The KV groups the model needs with values of kv_type (F32, F16 or I8); returns how many. */
int llm_model_kv_groups(const LlmModel *m, LlmDtype kv_type, LlmKvGroup out[LLM_KV_GROUPS_MAX]);

/* Arena limits for steps of up to max_rows rows and max_out outputs. */
LlmDeviceLimits llm_model_limits(const LlmModel *m, int32_t max_rows, int32_t max_out);

/* Record one step between step_begin and step_end; returns the logits [n_out, vocab_size] that
 * `sample` takes. A batch with n_out 0 has none: the result has slot -1 and no op may take it. */
LlmAct llm_model_forward(const LlmModel *m, LlmDevice *dev, const LlmBatch *batch);

#endif
