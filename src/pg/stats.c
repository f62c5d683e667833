/* pg/stats.c - the functions behind llm.stat_engine, llm.models, llm.stat_models, llm.prefix_cache,
 * llm.stat_activity and llm.stat_users. */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pg/catalog.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/encoding.h"
#include "pg/shmem.h"
#include "pg/usage.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* A view must not hang on an engine that does. */
#define STATS_MS 1000

#define COLUMNS_MAX 32

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_stat_engine);
PG_FUNCTION_INFO_V1(llm_stat_models);
PG_FUNCTION_INFO_V1(llm_stat_residents);
PG_FUNCTION_INFO_V1(llm_stat_activity);
PG_FUNCTION_INFO_V1(llm_stat_users);
PG_FUNCTION_INFO_V1(llm_stat_prefixes);
LLM_EXPORTS_END

/* A row that is being filled column by column; starts as all NULL. */
typedef struct Row
{
	ReturnSetInfo *rsinfo;
	Datum values[COLUMNS_MAX];
	bool nulls[COLUMNS_MAX];
	int n;
} Row;

static void
row_begin(Row *row, FunctionCallInfo fcinfo)
{
	row->rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	row->n = 0;
	memset(row->nulls, true, sizeof(row->nulls));
	memset(row->values, 0, sizeof(row->values));
}

/* Set the next column, or leave it NULL. */
static void
row_add(Row *row, bool known, Datum value)
{
	row->values[row->n] = value;
	row->nulls[row->n++] = !known;
}

static void
row_add_text(Row *row, const char *utf8)
{
	row_add(row, utf8 && *utf8,
			utf8 && *utf8 ? CStringGetTextDatum(llm_encoding_from_utf8(utf8, strlen(utf8), NULL))
						  : (Datum) 0);
}

static void
row_end(Row *row)
{
	tuplestore_putvalues(row->rsinfo->setResult, row->rsinfo->setDesc, row->values, row->nulls);
}

static const Llm__StatsRequest plain = LLM__STATS_REQUEST__INIT; /* asks for no details */

/* What the engine says about itself; NULL when it is not up or does not say it in time. */
static const Llm__StatsReply *
ask_engine(const Llm__StatsRequest *question)
{
	LlmEngineStatus status;
	LlmClientRequest *req;

	if (!llm_shmem_attached())
		return NULL;
	llm_shmem_status(&status);
	if (status.state != LLM_ENGINE_READY)
		return NULL;
	req = palloc0(sizeof(*req));
	req->cxt = CurrentMemoryContext;
	req->kind = LLM_CLIENT_STATS;
	req->question = *question;
	llm_client_begin_owned(req);
	if (!llm_client_wait_at_most(req, STATS_MS))
		llm_client_end(req);
	return req->stats;
}

static const char *
state_name(LlmEngineState state)
{
	switch (state)
	{
		case LLM_ENGINE_DOWN:
			return "down";
		case LLM_ENGINE_STARTING:
			return "starting";
		case LLM_ENGINE_READY:
			return "ready";
		default:
			return "off";
	}
}

/* Bytes of the KV pages of a model; 0 while it is being loaded. */
static int64
model_kv_nbytes(const Llm__ModelInfo *info)
{
	return info->has_kv_pages && info->has_kv_page_nbytes ? info->kv_pages * info->kv_page_nbytes
														  : 0;
}

static int64
kv_nbytes(const Llm__StatsReply *s)
{
	int64 nbytes = 0;

	for (size_t i = 0; i < s->n_models; i++)
		nbytes += model_kv_nbytes(s->models[i]);
	return nbytes;
}

/* Why the KV cache of the model that was used last is as large as it is. */
static const char *
kv_rule(const Llm__StatsReply *s)
{
	const Llm__ModelInfo *latest = NULL;

	for (size_t i = 0; i < s->n_models; i++)
		if (s->models[i]->has_last_used_ms &&
			(latest == NULL || s->models[i]->last_used_ms < latest->last_used_ms))
			latest = s->models[i];
	return latest == NULL ? NULL : latest->kv_rule;
}

