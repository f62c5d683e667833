/*
 * sched/seq.h - a sequence: a request's tokens as the scheduler sees them.
 *
 * The token list is the only truth: what is computed, which pages are held, and where the sequence
 * queues can be thrown away and made again from it. Memory is the owner's; the scheduler links
 * sequences into its queues between llm_sched_submit and the `retired` callback.
 */
#ifndef LLM_SCHED_SEQ_H
#define LLM_SCHED_SEQ_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"
#include "kv/prefix.h"
#include "tensor/kv_spec.h"

typedef enum LlmSeqState
{
	LLM_SEQ_NEW = 0,     /* not with the scheduler */
	LLM_SEQ_WAITING = 1, /* queued; holds no page */
	LLM_SEQ_RUNNING = 2, /* holds pages for all its known tokens */
	LLM_SEQ_DONE = 3     /* removed; holds pages only while in_flight > 0 */
} LlmSeqState;

typedef struct LlmSeq
{
	LlmTokens tokens;    /* prompt, then generated; cap >= max_len, so it never moves in a step */
	int32_t n_prompt;    /* of tokens */
	int32_t max_len;     /* tokens.len never exceeds it */
	int32_t n_computed;  /* tokens whose KV is stored, or will be by the step in flight */
	uint64_t tenant;     /* fair shares go over tenants, */
	uint64_t client;     /* and over the clients of each */
	int32_t priority;    /* higher first */
	bool fresh;          /* cached pages are not read (they are entered all the same) */
	bool scores;         /* each prompt row but the last gives an output (llm_seq_scores_at); a
							  position found in the cache gives none, so set fresh too */
	uint64_t salt;       /* who may share cached pages with it */
	bool alone;          /* no other sequence in the batch */
	LlmSeqState state;   /* scheduler's, as are all below */
	int32_t in_flight;   /* submitted steps that refer to the pages */
	int32_t n_preempted; /* times */
	bool stepped;        /* finished its known tokens at least once since its admission */
	int32_t n_scored;    /* prompt positions whose output was given: none is given twice */
	int32_t n_charged;   /* positions up to here are paid for or were free */
	int32_t n_stored;    /* tokens whose KV is stored: n_computed without the step in flight */
	int32_t n_cached;    /* tokens found in the cache before its first token */
	int32_t n_copied;    /* of them copied out of another sequence's page */
	int32_t n_entered;   /* pages from the first on that are full entries of the cache */
	int32_t n_hashed;    /* full pages whose hash is known */
	bool spoiled;        /* set by the owner before llm_sched_done: what the step stored must not be
							entered, and the owner removes the sequence */
	uint64_t arrival;    /* order of submission, from 1 */
	uint64_t ticket;     /* order of first admission, from 1; 0 = never admitted */
	int32_t n_pages;     /* pages held, the same in every group */
	int32_t n_promised;  /* pages that it will hold when its known tokens are computed */
	int32_t cap_pages;   /* room in each table */
	int32_t n_groups;    /* tables */
	int32_t *table[LLM_KV_GROUPS_MAX]; /* [cap_pages] page ids; owned */
	LlmPageHash *hashes;               /* [cap_pages] of the full pages; owned */
	struct LlmShare *home;             /* its client's share, see sched/queue.h */
	struct LlmSeq *prev, *next;        /* beside others that wait */
	void *owner;                       /* not the scheduler's */
} LlmSeq;

/* Pages that n tokens take. */
static inline int32_t
llm_seq_pages(int32_t n)
{
	return (n + LLM_PAGE_TOKENS - 1) / LLM_PAGE_TOKENS;
}

/* True when the row at pos gives the score of the prompt's token after it. */
static inline bool
llm_seq_scores_at(const LlmSeq *s, int32_t pos)
{
	return s->scores && pos >= s->n_scored && pos < s->n_prompt - 1;
}

/* An empty sequence with room for max_len tokens and their pages; fields set by the caller
 * afterwards: tokens, n_prompt, tenant, client, priority, fresh, scores, salt, alone, owner.
 * LLM_E_MEMORY. */
LlmStatus llm_seq_init(LlmSeq *s, int32_t max_len, int32_t n_groups, LlmError *err);
/* Frees the sequence's memory; it must hold no page. */
void llm_seq_fini(LlmSeq *s);

#endif
