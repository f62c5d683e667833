/*
 * bench_attention.c - time of attention in a decode step of sequences that share a prefix, with their
 * shared pages read for one sequence after the other, and for all at once (kernels/cpu_blocks.c).
 *
 *     bench_attention [THREADS [ROUNDS]]
 *
 * 64 sequences of one row, each with a prefix of 400 or 4,000 tokens that all share and 60 tokens of
 * its own. Both orders alternate in every round; a line gives the medians in milliseconds per layer,
 * their ratio, and the bytes of KV that a step reads in either order over the time it takes.
 *
 * links: kernels sample tensor core
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "core/rng.h"
#include "kernels/cpu_device.h"

#define N_SEQS 64
#define OWN 60 /* tokens */
#define PREFIX_MAX 4000
#define STRIDE ((PREFIX_MAX + OWN + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS)
#define N_PAGES (1 + PREFIX_MAX / LLM_PAGE_TOKENS + N_SEQS * 2)
#define N_LAYERS 2
#define ROUNDS_MAX 99
#define VOCAB 16

typedef struct Shape
{
	const char *name;
	int32_t n_heads, n_kv_heads, head_dim;
} Shape;

static const Shape shapes[] = {
	{"GQA 9/3 x 64", 9, 3, 64},
	{"GQA 32/8 x 128", 32, 8, 128},
	{"MHA 32/32 x 128", 32, 32, 128},
};

static const struct
{
	const char *name;
	LlmDtype type;
} types[] = {{"f16", LLM_DTYPE_F16}, {"int8", LLM_DTYPE_I8}};

typedef struct Bench
{
	LlmDevice *dev;
	LlmLinear *embed;
	LlmAttn attn;
	int32_t token[N_SEQS], pos[N_SEQS], row_seq[N_SEQS], slot[N_SEQS];
	int32_t q_start[N_SEQS + 1], kv_len[N_SEQS], table[N_SEQS * STRIDE];
	uint8_t phase[N_SEQS];
	LlmBatch batch;
} Bench;

static void
must(LlmStatus status, const LlmError *err)
{
	if (status == LLM_OK)
		return;
	fprintf(stderr, "bench_attention: %s\n", err->text);
	exit(1);
}

static float *
random_floats(size_t n)
{
	float *x = malloc(n * sizeof(*x));

	if (x == NULL)
		exit(1);
	for (size_t i = 0; i < n; i++)
		x[i] = 2.0f * llm_rng_uniform(3, 4, (uint32_t) i) - 1.0f;
	return x;
}

/* A device with random queries, and KV pages that all hold the same random values. */
static void
bench_open(Bench *b, LlmPool *pool, const Shape *s, LlmDtype type)
{
	int32_t cols = s->n_heads * s->head_dim, first = 1;
	size_t page =
		(size_t) LLM_PAGE_TOKENS * N_LAYERS * (size_t) s->n_kv_heads * 2 * (size_t) s->head_dim;
	float *x = random_floats(page > (size_t) (VOCAB * cols) ? page : (size_t) (VOCAB * cols));
	LlmWeightView view = {"embed", (const uint8_t *) x, VOCAB, cols, LLM_DTYPE_F32};
	LlmDeviceLimits limits = {.max_rows = N_SEQS,
							  .max_out = 1,
							  .max_seqs = N_SEQS,
							  .max_cols = cols,
							  .vocab_size = VOCAB,
							  .max_pos = PREFIX_MAX + OWN,
							  .n_acts = 2};
	LlmKvGroup group = {.kind = LLM_KV_FULL,
						.n_layers = N_LAYERS,
						.n_kv_heads = s->n_kv_heads,
						.k_dim = s->head_dim,
						.v_dim = s->head_dim,
						.k_type = type,
						.v_type = type};
	LlmError err;

	memset(b, 0, sizeof(*b));
	must(llm_cpu_device_create(pool, NULL, &b->dev, &err), &err);
	must(b->dev->ops->linear_create(b->dev, &view, 1, &(LlmLinearSpec){.is_embedding = true},
									&b->embed, &err),
		 &err);
	must(b->dev->ops->limits_set(b->dev, &limits, &err), &err);
	must(b->dev->ops->kv_create(b->dev, &group, 1, N_PAGES, &err), &err);
	must(b->dev->ops->kv_import(b->dev, 0, &first, 1, x, &err), &err);
	for (int32_t i = 2; i < N_PAGES; i++)
		b->dev->ops->kv_copy(b->dev, 0, 1, i, LLM_PAGE_TOKENS);
	free(x);
	b->attn = (LlmAttn){.n_heads = s->n_heads,
						.n_kv_heads = s->n_kv_heads,
						.head_dim = s->head_dim,
						.v_dim = s->head_dim,
						.scale = 0.125f};
}

