/* pg/catalog.c - which model a call goes to, and the wrapper's validator. */
#include "postgres.h"

#include "pg/catalog.h"

#include <limits.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/encoding.h"
#include "pg/guc.h"
#include "pg/link.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#define WRAPPER_NAME "llm_infer"
#define CONTEXT_LENGTH_MIN 16
#define CONTEXT_LENGTH_MAX (1024 * 1024)

/* ---- options ---- */

static _Noreturn void
bad_option(const char *name, const char *value, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for model option \"%s\": \"%s\"", name, value),
					errhint("%s", hint)));
	pg_unreachable();
}

/* The engine resolves the path below model_dir and refuses symbolic links; this is the early word. */
static void
check_path(const char *name, const char *value)
{
	const char *hint = "It must be the path of a file below llm_infer.model_dir.";
	const char *p = value;

	if (strncmp(value, "echo:", 5) == 0)
		return;
	if (*value == '\0' || *value == '/' || strlen(value) >= MAXPGPATH)
		bad_option(name, value, hint);
	while (p)
	{
		if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
			bad_option(name, value, hint);
		p = strchr(p, '/');
		if (p)
			p++;
	}
}

static void
check_context_length(const char *name, const char *value)
{
	int n;

	if (!parse_int(value, &n, 0, NULL) || n < CONTEXT_LENGTH_MIN || n > CONTEXT_LENGTH_MAX)
		bad_option(name, value,
				   psprintf("It must be a number of tokens between %d and %d.", CONTEXT_LENGTH_MIN,
							CONTEXT_LENGTH_MAX));
}

static void
check_kv_type(const char *name, const char *value)
{
	if (strcmp(value, "f16") != 0 && strcmp(value, "f32") != 0 && strcmp(value, "int8") != 0)
		bad_option(name, value, "It must be f16, f32 or int8.");
}

static void
check_nothing(const char *name, const char *value)
{
}

typedef struct ModelOption
{
	const char *name;
	void (*check)(const char *name, const char *value); /* NULL = known, but not built */
} ModelOption;

static const ModelOption model_options[] = {
	{"path", check_path},       {"context_length", check_context_length},
	{"kv_type", check_kv_type}, {"chat_template", check_nothing},
	{"draft_model", NULL},      {"adapters", NULL},
	{"reasoning", NULL},        {"base_url", NULL},
	{"remote_model", NULL},
};

void
llm_catalog_check_option(const char *name, const char *value)
{
	for (Size i = 0; i < lengthof(model_options); i++)
	{
		if (strcmp(model_options[i].name, name) != 0)
			continue;
		if (model_options[i].check == NULL)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("model option \"%s\" is not supported yet", name)));
		model_options[i].check(name, value);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown model option \"%s\"", name),
			 errhint("Model options are path, context_length, kv_type and chat_template.")));
}

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_infer_validator);
LLM_EXPORTS_END

/* llm_infer_validator(options text[], catalog oid) */
Datum
llm_infer_validator(PG_FUNCTION_ARGS)
{
	static const Oid args[] = {TEXTARRAYOID, OIDOID};
	static const LlmDeclared as_validator = {lengthof(args), args, VOIDOID, false};
	List *options;
	Oid catalog;
	bool has_path = false;
	ListCell *lc;

	llm_declared_check(fcinfo, &as_validator);
	options = untransformRelOptions(PG_GETARG_DATUM(0));
	catalog = PG_GETARG_OID(1);
	foreach (lc, options)
	{
		DefElem *def = lfirst_node(DefElem, lc);

		if (catalog != ForeignServerRelationId)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("unknown option \"%s\"", def->defname),
							errhint("Only servers of the wrapper llm_infer have options.")));
		llm_catalog_check_option(def->defname, defGetString(def));
		has_path = has_path || strcmp(def->defname, "path") == 0;
	}
	if (catalog == ForeignServerRelationId && !has_path)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("a model needs the option \"path\""),
						errhint("Name a file below llm_infer.model_dir.")));
	PG_RETURN_VOID();
}

/* ---- lookups ---- */

