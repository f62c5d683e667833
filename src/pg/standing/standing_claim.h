/* pg/standing/standing_claim.h - a worker's enrichment, its transactions, and where its rows come from. */
#ifndef LLM_PG_STANDING_STANDING_CLAIM_H
#define LLM_PG_STANDING_STANDING_CLAIM_H

#include "postgres.h"

#include "pg/enrich/enrich_rows.h"
#include "pg/owned.h"
#include "pg/standing/standing_queue.h"

#define LLM_STANDING_LATE_MS 500 /* before another look at rows that somebody else has */

typedef struct LlmStanding
{
	int64 id;
	TransactionId version; /* of the definition that was read */
	Oid key;               /* the constraint: the SQL has its columns */
	bool over;             /* it is not that any more: to end */
	LlmEnrich e;           /* its list is the backfill's */

	bool queue_more; /* there may be entries that are due */
	bool queue_last; /* the last claim was of the queue: it is the backfill's turn */
	LlmStandingPlace place;
	LlmOwnedStatement find; /* of standing_keys.h */

	bool backfill;        /* there may be rows without a value */
	bool in_pass;         /* the list was made, and may have places left */
	int64 n_found;        /* rows in work out of it */
	int n_vain;           /* passes in which there were rows, and none of them could be had */
	TimestampTz pass_due; /* of the next one; 0 = now */
} LlmStanding;

/* Begin a transaction, with its locks: RowExclusiveLock on the table. False when it cannot be had now, after a
 * short sleep, or when it is over. The current context is that of the transaction's work. */
extern bool llm_standing_begin(LlmStanding *s, const char *activity);
extern void llm_standing_end(LlmStanding *s);

/* Claim rows, if there is room, of the queue and of the backfill in turn. True when some were found. */
extern bool llm_standing_claim(LlmStanding *s);

#endif
