/* sched/pack.c - fill the arrays of a batch from a plan. */
#include "sched/pack.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

struct LlmPack
{
	LlmPackSizes sizes;
	LlmArena arena;                    /* all arrays below */
	LlmBatch batch;                    /* points to them */
	int32_t *token;                    /* [max_rows] */
	int32_t *pos;                      /* [max_rows] */
	uint8_t *phase;                    /* [max_rows] */
	int32_t *row_seq;                  /* [max_rows] */
	int32_t *q_start;                  /* [max_seqs + 1] */
	int32_t *kv_len;                   /* [max_seqs] */
	int32_t *table[LLM_KV_GROUPS_MAX]; /* [max_seqs * stride] */
	int32_t *slot[LLM_KV_GROUPS_MAX];  /* [max_rows] */
	int32_t *out_row;                  /* [max_out] */
	uint8_t *want;                     /* [max_out] */
	LlmPackOut *outputs;               /* [max_out] */
};

/* An array of n elements; sets *ok to false when memory is out. */
static void *
array(LlmPack *p, int32_t n, size_t size, bool *ok)
{
	void *a = llm_arena_array(&p->arena, (size_t) n, size);

	*ok = *ok && a != NULL;
	return a;
}

LlmStatus
llm_pack_create(const LlmPackSizes *sizes, LlmPack **out, LlmError *err)
{
	LlmPack *p = calloc(1, sizeof(*p));
	int32_t stride = llm_seq_pages(sizes->max_len);
	bool ok = p != NULL;

	if (!ok)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the batch");
	p->sizes = *sizes;
	p->batch.n_groups = sizes->n_groups;
	p->batch.table_stride = stride;
	p->batch.token = p->token = array(p, sizes->max_rows, sizeof(int32_t), &ok);
	p->batch.pos = p->pos = array(p, sizes->max_rows, sizeof(int32_t), &ok);
	p->batch.phase = p->phase = array(p, sizes->max_rows, sizeof(uint8_t), &ok);
	p->batch.row_seq = p->row_seq = array(p, sizes->max_rows, sizeof(int32_t), &ok);
	p->batch.q_start = p->q_start = array(p, sizes->max_seqs + 1, sizeof(int32_t), &ok);
	p->batch.kv_len = p->kv_len = array(p, sizes->max_seqs, sizeof(int32_t), &ok);
	for (int g = 0; g < sizes->n_groups; g++)
	{
		size_t row_nbytes = (size_t) stride * sizeof(int32_t);

		p->batch.table[g] = p->table[g] = array(p, sizes->max_seqs, row_nbytes, &ok);
		p->batch.slot[g] = p->slot[g] = array(p, sizes->max_rows, sizeof(int32_t), &ok);
	}
	p->batch.out_row = p->out_row = array(p, sizes->max_out, sizeof(int32_t), &ok);
	p->batch.want = p->want = array(p, sizes->max_out, sizeof(uint8_t), &ok);
	p->outputs = array(p, sizes->max_out, sizeof(LlmPackOut), &ok);
	if (!ok)
	{
		llm_pack_free(p);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a batch of %d rows",
							 sizes->max_rows);
	}
	*out = p;
	return LLM_OK;
}

void
llm_pack_free(LlmPack *p)
{
	if (p == NULL)
		return;
	llm_arena_fini(&p->arena);
	free(p);
}

/* One output row; the caller has made sure that there is room. */
static void
fill_output(LlmPack *p, int32_t item, int32_t row, uint8_t want)
{
	int32_t i = p->batch.n_out++;

	p->out_row[i] = row;
	p->want[i] = want;
	p->outputs[i] = (LlmPackOut){item, p->pos[row]};
}

static void
fill_item(LlmPack *p, int32_t item, const LlmPlanItem *it, bool logits, bool all_logits)
{
	const LlmSeq *seq = it->seq;
	int32_t stride = p->batch.table_stride;
	int32_t row = p->batch.n_rows;

	p->q_start[item] = row;
	p->kv_len[item] = it->begin + it->n;
	for (int g = 0; g < p->sizes.n_groups; g++)
	{
		int32_t *table = p->table[g] + (size_t) item * (size_t) stride;

		memcpy(table, seq->table[g], (size_t) seq->n_pages * sizeof(*table));
		memset(table + seq->n_pages, 0, (size_t) (stride - seq->n_pages) * sizeof(*table));
	}
	for (int32_t i = 0; i < it->n; i++, row++)
	{
		int32_t pos = it->begin + i;
		bool last = it->completes && i == it->n - 1;
		uint8_t want = 0;

		p->token[row] = seq->tokens.ids[pos];
		p->pos[row] = pos;
		p->phase[row] = pos < seq->n_prompt ? LLM_PHASE_PROMPT : LLM_PHASE_GENERATED;
		p->row_seq[row] = item;
		for (int g = 0; g < p->sizes.n_groups; g++)
			p->slot[g][row] =
				seq->table[g][pos / LLM_PAGE_TOKENS] * LLM_PAGE_TOKENS + pos % LLM_PAGE_TOKENS;
		if (last)
			want |= LLM_WANT_TOKEN;
		if (llm_seq_scores_at(seq, pos))
			want |= LLM_WANT_SCORE;
		if (all_logits || (last && logits))
			want |= LLM_WANT_LOGITS;
		if (want != 0)
			fill_output(p, item, row, want);
	}
	p->batch.n_rows = row;
}

const LlmBatch *
llm_pack_fill(LlmPack *p, const LlmPlan *plan, bool logits, bool all_logits)
{
	p->batch.n_rows = 0;
	p->batch.n_out = 0;
	p->batch.n_seqs = plan->n_items;
	for (int32_t i = 0; i < plan->n_items; i++)
		fill_item(p, i, &plan->items[i], logits, all_logits);
	p->q_start[plan->n_items] = p->batch.n_rows;
	return &p->batch;
}

const LlmPackOut *
llm_pack_outputs(const LlmPack *p)
{
	return p->outputs;
}
