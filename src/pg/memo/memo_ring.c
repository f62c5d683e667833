/* pg/memo/memo_ring.c - the log in shared memory; protocol and lock note are in the header. */
#include "postgres.h"

#include "pg/memo/memo_ring.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pg/guc.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define BUCKET_NBYTES 64  /* of the ring, per bucket: most have one entry or none */
#define DATABASES_MAX 128 /* with counters at once */
#define STALE_MS 10000    /* pending for so long: no launcher is at work */
#define HURRY_MS 10       /* between two wakes of a launcher while much is pending */
#define WALK_ENTRIES 1024 /* while the lock is held */
#define FIRST_PLACE 8     /* so that 0 is overwritten from the beginning */

/* Of an entry. */
#define IS_PENDING 1
#define IS_FORGOTTEN 2
#define IS_FILLER 4 /* the ring's rest, too short for the next entry; nbytes and flags only */
#define HAS_ANSWER 8
#define HAS_REASONING 16
#define IS_TAKEN 32 /* pending, but in the table when the launcher's transaction commits */

typedef struct Entry
{
	uint32 nbytes; /* of the entry, MAXALIGNed */
	uint32 flags;
	uint64 before; /* place of the entry before it in its bucket */
	LlmMemoKey key;
	Oid database;
	Oid server;
	Oid role;
	int32 finish;
	TimestampTz made;
	uint64 numerics_key;
	int32 prompt_tokens;
	int32 completion_tokens;
	uint32 n_text;
	uint32 n_reasoning;
	char bytes[FLEXIBLE_ARRAY_MEMBER]; /* text, reasoning */
} Entry;

typedef struct Database
{
	Oid oid;            /* 0 = free */
	int64 n_pending;    /* entries, also those without an answer */
	int64 nbytes;       /* of them */
	uint64 scan;        /* no pending entry lies before it */
	TimestampTz woken;  /* its launcher, the last time */
	TimestampTz paused; /* it writes nothing before */
	TimestampTz made;   /* the last entry */
	TimestampTz since;  /* counts begin */
	int64 kept;
	int64 lost;
	int64 evicted;
	pg_atomic_uint64 hits; /* with the lock shared */
	pg_atomic_uint64 misses;
} Database;

typedef struct Ring
{
	LWLock *lock;
	Size size; /* of the log, constant like n_buckets */
	Size n_buckets;
	uint64 secret; /* so that nobody can ask for keys of one bucket */
	uint64 head;   /* place of the next entry */
	uint64 oldest; /* place of the oldest that is there */
	Database databases[DATABASES_MAX];
} Ring;

static Ring *ring = NULL;
static uint64 *buckets = NULL; /* [ring->n_buckets] places */
static char *entries = NULL;   /* [ring->size] */

static Size
log_nbytes(void)
{
	return MAXALIGN_DOWN((Size) llm_guc_memo_memory * 1024);
}

Size
llm_memo_ring_nbytes(void)
{
	Size n = log_nbytes();

	return n == 0 ? 0 : MAXALIGN(sizeof(Ring)) + n / BUCKET_NBYTES * sizeof(uint64) + n;
}

void
llm_memo_ring_startup(LWLock *lock)
{
	bool found;
	char *memory;

	if (log_nbytes() == 0)
		return;
	memory = ShmemInitStruct("llm_infer memo", llm_memo_ring_nbytes(), &found);
	ring = (Ring *) memory;
	buckets = (uint64 *) (memory + MAXALIGN(sizeof(Ring)));
	entries = (char *) (buckets + log_nbytes() / BUCKET_NBYTES);
	if (found)
		return;
	memset(memory, 0, entries - memory);
	ring->lock = lock;
	ring->size = log_nbytes();
	ring->n_buckets = ring->size / BUCKET_NBYTES;
	ring->head = ring->oldest = FIRST_PLACE;
	if (!pg_strong_random(&ring->secret, sizeof(ring->secret)))
		elog(ERROR, "could not generate random bytes");
	for (int i = 0; i < DATABASES_MAX; i++)
	{
		pg_atomic_init_u64(&ring->databases[i].hits, 0);
		pg_atomic_init_u64(&ring->databases[i].misses, 0);
	}
}

bool
llm_memo_ring_available(void)
{
	return ring != NULL;
}

