/*
 * pg/memo/memo_ring.h - the newest answers of the memo, in shared memory.
 *
 * A circular log of entries, each with its key, and buckets of keys. A place counts the bytes that were
 * ever written; what lies before `oldest` has been overwritten. A bucket has the place of its newest
 * entry, each entry that of the one before it in its bucket: a chain ends where it leads behind
 * `oldest`, so what is overwritten needs no removal.
 *
 * An entry is pending until its database's launcher has written it. A pending one is overwritten only
 * when it has waited so long that no launcher can be at work, and one database's may fill half of the
 * ring; what finds no room is lost, and counted. Entries of a standby are never pending.
 *
 * One LWLock guards all of it; it is held for copies, and for walks of bounded length.
 */
#ifndef LLM_PG_MEMO_MEMO_RING_H
#define LLM_PG_MEMO_MEMO_RING_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "pg/memo/memo.h"
#include "storage/lwlock.h"

/* Shared memory: its size, and its creation at startup, under AddinShmemInitLock. */
extern Size llm_memo_ring_nbytes(void);
extern void llm_memo_ring_startup(LWLock *lock);
/* False when there is no ring: nothing below may be called then. */
extern bool llm_memo_ring_available(void);

/* ---- anybody; for the database of this process ---- */

/* The answer of key, copied into cxt, which counts as a hit; false when it is not here. *last_use is the
 * latest time at which an entry of the key was made, 0 = there is none. */
extern bool llm_memo_ring_find(const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out,
							   TimestampTz *last_use);
/* Count a look-up that ended elsewhere. */
extern void llm_memo_ring_count(bool hit);

/* A launcher is woken that often, and looks that often while there is something. */
#define LLM_MEMO_WAKE_MS 100

/* Append an answer; NULL = the note that the key was used. Raises nothing. True when the launcher is to
 * be woken. */
extern bool llm_memo_ring_append(const LlmMemoKey *key, Oid server, Oid role,
								 const LlmMemoAnswer *answer);
/* Answers to these roles, which are in order, of these servers (NIL = of all) are not found any more; how
 * many of them no launcher has taken. */
extern int64 llm_memo_ring_forget(const List *servers, const Oid *roles, int n_roles);

/* What is counted of the database since `since`. */
typedef struct LlmMemoCounts
{
	int64 hits;
	int64 misses;
	int64 kept;
	int64 lost;    /* had no room, or were overwritten before they were written */
	int64 evicted; /* removed from the table for its size */
	int64 pending; /* now */
	TimestampTz since;
	TimestampTz paused; /* its launcher writes nothing before; 0 = it has never been so */
	TimestampTz made;   /* the last entry */
} LlmMemoCounts;

extern void llm_memo_ring_counts(LlmMemoCounts *out);

/* ---- the launcher of the database ---- */

#define LLM_MEMO_BATCH_MAX 256
#define LLM_MEMO_BATCH_NBYTES (1024 * 1024) /* and one entry more */

/* A pending entry. */
typedef struct LlmMemoItem
{
	uint64 place;
	LlmMemoKey key;
	Oid server;
	Oid role;
	TimestampTz made;
	bool has_answer;
	LlmMemoAnswer answer; /* of the batch's memory */
} LlmMemoItem;

typedef struct LlmMemoBatch
{
	int n;
	Size nbytes; /* of the entries */
	uint64 end;  /* no pending entry of the database lies before it but those of the batch */
	bool more;   /* there may be pending entries behind it */
	LlmMemoItem items[LLM_MEMO_BATCH_MAX];
} LlmMemoBatch;

/* Copy the oldest pending entries into the batch, and their texts into CurrentMemoryContext. */
extern void llm_memo_ring_collect(LlmMemoBatch *batch);
/* They are written and committed, and so many rows are removed: they are not pending any more. */
extern void llm_memo_ring_written(const LlmMemoBatch *batch, int64 evicted);
/* Write nothing for so long, and wake no launcher for it. */
extern void llm_memo_ring_pause(int ms);

#endif