/* UTF-8, terminated; false when it does not convert. */
static bool
utf8_copy(const char *s, char **out, LlmFailure *f)
{
	const char *p;
	Size n;

	if (!llm_encoding_to_utf8(s, strlen(s), &p, &n, f))
		return false;
	*out = pnstrdup(p, n);
	return true;
}

static bool
fill_spec(Llm__ModelSpec *spec, List *options, LlmFailure *f)
{
	ListCell *lc;

	*spec = (Llm__ModelSpec) LLM__MODEL_SPEC__INIT;
	spec->path = pstrdup("");
	foreach (lc, options)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		const char *value = defGetString(def);

		if (strcmp(def->defname, "path") == 0)
		{
			if (!utf8_copy(value, &spec->path, f))
				return false;
		}
		else if (strcmp(def->defname, "chat_template") == 0)
		{
			if (!utf8_copy(value, &spec->chat_template, f))
				return false;
		}
		else if (strcmp(def->defname, "kv_type") == 0)
			spec->kv_type = pstrdup(value);
		else if (strcmp(def->defname, "context_length") == 0)
		{
			int n = 0;

			spec->has_context_length = parse_int(value, &n, 0, NULL) && n > 0;
			spec->context_length = (uint32) n;
		}
	}
	return true;
}

static LlmModel *
model_of(ForeignServer *server, LlmFailure *f)
{
	LlmModel *model = palloc0(sizeof(LlmModel));

	model->server = server->serverid;
	model->name = pstrdup(server->servername);
	return fill_spec(&model->spec, server->options, f) ? model : NULL;
}

/* Oids of all servers of our wrapper. */
static List *
list_servers(void)
{
	Oid wrapper = get_foreign_data_wrapper_oid(WRAPPER_NAME, true);
	List *oids = NIL;
	Relation rel;
	SysScanDesc scan;
	HeapTuple tuple;

	if (!OidIsValid(wrapper))
		return NIL;
	rel = table_open(ForeignServerRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_foreign_server form = (Form_pg_foreign_server) GETSTRUCT(tuple);

		if (form->srvfdw == wrapper)
			oids = lappend_oid(oids, form->oid);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return oids;
}

/* The server of an oid that a cache may have remembered: NULL when it has been dropped meanwhile. */
static ForeignServer *
find_server(Oid oid)
{
	return OidIsValid(oid) ? GetForeignServerExtended(oid, FSV_MISSING_OK) : NULL;
}

static ForeignServer *
find_default(LlmFailure *f)
{
	List *oids = list_servers();
	ForeignServer *server = list_length(oids) == 1 ? find_server(linitial_oid(oids)) : NULL;

	if (server)
		return server;
	if (list_length(oids) <= 1)
	{
		llm_failure_set(f, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "no model is registered");
		llm_failure_hint(f, "Register one with llm_model_register(name, path).");
	}
	else
	{
		llm_failure_set(f, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						"no model was named and there are %d", list_length(oids));
		llm_failure_hint(f, "Name one in the call, or set llm_infer.default_model.");
	}
	return NULL;
}

static ForeignServer *
find_named(const char *name, LlmFailure *f)
{
	ForeignServer *server = find_server(get_foreign_server_oid(name, true));

	if (server && server->fdwid == get_foreign_data_wrapper_oid(WRAPPER_NAME, true))
		return server;
	llm_failure_set(f, ERRCODE_UNDEFINED_OBJECT, "model \"%s\" does not exist", name);
	llm_failure_hint(f, "The view llm.models lists the models.");
	return NULL;
}

/* ---- known models ---- */

#define N_KNOWN 8

/* What a name stood for, taken in turn. */
typedef struct Known
{
	char *name;      /* NULL = the only model there is */
	LlmModel *model; /* NULL = free; else a holder */
} Known;

static Known known[N_KNOWN];
static int next_known = 0;
static uint64 n_changes = 0;     /* of servers and wrappers */
static uint64 known_changes = 0; /* n_changes before the first look-up of those that are known */

static void
note_change(Datum arg, int cacheid, uint32 hash)
{
	n_changes++;
}

/* Also a reset callback. */
static void
release(void *arg)
{
	LlmModel *model = arg;

	if (--model->n_holders == 0)
		MemoryContextDelete(model->cxt);
}

void
llm_catalog_hold_model(LlmModel *model)
{
	MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));

	callback->func = release;
	callback->arg = model;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	model->n_holders++;
}

