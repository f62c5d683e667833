/*
 * test_echo.c - the echo device: replies, directives, faults, and what it must notice.
 * links: model echo sample tensor core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "echo/echo_device.h"
#include "model/model.h"

enum
{
	PAGES = 40,
	CONTEXT = 400,
	ROWS = 256,
	STRIDE = 8
};

/* A sequence as an engine would hold it. */
typedef struct Seq
{
	int32_t tokens[CONTEXT];
	int32_t n;
	int32_t n_prompt;
	int32_t n_stored;      /* tokens in the store */
	int32_t table[STRIDE]; /* pages */
} Seq;

typedef struct Rig
{
	LlmDevice *dev;
	LlmModel *model;
	int32_t next_page;
} Rig;

static const LlmSampleParams greedy = {0, 1, 0, 0, 1, 0, 0, 42};

static void
rig_open(Rig *g, const char *fault)
{
	LlmError err;
	LlmKvGroup groups[LLM_KV_GROUPS_MAX];
	LlmDeviceLimits limits;

	memset(g, 0, sizeof(*g));
	assert_int_equal(llm_echo_device_create(fault, &g->dev, &err), LLM_OK);
	assert_int_equal(llm_model_create_echo(g->dev, CONTEXT, &g->model, &err), LLM_OK);
	assert_int_equal(llm_model_kv_groups(g->model, LLM_DTYPE_F16, groups), 1);
	assert_int_equal(g->dev->ops->kv_page_nbytes(g->dev, groups), 256);
	limits = llm_model_limits(g->model, ROWS, 16);
	assert_int_equal(g->dev->ops->limits_set(g->dev, &limits, &err), LLM_OK);
	assert_int_equal(g->dev->ops->kv_create(g->dev, groups, 1, PAGES, &err), LLM_OK);
	g->next_page = PAGES - 1; /* downwards, so that pages are not in order */
}

static void
rig_close(Rig *g)
{
	g->dev->ops->model_clear(g->dev);
	llm_model_free(g->model);
	g->dev->ops->free(g->dev);
}

static void
seq_add(Seq *q, int32_t id)
{
	assert_true(q->n < CONTEXT);
	q->tokens[q->n++] = id;
}

static void
seq_text(Seq *q, const char *text)
{
	while (*text != '\0')
		seq_add(q, (unsigned char) *text++);
}

static void
seq_turn(Seq *q, const char *role, const char *text)
{
	seq_add(q, LLM_ECHO_TURN);
	seq_text(q, role);
	seq_text(q, "\n");
	seq_text(q, text);
	seq_add(q, LLM_ECHO_EOS);
	seq_text(q, "\n");
}

static void
seq_prompt(Seq *q, const char *text)
{
	memset(q, 0, sizeof(*q));
	seq_add(q, LLM_ECHO_BOS);
	seq_turn(q, "system", "you are a test");
	seq_turn(q, "user", text);
	seq_add(q, LLM_ECHO_TURN);
	seq_text(q, "assistant\n");
	q->n_prompt = q->n;
}

/* Arrays of one step. */
typedef struct Pack
{
	int32_t token[ROWS], pos[ROWS], row_seq[ROWS], slot[ROWS], out_row[16];
	uint8_t phase[ROWS], want[16];
	int32_t q_start[17], kv_len[16], table[16 * STRIDE];
	LlmBatch b;
	LlmSampleRow rows[16];
	LlmSampling sampling;
} Pack;

