/* sched/demand.h - tell the prefix cache what waiting sequences need, so that it goes last. */
#ifndef LLM_SCHED_DEMAND_H
#define LLM_SCHED_DEMAND_H

#include "kv/prefix.h"
#include "sched/queue.h"

/* Mark anew what the first sequences of each client would find now: at most LLM_DEMAND_SEQS over all,
 * LLM_DEMAND_CLIENT_SEQS of a client. */
#define LLM_DEMAND_SEQS 256
#define LLM_DEMAND_CLIENT_SEQS 64
void llm_sched_demand_mark(LlmPrefix *p, const LlmSchedQueue *q);

#endif
