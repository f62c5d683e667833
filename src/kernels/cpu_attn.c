/*
 * kernels/cpu_attn.c - the phase of attention.
 *
 * An attention item is one KV head and one block of rows (cpu_blocks.c). It walks the splits that its
 * rows see in ascending order, first those whose page is the same for all rows, then each sequence's
 * own; every row folds the splits that it sees, in this order. Which rows share an item changes no
 * bit (rule R7). Threads take items as they come, the costly ones first. The heads of a block come one
 * after the other, as they lie in memory, and each item fetches the first page of the next: with short
 * contexts there is little else to fetch ahead of. Steps of one row per sequence give even shares
 * instead (below).
 */
#include "kernels/cpu_state.h"

#include <math.h>
#include <string.h>

#define TURN_ROWS 8 /* most rows of a step whose attention turns and stores too */

/* One item at work. */
typedef struct AttnItem
{
	LlmCpuDevice *dev;
	const LlmCpuOp *op;
	LlmCpuScratch *s; /* of the thread; vectors in the order of the block's rows */
	int32_t kv_head;
	int32_t per_row; /* query vectors of a row */
	int32_t next;    /* the item after this one, or -1: most likely the thread's own next */
} AttnItem;

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
splits_of(const LlmCpuDevice *dev, const LlmAttn *a, const LlmCpuRun *run, int32_t *first,
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
query_at(const AttnItem *it, int32_t v)
{
	return (LlmAttnQuery *) (it->s->queries +
							 (size_t) v * llm_attn_query_nbytes(it->op->attn.head_dim));
}

/* q is query vector v. */
static void
query_set(const AttnItem *it, int32_t v, const float *q)
{
	it->s->q[v] = q;
	if (it->op->kv->group.k_type == LLM_DTYPE_I8)
		it->dev->kernels->attn_query(q, it->op->attn.head_dim, query_at(it, v));
}

/* The query vectors of a run, unless they are turned here, and their empty sums, from vector v on. */
static void
run_begin(const AttnItem *it, const LlmCpuRun *run, int32_t v)
{
	const LlmCpuAct *in = it->op->in;
	int32_t head_dim = it->op->attn.head_dim;

	for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
		for (int32_t g = 0; g < it->per_row; g++, v++)
		{
			if (it->op->turn == NULL)
				query_set(it, v,
						  in->f + (int64_t) r * in->ld +
							  (it->kv_head * it->per_row + g) * head_dim);
			it->s->sums.m[v] = -INFINITY;
			it->s->sums.l[v] = 0.0f;
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

			kernels->attn_finish(it->s->sums.o + (size_t) v * (size_t) it->op->kv->v_stride,
								 it->s->sums.l[v], v_dim, y);
			if ((out->forms & LLM_ACT_Q8) != 0 && v_dim % LLM_Q8_UNIT == 0)
				llm_cpu_quantise(it->dev, out, r, col, y, v_dim);
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

	n = n < LLM_PAGE_TOKENS ? (n + LLM_KV_LANES - 1) / LLM_KV_LANES * LLM_KV_LANES
							: LLM_PAGE_TOKENS;
	return (AttnAhead){llm_kv_pages_head(kv, page, a->layer, kv_head),
					   kv->k_nbytes / LLM_PAGE_TOKENS * (size_t) n};
}

/* The block of item i. */
static const LlmCpuBlock *
block_of(const LlmCpuDevice *dev, int32_t i, int32_t n_kv_heads)
{
	return &dev->blocks[i / n_kv_heads];
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
	splits_of(it->dev, &it->op->attn, run, &first, &last);
	return split_ahead(it, run->seq, first, it->next % n_kv_heads);
}

/* Splits first .. last of a sequence's table for the query vectors of some runs. */
typedef struct AttnWalk
{
	const LlmCpuRun *runs;
	int32_t n_runs;
	int32_t first;
	int32_t last;
	int32_t v; /* first of the n_q vectors */
	int32_t n_q;
	LlmCpuSums sums; /* of them */
	int32_t apart;   /* vectors from one split's sums to the next one's; 0 = they are folded */
	AttnAhead after; /* what comes after the last split */
} AttnWalk;

static void
splits_run(const AttnItem *it, const AttnWalk *w)
{
	const LlmAttn *a = &it->op->attn;
	const LlmKvPages *kv = it->op->kv;
	int32_t seq = w->runs->seq;
	AttnAhead at = w->first <= w->last ? split_ahead(it, seq, w->first, it->kv_head) : w->after;
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
		AttnAhead next = i < w->last ? split_ahead(it, seq, i + 1, it->kv_head) : w->after;
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

/* The sums of vectors from v on. */
static LlmCpuSums
sums_at(const LlmCpuSums *s, int32_t v, int32_t v_stride)
{
	return (LlmCpuSums){s->m + v, s->l + v, s->o + (size_t) v * (size_t) v_stride};
}

/* The first split of a run that is not shared. */
static int32_t
own_first(const AttnItem *it, const LlmCpuRun *run, int32_t n_shared)
{
	int32_t first, last;

	splits_of(it->dev, &it->op->attn, run, &first, &last);
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
		splits_of(it->dev, &it->op->attn, &runs[i], &first, &last);
		first_shared = first < first_shared ? first : first_shared;
		v += runs[i].n_rows * it->per_row;
	}
	memset(it->s->sums.o, 0, (size_t) n_q * (size_t) it->op->kv->v_stride * sizeof(float));
	if (first_shared < n_shared)
		splits_run(it, &(AttnWalk){.runs = runs,
								   .n_runs = block->n_runs,
								   .first = first_shared,
								   .last = n_shared - 1,
								   .n_q = n_q,
								   .sums = it->s->sums});
	v = 0;
	for (int32_t i = 0; i < block->n_runs; i++)
	{
		const LlmCpuRun *next = i + 1 < block->n_runs ? &runs[i + 1] : NULL;

		splits_of(it->dev, &it->op->attn, &runs[i], &first, &last);
		after = next == NULL
					? item_ahead(it)
					: split_ahead(it, next->seq, own_first(it, next, n_shared), it->kv_head);
		splits_run(it, &(AttnWalk){.runs = &runs[i],
								   .n_runs = 1,
								   .first = first > n_shared ? first : n_shared,
								   .last = last,
								   .v = v,
								   .n_q = runs[i].n_rows * it->per_row,
								   .sums = sums_at(&it->s->sums, v, it->op->kv->v_stride),
								   .after = after});
		run_finish(it, &runs[i], v);
		v += runs[i].n_rows * it->per_row;
	}
}

/*
 * Even shares, for steps of one row per sequence. All splits of all heads of all blocks, in this order,
 * are cut into one range per thread, so that one long sequence keeps every thread busy. A head that a
 * range cuts has its first splits folded by the thread whose range ends in it; the others leave the sums
 * of every split apart. Who does the last split folds these in ascending order: the same operations in
 * the same order as one thread's, so the same bits.
 *
 * With few rows the phase before, which turns queries and keys and stores keys and values, is little
 * more than its barrier. Attention does it then: who does a head's last split stores the row's own K and V
 * first, and everyone turns the queries that he needs. With more rows it is the slower way, since nobody
 * fetches the lines ahead that are written.
 */

/* The part of a block's head that a thread does. */
typedef struct AttnPiece
{
	int32_t block;
	int32_t kv_head;
	int32_t first; /* split that the row sees first */
	int32_t n;     /* splits that it sees */
	int32_t begin; /* those of the piece, counted from the first */
	int32_t end;
} AttnPiece;

/* First split of a thread's range. */
static int64_t
range_begin(const LlmCpuOp *op, int tid, int n_threads)
{
	return op->n_splits * tid / n_threads;
}

/* The splits that the row of a block sees. */
static void
piece_block(const LlmCpuDevice *dev, const LlmCpuOp *op, AttnPiece *p, int32_t block)
{
	int32_t last;

	p->block = block;
	p->kv_head = 0;
	splits_of(dev, &op->attn, &dev->runs[dev->blocks[block].run0], &p->first, &last);
	p->n = last - p->first + 1;
}

/* The piece that begins at split `at` of the range up to `end`. */
static AttnPiece
piece_at(const LlmCpuDevice *dev, const LlmCpuOp *op, int64_t at, int64_t end)
{
	int32_t n_heads = op->attn.n_kv_heads;
	AttnPiece p;

	piece_block(dev, op, &p, 0);
	for (; at >= (int64_t) p.n * n_heads; piece_block(dev, op, &p, p.block + 1))
	{
		at -= (int64_t) p.n * n_heads;
		end -= (int64_t) p.n * n_heads;
	}
	p.kv_head = (int32_t) (at / p.n);
	p.begin = (int32_t) (at % p.n);
	p.end = end - at < p.n - p.begin ? p.begin + (int32_t) (end - at) : p.n;
	return p;
}

/* The piece after p, when `left` > 0 splits of the range are left. */
static AttnPiece
piece_next(const LlmCpuDevice *dev, const LlmCpuOp *op, AttnPiece p, int64_t left)
{
	if (p.kv_head + 1 < op->attn.n_kv_heads)
		p.kv_head++;
	else
		piece_block(dev, op, &p, p.block + 1);
	p.begin = 0;
	p.end = left < p.n ? (int32_t) left : p.n;
	return p;
}

/* Fold what the threads after `owner` have left of a head, which ends at split `end` of all, into the
 * sums of the owner. it: with the owner's scratch. */
static void
parts_fold(const AttnItem *it, int owner, int64_t end, int n_threads)
{
	int32_t v_stride = it->op->kv->v_stride;

	for (int t = owner + 1; t < n_threads && range_begin(it->op, t, n_threads) < end; t++)
	{
		int64_t begin = range_begin(it->op, t, n_threads);
		int64_t stop = range_begin(it->op, t + 1, n_threads);
		LlmAttnParts parts = {.n = (int32_t) ((stop < end ? stop : end) - begin),
							  .apart = it->per_row,
							  .v_stride = v_stride};

		for (int32_t v = 0; v < it->per_row; v++)
		{
			LlmCpuSums from = sums_at(&it->dev->scratch[t].parts, v, v_stride);
			LlmCpuSums to = sums_at(&it->s->sums, v, v_stride);

			parts.m = from.m;
			parts.l = from.l;
			parts.o = from.o;
			it->dev->kernels->attn_fold(&parts, to.m, to.l, to.o);
		}
	}
}

/* A piece is done, whose first split is `at` of all: if it was the head's last, give the results. */
static void
piece_done(AttnItem *it, const AttnPiece *p, int64_t at, int n_threads)
{
	const LlmCpuRun *run = &it->dev->runs[it->dev->blocks[p->block].run0];
	int64_t head = at - p->begin;
	int owner = (int) (((head + 1) * n_threads - 1) / it->op->n_splits);
	LlmCpuScratch *s = &it->dev->scratch[owner];
	int32_t n = p->end - p->begin;

	if (n < p->n)
	{
		if (atomic_fetch_add(&s->n_done, n) + n < p->n)
			return;
		atomic_store(&s->n_done, 0);
		it->s = s;
		parts_fold(it, owner, head + p->n, n_threads);
	}
	run_finish(it, run, 0);
}

/* Turn the query vectors of a row into scratch, behind the place of one more head. */
static void
q_turn(const AttnItem *it, int32_t row)
{
	int32_t head_dim = it->op->attn.head_dim;

	for (int32_t v = 0; v < it->per_row; v++)
	{
		float *q = it->s->row + (v + 1) * head_dim;

		llm_cpu_rope_q(it->dev, it->op->turn, row, it->kv_head * it->per_row + v, q);
		query_set(it, v, q);
	}
}

/* The splits of a piece, folded from the head's first one on, else each apart. */
static void
piece_run(const AttnItem *it, const AttnPiece *p, AttnAhead after)
{
	const LlmCpuRun *run = &it->dev->runs[it->dev->blocks[p->block].run0];
	int32_t v_stride = it->op->kv->v_stride;
	bool apart = p->begin > 0;
	size_t n_sums = (size_t) (apart ? (p->end - p->begin) : 1) * (size_t) it->per_row;
	AttnWalk w = {.runs = run,
				  .n_runs = 1,
				  .first = p->first + p->begin,
				  .last = p->first + p->end - 1,
				  .n_q = it->per_row,
				  .sums = apart ? it->s->parts : it->s->sums,
				  .apart = apart ? it->per_row : 0,
				  .after = after};

	run_begin(it, run, 0);
	if (it->op->turn != NULL)
		q_turn(it, run->row0);
	for (size_t i = 0; apart && i < n_sums; i++)
	{
		w.sums.m[i] = -INFINITY;
		w.sums.l[i] = 0.0f;
	}
	memset(w.sums.o, 0, n_sums * (size_t) v_stride * sizeof(float));
	if (it->op->turn != NULL && p->end == p->n) /* the row's own K and V are in the last split */
	{
		w.after = split_ahead(it, run->seq, w.last--, it->kv_head);
		splits_run(it, &w);
		llm_cpu_rope_kv(it->dev, it->op->turn, run->row0, it->kv_head, it->s->row);
		w.sums = sums_at(&w.sums, (w.last + 1 - w.first) * w.apart, v_stride);
		w.first = ++w.last;
		w.after = after;
	}
	splits_run(it, &w);
}

/* A thread's range. */
static void
range_run(LlmCpuDevice *dev, const LlmCpuOp *op, int tid, int n_threads)
{
	int64_t at = range_begin(op, tid, n_threads), end = range_begin(op, tid + 1, n_threads);
	AttnPiece p = piece_at(dev, op, at, end), next = p;

	for (; at < end; at += p.end - p.begin, p = next)
	{
		int64_t left = end - at - (p.end - p.begin);
		AttnItem it = {.dev = dev,
					   .op = op,
					   .s = &dev->scratch[tid],
					   .kv_head = p.kv_head,
					   .per_row = op->attn.n_heads / op->attn.n_kv_heads};
		AttnAhead after = {NULL, 0};

		if (left > 0)
		{
			next = piece_next(dev, op, p, left);
			after = split_ahead(&it, dev->runs[dev->blocks[next.block].run0].seq, next.first,
								next.kv_head);
		}
		piece_run(&it, &p, after);
		piece_done(&it, &p, at, n_threads);
	}
}

/* Whether the phase before turns and stores what this attention reads, and little of it. */
static bool
turns_here(const LlmCpuDevice *dev, const LlmCpuOp *op)
{
	const LlmCpuOp *before;

	if (dev->n_blocks > TURN_ROWS || op == dev->ops)
		return false;
	before = op - 1;
	return before->run == llm_cpu_run_rope && before->out == op->in && before->kv == op->kv &&
		   before->attn.kv_group == op->attn.kv_group && before->attn.layer == op->attn.layer &&
		   before->attn.head_dim == op->attn.head_dim && before->in->cols <= dev->limits.max_cols;
}

void
llm_cpu_attention_share(LlmCpuDevice *dev, LlmCpuOp *op)
{
	int32_t n_heads = op->attn.n_kv_heads, most = 0; /* splits that one thread leaves apart */
	int64_t n = 0, o = (int64_t) (op->attn.n_heads / n_heads) * op->kv->v_stride;

	op->n_splits = 0;
	if (dev->n_blocks < dev->batch->n_rows)
		return;
	for (int32_t b = 0; b < dev->n_blocks; b++)
	{
		AttnPiece p;

		piece_block(dev, op, &p, b);
		n += (int64_t) p.n * n_heads;
		most = p.n > most ? p.n : most;
	}
	most = (n + 1) / 2 < most - 1 ? (int32_t) ((n + 1) / 2) : most - 1;
	if (most * o > LLM_CPU_PART_FLOATS)
		return;
	op->n_splits = n;
	if (turns_here(dev, op))
	{
		op->turn = op - 1;
		op[-1].run = NULL;
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

	if (op->n_splits > 0)
	{
		range_run(dev, op, tid, n_threads);
		return;
	}
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
