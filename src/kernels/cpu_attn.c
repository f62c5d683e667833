/*
 * kernels/cpu_attn.c - the phases of attention: rotary table, turn and store, attend.
 *
 * An attention item is one KV head and one block of rows (cpu_blocks.c). It walks the splits that its
 * rows see in ascending order, first those whose page is the same for all rows, then each sequence's
 * own; every row folds the splits that it sees, in this order. Which rows share an item changes no
 * bit (rule R7). Threads take items as they come, late rows first, because they see the most. The heads
 * of a block come one after the other, as they lie in memory, and each item fetches the first page of
 * the next: with short contexts there is little else to fetch ahead of.
 */
#include "kernels/cpu_state.h"

#include <math.h>
#include <string.h>

#include "kernels/rope.h"

#define K_LANES 16 /* tokens whose K values lie side by side (kernels/kv_pages.h) */

#if defined(__x86_64__)
#define FETCH_FN __attribute__((target("prfchw"))) static
#else
#define FETCH_FN static
#endif

/* One item at work. */
typedef struct AttnItem
{
	const LlmCpuDevice *dev;
	const LlmCpuOp *op;
	LlmCpuScratch *s; /* of the thread; vectors in the order of the block's rows */
	int32_t kv_head;
	int32_t per_row; /* query vectors of a row */
	int32_t next;    /* the item after this one, or -1: most likely the thread's own next */
} AttnItem;

void
llm_cpu_run_rope_table(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int64_t n = op->out->rows;

	for (int64_t r = n * tid / n_threads; r < n * (tid + 1) / n_threads; r++)
	{
		float *table = op->out->f + r * op->out->ld;

		llm_rope_table(op->rope, dev->batch->pos[r], table, table + op->rope->n_dims);
	}
}

/* Head h of row r of a packed q | k | v: turn it and put it where it belongs. */
static void
rope_head(LlmCpuDevice *dev, LlmCpuOp *op, int64_t r, int32_t h, float *tmp)
{
	const LlmAttn *a = &op->attn;
	const LlmKernels *kernels = dev->kernels;
	const float *x = op->in->f + r * op->in->ld;
	const float *table = op->in2 != NULL ? op->in2->f + r * op->in2->ld : NULL;
	int32_t n_dims = op->in2 != NULL ? op->rope->n_dims : 0;
	const float *sn = table != NULL ? table + n_dims : NULL;
	bool pairs = op->rope != NULL && op->rope->interleaved != 0;
	int32_t slot = dev->batch->slot[a->kv_group][r];
	int32_t page = slot / LLM_PAGE_TOKENS, t = slot % LLM_PAGE_TOKENS;
	int32_t kv_head = (h - a->n_heads) % a->n_kv_heads;
	uint8_t *head;
	LlmKvVector to;
	bool good;

	if (h < a->n_heads)
	{
		kernels->rope(x + h * a->head_dim, table, sn, a->head_dim, n_dims, pairs,
					  op->out->f + r * op->out->ld + h * a->head_dim);
		return;
	}
	head = llm_kv_pages_head(op->kv, page, a->layer, kv_head);
	x += a->n_heads * a->head_dim;
	if (h < a->n_heads + a->n_kv_heads)
	{
		kernels->rope(x + kv_head * a->head_dim, table, sn, a->head_dim, n_dims, pairs, tmp);
		to = llm_kv_pages_k(op->kv, head, t);
		good = kernels->kv_store(tmp, a->head_dim, op->kv->group.k_type, LLM_LANES, to.values,
								 to.scale);
	}
	else
	{
		x += a->n_kv_heads * a->head_dim + kv_head * a->v_dim;
		to = llm_kv_pages_v(op->kv, head, t);
		good = kernels->kv_store(x, a->v_dim, op->kv->group.v_type, 1, to.values, to.scale);
	}
	if (!good)
		atomic_store_explicit(&dev->spoiled_rows[r], true, memory_order_relaxed);
}

