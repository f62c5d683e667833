/* sched/demand.c - what waiting sequences need of the prefix cache. */
#include "sched/demand.h"

#include "sched/hold.h"

typedef struct Demand
{
	LlmPrefix *p;
	const struct LlmShare *client; /* of the sequence before */
	int32_t n_client;              /* sequences of it so far */
	int32_t n;                     /* marked over all */
} Demand;

static void
see(void *arg, LlmSeq *seq)
{
	Demand *d = arg;
	LlmPrefixText text;

	if (seq->home != d->client)
		d->n_client = 0;
	d->client = seq->home;
	if (seq->fresh || d->n == LLM_DEMAND_SEQS || d->n_client == LLM_DEMAND_CLIENT_SEQS)
		return;
	d->n_client++;
	d->n++;
	text = llm_sched_hold_text(d->p, seq, (int32_t) seq->tokens.len);
	llm_kv_prefix_mark(d->p, &text);
}

void
llm_sched_demand_mark(LlmPrefix *p, const LlmSchedQueue *q)
{
	Demand d = {.p = p};

	llm_kv_prefix_marks_begin(p);
	if (llm_kv_prefix_on(p))
		llm_sched_queue_visit(q, see, &d);
}
