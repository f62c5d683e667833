/*
 * cpu_graph.h - a small random graph of the llama kind on a CPU device, and runs of its sequences
 * in any cut and mix, for the tests of the device. Include after cmocka.h; who needs longer sequences or
 * more of them defines STRIDE and MAX_SEQS before.
 */
#ifndef LLM_TEST_CPU_GRAPH_H
#define LLM_TEST_CPU_GRAPH_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "core/rng.h"
#include "kernels/cpu_device.h"
#include "tensor/half.h"

#define DIM 64
#define HIDDEN_MAX 128
#define HEADS 4
#define KV_HEADS 2
#define VOCAB 75
#define LAYERS 2
#ifndef STRIDE
#define STRIDE 3 /* pages of a sequence */
#endif
#ifndef MAX_SEQS
#define MAX_SEQS 8
#endif
#define MAX_ROWS 400 /* in a step; enough for three threads to have rows of their own */
#define MAX_TOKENS (64 * STRIDE - 42)
#define N_PAGES (MAX_SEQS * STRIDE + 6)

/* ---- a model ---- */

typedef struct Graph
{
	int32_t head_dim;
	LlmDtype kv_type;
	bool floats; /* F32 and F16 weights instead of quantised ones */
	int32_t window;
	int32_t hidden; /* a multiple of 64: product and gate are one phase; else two */
} Graph;

typedef struct Layer
{
	LlmLinear *qkv, *o, *gate_up, *down;
	LlmAttn attn;
} Layer;

typedef struct Machine
{
	LlmPool *pool;
	LlmDevice *dev;
	Graph graph;
	LlmLinear *embed;
	Layer layers[LAYERS];
	float norm_weight[DIM];
	float inv_freq[32];
	LlmNorm norm;
	LlmRope rope;
} Machine;

static uint32_t counter; /* of the random weights; reset per machine */

static inline float
uniform(void)
{
	return 2.0f * llm_rng_uniform(5, 6, counter++) - 1.0f;
}

static inline uint8_t *
random_weight(LlmDtype type, int32_t n, int32_t k)
{
	size_t nbytes = (size_t) n * llm_dtype_row_nbytes(type, k);
	size_t block = (size_t) llm_dtype_info(type)->block_nbytes;
	uint8_t *w = malloc(nbytes);

	assert_non_null(w);
	for (size_t i = 0; i < nbytes; i++)
		w[i] = (uint8_t) llm_rng_u32(7, 8, counter++);
	for (size_t i = 0; i < nbytes; i += block)
	{
		float f = 0.2f * uniform();
		uint16_t h = llm_half_from_f32(type == LLM_DTYPE_F16 ? f : 0.02f * f);

		if (type == LLM_DTYPE_F32)
			memcpy(w + i, &f, sizeof(f));
		else
			memcpy(w + i, &h, sizeof(h));
		h = llm_half_from_f32(0.1f * f);
		if (type == LLM_DTYPE_Q4_1)
			memcpy(w + i + 2, &h, sizeof(h));
	}
	return w;
}

static inline LlmLinear *
linear(Machine *m, const LlmDtype *types, const int32_t *rows, int n_parts, int32_t cols,
	   bool is_embedding)
{
	LlmWeightView views[3] = {{0}};
	LlmLinearSpec spec = {.is_embedding = is_embedding};
	LlmLinear *l;
	LlmError err;

	for (int i = 0; i < n_parts; i++)
		views[i] =
			(LlmWeightView){"w", random_weight(types[i], rows[i], cols), rows[i], cols, types[i]};
	assert_int_equal(m->dev->ops->linear_create(m->dev, views, n_parts, &spec, &l, &err), LLM_OK);
	for (int i = 0; i < n_parts; i++)
		free((void *) views[i].data);
	return l;
}

