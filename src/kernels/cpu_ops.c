/*
 * kernels/cpu_ops.c - the phases of a step that work by rows and columns.
 *
 * Shares of threads are contiguous and static. Of many rows, each thread has some to itself, through all
 * phases between two attentions: what it writes it reads itself, out of its own caches, and it need not
 * wait for the others before each phase (step_run in cpu_step.c). Of fewer rows, each thread has columns
 * of a product, so that it reads the same weights in every step; in products of few rows a thread that
 * is done helps the others.
 */
#include "kernels/cpu_state.h"

#include <string.h>

#define GATE_UNITS 4  /* of columns in one turn of product and gate */
#define GATE_ROWS 256 /* its rows: the floats stay in the second cache */

#define OWN_ROWS 128 /* of a thread, so many that reading all weights costs it little */

#define ITEM_NBYTES ((size_t) 32 << 10)      /* least weights of an item: 2 us from memory */
#define TAKEN_BY_OTHERS ((uint64_t) 1 << 32) /* see Turn */

/* First item of a thread's share of n. */
static int64_t
share(int64_t n, int tid, int n_threads)
{
	return n * tid / n_threads;
}

bool
llm_cpu_rows_own(int64_t n_rows, int n_threads)
{
	return n_rows >= (int64_t) OWN_ROWS * n_threads;
}

int64_t
llm_cpu_rows_share(int64_t n_rows, int tid, int n_threads)
{
	int64_t n_tiles = (n_rows + LLM_Q8_TILE_ROWS - 1) / LLM_Q8_TILE_ROWS, r;

	if (!llm_cpu_rows_own(n_rows, n_threads))
		return share(n_rows, tid, n_threads);
	r = share(n_tiles, tid, n_threads) * LLM_Q8_TILE_ROWS;
	return r < n_rows ? r : n_rows;
}

/* The same for units of 64 columns of an activation's rows, so that one row occupies all threads. */
static int64_t
units_share(const LlmCpuAct *a, int tid, int n_threads)
{
	if (llm_cpu_rows_own(a->rows, n_threads))
		return llm_cpu_rows_share(a->rows, tid, n_threads) * a->n_units;
	return share((int64_t) a->rows * a->n_units, tid, n_threads);
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
	int64_t n = op->out->rows, end = llm_cpu_rows_share(n, tid + 1, n_threads);

	for (int64_t r = llm_cpu_rows_share(n, tid, n_threads); r < end; r++)
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
	int64_t n = out->rows, end = llm_cpu_rows_share(n, tid + 1, n_threads);

	for (int64_t r = llm_cpu_rows_share(n, tid, n_threads); r < end; r++)
	{
		float *y = (out->forms & LLM_ACT_F32) != 0 ? row_f(out, r) : dev->scratch[tid].row;

		dev->kernels->rms_norm(row_f(op->in, r), op->in2 != NULL ? row_f(op->in2, r) : NULL,
							   op->norm->weight, op->norm->eps, out->cols, y);
		if ((out->forms & LLM_ACT_Q8) != 0)
			llm_cpu_quantise(dev, out, r, 0, y, out->cols);
	}
}

/* Items of a product of few rows as a thread takes them: its share in order, so that it reads the same
 * weights in every step, then the last ones of others' shares. A word per share counts what its owner
 * took, and in steps of TAKEN_BY_OTHERS what others did. */
typedef struct Turn
{
	const LlmCpuDevice *dev;
	const LlmCpuOp *op;
	int tid;
	int n_threads;
	int32_t n_panels; /* of an item */
	int64_t n;        /* items */
	int of;           /* whose share it takes from, counted from the thread on */
	int64_t begin;    /* that share */
	int64_t end;
	int32_t item;
	const uint8_t *next; /* weights that the thread will most likely read after the item */
} Turn;