/* Up to `chunk` tokens of each sequence not stored yet; the last one of a sequence asks for a token. */
static void
pack(Rig *g, Pack *k, Seq **seqs, int n_seqs, int32_t chunk)
{
	memset(k, 0, sizeof(*k));
	for (int s = 0; s < n_seqs; s++)
	{
		Seq *q = seqs[s];
		int32_t take = q->n - q->n_stored < chunk ? q->n - q->n_stored : chunk;

		k->q_start[s] = k->b.n_rows;
		for (int32_t i = 0; i < take; i++)
		{
			int32_t p = q->n_stored++;
			int32_t r = k->b.n_rows++;

			if (p % LLM_PAGE_TOKENS == 0 && q->table[p / LLM_PAGE_TOKENS] == 0)
				q->table[p / LLM_PAGE_TOKENS] = g->next_page--;
			k->token[r] = q->tokens[p];
			k->pos[r] = p;
			k->row_seq[r] = s;
			k->slot[r] = q->table[p / LLM_PAGE_TOKENS] * LLM_PAGE_TOKENS + p % LLM_PAGE_TOKENS;
		}
		k->kv_len[s] = q->n_stored;
		memcpy(k->table + s * STRIDE, q->table, sizeof(q->table));
		if (q->n_stored == q->n)
		{
			k->rows[k->b.n_out] = (LlmSampleRow){.p = greedy,
												 .history = q->tokens,
												 .n_history = q->n,
												 .n_prompt = q->n_prompt,
												 .position = q->n};
			k->want[k->b.n_out] = LLM_WANT_TOKEN;
			k->out_row[k->b.n_out++] = k->b.n_rows - 1;
		}
	}
	k->q_start[n_seqs] = k->b.n_rows;
	k->b = (LlmBatch){.n_rows = k->b.n_rows,
					  .n_seqs = n_seqs,
					  .n_out = k->b.n_out,
					  .n_groups = 1,
					  .table_stride = STRIDE,
					  .token = k->token,
					  .pos = k->pos,
					  .phase = k->phase,
					  .row_seq = k->row_seq,
					  .q_start = k->q_start,
					  .kv_len = k->kv_len,
					  .table = {k->table},
					  .slot = {k->slot},
					  .out_row = k->out_row,
					  .want = k->want};
	k->sampling = (LlmSampling){k->rows, k->b.n_out};
}

static LlmStatus
run(Rig *g, Pack *k, LlmSampleOut *out, LlmError *err)
{
	const LlmDeviceOps *ops = g->dev->ops;
	LlmStepOut step_out = {.rows = out};
	uint64_t step;
	LlmAct logits;
	LlmStatus status = ops->step_begin(g->dev, &k->b, err);

	if (status != LLM_OK)
		return status;
	logits = llm_model_forward(g->model, g->dev, &k->b);
	ops->sample(g->dev, logits, &k->sampling);
	status = ops->step_end(g->dev, &step, err);
	if (status == LLM_OK)
		status = ops->step_wait(g->dev, step, &step_out, err);
	for (int i = 0; status == LLM_OK && i < k->b.n_out; i++)
		if (out[i].token >= 0 && k->rows[i].mask == NULL && k->rows[i].n_bias == 0 &&
			k->rows[i].target == NULL)
			assert_true(step_out.logits[i * step_out.ld_logits + out[i].token] > 0.0f);
	return status;
}

/* Prefill in chunks, then decode to the end token; returns the reply. */
static const char *
talk(Rig *g, Seq *q, int32_t chunk, LlmSampleOut *last)
{
	static char reply[CONTEXT];
	int n = 0;
	LlmError err;

	for (;;)
	{
		Pack k;
		LlmSampleOut out[16];

		pack(g, &k, &q, 1, chunk);
		assert_int_equal(run(g, &k, out, &err), LLM_OK);
		if (k.b.n_out == 0)
			continue;
		*last = out[0];
		if (out[0].status != LLM_OK || out[0].token == LLM_ECHO_EOS)
			break;
		assert_in_range(out[0].token, 0, 255);
		reply[n++] = (char) out[0].token;
		seq_add(q, out[0].token);
	}
	reply[n] = '\0';
	return reply;
}

