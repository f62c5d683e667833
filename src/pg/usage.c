/* pg/usage.c - the shared table of roles' usage; the lock note is in the header. */
#include "postgres.h"

#include "pg/usage.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#define JOBS_SHARE 10      /* a count of jobs holds for so many times what it took */
#define JOBS_CHEAP_US 5000 /* one that took less is made anew before anything is refused */

static LWLock *lock = NULL; /* guards the table and its entries */
static HTAB *table = NULL;

Size
llm_usage_nbytes(void)
{
	return hash_estimate_size(LLM_USAGE_MAX, sizeof(LlmUsage));
}

void
llm_usage_startup(LWLock *table_lock)
{
	HASHCTL ctl = {.keysize = sizeof(LlmUsageKey), .entrysize = sizeof(LlmUsage)};

	lock = table_lock;
	table = ShmemInitHash("llm_infer usage", LLM_USAGE_MAX, LLM_USAGE_MAX, &ctl,
						  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

static LlmUsage *
find(Oid role)
{
	LlmUsageKey key = {.database = MyDatabaseId, .role = role};

	return hash_search(table, &key, HASH_FIND, NULL);
}

/* Remove the idle entry that was used longest ago; false when every entry has requests in flight. */
static bool
make_room(void)
{
	HASH_SEQ_STATUS seq;
	LlmUsage *entry;
	LlmUsageKey victim = {0};
	TimestampTz oldest = DT_NOEND;

	hash_seq_init(&seq, table);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (entry->in_flight == 0 && entry->used < oldest)
		{
			victim = entry->key;
			oldest = entry->used;
		}
	}
	if (oldest == DT_NOEND)
		return false;
	hash_search(table, &victim, HASH_REMOVE, NULL);
	return true;
}

static LlmUsage *
find_or_enter(Oid role, TimestampTz now)
{
	LlmUsageKey key = {.database = MyDatabaseId, .role = role};
	LlmUsage *entry = find(role);

	if (entry != NULL)
		return entry;
	if (hash_get_num_entries(table) >= LLM_USAGE_MAX && !make_room())
		return NULL;
	entry = hash_search(table, &key, HASH_ENTER, NULL);
	memset(entry, 0, sizeof(*entry));
	entry->key = key;
	entry->period_start = now;
	return entry;
}

LlmUsage *
llm_usage_begin(Oid role, int32 max_in_flight)
{
	TimestampTz now = GetCurrentTimestamp();
	LlmUsage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_or_enter(role, now);
	if (entry != NULL && (max_in_flight == 0 || entry->in_flight < max_in_flight))
	{
		entry->in_flight++;
		entry->requests++;
		entry->used = now;
	}
	else
		entry = NULL;
	LWLockRelease(lock);
	return entry;
}

void
llm_usage_charge(LlmUsage *entry, int64 prompt, int64 cached, int64 generated)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry->prompt += prompt;
	entry->cached += cached;
	entry->generated += generated;
	entry->period_tokens += prompt + generated;
	LWLockRelease(lock);
}

void
llm_usage_end(LlmUsage *entry)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry->in_flight--;
	LWLockRelease(lock);
}

bool
llm_usage_find(Oid role, LlmUsage *out)
{
	const LlmUsage *entry;

	memset(out, 0, sizeof(*out));
	LWLockAcquire(lock, LW_SHARED);
	entry = find(role);
	if (entry != NULL)
		*out = *entry;
	LWLockRelease(lock);
	return entry != NULL;
}

void
llm_usage_begin_period(Oid role, TimestampTz before, TimestampTz now)
{
	LlmUsage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find(role);
	if (entry != NULL && entry->period_start <= before)
	{
		entry->period_start = now;
		entry->period_tokens = 0;
	}
	LWLockRelease(lock);
}

LlmUsage *
llm_usage_list(int *n)
{
	LlmUsage *list = palloc(sizeof(LlmUsage) * LLM_USAGE_MAX);
	HASH_SEQ_STATUS seq;
	const LlmUsage *entry;

	*n = 0;
	LWLockAcquire(lock, LW_SHARED);
	hash_seq_init(&seq, table);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (entry->key.database == MyDatabaseId)
			list[(*n)++] = *entry;
	}
	LWLockRelease(lock);
	return list;
}

LlmUsageJobs
llm_usage_take_jobs(Oid role, int64 n, int64 limit, int64 *jobs)
{
	LlmUsageJobs answer = LLM_USAGE_JOBS_UNKNOWN;
	LlmUsage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find(role);
	if (entry != NULL && GetCurrentTimestamp() < entry->jobs_until)
	{
		*jobs = entry->jobs;
		if (entry->jobs + n <= limit)
		{
			entry->jobs += n;
			answer = LLM_USAGE_JOBS_TAKEN;
		}
		else if (entry->jobs_cost_us >= JOBS_CHEAP_US)
			answer = LLM_USAGE_JOBS_FULL;
	}
	LWLockRelease(lock);
	return answer;
}

LlmUsageJobs
llm_usage_jobs_counted(Oid role, int64 n, int64 limit, int64 jobs, int64 cost_us)
{
	bool room = jobs + n <= limit;
	TimestampTz now = GetCurrentTimestamp();
	LlmUsage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_or_enter(role, now);
	if (entry != NULL)
	{
		entry->used = now;
		entry->jobs = room ? jobs + n : jobs;
		entry->jobs_cost_us = cost_us;
		entry->jobs_until = now + JOBS_SHARE * cost_us;
	}
	LWLockRelease(lock);
	return room ? LLM_USAGE_JOBS_TAKEN : LLM_USAGE_JOBS_FULL;
}
