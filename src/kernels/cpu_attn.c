/*
 * kernels/cpu_attn.c - the phases of attention: rotary table, turn and store, attend.
 *
 * An attention item is one KV head and up to 16 adjacent rows of one sequence. It walks the splits
 * that any of its rows sees in ascending order, and every row folds the splits that it sees; which
 * rows share an item changes no bit (rule R7). Threads take items as they come, late rows first,
 * because they see the most.
 */
#include "kernels/cpu_state.h"

#include <math.h>
#include <string.h>

#include "kernels/rope.h"

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

void
llm_cpu_run_rope(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int64_t per_row = op->attn.n_heads + 2 * op->attn.n_kv_heads;
	int64_t n = per_row * op->in->rows;

	for (int64_t i = n * tid / n_threads; i < n * (tid + 1) / n_threads; i++)
		rope_head(dev, op, i / per_row, (int32_t) (i % per_row), dev->scratch[tid].row);
}

/* Visible positions of a split for every query vector of the block, row by row. */
static void
ranges_set(const LlmCpuDevice *dev, const LlmCpuOp *op, const LlmCpuBlock *block, int32_t split,
		   int32_t per_row, LlmCpuScratch *s)
{
	int32_t base = split * LLM_PAGE_TOKENS;

	for (int32_t r = 0; r < block->n_rows; r++)
	{
		int32_t pos = dev->batch->pos[block->row0 + r];
		int32_t first =
			op->attn.window > 0 && pos >= op->attn.window ? pos - op->attn.window + 1 : 0;
		int32_t lo = first > base ? first - base : 0;
		int32_t hi = pos + 1 - base;

		hi = hi < LLM_PAGE_TOKENS ? hi : LLM_PAGE_TOKENS;
		for (int32_t g = 0; g < per_row; g++)
		{
			s->lo[r * per_row + g] = lo;
			s->hi[r * per_row + g] = hi;
		}
	}
}

/* First and last split that any row of the block sees. */
static void
splits_of(const LlmCpuDevice *dev, const LlmCpuOp *op, const LlmCpuBlock *block, int32_t *first,
		  int32_t *last)
{
	int32_t lo = INT32_MAX, hi = 0;

	for (int32_t r = block->row0; r < block->row0 + block->n_rows; r++)
	{
		int32_t pos = dev->batch->pos[r];
		int32_t begin =
			op->attn.window > 0 && pos >= op->attn.window ? pos - op->attn.window + 1 : 0;

		lo = begin < lo ? begin : lo;
		hi = pos > hi ? pos : hi;
	}
	*first = lo / LLM_PAGE_TOKENS;
	*last = hi / LLM_PAGE_TOKENS;
}

/* o / l of every vector of the item, in out's forms. */
static void
item_finish(LlmCpuDevice *dev, LlmCpuOp *op, const LlmCpuBlock *block, int32_t kv_head,
			int32_t per_row, LlmCpuScratch *s)
{
	const LlmCpuAct *out = op->out;
	int32_t v_dim = op->attn.v_dim, v_stride = op->kv->v_stride;

	for (int32_t i = 0; i < block->n_rows * per_row; i++)
	{
		int64_t row = block->row0 + i / per_row;
		int32_t col = (kv_head * per_row + i % per_row) * v_dim;
		float *y = out->f + row * out->ld + col;

		dev->kernels->attn_finish(s->o + (size_t) i * (size_t) v_stride, s->l[i], v_dim, y);
		if ((out->forms & LLM_ACT_Q8) != 0 && v_dim % LLM_Q8_UNIT == 0)
			dev->kernels->quantise(y, v_dim, out->q + row * out->n_units + col / LLM_Q8_UNIT);
	}
}

static void
item_run(LlmCpuDevice *dev, LlmCpuOp *op, const LlmCpuBlock *block, int32_t kv_head,
		 LlmCpuScratch *s)
{
	const LlmBatch *b = dev->batch;
	const LlmAttn *a = &op->attn;
	const int32_t *table = b->table[a->kv_group] + (size_t) block->seq * (size_t) b->table_stride;
	int32_t per_row = a->n_heads / a->n_kv_heads, n_q = block->n_rows * per_row;
	int32_t first, last;
	LlmAttnSplit split = {.k_type = op->kv->group.k_type,
						  .v_type = op->kv->group.v_type,
						  .k_dim = a->head_dim,
						  .v_stride = op->kv->v_stride,
						  .scale = a->scale,
						  .softcap = a->softcap,
						  .n_q = n_q,
						  .q = s->q,
						  .lo = s->lo,
						  .hi = s->hi,
						  .m = s->m,
						  .l = s->l,
						  .o = s->o};

	for (int32_t i = 0; i < n_q; i++)
	{
		s->q[i] = op->in->f + (int64_t) (block->row0 + i / per_row) * op->in->ld +
				  (kv_head * per_row + i % per_row) * a->head_dim;
		s->m[i] = -INFINITY;
		s->l[i] = 0.0f;
	}
	memset(s->o, 0, (size_t) n_q * (size_t) op->kv->v_stride * sizeof(float));
	splits_of(dev, op, block, &first, &last);
	for (int32_t i = first; i <= last; i++)
	{
		const uint8_t *head = llm_kv_pages_head(op->kv, table[i], a->layer, kv_head);

		split.k = head;
		split.v = head + op->kv->k_nbytes;
		split.next_k = i < last ? llm_kv_pages_head(op->kv, table[i + 1], a->layer, kv_head) : NULL;
		ranges_set(dev, op, block, i, per_row, s);
		dev->kernels->attn_split(&split);
	}
	item_finish(dev, op, block, kv_head, per_row, s);
}

void
llm_cpu_run_attention(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int32_t n_kv_heads = op->attn.n_kv_heads, n = dev->n_blocks * n_kv_heads;

	(void) n_threads;
	for (int32_t i = atomic_fetch_add(&op->next, 1); i < n; i = atomic_fetch_add(&op->next, 1))
	{
		int32_t item = n - 1 - i;

		item_run(dev, op, &dev->blocks[item / n_kv_heads], item % n_kv_heads, &dev->scratch[tid]);
	}
}