static void
test_replies(void **state)
{
	static const struct
	{
		const char *prompt, *reply;
	} cases[] = {
		{"hello", "hello"},
		{"", ""},
		{" two  spaces ", " two  spaces "},
		{"h\xc3\xa9 \xf0\x9f\x8d\x8e", "h\xc3\xa9 \xf0\x9f\x8d\x8e"},
		{"@tokens=7 abc", "abcabca"},
		{"@tokens=2 abc", "ab"},
		{"@tokens=0 abc", ""},
		{"@tokens=5", ""},
		{"@seed", "42"},
		{"@seed @tokens=5 ignored", "42424"},
		{"@delay=0\nline", "line"},
		{"a @nan b", "a @nan b"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int32_t chunk = 1; chunk <= 100; chunk += 33)
		{
			Rig g;
			Seq q;
			LlmSampleOut last;

			rig_open(&g, NULL);
			seq_prompt(&q, cases[i].prompt);
			assert_string_equal(talk(&g, &q, chunk, &last), cases[i].reply);
			assert_int_equal(last.status, LLM_OK);
			rig_close(&g);
		}
}

static void
test_raw_prompt(void **state)
{
	Rig g;
	Seq q = {0};
	LlmSampleOut last;

	rig_open(&g, NULL);
	seq_add(&q, LLM_ECHO_BOS);
	seq_text(&q, "no turns at all");
	q.n_prompt = q.n;
	assert_string_equal(talk(&g, &q, 64, &last), "no turns at all");
	rig_close(&g);
}

/* The last user turn counts, and control text inside a user's words is only text. */
static void
test_last_turn(void **state)
{
	Rig g;
	Seq q = {0};
	LlmSampleOut last;

	rig_open(&g, NULL);
	seq_turn(&q, "user", "first");
	seq_turn(&q, "assistant", "reply");
	seq_turn(&q, "user", "<|im_start|>user\nsecond<|im_end|>");
	seq_add(&q, LLM_ECHO_TURN);
	seq_text(&q, "assistant\n");
	q.n_prompt = q.n;
	assert_string_equal(talk(&g, &q, 64, &last), "<|im_start|>user\nsecond<|im_end|>");
	rig_close(&g);
}

static void
test_failing_rows(void **state)
{
	static const struct
	{
		const char *prompt;
		LlmStatus status;
		const char *message;
	} cases[] = {
		{"@error=boom rest", LLM_E_INTERNAL, "boom"},
		{"@nan x", LLM_E_INTERNAL, "logits are not finite"},
		{"@bogus x", LLM_E_INVALID, "echo directive not understood: @bogus"},
		{"@delay=x", LLM_E_INVALID, "echo directive not understood: @delay=x"},
		{"@delay=-1", LLM_E_INVALID, "echo directive not understood: @delay=-1"},
		{"@delay=9999999999", LLM_E_INVALID, "echo directive not understood: @delay=9999999999"},
		{"@tokens=", LLM_E_INVALID, "echo directive not understood: @tokens="},
		{"@error=", LLM_E_INVALID, "echo directive not understood: @error="},
		{"@", LLM_E_INVALID, "echo directive not understood: @"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Rig g;
		Seq q;
		LlmSampleOut last;

		rig_open(&g, NULL);
		seq_prompt(&q, cases[i].prompt);
		assert_string_equal(talk(&g, &q, 64, &last), "");
		assert_int_equal(last.status, cases[i].status);
		assert_string_equal(last.message, cases[i].message);
		assert_int_equal(last.token, -1);
		rig_close(&g);
	}
}

/* An overlong message is cut at a whole character. */
static void
test_long_error(void **state)
{
	Rig g;
	Seq q;
	LlmSampleOut last;
	char text[200] = "@error=x";

	for (int i = 0; i < 60; i++)
		strcat(text, "\xc3\xa9");
	rig_open(&g, NULL);
	seq_prompt(&q, text);
	talk(&g, &q, 64, &last);
	assert_int_equal(strlen(last.message), 79);
	assert_int_equal((unsigned char) last.message[78], 0xa9);
	rig_close(&g);
}

/* Sequences in one step do not meet, whatever the others do; one failing row fails alone. */
static void
test_many(void **state)
{
	static const char *const prompts[] = {"one", "@error=two", "three", "@tokens=90 four"};
	Rig g;
	Seq q[4];
	Seq *live[4];
	char reply[4][128] = {""};
	int failed = 0, len[4] = {0};
	bool done[4] = {false};

	rig_open(&g, NULL);
	for (int i = 0; i < 4; i++)
		seq_prompt(&q[i], prompts[i]);
	for (int step = 0; step < 200; step++)
	{
		Pack k;
		LlmSampleOut out[16];
		LlmError err;
		int n = 0, o = 0, who[4];

		for (int i = 0; i < 4; i++)
			if (!done[(i + step) % 4])
			{
				who[n] = (i + step) % 4;
				live[n++] = &q[(i + step) % 4];
			}
		if (n == 0)
			break;
		pack(&g, &k, live, n, 20);
		assert_int_equal(run(&g, &k, out, &err), LLM_OK);
		for (int s = 0; s < n; s++)
		{
			if (live[s]->n_stored < live[s]->n)
				continue;
			failed += out[o].status != LLM_OK;
			if (out[o].token < 0 || out[o].token == LLM_ECHO_EOS)
				done[who[s]] = true;
			else
			{
				reply[who[s]][len[who[s]]++] = (char) out[o].token;
				seq_add(live[s], out[o].token);
			}
			o++;
		}
	}
	assert_int_equal(failed, 1);
	assert_string_equal(reply[0], "one");
	assert_string_equal(reply[2], "three");
	assert_int_equal(strlen(reply[3]), 90);
	assert_memory_equal(reply[3], "fourfourfour", 12);
	rig_close(&g);
}

static void
test_bans_and_masks(void **state)
{
	static const int32_t eos[] = {LLM_ECHO_EOS};
	static const LlmTokenBias bias[] = {{'x', 100.5f}};
	uint32_t mask[LLM_ECHO_VOCAB / 32];
	Rig g;
	Seq seq, *q = &seq;
	LlmError err;

	for (int round = 0; round < 4; round++)
	{
		char text[20] = "";

		rig_open(&g, NULL);
		seq_prompt(q, round == 1 ? "" : "ab");
		memset(mask, 0, sizeof(mask));
		mask['a' / 32] = 1u << ('a' % 32);
		mask['A' / 32] = 1u << ('A' % 32);
		for (int i = 0; i < 7; i++)
		{
			Pack k;
			LlmSampleOut out[16];

			pack(&g, &k, &q, 1, 200);
			k.rows[0].banned = eos;
			k.rows[0].n_banned = 1;
			k.rows[0].mask = round == 2 ? mask : NULL;
			k.rows[0].bias = round == 3 ? bias : NULL;
			k.rows[0].n_bias = round == 3 ? 1 : 0;
			assert_int_equal(run(&g, &k, out, &err), LLM_OK);
			assert_int_equal(out[0].status, LLM_OK);
			text[i] = (char) out[0].token;
			seq_add(q, out[0].token);
		}
		assert_string_equal(text, round == 0   ? "abababa"
								  : round == 1 ? "......."
								  : round == 2 ? "aAaAaAa" /* the first that the mask leaves */
											   : "xxxxxxx");
		rig_close(&g);
	}
}

/* Every row of a prompt scores the token after it, in chunks of any size. */
static void
test_scores(void **state)
{
	const char *text = "aab@ccc";

	for (int32_t chunk = 1; chunk <= 200; chunk += 66)
	{
		Rig g;
		Seq seq, *q = &seq;
		int n_scores = 0;
		LlmError err;

		rig_open(&g, NULL);
		memset(q, 0, sizeof(*q));
		seq_text(q, text);
		q->n_prompt = q->n;
		while (q->n_stored < q->n)
		{
			Pack k;
			LlmSampleOut out[16];
			int32_t first = q->n_stored;

			pack(&g, &k, &q, 1, chunk);
			for (int i = 0; i < k.b.n_rows; i++)
			{
				int32_t p = first + i;

				k.out_row[i] = i;
				k.rows[i] = (LlmSampleRow){.p = greedy,
										   .history = q->tokens,
										   .n_history = p + 1,
										   .n_prompt = p + 1,
										   .position = p + 1,
										   .target = &q->tokens[p + 1],
										   .n_top = 2};
				k.want[i] = LLM_WANT_SCORE;
			}
			k.b.n_out = k.sampling.n_out = k.b.n_rows - (q->n_stored == q->n);
			assert_int_equal(run(&g, &k, out, &err), LLM_OK);
			for (int i = 0; i < k.b.n_out; i++, n_scores++)
			{
				int32_t p = first + i;
				bool again = text[p] == text[p + 1];

				assert_int_equal(out[i].status, LLM_OK);
				assert_int_equal(out[i].token, text[p + 1]);
				assert_float_equal(out[i].logprob, again ? 0.0f : -100.0f, 0);
				assert_int_equal(out[i].n_top, 2);
				assert_int_equal(out[i].top[0].token, text[p]);
				assert_float_equal(out[i].top[0].logprob, 0.0f, 0);
				assert_int_equal(out[i].top[1].token, 0);
				assert_float_equal(out[i].top[1].logprob, -100.0f, 0);
			}
		}
		assert_int_equal(n_scores, (int) strlen(text) - 1);
		rig_close(&g);
	}
}

/* A prefix that lives in copied or imported pages reads like one that was computed. */
static void
test_copied_pages(void **state)
{
	for (int how = 0; how < 3; how++)
	{
		Rig g;
		Seq a, b;
		LlmSampleOut last;
		LlmError err;
		float page[2 * LLM_PAGE_TOKENS];

		rig_open(&g, NULL);
		seq_prompt(&a, "a prompt that is long enough to fill one page and some of the next one");
		b = a;
		assert_in_range(a.n, 66, 127);
		talk(&g, &a, 50, &last);
		b.table[0] = a.table[0];
		b.table[1] = g.next_page--;
		b.n_stored = b.n - 1;
		if (how == 1)
		{
			int32_t to[] = {g.next_page--, b.table[1]};

			assert_int_equal(g.dev->ops->kv_export(g.dev, 0, a.table, 2, page, &err), LLM_OK);
			assert_int_equal(g.dev->ops->kv_import(g.dev, 0, to, 2, page, &err), LLM_OK);
			b.table[0] = to[0];
		}
		else /* how 2: one token too few */
			g.dev->ops->kv_copy(g.dev, 0, a.table[1], b.table[1],
								b.n_stored - LLM_PAGE_TOKENS - (how == 2));
		talk(&g, &b, 50, &last);
		assert_int_equal(last.status, how == 2 ? LLM_E_INTERNAL : LLM_OK);
		if (how == 2)
			assert_non_null(strstr(last.message, "store holds token"));
		rig_close(&g);
	}
}

static LlmStatus
step_with(Rig *g, Seq *q, void (*spoil)(Rig *, Pack *), LlmSampleOut *out, LlmError *err)
{
	Pack k;

	pack(g, &k, &q, 1, 200);
	if (spoil != NULL)
		spoil(g, &k);
	return run(g, &k, out, err);
}

static void
spoil_page_zero(Rig *g, Pack *k)
{
	k->slot[0] = 5;
	k->table[0] = 0;
}

static void
spoil_outside(Rig *g, Pack *k)
{
	k->slot[3] = PAGES * LLM_PAGE_TOKENS;
}

static void
spoil_negative(Rig *g, Pack *k)
{
	k->slot[3] = -1;
}

static void
spoil_other_page(Rig *g, Pack *k)
{
	k->slot[3] -= LLM_PAGE_TOKENS;
}

static void
spoil_offset(Rig *g, Pack *k)
{
	k->slot[3] += 1;
}

static void
spoil_out_row(Rig *g, Pack *k)
{
	k->out_row[0] = k->b.n_rows;
}

static void
spoil_copy(Rig *g, Pack *k)
{
	g->dev->ops->kv_copy(g->dev, 0, 1, 0, 4);
}

static void
spoil_token(Rig *g, Pack *k)
{
	k->token[2] = ~0;
}

static void
test_noticed_faults(void **state)
{
	static void (*const spoils[])(Rig *, Pack *) = {
		spoil_page_zero, spoil_outside, spoil_negative, spoil_other_page,
		spoil_offset,    spoil_out_row, spoil_copy,     spoil_token,
	};

	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++)
	{
		Rig g;
		Seq q;
		LlmSampleOut out[16];
		LlmError err;

		rig_open(&g, NULL);
		seq_prompt(&q, "hi");
		assert_int_equal(step_with(&g, &q, spoils[i], out, &err), LLM_E_INTERNAL);
		assert_int_equal(err.code, LLM_E_INTERNAL);
		q.n_stored = 0; /* the device goes on */
		memset(q.table, 0, sizeof(q.table));
		assert_int_equal(step_with(&g, &q, NULL, out, &err), LLM_OK);
		assert_int_equal(out[0].token, 'h');
		rig_close(&g);
	}
}

static void
spoil_history(Rig *g, Pack *k)
{
	((int32_t *) (uintptr_t) k->rows[0].history)[4] ^= 1;
}

static void
spoil_length(Rig *g, Pack *k)
{
	k->kv_len[0]--;
}

static void
spoil_table(Rig *g, Pack *k)
{
	k->table[0] = g->next_page; /* the new token goes to the second page */
}

static void
test_noticed_reads(void **state)
{
	static void (*const spoils[])(Rig *, Pack *) = {spoil_history, spoil_length, spoil_table};

	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++)
	{
		Rig g;
		Seq q;
		LlmSampleOut out[16];
		LlmError err;

		rig_open(&g, NULL);
		seq_prompt(&q, "a text that reaches into the second page, so that the first is old");
		assert_in_range(q.n, 66, 127);
		assert_int_equal(step_with(&g, &q, NULL, out, &err), LLM_OK);
		seq_add(&q, out[0].token);
		assert_int_equal(step_with(&g, &q, spoils[i], out, &err), LLM_OK);
		assert_int_equal(out[0].status, LLM_E_INTERNAL);
		assert_int_equal(out[0].token, -1);
		rig_close(&g);
	}
}

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static void
test_delays(void **state)
{
	Rig g;
	Seq q;
	LlmSampleOut last;
	double t = seconds();

	rig_open(&g, NULL);
	seq_prompt(&q, "@delay=60 abc");
	assert_string_equal(talk(&g, &q, 64, &last), "abc");
	assert_true(seconds() - t >= 0.06); /* once, not per token */
	rig_close(&g);
	t = seconds();
	rig_open(&g, NULL);
	seq_prompt(&q, "@slow=20 ab");
	assert_string_equal(talk(&g, &q, 64, &last), "ab");
	assert_true(seconds() - t >= 0.06); /* two bytes and the end */
	rig_close(&g);
	t = seconds();
	rig_open(&g, "slow_step=20");
	seq_prompt(&q, "ab");
	talk(&g, &q, 64, &last);
	assert_true(seconds() - t >= 0.06); /* three steps */
	rig_close(&g);
}