/* ---- what lies where; the caller holds the lock ---- */

static Entry *
entry_at(uint64 place)
{
	return (Entry *) (entries + place % ring->size);
}

static uint64 *
bucket_of(const LlmMemoKey *key)
{
	uint64 hash = hash_bytes_extended(key->bytes, LLM_MEMO_KEY_NBYTES, ring->secret);

	return &buckets[hash % ring->n_buckets];
}

static Database *
find_database(Oid oid)
{
	for (int i = 0; i < DATABASES_MAX; i++)
		if (ring->databases[i].oid == oid)
			return &ring->databases[i];
	return NULL;
}

/* This process's; when there is no room, one without pending entries that was last used longest ago gives
 * way, and NULL when there is none. With the lock exclusive. */
static Database *
enter_database(void)
{
	Database *d = find_database(MyDatabaseId);

	if (d != NULL)
		return d;
	for (int i = 0; i < DATABASES_MAX; i++)
	{
		Database *other = &ring->databases[i];

		if (other->n_pending == 0 && (d == NULL || other->made < d->made))
			d = other;
	}
	if (d == NULL)
		return NULL;
	d->oid = MyDatabaseId;
	d->scan = ring->head;
	d->woken = d->paused = 0;
	d->made = d->since = GetCurrentTimestamp();
	d->kept = d->lost = d->evicted = 0;
	pg_atomic_write_u64(&d->hits, 0);
	pg_atomic_write_u64(&d->misses, 0);
	return d;
}

static bool
is_of_key(const Entry *e, const LlmMemoKey *key)
{
	return e->database == MyDatabaseId && !(e->flags & IS_FORGOTTEN) &&
		   memcmp(e->key.bytes, key->bytes, LLM_MEMO_KEY_NBYTES) == 0;
}

/* The answer of key, or NULL. */
static const Entry *
find(const LlmMemoKey *key, TimestampTz *last_use)
{
	*last_use = 0;
	for (uint64 place = *bucket_of(key); place >= ring->oldest; place = entry_at(place)->before)
	{
		const Entry *e = entry_at(place);

		if (!is_of_key(e, key))
			continue;
		*last_use = Max(*last_use, e->made);
		if (e->flags & HAS_ANSWER)
			return e;
	}
	return NULL;
}

static void
no_longer_pending(Entry *e, bool lost)
{
	Database *d;

	/* A filler has no database. */
	if (!(e->flags & IS_PENDING))
		return;
	d = find_database(e->database);
	e->flags &= ~IS_PENDING;
	d->n_pending--;
	d->nbytes -= e->nbytes;
	d->lost += lost && (e->flags & HAS_ANSWER);
}

/* Copy an entry's answer; its texts into cxt. */
static void
read_answer(const Entry *e, MemoryContext cxt, LlmMemoAnswer *out)
{
	char *bytes =
		MemoryContextAllocHuge(cxt, Max((Size) e->n_text + (Size) e->n_reasoning, (Size) 1));

	memcpy(bytes, e->bytes, (Size) e->n_text + e->n_reasoning);
	out->text = bytes;
	out->n_text = e->n_text;
	out->reasoning = e->flags & HAS_REASONING ? bytes + e->n_text : NULL;
	out->n_reasoning = e->n_reasoning;
	out->finish = e->finish;
	out->prompt_tokens = e->prompt_tokens;
	out->completion_tokens = e->completion_tokens;
	out->numerics_key = e->numerics_key;
}

/* ---- anybody ---- */

bool
llm_memo_ring_find(const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out,
				   TimestampTz *last_use)
{
	const Entry *e;
	Database *d;

	LWLockAcquire(ring->lock, LW_SHARED);
	e = find(key, last_use);
	if (e != NULL)
	{
		read_answer(e, cxt, out);
		d = find_database(MyDatabaseId);
		if (d != NULL)
			pg_atomic_fetch_add_u64(&d->hits, 1);
	}
	LWLockRelease(ring->lock);
	return e != NULL;
}

