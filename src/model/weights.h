/*
 * model/weights.h - tensors of a file bound to a family's fields.
 *
 * A family runs its binding function twice over one LlmWeights: first with checking set, so that a
 * wrong last tensor is told before gigabytes are repacked, then without. The first failure is kept
 * in `status` and turns every later call into nothing.
 */
#ifndef LLM_MODEL_WEIGHTS_H
#define LLM_MODEL_WEIGHTS_H

#include "core/mem.h"
#include "model/model.h"

#define LLM_WEIGHTS_NO_LAYER (-1) /* tensors outside the layers */

typedef struct LlmWeights
{
	const LlmGguf *g;
	LlmDevice *dev;
	LlmArena *arena; /* of the model: norms are copied into it */
	LlmModelProgress progress;
	void *progress_arg;
	LlmError *err;
	bool checking;       /* look at names, types and shapes only; outputs are left alone */
	LlmStatus status;    /* of the first failure */
	int64_t nbytes_done; /* of tensors repacked */
	const char **used;   /* [n_used] names asked for while checking; room for all of the file's */
	uint64_t n_used;
} LlmWeights;

/* A tensor "NAME.weight" or "blk.LAYER.NAME.weight" and the outputs that it must have. */
typedef struct LlmWeightPart
{
	const char *name;
	int32_t rows;
} LlmWeightPart;

/* Begin the checking pass. Zero-initialised w with g, dev, arena, progress and err set. */
void llm_weights_begin(LlmWeights *w);

/* End the checking pass: a tensor of the file that nobody asked for would be left out of the sums,
 * so it is LLM_E_UNSUPPORTED naming it (biases, scaled rotary embeddings, layers past the last). */
void llm_weights_checked(LlmWeights *w, const char *arch);

/* Whether the file has the tensor "NAME.weight". */
bool llm_weights_have(const LlmWeights *w, const char *name);

/* F32 vector [n], copied: *out lives as long as the arena. */
void llm_weights_norm(LlmWeights *w, int32_t layer, const char *name, int32_t n, const float **out);

/* One linear of n_parts tensors [rows, cols] fused along their rows. */
void llm_weights_linear(LlmWeights *w, int32_t layer, const LlmWeightPart *parts, int n_parts,
						int32_t cols, LlmLinearSpec spec, LlmLinear **out);

#endif