static inline void
weights_create(Machine *m)
{
	static const LlmDtype quant[][3] = {{LLM_DTYPE_Q4_1, LLM_DTYPE_Q8_0, LLM_DTYPE_Q4_0},
										{LLM_DTYPE_Q4_1, LLM_DTYPE_Q4_1, LLM_DTYPE_Q4_1}};
	static const LlmDtype mixed[][3] = {{LLM_DTYPE_F32, LLM_DTYPE_Q8_0, LLM_DTYPE_F16},
										{LLM_DTYPE_F16, LLM_DTYPE_F32, LLM_DTYPE_F32}};
	int32_t q = HEADS * m->graph.head_dim, kv = KV_HEADS * m->graph.head_dim;
	LlmDtype table = m->graph.floats ? LLM_DTYPE_F16 : LLM_DTYPE_Q8_0;

	m->embed = linear(m, &table, (int32_t[]){VOCAB}, 1, DIM, true);
	for (int i = 0; i < LAYERS; i++)
	{
		const LlmDtype *types = m->graph.floats ? mixed[i] : quant[i];
		Layer *l = &m->layers[i];

		l->qkv = linear(m, types, (int32_t[]){q, kv, kv}, 3, DIM, false);
		l->o = linear(m, types + 1, (int32_t[]){DIM}, 1, q, false);
		l->gate_up = linear(m, types, (int32_t[]){m->graph.hidden, m->graph.hidden}, 2, DIM, false);
		l->down = linear(m, types + 2, (int32_t[]){DIM}, 1, m->graph.hidden, false);
		l->attn = (LlmAttn){.layer = i,
							.n_heads = HEADS,
							.n_kv_heads = KV_HEADS,
							.head_dim = m->graph.head_dim,
							.v_dim = m->graph.head_dim,
							.window = m->graph.window,
							.scale = 0.25f,
							.rope = &m->rope};
	}
}

static inline LlmDeviceLimits
limits_of(const Machine *m)
{
	int32_t qkv = (HEADS + 2 * KV_HEADS) * m->graph.head_dim;

	return (LlmDeviceLimits){.max_rows = MAX_ROWS,
							 .max_out = MAX_ROWS,
							 .max_seqs = MAX_SEQS,
							 .max_cols = qkv > 2 * HIDDEN_MAX ? qkv : 2 * HIDDEN_MAX,
							 .vocab_size = VOCAB,
							 .max_pos = MAX_TOKENS,
							 .n_acts = 13};
}

static inline void
machine_open(Machine *m, const Graph *graph, const char *isa, int n_threads)
{
	LlmError err;
	LlmDeviceLimits limits;
	LlmKvGroup group = {.kind = graph->window > 0 ? LLM_KV_WINDOW : LLM_KV_FULL,
						.n_layers = LAYERS,
						.n_kv_heads = KV_HEADS,
						.k_dim = graph->head_dim,
						.v_dim = graph->head_dim,
						.window = graph->window,
						.k_type = graph->kv_type,
						.v_type = graph->kv_type};

	*m = (Machine){.graph = *graph};
	counter = 0;
	assert_int_equal(llm_pool_create(n_threads, &m->pool, &err), LLM_OK);
	assert_int_equal(llm_cpu_device_create(m->pool, isa, &m->dev, &err), LLM_OK);
	m->rope = (LlmRope){graph->head_dim, 1, m->inv_freq};
	for (int i = 0; i < graph->head_dim / 2; i++)
		m->inv_freq[i] = 1.0f / (float) (1 << i % 16);
	for (int i = 0; i < DIM; i++)
		m->norm_weight[i] = 1.0f + 0.3f * uniform();
	m->norm = (LlmNorm){m->norm_weight, 1e-5f};
	weights_create(m);
	limits = limits_of(m);
	assert_int_equal(m->dev->ops->limits_set(m->dev, &limits, &err), LLM_OK);
	assert_int_equal(m->dev->ops->kv_create(m->dev, &group, 1, N_PAGES, &err), LLM_OK);
}

static inline void
machine_close(Machine *m)
{
	m->dev->ops->free(m->dev);
	llm_pool_free(m->pool);
}

/* Activations of all rows of a step, or of the wanted ones. */
typedef struct Acts
{
	LlmAct x, h, a, y, f;
} Acts;

static inline Acts
acts_create(Machine *m, int32_t n)
{
	const LlmDeviceOps *ops = m->dev->ops;
	int32_t all = LLM_ACT_F32 | LLM_ACT_Q8;

	return (Acts){.x = ops->act_create(m->dev, LLM_ACT_F32, n, DIM),
				  .h = ops->act_create(m->dev, all, n, DIM),
				  .a = ops->act_create(m->dev, all, n, HEADS * m->graph.head_dim),
				  .y = ops->act_create(m->dev, LLM_ACT_F32, n, DIM),
				  .f = ops->act_create(m->dev, all, n, m->graph.hidden)};
}

