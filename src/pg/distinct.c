/*
 * pg/distinct.c - the requests of running statements, by what they ask; see distinct.h.
 *
 * Holders may outlive the statement, for memory goes in any order at its end: so a statement's table
 * lives outside of the executor's memory, and goes when the statement has ended and nobody holds a
 * request of it.
 */
#include "postgres.h"

#include "pg/distinct.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pg/guc.h"
#include "pg/link.h"
#include "pg/running.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define REQUEST_NBYTES 2048 /* a request with short texts fits */

/* What is remembered of a statement. */
typedef struct Memory
{
	dlist_node node;                /* in memories, until the statement ends */
	EState *estate;                 /* NULL after that */
	MemoryContextCallback callback; /* of the statement's memory */
	MemoryContext cxt;              /* this struct, the table, and the requests' contexts */
	HTAB *table;                    /* hash -> Entry; at most one request per hash */
	dlist_head idle;                /* answered and not held, the least recently used first */
	Size idle_nbytes;
	int n_held; /* requests that somebody holds */
} Memory;

struct LlmDistinct
{
	MemoryContext cxt; /* this struct, the request and its answer */
	Memory *memory;
	uint64 hash;
	bool listed; /* in the table */
	int n_holders;
	dlist_node node; /* in idle, while n_holders is 0 */
	Size nbytes;     /* in idle_nbytes */
	LlmClientRequest req;
};

typedef struct Entry
{
	uint64 hash;
	LlmDistinct *d;
} Entry;

static dlist_head memories = DLIST_STATIC_INIT(memories);

/* ---- statements ---- */

static void unlist(LlmDistinct *d);

static void
forget(LlmDistinct *d)
{
	unlist(d);
	MemoryContextDelete(d->cxt);
}

static void
forget_idle(Memory *m, Size keep)
{
	while (m->idle_nbytes > keep)
	{
		LlmDistinct *d = dlist_container(LlmDistinct, node, dlist_pop_head_node(&m->idle));

		m->idle_nbytes -= d->nbytes;
		forget(d);
	}
}

static void
statement_ends(void *arg)
{
	Memory *m = arg;

	dlist_delete(&m->node);
	m->estate = NULL;
	forget_idle(m, 0);
	if (m->n_held == 0)
		MemoryContextDelete(m->cxt);
}

static Memory *
create_memory(EState *estate)
{
	MemoryContext cxt =
		AllocSetContextCreate(TopMemoryContext, "llm_infer statement", ALLOCSET_SMALL_SIZES);
	HASHCTL ctl = {.keysize = sizeof(uint64), .entrysize = sizeof(Entry), .hcxt = cxt};
	Memory *m = MemoryContextAllocZero(cxt, sizeof(Memory));

	m->cxt = cxt;
	m->estate = estate;
	dlist_init(&m->idle);
	m->table = hash_create("llm_infer requests", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	m->callback.func = statement_ends;
	m->callback.arg = m;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &m->callback);
	dlist_push_head(&memories, &m->node);
	return m;
}

static Memory *
memory_of(EState *estate)
{
	dlist_iter iter;

	dlist_foreach(iter, &memories)
	{
		Memory *m = dlist_container(Memory, node, iter.cur);

		if (m->estate == estate)
			return m;
	}
	return create_memory(estate);
}

/* ---- requests ---- */

LlmDistinctBytes
llm_distinct_bytes(const LlmModel *model, Llm__Submit submit)
{
	LlmDistinctBytes bytes;

	submit.id = 0;
	submit.model = 0;
	bytes.n = model->n_key + llm__submit__get_packed_size(&submit);
	bytes.data = MemoryContextAllocHuge(CurrentMemoryContext, bytes.n);
	memcpy(bytes.data, model->key, model->n_key);
	llm__submit__pack(&submit, bytes.data + model->n_key);
	return bytes;
}

/* The time that a request may take is part of it: another's failure by time is not one's own. */
static LlmDistinctBytes
key_of(const LlmClientRequest *req)
{
	Llm__Submit m = req->submit;

	m.has_timeout_ms = true;
	m.timeout_ms = req->timeout_ms;
	return llm_distinct_bytes(req->model, m);
}

