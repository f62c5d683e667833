/* pg/memo/memo.c - ring and table together: what the others see of the memo. */
#include "postgres.h"

#include "pg/memo/memo.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pg/guc.h"
#include "pg/memo/memo_ring.h"
#include "pg/memo/memo_table.h"
#include "pg/subxact.h"
#include "pg/workers.h"
#include "utils/timestamp.h"

/* A use is written down when the last one is so long ago: the order in which entries are removed needs
 * no more, and a hit costs no write. */
#define USE_MS (3600 * 1000)
#define RETRY_MS 500     /* while others have the table locked */
#define FAILED_MS 60000  /* after an error */
#define STAYS_MS 600000  /* how long a launcher stays for what could not be written */
#define AWAITED_MS 60000 /* how long one is started again where the extension is missing */

bool
llm_memo_enabled(void)
{
	return llm_guc_memo && llm_memo_ring_available();
}

static void
append(const LlmMemoKey *key, Oid server, Oid role, const LlmMemoAnswer *answer)
{
	if (llm_memo_ring_append(key, server, role, answer))
		(void) llm_workers_wake(MyDatabaseId, InvalidOid, 0);
}

bool
llm_memo_find(const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out)
{
	TimestampTz last_use;
	TimestampTz used;
	bool found = llm_memo_ring_find(key, cxt, out, &last_use);

	if (!found)
	{
		found = llm_memo_table_find(key, cxt, out, &used);
		llm_memo_ring_count(found);
		if (found)
			last_use = Max(last_use, used);
	}
	if (found && !RecoveryInProgress() &&
		GetCurrentTimestamp() >= TimestampTzPlusMilliseconds(last_use, USE_MS))
		append(key, InvalidOid, InvalidOid, NULL);
	return found;
}

void
llm_memo_keep(const LlmMemoKey *key, Oid server, Oid role, const LlmMemoAnswer *answer)
{
	append(key, server, role, answer);
}

/* ---- the launcher ---- */

/* What the transaction has written; see llm_memo_flushed. */
static LlmMemoBatch batch;
static int64 evicted;

/* One batch, and what its size asks for; *(bool *) arg: there is more to do. */
static void
write_batch(void *arg)
{
	int64 limit = (int64) llm_guc_memo_size * 1024;
	LlmMemoSize size;

	llm_memo_ring_collect(&batch);
	size = llm_memo_table_write(&batch);
	if (size.nbytes > limit)
		evicted = llm_memo_table_evict(&size, limit);
	*(bool *) arg = llm_memo_table_tidy() || batch.more || evicted > 0;
}

/* Something is pending, the last of it not for longer than that. */
static bool
waits(const LlmMemoCounts *counts, int ms)
{
	return counts->pending > 0 &&
		   GetCurrentTimestamp() < TimestampTzPlusMilliseconds(counts->made, ms);
}

bool
llm_memo_waits(void)
{
	LlmMemoCounts counts;

	if (!llm_memo_ring_available())
		return false;
	llm_memo_ring_counts(&counts);
	return waits(&counts, AWAITED_MS);
}

long
llm_memo_flush(void)
{
	static bool again = true;
	TimestampTz now = GetCurrentTimestamp();
	LlmMemoCounts counts;
	ErrorData *error;

	memset(&batch, 0, offsetof(LlmMemoBatch, items));
	evicted = 0;
	if (!llm_memo_ring_available())
		return -1;
	llm_memo_ring_counts(&counts);
	if (counts.pending == 0 && !again)
		return -1;
	if (now < counts.paused)
		return waits(&counts, STAYS_MS) ? TimestampDifferenceMilliseconds(now, counts.paused) + 1
										: -1;
	/* The lock comes before the copies: see llm_memo_forget. Only for an answer a launcher stays. */
	if (!llm_memo_table_lock())
		return counts.pending > 0 ? RETRY_MS : -1;
	error = llm_subxact_try_all(write_batch, &again);
	if (error != NULL)
	{
		/* An error of the table's must not end the launcher, which jobs need. */
		error->elevel = LOG;
		ThrowErrorData(error);
		memset(&batch, 0, offsetof(LlmMemoBatch, items));
		evicted = 0;
		llm_memo_ring_pause(FAILED_MS);
		return waits(&counts, STAYS_MS) ? FAILED_MS : -1;
	}
	return again ? 1 : counts.pending > 0 ? LLM_MEMO_WAKE_MS : -1;
}

void
llm_memo_flushed(void)
{
	if (batch.end > 0 || evicted > 0)
		llm_memo_ring_written(&batch, evicted);
}