/* Record a forward, whose last layer goes on with the wanted rows alone behind attention; their
 * logits. */
static inline LlmAct
forward(Machine *m, const LlmBatch *b)
{
	LlmDevice *dev = m->dev;
	const LlmDeviceOps *ops = dev->ops;
	int32_t n = b->n_rows, hd = m->graph.head_dim;
	Acts c = acts_create(m, n), out = acts_create(m, b->n_out);
	LlmAct qkv = ops->act_create(dev, LLM_ACT_F32, n, (HEADS + 2 * KV_HEADS) * hd);
	LlmAct q = ops->act_create(dev, LLM_ACT_F32, n, HEADS * hd);
	LlmAct logits = ops->act_create(dev, LLM_ACT_F32, b->n_out, VOCAB), add = {0};

	ops->embed(dev, m->embed, c.x);
	for (int i = 0; i < LAYERS; i++)
	{
		Layer *l = &m->layers[i];
		LlmAttn attn = l->attn;

		attn.wanted_only = i + 1 == LAYERS;
		ops->norm(dev, c.x, add, &m->norm, c.h);
		ops->linear(dev, c.h, l->qkv, LLM_EPI_NONE, qkv);
		ops->rope_kv_write(dev, qkv, &attn, q);
		ops->attention(dev, q, &attn, c.a);
		if (attn.wanted_only && b->n_out == 0)
			return (LlmAct){.slot = -1};
		if (attn.wanted_only)
		{
			ops->gather_rows(dev, c.x, out.x);
			ops->gather_rows(dev, c.a, out.a);
			c = out;
		}
		ops->linear(dev, c.a, l->o, LLM_EPI_NONE, c.y);
		ops->norm(dev, c.x, c.y, &m->norm, c.h);
		ops->linear(dev, c.h, l->gate_up, LLM_EPI_SILU_GATE, c.f);
		ops->linear(dev, c.f, l->down, LLM_EPI_NONE, c.y);
		add = c.y;
	}
	ops->norm(dev, c.x, add, &m->norm, c.h);
	ops->linear(dev, c.h, m->embed, LLM_EPI_NONE, logits);
	return logits;
}

/* ---- a batch ---- */

/* Growing state of the sequences of one run, and the arrays of its steps. */
typedef struct Run
{
	Machine *m;
	int32_t len[MAX_SEQS]; /* tokens stored */
	int32_t every;         /* rows are wanted at positions that it divides; 0 = all */
	int32_t page_mul;      /* pages are handed out in this order; coprime to N_PAGES - 1 */
	int32_t tables[MAX_SEQS * STRIDE];
	int32_t token[MAX_ROWS], pos[MAX_ROWS], row_seq[MAX_ROWS], slot[MAX_ROWS], out_row[MAX_ROWS];
	uint8_t phase[MAX_ROWS], want[MAX_ROWS];
	int32_t q_start[MAX_SEQS + 1], kv_len[MAX_SEQS], table[MAX_SEQS * STRIDE];
	LlmBatch b;
	LlmSampleRow rows[MAX_ROWS];
	LlmSampleOut picks[MAX_ROWS];
	float logits[MAX_SEQS][MAX_TOKENS][VOCAB];
} Run;

static inline int32_t
token_of(int32_t seq, int32_t pos)
{
	return (seq * 31 + pos * 7 + pos * pos) % VOCAB;
}

static inline Run *
run_create(Machine *m, int32_t page_mul)
{
	Run *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->m = m;
	for (int32_t i = 0; i < MAX_SEQS * STRIDE; i++)
		r->tables[i] = 1 + (i * page_mul) % (N_PAGES - 1);
	for (int i = 0; i < MAX_ROWS; i++)
	{
		r->want[i] = LLM_WANT_TOKEN | LLM_WANT_LOGITS;
		r->rows[i] =
			(LlmSampleRow){.p = {.top_p = 1.0f, .repetition_penalty = 1.0f}, .history = r->token};
	}
	return r;
}

