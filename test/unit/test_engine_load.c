/*
 * test_engine_load.c - an engine under load on the echo device: who waits how many steps, what a full
 * context means, and memory over many requests. Rules and finer bounds: test_sched_load.c.
 *
 * links: engine sched model kernels echo kv sample tokenizer template tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "engine_run.h"

#define IDS 20000 /* ids are counted modulo this */

#ifdef __SANITIZE_ADDRESS__
#define FEED_ROWS 2000
#define MANY_REQUESTS 6000
#else
#define FEED_ROWS 10000
#define MANY_REQUESTS 100000
#endif

/* What came back, by client. */
typedef struct Load
{
	LlmEngine *e;
	int64_t n_steps;
	int64_t n_submitted;
	int64_t n_done, n_errors;
	int64_t done_of[16];   /* by client */
	int64_t pieces_of[16]; /* by client */
} Load;

static void
load_on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	Load *l = arg;

	assert_true(piece.len > 0);
	l->pieces_of[key.client % 16]++;
}

static void
load_on_done(void *arg, const LlmResult *res)
{
	Load *l = arg;

	l->n_done++;
	l->n_errors += res->status != LLM_OK;
	l->done_of[res->key.client % 16]++;
}

static void
load_init(Load *l, int32_t max_running, int64_t kv_nbytes, int32_t context)
{
	LlmEngineEvents events = {l, load_on_text, load_on_done, NULL};
	LlmEngineOptions o = llm_engine_options_default();
	LlmModelSpec spec = {.path = "echo:", .context_length = context};
	LlmError err = {0};

	memset(l, 0, sizeof(*l));
	o.devices = "echo";
	o.max_running = max_running;
	o.kv_nbytes = kv_nbytes;
	assert_int_equal(llm_engine_create(&o, events, &l->e, &err), LLM_OK);
	if (llm_engine_load(l->e, &spec, &err) != LLM_OK)
		fail_msg("load: %s", err.text);
}

static void
load_fini(Load *l)
{
	LlmEngineStats s;

	llm_engine_stats(l->e, &s);
	assert_int_equal(s.running + s.waiting, 0);
	assert_int_equal(s.kv_pages_free + s.kv_pages_cached, s.kv_pages_total);
	llm_engine_free(l->e);
}

static void
load_submit(Load *l, uint64_t tenant, uint64_t client, const char *prompt, int32_t max_tokens)
{
	LlmRequest q = run_request(prompt, max_tokens);
	LlmError err = {0};

	q.key = (LlmRequestKey){client, (uint64_t) ++l->n_submitted};
	q.tenant = tenant;
	q.stream = true;
	if (llm_engine_submit(l->e, &q, &err) != LLM_OK)
		fail_msg("submit: %s", err.text);
}

/* False when nothing is left to do. */
static bool
load_step(Load *l)
{
	LlmError err = {0};
	bool idle;

	if (llm_engine_step(l->e, &idle, &err) != LLM_OK)
		fail_msg("step: %s", err.text);
	if (!llm_engine_audit(l->e, &err))
		fail_msg("audit: %s", err.text);
	l->n_steps++;
	return !idle;
}

static void
load_drain(Load *l)
{
	for (int i = 0; load_step(l); i++)
		assert_in_range(i, 0, 200000);
	assert_int_equal(l->n_done, l->n_submitted);
}

/* ---- waiting ---- */

