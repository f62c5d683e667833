/*
 * pg/distinct.h - once per distinct input: requests that calls of one statement share.
 *
 * A statement is one execution of one plan (an EState): its SELECT list, WHERE, and what functions
 * that it calls ask without a statement of their own. A request whose answer is a function of it
 * (greedy or seeded) is looked for among the statement's former ones, by all that the answer depends
 * on, compared byte by byte; the one that is there answers again. Those in flight are held by the
 * calls that wait for them; answered ones are kept up to half of what a hash table may take (work_mem
 * times hash_mem_multiplier), those used longest ago go first. A failure answers the calls that
 * waited for it together; later ones ask again.
 */
#ifndef LLM_PG_DISTINCT_H
#define LLM_PG_DISTINCT_H

#include "postgres.h"

#include "pg/client.h"

typedef struct LlmDistinct LlmDistinct; /* a shared request; memory of its own */

/* All that an answer depends on, and all else that submit has; palloc'd. */
typedef struct LlmDistinctBytes
{
	uint8 *data;
	Size n;
} LlmDistinctBytes;

/* The bytes of a request to model: equal for equal ones, whatever numbers they have. */
extern LlmDistinctBytes llm_distinct_bytes(const LlmModel *model, Llm__Submit submit);

/* The shared request that does what req (filled in, not begun) asks for; req is copied when there is
 * none yet, and *first is true. NULL when nothing is shared: no plan runs, or the setting is off. */
extern LlmDistinct *llm_distinct_hold(const LlmClientRequest *req, bool *first);

/* Its request; whoever holds it may begin it and wait for it. */
extern LlmClientRequest *llm_distinct_request(LlmDistinct *d);

/* Bytes that it takes, of each of its holders. */
extern Size llm_distinct_nbytes(const LlmDistinct *d);

/* One holder less; the last one's cancels what is unanswered. Also from reset callbacks. */
extern void llm_distinct_release(LlmDistinct *d);

#endif
