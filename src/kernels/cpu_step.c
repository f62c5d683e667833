/*
 * kernels/cpu_step.c - the arena, and a step's life: checked batch, recorded list, one run, result.
 */
#include "kernels/cpu_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

#define INTERNAL_ACTS 4 /* rope tables, gate | up */

static size_t
round_up(size_t n)
{
	return (n + 63) & ~(size_t) 63;
}

int32_t
llm_cpu_act_ld(int32_t cols)
{
	return ((cols + LLM_LANES - 1) / LLM_LANES | 1) * LLM_LANES;
}

int32_t
llm_cpu_act_n_tiles(const LlmCpuDevice *dev, int32_t rows)
{
	int32_t least = dev->kernels->tile_rows;

	return least == 0 || rows < least ? 0 : (rows + LLM_Q8_TILE_ROWS - 1) / LLM_Q8_TILE_ROWS;
}

/* Bytes of an activation with all forms. */
static size_t
act_nbytes(const LlmCpuDevice *dev, int32_t rows, int32_t cols)
{
	size_t ld = (size_t) llm_cpu_act_ld(cols);
	size_t n_units = ((size_t) cols + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;

	return round_up((size_t) rows * ld * sizeof(float)) +
		   round_up((size_t) rows * n_units * sizeof(LlmQ8Unit)) +
		   (size_t) llm_cpu_act_n_tiles(dev, rows) * n_units * sizeof(LlmQ8Tile);
}

void
llm_cpu_arena_free(LlmCpuDevice *dev)
{
	for (int i = 0; dev->scratch != NULL && i < llm_pool_threads(dev->pool); i++)
		llm_sampler_free(dev->scratch[i].sampler);
	llm_block_free(dev->arena, dev->arena_nbytes);
	llm_block_free(dev->scratch_data, dev->scratch_nbytes);
	free(dev->scratch);
	free(dev->picks);
	free(dev->ops);
	free(dev->blocks);
	free(dev->runs);
	free(dev->wanted_rows);
	free(dev->order);
	free(dev->spoiled_rows);
	free(dev->spoiled_seqs);
	dev->arena = NULL;
	dev->scratch_data = NULL;
	dev->scratch = NULL;
	dev->picks = NULL;
	dev->ops = NULL;
	dev->blocks = NULL;
	dev->runs = NULL;
	dev->wanted_rows = NULL;
	dev->order = NULL;
	dev->spoiled_rows = NULL;
	dev->spoiled_seqs = NULL;
	dev->limits = (LlmDeviceLimits){0};
	dev->batch = NULL;
	dev->logits = NULL;
}

/* Scratch of every thread out of one block, of which only what is used takes memory. Query vectors of an item: its rows times at most max_cols /
 * 8 heads, since a head has at least 8 values; their padded sums fit in twice the values. */
static bool
scratch_create(LlmCpuDevice *dev)
{
	size_t max_cols = (size_t) dev->limits.max_cols;
	size_t max_q = LLM_CPU_BLOCK_ROWS * (max_cols / 8 + 1);
	size_t max_o = LLM_CPU_BLOCK_ROWS * 2 * (max_cols + 16);
	size_t row = round_up((max_cols + LLM_Q8_UNIT) * sizeof(float));
	size_t o = round_up(max_o * sizeof(float));
	size_t q4 = round_up(max_q * sizeof(float)), q8 = round_up(max_q * sizeof(void *));
	size_t parts_o = LLM_CPU_PART_FLOATS * sizeof(float), parts = parts_o / LLM_LANES;
	size_t queries = max_q * llm_attn_query_nbytes(8); /* longer vectors take less each value */
	size_t one = row + o + 4 * q4 + q8 + parts_o + 2 * parts + queries;
	int n_threads = llm_pool_threads(dev->pool);

	dev->scratch = calloc((size_t) n_threads, sizeof(*dev->scratch));
	dev->scratch_nbytes = one * (size_t) n_threads;
	dev->scratch_data = llm_block_create(dev->scratch_nbytes);
	if (dev->scratch == NULL || dev->scratch_data == NULL)
		return false;
	dev->max_q = (int32_t) max_q;
	dev->max_o = (int32_t) max_o;
	dev->max_parts = LLM_CPU_PART_FLOATS;
	for (int i = 0; i < n_threads; i++)
	{
		LlmCpuScratch *s = &dev->scratch[i];
		uint8_t *p = dev->scratch_data + one * (size_t) i;

		s->row = (float *) p;
		s->sums.o = (float *) (p += row);
		s->sums.m = (float *) (p += o);
		s->sums.l = (float *) (p += q4);
		s->lo = (int32_t *) (p += q4);
		s->hi = (int32_t *) (p += q4);
		s->q = (const float **) (p += q4);
		s->parts.o = (float *) (p += q8);
		s->parts.m = (float *) (p += parts_o);
		s->parts.l = (float *) (p += parts);
		s->queries = p + parts;
	}
	return true;
}

LlmStatus
llm_cpu_limits_set(LlmDevice *d, const LlmDeviceLimits *limits, LlmError *err)
{
	LlmCpuDevice *dev = (LlmCpuDevice *) d;
	size_t max_rows = (size_t) limits->max_rows, max_out = (size_t) limits->max_out;
	LlmStatus status = LLM_OK;

	if (limits->max_rows < 1 || limits->max_out < 1 || limits->max_seqs < 1 ||
		limits->max_cols < 1 || limits->vocab_size < 1 || limits->max_pos < 1 ||
		limits->n_acts < 1 || limits->n_acts > LLM_CPU_ACTS_MAX - INTERNAL_ACTS ||
		limits->max_cols > 1 << 24 || limits->max_rows > 1 << 20 || limits->max_out > 1 << 20)
		return llm_error_set(err, LLM_E_INTERNAL,
							 "step limits of %" PRId32 " rows, %" PRId32 " outputs, %" PRId32
							 " columns, %" PRId32 " activations",
							 limits->max_rows, limits->max_out, limits->max_cols, limits->n_acts);
	llm_cpu_arena_free(dev);
	if (!llm_weight_store_huge(&dev->weights))
		llm_log(LLM_LOG_WARNING,
				"the system gave no huge pages to all weights, which costs up to 40%% "
				"of the speed of decoding: look at free memory and at "
				"/sys/kernel/mm/transparent_hugepage/enabled");
	dev->ahead = llm_weight_ahead((size_t) dev->weights.nbytes);
	dev->limits = *limits;
	dev->arena_nbytes = (size_t) (limits->n_acts + INTERNAL_ACTS) *
							act_nbytes(dev, limits->max_rows, limits->max_cols) +
						act_nbytes(dev, limits->max_out, limits->vocab_size);
	dev->arena = llm_block_create(dev->arena_nbytes);
	dev->picks = calloc(max_out, sizeof(*dev->picks));
	dev->ops = calloc(LLM_CPU_OPS_MAX, sizeof(*dev->ops));
	dev->blocks = calloc(2 * max_rows, sizeof(*dev->blocks));
	dev->runs = calloc(2 * max_rows, sizeof(*dev->runs));
	dev->wanted_rows = calloc(max_rows, sizeof(*dev->wanted_rows));
	dev->order = calloc((size_t) limits->max_seqs, sizeof(*dev->order));
	dev->spoiled_rows = calloc(max_rows, sizeof(*dev->spoiled_rows));
	dev->spoiled_seqs = calloc((size_t) limits->max_seqs, sizeof(*dev->spoiled_seqs));
	if (dev->arena == NULL || dev->picks == NULL || dev->ops == NULL || dev->blocks == NULL ||
		dev->runs == NULL || dev->wanted_rows == NULL || dev->order == NULL ||
		dev->spoiled_rows == NULL || dev->spoiled_seqs == NULL || !scratch_create(dev))
		status = llm_error_set(err, LLM_E_MEMORY,
							   "out of memory: %zu bytes for activations of %" PRId32 " rows",
							   dev->arena_nbytes, limits->max_rows);
	for (int i = 0; status == LLM_OK && i < llm_pool_threads(dev->pool); i++)
		status = llm_sampler_create(limits->vocab_size, &dev->scratch[i].sampler, err);
	if (status != LLM_OK)
		llm_cpu_arena_free(dev);
	return status;
}

/* Row bounds ascend from 0 to n_rows. */
static bool
bounds_ok(const LlmBatch *b)
{
	bool ok = b->q_start[0] == 0 && b->q_start[b->n_seqs] == b->n_rows;

	for (int32_t s = 0; s < b->n_seqs && ok; s++)
		ok = b->q_start[s + 1] >= b->q_start[s];
	return ok;
}

/* Positions, slots and pages must lie inside what exists: attention trusts them afterwards. */
static bool
places_ok(const LlmCpuDevice *dev, const LlmBatch *b, int g)
{
	for (int32_t s = 0; s < b->n_seqs; s++)
	{
		int32_t n_pages = (b->kv_len[s] + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS;

		if (b->kv_len[s] < 0 || n_pages > b->table_stride)
			return false;
		for (int32_t i = 0; i < n_pages; i++)
		{
			int32_t page = b->table[g][(size_t) s * (size_t) b->table_stride + (size_t) i];

			if (page < 0 || page >= dev->kv[g].n_pages)
				return false;
		}
		for (int32_t r = b->q_start[s]; r < b->q_start[s + 1]; r++)
			if (b->pos[r] < 0 || b->pos[r] >= b->kv_len[s] || b->pos[r] >= dev->limits.max_pos ||
				b->slot[g][r] < LLM_PAGE_TOKENS ||
				b->slot[g][r] / LLM_PAGE_TOKENS >= dev->kv[g].n_pages)
				return false;
	}
	return true;
}

static LlmStatus
batch_check(LlmCpuDevice *dev, const LlmBatch *b, LlmError *err)
{
	const LlmDeviceLimits *lim = &dev->limits;

	if (b->n_rows < 1 || b->n_rows > lim->max_rows || b->n_seqs < 1 || b->n_seqs > lim->max_seqs ||
		b->n_out < 0 || b->n_out > lim->max_out || b->n_groups > dev->n_groups)
		return llm_error_set(err, LLM_E_INTERNAL,
							 "a step of %" PRId32 " rows, %" PRId32 " sequences, %" PRId32
							 " outputs, %" PRId32 " KV groups is over the limits",
							 b->n_rows, b->n_seqs, b->n_out, b->n_groups);
	if (!bounds_ok(b))
		return llm_error_set(err, LLM_E_INTERNAL, "row bounds of the sequences are broken");
	for (int g = 0; g < b->n_groups; g++)
		if (!places_ok(dev, b, g))
			return llm_error_set(err, LLM_E_INTERNAL,
								 "a position, slot or page of KV group %d does not exist", g);
	for (int32_t i = 0; i < b->n_out; i++)
		if (b->out_row[i] < 0 || b->out_row[i] >= b->n_rows)
			return llm_error_set(err, LLM_E_INTERNAL, "output row %" PRId32 " of %" PRId32,
								 b->out_row[i], b->n_rows);
	for (int32_t s = 0; b->adapter != NULL && s < b->n_seqs; s++)
		if (b->adapter[s] >= 0)
			return llm_error_set(err, LLM_E_UNSUPPORTED, "the CPU device has no adapters");
	return LLM_OK;
}

LlmStatus
llm_cpu_step_begin(LlmDevice *d, const LlmBatch *batch, LlmError *err)
{
	LlmCpuDevice *dev = (LlmCpuDevice *) d;
	LlmStatus status;

	if (dev->limits.max_rows == 0)
		return llm_error_set(err, LLM_E_INTERNAL, "step_begin before limits_set");
	if (dev->batch != NULL)
		return llm_error_set(err, LLM_E_INTERNAL,
							 "step_begin before the step before was waited for");
	status = batch_check(dev, batch, err);
	if (status != LLM_OK)
		return status;
	llm_cpu_blocks_set(dev, batch);
	for (int32_t r = 0; r < batch->n_rows; r++)
		dev->spoiled_rows[r] = false;
	dev->batch = batch;
	dev->begun = dev->timed ? llm_clock_seconds() : 0.0;
	dev->arena_used = 0;
	dev->n_acts = 0;
	dev->n_ops = 0;
	dev->rope = NULL;
	dev->rope_table = NULL;
	dev->gate = NULL;
	dev->logits = NULL;
	dev->status = LLM_OK;
	return LLM_OK;
}

/* Phases that work row by row. */
static bool
by_rows(const LlmCpuOp *op)
{
	return op->kind <= LLM_CPU_ROPE || op->kind == LLM_CPU_QUANTISE;
}

bool
llm_cpu_waits(const LlmCpuOp *op, int n_threads)
{
	const LlmCpuOp *then = op->then;

	return then == NULL || !by_rows(op) || !by_rows(then) || op->run == llm_cpu_run_rope ||
		   op->out->rows != then->out->rows || !llm_cpu_rows_own(op->out->rows, n_threads);
}

/* One phase and the barrier after it, with the clock running. Thread 0 keeps the time of the phase,
 * every thread its own waiting. */
static double
phase_timed(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads, double start)
{
	double done, end;

	op->run(dev, op, tid, n_threads);
	done = llm_clock_seconds();
	if (llm_cpu_waits(op, n_threads))
		llm_pool_barrier(dev->pool);
	end = llm_clock_seconds();
	dev->scratch[tid].waited[op->kind] += end - done;
	if (tid == 0)
		dev->stats[op->kind].seconds += end - start;
	return end;
}

/* The whole list on one thread's share. */
static void
step_run(void *arg, int tid, int n_threads)
{
	LlmCpuDevice *dev = arg;
	double t = dev->timed ? llm_clock_seconds() : 0.0;

	for (int32_t i = 0; i < dev->n_ops; i++)
	{
		LlmCpuOp *op = &dev->ops[i];

		if (op->run == NULL)
			continue;
		atomic_store_explicit(&dev->scratch[tid].taken[!op->odd], 0, memory_order_relaxed);
		if (dev->timed)
			t = phase_timed(dev, op, tid, n_threads, t);
		else
		{
			op->run(dev, op, tid, n_threads);
			if (llm_cpu_waits(op, n_threads))
				llm_pool_barrier(dev->pool);
		}
	}
}

static void
step_count(LlmCpuDevice *dev)
{
	LlmOpStat *record = &dev->stats[LLM_CPU_RECORD];

	for (int32_t i = 0; i < dev->n_ops; i++)
	{
		LlmOpStat *stat = &dev->stats[dev->ops[i].kind];

		if (dev->ops[i].run == NULL) /* done by another */
			continue;
		stat->calls++;
		stat->nbytes += dev->ops[i].nbytes;
		stat->ops += dev->ops[i].ops;
	}
	record->calls++;
	record->seconds += dev->timed ? llm_clock_seconds() - dev->begun : 0.0;
}

/* Tell each phase its place in the list. */
static void
step_link(LlmCpuDevice *dev)
{
	const LlmCpuOp *after = NULL, *then = NULL;
	bool odd = false;

	for (int32_t i = 0; i < dev->n_ops; i++)
	{
		dev->ops[i].odd = odd;
		odd ^= dev->ops[i].run != NULL;
	}
	for (int32_t i = dev->n_ops - 1; i >= 0; i--)
	{
		dev->ops[i].after = after;
		dev->ops[i].then = then;
		if (dev->ops[i].run != NULL)
			then = &dev->ops[i];
		if (dev->ops[i].kind >= LLM_CPU_LINEAR && dev->ops[i].kind <= LLM_CPU_LINEAR_LAST)
			after = &dev->ops[i];
	}
}

/* Run the list on as many threads as serve it best. */
static void
step_run_threads(LlmCpuDevice *dev)
{
	double start = llm_clock_seconds(), end;

	for (int t = 0; t < dev->threads.n; t++)
		atomic_store_explicit(&dev->scratch[t].taken[0], 0, memory_order_relaxed);
	llm_pool_run_some(dev->pool, dev->threads.n, step_run, dev);
	end = llm_clock_seconds();
	if (llm_cpu_threads_step(&dev->threads, dev->batch->n_rows, end - start))
	{
		int64_t delay = llm_pool_delay_ns(dev->pool);

		llm_cpu_threads_choose(&dev->threads, 1e-9 * (double) delay, end);
		llm_pool_calm(dev->pool, delay >= 0 && dev->threads.state == LLM_CPU_CALM);
	}
}

LlmStatus
llm_cpu_step_end(LlmDevice *d, uint64_t *step, LlmError *err)
{
	LlmCpuDevice *dev = (LlmCpuDevice *) d;

	if (dev->batch == NULL)
		return llm_error_set(err, LLM_E_INTERNAL, "step_end without step_begin");
	if (dev->status != LLM_OK)
	{
		dev->batch = NULL;
		if (err != NULL)
			*err = dev->error;
		return dev->status;
	}
	step_count(dev);
	step_link(dev);
	step_run_threads(dev);
	*step = ++dev->step;
	return LLM_OK;
}

/* Sequences with a spoiled row; NULL when there are none. */
static const uint8_t *
spoiled_seqs(const LlmCpuDevice *dev)
{
	const LlmBatch *b = dev->batch;
	bool any = false;

	for (int32_t s = 0; s < b->n_seqs; s++)
	{
		dev->spoiled_seqs[s] = 0;
		for (int32_t r = b->q_start[s]; r < b->q_start[s + 1]; r++)
			dev->spoiled_seqs[s] |= dev->spoiled_rows[r];
		any |= dev->spoiled_seqs[s] != 0;
	}
	return any ? dev->spoiled_seqs : NULL;
}

LlmStatus
llm_cpu_step_wait(LlmDevice *d, uint64_t step, LlmStepOut *out, LlmError *err)
{
	LlmCpuDevice *dev = (LlmCpuDevice *) d;

	if (dev->batch == NULL || step != dev->step)
		return llm_error_set(err, LLM_E_INTERNAL, "wait for step %" PRIu64 ", the last is %" PRIu64,
							 step, dev->step);
	if (out->rows != NULL && dev->logits != NULL)
		memcpy(out->rows, dev->picks, (size_t) dev->batch->n_out * sizeof(*out->rows));
	out->logits = dev->logits != NULL ? dev->logits->f : NULL;
	out->ld_logits = dev->logits != NULL ? dev->logits->ld : 0;
	out->spoiled = spoiled_seqs(dev);
	dev->batch = NULL;
	return LLM_OK;
}
