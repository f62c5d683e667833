/* kernels/cpu_ops.c - the phases of a step that work by rows and columns. Shares of threads are
 * contiguous and static, so that a thread reads the same weights in every step. */
#include "kernels/cpu_state.h"

#include <string.h>

#define GATE_UNITS 4  /* of columns in one turn of product and gate */
#define GATE_ROWS 256 /* its rows: the floats stay in the second cache */

/* First item of a thread's share of n. */
static int64_t
share(int64_t n, int tid, int n_threads)
{
	return n * tid / n_threads;
}

static float *
row_f(const LlmCpuAct *a, int64_t r)
{
	return a->f + r * a->ld;
}

static LlmQ8Unit *
row_q(const LlmCpuAct *a, int64_t r)
{
	return a->q + r * a->n_units;
}

static LlmQ8Tile *
row_tiles(const LlmCpuAct *a, int64_t r)
{
	return a->tiles != NULL ? a->tiles + r / LLM_Q8_TILE_ROWS * a->n_units : NULL;
}

/* Bring units of row r, from unit u on, into its tiles. */
static void
tiles_set(const LlmCpuAct *a, int64_t r, int32_t u, int32_t n_units)
{
	const LlmQ8Unit *q = row_q(a, r) + u;
	LlmQ8Tile *t = row_tiles(a, r);

	for (int32_t i = 0; t != NULL && i < n_units; i++)
		llm_q8_tile_set(t + u + i, (int) (r % LLM_Q8_TILE_ROWS), q + i);
}

