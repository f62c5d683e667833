/* server/residents.c - opening, closing, choosing and counting resident models. */
#include "server/residents.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"

#define FILE_CHECK_MS 1000 /* between two looks at a model's file */

LlmResident *
llm_residents_find(const LlmResidents *rs, const LlmSpec *spec)
{
	for (int32_t i = 0; i < rs->n; i++)
		if (llm_spec_equal(rs->at[i]->spec, spec))
			return rs->at[i];
	return NULL;
}

bool
llm_resident_busy(const LlmResident *r)
{
	return r->n_admitted > 0 || r->working;
}

int64_t
llm_residents_nbytes(const LlmResidents *rs)
{
	int64_t nbytes = 0;

	for (int32_t i = 0; i < rs->n; i++)
		nbytes += rs->at[i]->nbytes;
	return nbytes;
}

/* ---- opening and closing ---- */

static void
resident_free(LlmResidents *rs, LlmResident *r)
{
	llm_exchange_forget_engine(rs->exchange, r->engine);
	llm_engine_free(r->engine);
	llm_spec_release(r->spec);
	free(r);
}

LlmStatus
llm_residents_open(LlmResidents *rs, LlmSpec *spec, const LlmEngineOptions *o,
				   LlmEngineEvents events, LlmResident **out, LlmError *err)
{
	LlmResident *r = calloc(1, sizeof(*r));
	LlmStatus st;

	*out = NULL;
	if (r == NULL || rs->n == LLM_RESIDENTS_MAX)
	{
		free(r);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for another model");
	}
	r->spec = llm_spec_retain(spec);
	r->options = *o;
	r->options.memory_left = rs->limit - llm_residents_nbytes(rs);
	st = llm_engine_create(&r->options, events, &r->engine, err);
	if (st == LLM_OK)
	{
		llm_exchange_show_engine(rs->exchange, r->engine);
		st = llm_engine_load(r->engine, &spec->spec, err);
	}
	if (st != LLM_OK)
	{
		resident_free(rs, r);
		return st;
	}
	llm_engine_model(r->engine, &r->model);
	r->nbytes = r->model.device_nbytes + r->model.kv_pages * r->model.kv_page_nbytes;
	r->used_ms = r->checked_ms = llm_clock_ms();
	rs->at[rs->n++] = r;
	*out = r;
	return LLM_OK;
}

static void
counters_add(LlmEngineStats *to, const LlmEngineStats *s)
{
	to->steps += s->steps;
	to->prompt_tokens += s->prompt_tokens;
	to->cached_tokens += s->cached_tokens;
	to->generated_tokens += s->generated_tokens;
	to->preemptions += s->preemptions;
	to->requests += s->requests;
	to->errors += s->errors;
	to->shared += s->shared;
	to->copied += s->copied;
}

void
llm_residents_close(LlmResidents *rs, LlmResident *r)
{
	LlmEngineStats s;
	int32_t i = 0;

	llm_engine_stats(r->engine, &s);
	counters_add(&rs->gone, &s);
	while (rs->at[i] != r)
		i++;
	rs->n--;
	memmove(&rs->at[i], &rs->at[i + 1], (size_t) (rs->n - i) * sizeof(rs->at[0]));
	llm_log(LLM_LOG_INFO, "model \"%s\" unloaded: %lld bytes are free again", r->spec->spec.path,
			(long long) r->nbytes);
	resident_free(rs, r);
}

void
llm_residents_fini(LlmResidents *rs)
{
	while (rs->n > 0)
		resident_free(rs, rs->at[--rs->n]);
}

/* ---- room ---- */

/* Least recently used of those that are busy, or idle, and do not leave yet; NULL = none. */
static LlmResident *
oldest_staying(const LlmResidents *rs, bool busy)
{
	LlmResident *found = NULL;

	for (int32_t i = 0; i < rs->n; i++)
	{
		LlmResident *r = rs->at[i];

		if (llm_resident_busy(r) == busy && !r->leaving &&
			(found == NULL || r->used_ms < found->used_ms))
			found = r;
	}
	return found;
}

/* Most recently used of those that leave; NULL = none. */
static LlmResident *
newest_leaving(const LlmResidents *rs)
{
	LlmResident *found = NULL;

	for (int32_t i = 0; i < rs->n; i++)
		if (rs->at[i]->leaving && (found == NULL || rs->at[i]->used_ms > found->used_ms))
			found = rs->at[i];
	return found;
}

void
llm_residents_keep(LlmResidents *rs)
{
	for (int32_t i = 0; i < rs->n; i++)
		rs->at[i]->leaving = false;
}

