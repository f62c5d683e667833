/* pg/model_funcs.c - llm_model_register, _drop, _load, _unload and llm_engine_restart. */
#include "postgres.h"

#include <sys/stat.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pg/catalog.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/error.h"
#include "pg/guc.h"
#include "pg/shmem.h"
#include "pg/supervisor.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_model_register);
PG_FUNCTION_INFO_V1(llm_model_drop);
PG_FUNCTION_INFO_V1(llm_model_load);
PG_FUNCTION_INFO_V1(llm_model_unload);
PG_FUNCTION_INFO_V1(llm_engine_restart);
LLM_EXPORTS_END

static const Oid register_args[] = {TEXTOID, TEXTOID, JSONBOID};
static const Oid name_args[] = {TEXTOID};
static const LlmDeclared as_register = {lengthof(register_args), register_args, VOIDOID, false};
static const LlmDeclared as_name = {lengthof(name_args), name_args, VOIDOID, false};
static const LlmDeclared as_restart = {0, NULL, VOIDOID, false};

static char *
required_text(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what)));
	return text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* Run one utility command as the current user: event triggers and the log see it. */
static void
run_command(const char *command)
{
	SPI_connect();
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "command failed: %s", command);
	SPI_finish();
}

static void
append_option(StringInfo buf, const char *name, const char *value)
{
	appendStringInfo(buf, ", %s %s", quote_identifier(name), quote_literal_cstr(value));
}

static char *
option_value(const char *name, const JsonbValue *v)
{
	switch (v->type)
	{
		case jbvString:
			return pnstrdup(v->val.string.val, v->val.string.len);
		case jbvNumeric:
			return DatumGetCString(
				DirectFunctionCall1(numeric_out, NumericGetDatum(v->val.numeric)));
		case jbvBool:
			return pstrdup(v->val.boolean ? "true" : "false");
		default:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("model option \"%s\" must be a string, a number or a boolean", name)));
	}
	pg_unreachable();
}

static void
append_options(StringInfo buf, Jsonb *options)
{
	JsonbIterator *it = JsonbIteratorInit(&options->root);
	JsonbValue key;
	JsonbValue value;

	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("options of a model must be a JSON object")));
	(void) JsonbIteratorNext(&it, &key, false);
	while (JsonbIteratorNext(&it, &key, true) == WJB_KEY)
	{
		char *name = pnstrdup(key.val.string.val, key.val.string.len);

		(void) JsonbIteratorNext(&it, &value, true);
		if (value.type != jbvNull)
			append_option(buf, name, option_value(name, &value));
	}
}

/* A word to those who mistype a path. The file may come later: the engine looks when it loads. */
static void
notice_absent(const char *path)
{
	struct stat st;

	if (llm_guc_model_dir && strncmp(path, "echo:", 5) != 0 &&
		stat(psprintf("%s/%s", llm_guc_model_dir, path), &st) != 0 && errno == ENOENT)
		ereport(NOTICE, (errmsg("model file \"%s\" is not there yet", path),
						 errhint("Put it below llm_infer.model_dir before the first call.")));
}

/* llm_model_register(name text, path text, options jsonb): CREATE SERVER */
Datum
llm_model_register(PG_FUNCTION_ARGS)
{
	char *name;
	char *path;
	StringInfoData buf;

	llm_declared_check(fcinfo, &as_register);
	name = required_text(fcinfo, 0, "name of the model");
	path = required_text(fcinfo, 1, "path of the model");
	/* The validator would say the same, but after the quoting of an odd name. */
	llm_catalog_check_option("path", path);
	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE SERVER %s FOREIGN DATA WRAPPER llm_infer OPTIONS (path %s",
					 quote_identifier(name), quote_literal_cstr(path));
	if (!PG_ARGISNULL(2))
		append_options(&buf, PG_GETARG_JSONB_P(2));
	appendStringInfoChar(&buf, ')');
	run_command(buf.data);
	notice_absent(path);
	PG_RETURN_VOID();
}

/* The model of a name, or the error. */
static LlmModel *
find_model(const char *name)
{
	LlmFailure f;
	LlmModel *model = llm_catalog_find_model(name, false, &f);

	if (model == NULL)
		llm_failure_raise(&f);
	return model;
}

/* llm_model_drop(name text): DROP SERVER */
Datum
llm_model_drop(PG_FUNCTION_ARGS)
{
	char *name;

	llm_declared_check(fcinfo, &as_name);
	name = required_text(fcinfo, 0, "name of the model");
	(void) find_model(name);
	run_command(psprintf("DROP SERVER %s", quote_identifier(name)));
	PG_RETURN_VOID();
}

static void
check_available(void)
{
	LlmFailure f;

	if (!llm_client_available(&f))
		llm_failure_raise(&f);
}

/* Ask the engine to load or unload, as the model's owner, and wait for the answer. */
static void
control_model(FunctionCallInfo fcinfo, LlmClientKind kind)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "llm_infer model", ALLOCSET_SMALL_SIZES);
	LlmClientRequest *req;
	LlmModel *model;

	llm_declared_check(fcinfo, &as_name);
	check_available();
	model = find_model(required_text(fcinfo, 0, "name of the model"));
	if (!llm_compat_server_owned(model->server, GetUserId()))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("must be owner of model \"%s\"", model->name)));
	req = MemoryContextAllocZero(cxt, sizeof(*req));
	req->cxt = cxt;
	req->kind = kind;
	req->model = model;
	llm_client_begin_owned(req);
	llm_client_wait(req);
	if (req->failure.sqlstate != 0)
		llm_failure_raise(&req->failure);
	MemoryContextDelete(cxt);
}

/* llm_model_load(name text) */
Datum
llm_model_load(PG_FUNCTION_ARGS)
{
	control_model(fcinfo, LLM_CLIENT_LOAD);
	PG_RETURN_VOID();
}

/* llm_model_unload(name text) */
Datum
llm_model_unload(PG_FUNCTION_ARGS)
{
	control_model(fcinfo, LLM_CLIENT_UNLOAD);
	PG_RETURN_VOID();
}

/* llm_engine_restart(): returns when the next engine is ready */
Datum
llm_engine_restart(PG_FUNCTION_ARGS)
{
	LlmEngineStatus before;
	LlmEngineStatus now;
	TimestampTz deadline =
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
									(int64) llm_guc_engine_timeout + LLM_SUPERVISOR_END_MS);

	llm_declared_check(fcinfo, &as_restart);
	check_available();
	llm_shmem_status(&before);
	if (!llm_shmem_request_restart())
		ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
						errmsg("the llm_infer supervisor is not running")));
	for (;;)
	{
		static uint32 wait_event = 0;

		CHECK_FOR_INTERRUPTS();
		llm_shmem_status(&now);
		if (now.generation != before.generation && now.state == LLM_ENGINE_READY)
			break;
		if (GetCurrentTimestamp() > deadline)
			ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
							errmsg("the engine was not ready within %d ms", llm_guc_engine_timeout),
							now.message[0] ? errdetail("%s", now.message) : 0));
		llm_shmem_wait_change(&now, 100, llm_compat_wait_event(&wait_event, "LlmInferRestart"));
	}
	PG_RETURN_VOID();
}
