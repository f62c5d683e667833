/* kernels/kv_pages.c - addresses, copies and plain float forms of KV pages. */
#include "kernels/kv_pages.h"

#include <float.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "core/mem.h"
#include "tensor/half.h"

#define LANES 16 /* tokens per K group */

static size_t
value_nbytes(LlmDtype type)
{
	return type == LLM_DTYPE_F16 ? 2 : 4;
}

static void
sizes_set(LlmKvPages *kv, const LlmKvGroup *g)
{
	kv->group = *g;
	kv->v_stride = (g->v_dim + LANES - 1) / LANES * LANES;
	kv->k_nbytes = (size_t) LLM_PAGE_TOKENS * (size_t) g->k_dim * value_nbytes(g->k_type);
	kv->head_nbytes =
		kv->k_nbytes + (size_t) LLM_PAGE_TOKENS * (size_t) kv->v_stride * value_nbytes(g->v_type);
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
	return type == LLM_DTYPE_F16 || type == LLM_DTYPE_F32;
}

LlmStatus
llm_kv_pages_init(LlmKvPages *kv, const LlmKvGroup *group, int32_t n_pages, LlmError *err)
{
	*kv = (LlmKvPages){0};
	if (group->kind != LLM_KV_FULL && group->kind != LLM_KV_WINDOW)
		return llm_error_set(err, LLM_E_UNSUPPORTED, "KV kind %d is not supported on the CPU",
							 (int) group->kind);
	if (!type_ok(group->k_type) || !type_ok(group->v_type))
		return llm_error_set(err, LLM_E_UNSUPPORTED, "KV cache must be F16 or F32 on the CPU");
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

void *
llm_kv_pages_k(const LlmKvPages *kv, uint8_t *head, int32_t t)
{
	size_t at = (size_t) (t / LANES) * (size_t) kv->group.k_dim * LANES + (size_t) (t % LANES);

	return head + at * value_nbytes(kv->group.k_type);
}

void *
llm_kv_pages_v(const LlmKvPages *kv, uint8_t *head, int32_t t)
{
	return head + kv->k_nbytes +
		   (size_t) t * (size_t) kv->v_stride * value_nbytes(kv->group.v_type);
}

/* Copy n values `stride` apart, from a place to the same place of another page. */
static void
copy_values(void *to, const void *from, int32_t n, size_t stride, size_t nbytes)
{
	for (int32_t i = 0; i < n; i++)
		memcpy((uint8_t *) to + (size_t) i * stride * nbytes,
			   (const uint8_t *) from + (size_t) i * stride * nbytes, nbytes);
}

void
llm_kv_pages_copy(LlmKvPages *kv, int32_t from, int32_t to, int32_t n_tokens)
{
	const LlmKvGroup *g = &kv->group;

	if (n_tokens == LLM_PAGE_TOKENS)
	{
		memcpy(llm_kv_pages_head(kv, to, 0, 0), llm_kv_pages_head(kv, from, 0, 0), kv->page_nbytes);
		return;
	}
	for (int32_t i = 0; i < g->n_layers * g->n_kv_heads; i++)
	{
		uint8_t *a = llm_kv_pages_head(kv, from, 0, i), *b = llm_kv_pages_head(kv, to, 0, i);

		for (int32_t t = 0; t < n_tokens; t++)
			copy_values(llm_kv_pages_k(kv, b, t), llm_kv_pages_k(kv, a, t), g->k_dim, LANES,
						value_nbytes(g->k_type));
		memcpy(llm_kv_pages_v(kv, b, 0), llm_kv_pages_v(kv, a, 0),
			   (size_t) n_tokens * (size_t) kv->v_stride * value_nbytes(g->v_type));
	}
}

static float
value_get(const void *p, size_t i, LlmDtype type)
{
	return type == LLM_DTYPE_F16 ? llm_half_to_f32(((const uint16_t *) p)[i])
								 : ((const float *) p)[i];
}

static void
value_set(void *p, size_t i, LlmDtype type, float x)
{
	float max = type == LLM_DTYPE_F16 ? LLM_HALF_MAX : FLT_MAX;

	x = x > -max ? x : -max;
	x = x < max ? x : max;
	if (type == LLM_DTYPE_F16)
		((uint16_t *) p)[i] = llm_half_from_f32(x);
	else
		((float *) p)[i] = x;
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
			const void *k = llm_kv_pages_k(kv, head, t), *v = llm_kv_pages_v(kv, head, t);

			for (int32_t d = 0; d < g->k_dim; d++)
				*out++ = value_get(k, (size_t) d * LANES, g->k_type);
			for (int32_t d = 0; d < g->v_dim; d++)
				*out++ = value_get(v, (size_t) d, g->v_type);
		}
	}
}

void
llm_kv_pages_import(LlmKvPages *kv, int32_t page, const float *in)
{
	const LlmKvGroup *g = &kv->group;

	for (int32_t t = 0; t < LLM_PAGE_TOKENS; t++)
	{
		for (int32_t h = 0; h < g->n_layers * g->n_kv_heads; h++)
		{
			uint8_t *head = llm_kv_pages_head(kv, page, 0, h);
			void *k = llm_kv_pages_k(kv, head, t), *v = llm_kv_pages_v(kv, head, t);

			for (int32_t d = 0; d < g->k_dim; d++)
				value_set(k, (size_t) d * LANES, g->k_type, *in++);
			for (int32_t d = 0; d < g->v_dim; d++)
				value_set(v, (size_t) d, g->v_type, *in++);
		}
	}
}
