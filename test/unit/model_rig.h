/*
 * model_rig.h - a model on a CPU device, driven step by step as the scheduler would.
 *
 * Pages are dealt by hand: a sequence owns RIG_SEQ_PAGES pages in a row. Every row's output is
 * wanted, so that a step gives the logits after each of its tokens.
 */
#ifndef LLM_TEST_MODEL_RIG_H
#define LLM_TEST_MODEL_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "kernels/cpu_device.h"
#include "model/model.h"

#define RIG_ROWS 192    /* rows in a step */
#define RIG_SEQS 32     /* sequences in a step */
#define RIG_SEQ_PAGES 3 /* pages of a sequence: 192 positions */

typedef struct Rig
{
	LlmPool *pool;
	LlmDevice *dev;
	LlmModel *model;
	int32_t vocab;
} Rig;

/* What one sequence brings to a step. */
typedef struct RigPart
{
	const int32_t *ids; /* the sequence's tokens from position 0 */
	int32_t from;       /* first position of this step */
	int32_t n;          /* rows */
	int32_t seq;        /* 0 .. RIG_SEQS - 1: which pages it owns */
} RigPart;

static inline void
rig_must(LlmStatus status, const LlmError *err)
{
	if (status == LLM_OK)
		return;
	fprintf(stderr, "%s: %s (%s)\n", llm_status_name(status), err->text, err->detail);
	exit(2);
}

/* isa NULL = the best of this machine. */
static inline void
rig_open(Rig *r, const LlmGguf *g, const char *isa, int n_threads, LlmDtype kv_type)
{
	LlmError err = {0};
	LlmKvGroup groups[LLM_KV_GROUPS_MAX];
	LlmDeviceLimits limits;
	int n_groups;

	rig_must(llm_pool_create(n_threads, &r->pool, &err), &err);
	rig_must(llm_cpu_device_create(r->pool, isa, &r->dev, &err), &err);
	rig_must(llm_model_create(g, r->dev, NULL, NULL, &r->model, &err), &err);
	r->vocab = llm_model_config(r->model)->vocab_size;
	limits = llm_model_limits(r->model, RIG_ROWS, RIG_ROWS);
	rig_must(r->dev->ops->limits_set(r->dev, &limits, &err), &err);
	n_groups = llm_model_kv_groups(r->model, kv_type, groups);
	rig_must(r->dev->ops->kv_create(r->dev, groups, n_groups, 1 + RIG_SEQS * RIG_SEQ_PAGES, &err),
			 &err);
}

static inline void
rig_close(Rig *r)
{
	llm_model_free(r->model);
	r->dev->ops->model_clear(r->dev);
	r->dev->ops->free(r->dev);
	llm_pool_free(r->pool);
}

/* Run one step; logits [sum of n, vocab], and tokens [sum of n] picked greedily when not NULL. */
static inline void
rig_step(Rig *r, const RigPart *parts, int32_t n_parts, float *logits, int32_t *tokens)
{
	static const LlmSampleRow greedy = {.p = {.top_p = 1, .repetition_penalty = 1}};
	int32_t token[RIG_ROWS], pos[RIG_ROWS], row_seq[RIG_ROWS], slot[RIG_ROWS], out_row[RIG_ROWS];
	int32_t q_start[RIG_SEQS + 1], kv_len[RIG_SEQS], table[RIG_SEQS * RIG_SEQ_PAGES], n = 0;
	uint8_t phase[RIG_ROWS] = {0}, want[RIG_ROWS];
	LlmSampleRow rows[RIG_ROWS];
	LlmSampleOut picked[RIG_ROWS];
	LlmStepOut out = {.rows = picked};
	LlmError err = {0};
	LlmBatch b;
	uint64_t step;

	for (int32_t s = 0; s < n_parts; s++)
	{
		const RigPart *p = &parts[s];

		q_start[s] = n;
		kv_len[s] = p->from + p->n;
		for (int32_t i = 0; i < RIG_SEQ_PAGES; i++)
			table[s * RIG_SEQ_PAGES + i] = 1 + p->seq * RIG_SEQ_PAGES + i;
		for (int32_t i = p->from; i < p->from + p->n; i++, n++)
		{
			token[n] = p->ids[i];
			pos[n] = i;
			row_seq[n] = s;
			slot[n] = table[s * RIG_SEQ_PAGES + i / LLM_PAGE_TOKENS] * LLM_PAGE_TOKENS +
					  i % LLM_PAGE_TOKENS;
			out_row[n] = n;
			want[n] = LLM_WANT_LOGITS | LLM_WANT_TOKEN;
			rows[n] = greedy;
			rows[n].history = p->ids;
			rows[n].n_history = rows[n].n_prompt = rows[n].position = i + 1;
		}
	}
	q_start[n_parts] = n;
	b = (LlmBatch){
		.n_rows = n,
		.n_seqs = n_parts,
		.n_out = n,
		.n_groups = 1,
		.table_stride = RIG_SEQ_PAGES,
		.token = token,
		.pos = pos,
		.phase = phase,
		.row_seq = row_seq,
		.q_start = q_start,
		.kv_len = kv_len,
		.table = {table},
		.slot = {slot},
		.out_row = out_row,
		.want = want,
	};
	rig_must(r->dev->ops->step_begin(r->dev, &b, &err), &err);
	r->dev->ops->sample(r->dev, llm_model_forward(r->model, r->dev, &b),
						&(LlmSampling){.rows = rows, .n_out = n});
	rig_must(r->dev->ops->step_end(r->dev, &step, &err), &err);
	rig_must(r->dev->ops->step_wait(r->dev, step, &out, &err), &err);
	for (int32_t i = 0; i < n; i++)
	{
		memcpy(logits + (size_t) i * (size_t) r->vocab,
			   out.logits + (size_t) i * (size_t) out.ld_logits,
			   (size_t) r->vocab * sizeof(*logits));
		if (tokens != NULL)
			tokens[i] = picked[i].status == LLM_OK ? picked[i].token : -1;
	}
}

/* The logits [n, vocab] of a sequence alone, fed in chunks of `chunk` rows. */
static inline void
rig_feed(Rig *r, const int32_t *ids, int32_t n, int32_t chunk, float *logits)
{
	for (int32_t at = 0; at < n; at += chunk)
	{
		RigPart p = {.ids = ids, .from = at, .n = n - at < chunk ? n - at : chunk};

		rig_step(r, &p, 1, logits + (size_t) at * (size_t) r->vocab, NULL);
	}
}

#endif
