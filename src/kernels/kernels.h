/*
 * kernels/kernels.h - the routines of one instruction set, as a table of function pointers.
 *
 * All tables give the same bits: vectors run along outputs, each output has one accumulator, sums
 * over a row use 16 lanes (index mod 16) and one tree, rounding is to nearest even and the only
 * fused operations are those written as fma (design rules R2-R5). "generic" is plain C and is what
 * the others are compared with.
 *
 * Layouts shared by all:
 *   - quantised weights: panels of 16 columns (outputs), K ascending in units of 64; see panel.h
 *   - float weights: panels of 16 columns, per k 16 values
 *   - int8 activations: rows of LlmQ8Unit
 *   - one page of one KV head: K as [4 groups][k_dim][16 tokens], then V as [64][v_stride]. I8 is in
 *     fours, as integer products add them up: K as [4 groups][k_dim / 4][16 tokens][4], V as [16 fours
 *     of tokens][v_stride][4], each followed by float scales [64], one per token
 */
#ifndef LLM_KERNELS_KERNELS_H
#define LLM_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"
#include "tensor/kv_spec.h"

#define LLM_LANES 16   /* columns per panel, logical lanes of a sum */
#define LLM_Q8_UNIT 64 /* activations per LlmQ8Unit = K per weight unit */

/* Bytes that reads in order fetch ahead (qgemm_tile.h): into the first cache; into the second from
 * the last one; into the second from memory. */
#define LLM_FETCH_NEAR 1536
#define LLM_FETCH_FAR 6144
#define LLM_FETCH_MEMORY 4096

#define LLM_GEMM_FEW_ROWS 24 /* rows of products that are bound by reading the weights */

/* 64 activations of one row, K ascending: x = q * d per half of 32. The other fields are what the
 * products need of a half: the integer correction for weights stored with an offset, and d * sum(q)
 * for weights with a minimum. Padding beyond the row is all zeros. */
typedef struct LlmQ8Unit
{
	int8_t q[LLM_Q8_UNIT];
	float d[2];      /* max |x| / 127; 0 for a half below 127 * 2^-126; NaN when x is not finite */
	float s[2];      /* d * sum(q) */
	int32_t corr[2]; /* -128 * sum(q), 128 being the offset of all types that have one */
	int32_t corr_low[2]; /* the same for the first 16 alone */
} LlmQ8Unit;

/* The same 64 activations of 16 rows, side by side as products by tiles read them. */
#define LLM_Q8_TILE_ROWS 16
typedef struct LlmQ8Tile
{
	int8_t q[LLM_Q8_TILE_ROWS][LLM_Q8_UNIT];
	float d[2][LLM_Q8_TILE_ROWS];
	float s[2][LLM_Q8_TILE_ROWS];
} LlmQ8Tile;

/* Make u row `row` of a tile. */
static inline void
llm_q8_tile_set(LlmQ8Tile *t, int row, const LlmQ8Unit *u)
{
	memcpy(t->q[row], u->q, sizeof(u->q));
	for (int half = 0; half < 2; half++)
	{
		t->d[half][row] = u->d[half];
		t->s[half][row] = u->s[half];
	}
}

/* A product of some rows with some adjacent panels of one part; or, for few rows and where n_streams is 2,
 * with those of two parts of one type, of which a panel of each is read side by side. */
typedef struct LlmGemm
{
	LlmDtype type;
	const uint8_t *w;    /* first panel */
	const uint8_t *next; /* weights that the thread will read afterwards, to fetch early; or NULL */
	size_t ahead;        /* bytes that it fetches ahead, into the second cache; 0 = LLM_FETCH_FAR */
	size_t panel_nbytes; /* bytes from panel to panel */
	ptrdiff_t twin;      /* bytes from a panel to the other part's, without padding; 0 = one part */
	int32_t twin_col;    /* floats from its outputs to those of the other part's */
	int32_t k;           /* inputs */
	int32_t n_panels;
	int32_t n_cols; /* outputs wanted; <= 16 * n_panels, the rest of the last panel is padding */
	int32_t n_rows; /* M */
	const LlmQ8Unit *q;     /* quantised weights: [n_rows][units of k] */
	const LlmQ8Tile *tiles; /* the same: [ceil(n_rows / 16)][units of k]; NULL: slower products */
	const float *x;         /* float weights: [n_rows][ldx] */
	int32_t ldx;            /* floats between rows of x */
	int32_t ldy;            /* floats between rows of y */
	float *y;               /* [n_rows][ldy], first column of the first panel */
} LlmGemm;

/* Where a vector of a KV page lies: value i is (i / run) * stride + i % run elements in. */
typedef struct LlmKvVector
{
	void *values;
	float *scale; /* of I8; NULL for other types */
	int32_t run;
	int32_t stride;
} LlmKvVector;