/* Eight streams get a piece in every step while 100 prompts of 2,000 tokens arrive. */
static void
streams_flow_beside_long_prompts(void **state)
{
	Load l;
	char prompt[2100];
	int64_t start;

	load_init(&l, 64, 0, 4096);
	for (uint64_t c = 0; c < 8; c++)
	{
		snprintf(prompt, sizeof(prompt), "@tokens=1500 stream %d;", (int) c);
		load_submit(&l, 1, c, prompt, 1500);
	}
	while (l.pieces_of[7] == 0)
		load_step(&l);
	memset(l.pieces_of, 0, sizeof(l.pieces_of));
	start = l.n_steps;
	for (int i = 0; i < 100 || l.done_of[9] < 100; i++)
	{
		int n = snprintf(prompt, sizeof(prompt), "prompt %d ", i);

		memset(prompt + n, 'a' + i % 26, (size_t) (2000 - RUN_AROUND - n));
		prompt[2000 - RUN_AROUND] = '\0';
		if (i < 100)
			load_submit(&l, 2, 9, prompt, 4);
		load_step(&l);
		for (int c = 0; c < 8; c++)
			assert_int_equal(l.pieces_of[c], l.n_steps - start);
	}
	print_message("100 prompts of 2,000 tokens took %d steps, each with a piece for each stream\n",
				  (int) (l.n_steps - start));
	assert_in_range(l.n_steps - start, 200000 / 512, 200000 / 512 + 40);
	load_drain(&l);
	load_fini(&l);
}

/* A connection feeds rows, 256 at a time; a single call of another one is answered as soon as a place
 * got free. */
static void
a_call_beside_a_feed_is_answered(void **state)
{
	Load l;
	char prompt[64];
	int64_t n_fed = 0, longest = 0, sum = 0;

	load_init(&l, 64, 1 << 20, 512);
	while (n_fed < FEED_ROWS)
	{
		int64_t start, n_calls = l.done_of[2];

		while (n_fed - l.done_of[1] < 256 && n_fed < FEED_ROWS)
		{
			snprintf(prompt, sizeof(prompt), "row %d of a table with some text", (int) n_fed++);
			load_submit(&l, 1, 1, prompt, 12 + (int32_t) (n_fed % 13));
		}
		snprintf(prompt, sizeof(prompt), "call %d", (int) l.n_steps);
		load_submit(&l, 1, 2, prompt, 5);
		start = l.n_steps;
		while (l.done_of[2] == n_calls)
			load_step(&l);
		sum += l.n_steps - start;
		longest = l.n_steps - start > longest ? l.n_steps - start : longest;
		for (int i = 0; i < 20; i++)
			load_step(&l);
	}
	print_message("%d calls beside %d rows: five tokens in %.1f steps, at most %d\n",
				  (int) l.done_of[2], FEED_ROWS, (double) sum / (double) l.done_of[2],
				  (int) longest);
	assert_in_range(longest, 5, 5 + 6); /* a queue of 192 rows before it would take 50 */
	load_drain(&l);
	load_fini(&l);
}

/* The tenant of a request is what shares go by, whatever its connection. (What a request finds in the
 * cache costs it nothing, so here all find the same: the template and a few characters.) */
static void
roles_share_whatever_their_connections(void **state)
{
	Load l;
	char prompt[64];
	int64_t n[9] = {0}, one, eight = 0;

	load_init(&l, 16, 1 << 20, 512);
	while (l.n_steps < 1500)
	{
		for (uint64_t c = 0; c < 9; c++)
			while (n[c] - l.done_of[c] < (c < 8 ? 4 : 32))
			{
				snprintf(prompt, sizeof(prompt), "connection %d, row %d", (int) c, (int) n[c]++);
				load_submit(&l, c < 8 ? 1 : 2, c, prompt, 10);
			}
		load_step(&l);
	}
	one = l.pieces_of[8];
	for (int c = 0; c < 8; c++)
		eight += l.pieces_of[c];
	print_message("eight connections of a role %d pieces, one of another %d\n", (int) eight,
				  (int) one);
	assert_in_range(one * 100 / (one + eight), 48, 52);
	for (uint64_t c = 0; c < 9; c++)
		llm_engine_cancel_client(l.e, c);
	load_step(&l);
	load_fini(&l);
}

/* ---- the context ---- */

/* Prompt and answer together are exactly the context, or would be more: whatever `truncate` says, the
 * prompt stays whole while an answer of one token fits, and the answer ends where the context does. */
