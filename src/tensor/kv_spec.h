/* tensor/kv_spec.h - what a KV cache holds and how attention reads it. */
#ifndef LLM_TENSOR_KV_SPEC_H
#define LLM_TENSOR_KV_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

#define LLM_PAGE_TOKENS 64  /* tokens per page = positions per attention split (rule R7) */
#define LLM_KV_GROUPS_MAX 4 /* full, sliding window, draft, next-token-prediction */
#define LLM_KV_MAX                                                                                 \
	0x1p96f /* F32 and I8 saturate here: far above any value of a model, and 2^32
							   below overflow, so that scores and sums over a context stay finite */

typedef enum LlmKvKind
{
	LLM_KV_FULL = 0, /* every position is kept */
	LLM_KV_WINDOW = 1,
	LLM_KV_LATENT = 2, /* MLA */
	LLM_KV_TOKENS = 3  /* echo device: the store holds token ids */
} LlmKvKind;

/*
 * A group of layers that share one block table. A vector (K or V of one token and KV head) is
 * brought to the store's type before attention reads it (rule R6), by itself alone:
 *
 *   F32, F16   values are saturated to +-LLM_KV_MAX or +-65504, then rounded to nearest even
 *   I8         values are saturated to +-LLM_KV_MAX; scale = max |x| / 127, rounded to nearest even
 *              to 16 significant bits; q = x / scale, rounded to nearest even. Below the smallest
 *              normal float the scale and all values are 0. The value that attention reads is
 *              q * scale, which is exact (7 + 16 bits), so storing it again changes nothing. Attention
 *              multiplies the whole numbers q by whole numbers of 14 bits: what a query vector, and the
 *              weights of a split with the scales of V, are rounded to, each in units of their largest.
 *
 * A vector with a NaN is stored as zeros, and the step names its sequence (LlmStepOut.spoiled).
 */
typedef struct LlmKvGroup
{
	LlmKvKind kind;
	int32_t n_layers;
	int32_t n_kv_heads;
	int32_t k_dim;   /* values per token and KV head in K */
	int32_t v_dim;   /* and in V */
	int32_t window;  /* positions visible, 0 = all */
	LlmDtype k_type; /* F32, F16 or I8 */
	LlmDtype v_type;
} LlmKvGroup;

/* Bytes of one value of a KV type. */
static inline size_t
llm_kv_type_nbytes(LlmDtype type)
{
	return type == LLM_DTYPE_I8 ? 1 : type == LLM_DTYPE_F16 ? 2 : 4;
}

/* Bytes of one page's vectors of n values; of I8, which are kept in fours, then a float scale per
 * token. */
static inline size_t
llm_kv_block_nbytes(LlmDtype type, int32_t n)
{
	if (type == LLM_DTYPE_I8)
		return LLM_PAGE_TOKENS * (((size_t) n + 3) / 4 * 4 + sizeof(float));
	return LLM_PAGE_TOKENS * (size_t) n * llm_kv_type_nbytes(type);
}

/* Rotary embedding of one model. Pair i of a head turns by pos * inv_freq[i]. */
typedef struct LlmRope
{
	int32_t n_dims;        /* values per head that turn; even, 0 = none */
	int32_t interleaved;   /* 1: pairs (2i, 2i+1), GGUF llama; 0: pairs (i, i + n_dims/2) */
	const float *inv_freq; /* [n_dims / 2] borrowed for the life of the device's model */
} LlmRope;

/* Attention of one layer, as the model's forward describes it. */
typedef struct LlmAttn
{
	int32_t kv_group;
	int32_t layer;   /* within the group */
	int32_t n_heads; /* query heads; a multiple of n_kv_heads */
	int32_t n_kv_heads;
	int32_t head_dim; /* of q and k */
	int32_t v_dim;
	int32_t window;   /* 0 = none */
	float scale;      /* on q.k; not negative */
	float softcap;    /* 0 = none */
	bool wanted_only; /* rows whose output the batch does not want may stay as they are */
	const LlmRope *rope;
} LlmAttn;

/* The prefix cache as those who share a salt see it. */
typedef struct LlmPrefixStat
{
	uint64_t salt;
	int64_t blocks;       /* cached now, in use or not */
	int64_t pinned;       /* of them pinned */
	int64_t lookups;      /* sequences that looked for their prefix */
	int64_t hits;         /* of them that found some */
	int64_t tokens_saved; /* tokens read instead of computed */
	int64_t evictions;    /* blocks that made room */
} LlmPrefixStat;

#endif
