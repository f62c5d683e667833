/* kernels/kv_pages.c - addresses, copies and plain float forms of KV pages. */
#include "kernels/kv_pages.h"

#include <inttypes.h>
#include <string.h>

#include "core/mem.h"
#include "kernels/dispatch.h"
#include "tensor/half.h"

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

/* A vector of token t in a block of 64 vectors of n values each, its values `at` elements in. */
static LlmKvVector
vector_at(uint8_t *block, LlmDtype type, int32_t n, int32_t t, size_t at)
{
	float *scales = (float *) (block + LLM_PAGE_TOKENS * (size_t) n * llm_kv_type_nbytes(type));

	return (LlmKvVector){block + at * llm_kv_type_nbytes(type),
						 type == LLM_DTYPE_I8 ? scales + t : NULL};
}

LlmKvVector
llm_kv_pages_k(const LlmKvPages *kv, uint8_t *head, int32_t t)
{
	const LlmKvGroup *g = &kv->group;
	size_t at = (size_t) (t / LLM_KV_LANES) * (size_t) g->k_dim * LLM_KV_LANES +
				(size_t) (t % LLM_KV_LANES);

	return vector_at(head, g->k_type, g->k_dim, t, at);
}

LlmKvVector
llm_kv_pages_v(const LlmKvPages *kv, uint8_t *head, int32_t t)
{
	return vector_at(head + kv->k_nbytes, kv->group.v_type, kv->v_stride, t,
					 (size_t) t * (size_t) kv->v_stride);
}

void
llm_kv_pages_copy(LlmKvPages *kv, int32_t from, int32_t to, int32_t n_tokens)
{
	const LlmKvGroup *g = &kv->group;
	size_t n = (size_t) n_tokens, rest = n % LLM_KV_LANES;
	size_t lanes_nbytes = LLM_KV_LANES * llm_kv_type_nbytes(g->k_type); /* one value of 16 tokens */
	size_t group_nbytes = (size_t) g->k_dim * lanes_nbytes;

	for (int32_t i = 0; i < g->n_layers * g->n_kv_heads; i++)
	{
		uint8_t *a = llm_kv_pages_head(kv, from, 0, i), *b = llm_kv_pages_head(kv, to, 0, i);
		size_t whole = n / LLM_KV_LANES * group_nbytes;

		memcpy(b, a, whole);
		for (size_t at = whole; rest > 0 && at < whole + group_nbytes; at += lanes_nbytes)
			memcpy(b + at, a + at, rest * llm_kv_type_nbytes(g->k_type));
		if (g->k_type == LLM_DTYPE_I8)
			memcpy(llm_kv_pages_k(kv, b, 0).scale, llm_kv_pages_k(kv, a, 0).scale,
				   n * sizeof(float));
		memcpy(b + kv->k_nbytes, a + kv->k_nbytes,
			   n * (size_t) kv->v_stride * llm_kv_type_nbytes(g->v_type));
		if (g->v_type == LLM_DTYPE_I8)
			memcpy(llm_kv_pages_v(kv, b, 0).scale, llm_kv_pages_v(kv, a, 0).scale,
				   n * sizeof(float));
	}
}

static void
vector_get(LlmKvVector v, int32_t n, size_t stride, LlmDtype type, float *out)
{
	for (int32_t i = 0; i < n; i++)
	{
		size_t at = (size_t) i * stride;

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

			vector_get(llm_kv_pages_k(kv, head, t), g->k_dim, LLM_KV_LANES, g->k_type, out);
			vector_get(llm_kv_pages_v(kv, head, t), g->v_dim, 1, g->v_type, out + g->k_dim);
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
			LlmKvVector k = llm_kv_pages_k(kv, head, t), v = llm_kv_pages_v(kv, head, t);

			good &= kernels->kv_store(in, g->k_dim, g->k_type, LLM_KV_LANES, k.values, k.scale);
			good &= kernels->kv_store(in + g->k_dim, g->v_dim, g->v_type, 1, v.values, v.scale);
			in += g->k_dim + g->v_dim;
		}
	}
	return good;
}
