/*
 * kernels/cpu_attn_shares.c - even shares, for steps of one row per sequence.
 *
 * All splits of all heads of all blocks, in this order, are cut into one range per thread, so that one
 * long sequence keeps every thread busy. A head that a range cuts has its first splits folded by the
 * thread whose range ends in it; the others leave the sums of every split apart. Who does the last split
 * folds these in ascending order: the same operations in the same order as one thread's, so the same bits.
 * A phase in which a thread could have to keep more apart than its scratch holds has items instead.
 *
 * With few rows the phase before, which turns queries and keys and stores keys and values, is little
 * more than its barrier. Attention does it then: who does a head's last split stores the row's own K and V
 * first, and everyone turns the queries that he needs. With more rows it is the slower way, since nobody
 * fetches the lines ahead that are written.
 */
#include "kernels/cpu_attn.h"

#include <math.h>
#include <string.h>

#define TURN_ROWS 8 /* most rows of a step whose attention turns and stores too */

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
	llm_cpu_attn_splits(dev, &op->attn, &dev->runs[dev->blocks[block].run0], &p->first, &last);
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
parts_fold(const LlmCpuItem *it, int owner, int64_t end, int n_threads)
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
			LlmCpuSums from = llm_cpu_attn_sums_at(&it->dev->scratch[t].parts, v, v_stride);
			LlmCpuSums to = llm_cpu_attn_sums_at(&it->s->sums, v, v_stride);

			parts.m = from.m;
			parts.l = from.l;
			parts.o = from.o;
			it->dev->kernels->attn_fold(&parts, to.m, to.l, to.o);
		}
	}
}

/* A piece is done, whose first split is `at` of all: if it was the head's last, give the results. */
static void
piece_done(LlmCpuItem *it, const AttnPiece *p, int64_t at, int n_threads)
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
	llm_cpu_attn_finish(it, run, 0);
}

/* Turn the query vectors of a row into scratch, behind the place of one more head. */
static void
q_turn(const LlmCpuItem *it, int32_t row)
{
	int32_t head_dim = it->op->attn.head_dim;

	for (int32_t v = 0; v < it->per_row; v++)
	{
		float *q = it->s->row + (v + 1) * head_dim;

		llm_cpu_rope_q(it->dev, it->op->turn, row, it->kv_head * it->per_row + v, q);
		llm_cpu_attn_query_set(it, v, q);
	}
}

/* The splits of a piece, folded from the head's first one on, else each apart. */
static void
piece_run(const LlmCpuItem *it, const AttnPiece *p, LlmCpuAhead after)
{
	const LlmCpuRun *run = &it->dev->runs[it->dev->blocks[p->block].run0];
	int32_t v_stride = it->op->kv->v_stride;
	bool apart = p->begin > 0;
	size_t n_sums = (size_t) (apart ? (p->end - p->begin) : 1) * (size_t) it->per_row;
	LlmCpuWalk w = {.runs = run,
					.n_runs = 1,
					.first = p->first + p->begin,
					.last = p->first + p->end - 1,
					.n_q = it->per_row,
					.sums = apart ? it->s->parts : it->s->sums,
					.apart = apart ? it->per_row : 0,
					.after = after};

	llm_cpu_attn_begin(it, run, 0);
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
		w.after = llm_cpu_attn_ahead(it, run->seq, w.last--, it->kv_head);
		llm_cpu_attn_walk(it, &w);
		llm_cpu_rope_kv(it->dev, it->op->turn, run->row0, it->kv_head, it->s->row);
		w.sums = llm_cpu_attn_sums_at(&w.sums, (w.last + 1 - w.first) * w.apart, v_stride);
		w.first = ++w.last;
		w.after = after;
	}
	llm_cpu_attn_walk(it, &w);
}

void
llm_cpu_attn_range(LlmCpuDevice *dev, const LlmCpuOp *op, int tid, int n_threads)
{
	int64_t at = range_begin(op, tid, n_threads), end = range_begin(op, tid + 1, n_threads);
	AttnPiece p = piece_at(dev, op, at, end), next = p;

	for (; at < end; at += p.end - p.begin, p = next)
	{
		int64_t left = end - at - (p.end - p.begin);
		LlmCpuItem it = {.dev = dev,
						 .op = op,
						 .s = &dev->scratch[tid],
						 .kv_head = p.kv_head,
						 .per_row = op->attn.n_heads / op->attn.n_kv_heads};
		LlmCpuAhead after = {NULL, 0};

		if (left > 0)
		{
			next = piece_next(dev, op, p, left);
			after = llm_cpu_attn_ahead(&it, dev->runs[dev->blocks[next.block].run0].seq, next.first,
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
	if (op->n_blocks < dev->batch->n_rows)
		return;
	for (int32_t b = 0; b < dev->n_blocks; b++)
	{
		AttnPiece p;

		piece_block(dev, op, &p, b);
		n += (int64_t) p.n * n_heads;
		most = p.n > most ? p.n : most;
	}
	most = (n + 1) / 2 < most - 1 ? (int32_t) ((n + 1) / 2) : most - 1;
	if (most * o > dev->max_parts)
		return;
	op->n_splits = n;
	if (turns_here(dev, op))
	{
		op->turn = op - 1;
		op[-1].run = NULL;
	}
}
