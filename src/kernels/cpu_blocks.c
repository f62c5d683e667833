/*
 * kernels/cpu_blocks.c - how the rows of a step are cut into blocks for attention.
 *
 * A block is what attention treats together, per KV head (cpu_attn.c): up to 64 adjacent rows of one
 * sequence, or the rows of several sequences whose block tables begin with the same pages. Such a
 * block goes through the shared pages once, with the query vectors of all its rows, so a page is
 * read and converted once for all of them instead of once for each; what follows is each sequence's own.
 *
 * Only the order of loops changes, never a bit: a row's scores and value sums of a split are made in
 * its own accumulators, and it folds its splits in ascending order either way (rule R7).
 *
 * Sequences are sorted by their tables, which brings common beginnings together, and joined from
 * left to right as long as that saves reading. Blocks are kept small enough that every thread gets
 * several, and the costly ones come first, so that threads end together. All of it is O(n log^2 n)
 * comparisons of tables for n sequences, without allocation.
 */
#include "kernels/cpu_state.h"

#include <string.h>

#define ITEMS_PER_THREAD 8 /* wanted, so that threads end together */
#define ITEMS_FEW 4        /* enough if blocks have few rows */
#define BLOCK_ROWS_FEW 8
#define RUN_ROWS_MIN 16 /* a long run is cut no finer */
#define PAGE_ROWS 2     /* to read a page that one run has to itself costs what so many rows do */

static const int32_t *
table_of(const LlmBatch *b, int g, int32_t seq)
{
	return b->table[g] + (size_t) seq * (size_t) b->table_stride;
}