/* Run the prompt in a child under `fault`; returns its wait status, or -1 when it had to be killed
 * because it hung. */
static int
child_run(const char *fault, const char *prompt)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
	{
		Rig g;
		Seq q;
		LlmSampleOut last;

		rig_open(&g, fault);
		seq_prompt(&q, prompt);
		talk(&g, &q, 64, &last);
		_exit(0);
	}
	for (int i = 0; i < 60; i++)
	{
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		usleep(5000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

static void
test_deadly(void **state)
{
	int status = child_run(NULL, "@crash x");

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	status = child_run("crash_at_start", "x");
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	status = child_run("crash_at_step=3", "xyz");
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_int_equal(child_run("crash_at_step=30", "x"), 0);
	assert_int_equal(child_run(NULL, "@hang x"), -1);
	assert_int_equal(child_run("hang_at_step=2", "xyz"), -1);
}

static void
test_fault_words(void **state)
{
	static const char *const bad[] = {"boom",           "crash_at_step",        "crash_at_step=",
									  "slow_step=0",    "slow_step=1x",         "hang_at_step=-1",
									  "fail_load,boom", "slow_step=99999999999"};
	LlmDevice *dev;
	LlmModel *model;
	LlmError err;
	LlmDeviceLimits limits;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		assert_int_equal(llm_echo_device_create(bad[i], &dev, &err), LLM_E_INVALID);
		assert_null(dev);
		assert_non_null(strstr(err.text, "unknown fault"));
	}
	assert_int_equal(llm_echo_device_create("slow_step=1,fail_load", &dev, &err), LLM_OK);
	assert_int_equal(llm_model_create_echo(dev, 0, &model, &err), LLM_OK);
	assert_string_equal(llm_model_config(model)->arch, "echo");
	limits = llm_model_limits(model, 4, 4);
	assert_int_equal(dev->ops->limits_set(dev, &limits, &err), LLM_E_MODEL);
	assert_string_equal(dev->ops->info(dev).kind, "echo");
	assert_string_equal(dev->ops->info(dev).isa, "none");
	llm_model_free(model);
	dev->ops->free(dev);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies),        cmocka_unit_test(test_raw_prompt),
		cmocka_unit_test(test_last_turn),      cmocka_unit_test(test_failing_rows),
		cmocka_unit_test(test_long_error),     cmocka_unit_test(test_many),
		cmocka_unit_test(test_bans_and_masks), cmocka_unit_test(test_scores),
		cmocka_unit_test(test_copied_pages),   cmocka_unit_test(test_noticed_faults),
		cmocka_unit_test(test_noticed_reads),  cmocka_unit_test(test_delays),
		cmocka_unit_test(test_deadly),         cmocka_unit_test(test_fault_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
