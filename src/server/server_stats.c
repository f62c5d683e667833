/* server/server_stats.c - copies and the encoding of STATS_REPLY. */
#include "server/server_stats.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "server/codec.h"

#define DIGEST_NBYTES 16

void
llm_server_stats_copy(LlmServerStats *to, const LlmServerStats *from)
{
	memcpy(to, from, offsetof(LlmServerStats, models));
	for (int32_t i = 0; i < from->n_models; i++)
	{
		to->models[i] = from->models[i];
		llm_spec_retain(to->models[i].spec);
	}
}

void
llm_server_stats_clear(LlmServerStats *s)
{
	for (int32_t i = 0; i < s->n_models; i++)
		llm_spec_release(s->models[i].spec);
	s->n_models = 0;
}

/* ---- encoding ---- */

static void
spec_message(const LlmSpec *s, Llm__ModelSpec *m)
{
	llm__model_spec__init(m);
	m->path = (char *) s->spec.path;
	m->chat_template = (char *) s->spec.chat_template;
	m->kv_type = (char *) s->spec.kv_type;
	m->has_context_length = s->spec.context_length > 0;
	m->context_length = (uint32_t) s->spec.context_length;
}

/* One model with what it points to. */
typedef struct ModelMessage
{
	Llm__ModelInfo info;
	Llm__ModelSpec spec;
	uint8_t digest[DIGEST_NBYTES];
} ModelMessage;

static void
model_message(const LlmModelStat *s, int64_t now_ms, ModelMessage *m)
{
	const LlmModelInfo *i = &s->model;
	Llm__ModelInfo *w = &m->info;

	llm__model_info__init(w);
	spec_message(s->spec, &m->spec);
	w->spec = &m->spec;
	w->state = s->loading ? "loading" : "resident";
	if (s->loading)
		return;
	w->arch = (char *) i->arch;
	w->quantization = (char *) i->quantization;
	w->has_n_params = w->has_nbytes = w->has_context_length = true;
	w->n_params = i->n_params;
	w->nbytes = i->nbytes;
	w->context_length = i->context_length;
	w->has_kv_nbytes_per_token = w->has_numerics_key = true;
	w->kv_nbytes_per_token = i->kv_nbytes_per_token;
	w->numerics_key = i->numerics_key;
	for (int b = 0; b < DIGEST_NBYTES; b++)
		m->digest[b] = (uint8_t) (i->digest[1 - b / 8] >> (8 * (7 - b % 8))); /* as xxh128sum */
	w->has_digest = (i->digest[0] | i->digest[1]) != 0; /* there is no file of an echo model */
	w->digest.data = m->digest;
	w->digest.len = DIGEST_NBYTES;
	w->has_kv_pages = w->has_kv_page_nbytes = true;
	w->kv_pages = i->kv_pages;
	w->kv_page_nbytes = i->kv_page_nbytes;
	w->kv_rule = (char *) i->kv_rule;
	w->has_device_nbytes = w->has_last_used_ms = true;
	w->device_nbytes = i->device_nbytes;
	w->last_used_ms = now_ms > s->used_ms ? now_ms - s->used_ms : 0;
}

/* Sums and counters; device, ISA and threads in use are those of the model that was used last. */
static void
engine_message(const LlmServerStats *s, Llm__StatsReply *m)
{
	const LlmEngineStats *e = &s->engine;
	const LlmModelStat *latest = NULL;

	for (int32_t i = 0; i < s->n_models; i++)
		if (!s->models[i].loading && (latest == NULL || s->models[i].used_ms >= latest->used_ms))
			latest = &s->models[i];
	m->device = latest == NULL ? NULL : (char *) latest->model.device;
	m->isa = latest == NULL ? NULL : (char *) latest->model.isa;
	m->has_threads = m->has_kv_pages_total = m->has_kv_pages_free = m->has_kv_pages_cached = true;
	m->threads = e->threads;
	m->has_threads_used = latest != NULL;
	m->threads_used = latest == NULL ? 0 : latest->threads_used;
	m->kv_pages_total = e->kv_pages_total;
	m->kv_pages_free = e->kv_pages_free;
	m->kv_pages_cached = e->kv_pages_cached;
	m->has_steps = m->has_prompt_tokens = m->has_cached_tokens = m->has_generated_tokens = true;
	m->steps = e->steps;
	m->prompt_tokens = e->prompt_tokens;
	m->cached_tokens = e->cached_tokens;
	m->generated_tokens = e->generated_tokens;
	m->has_preemptions = m->has_requests = m->has_errors = m->has_running = m->has_waiting = true;
	m->preemptions = e->preemptions;
	m->requests = e->requests;
	m->errors = e->errors;
	m->running = e->running;
	m->waiting = e->waiting + s->waiting;
	m->has_shared = m->has_copied = m->has_memory_nbytes = m->has_memory_limit = true;
	m->shared = e->shared;
	m->copied = e->copied;
	m->memory_nbytes = s->memory_nbytes;
	m->memory_limit = s->memory_limit;
}

/* One row of a prefix cache with what it points to. */
typedef struct PrefixMessage
{
	Llm__PrefixStat stat;
	Llm__ModelSpec spec;
} PrefixMessage;

static void
prefix_message(const LlmPrefixRow *row, PrefixMessage *m)
{
	llm__prefix_stat__init(&m->stat);
	spec_message(row->spec, &m->spec);
	m->stat.spec = &m->spec;
	m->stat.database = (uint32_t) (row->stat.salt >> 32);
	m->stat.role = (uint32_t) row->stat.salt;
	m->stat.blocks = row->stat.blocks;
	m->stat.pinned = row->stat.pinned;
	m->stat.lookups = row->stat.lookups;
	m->stat.hits = row->stat.hits;
	m->stat.tokens_saved = row->stat.tokens_saved;
	m->stat.evictions = row->stat.evictions;
}

bool
llm_server_stats_append(LlmBuf *out, uint64_t id, const LlmServerStats *s, const LlmPrefixRow *rows,
						int32_t n_rows)
{
	Llm__StatsReply m = LLM__STATS_REPLY__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	int64_t now_ms = llm_clock_ms();
	ModelMessage models[LLM_RESIDENTS_MAX + 1];
	Llm__ModelInfo *model_list[LLM_RESIDENTS_MAX + 1];
	PrefixMessage *prefixes = calloc((size_t) n_rows + 1, sizeof(*prefixes));
	Llm__PrefixStat **prefix_list = calloc((size_t) n_rows + 1, sizeof(*prefix_list));
	bool ok = prefixes != NULL && prefix_list != NULL;

	m.id = id;
	engine_message(s, &m);
	for (int32_t i = 0; i < s->n_models; i++)
	{
		model_message(&s->models[i], now_ms, &models[i]);
		model_list[i] = &models[i].info;
	}
	m.models = model_list;
	m.n_models = (size_t) s->n_models;
	for (int32_t i = 0; ok && i < n_rows; i++)
	{
		prefix_message(&rows[i], &prefixes[i]);
		prefix_list[i] = &prefixes[i].stat;
	}
	m.prefixes = prefix_list;
	m.n_prefixes = (size_t) n_rows;
	f.body_case = LLM__FRAME__BODY_STATS_REPLY;
	f.stats_reply = &m;
	ok = ok && llm_codec_append(out, &f);
	free(prefixes);
	free(prefix_list);
	return ok;
}