static inline void
step_begin_batch(Run *r)
{
	r->b = (LlmBatch){.n_groups = 1,
					  .table_stride = STRIDE,
					  .token = r->token,
					  .pos = r->pos,
					  .phase = r->phase,
					  .row_seq = r->row_seq,
					  .q_start = r->q_start,
					  .kv_len = r->kv_len,
					  .table = {r->table},
					  .slot = {r->slot},
					  .out_row = r->out_row,
					  .want = r->want};
}

/* n next tokens of a sequence join the step. */
static inline void
step_add(Run *r, int32_t seq, int32_t n)
{
	LlmBatch *b = &r->b;

	memcpy(r->table + b->n_seqs * STRIDE, r->tables + seq * STRIDE, STRIDE * sizeof(int32_t));
	for (int32_t i = 0; i < n; i++, b->n_rows++)
	{
		int32_t pos = r->len[seq]++, row = b->n_rows;

		r->token[row] = token_of(seq, pos);
		r->pos[row] = pos;
		r->row_seq[row] = seq; /* which sequence the logits belong to; the device does not care */
		r->slot[row] = r->tables[seq * STRIDE + pos / 64] * 64 + pos % 64;
		if (r->every == 0 || pos % r->every == 0)
			r->out_row[b->n_out++] = row;
	}
	r->kv_len[b->n_seqs++] = r->len[seq];
	r->q_start[b->n_seqs] = b->n_rows;
}

/* Run the step, whatever comes of it; the logits of its rows are kept. */
static inline LlmStepOut
step_run_any(Run *r)
{
	LlmDevice *dev = r->m->dev;
	LlmSampling sampling = {r->rows, r->b.n_out};
	LlmStepOut out = {.rows = r->picks};
	LlmError err;
	uint64_t step;

	assert_int_equal(dev->ops->step_begin(dev, &r->b, &err), LLM_OK);
	dev->ops->sample(dev, forward(r->m, &r->b), &sampling);
	assert_int_equal(dev->ops->step_end(dev, &step, &err), LLM_OK);
	assert_int_equal(dev->ops->step_wait(dev, step, &out, &err), LLM_OK);
	for (int32_t i = 0; i < r->b.n_out; i++)
		memcpy(r->logits[r->row_seq[r->out_row[i]]][r->pos[r->out_row[i]]],
			   out.logits + (size_t) i * (size_t) out.ld_logits, VOCAB * sizeof(float));
	return out;
}

/* Run a step in which every row is finite and picks its highest logit. */
static inline void
step_run(Run *r)
{
	LlmStepOut out = step_run_any(r);

	for (int32_t i = 0; i < r->b.n_out; i++)
	{
		const float *row = out.logits + (size_t) i * (size_t) out.ld_logits;
		int32_t best = 0;

		for (int32_t v = 0; v < VOCAB; v++)
		{
			assert_true(isfinite(row[v]));
			best = row[v] > row[best] ? v : best;
		}
		assert_int_equal(r->picks[i].status, LLM_OK);
		assert_int_equal(r->picks[i].token, best);
	}
}

/* One sequence alone, in chunks of the sizes given (0 ends the list, the last size repeats). */
static inline void
run_alone(Run *r, int32_t seq, int32_t len, const int32_t *chunks)
{
	while (r->len[seq] < len)
	{
		int32_t n = *chunks < len - r->len[seq] ? *chunks : len - r->len[seq];

		step_begin_batch(r);
		step_add(r, seq, n);
		step_run(r);
		if (chunks[1] != 0)
			chunks++;
	}
}

static inline void
assert_same(const Run *a, const Run *b, int32_t seq, int32_t len)
{
	assert_memory_equal(a->logits[seq], b->logits[seq], (size_t) len * VOCAB * sizeof(float));
}

static const Graph graphs[] = {
	{16, LLM_DTYPE_F16, false, 0, 96}, {32, LLM_DTYPE_F32, false, 0, 128},
	{64, LLM_DTYPE_F16, true, 0, 64},  {24, LLM_DTYPE_F16, false, 40, 96},
	{16, LLM_DTYPE_I8, false, 0, 96},  {40, LLM_DTYPE_I8, true, 70, 64},
};
#define N_GRAPHS (sizeof(graphs) / sizeof(graphs[0]))

#endif
