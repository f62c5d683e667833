/* kernels/kv_pages.c - addresses, copies and plain float forms of KV pages. */
#include "kernels/kv_pages.h"

#include <inttypes.h>
#include <string.h>

#include "core/mem.h"
#include "kernels/dispatch.h"
#include "tensor/half.h"

#define K_DIM_MAX_I8 1024 /* a product of more could leave 32 bits: 127 * LLM_ATTN_FIXED each */

static void
sizes_set(LlmKvPages *kv, const LlmKvGroup *g)
{
	kv->group = *g;
	kv->v_stride = (g->v_dim + LLM_KV_LANES - 1) / LLM_KV_LANES * LLM_KV_LANES;
	kv->k_nbytes = llm_kv_block_nbytes(g->k_type, g->k_dim);
	kv->head_nbytes = kv->k_nbytes + llm_kv_block_nbytes(g->v_type, kv->v_stride);
	kv->layer_nbytes = kv->head_nbytes * (size_t) g->n_kv_heads;
	kv->page_nbytes = kv->layer_nbytes * (size_t) g->n_layers;
}

int64_t
llm_kv_pages_page_nbytes(const LlmKvGroup *group)
{
	LlmKvPages kv;

	sizes_set(&kv, group);
	return (int64_t) kv.page_nbytes;
}

static bool
type_ok(LlmDtype type)
{
	return type == LLM_DTYPE_F32 || type == LLM_DTYPE_F16 || type == LLM_DTYPE_I8;
}

LlmStatus
llm_kv_pages_init(LlmKvPages *kv, const LlmKvGroup *group, int32_t n_pages, LlmError *err)
{
	*kv = (LlmKvPages){0};
	if (group->kind != LLM_KV_FULL && group->kind != LLM_KV_WINDOW)
		return llm_error_set(err, LLM_E_UNSUPPORTED, "KV kind %d is not supported on the CPU",
							 (int) group->kind);
	if (!type_ok(group->k_type) || !type_ok(group->v_type))
		return llm_error_set(err, LLM_E_UNSUPPORTED, "KV cache must be F32, F16 or I8 on the CPU");
	if ((group->k_type == LLM_DTYPE_I8) != (group->v_type == LLM_DTYPE_I8))
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "keys and values must both be I8 on the CPU, or none");
	if (group->k_type == LLM_DTYPE_I8 && group->k_dim > K_DIM_MAX_I8)
		return llm_error_set(err, LLM_E_UNSUPPORTED, "I8 keys of %" PRId32 " values, more than %d",
							 group->k_dim, K_DIM_MAX_I8);
	if (group->n_layers < 1 || group->n_kv_heads < 1 || group->k_dim < 1 || group->v_dim < 8)
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "KV of %" PRId32 " layers, %" PRId32 " heads, %" PRId32 " and %" PRId32
							 " values per head is not supported on the CPU",
							 group->n_layers, group->n_kv_heads, group->k_dim, group->v_dim);
	if (n_pages < 1)
		return llm_error_set(err, LLM_E_INVALID, "a KV store of %" PRId32 " pages", n_pages);
	sizes_set(kv, group);
	kv->n_pages = n_pages;
	if ((size_t) n_pages <= SIZE_MAX / kv->page_nbytes)
		kv->data = llm_block_create((size_t) n_pages * kv->page_nbytes);
	if (kv->data == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory: %" PRId32 " KV pages of %zu bytes",
							 n_pages, kv->page_nbytes);
	return LLM_OK;
}

void
llm_kv_pages_fini(LlmKvPages *kv)
{
	if (kv->data != NULL)
		llm_block_free(kv->data, (size_t) kv->n_pages * kv->page_nbytes);
	*kv = (LlmKvPages){0};
}

/* The scale of token t in a block of 64 vectors of n values; only I8 has them. */
static float *
scale_at(uint8_t *block, LlmDtype type, int32_t n, int32_t t)
{
	if (type != LLM_DTYPE_I8)
		return NULL;
	return (float *) (block + llm_kv_block_nbytes(type, n)) - LLM_PAGE_TOKENS + t;
}

LlmKvVector
llm_kv_pages_k(const LlmKvPages *kv, uint8_t *head, int32_t t)
{
	const LlmKvGroup *g = &kv->group;
	int32_t run = g->k_type == LLM_DTYPE_I8 ? 4 : 1; /* values of a token side by side */
	int32_t n = (g->k_dim + run - 1) / run * run;
	size_t at =
		(size_t) (t / LLM_KV_LANES) * (size_t) n * LLM_KV_LANES + (size_t) (t % LLM_KV_LANES * run);

	return (LlmKvVector){head + at * llm_kv_type_nbytes(g->k_type),
						 scale_at(head, g->k_type, g->k_dim, t), run, run * LLM_KV_LANES};
}