static void
forget(Known *k)
{
	if (k->model == NULL)
		return;
	release(k->model);
	k->model = NULL;
	if (k->name)
		pfree(k->name);
}

static LlmModel *
find_known(const char *name)
{
	static bool registered = false;
	int i;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(FOREIGNSERVEROID, note_change, (Datum) 0);
		CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, note_change, (Datum) 0);
		registered = true;
	}
	for (i = 0; i < N_KNOWN; i++)
	{
		Known *k = &known[i];

		if (known_changes != n_changes)
			forget(k);
		else if (k->model && (name && k->name ? strcmp(name, k->name) == 0 : name == k->name))
			return k->model;
	}
	known_changes = n_changes;
	return NULL;
}

/* A copy of found, known by the name. */
static LlmModel *
remember(const char *name, const LlmModel *found)
{
	Known *k = &known[next_known];
	MemoryContext cxt =
		AllocSetContextCreate(TopMemoryContext, "llm_infer model", ALLOCSET_SMALL_SIZES);
	ProtobufCAllocator alloc = llm_link_allocator(cxt);
	LlmModel *model = MemoryContextAllocZero(cxt, sizeof(LlmModel));

	model->cxt = cxt;
	model->server = found->server;
	model->name = MemoryContextStrdup(cxt, found->name);
	model->n_key = llm__model_spec__get_packed_size(&found->spec);
	model->key = MemoryContextAlloc(cxt, model->n_key + 1);
	llm__model_spec__pack(&found->spec, model->key);
	model->spec = *llm__model_spec__unpack(&alloc, model->n_key, model->key);
	forget(k);
	k->name = name ? MemoryContextStrdup(TopMemoryContext, name) : NULL;
	k->model = model;
	model->n_holders = 1;
	next_known = (next_known + 1) % N_KNOWN;
	return model;
}

LlmModel *
llm_catalog_find_model(const char *name, bool usage, LlmFailure *f)
{
	LlmModel *model;

	if (name == NULL && llm_guc_default_model && *llm_guc_default_model)
		name = llm_guc_default_model;
	model = find_known(name);
	if (model == NULL)
	{
		ForeignServer *server = name ? find_named(name, f) : find_default(f);

		model = server ? model_of(server, f) : NULL;
		if (model == NULL)
			return NULL;
		model = remember(name, model);
	}
	if (usage && llm_compat_server_acl(model->server, GetUserId(), ACL_USAGE) != ACLCHECK_OK)
	{
		llm_failure_set(f, ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for model \"%s\"",
						model->name);
		llm_failure_hint(f, "Its owner can GRANT USAGE ON FOREIGN SERVER.");
		return NULL;
	}
	llm_catalog_hold_model(model);
	return model;
}

List *
llm_catalog_list_same(const LlmModel *model)
{
	List *oids = NIL;
	ListCell *lc;

	foreach (lc, llm_catalog_list_models())
	{
		const LlmModel *other = lfirst(lc);
		Size n = llm__model_spec__get_packed_size(&other->spec);
		uint8 *key = palloc(n);

		llm__model_spec__pack(&other->spec, key);
		if (n == model->n_key && memcmp(key, model->key, n) == 0)
			oids = lappend_oid(oids, other->server);
	}
	return oids;
}

List *
llm_catalog_list_models(void)
{
	List *models = NIL;
	ListCell *lc;

	foreach (lc, list_servers())
	{
		ForeignServer *server = find_server(lfirst_oid(lc));
		LlmFailure ignored;
		LlmModel *model = server ? model_of(server, &ignored) : NULL;

		/* Dropped meanwhile; or of a name that does not convert, so not in the engine either. */
		if (model)
			models = lappend(models, model);
	}
	return models;
}
