/* engine/engine.c - life of an engine: options, the resident model, watching. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"

#define BATCH_TOKENS_MAX 8192
#define RUNNING_MAX 1024
#define THREADS_MAX 1024

int64_t
llm_engine_now(void)
{
	return llm_clock_ns() / 1000;
}

/* ---- options ---- */

LlmEngineOptions
llm_engine_options_default(void)
{
	return (LlmEngineOptions){.devices = "auto",
							  .max_batch_tokens = 512,
							  .max_running = 64,
							  .prefix_cache = true,
							  .single_flight = true};
}

static LlmStatus
check_range(const char *name, int64_t v, int64_t min, int64_t max, LlmError *err)
{
	if (v >= min && v <= max)
		return LLM_OK;
	llm_error_set(err, LLM_E_INVALID, "%s is %lld, not %lld to %lld", name, (long long) v,
				  (long long) min, (long long) max);
	llm_error_numbers(err, v, max);
	return LLM_E_INVALID;
}

static LlmStatus
check_options(const LlmEngineOptions *o, LlmError *err)
{
	LlmStatus st;

	if ((st = check_range("max_batch_tokens", o->max_batch_tokens, 1, BATCH_TOKENS_MAX, err)) ||
		(st = check_range("max_running", o->max_running, 1, RUNNING_MAX, err)) ||
		(st = check_range("threads", o->threads, 0, THREADS_MAX, err)) ||
		(st = check_range("kv_nbytes", o->kv_nbytes, 0, INT64_MAX, err)) ||
		(st = check_range("memory_limit", o->memory_limit, 0, INT64_MAX, err)))
		return st;
	return LLM_OK;
}

/* A copy of z in the arena; NULL stays NULL. *ok turns false when memory is out. */
static const char *
copy(LlmArena *a, const char *z, bool *ok)
{
	const char *c = z == NULL ? NULL : llm_arena_copy(a, z, strlen(z));

	*ok = *ok && (z == NULL || c != NULL);
	return c;
}