void
llm_memo_ring_count(bool hit)
{
	Database *d;

	LWLockAcquire(ring->lock, LW_SHARED);
	d = find_database(MyDatabaseId);
	if (d == NULL)
	{
		LWLockRelease(ring->lock);
		LWLockAcquire(ring->lock, LW_EXCLUSIVE);
		d = enter_database();
	}
	if (d != NULL)
		pg_atomic_fetch_add_u64(hit ? &d->hits : &d->misses, 1);
	LWLockRelease(ring->lock);
}

/* Overwrite the oldest entries until n bytes are free; false when one has to stay. */
static bool
make_room(Size n, TimestampTz now)
{
	while (ring->head + n - ring->oldest > ring->size)
	{
		Entry *e = entry_at(ring->oldest);

		if (e->flags & IS_PENDING && now < TimestampTzPlusMilliseconds(e->made, STALE_MS))
			return false;
		no_longer_pending(e, true);
		ring->oldest += e->nbytes;
	}
	return true;
}

/* Room for an entry of n bytes at the head, in one piece; NULL when there is none. */
static Entry *
reserve(Size n, TimestampTz now)
{
	Size rest = ring->size - ring->head % ring->size;

	if (rest >= n)
		return make_room(n, now) ? entry_at(ring->head) : NULL;
	if (!make_room(rest + n, now))
		return NULL;
	entry_at(ring->head)->nbytes = rest;
	entry_at(ring->head)->flags = IS_FILLER;
	ring->head += rest;
	return entry_at(ring->head);
}

static void
write_answer(Entry *e, const LlmMemoAnswer *answer)
{
	e->flags |= HAS_ANSWER | (answer->reasoning != NULL ? HAS_REASONING : 0);
	e->finish = answer->finish;
	e->prompt_tokens = answer->prompt_tokens;
	e->completion_tokens = answer->completion_tokens;
	e->numerics_key = answer->numerics_key;
	e->n_text = answer->n_text;
	e->n_reasoning = answer->n_reasoning;
	memcpy(e->bytes, answer->text, answer->n_text);
	if (answer->reasoning != NULL)
		memcpy(e->bytes + answer->n_text, answer->reasoning, answer->n_reasoning);
}

/* Put an entry of n bytes that is filled in at the head. */
static void
publish(Entry *e, Database *d)
{
	uint64 *bucket = bucket_of(&e->key);

	e->before = *bucket;
	*bucket = ring->head;
	ring->head += e->nbytes;
	d->made = e->made;
	d->kept += (e->flags & HAS_ANSWER) != 0;
	if (e->flags & IS_PENDING)
	{
		d->n_pending++;
		d->nbytes += e->nbytes;
	}
}

/* True when a launcher that was woken long enough ago is to be woken again. */
static bool
is_to_wake(Database *d, TimestampTz now)
{
	int ms = d->nbytes > (int64) ring->size / 8 ? HURRY_MS : LLM_MEMO_WAKE_MS;

	if (d->n_pending == 0 || now < d->paused || now < TimestampTzPlusMilliseconds(d->woken, ms))
		return false;
	d->woken = now;
	return true;
}

bool
llm_memo_ring_append(const LlmMemoKey *key, Oid server, Oid role, const LlmMemoAnswer *answer)
{
	bool pending = !RecoveryInProgress();
	TimestampTz now = GetCurrentTimestamp();
	Size n = MAXALIGN(offsetof(Entry, bytes) + (answer ? answer->n_text + answer->n_reasoning : 0));
	bool wake = false;
	TimestampTz last_use;
	Database *d;
	Entry *e;

	LWLockAcquire(ring->lock, LW_EXCLUSIVE);
	d = enter_database();
	if (d != NULL && (answer == NULL || find(key, &last_use) == NULL))
	{
		bool fits =
			n <= ring->size / 4 && (!pending || d->nbytes + (int64) n <= (int64) ring->size / 2);

		e = fits ? reserve(n, now) : NULL;
		if (e != NULL)
		{
			memset(e, 0, offsetof(Entry, bytes));
			e->nbytes = n;
			e->flags = pending ? IS_PENDING : 0;
			e->key = *key;
			e->database = MyDatabaseId;
			e->server = server;
			e->role = role;
			e->made = now;
			if (answer != NULL)
				write_answer(e, answer);
			publish(e, d);
		}
		else
			d->lost += answer != NULL;
		wake = is_to_wake(d, now);
	}
	LWLockRelease(ring->lock);
	return wake;
}