/* Every sequence's last row. */
static void
batch_set(Bench *b, int32_t prefix)
{
	int32_t n_shared = prefix / LLM_PAGE_TOKENS, len = prefix + OWN;

	for (int32_t s = 0; s < N_SEQS; s++)
	{
		int32_t *table = b->table + s * STRIDE;

		for (int32_t i = 0; i < STRIDE; i++)
			table[i] = 1 + (i < n_shared ? i : n_shared + 2 * s + (i - n_shared) % 2);
		b->token[s] = s % VOCAB;
		b->pos[s] = len - 1;
		b->row_seq[s] = b->q_start[s] = s;
		b->slot[s] = table[(len - 1) / LLM_PAGE_TOKENS] * LLM_PAGE_TOKENS + (len - 1) % 64;
		b->kv_len[s] = len;
	}
	b->q_start[N_SEQS] = N_SEQS;
	b->batch = (LlmBatch){.n_rows = N_SEQS,
						  .n_seqs = N_SEQS,
						  .n_groups = 1,
						  .table_stride = STRIDE,
						  .token = b->token,
						  .pos = b->pos,
						  .phase = b->phase,
						  .row_seq = b->row_seq,
						  .q_start = b->q_start,
						  .kv_len = b->kv_len,
						  .table = {b->table},
						  .slot = {b->slot}};
}

/* Attention of one step, per layer; the outputs go to out [N_SEQS * cols]. */
static LlmOpStat
step_time(Bench *b, bool share)
{
	const LlmDeviceOps *ops = b->dev->ops;
	int32_t cols = b->attn.n_heads * b->attn.head_dim;
	LlmOpStat stats[32], none = {0};
	LlmStepOut out = {0};
	LlmError err;
	uint64_t step;
	LlmAct q, y;
	int n;

	llm_cpu_device_share(b->dev, share);
	ops->op_times(b->dev, true);
	ops->op_stats(b->dev, stats, 32, true);
	must(ops->step_begin(b->dev, &b->batch, &err), &err);
	q = ops->act_create(b->dev, LLM_ACT_F32, N_SEQS, cols);
	y = ops->act_create(b->dev, LLM_ACT_F32, N_SEQS, cols);
	ops->embed(b->dev, b->embed, q);
	for (b->attn.layer = 0; b->attn.layer < N_LAYERS; b->attn.layer++)
		ops->attention(b->dev, q, &b->attn, y);
	must(ops->step_end(b->dev, &step, &err), &err);
	must(ops->step_wait(b->dev, step, &out, &err), &err);
	n = ops->op_stats(b->dev, stats, 32, true);
	for (int i = 0; i < n; i++)
		if (strcmp(stats[i].name, "attention") == 0)
			return stats[i];
	return none;
}

static int
double_cmp(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static void
case_run(Bench *b, const char *shape, const char *type, int32_t prefix, int rounds)
{
	double t[2][ROUNDS_MAX], nbytes[2] = {0};

	batch_set(b, prefix);
	for (int r = -1; r < rounds; r++) /* the first touches everything */
		for (int share = 0; share < 2; share++)
		{
			LlmOpStat o = step_time(b, share == 1);

			t[share][r < 0 ? 0 : r] = o.seconds / N_LAYERS;
			nbytes[share] = o.nbytes / N_LAYERS;
		}
	for (int share = 0; share < 2; share++)
		qsort(t[share], (size_t) rounds, sizeof(double), double_cmp);
	printf("%-16s %-5s %6d %10.3f %10.3f %7.2f %9.1f %9.1f\n", shape, type, prefix,
		   1e3 * t[0][rounds / 2], 1e3 * t[1][rounds / 2], t[0][rounds / 2] / t[1][rounds / 2],
		   1e-9 * nbytes[0] / t[0][rounds / 2], 1e-9 * nbytes[1] / t[1][rounds / 2]);
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 9;
	LlmPool *pool;
	LlmError err;

	if (threads < 1 || rounds < 1 || rounds > ROUNDS_MAX)
	{
		fprintf(stderr, "usage: bench_attention [THREADS [ROUNDS]]\n");
		return 2;
	}
	must(llm_pool_create(threads, &pool, &err), &err);
	printf("%-16s %-5s %6s %10s %10s %7s %9s %9s   (%d rows, %d threads, medians of %d)\n", "heads",
		   "KV", "prefix", "apart ms", "shared ms", "ratio", "GB/s", "GB/s", N_SEQS, threads,
		   rounds);
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
		{
			Bench b;

			bench_open(&b, pool, &shapes[s], types[k].type);
			case_run(&b, shapes[s].name, types[k].name, 400, rounds);
			case_run(&b, shapes[s].name, types[k].name, PREFIX_MAX, rounds);
			b.dev->ops->free(b.dev);
		}
	llm_pool_free(pool);
	return 0;
}
