/*
 * kernels/cpu_rope.c - the phases before attention: the rotary table, and turning and storing.
 *
 * Keys are stored turned and both keys and values rounded to the store's type (rule R6), so that
 * attention reads the store alone, in prompts too.
 */
#include "kernels/cpu_state.h"

#include "kernels/rope.h"

#define TAKES 16 /* of a thread in a phase: rows that store into cold pages take longer */

#if defined(__x86_64__)
#define FETCH_FN __attribute__((target("prfchw"))) static
#else
#define FETCH_FN static
#endif

void
llm_cpu_run_rope_table(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int64_t n = op->out->rows, end = llm_cpu_rows_share(n, tid + 1, n_threads);

	for (int64_t r = llm_cpu_rows_share(n, tid, n_threads); r < end; r++)
	{
		float *table = op->out->f + r * op->out->ld;

		llm_rope_table(op->rope, dev->batch->pos[r], table, table + op->rope->n_dims);
	}
}

/* Turn one head of row r. */
static void
head_turn(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r, const float *x, float *out)
{
	const float *table = op->in2 != NULL ? op->in2->f + r * op->in2->ld : NULL;
	int32_t n_dims = op->in2 != NULL ? op->rope->n_dims : 0;

	dev->kernels->rope(x, table, table != NULL ? table + n_dims : NULL, op->attn.head_dim, n_dims,
					   op->rope != NULL && op->rope->interleaved != 0, out);
}

void
llm_cpu_rope_q(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r, int32_t h, float *out)
{
	head_turn(dev, op, r, op->in->f + r * op->in->ld + h * op->attn.head_dim, out);
}

void
llm_cpu_rope_kv(LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r, int32_t kv_head, float *tmp)
{
	const LlmAttn *a = &op->attn;
	const LlmKvGroup *g = &op->kv->group;
	const float *k = op->in->f + r * op->in->ld + (a->n_heads + kv_head) * a->head_dim;
	const float *v = op->in->f + r * op->in->ld + (a->n_heads + a->n_kv_heads) * a->head_dim +
					 kv_head * a->v_dim;
	int32_t slot = dev->batch->slot[a->kv_group][r];
	uint8_t *head = llm_kv_pages_head(op->kv, slot / LLM_PAGE_TOKENS, a->layer, kv_head);
	LlmKvVector k_to = llm_kv_pages_k(op->kv, head, slot % LLM_PAGE_TOKENS);
	LlmKvVector v_to = llm_kv_pages_v(op->kv, head, slot % LLM_PAGE_TOKENS);
	bool good;

	head_turn(dev, op, r, k, tmp);
	good = dev->kernels->kv_store(tmp, a->head_dim, g->k_type, k_to);
	if (!dev->kernels->kv_store(v, a->v_dim, g->v_type, v_to) || !good)
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
	size_t k_nbytes =
		(size_t) op->attn.head_dim * llm_kv_type_nbytes(kv->group.k_type) * LLM_KV_LANES;

	for (int32_t h = 0; h < op->attn.n_kv_heads; h++)
	{
		uint8_t *head = llm_kv_pages_head(kv, slot / LLM_PAGE_TOKENS, op->attn.layer, h);
		LlmKvVector k = llm_kv_pages_k(kv, head, t / LLM_KV_LANES * LLM_KV_LANES);
		LlmKvVector v = llm_kv_pages_v(kv, head, t);

		lines_fetch(k.values, k_nbytes);
		lines_fetch(v.values,
					(size_t) (op->attn.v_dim * v.stride) * llm_kv_type_nbytes(kv->group.v_type));
		if (k.scale != NULL)
		{
			lines_fetch(k.scale, sizeof(float));
			lines_fetch(v.scale, sizeof(float));
		}
	}
}

/* Row r + 1 writes other lines of K than row r. */
static bool
lines_end(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t r)
{
	const int32_t *slot = dev->batch->slot[op->attn.kv_group];

	return slot[r] / LLM_KV_LANES != slot[r + 1] / LLM_KV_LANES;
}

/* Turn heads, and store those of K and V, of items begin .. end: rows times heads. */
static void
items_turn(LlmCpuDevice *dev, const LlmCpuOp *op, int tid, int32_t begin, int32_t end)
{
	int32_t n_heads = op->attn.n_heads, per_row = n_heads + op->attn.n_kv_heads;

	for (int32_t i = begin; i < end; i++)
	{
		int32_t r = i / per_row, h = i % per_row;

		if (h == 0 && i + per_row < end && lines_end(dev, op, r))
			row_fetch(dev, op, r + 1);
		if (h < n_heads)
			llm_cpu_rope_q(dev, op, r, h,
						   op->out->f + (int64_t) r * op->out->ld + h * op->attn.head_dim);
		else
			llm_cpu_rope_kv(dev, op, r, h - n_heads, dev->scratch[tid].row);
	}
}

/* Items that a thread takes at a time: some heads, or all of some rows. */
static int32_t
items_take(int32_t n, int32_t per_row, int n_threads)
{
	int32_t take = n / (TAKES * n_threads);

	return take > per_row ? take / per_row * per_row : take < 1 ? 1 : take;
}

void
llm_cpu_run_rope(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int32_t per_row = op->attn.n_heads + op->attn.n_kv_heads, rows = op->in->rows;
	int32_t n = per_row * rows, take = items_take(n, per_row, n_threads);

	if (llm_cpu_rows_own(rows, n_threads))
	{
		items_turn(dev, op, tid, (int32_t) llm_cpu_rows_share(rows, tid, n_threads) * per_row,
				   (int32_t) llm_cpu_rows_share(rows, tid + 1, n_threads) * per_row);
		return;
	}
	for (int32_t at = atomic_fetch_add(&op->next, take); at < n;
		 at = atomic_fetch_add(&op->next, take))
		items_turn(dev, op, tid, at, at + take < n ? at + take : n);
}