static void
a_full_context_ends_the_answer(void **state)
{
	Run r;

	run_echo(&r);
	for (int truncate = LLM_TRUNCATE_ERROR; truncate <= LLM_TRUNCATE_RIGHT; truncate++)
	{
		static const struct
		{
			int32_t n_prompt, max_tokens, n_answer;
		} cases[] = {
			{100, 27, 27}, {100, 28, 28}, {100, 29, 28}, {100, 280, 28},
			{126, 2, 2},   {126, 3, 2},   {127, 1, 1},   {127, 10, 1},
		};

		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		{
			const char *text = run_text_of((size_t) cases[i].n_prompt - RUN_AROUND);
			LlmRequest q = run_request(text, cases[i].max_tokens);
			Outcome *o;

			q.truncate = truncate;
			o = run_one(&r, q);
			assert_int_equal(o->prompt_tokens, cases[i].n_prompt);
			assert_int_equal(o->completion_tokens, cases[i].n_answer);
			assert_int_equal(o->finish, LLM_FINISH_LENGTH);
			assert_memory_equal(run_text(o), text, (size_t) cases[i].n_answer);
		}
	}
	run_fini(&r);
}

/* ---- memory ---- */

static int64_t
resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size = 0, resident = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* The i-th request: of many connections that come and go, long and short, some failing or refused. */
static void
some_request(Load *l, int i)
{
	char prompt[400];
	int n = snprintf(prompt, sizeof(prompt), "%s%d ", i % 50 == 7 ? "@error=no " : "", i % 700);
	int32_t n_more = i % 23 == 0 ? 300 : i % 60;
	LlmRequest q;
	LlmError err;

	memset(prompt + n, 'a' + i % 26, (size_t) n_more);
	prompt[n + n_more] = '\0';
	q = run_request(prompt, i % 31 == 0 ? 100 : 4 + i % 9);
	q.key = (LlmRequestKey){(uint64_t) (i / 40), (uint64_t) i};
	q.tenant = (uint64_t) i % 5;
	q.salt = (uint64_t) i % 3;
	q.stream = i % 2 == 0;
	q.stops[0] = llm_str("never");
	q.n_stops = i % 3 == 0;
	if (i % 97 == 0)
		q.max_tokens = 100000000;
	if (llm_engine_submit(l->e, &q, &err) == LLM_OK)
		l->n_submitted++;
	if (i % 71 == 0)
		llm_engine_cancel(l->e, q.key);
}

/* Bytes in chunks that malloc keeps ready for a thread, which it counts as used: they may come late.
 * One byte lost per ten requests would be more. */
#define MALLOC_KEEPS 8000

/* After a warm-up nothing grows over many requests. */
static void
memory_stays_flat(void **state)
{
	Load l;
	struct mallinfo2 warm = {0}, end;
	int64_t warm_kib = 0, end_kib;

	load_init(&l, 32, 128 << 10, 512);
	for (int i = 0; i < MANY_REQUESTS; i++)
	{
		some_request(&l, i);
		if (i % 20 == 19)
			for (int k = 0; k < 12; k++)
				load_step(&l);
		if (i % (MANY_REQUESTS / 5) != MANY_REQUESTS / 5 - 1)
			continue;
		while (load_step(&l))
			;
		if (i < MANY_REQUESTS / 5)
		{
			warm = mallinfo2();
			warm_kib = resident_kib();
		}
	}
	end = mallinfo2();
	end_kib = resident_kib();
	print_message(
		"%d requests in %d steps: %lld bytes and %lld KiB resident more than after a fifth\n",
		MANY_REQUESTS, (int) l.n_steps, (long long) end.uordblks - (long long) warm.uordblks,
		(long long) (end_kib - warm_kib));
	assert_true(l.n_errors > MANY_REQUESTS / 100 && l.n_done > MANY_REQUESTS / 2);
#ifndef __SANITIZE_ADDRESS__
	assert_true((int64_t) end.uordblks - (int64_t) warm.uordblks <= MALLOC_KEEPS);
	assert_true(end_kib - warm_kib <= 1024);
#endif
	load_fini(&l);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_flow_beside_long_prompts),
		cmocka_unit_test(a_call_beside_a_feed_is_answered),
		cmocka_unit_test(roles_share_whatever_their_connections),
		cmocka_unit_test(a_full_context_ends_the_answer),
		cmocka_unit_test(memory_stays_flat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