int64
llm_memo_ring_forget(const List *servers, const Oid *roles, int n_roles)
{
	uint64 place = 0;
	int64 n = 0;
	bool more = true;

	while (more)
	{
		LWLockAcquire(ring->lock, LW_EXCLUSIVE);
		place = Max(place, ring->oldest);
		for (int i = 0; i < WALK_ENTRIES && place < ring->head; i++)
		{
			Entry *e = entry_at(place);

			place += e->nbytes;
			if (!(e->flags & HAS_ANSWER) || (e->flags & IS_FORGOTTEN) ||
				e->database != MyDatabaseId ||
				(servers != NIL && !list_member_oid(servers, e->server)) ||
				bsearch(&e->role, roles, n_roles, sizeof(Oid), oid_cmp) == NULL)
				continue;
			n += (e->flags & (IS_PENDING | IS_TAKEN)) == IS_PENDING;
			no_longer_pending(e, false);
			e->flags |= IS_FORGOTTEN;
		}
		more = place < ring->head;
		LWLockRelease(ring->lock);
		CHECK_FOR_INTERRUPTS();
	}
	return n;
}

void
llm_memo_ring_counts(LlmMemoCounts *out)
{
	Database *d;

	memset(out, 0, sizeof(*out));
	LWLockAcquire(ring->lock, LW_SHARED);
	d = find_database(MyDatabaseId);
	if (d != NULL)
	{
		out->hits = pg_atomic_read_u64(&d->hits);
		out->misses = pg_atomic_read_u64(&d->misses);
		out->kept = d->kept;
		out->lost = d->lost;
		out->evicted = d->evicted;
		out->pending = d->n_pending;
		out->since = d->since;
		out->paused = d->paused;
		out->made = d->made;
	}
	LWLockRelease(ring->lock);
}

/* ---- the launcher ---- */

static void
take(LlmMemoBatch *batch, uint64 place)
{
	Entry *e = entry_at(place);
	LlmMemoItem *item = &batch->items[batch->n++];

	e->flags |= IS_TAKEN;
	item->place = place;
	item->key = e->key;
	item->server = e->server;
	item->role = e->role;
	item->made = e->made;
	item->has_answer = (e->flags & HAS_ANSWER) != 0;
	if (item->has_answer)
		read_answer(e, CurrentMemoryContext, &item->answer);
	batch->nbytes += e->nbytes;
}

void
llm_memo_ring_collect(LlmMemoBatch *batch)
{
	bool room = true;
	Database *d;

	memset(batch, 0, offsetof(LlmMemoBatch, items));
	do
	{
		LWLockAcquire(ring->lock, LW_EXCLUSIVE);
		d = find_database(MyDatabaseId);
		if (d != NULL)
			batch->end = Max(Max(batch->end, d->scan), ring->oldest);
		for (int i = 0; d != NULL && i < WALK_ENTRIES && room && batch->end < ring->head; i++)
		{
			const Entry *e = entry_at(batch->end);

			if (e->flags & IS_PENDING && e->database == MyDatabaseId)
				take(batch, batch->end);
			batch->end += e->nbytes;
			room = batch->n < LLM_MEMO_BATCH_MAX && batch->nbytes < LLM_MEMO_BATCH_NBYTES;
		}
		batch->more = d != NULL && batch->end < ring->head;
		LWLockRelease(ring->lock);
	} while (room && batch->more);
}

void
llm_memo_ring_written(const LlmMemoBatch *batch, int64 evicted)
{
	Database *d;

	LWLockAcquire(ring->lock, LW_EXCLUSIVE);
	for (int i = 0; i < batch->n; i++)
		if (batch->items[i].place >= ring->oldest)
			no_longer_pending(entry_at(batch->items[i].place), false);
	d = find_database(MyDatabaseId);
	if (d != NULL)
	{
		d->scan = Max(d->scan, batch->end);
		d->evicted += evicted;
	}
	LWLockRelease(ring->lock);
}

void
llm_memo_ring_pause(int ms)
{
	Database *d;

	LWLockAcquire(ring->lock, LW_EXCLUSIVE);
	d = find_database(MyDatabaseId);
	if (d != NULL)
		d->paused = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms);
	LWLockRelease(ring->lock);
}
