/*
 * bench_linear.c - speed of products with quantised weights, by shape, rows and instruction set.
 *
 *     bench_linear TYPE ISA[,ISA...] N,K,M [N,K,M ...]
 *
 * Both threads take half of the panels, as in a step. Each shape has as many copies of its weights
 * as fill 128 MB, which are used in turn, so that weights come from memory as in a model. ISAs take
 * turns in every round and a cell is the best of the rounds: Gop/s, its fraction of the machine's int8
 * peak (of vector instructions: tiles may exceed it), and GB/s of weights read.
 *
 * links: kernels sample tensor core
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/pool.h"
#include "kernels/cpu_device.h"
#include "kernels/linear.h"

#define THREADS 2
#define COPIES_NBYTES ((size_t) 128 << 20)
#define COPIES_MAX 512
#define ISAS_MAX LLM_KERNELS_MAX
#define SECONDS 0.2 /* per shape and instruction set */

/* One product, by all threads. */
typedef struct Job
{
	const LlmKernels *kernels;
	const LlmLinear *linear;
	LlmLinearInput in;
	float *y;
} Job;

static void
must(LlmStatus status, const LlmError *err)
{
	if (status == LLM_OK)
		return;
	fprintf(stderr, "bench_linear: %s\n", err->text);
	exit(1);
}

/* Any bytes whose pairs are halves of ordinary size: a valid block of every type. */
static uint8_t *
random_bytes(size_t n)
{
	uint8_t *p = malloc(n);
	uint32_t x = 1;

	if (p == NULL)
		exit(1);
	for (size_t i = 0; i < n; i++)
	{
		x = x * 1664525u + 1013904223u;
		p[i] = (uint8_t) (0x21 + (x >> 24) % 24);
	}
	return p;
}

static void
job_run(void *arg, int tid, int n_threads)
{
	const Job *j = arg;

	llm_linear_run(j->kernels, j->linear, &j->in, llm_linear_share(j->linear, tid, n_threads),
				   llm_linear_share(j->linear, tid + 1, n_threads), j->y, j->linear->n);
}

static LlmDtype
type_named(const char *name)
{
	for (uint32_t t = 0; t < 64; t++)
		if (llm_dtype_info(t) != NULL && strcmp(llm_dtype_info(t)->name, name) == 0)
			return (LlmDtype) t;
	fprintf(stderr, "bench_linear: no type \"%s\"\n", name);
	exit(2);
}

/* Seconds of one product, the best of rounds over all copies. */
static void
shape_time(LlmPool *pool, const LlmKernels **isas, int n_isas, LlmLinear **copies, int n_copies,
		   Job *job, double *best)
{
	double start = llm_clock_seconds(), end = start;

	for (int i = 0; i < n_isas; i++)
		best[i] = INFINITY;
	while (end - start < SECONDS * n_isas)
		for (int i = 0; i < n_isas; i++)
		{
			double t = llm_clock_seconds();

			job->kernels = isas[i];
			for (int c = 0; c < n_copies; c++)
			{
				job->linear = copies[c];
				llm_pool_run(pool, job_run, job);
			}
			end = llm_clock_seconds();
			best[i] = fmin(best[i], (end - t) / n_copies);
		}
}

static void
shape_run(LlmPool *pool, LlmDtype type, const LlmKernels **isas, int n_isas, double peak, int32_t n,
		  int32_t k, int32_t m)
{
	size_t nbytes = llm_dtype_row_nbytes(type, k) * (size_t) n;
	size_t row_units = (size_t) (k + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT;
	uint8_t *data = random_bytes(nbytes), *x = random_bytes((size_t) k * sizeof(float));
	LlmQ8Unit *q = llm_block_create((size_t) m * row_units * sizeof(LlmQ8Unit));
	float *y = llm_block_create((size_t) m * (size_t) n * sizeof(float));
	LlmWeightView view = {"w", data, n, k, type};
	LlmLinear *copies[COPIES_MAX];
	LlmWeightStore store = {0};
	double best[ISAS_MAX];
	int n_copies = 0;
	size_t n_tiles = ((size_t) m + LLM_Q8_TILE_ROWS - 1) / LLM_Q8_TILE_ROWS * row_units;
	LlmQ8Tile *tiles = llm_block_create(n_tiles * sizeof(LlmQ8Tile));
	Job job = {.in = {.q = q, .tiles = tiles, .n_rows = m}, .y = y};
	LlmError err;

	if (q == NULL || tiles == NULL || y == NULL)
		exit(1);
	while (n_copies < COPIES_MAX && (size_t) n_copies * nbytes < COPIES_NBYTES)
		must(llm_linear_create(&store, pool, &view, 1, &(LlmLinearSpec){0}, &copies[n_copies++],
							   &err),
			 &err);
	for (int32_t r = 0; r < m; r++)
	{
		LlmQ8Unit *row = q + (size_t) r * row_units;

		isas[0]->quantise((float *) x, k, row);
		for (size_t u = 0; u < row_units; u++)
			llm_q8_tile_set(tiles + (size_t) (r / LLM_Q8_TILE_ROWS) * row_units + u,
							r % LLM_Q8_TILE_ROWS, row + u);
	}
	shape_time(pool, isas, n_isas, copies, n_copies, &job, best);
	printf("%-5s %5d x %4d x %4d", llm_dtype_info(type)->name, n, k, m);
	for (int i = 0; i < n_isas; i++)
	{
		double ops = 2.0 * n * k * m / best[i];

		printf("  | %-7s %9.4f ms %6.0f Gop/s %5.1f%% %5.1f GB/s", isas[i]->isa, 1e3 * best[i],
			   1e-9 * ops, 100 * ops / peak, 1e-9 * (double) copies[0]->nbytes / best[i]);
	}
	printf("\n");
	fflush(stdout);
	llm_weight_store_fini(&store);
	llm_block_free(q, (size_t) m * row_units * sizeof(LlmQ8Unit));
	llm_block_free(tiles, n_tiles * sizeof(LlmQ8Tile));
	llm_block_free(y, (size_t) m * (size_t) n * sizeof(float));
	free(data);
	free(x);
}

int
main(int argc, char **argv)
{
	const LlmKernels *isas[ISAS_MAX];
	LlmMachineLimits limits;
	int n_isas = 0;
	LlmPool *pool;
	LlmError err;

	if (argc < 4)
	{
		fprintf(stderr, "usage: bench_linear TYPE ISA[,ISA...] N,K,M [N,K,M ...]\n");
		return 2;
	}
	for (char *isa = strtok(argv[2], ","); isa != NULL && n_isas < ISAS_MAX;
		 isa = strtok(NULL, ","))
	{
		isas[n_isas] = llm_kernels_find(isa);
		if (isas[n_isas++] == NULL)
		{
			fprintf(stderr, "bench_linear: no \"%s\" here\n", isa);
			return 2;
		}
	}
	must(llm_pool_create(THREADS, &pool, &err), &err);
	llm_cpu_limits_measure(pool, (int64_t) COPIES_NBYTES, 0.4, &limits);
	printf("int8 peak %.0f Gop/s, reads %.1f GB/s, %d threads\n", 1e-9 * limits.int8_ops.best,
		   1e-9 * limits.read_all.best, THREADS);
	for (int i = 3; i < argc; i++)
	{
		int n, k, m;

		if (sscanf(argv[i], "%d,%d,%d", &n, &k, &m) != 3 || n < 1 || k < 1 || m < 1)
			return 2;
		shape_run(pool, type_named(argv[1]), isas, n_isas, limits.int8_ops.best, n, k, m);
	}
	llm_pool_free(pool);
	return 0;
}