static bool
has_key(const LlmDistinct *d, LlmDistinctBytes key)
{
	LlmDistinctBytes other = key_of(&d->req);
	bool same = other.n == key.n && memcmp(other.data, key.data, key.n) == 0;

	pfree(other.data);
	return same;
}

static void
unlist(LlmDistinct *d)
{
	if (d->listed)
		(void) hash_search(d->memory->table, &d->hash, HASH_REMOVE, NULL);
	d->listed = false;
}

/* A new request as req was filled in, which has this key. */
static LlmDistinct *
create_request(Memory *m, const LlmClientRequest *req, LlmDistinctBytes key, uint64 hash)
{
	MemoryContext cxt = AllocSetContextCreate(m->cxt, "llm_infer request", 0, REQUEST_NBYTES,
											  ALLOCSET_SMALL_MAXSIZE);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	ProtobufCAllocator alloc = llm_link_allocator(cxt);
	LlmDistinct *d = palloc0(sizeof(LlmDistinct));
	Llm__Submit *submit;
	Entry *entry;

	d->cxt = cxt;
	d->memory = m;
	d->hash = hash;
	d->req.cxt = cxt;
	d->req.kind = LLM_CLIENT_SUBMIT;
	d->req.model = req->model;
	llm_catalog_hold_model(req->model);
	d->req.timeout_ms = req->timeout_ms;
	submit = llm__submit__unpack(&alloc, key.n - req->model->n_key, key.data + req->model->n_key);
	d->req.submit = *submit;
	pfree(submit);
	MemoryContextSwitchTo(old);
	entry = hash_search(m->table, &hash, HASH_ENTER, NULL);
	entry->d = d;
	d->listed = true;
	return d;
}

/* Nobody shall hold it any more. */
static bool
has_failed(const LlmDistinct *d)
{
	return d->req.state == LLM_CLIENT_DEAD ||
		   (d->req.state == LLM_CLIENT_FINISHED && d->req.failure.sqlstate != 0);
}

LlmDistinct *
llm_distinct_hold(const LlmClientRequest *req, bool *first)
{
	EState *running = llm_running_plan();
	LlmDistinct *d = NULL;
	Memory *m;
	Entry *entry;
	LlmDistinctBytes key;
	uint64 hash;

	if (running == NULL || !llm_guc_enable_distinct)
		return NULL;
	key = key_of(req);
	if (key.n > INT_MAX)
		return NULL;
	m = memory_of(running);
	hash = hash_bytes_extended(key.data, (int) key.n, 0);
	entry = hash_search(m->table, &hash, HASH_FIND, NULL);
	if (entry != NULL)
		d = entry->d;
	if (d != NULL && has_failed(d))
	{
		/* it goes with its last holder */
		unlist(d);
		d = NULL;
	}
	/* two keys of one hash: the second one is on its own */
	if (d != NULL && !has_key(d, key))
		return NULL;
	*first = d == NULL;
	if (d == NULL)
		d = create_request(m, req, key, hash);
	else if (d->n_holders == 0)
	{
		dlist_delete(&d->node);
		m->idle_nbytes -= d->nbytes;
	}
	pfree(key.data);
	if (d->n_holders++ == 0)
		m->n_held++;
	return d;
}

LlmClientRequest *
llm_distinct_request(LlmDistinct *d)
{
	return &d->req;
}

Size
llm_distinct_nbytes(const LlmDistinct *d)
{
	return MemoryContextMemAllocated(d->cxt, true) / Max(d->n_holders, 1);
}

void
llm_distinct_release(LlmDistinct *d)
{
	Memory *m = d->memory;

	if (--d->n_holders > 0)
		return;
	m->n_held--;
	if (m->estate != NULL && d->listed && d->req.state == LLM_CLIENT_FINISHED && !has_failed(d))
	{
		d->nbytes = llm_distinct_nbytes(d);
		m->idle_nbytes += d->nbytes;
		dlist_push_tail(&m->idle, &d->node);
		forget_idle(m, get_hash_memory_limit() / 2);
		return;
	}
	llm_client_end(&d->req);
	forget(d);
	if (m->estate == NULL && m->n_held == 0)
		MemoryContextDelete(m->cxt);
}