LlmKvVector
llm_kv_pages_v(const LlmKvPages *kv, uint8_t *head, int32_t t)
{
	LlmDtype type = kv->group.v_type;
	int32_t run = type == LLM_DTYPE_I8 ? 4 : 1; /* tokens whose values lie side by side */
	size_t at = (size_t) (t / run * run) * (size_t) kv->v_stride + (size_t) (t % run);

	return (LlmKvVector){head + kv->k_nbytes + at * llm_kv_type_nbytes(type),
						 scale_at(head + kv->k_nbytes, type, kv->v_stride, t), 1, run};
}

/* Copy a vector of n values. */
static void
vector_copy(LlmKvVector to, LlmKvVector from, int32_t n, LlmDtype type)
{
	size_t nbytes = (size_t) to.run * llm_kv_type_nbytes(type);
	size_t step = (size_t) to.stride * llm_kv_type_nbytes(type);

	for (size_t at = 0; n > 0; n -= to.run, at += step)
		memcpy((uint8_t *) to.values + at, (uint8_t *) from.values + at, nbytes);
}

typedef LlmKvVector (*VectorAt)(const LlmKvPages *kv, uint8_t *head, int32_t t);

/* Copy the first n_tokens vectors, of n values each: at once where `piece` of them lie together. */
static void
vectors_copy(const LlmKvPages *kv, VectorAt at, uint8_t *to, uint8_t *from, int32_t n_tokens,
			 int32_t piece, int32_t n, LlmDtype type)
{
	LlmKvVector a = at(kv, from, 0), b = at(kv, to, 0);
	size_t nbytes = (size_t) ((uint8_t *) at(kv, to, piece).values - (uint8_t *) b.values);
	int32_t whole = n_tokens / piece;

	memcpy(b.values, a.values, (size_t) whole * nbytes);
	for (int32_t t = whole * piece; t < n_tokens; t++)
		vector_copy(at(kv, to, t), at(kv, from, t), n, type);
	if (a.scale != NULL)
		memcpy(b.scale, a.scale, (size_t) n_tokens * sizeof(float));
}

void
llm_kv_pages_copy(LlmKvPages *kv, int32_t from, int32_t to, int32_t n_tokens)
{
	const LlmKvGroup *g = &kv->group;

	for (int32_t i = 0; i < g->n_layers * g->n_kv_heads; i++)
	{
		uint8_t *a = llm_kv_pages_head(kv, from, 0, i), *b = llm_kv_pages_head(kv, to, 0, i);

		vectors_copy(kv, llm_kv_pages_k, b, a, n_tokens, LLM_KV_LANES, g->k_dim, g->k_type);
		vectors_copy(kv, llm_kv_pages_v, b, a, n_tokens, g->v_type == LLM_DTYPE_I8 ? 4 : 1,
					 kv->v_stride, g->v_type);
	}
}

static void
vector_get(LlmKvVector v, int32_t n, LlmDtype type, float *out)
{
	for (int32_t i = 0; i < n; i++)
	{
		size_t at = (size_t) (i / v.run * v.stride + i % v.run);

		if (type == LLM_DTYPE_I8)
			out[i] = (float) ((const int8_t *) v.values)[at] * *v.scale;
		else if (type == LLM_DTYPE_F16)
			out[i] = llm_half_to_f32(((const uint16_t *) v.values)[at]);
		else
			out[i] = ((const float *) v.values)[at];
	}
}

void
llm_kv_pages_export(const LlmKvPages *kv, int32_t page, float *out)
{
	const LlmKvGroup *g = &kv->group;

	for (int32_t t = 0; t < LLM_PAGE_TOKENS; t++)
	{
		for (int32_t h = 0; h < g->n_layers * g->n_kv_heads; h++)
		{
			uint8_t *head = llm_kv_pages_head(kv, page, 0, h);

			vector_get(llm_kv_pages_k(kv, head, t), g->k_dim, g->k_type, out);
			vector_get(llm_kv_pages_v(kv, head, t), g->v_dim, g->v_type, out + g->k_dim);
			out += g->k_dim + g->v_dim;
		}
	}
}

bool
llm_kv_pages_import(LlmKvPages *kv, int32_t page, const float *in)
{
	const LlmKernels *kernels = &llm_kernels_generic; /* any: the bits are the same */
	const LlmKvGroup *g = &kv->group;
	bool good = true;

	for (int32_t t = 0; t < LLM_PAGE_TOKENS; t++)
	{
		for (int32_t h = 0; h < g->n_layers * g->n_kv_heads; h++)
		{
			uint8_t *head = llm_kv_pages_head(kv, page, 0, h);

			good &= kernels->kv_store(in, g->k_dim, g->k_type, llm_kv_pages_k(kv, head, t));
			good &=
				kernels->kv_store(in + g->k_dim, g->v_dim, g->v_type, llm_kv_pages_v(kv, head, t));
			in += g->k_dim + g->v_dim;
		}
	}
	return good;
}