/* Before the first item of a product; those with a gate are its units. */
static Turn
turn_begin(const LlmCpuDevice *dev, const LlmCpuOp *op, int tid, int n_threads)
{
	const LlmLinear *l = op->linear;
	Turn t = {.dev = dev,
			  .op = op,
			  .tid = tid,
			  .n_threads = n_threads,
			  .n_panels = LLM_Q8_UNIT / LLM_LANES};

	if (op->run != llm_cpu_run_linear_gate)
	{
		/* as many as a product reads at once, those of floats two */
		int32_t step = (l->forms & LLM_ACT_F32) != 0 ? 2 : dev->kernels->n_streams;

		t.n_panels = (int32_t) (ITEM_NBYTES * (size_t) l->n_panels / l->nbytes);
		t.n_panels = t.n_panels > 1 ? (t.n_panels + step - 1) / step * step : step;
		t.n = (l->n_panels + t.n_panels - 1) / t.n_panels;
	}
	else
		t.n = op->out->n_units;
	t.begin = share(t.n, tid, n_threads);
	t.end = share(t.n, tid + 1, n_threads);
	return t;
}

/* What comes after the item: the next one of the share, or the first one of the thread's next product. */
static const uint8_t *
turn_next(const Turn *t)
{
	Turn after;

	if (t->of == 0 && t->item + 1 < t->end)
		return llm_linear_panel(t->op->linear, (t->item + 1) * t->n_panels);
	if (t->op->after == NULL)
		return NULL;
	after = turn_begin(t->dev, t->op->after, t->tid, t->n_threads);
	return llm_linear_panel(after.op->linear, (int32_t) after.begin * after.n_panels);
}

/* Take an item; false when there is none. */
static bool
turn_take(Turn *t)
{
	while (t->of < t->n_threads)
	{
		int owner = (t->tid + t->of) % t->n_threads;
		uint64_t old =
			atomic_fetch_add_explicit(&t->dev->scratch[owner].taken[t->op->odd],
									  t->of == 0 ? 1 : TAKEN_BY_OTHERS, memory_order_relaxed);
		int64_t front = (int64_t) (old % TAKEN_BY_OTHERS);
		int64_t back = (int64_t) (old / TAKEN_BY_OTHERS);

		if (front + back < t->end - t->begin)
		{
			t->item = (int32_t) (t->of == 0 ? t->begin + front : t->end - 1 - back);
			t->next = turn_next(t);
			return true;
		}
		owner = (t->tid + ++t->of) % t->n_threads;
		t->begin = share(t->n, owner, t->n_threads);
		t->end = share(t->n, owner + 1, t->n_threads);
	}
	return false;
}

/* Rows begin .. end of a product's input. */
static LlmLinearInput
input_rows(const LlmCpuDevice *dev, const LlmCpuAct *a, int64_t begin, int64_t end)
{
	return (LlmLinearInput){.q = a->q != NULL ? row_q(a, begin) : NULL,
							.tiles = row_tiles(a, begin),
							.x = row_f(a, begin),
							.ldx = a->ld,
							.n_rows = (int32_t) (end - begin),
							.ahead = dev->ahead};
}

void
llm_cpu_run_linear(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmLinear *l = op->linear;
	LlmLinearInput in = input_rows(dev, op->in, 0, op->in->rows);
	Turn t;

	if (llm_cpu_rows_own(op->in->rows, n_threads))
	{
		int64_t begin = llm_cpu_rows_share(op->in->rows, tid, n_threads);

		in = input_rows(dev, op->in, begin, llm_cpu_rows_share(op->in->rows, tid + 1, n_threads));
		llm_linear_run(dev->kernels, l, &in, 0, l->n_panels, row_f(op->out, begin), op->out->ld);
		return;
	}
	if (in.n_rows > LLM_GEMM_FEW_ROWS)
	{
		llm_linear_run(dev->kernels, l, &in, llm_linear_share(l, tid, n_threads),
					   llm_linear_share(l, tid + 1, n_threads), op->out->f, op->out->ld);
		return;
	}
	t = turn_begin(dev, op, tid, n_threads);
	while (turn_take(&t))
	{
		int32_t begin = t.item * t.n_panels, end = begin + t.n_panels;

		in.next = t.next;
		llm_linear_run(dev->kernels, l, &in, begin, end < l->n_panels ? end : l->n_panels,
					   op->out->f, op->out->ld);
	}
}

/* silu(gate) * up for up to n_units units of a row from column c on, in out's forms. Units that follow each
 * other are gated before they are quantised, so that neither waits for the divisions of the other. */