/* A query vector for I8 pages: value i is scale times a whole number of at most LLM_ATTN_FIXED. How
 * the numbers lie in v is the table's own: as int16, or as two times int8 of 7 bits each. */
#define LLM_ATTN_FIXED (127 * 128)
typedef struct LlmAttnQuery
{
	float scale; /* NaN when a value is not finite */
	int32_t sum; /* of all numbers */
	uint8_t pad[56];
	int8_t v[]; /* [2 * (k_dim rounded up to 64)] */
} LlmAttnQuery;

/* Bytes of one of two planes of a query vector. */
static inline size_t
llm_attn_query_plane(int32_t k_dim)
{
	return ((size_t) k_dim + 63) & ~(size_t) 63;
}

static inline size_t
llm_attn_query_nbytes(int32_t k_dim)
{
	return sizeof(LlmAttnQuery) + 2 * llm_attn_query_plane(k_dim);
}

/* One page of one KV head as attention sees it, for a run of query vectors. */
typedef struct LlmAttnSplit
{
	const void *k;        /* in k_type */
	const void *v;        /* in v_type; both are I8, or neither is */
	const void *next_k;   /* K of the split that comes next, to fetch early; NULL = none */
	size_t next_k_nbytes; /* of it that will be read */
	LlmDtype k_type;      /* F32, F16 or I8 */
	LlmDtype v_type;
	int32_t k_dim;
	int32_t v_stride;      /* v_dim rounded up to 16 */
	float scale;           /* on q.k; not negative */
	float softcap;         /* 0 = none */
	int32_t n_q;           /* query vectors */
	const float *const *q; /* [n_q] vectors of k_dim; not read for I8 */
	const void *queries;   /* [n_q] LlmAttnQuery, llm_attn_query_nbytes apart; read for I8 alone */
	const int32_t *lo;     /* [n_q] first visible position of the page, 0..63 */
	const int32_t *hi;     /* [n_q] one past the last visible position; lo >= hi: nothing is done */
	float *m;              /* [n_q] running maximum, -inf before the first split */
	float *l;              /* [n_q] running sum */
	float *o;              /* [n_q][v_stride] running value sum */
} LlmAttnSplit;

/* Sums of one vector over some splits, made apart: by attn_split from empty ones. */
typedef struct LlmAttnParts
{
	int32_t n;        /* splits, ascending */
	int32_t apart;    /* elements of m and l, vectors of o, from split to split */
	int32_t v_stride; /* as in LlmAttnSplit */
	const float *m;
	const float *l;
	const float *o;
} LlmAttnParts;

typedef struct LlmKernels
{
	const char *isa;
	int32_t tile_rows; /* gemm_quant reads tiles from that many rows on; 0 = never */
	int32_t n_streams; /* panels of which gemm_quant reads a few rows' at once, where it can */

	/* y = x W^T for panels of one part. */
	void (*gemm_quant)(const LlmGemm *g);
	void (*gemm_float)(const LlmGemm *g);

	/* Quantise n values (rule R3); fills (n + 63) / 64 units. */
	void (*quantise)(const float *x, int32_t n, LlmQ8Unit *out);
	/* res += add (NULL: nothing); out = res / sqrt(mean(res^2) + eps) * w. */
	void (*rms_norm)(float *res, const float *add, const float *w, float eps, int32_t n,
					 float *out);
	/* out = silu(gate) * up; out may be gate or up. */
	void (*silu_gate)(const float *gate, const float *up, int32_t n, float *out);
	/* Turn one head of n values: pairs by cos [n_dims] and signed sin [n_dims] (see rope.h). */
	void (*rope)(const float *x, const float *cs, const float *sn, int32_t n, int32_t n_dims,
				 bool interleaved, float *out);
	/* Bring a vector of n values to a KV type by the rules of tensor/kv_spec.h and store it; the scale
	 * is written for I8 alone. False: a NaN was there, and zeros are stored. */
	bool (*kv_store)(const float *x, int32_t n, LlmDtype type, LlmKvVector to);
	/* A query vector of n values for I8 pages. */
	void (*attn_query)(const float *q, int32_t n, LlmAttnQuery *out);
	/* Scores, softmax and value product of one split, then one step of the left fold (rule R7). */
	void (*attn_split)(const LlmAttnSplit *s);
	/* Fold them into the running sums of the vector, as attn_split would have: the same bits. */
	void (*attn_fold)(const LlmAttnParts *p, float *m, float *l, float *o);
	/* out = o / l for one vector of n values. */
	void (*attn_finish)(const float *o, float l, int32_t n, float *out);
} LlmKernels;

/* The table named isa, or the best that this machine and its system can run when isa is NULL; NULL
 * when isa is unknown or cannot run here. */
const LlmKernels *llm_kernels_find(const char *isa);

/* All tables that can run here, best first; returns how many. */
#define LLM_KERNELS_MAX 4
int llm_kernels_list(const LlmKernels *out[LLM_KERNELS_MAX]);

#endif
