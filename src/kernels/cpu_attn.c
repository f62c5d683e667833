/*
 * kernels/cpu_attn.c - the phase of attention.
 *
 * An attention item is one KV head and one block of rows (cpu_blocks.c). It walks the splits that its
 * rows see in ascending order, first those whose page is the same for all rows, then each sequence's
 * own; every row folds the splits that it sees, in this order. Which rows share an item changes no
 * bit (rule R7). Threads take items as they come, the costly ones first. The heads of a block come one
 * after the other, as they lie in memory, and each item fetches the first page of the next: with short
 * contexts there is little else to fetch ahead of. Steps of one row per sequence give even shares
 * instead (cpu_attn_shares.c).
 */
#include "kernels/cpu_attn.h"

#include <math.h>
#include <string.h>

/* First position that a row sees. */
static int32_t
row_first(const LlmCpuDevice *dev, const LlmAttn *a, int32_t row)
{
	int32_t pos = dev->batch->pos[row];

	return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

/* Visible positions of a split for the query vectors of a run, row by row, from vector v on. */
static void
ranges_set(const LlmCpuItem *it, const LlmCpuRun *run, int32_t split, int32_t v)
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

void
llm_cpu_attn_splits(const LlmCpuDevice *dev, const LlmAttn *a, const LlmCpuRun *run, int32_t *first,
					int32_t *last)
{
	int32_t lo = INT32_MAX, hi = 0;

	for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
	{
		int32_t begin = row_first(dev, a, r), pos = dev->batch->pos[r];

		lo = begin < lo ? begin : lo;
		hi = pos > hi ? pos : hi;
	}
	*first = lo / LLM_PAGE_TOKENS;
	*last = hi / LLM_PAGE_TOKENS;
}

/* Query vectors from v on, as I8 pages want them. */
static LlmAttnQuery *
query_at(const LlmCpuItem *it, int32_t v)
{
	return (LlmAttnQuery *) (it->s->queries +
							 (size_t) v * llm_attn_query_nbytes(it->op->attn.head_dim));
}

void
llm_cpu_attn_query_set(const LlmCpuItem *it, int32_t v, const float *q)
{
	it->s->q[v] = q;
	if (it->op->kv->group.k_type == LLM_DTYPE_I8)
		it->dev->kernels->attn_query(q, it->op->attn.head_dim, query_at(it, v));
}

void
llm_cpu_attn_begin(const LlmCpuItem *it, const LlmCpuRun *run, int32_t v)
{
	const LlmCpuAct *in = it->op->in;
	int32_t head_dim = it->op->attn.head_dim;

	for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
		for (int32_t g = 0; g < it->per_row; g++, v++)
		{
			if (it->op->turn == NULL)
				llm_cpu_attn_query_set(it, v,
									   in->f + (int64_t) r * in->ld +
										   (it->kv_head * it->per_row + g) * head_dim);
			it->s->sums.m[v] = -INFINITY;
			it->s->sums.l[v] = 0.0f;
		}
}

void
llm_cpu_attn_finish(const LlmCpuItem *it, const LlmCpuRun *run, int32_t v)
{
	const LlmCpuAct *out = it->op->out;
	const LlmKernels *kernels = it->dev->kernels;
	int32_t v_dim = it->op->attn.v_dim;

	for (int64_t r = run->row0; r < run->row0 + run->n_rows; r++)
		for (int32_t g = 0; g < it->per_row; g++, v++)
		{
			int32_t col = (it->kv_head * it->per_row + g) * v_dim;
			float *y = out->f + r * out->ld + col;

			kernels->attn_finish(it->s->sums.o + (size_t) v * (size_t) it->op->kv->v_stride,
								 it->s->sums.l[v], v_dim, y);
			if ((out->forms & LLM_ACT_Q8) != 0 && v_dim % LLM_Q8_UNIT == 0)
				llm_cpu_quantise(it->dev, out, r, col, y, v_dim);
		}
}

LlmCpuAhead
llm_cpu_attn_ahead(const LlmCpuItem *it, int32_t seq, int32_t i, int32_t kv_head)
{
	const LlmAttn *a = &it->op->attn;
	const LlmKvPages *kv = it->op->kv;
	const LlmBatch *b = it->dev->batch;
	int32_t page = b->table[a->kv_group][(size_t) seq * (size_t) b->table_stride + (size_t) i];
	int32_t n = b->kv_len[seq] - i * LLM_PAGE_TOKENS;

	n = n < LLM_PAGE_TOKENS ? (n + LLM_KV_LANES - 1) / LLM_KV_LANES * LLM_KV_LANES
							: LLM_PAGE_TOKENS;
	return (LlmCpuAhead){llm_kv_pages_head(kv, page, a->layer, kv_head),
						 kv->k_nbytes / LLM_PAGE_TOKENS * (size_t) n};
}

/* The block of item i. */
static const LlmCpuBlock *
block_of(const LlmCpuDevice *dev, const LlmCpuOp *op, int32_t i)
{
	return &dev->blocks[op->block0 + i / op->attn.n_kv_heads];
}

/* The first page of the next item. */
static LlmCpuAhead
item_ahead(const LlmCpuItem *it)
{
	int32_t n_kv_heads = it->op->attn.n_kv_heads, first, last;
	const LlmCpuRun *run;

	if (it->next < 0)
		return (LlmCpuAhead){NULL, 0};
	run = &it->dev->runs[block_of(it->dev, it->op, it->next)->run0];
	llm_cpu_attn_splits(it->dev, &it->op->attn, run, &first, &last);
	return llm_cpu_attn_ahead(it, run->seq, first, it->next % n_kv_heads);
}

void
llm_cpu_attn_walk(const LlmCpuItem *it, const LlmCpuWalk *w)
{
	const LlmAttn *a = &it->op->attn;
	const LlmKvPages *kv = it->op->kv;
	int32_t seq = w->runs->seq;
	LlmCpuAhead at =
		w->first <= w->last ? llm_cpu_attn_ahead(it, seq, w->first, it->kv_head) : w->after;
	LlmAttnSplit split = {.k_type = kv->group.k_type,
						  .v_type = kv->group.v_type,
						  .k_dim = a->head_dim,
						  .v_stride = kv->v_stride,
						  .scale = a->scale,
						  .softcap = a->softcap,
						  .n_q = w->n_q,
						  .q = it->s->q + w->v,
						  .queries = query_at(it, w->v),
						  .lo = it->s->lo + w->v,
						  .hi = it->s->hi + w->v,
						  .m = w->sums.m,
						  .l = w->sums.l,
						  .o = w->sums.o};

	for (int32_t i = w->first; i <= w->last; i++)
	{
		LlmCpuAhead next = i < w->last ? llm_cpu_attn_ahead(it, seq, i + 1, it->kv_head) : w->after;
		int32_t to = w->v;

		split.k = at.k;
		split.v = at.k + kv->k_nbytes;
		split.next_k = next.k;
		split.next_k_nbytes = next.nbytes;
		for (int32_t k = 0; k < w->n_runs; k++)
		{
			ranges_set(it, &w->runs[k], i, to);
			to += w->runs[k].n_rows * it->per_row;
		}
		it->dev->kernels->attn_split(&split);
		split.m += w->apart;
		split.l += w->apart;
		split.o += (size_t) w->apart * (size_t) kv->v_stride;
		at = next;
	}
}

/* The first split of a run that is not shared. */
static int32_t
own_first(const LlmCpuItem *it, const LlmCpuRun *run, int32_t n_shared)
{
	int32_t first, last;

	llm_cpu_attn_splits(it->dev, &it->op->attn, run, &first, &last);
	return first > n_shared ? first : n_shared;
}

/* One block and KV head: the pages that its runs share for all of them together, then each run's own
 * pages, then the results. */
static void
item_run(const LlmCpuItem *it, const LlmCpuBlock *block)
{
	const LlmCpuRun *runs = it->dev->runs + block->run0;
	int32_t n_shared = block->n_shared[it->op->attn.kv_group], n_q = block->n_rows * it->per_row;
	int32_t first, last, first_shared = n_shared, v = 0;
	LlmCpuAhead after;

	for (int32_t i = 0; i < block->n_runs; i++)
	{
		llm_cpu_attn_begin(it, &runs[i], v);
		llm_cpu_attn_splits(it->dev, &it->op->attn, &runs[i], &first, &last);
		first_shared = first < first_shared ? first : first_shared;
		v += runs[i].n_rows * it->per_row;
	}
	memset(it->s->sums.o, 0, (size_t) n_q * (size_t) it->op->kv->v_stride * sizeof(float));
	if (first_shared < n_shared)
		llm_cpu_attn_walk(it, &(LlmCpuWalk){.runs = runs,
											.n_runs = block->n_runs,
											.first = first_shared,
											.last = n_shared - 1,
											.n_q = n_q,
											.sums = it->s->sums});
	v = 0;
	for (int32_t i = 0; i < block->n_runs; i++)
	{
		const LlmCpuRun *next = i + 1 < block->n_runs ? &runs[i + 1] : NULL;

		llm_cpu_attn_splits(it->dev, &it->op->attn, &runs[i], &first, &last);
		after = next == NULL
					? item_ahead(it)
					: llm_cpu_attn_ahead(it, next->seq, own_first(it, next, n_shared), it->kv_head);
		llm_cpu_attn_walk(it, &(LlmCpuWalk){.runs = &runs[i],
											.n_runs = 1,
											.first = first > n_shared ? first : n_shared,
											.last = last,
											.v = v,
											.n_q = runs[i].n_rows * it->per_row,
											.sums = llm_cpu_attn_sums_at(&it->s->sums, v,
																		 it->op->kv->v_stride),
											.after = after});
		llm_cpu_attn_finish(it, &runs[i], v);
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
	int32_t n_heads = op->attn.n_kv_heads, n = op->n_blocks * n_heads;
	int32_t take = items_take(n, n_threads);

	if (op->n_splits > 0)
	{
		llm_cpu_attn_range(dev, op, tid, n_threads);
		return;
	}
	for (int32_t at = atomic_fetch_add(&op->next, take); at < n;
		 at = atomic_fetch_add(&op->next, take))
		for (int32_t i = at; i < at + take && i < n; i++)
		{
			LlmCpuItem it = {.dev = dev,
							 .op = op,
							 .s = &dev->scratch[tid],
							 .kv_head = i % n_heads,
							 .per_row = op->attn.n_heads / n_heads,
							 .next = i + 1 < n ? i + 1 : -1};

			item_run(&it, block_of(dev, op, i));
		}
}
