/*
 * model/model_impl.h - what a model is made of; for the files of this folder only.
 *
 * A family fills one LlmModel in its create function; model.c does the rest through these fields.
 */
#ifndef LLM_MODEL_MODEL_IMPL_H
#define LLM_MODEL_MODEL_IMPL_H

#include "model/model.h"

struct LlmModel
{
	LlmModelConfig config;
	/* Record one step; see llm_model_forward. */
	LlmAct (*forward)(const LlmModel *m, LlmDevice *dev, const LlmBatch *batch);
	/* Free the model with all that it owns in host memory. */
	void (*free)(LlmModel *m);
	/* The KV groups; llm_model_kv_groups replaces the types of all but LLM_KV_TOKENS groups. */
	LlmKvGroup groups[LLM_KV_GROUPS_MAX]; /* [n_groups] */
	int32_t n_groups;
	int32_t max_cols; /* widest activation that forward creates, the logits aside */
	int32_t n_acts;   /* activations that one forward creates, the logits included */
	void *arch;       /* the family's own data, owned; NULL when there is none */
};

#endif