LlmStatus
llm_engine_create(const LlmEngineOptions *o, LlmEngineEvents events, LlmEngine **out, LlmError *err)
{
	LlmDeviceList devices;
	LlmEngine *e;
	bool ok = true;
	LlmStatus st;

	*out = NULL;
	if ((st = check_options(o, err)) != LLM_OK ||
		(st = llm_loader_devices(o->devices, &devices, err)) != LLM_OK)
		return st;
	if ((e = calloc(1, sizeof(*e))) == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the engine");
	e->o = *o;
	e->events = events;
	e->next_deadline = INT64_MAX;
	e->o.devices = copy(&e->strings, o->devices, &ok);
	e->o.isa = copy(&e->strings, o->isa, &ok);
	e->o.model_dir = copy(&e->strings, o->model_dir, &ok);
	e->o.fault = copy(&e->strings, o->fault, &ok);
	if (!ok)
	{
		llm_engine_free(e);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the engine");
	}
	*out = e;
	return LLM_OK;
}

/* The settings in force at once. The budget of a step: what they say, within the sizes of the load
 * (what goes beyond waits for the next one); when all rows give logits, also within the outputs that
 * the load made room for. */
static void
apply_limits(LlmEngine *e)
{
	int32_t rows = e->o.max_batch_tokens;

	if (!e->loaded)
		return;
	if (e->hook != NULL && e->all_positions && e->m.max_out < rows)
		rows = e->m.max_out;
	llm_sched_limits_set(e->sched, rows, e->o.max_running);
	llm_sched_prefix_set(e->sched, e->o.prefix_cache);
}

LlmStatus
llm_engine_settings(LlmEngine *e, const LlmEngineOptions *o, LlmError *err)
{
	LlmStatus st = check_options(o, err);

	if (st != LLM_OK)
		return st;
	e->o.max_batch_tokens = o->max_batch_tokens;
	e->o.max_running = o->max_running;
	e->o.kv_nbytes = o->kv_nbytes;
	e->o.memory_limit = o->memory_limit;
	e->o.memory_left = o->memory_left;
	e->o.threads = o->threads;
	e->o.prefix_cache = o->prefix_cache;
	e->o.single_flight = o->single_flight;
	apply_limits(e);
	return LLM_OK;
}

/* ---- the resident model ---- */

static void
count_progress(void *arg)
{
	LlmEngine *e = arg;

	atomic_fetch_add(&e->progress, 1);
}

static void
seq_retired(void *arg, LlmSeq *seq)
{
	llm_req_free(seq->owner);
}

/* Scheduler, packing and scratch for the sizes of the loaded model. */
static LlmStatus
step_memory_create(LlmEngine *e, LlmError *err)
{
	LlmLoaded *m = &e->m;
	LlmSchedOptions so = {.n_groups = m->store.n_groups,
						  .n_pages = m->store.n_pages,
						  .max_rows = m->max_rows,
						  .max_out = m->max_out,
						  .max_running = m->max_seqs,
						  .prefix_cache = e->o.prefix_cache,
						  .numerics = m->info.numerics_key,
						  .idle_limit = e->o.idle_pages,
						  .preempt_every = e->o.preempt_every,
						  .retired = seq_retired};
	LlmPackSizes ps = {m->max_rows, m->max_seqs, m->max_out, 0, m->store.n_groups};
	LlmStatus st = llm_sched_create(&so, &e->sched, err);

	if (st != LLM_OK)
		return st;
	ps.max_len = llm_sched_longest(e->sched);
	if (ps.max_len > m->info.context_length)
		ps.max_len = m->info.context_length;
	if ((st = llm_pack_create(&ps, &e->pack, err)) != LLM_OK)
		return st;
	e->rows = calloc((size_t) m->max_out, sizeof(*e->rows));
	e->outs = calloc((size_t) m->max_out, sizeof(*e->outs));
	e->keys = calloc((size_t) m->max_seqs, sizeof(*e->keys));
	e->keys_now = calloc((size_t) m->max_seqs, sizeof(*e->keys_now));
	if (e->rows == NULL || e->outs == NULL || e->keys == NULL || e->keys_now == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for steps of %d rows", m->max_rows);
	return LLM_OK;
}

/* Forget the model and what was sized for it. */
static void
model_forget(LlmEngine *e)
{
	if (e->sched != NULL)
		e->stats.preemptions += llm_sched_preemptions(e->sched);
	llm_sched_free(e->sched);
	llm_pack_free(e->pack);
	free(e->rows);
	free(e->outs);
	free(e->keys);
	free(e->keys_now);
	e->sched = NULL;
	e->pack = NULL;
	e->rows = NULL;
	e->outs = NULL;
	e->keys = e->keys_now = NULL;
	e->n_keys = 0;
	llm_loader_close(&e->m);
	e->loaded = false;
}

LlmStatus
llm_engine_load(LlmEngine *e, const LlmModelSpec *spec, LlmError *err)
{
	LlmLoaderArgs a = {&e->o, spec, e->hook != NULL && e->all_positions, count_progress, e};
	LlmStatus st;

	if (e->reqs.n > 0)
		return llm_error_set(err, LLM_E_BUSY, "%lld requests of the resident model are unfinished",
							 (long long) e->reqs.n);
	model_forget(e);
	if (spec->path == NULL || spec->path[0] == '\0')
		return llm_error_set(err, LLM_E_INVALID, "a model needs a path");
	if ((st = llm_loader_open(&a, &e->m, err)) != LLM_OK)
		return st;
	if ((st = step_memory_create(e, err)) != LLM_OK)
		model_forget(e);
	e->loaded = st == LLM_OK;
	count_progress(e);
	return st;
}

void
llm_engine_unload(LlmEngine *e)
{
	LlmError err;

	llm_error_set(&err, LLM_E_CANCELLED, "the model was unloaded");
	while (e->reqs.first != NULL)
		llm_engine_end(e, e->reqs.first, LLM_FINISH_CANCELLED, &err);
	model_forget(e);
}

void
llm_engine_free(LlmEngine *e)
{
	if (e == NULL)
		return;
	while (e->reqs.first != NULL)
		llm_engine_drop(e, e->reqs.first->askers, NULL);
	model_forget(e);
	llm_arena_fini(&e->strings);
	free(e);
}

bool
llm_engine_model(const LlmEngine *e, LlmModelInfo *out)
{
	if (e->loaded)
		*out = e->m.info;
	return e->loaded;
}

bool
llm_engine_file_changed(const LlmEngine *e)
{
	return e->loaded && e->m.path != NULL && !llm_file_is(e->o.model_dir, e->m.path, &e->m.file);
}

LlmStatus
llm_engine_needs(const LlmEngineOptions *o, const LlmModelSpec *spec, LlmModelNeeds *out,
				 LlmError *err)
{
	LlmStatus st = check_options(o, err);

	return st != LLM_OK ? st : llm_loader_needs(o, spec, out, err);
}

/* ---- watching ---- */

void
llm_engine_stats(const LlmEngine *e, LlmEngineStats *out)
{
	LlmPageCounts pages;
	LlmDeviceInfo device;

	*out = e->stats;
	if (!e->loaded)
		return;
	pages = llm_sched_pages(e->sched);
	device = e->m.dev->ops->info(e->m.dev);
	out->preemptions += llm_sched_preemptions(e->sched);
	out->kv_pages_total = pages.total;
	out->kv_pages_free = pages.free;
	out->kv_pages_cached = pages.cached;
	out->running = llm_sched_running(e->sched);
	out->waiting = llm_sched_waiting(e->sched);
	out->threads = device.n_threads;
	out->threads_used = device.n_used;
}

uint64_t
llm_engine_progress(const LlmEngine *e)
{
	return atomic_load(&e->progress);
}

bool
llm_engine_audit(const LlmEngine *e, LlmError *err)
{
	int32_t n_live = 0;
	int32_t n_reqs = 0;
	int64_t n_askers = 0;

	if (!e->loaded)
		return true;
	for (const LlmReq *r = e->reqs.first; r != NULL; r = r->next)
	{
		n_reqs++;
		n_live += r->seq.state == LLM_SEQ_WAITING || r->seq.state == LLM_SEQ_RUNNING;
		for (const LlmAsker *a = r->askers; a != NULL; a = a->next)
			n_askers += a->req == r && llm_req_find(&e->reqs, a->key) == a;
		if (r->askers == NULL || r->seq.client != r->askers->key.client ||
			(r->name.len > 0 && llm_flight_find(&e->flights, r) != r))
		{
			llm_error_set(err, LLM_E_INTERNAL, "a request is with the wrong client, or lost");
			return false;
		}
	}
	if (n_live != n_reqs || n_askers != e->reqs.n ||
		n_live != llm_sched_running(e->sched) + llm_sched_waiting(e->sched))
	{
		llm_error_set(err, LLM_E_INTERNAL, "%lld askers of %d requests, but %d sequences",
					  (long long) e->reqs.n, n_reqs, n_live);
		return false;
	}
	return llm_sched_audit(e->sched, err);
}

void
llm_engine_logits_hook(LlmEngine *e, LlmLogitsHook hook, void *arg, bool all_positions)
{
	e->hook = hook;
	e->hook_arg = arg;
	e->all_positions = all_positions;
	apply_limits(e);
}

int
llm_engine_op_stats(LlmEngine *e, LlmEngineOpStat *out, int n, bool reset)
{
	LlmOpStat stats[32];
	int n_stats;

	if (!e->loaded || e->m.dev->ops->op_stats == NULL)
		return 0;
	n = n < (int) (sizeof(stats) / sizeof(stats[0])) ? n : (int) (sizeof(stats) / sizeof(stats[0]));
	n_stats = e->m.dev->ops->op_stats(e->m.dev, stats, n, reset);
	for (int i = 0; i < n_stats; i++)
	{
		LlmEngineOpStat *o = &out[i];

		memset(o, 0, sizeof(*o));
		snprintf(o->name, sizeof(o->name), "%s", stats[i].name);
		o->calls = stats[i].calls;
		o->seconds = stats[i].seconds;
		o->waited = stats[i].waited;
		o->nbytes = stats[i].nbytes;
		o->ops = stats[i].ops;
	}
	return n_stats;
}

void
llm_engine_op_times(LlmEngine *e, bool on)
{
	if (e->loaded && e->m.dev->ops->op_times != NULL)
		e->m.dev->ops->op_times(e->m.dev, on);
}

void
llm_engine_measure(LlmEngine *e, double seconds, LlmMachineLimits *out)
{
	llm_loader_measure(&e->m, e->o.threads, seconds, out);
}
