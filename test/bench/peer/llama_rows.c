/*
 * llama_rows.c - rows under one instruction by llama.cpp's library, the instruction computed once and handed to all.
 *
 * usage: llama_rows MODEL THREADS SEQUENCES one|split f16|q8_0 TOKENS <TEXTS
 *
 * Standard input has the prompts, each ended by a zero byte. What all of them begin with is decoded
 * once; then SEQUENCES of them at a time get a copy of it, decode what is their own in common
 * batches and generate TOKENS likeliest tokens each, end tokens too. With one KV a copy is a mark on
 * the same cells, and everybody's attention passes over everybody's; with a split one it is a copy.
 * Keys and values are of the given type.
 * Prints one JSON object: seconds without loading, the tokens of all prompts, and the ids that each
 * row got. scripts/bench compiles it against the headers and libraries of its build of llama.cpp.
 */
#include <llama.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS_MAX 4096
#define ROW_MAX 1024 /* tokens of a prompt and its answer */
#define BATCH 2048   /* tokens in one call */

typedef struct Row
{
	llama_token ids[ROW_MAX];
	int n;      /* of the prompt */
	int n_all;  /* with the answer */
	int n_done; /* decoded so far */
	int at;     /* place of its logits in the last batch */
} Row;

static Row rows[ROWS_MAX];
static struct llama_context *ctx;
static const struct llama_vocab *vocab;
static struct llama_batch batch;

static void
fail(const char *what)
{
	fprintf(stderr, "llama_rows: %s\n", what);
	exit(1);
}

static void
log_nothing(enum ggml_log_level level, const char *text, void *arg)
{
	(void) level, (void) text, (void) arg;
}

static double
seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static void
batch_push(llama_token id, int pos, int seq, bool logits)
{
	int i = batch.n_tokens++;

	batch.token[i] = id;
	batch.pos[i] = pos;
	batch.n_seq_id[i] = 1;
	batch.seq_id[i][0] = seq;
	batch.logits[i] = logits;
}

static void
batch_decode(void)
{
	if (batch.n_tokens > 0 && llama_decode(ctx, batch) != 0)
		fail("llama_decode failed");
	batch.n_tokens = 0;
}

static int
rows_read(void)
{
	size_t size = 0, capacity = 0;
	char *text = NULL;
	int n = 0;

	while (getdelim(&text, &capacity, 0, stdin) > 0)
	{
		if (n == ROWS_MAX)
			fail("too many rows");
		size = strlen(text);
		rows[n].n = llama_tokenize(vocab, text, (int32_t) size, rows[n].ids, ROW_MAX, false, true);
		if (rows[n].n <= 0)
			fail("a prompt is too long");
		rows[n].n_all = rows[n].n;
		n++;
	}
	free(text);
	return n;
}

/* How many tokens all rows begin with; each keeps one of its own. */
static int
rows_common(int n_rows)
{
	int common = rows[0].n - 1;

	for (int i = 1; i < n_rows; i++)
	{
		int k = 0;

		while (k < common && k < rows[i].n - 1 && rows[i].ids[k] == rows[0].ids[k])
			k++;
		common = k;
	}
	return common;
}

static llama_token
likeliest(const float *logits)
{
	int n = llama_vocab_n_tokens(vocab), best = 0;

	for (int i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

/* Decode what is new of rows [0, n), sequences 1..n, and take a token of each. */
static void
wave_step(Row *row, int n)
{
	for (int i = 0; i < n; i++)
		for (; row[i].n_done < row[i].n_all; row[i].n_done++)
		{
			bool last = row[i].n_done == row[i].n_all - 1;

			row[i].at = batch.n_tokens;
			batch_push(row[i].ids[row[i].n_done], row[i].n_done, 1 + i, last);
		}
	if (llama_decode(ctx, batch) != 0)
		fail("llama_decode failed");
	batch.n_tokens = 0;
	for (int i = 0; i < n; i++)
		row[i].ids[row[i].n_all++] = likeliest(llama_get_logits_ith(ctx, row[i].at));
}

static void
wave_run(Row *row, int n, int common, int n_tokens)
{
	llama_memory_t memory = llama_get_memory(ctx);

	for (int i = 0; i < n; i++)
	{
		llama_memory_seq_rm(memory, 1 + i, -1, -1);
		llama_memory_seq_cp(memory, 0, 1 + i, -1, -1);
		row[i].n_done = common;
	}
	for (int k = 0; k < n_tokens; k++)
		wave_step(row, n);
}

static void
run(int n_rows, int n_sequences, int n_tokens)
{
	int common = rows_common(n_rows);

	for (int k = 0; k < common; k++)
	{
		batch_push(rows[0].ids[k], k, 0, false);
		if (batch.n_tokens == BATCH)
			batch_decode();
	}
	batch_decode();
	for (int i = 0; i < n_rows; i += n_sequences)
		wave_run(&rows[i], n_rows - i < n_sequences ? n_rows - i : n_sequences, common, n_tokens);
}

static void
context_open(const char *path, int n_threads, int n_sequences, bool unified, bool q8)
{
	struct llama_context_params params = llama_context_default_params();
	struct llama_model *model;

	llama_log_set(log_nothing, NULL);
	llama_backend_init();
	model = llama_model_load_from_file(path, llama_model_default_params());
	if (model == NULL)
		fail("cannot load the model");
	vocab = llama_model_get_vocab(model);
	params.n_ctx = (uint32_t) (512 * (n_sequences + 1));
	params.n_batch = params.n_ctx > 2 * BATCH ? params.n_ctx : 2 * BATCH;
	params.n_seq_max = (uint32_t) n_sequences + 1;
	params.n_threads = params.n_threads_batch = n_threads;
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	params.kv_unified = unified;
	if (q8)
		params.type_k = params.type_v = GGML_TYPE_Q8_0;
	ctx = llama_init_from_model(model, params);
	if (ctx == NULL)
		fail("cannot make a context");
	batch = llama_batch_init((int32_t) params.n_batch, 0, 1);
}

int
main(int argc, char **argv)
{
	double begin, seconds;
	int n_rows, n_tokens, n_prompt = 0;

	if (argc != 7)
		fail("usage: llama_rows MODEL THREADS SEQUENCES one|split f16|q8_0 TOKENS <TEXTS");
	n_tokens = atoi(argv[6]);
	context_open(argv[1], atoi(argv[2]), atoi(argv[3]), strcmp(argv[4], "one") == 0,
				 strcmp(argv[5], "q8_0") == 0);
	batch_push(0, 0, 0, true); /* touches weights and buffers before the clock starts */
	batch_decode();
	llama_memory_clear(llama_get_memory(ctx), true);
	begin = seconds_now();
	n_rows = rows_read();
	if (n_rows > 0)
		run(n_rows, atoi(argv[3]), n_tokens);
	seconds = seconds_now() - begin;
	for (int i = 0; i < n_rows; i++)
		n_prompt += rows[i].n;
	printf("{\"seconds\": %.4f, \"prompt_tokens\": %d, \"tokens\": [", seconds, n_prompt);
	for (int i = 0; i < n_rows; i++)
	{
		printf("%s[", i > 0 ? ", " : "");
		for (int k = rows[i].n; k < rows[i].n_all; k++)
			printf("%s%d", k > rows[i].n ? ", " : "", rows[i].ids[k]);
		printf("]");
	}
	printf("]}\n");
	return 0;
}