static void
gate_row(const LlmCpuDevice *dev, const LlmCpuAct *out, int64_t r, int32_t c, int32_t n_units,
		 const float *gate, const float *up)
{
	int32_t n = n_units * LLM_Q8_UNIT, cols = out->cols - c < n ? out->cols - c : n;
	float y[GATE_UNITS * LLM_Q8_UNIT];

	dev->kernels->silu_gate(gate, up, cols, y);
	if ((out->forms & LLM_ACT_F32) != 0)
		memcpy(row_f(out, r) + c, y, (size_t) cols * sizeof(float));
	if ((out->forms & LLM_ACT_Q8) != 0)
		llm_cpu_quantise(dev, out, r, c, y, cols);
}

void
llm_cpu_run_gate(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *out = op->out;
	int64_t end = units_share(out, tid + 1, n_threads);

	for (int64_t i = units_share(out, tid, n_threads); i < end; i++)
	{
		int64_t r = i / out->n_units;
		int32_t c = (int32_t) (i % out->n_units) * LLM_Q8_UNIT;
		const float *gate = row_f(op->in, r) + c;

		gate_row(dev, out, r, c, 1, gate, gate + out->cols);
	}
}

/* Product and gate of some units of some rows from r on, without the columns of gate and up ever in
 * memory: they lie in y. in.q, in.tiles and in.x begin at row r. */
static void
gate_units(const LlmCpuDevice *dev, const LlmCpuOp *op, LlmLinearInput *in, int32_t r, int32_t u,
		   int32_t n_units, const uint8_t *next, float *y)
{
	const LlmLinear *l = op->linear;
	int32_t panels = LLM_Q8_UNIT / LLM_LANES, begin = u * panels, end = (u + n_units) * panels;
	int32_t ldy = 2 * n_units * LLM_Q8_UNIT;
	float *up = y + n_units * LLM_Q8_UNIT;

	in->next = next;
	llm_linear_gate_run(dev->kernels, l, in, begin, end, y, up, ldy);
	for (int32_t i = 0; i < in->n_rows; i++)
		gate_row(dev, op->out, r + i, u * LLM_Q8_UNIT, n_units, y + (size_t) i * (size_t) ldy,
				 up + (size_t) i * (size_t) ldy);
}

/* Product and gate of rows begin .. end and the units of a turn, in pieces that stay in the second cache. */
static void
gate_rows(const LlmCpuDevice *dev, const LlmCpuOp *op, int32_t begin, int32_t end, const Turn *t)
{
	for (int32_t u = (int32_t) t->begin, n_units; u < t->end; u += n_units)
	{
		int32_t step;

		n_units = t->end - u < GATE_UNITS ? (int32_t) t->end - u : GATE_UNITS;
		step = dev->max_o / (2 * n_units * LLM_Q8_UNIT);
		step = step < GATE_ROWS ? step : GATE_ROWS;
		step = step / LLM_Q8_TILE_ROWS * LLM_Q8_TILE_ROWS;
		for (int32_t r = begin; r < end; r += step)
		{
			LlmLinearInput rows = input_rows(dev, op->in, r, end - r < step ? end : r + step);

			gate_units(dev, op, &rows, r, u, n_units, NULL, dev->scratch[t->tid].sums.o);
		}
	}
}

/* Product and gate in one phase. The same operations on every value as the two phases, so the same
 * bits. */
void
llm_cpu_run_linear_gate(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *in = op->in;
	LlmLinearInput rows = input_rows(dev, in, 0, in->rows);
	Turn t = turn_begin(dev, op, tid, n_threads);
	int32_t begin = 0, end = in->rows;

	if (in->rows <= LLM_GEMM_FEW_ROWS)
	{
		while (turn_take(&t))
			gate_units(dev, op, &rows, 0, t.item, 1, t.next, dev->scratch[tid].sums.o);
		return;
	}
	if (llm_cpu_rows_own(in->rows, n_threads))
	{
		begin = (int32_t) llm_cpu_rows_share(in->rows, tid, n_threads);
		end = (int32_t) llm_cpu_rows_share(in->rows, tid + 1, n_threads);
		t.begin = 0;
		t.end = t.n;
	}
	gate_rows(dev, op, begin, end, &t);
}

void
llm_cpu_run_quantise(LlmCpuDevice *dev, LlmCpuOp *op, int tid, int n_threads)
{
	const LlmCpuAct *out = op->out;
	int64_t end = units_share(out, tid + 1, n_threads);

	for (int64_t i = units_share(out, tid, n_threads); i < end; i++)
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