/* llm.stat_get_engine(): one row. Counters tell about other roles' prompts, and are for monitors. */
Datum
llm_stat_engine(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TEXTOID, INT4OID, INT4OID, TIMESTAMPTZOID, INT4OID,        TEXTOID,
								TEXTOID, TEXTOID, INT4OID, INT4OID,        INT8OID,        INT8OID,
								INT8OID, INT4OID, INT4OID, INT8OID,        INT8OID,        INT8OID,
								INT8OID, INT8OID, INT8OID, INT8OID,        TIMESTAMPTZOID, INT8OID,
								TEXTOID, INT8OID, INT8OID, INT8OID,        INT8OID};
	LlmEngineStatus status;
	const Llm__StatsReply *s;
	Row row;
	bool up;
	bool all;

	StaticAssertStmt(lengthof(types) <= COLUMNS_MAX, "the widest of the views");
	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	memset(&status, 0, sizeof(status));
	if (llm_shmem_attached())
		llm_shmem_status(&status);
	s = ask_engine(&plain);
	up = s != NULL;
	all = up && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	row_begin(&row, fcinfo);
	row_add_text(&row, state_name(status.state));
	row_add(&row, status.generation > 0, Int32GetDatum((int32) status.generation));
	row_add(&row, status.pid != 0, Int32GetDatum(status.pid));
	row_add(&row, status.started != 0, TimestampTzGetDatum(status.started));
	row_add(&row, true, Int32GetDatum((int32) status.restarts));
	row_add_text(&row, status.message);
	row_add_text(&row, up ? s->device : NULL);
	row_add_text(&row, up ? s->isa : NULL);
	row_add(&row, up && s->has_threads, Int32GetDatum(up ? s->threads : 0));
	row_add(&row, up && s->has_threads_used, Int32GetDatum(up ? s->threads_used : 0));
	row_add(&row, all && s->has_kv_pages_total, Int64GetDatum(all ? s->kv_pages_total : 0));
	row_add(&row, all && s->has_kv_pages_free, Int64GetDatum(all ? s->kv_pages_free : 0));
	row_add(&row, all && s->has_kv_pages_cached, Int64GetDatum(all ? s->kv_pages_cached : 0));
	row_add(&row, all && s->has_running, Int32GetDatum(all ? s->running : 0));
	row_add(&row, all && s->has_waiting, Int32GetDatum(all ? s->waiting : 0));
	row_add(&row, all && s->has_steps, Int64GetDatum(all ? s->steps : 0));
	row_add(&row, all && s->has_prompt_tokens, Int64GetDatum(all ? s->prompt_tokens : 0));
	row_add(&row, all && s->has_cached_tokens, Int64GetDatum(all ? s->cached_tokens : 0));
	row_add(&row, all && s->has_generated_tokens, Int64GetDatum(all ? s->generated_tokens : 0));
	row_add(&row, all && s->has_preemptions, Int64GetDatum(all ? s->preemptions : 0));
	row_add(&row, all && s->has_requests, Int64GetDatum(all ? s->requests : 0));
	row_add(&row, all && s->has_errors, Int64GetDatum(all ? s->errors : 0));
	/* The engine counts from its own start. */
	row_add(&row, all && status.started != 0, TimestampTzGetDatum(status.started));
	row_add(&row, all, Int64GetDatum(all ? kv_nbytes(s) : 0));
	row_add_text(&row, all ? kv_rule(s) : NULL);
	row_add(&row, all && s->has_memory_nbytes, Int64GetDatum(all ? s->memory_nbytes : 0));
	row_add(&row, all && s->has_memory_limit, Int64GetDatum(all ? s->memory_limit : 0));
	row_add(&row, all && s->has_shared, Int64GetDatum(all ? s->shared : 0));
	row_add(&row, all && s->has_copied, Int64GetDatum(all ? s->copied : 0));
	row_end(&row);
	return (Datum) 0;
}

static bool
same_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool
same_spec(const Llm__ModelSpec *a, const Llm__ModelSpec *b)
{
	return same_text(a->path, b->path) && same_text(a->chat_template, b->chat_template) &&
		   same_text(a->kv_type, b->kv_type) &&
		   (a->has_context_length ? a->context_length : 0) ==
			   (b->has_context_length ? b->context_length : 0);
}

static const Llm__ModelInfo *
find_info(const Llm__StatsReply *s, const Llm__ModelSpec *spec)
{
	for (size_t i = 0; s && i < s->n_models; i++)
		if (same_spec(s->models[i]->spec, spec))
			return s->models[i];
	return NULL;
}