/* Close the idle ones that leave. True when nobody else does. */
static bool
close_leaving(LlmResidents *rs)
{
	bool all = true;

	for (int32_t i = rs->n - 1; i >= 0; i--)
	{
		LlmResident *r = rs->at[i];

		if (r->leaving && llm_resident_busy(r))
			all = false;
		else if (r->leaving)
			llm_residents_close(rs, r);
	}
	return all;
}

bool
llm_residents_make_room(LlmResidents *rs, int64_t nbytes)
{
	int64_t used = llm_residents_nbytes(rs);
	int32_t n = rs->n;
	LlmResident *r;

	llm_residents_keep(rs);
	while (n == LLM_RESIDENTS_MAX || used + nbytes > rs->limit)
	{
		r = oldest_staying(rs, false);
		if (r == NULL)
			r = oldest_staying(rs, true);
		if (r == NULL)
			break; /* alone, it takes what the limit leaves */
		r->leaving = true;
		used -= r->nbytes;
		n--;
	}
	/* The last one may have made small ones go for nothing. */
	while (n < LLM_RESIDENTS_MAX - 1 && (r = newest_leaving(rs)) != NULL &&
		   used + nbytes + r->nbytes <= rs->limit)
	{
		r->leaving = false;
		used += r->nbytes;
		n++;
	}
	return close_leaving(rs);
}

void
llm_residents_tidy(LlmResidents *rs)
{
	for (int32_t i = rs->n - 1; i >= 0; i--)
		if (rs->at[i]->outdated && !llm_resident_busy(rs->at[i]))
			llm_residents_close(rs, rs->at[i]);
}

/* Whether a load would make room for something else now. */
static bool
sizes_differ(const LlmEngineOptions *loaded, const LlmEngineOptions *o)
{
	return loaded->kv_nbytes != o->kv_nbytes || loaded->threads != o->threads ||
		   loaded->max_running < o->max_running || loaded->max_batch_tokens < o->max_batch_tokens;
}

void
llm_residents_settings(LlmResidents *rs, const LlmEngineOptions *o, int64_t limit)
{
	int64_t over;
	LlmResident *r;
	LlmError e;

	rs->limit = limit;
	for (int32_t i = 0; i < rs->n; i++)
	{
		r = rs->at[i];
		if (llm_engine_settings(r->engine, o, &e) != LLM_OK)
			llm_log(LLM_LOG_WARNING, "new settings are not in force: %s", e.text);
		r->outdated = sizes_differ(&r->options, o);
	}
	llm_residents_tidy(rs);
	llm_residents_keep(rs);
	while (llm_residents_nbytes(rs) > limit && (r = oldest_staying(rs, false)) != NULL)
		llm_residents_close(rs, r);
	over = llm_residents_nbytes(rs) - limit;
	for (int32_t i = 0; i < rs->n && over > 0; i++)
	{
		rs->at[i]->outdated = true;
		over -= rs->at[i]->nbytes;
	}
}

bool
llm_resident_open_for_tickets(LlmResident *r, int64_t now_ms, bool look)
{
	if (!r->stale && (look || now_ms - r->checked_ms >= FILE_CHECK_MS))
	{
		r->checked_ms = now_ms;
		r->stale = llm_engine_file_changed(r->engine);
		if (r->stale)
			llm_log(LLM_LOG_INFO,
					"model file \"%s\" is gone or was replaced: %d requests end with the former "
					"weights, then it is loaded again",
					r->spec->spec.path, r->n_admitted);
	}
	return !r->stale && !r->leaving;
}

/* ---- turns and sums ---- */

LlmResident *
llm_residents_next(LlmResidents *rs)
{
	for (int32_t i = 0; i < rs->n; i++)
	{
		int32_t at = (rs->turn + i) % rs->n;

		if (rs->at[at]->working)
		{
			rs->turn = at + 1;
			return rs->at[at];
		}
	}
	return NULL;
}

void
llm_residents_stats(const LlmResidents *rs, LlmServerStats *s)
{
	s->engine = rs->gone;
	s->memory_nbytes = llm_residents_nbytes(rs);
	s->memory_limit = rs->limit;
	for (int32_t i = 0; i < rs->n; i++)
	{
		const LlmResident *r = rs->at[i];
		LlmEngineStats e;

		llm_engine_stats(r->engine, &e);
		counters_add(&s->engine, &e);
		s->engine.kv_pages_total += e.kv_pages_total;
		s->engine.kv_pages_free += e.kv_pages_free;
		s->engine.kv_pages_cached += e.kv_pages_cached;
		s->engine.running += e.running;
		s->engine.waiting += e.waiting;
		if (e.threads > s->engine.threads)
			s->engine.threads = e.threads;
		s->models[s->n_models++] = (LlmModelStat){.spec = llm_spec_retain(r->spec),
												  .model = r->model,
												  .threads_used = e.threads_used,
												  .used_ms = r->used_ms};
	}
}
