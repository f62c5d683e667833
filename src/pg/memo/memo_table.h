/*
 * pg/memo/memo_table.h - llm.memo_entries: the answers that outlive the ring.
 *
 * Only the launcher of the database adds rows; anybody may remove their own. How many rows there are and
 * what they take is the sum of llm.memo_sizes: one row of the launcher's, which it keeps up to date, and
 * those that removals by others leave for it to add up, so that nobody waits for anybody.
 */
#ifndef LLM_PG_MEMO_MEMO_TABLE_H
#define LLM_PG_MEMO_MEMO_TABLE_H

#include "postgres.h"

#include "pg/memo/memo_ring.h"

/* The answer of key as it is committed now, copied into cxt; false when there is none, or when the table
 * is locked by others, which is not waited for. *used is when its use was written down last. Needs a
 * transaction, takes a snapshot only where none is active. */
extern bool llm_memo_table_find(const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out,
								TimestampTz *used);

/* ---- the launcher's, in a transaction with a snapshot ---- */

/* All rows, and their bytes. */
typedef struct LlmMemoSize
{
	int64 entries;
	int64 nbytes;
} LlmMemoSize;

/* Lock it for writing, till the end of the transaction; false when others have it locked, or it is not
 * there. */
extern bool llm_memo_table_lock(void);
/* Write a batch: answers that are not there yet, and uses. What there is then. */
extern LlmMemoSize llm_memo_table_write(const LlmMemoBatch *batch);
/* Remove rows that were not used for longest, as size is above the limit, but not many at once: how
 * many. */
extern int64 llm_memo_table_evict(const LlmMemoSize *size, int64 limit);
/* Once a minute, remove rows of a model or a role that is gone; true when there may be more. */
extern bool llm_memo_table_tidy(void);

/* ---- anybody's ---- */

/* Wait for the launcher's transaction, which is short: what it has taken from the ring is in the table. */
extern void llm_memo_table_wait_writer(void);
/* Roles whose entries are the user's own, in order: [*n] in CurrentMemoryContext. */
extern Oid *llm_memo_table_roles(Oid user, int *n);
/* Remove what roles have asked of servers, NIL = of all, as it is committed now: how many rows. */
extern int64 llm_memo_table_forget(const List *servers, const Oid *roles, int n_roles);

#endif