/* llm.stat_get_models(): what the engine knows of the registered models */
Datum
llm_stat_models(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {OIDOID,  TEXTOID, INT8OID, TEXTOID,
								INT4OID, INT8OID, INT4OID, TEXTOID};
	const Llm__StatsReply *s;
	List *models;
	ListCell *lc;

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	models = llm_catalog_list_models();
	s = models == NIL ? NULL : ask_engine(&plain);
	foreach (lc, models)
	{
		LlmModel *model = lfirst(lc);
		const Llm__ModelInfo *info = find_info(s, &model->spec);
		const char *state = info && info->state ? info->state : "unloaded";
		Row row;

		row_begin(&row, fcinfo);
		row_add(&row, true, ObjectIdGetDatum(model->server));
		row_add_text(&row, info ? info->arch : NULL);
		row_add(&row, info && info->has_n_params, Int64GetDatum(info ? info->n_params : 0));
		row_add_text(&row, info ? info->quantization : NULL);
		row_add(&row, info && info->has_context_length,
				Int32GetDatum(info ? info->context_length : 0));
		row_add(&row, info && info->has_nbytes, Int64GetDatum(info ? info->nbytes : 0));
		row_add(&row, info && info->has_kv_nbytes_per_token,
				Int32GetDatum(info ? info->kv_nbytes_per_token : 0));
		row_add_text(&row, s ? state : NULL);
		row_end(&row);
	}
	return (Datum) 0;
}

/* The first of the registered models with a spec, or NULL. */
static const LlmModel *
find_model(List *models, const Llm__ModelSpec *spec)
{
	ListCell *lc;

	foreach (lc, models)
		if (same_spec(&((LlmModel *) lfirst(lc))->spec, spec))
			return lfirst(lc);
	return NULL;
}

/* llm.stat_get_prefixes(): what the current role may share; all for pg_read_all_stats. Counters of
 * what others share would tell what they ask. */
Datum
llm_stat_prefixes(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {OIDOID,  OIDOID,  OIDOID,  INT8OID, INT8OID,
								INT8OID, INT8OID, INT8OID, INT8OID};
	Llm__StatsRequest question = LLM__STATS_REQUEST__INIT;
	const Llm__StatsReply *s;
	List *models;

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	question.has_prefixes = question.prefixes = true;
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
	{
		question.has_database = question.has_role = true;
		question.database = MyDatabaseId;
		question.role = GetUserId();
	}
	models = llm_catalog_list_models();
	s = ask_engine(&question);
	for (size_t i = 0; s && i < s->n_prefixes; i++)
	{
		const Llm__PrefixStat *p = s->prefixes[i];
		const LlmModel *model = find_model(models, p->spec);
		Row row;

		row_begin(&row, fcinfo);
		row_add(&row, model != NULL, ObjectIdGetDatum(model ? model->server : InvalidOid));
		row_add(&row, p->database != 0, ObjectIdGetDatum(p->database));
		row_add(&row, p->role != 0, ObjectIdGetDatum(p->role));
		row_add(&row, true, Int64GetDatum(p->blocks));
		row_add(&row, true, Int64GetDatum(p->pinned));
		row_add(&row, true, Int64GetDatum(p->lookups));
		row_add(&row, true, Int64GetDatum(p->hits));
		row_add(&row, true, Int64GetDatum(p->tokens_saved));
		row_add(&row, true, Int64GetDatum(p->evictions));
		row_end(&row);
	}
	return (Datum) 0;
}

static char *
hex(ProtobufCBinaryData b)
{
	static const char digits[] = "0123456789abcdef";
	char *text = palloc(2 * b.len + 1);

	for (size_t i = 0; i < b.len; i++)
	{
		text[2 * i] = digits[b.data[i] >> 4];
		text[2 * i + 1] = digits[b.data[i] & 15];
	}
	text[2 * b.len] = '\0';
	return text;
}

/* One row of llm.stat_get_residents(); server InvalidOid = not registered in this database. */
static void
add_resident(FunctionCallInfo fcinfo, Oid server, const Llm__ModelInfo *info)
{
	Row row;
	bool known = info->has_device_nbytes;
	int64 used_ago_us = info->has_last_used_ms ? info->last_used_ms * 1000 : 0;

	row_begin(&row, fcinfo);
	row_add(&row, OidIsValid(server), ObjectIdGetDatum(server));
	row_add_text(&row, info->spec->path);
	row_add_text(&row, info->state);
	row_add_text(&row, info->has_digest ? hex(info->digest) : NULL);
	row_add(&row, known, Int64GetDatum(known ? info->device_nbytes : 0));
	row_add(&row, info->has_kv_pages, Int64GetDatum(info->kv_pages));
	row_add(&row, info->has_kv_page_nbytes, Int64GetDatum(info->kv_page_nbytes));
	row_add_text(&row, info->kv_rule);
	row_add(&row, known, Int64GetDatum(known ? info->device_nbytes + model_kv_nbytes(info) : 0));
	row_add(&row, info->has_last_used_ms, TimestampTzGetDatum(GetCurrentTimestamp() - used_ago_us));
	row_end(&row);
}

