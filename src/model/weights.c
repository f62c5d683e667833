/* model/weights.c - find tensors by name, check their types and shapes, hand them to the device. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#define NAME_CAP 64
#define PARTS_MAX 8

static const char *
tensor_name(char buf[NAME_CAP], int32_t layer, const char *name)
{
	if (layer == LLM_WEIGHTS_NO_LAYER)
		snprintf(buf, NAME_CAP, "%s.weight", name);
	else
		snprintf(buf, NAME_CAP, "blk.%d.%s.weight", layer, name);
	return buf;
}

/* The view of a tensor of exactly this shape; false with w->status set. */
static bool
tensor_get(LlmWeights *w, int32_t layer, const char *name, int32_t rows, int32_t cols,
		   LlmWeightView *out)
{
	char buf[NAME_CAP];
	int64_t type = llm_gguf_tensor_type(w->g, tensor_name(buf, layer, name));

	if (type < 0)
		w->status = llm_error_set(w->err, LLM_E_MODEL, "tensor \"%s\" is missing", buf);
	else if (!llm_gguf_tensor(w->g, buf, out))
	{
		w->status = llm_error_set(w->err, LLM_E_UNSUPPORTED,
								  "tensor \"%s\" has type %s, which is not supported", buf,
								  llm_dtype_gguf_name((uint32_t) type));
		llm_error_hint(w->err,
					   "Supported types: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, "
					   "Q6_K.");
	}
	else if (out->rows != rows || out->cols != cols)
		w->status = llm_error_set(w->err, LLM_E_MODEL,
								  "tensor \"%s\" has %d rows of %d values, not %d rows of %d", buf,
								  out->rows, out->cols, rows, cols);
	else if (w->checking)
		w->used[w->n_used++] = out->name;
	return w->status == LLM_OK;
}

void
llm_weights_begin(LlmWeights *w)
{
	uint64_t n = llm_gguf_n_tensors(w->g);

	w->checking = true;
	w->used = llm_arena_array(w->arena, n, sizeof(*w->used));
	if (w->used == NULL)
		w->status = llm_error_set(w->err, LLM_E_MEMORY, "out of memory for names of tensors");
}

void
llm_weights_checked(LlmWeights *w, const char *arch)
{
	uint64_t n = llm_gguf_n_tensors(w->g);

	w->checking = false;
	if (w->status != LLM_OK || w->n_used == n)
		return;
	/* The first tensor that is not used is among the first n_used + 1. */
	for (uint64_t i = 0; i < n; i++)
	{
		const char *name = llm_gguf_tensor_name(w->g, i);
		char show[LLM_GGUF_SHOW_CAP];
		uint64_t u = 0;

		while (u < w->n_used && w->used[u] != name)
			u++;
		if (u < w->n_used)
			continue;
		w->status = llm_error_set(w->err, LLM_E_UNSUPPORTED,
								  "tensor \"%s\" has no place in a model of architecture %s as "
								  "supported here",
								  llm_gguf_show(llm_str(name), show), arch);
		return;
	}
}

bool
llm_weights_have(const LlmWeights *w, const char *name)
{
	char buf[NAME_CAP];

	return llm_gguf_tensor_type(w->g, tensor_name(buf, LLM_WEIGHTS_NO_LAYER, name)) >= 0;
}

void
llm_weights_norm(LlmWeights *w, int32_t layer, const char *name, int32_t n, const float **out)
{
	LlmWeightView view;
	float *copy;

	if (w->status != LLM_OK || !tensor_get(w, layer, name, 1, n, &view))
		return;
	if (view.type != LLM_DTYPE_F32)
	{
		w->status =
			llm_error_set(w->err, LLM_E_UNSUPPORTED, "tensor \"%s\" has type %s; norms must be F32",
						  view.name, llm_dtype_gguf_name(view.type));
		return;
	}
	if (w->checking)
		return;
	copy = llm_arena_array(w->arena, (size_t) n, sizeof(*copy));
	if (copy == NULL)
	{
		w->status =
			llm_error_set(w->err, LLM_E_MEMORY, "out of memory for tensor \"%s\"", view.name);
		return;
	}
	memcpy(copy, view.data, (size_t) n * sizeof(*copy));
	*out = copy;
}

void
llm_weights_linear(LlmWeights *w, int32_t layer, const LlmWeightPart *parts, int n_parts,
				   int32_t cols, LlmLinearSpec spec, LlmLinear **out)
{
	LlmWeightView views[PARTS_MAX];

	if (w->status == LLM_OK && n_parts > PARTS_MAX)
		w->status = llm_error_set(w->err, LLM_E_INTERNAL, "%d tensors in one linear", n_parts);
	for (int i = 0; i < n_parts && w->status == LLM_OK; i++)
		tensor_get(w, layer, parts[i].name, parts[i].rows, cols, &views[i]);
	if (w->status != LLM_OK || w->checking)
		return;
	w->status = w->dev->ops->linear_create(w->dev, views, n_parts, &spec, out, w->err);
	if (w->status != LLM_OK)
		return;
	for (int i = 0; i < n_parts; i++)
		w->nbytes_done +=
			(int64_t) views[i].rows * (int64_t) llm_dtype_row_nbytes(views[i].type, cols);
	if (w->progress != NULL)
		w->progress(w->progress_arg, w->nbytes_done);
}
