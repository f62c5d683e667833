/*
 * kernels/kv_pages.h - the KV store of the CPU device.
 *
 *   group: [page][layer][KV head] { K: [4 groups of 16 tokens][k_dim][16 tokens]
 *                                   V: [64 tokens][v_dim rounded up to 16] }
 *   of I8                         { K: [4 groups of 16 tokens][k_dim / 4][16 tokens][4], scales [64]
 *                                   V: [16 fours of tokens][v_dim rounded up to 16][4], scales [64] }
 *
 * Scores then run along tokens without horizontal sums. The integer products of I8 add up four values
 * at a time: of a token's K, and of four tokens' V.
 * Page 0 is all zeros and never written. Values are finite always (tensor/kv_spec.h), so a masked
 * position, or what a page held before, adds 0 * value = 0.
 */
#ifndef LLM_KERNELS_KV_PAGES_H
#define LLM_KERNELS_KV_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "kernels/kernels.h"
#include "tensor/kv_spec.h"

#define LLM_KV_LANES 16 /* tokens whose K values lie side by side */

typedef struct LlmKvPages
{
	LlmKvGroup group;
	int32_t n_pages;  /* with page 0 */
	int32_t v_stride; /* values per token in V */
	size_t k_nbytes;  /* K of one head */
	size_t head_nbytes;
	size_t layer_nbytes;
	size_t page_nbytes; /* over all layers */
	uint8_t *data;      /* [n_pages][page_nbytes] owned */
} LlmKvPages;

/* Bytes of one page over all layers of a group. */
int64_t llm_kv_pages_page_nbytes(const LlmKvGroup *group);

/* Zeroed pages. LLM_E_UNSUPPORTED for kinds and types not built, LLM_E_MEMORY with bytes. */
LlmStatus llm_kv_pages_init(LlmKvPages *kv, const LlmKvGroup *group, int32_t n_pages,
							LlmError *err);
void llm_kv_pages_fini(LlmKvPages *kv);

/* First K value of a page's head; its V follows k_nbytes later. */
static inline uint8_t *
llm_kv_pages_head(const LlmKvPages *kv, int32_t page, int32_t layer, int32_t head)
{
	return kv->data + (size_t) page * kv->page_nbytes + (size_t) layer * kv->layer_nbytes +
		   (size_t) head * kv->head_nbytes;
}

/* Where a vector of token t (0..63) of a head lies. */
LlmKvVector llm_kv_pages_k(const LlmKvPages *kv, uint8_t *head, int32_t t);
LlmKvVector llm_kv_pages_v(const LlmKvPages *kv, uint8_t *head, int32_t t);

/* Copy the first n_tokens of a page, all layers. */
void llm_kv_pages_copy(LlmKvPages *kv, int32_t from, int32_t to, int32_t n_tokens);

/* One page to or from [64][n_layers][n_kv_heads][k_dim + v_dim] floats: what attention reads, exactly;
 * what was exported comes back with the same bits. False: a NaN was there, stored as zeros. */
void llm_kv_pages_export(const LlmKvPages *kv, int32_t page, float *out);
bool llm_kv_pages_import(LlmKvPages *kv, int32_t page, const float *in);

#endif