void
llm_cpu_quantise(const LlmCpuDevice *dev, const LlmCpuAct *a, int64_t r, int32_t c, const float *x,
				 int32_t n)
{
	int32_t u = c / LLM_Q8_UNIT;

	dev->kernels->quantise(x, n, row_q(a, r) + u);
	tiles_set(a, r, u, (n + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT);
}

void
llm_cpu_run_embed(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmBatch *b = dev->batch;
	int64_t n = op->out->rows;

	for (int64_t r = share(n, tid, n_threads); r < share(n, tid + 1, n_threads); r++)
	{
		if (b->embed != NULL && b->embed[r] != NULL)
			memcpy(row_f(op->out, r), b->embed[r], (size_t) op->out->cols * sizeof(float));
		else
			llm_linear_row(op->linear, b->token[r], row_f(op->out, r));
	}
}

void
llm_cpu_run_norm(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *out = op->out;
	int64_t n = out->rows;

	for (int64_t r = share(n, tid, n_threads); r < share(n, tid + 1, n_threads); r++)
	{
		float *y = (out->forms & LLM_ACT_F32) != 0 ? row_f(out, r) : dev->scratch[tid].row;

		dev->kernels->rms_norm(row_f(op->in, r), op->in2 != NULL ? row_f(op->in2, r) : NULL,
							   op->norm->weight, op->norm->eps, out->cols, y);
		if ((out->forms & LLM_ACT_Q8) != 0)
			llm_cpu_quantise(dev, out, r, 0, y, out->cols);
	}
}

void
llm_cpu_run_linear(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmLinear *l = op->linear;
	LlmLinearInput in = {op->in->q, op->in->tiles, op->in->f, op->in->ld, op->in->rows};

	llm_linear_run(dev->kernels, l, &in, llm_linear_share(l, tid, n_threads),
				   llm_linear_share(l, tid + 1, n_threads), op->out->f, op->out->ld);
}

/* silu(gate) * up for up to 64 columns from column c of a row, in out's forms. */
static void
gate_unit(const LlmCpuDevice *dev, const LlmCpuAct *out, int64_t r, int32_t c, const float *gate,
		  const float *up)
{
	int32_t cols = out->cols - c < LLM_Q8_UNIT ? out->cols - c : LLM_Q8_UNIT;
	float y[LLM_Q8_UNIT];

	dev->kernels->silu_gate(gate, up, cols, y);
	if ((out->forms & LLM_ACT_F32) != 0)
		memcpy(row_f(out, r) + c, y, (size_t) cols * sizeof(float));
	if ((out->forms & LLM_ACT_Q8) != 0)
		llm_cpu_quantise(dev, out, r, c, y, cols);
}

/* Work by units of 64 columns of a row, so that one row occupies all threads. */
void
llm_cpu_run_gate(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *out = op->out;
	int64_t n = (int64_t) out->rows * out->n_units;

	for (int64_t i = share(n, tid, n_threads); i < share(n, tid + 1, n_threads); i++)
	{
		int64_t r = i / out->n_units;
		int32_t c = (int32_t) (i % out->n_units) * LLM_Q8_UNIT;
		const float *gate = row_f(op->in, r) + c;

		gate_unit(dev, out, r, c, gate, gate + out->cols);
	}
}

/* Product and gate in one phase: some columns of gate and of up at a time lie in scratch, never in
 * memory. The same operations on every value as the two phases, so the same bits. */
void
llm_cpu_run_linear_gate(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmLinear *l = op->linear;
	const LlmCpuAct *in = op->in, *out = op->out;
	float *y = dev->scratch[tid].sums.o;
	int32_t panels = LLM_Q8_UNIT / LLM_LANES,
			end = (int32_t) share(out->n_units, tid + 1, n_threads);

	for (int32_t u = (int32_t) share(out->n_units, tid, n_threads), n_units; u < end; u += n_units)
	{
		int32_t ldy, step;

		n_units = end - u < GATE_UNITS ? end - u : GATE_UNITS;
		ldy = 2 * n_units * LLM_Q8_UNIT;
		step = dev->max_o / ldy < GATE_ROWS ? dev->max_o / ldy : GATE_ROWS;
		step = step / LLM_Q8_TILE_ROWS * LLM_Q8_TILE_ROWS;
		for (int32_t r = 0; r < out->rows; r += step)
		{
			int32_t n = out->rows - r < step ? out->rows - r : step;
			LlmLinearInput rows = {in->q != NULL ? row_q(in, r) : NULL, row_tiles(in, r),
								   row_f(in, r), in->ld, n};
			float *up = y + n_units * LLM_Q8_UNIT;

			llm_linear_part_run(dev->kernels, l, 0, &rows, u * panels, (u + n_units) * panels, y,
								ldy);
			llm_linear_part_run(dev->kernels, l, 1, &rows, u * panels, (u + n_units) * panels, up,
								ldy);
			for (int32_t i = 0; i < n * n_units; i++)
			{
				int32_t at = i / n_units * ldy + i % n_units * LLM_Q8_UNIT;

				gate_unit(dev, out, r + i / n_units, (u + i % n_units) * LLM_Q8_UNIT, y + at,
						  up + at);
			}
		}
	}
}

void
llm_cpu_run_quantise(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *out = op->out;
	int64_t n = (int64_t) out->rows * out->n_units;

	for (int64_t i = share(n, tid, n_threads); i < share(n, tid + 1, n_threads); i++)
	{
		int64_t r = i / out->n_units;
		int32_t c = (int32_t) (i % out->n_units) * LLM_Q8_UNIT;
		int32_t cols = out->cols - c < LLM_Q8_UNIT ? out->cols - c : LLM_Q8_UNIT;

		llm_cpu_quantise(dev, out, r, c, row_f(out, r) + c, cols);
	}
}

void
llm_cpu_run_gather(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *in = op->in, *out = op->out;
	int64_t n = out->rows;

	for (int64_t i = share(n, tid, n_threads); i < share(n, tid + 1, n_threads); i++)
	{
		int32_t r = dev->batch->out_row[i];

		if ((out->forms & LLM_ACT_F32) != 0)
			memcpy(row_f(out, i), row_f(in, r), (size_t) out->cols * sizeof(float));
		if ((out->forms & LLM_ACT_Q8) != 0)
		{
			memcpy(row_q(out, i), row_q(in, r), (size_t) out->n_units * sizeof(LlmQ8Unit));
			tiles_set(out, i, 0, out->n_units);
		}
	}
}

void
llm_cpu_run_sample(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	int64_t n = op->in->rows;

	for (int64_t i = share(n, tid, n_threads); i < share(n, tid + 1, n_threads); i++)
	{
		dev->picks[i] = (LlmSampleOut){.token = -1, .status = LLM_OK};
		if ((dev->batch->want[i] & (LLM_WANT_TOKEN | LLM_WANT_SCORE)) != 0)
			llm_sampler_pick(dev->scratch[tid].sampler, row_f(op->in, i), &op->sampling->rows[i],
							 &dev->picks[i]);
	}
}