/* Fetch lines that are about to be written. */
FETCH_FN void
lines_fetch(const void *p, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i += 64)
		__builtin_prefetch((const uint8_t *) p + i, 1, 3);
}

/* Fetch what row r will write. One K vector is spread over the lines of its 16 tokens, in a page that
 * was not touched since the step before: without this, every line is waited for. */
static void
row_fetch(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r)
{
	const LlmKvPages *kv = op->kv;
	int32_t slot = dev->batch->slot[op->attn.kv_group][r];
	int32_t t = slot % LLM_PAGE_TOKENS;
	size_t k_nbytes = (size_t) op->attn.head_dim * llm_kv_type_nbytes(kv->group.k_type) * K_LANES;
	size_t v_nbytes = (size_t) op->attn.v_dim * llm_kv_type_nbytes(kv->group.v_type);

	for (int32_t h = 0; h < op->attn.n_kv_heads; h++)
	{
		uint8_t *head = llm_kv_pages_head(kv, slot / LLM_PAGE_TOKENS, op->attn.layer, h);

		lines_fetch(llm_kv_pages_k(kv, head, t / K_LANES * K_LANES).values, k_nbytes);
		lines_fetch(llm_kv_pages_v(kv, head, t).values, v_nbytes);
	}
}

/* Row r + 1 writes other lines of K than row r. */
static bool
lines_end(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r)
{
	const int32_t *slot = dev->batch->slot[op->attn.kv_group];

	return slot[r] / K_LANES != slot[r + 1] / K_LANES;
}

void
llm_cpu_run_rope(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int64_t per_row = op->attn.n_heads + 2 * op->attn.n_kv_heads;
	int64_t n = per_row * op->in->rows, end = n * (tid + 1) / n_threads;

	for (int64_t i = n * tid / n_threads; i < end; i++)
	{
		int64_t r = i / per_row;

		if (i % per_row == 0 && i + per_row < end && lines_end(dev, op, r))
			row_fetch(dev, op, r + 1);
		rope_head(dev, op, r, (int32_t) (i % per_row), dev->scratch[tid].row);
	}
}