/* llm.stat_get_residents(): the models in the engine's memory, with a server that names each here;
 * those of other databases are for monitors. */
Datum
llm_stat_residents(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {OIDOID,  TEXTOID, TEXTOID, TEXTOID, INT8OID,
								INT8OID, INT8OID, TEXTOID, INT8OID, TIMESTAMPTZOID};
	const Llm__StatsReply *s;
	List *models;
	bool all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	s = ask_engine(&plain);
	models = s == NULL ? NIL : llm_catalog_list_models();
	for (size_t i = 0; s && i < s->n_models; i++)
	{
		const LlmModel *model = find_model(models, s->models[i]->spec);

		if (model || all)
			add_resident(fcinfo, model ? model->server : InvalidOid, s->models[i]);
	}
	return (Datum) 0;
}

static const char *
activity_name(LlmActivityState state)
{
	switch (state)
	{
		case LLM_ACTIVITY_CONNECTING:
			return "connecting";
		case LLM_ACTIVITY_QUEUED:
			return "queued";
		case LLM_ACTIVITY_ACTIVE:
			return "active";
		default:
			return "idle";
	}
}

static bool
may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		   has_privs_of_role(GetUserId(), role);
}

/* llm.stat_get_activity(): the caller's own backends; all for pg_read_all_stats */
Datum
llm_stat_activity(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {OIDOID,  INT4OID, OIDOID,  TEXTOID,        TEXTOID,
								INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	int n_slots = 0;

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	if (!llm_shmem_attached())
		return (Datum) 0;
	for (int i = 0; i == 0 || i < n_slots; i++)
	{
		LlmActivity a;
		Row row;

		if (!llm_shmem_activity_read(i, &a, &n_slots) || !may_see(a.role))
			continue;
		row_begin(&row, fcinfo);
		row_add(&row, true, ObjectIdGetDatum(a.database));
		row_add(&row, true, Int32GetDatum(a.pid));
		row_add(&row, true, ObjectIdGetDatum(a.role));
		/* A name of another database's encoding: convertible or not, it must be valid here. */
		row_add_text(&row, a.model);
		row_add_text(&row, activity_name(a.state));
		row_add(&row, true, Int64GetDatum(a.prompt_tokens));
		row_add(&row, true, Int64GetDatum(a.cached_tokens));
		row_add(&row, true, Int64GetDatum(a.generated_tokens));
		row_add(&row, a.query_start != 0, TimestampTzGetDatum(a.query_start));
		row_add(&row, a.state_change != 0, TimestampTzGetDatum(a.state_change));
		row_end(&row);
	}
	return (Datum) 0;
}

/* llm.stat_get_users(): roles' usage in this database; the caller's own, all for pg_read_all_stats */
Datum
llm_stat_users(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {OIDOID,  INT8OID, INT8OID, INT8OID,
								INT8OID, INT4OID, INT8OID, TIMESTAMPTZOID};
	LlmUsage *list;
	int n;

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	if (!llm_shmem_attached())
		return (Datum) 0;
	list = llm_usage_list(&n);
	for (int i = 0; i < n; i++)
	{
		const LlmUsage *u = &list[i];
		Row row;

		if (!may_see(u->key.role))
			continue;
		row_begin(&row, fcinfo);
		row_add(&row, true, ObjectIdGetDatum(u->key.role));
		row_add(&row, true, Int64GetDatum(u->requests));
		row_add(&row, true, Int64GetDatum(u->prompt));
		row_add(&row, true, Int64GetDatum(u->cached));
		row_add(&row, true, Int64GetDatum(u->generated));
		row_add(&row, true, Int32GetDatum(u->in_flight));
		row_add(&row, true, Int64GetDatum(u->period_tokens));
		row_add(&row, true, TimestampTzGetDatum(u->period_start));
		row_end(&row);
	}
	return (Datum) 0;
}