static int32_t
pages_of(const LlmBatch *b, int32_t seq)
{
	return (b->kv_len[seq] + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS;
}

/* Leading pages that two sequences have in common, at most `most`. */
static int32_t
common(const LlmBatch *b, int g, int32_t s, int32_t t, int32_t most)
{
	const int32_t *p = table_of(b, g, s), *q = table_of(b, g, t);
	int32_t n = pages_of(b, s) < pages_of(b, t) ? pages_of(b, s) : pages_of(b, t), i = 0;

	n = n < most ? n : most;
	while (i < n && p[i] == q[i])
		i++;
	return i;
}

/* Order by the tables of group 0, the shorter first, then by index. */
static bool
before(const LlmBatch *b, int32_t s, int32_t t)
{
	int32_t n = common(b, 0, s, t, b->table_stride);
	int32_t n_s = pages_of(b, s), n_t = pages_of(b, t);

	if (n < n_s && n < n_t)
		return table_of(b, 0, s)[n] < table_of(b, 0, t)[n];
	return n_s != n_t ? n_s < n_t : s < t;
}

/* Shell's sort: in place, and nearly linear for tables that come sorted. */
static void
order_set(LlmCpuDevice *dev, const LlmBatch *b)
{
	int32_t *order = dev->order, n = b->n_seqs;

	for (int32_t i = 0; i < n; i++)
		order[i] = i;
	if (!dev->share)
		return;
	for (int32_t gap = n / 2; gap > 0; gap /= 2)
		for (int32_t i = gap; i < n; i++)
		{
			int32_t seq = order[i], j = i;

			for (; j >= gap && before(b, seq, order[j - gap]); j -= gap)
				order[j] = order[j - gap];
			order[j] = seq;
		}
}

static LlmCpuBlock *
block_begin(LlmCpuDevice *dev)
{
	LlmCpuBlock *block = &dev->blocks[dev->n_blocks++];

	*block = (LlmCpuBlock){.run0 = dev->n_runs};
	return block;
}

static void
block_add(LlmCpuDevice *dev, LlmCpuBlock *block, int32_t seq, int32_t row0, int32_t n_rows)
{
	dev->runs[dev->n_runs++] = (LlmCpuRun){seq, row0, n_rows};
	block->n_runs++;
	block->n_rows += n_rows;
}

/* The sequence joins the block if fewer pages are read then: its own reads of the common pages go, but
 * the others read again what is no longer common to all. */
static bool
block_join(LlmCpuDevice *dev, const LlmBatch *b, LlmCpuBlock *block, int32_t seq, int32_t most)
{
	int32_t first = dev->runs[block->run0].seq, row0 = b->q_start[seq];
	int32_t n_rows = b->q_start[seq + 1] - row0, shared[LLM_KV_GROUPS_MAX];
	int32_t gained = 0, lost = 0;

	if (block->n_rows + n_rows > most)
		return false;
	for (int g = 0; g < b->n_groups; g++)
	{
		int32_t had = block->n_runs > 1 ? block->n_shared[g] : b->table_stride;

		shared[g] = common(b, g, first, seq, had);
		gained += shared[g];
		if (block->n_runs > 1)
			lost += (block->n_runs - 1) * (had - shared[g]);
	}
	if (gained <= lost)
		return false;
	for (int g = 0; g < b->n_groups; g++)
		block->n_shared[g] = shared[g];
	block_add(dev, block, seq, row0, n_rows);
	return true;
}

/* Most rows in a block, to give every thread some. */
static int32_t
rows_most(const LlmCpuDevice *dev, const LlmBatch *b)
{
	int32_t n_kv_heads = dev->n_groups > 0 ? dev->kv[0].group.n_kv_heads : 1;
	int64_t n = (int64_t) b->n_rows * n_kv_heads / llm_pool_threads(dev->pool);

	if (n / ITEMS_PER_THREAD < BLOCK_ROWS_FEW)
		return n / ITEMS_FEW < BLOCK_ROWS_FEW ? (int32_t) (n / ITEMS_FEW) : BLOCK_ROWS_FEW;
	n /= ITEMS_PER_THREAD;
	return n < LLM_CPU_BLOCK_ROWS ? (int32_t) n : LLM_CPU_BLOCK_ROWS;
}

static void
cost_set(const LlmCpuDevice *dev, const LlmBatch *b, LlmCpuBlock *block)
{
	block->cost = (int64_t) block->n_rows * block->n_shared[0];
	for (int32_t i = block->run0; i < block->run0 + block->n_runs; i++)
	{
		const LlmCpuRun *run = &dev->runs[i];
		int32_t n_pages = b->pos[run->row0 + run->n_rows - 1] / LLM_PAGE_TOKENS + 1;

		block->cost += (int64_t) (n_pages - block->n_shared[0]) * (run->n_rows + PAGE_ROWS);
	}
}

/* Blocks by their costs, the highest first. */
static void
blocks_sort(LlmCpuDevice *dev, const LlmBatch *b)
{
	LlmCpuBlock *blocks = dev->blocks;

	for (int32_t i = 0; i < dev->n_blocks; i++)
		cost_set(dev, b, &blocks[i]);
	for (int32_t gap = dev->n_blocks / 2; gap > 0; gap /= 2)
		for (int32_t i = gap; i < dev->n_blocks; i++)
		{
			LlmCpuBlock block = blocks[i];
			int32_t j = i;

			for (; j >= gap && blocks[j - gap].cost < block.cost; j -= gap)
				blocks[j] = blocks[j - gap];
			blocks[j] = block;
		}
}

/* What of a run lies between its first and its last wanted row; n_rows 0 = nothing. */
static LlmCpuRun
run_wanted(const LlmCpuDevice *dev, LlmCpuRun run)
{
	while (run.n_rows > 0 && !dev->wanted_rows[run.row0 + run.n_rows - 1])
		run.n_rows--;
	while (run.n_rows > 0 && !dev->wanted_rows[run.row0])
	{
		run.row0++;
		run.n_rows--;
	}
	return run;
}

/* Blocks of the wanted rows, behind those of all: each block again, without the runs that have none. */
static void
wanted_set(LlmCpuDevice *dev, const LlmBatch *b)
{
	int32_t n_runs = dev->n_runs;

	dev->n_wanted_blocks = 0;
	memset(dev->wanted_rows, 0, (size_t) b->n_rows * sizeof(*dev->wanted_rows));
	for (int32_t i = 0; i < b->n_out; i++)
		dev->wanted_rows[b->out_row[i]] = 1;
	dev->all_wanted = memchr(dev->wanted_rows, 0, (size_t) b->n_rows) == NULL;
	for (int32_t i = 0; i < dev->n_blocks && !dev->all_wanted; i++)
	{
		LlmCpuBlock block = dev->blocks[i];
		const LlmCpuRun *runs = dev->runs + block.run0;
		int32_t n = block.n_runs;

		block.run0 = n_runs;
		block.n_runs = block.n_rows = 0;
		for (int32_t k = 0; k < n; k++)
		{
			LlmCpuRun run = run_wanted(dev, runs[k]);

			if (run.n_rows == 0)
				continue;
			dev->runs[n_runs++] = run;
			block.n_runs++;
			block.n_rows += run.n_rows;
		}
		if (block.n_runs > 0)
			dev->blocks[dev->n_blocks + dev->n_wanted_blocks++] = block;
	}
}

void
llm_cpu_blocks_set(LlmCpuDevice *dev, const LlmBatch *b)
{
	int32_t most = rows_most(dev, b);
	int32_t most_run = most > RUN_ROWS_MIN ? most : RUN_ROWS_MIN;
	LlmCpuBlock *open = NULL; /* may be joined */

	dev->n_blocks = dev->n_runs = 0;
	order_set(dev, b);
	for (int32_t i = 0; i < b->n_seqs; i++)
	{
		int32_t seq = dev->order[i], end = b->q_start[seq + 1];

		if (dev->share && open != NULL && block_join(dev, b, open, seq, most))
			continue;
		for (int32_t r = b->q_start[seq]; r < end; r += most_run)
		{
			open = block_begin(dev);
			block_add(dev, open, seq, r, end - r < most_run ? end - r : most_run);
		}
	}
	blocks_sort(dev, b);
	wanted_set(dev, b);
}