/* First position that a row sees. */
static int32_t
row_first(const LlmCpuDevice *dev, const LlmAttn *a, int32_t row)
{
	int32_t pos = dev->batch->pos[row];

	return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

/* Visible positions of a split for the query vectors of a run, row by row, from vector v on. */
static void
ranges_set(const AttnItem *it, const LlmCpuRun *run, int32_t split, int32_t v)
{
	int32_t base = split * LLM_PAGE_TOKENS;

	for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
	{
		int32_t first = row_first(it->dev, &it->op->attn, r);
		int32_t lo = first > base ? first - base : 0;
		int32_t hi = it->dev->batch->pos[r] + 1 - base;

		hi = hi < LLM_PAGE_TOKENS ? hi : LLM_PAGE_TOKENS;
		for (int32_t g = 0; g < it->per_row; g++, v++)
		{
			it->s->lo[v] = lo;
			it->s->hi[v] = hi;
		}
	}
}

/* First and last split that any row of the run sees. */
static void
splits_of(const AttnItem *it, const LlmCpuRun *run, int32_t *first, int32_t *last)
{
	int32_t lo = INT32_MAX, hi = 0;

	for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
	{
		int32_t begin = row_first(it->dev, &it->op->attn, r), pos = it->dev->batch->pos[r];

		lo = begin < lo ? begin : lo;
		hi = pos > hi ? pos : hi;
	}
	*first = lo / LLM_PAGE_TOKENS;
	*last = hi / LLM_PAGE_TOKENS;
}

/* The query vectors of a run and their empty sums, from vector v on. */
static void
run_begin(const AttnItem *it, const LlmCpuRun *run, int32_t v)
{
	const LlmCpuAct *in = it->op->in;
	int32_t head_dim = it->op->attn.head_dim;

	for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
		for (int32_t g = 0; g < it->per_row; g++, v++)
		{
			it->s->q[v] = in->f + (int64_t) r * in->ld + (it->kv_head * it->per_row + g) * head_dim;
			it->s->m[v] = -INFINITY;
			it->s->l[v] = 0.0f;
		}
}

/* o / l of a run's vectors from v on, in out's forms. */
static void
run_finish(const AttnItem *it, const LlmCpuRun *run, int32_t v)
{
	const LlmCpuAct *out = it->op->out;
	const LlmKernels *kernels = it->dev->kernels;
	int32_t v_dim = it->op->attn.v_dim;

	for (int64_t r = run->row0; r < run->row0 + run->n_rows; r++)
		for (int32_t g = 0; g < it->per_row; g++, v++)
		{
			int32_t col = (it->kv_head * it->per_row + g) * v_dim;
			float *y = out->f + r * out->ld + col;

			kernels->attn_finish(it->s->o + (size_t) v * (size_t) it->op->kv->v_stride, it->s->l[v],
								 v_dim, y);
			if ((out->forms & LLM_ACT_Q8) != 0 && v_dim % LLM_Q8_UNIT == 0)
				kernels->quantise(y, v_dim, out->q + r * out->n_units + col / LLM_Q8_UNIT);
		}
}

/* What attention fetches ahead: K of a page of a head. */
typedef struct AttnAhead
{
	const uint8_t *k; /* NULL = nothing */
	size_t nbytes;
} AttnAhead;

/* Split i of a sequence. */
static AttnAhead
split_ahead(const AttnItem *it, int32_t seq, int32_t i, int32_t kv_head)
{
	const LlmAttn *a = &it->op->attn;
	const LlmKvPages *kv = it->op->kv;
	const LlmBatch *b = it->dev->batch;
	int32_t page = b->table[a->kv_group][(size_t) seq * (size_t) b->table_stride + (size_t) i];
	int32_t n = b->kv_len[seq] - i * LLM_PAGE_TOKENS;

	n = n < LLM_PAGE_TOKENS ? (n + K_LANES - 1) / K_LANES * K_LANES : LLM_PAGE_TOKENS;
	return (AttnAhead){llm_kv_pages_head(kv, page, a->layer, kv_head),
					   kv->k_nbytes / LLM_PAGE_TOKENS * (size_t) n};
}

/* The block of item i. */
static const LlmCpuBlock *
block_of(const LlmCpuDevice *dev, int32_t i, int32_t n_kv_heads)
{
	return &dev->blocks[dev->n_blocks - 1 - i / n_kv_heads];
}

/* The first page of the next item. */
static AttnAhead
item_ahead(const AttnItem *it)
{
	int32_t n_kv_heads = it->op->attn.n_kv_heads, first, last;
	const LlmCpuRun *run;

	if (it->next < 0)
		return (AttnAhead){NULL, 0};
	run = &it->dev->runs[block_of(it->dev, it->next, n_kv_heads)->run0];
	splits_of(it, run, &first, &last);
	return split_ahead(it, run->seq, first, it->next % n_kv_heads);
}

/* Splits first .. last of a sequence's table for n_q query vectors from v on: those of n_runs runs. */
static void
splits_run(const AttnItem *it, const LlmCpuRun *runs, int32_t n_runs, int32_t first, int32_t last,
		   int32_t v, int32_t n_q, AttnAhead after)
{
	const LlmAttn *a = &it->op->attn;
	const LlmKvPages *kv = it->op->kv;
	AttnAhead at = first <= last ? split_ahead(it, runs->seq, first, it->kv_head) : after;
	LlmAttnSplit split = {.k_type = kv->group.k_type,
						  .v_type = kv->group.v_type,
						  .k_dim = a->head_dim,
						  .v_stride = kv->v_stride,
						  .scale = a->scale,
						  .softcap = a->softcap,
						  .n_q = n_q,
						  .q = it->s->q + v,
						  .lo = it->s->lo + v,
						  .hi = it->s->hi + v,
						  .m = it->s->m + v,
						  .l = it->s->l + v,
						  .o = it->s->o + (size_t) v * (size_t) kv->v_stride};

	for (int32_t i = first; i <= last; i++)
	{
		AttnAhead next = i < last ? split_ahead(it, runs->seq, i + 1, it->kv_head) : after;
		int32_t to = v;

		split.k = at.k;
		split.v = at.k + kv->k_nbytes;
		split.next_k = next.k;
		split.next_k_nbytes = next.nbytes;
		for (int32_t k = 0; k < n_runs; k++)
		{
			ranges_set(it, &runs[k], i, to);
			to += runs[k].n_rows * it->per_row;
		}
		it->dev->kernels->attn_split(&split);
		at = next;
	}
}

/* The first split of a run that is not shared. */
static int32_t
own_first(const AttnItem *it, const LlmCpuRun *run, int32_t n_shared)
{
	int32_t first, last;

	splits_of(it, run, &first, &last);
	return first > n_shared ? first : n_shared;
}

/* One block and KV head: the pages that its runs share for all of them together, then each run's own
 * pages, then the results. */
static void
item_run(const AttnItem *it, const LlmCpuBlock *block)
{
	const LlmCpuRun *runs = it->dev->runs + block->run0;
	int32_t n_shared = block->n_shared[it->op->attn.kv_group], n_q = block->n_rows * it->per_row;
	int32_t first, last, first_shared = n_shared, v = 0;
	AttnAhead after;

	for (int32_t i = 0; i < block->n_runs; i++)
	{
		run_begin(it, &runs[i], v);
		splits_of(it, &runs[i], &first, &last);
		first_shared = first < first_shared ? first : first_shared;
		v += runs[i].n_rows * it->per_row;
	}
	memset(it->s->o, 0, (size_t) n_q * (size_t) it->op->kv->v_stride * sizeof(float));
	if (first_shared < n_shared)
		splits_run(it, runs, block->n_runs, first_shared, n_shared - 1, 0, n_q,
				   (AttnAhead){NULL, 0});
	v = 0;
	for (int32_t i = 0; i < block->n_runs; i++)
	{
		const LlmCpuRun *next = i + 1 < block->n_runs ? &runs[i + 1] : NULL;

		splits_of(it, &runs[i], &first, &last);
		after = next == NULL
					? item_ahead(it)
					: split_ahead(it, next->seq, own_first(it, next, n_shared), it->kv_head);
		splits_run(it, &runs[i], 1, first > n_shared ? first : n_shared, last, v,
				   runs[i].n_rows * it->per_row, after);
		run_finish(it, &runs[i], v);
		v += runs[i].n_rows * it->per_row;
	}
}

/* Items that a thread takes at a time: so many that it mostly knows its next one, so few that threads
 * end together. */
static int32_t
items_take(int32_t n, int n_threads)
{
	int32_t take = n / (16 * n_threads);

	return take < 1 ? 1 : take > 16 ? 16 : take;
}

void
llm_cpu_run_attention(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int32_t n_heads = op->attn.n_kv_heads, n = dev->n_blocks * n_heads;
	int32_t take = items_take(n, n_threads);

	for (int32_t at = atomic_fetch_add(&op->next, take); at < n;
		 at = atomic_fetch_add(&op->next, take))
		for (int32_t i = at; i < at + take && i < n; i++)
		{
			AttnItem it = {.dev = dev,
						   .op = op,
						   .s = &dev->scratch[tid],
						   .kv_head = i % n_heads,
						   .per_row = op->attn.n_heads / n_heads,
						   .next = i + 1 < n ? i + 1 : -1};

			item_run(&it, block_of(dev, i, n_heads));
		}
}
