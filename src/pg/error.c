/* pg/error.c - failures of calls, and the table from LlmStatus to SQLSTATE. */
#include "postgres.h"

#include "pg/error.h"

#include <stdarg.h>

#include "lib/stringinfo.h"
#include "pg/encoding.h"

/* SQLSTATE of a status, as ereport wants it. */
static int
sqlstate_of(LlmStatus status)
{
	switch (status)
	{
		case LLM_OK:
			return ERRCODE_SUCCESSFUL_COMPLETION;
		case LLM_E_INVALID:
			return ERRCODE_INVALID_PARAMETER_VALUE;
		case LLM_E_CONTEXT:
			return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		case LLM_E_KV_MEMORY:
		case LLM_E_MEMORY:
			return ERRCODE_OUT_OF_MEMORY;
		case LLM_E_BUSY:
			return ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
		case LLM_E_MODEL:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		case LLM_E_TIMEOUT:
			return ERRCODE_LOCK_NOT_AVAILABLE;
		case LLM_E_CRASHED:
			return ERRCODE_SYSTEM_ERROR;
		case LLM_E_UNAVAILABLE:
			return ERRCODE_CONNECTION_FAILURE;
		case LLM_E_ENCODING:
			return ERRCODE_CHARACTER_NOT_IN_REPERTOIRE;
		case LLM_E_UNSUPPORTED:
			return ERRCODE_FEATURE_NOT_SUPPORTED;
		case LLM_E_CANCELLED:
			return ERRCODE_QUERY_CANCELED;
		case LLM_E_PROTOCOL:
			return ERRCODE_PROTOCOL_VIOLATION;
		case LLM_E_IO:
			return ERRCODE_IO_ERROR;
		case LLM_E_INTERNAL:
			break;
	}
	return ERRCODE_INTERNAL_ERROR;
}

static char *
format_text(const char *fmt, va_list ap)
{
	StringInfoData buf;
	va_list again;
	int need;

	initStringInfo(&buf);
	for (;;)
	{
		va_copy(again, ap);
		need = appendStringInfoVA(&buf, fmt, again);
		va_end(again);
		if (need == 0)
			return buf.data;
		enlargeStringInfo(&buf, need);
	}
}

bool
llm_failure_set(LlmFailure *f, int sqlstate, const char *fmt, ...)
{
	va_list ap;

	f->sqlstate = sqlstate;
	f->detail = NULL;
	f->hint = NULL;
	va_start(ap, fmt);
	f->message = format_text(fmt, ap);
	va_end(ap);
	return false;
}

void
llm_failure_detail(LlmFailure *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	f->detail = format_text(fmt, ap);
	va_end(ap);
}

void
llm_failure_hint(LlmFailure *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	f->hint = format_text(fmt, ap);
	va_end(ap);
}

void
llm_failure_set_status(LlmFailure *f, LlmStatus status, const char *text, const char *detail,
					   const char *hint)
{
	f->sqlstate = sqlstate_of(status);
	f->message = llm_encoding_from_utf8(text, strlen(text), NULL);
	f->detail = detail && *detail ? llm_encoding_from_utf8(detail, strlen(detail), NULL) : NULL;
	f->hint = hint && *hint ? llm_encoding_from_utf8(hint, strlen(hint), NULL) : NULL;
}

bool
llm_failure_hideable(const LlmFailure *f)
{
	switch (f->sqlstate)
	{
		case ERRCODE_INVALID_PARAMETER_VALUE:
		case ERRCODE_INSUFFICIENT_PRIVILEGE:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_FEATURE_NOT_SUPPORTED:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
		case ERRCODE_CONNECTION_FAILURE:
		case ERRCODE_CONFIGURATION_LIMIT_EXCEEDED:
			return false;
		default:
			return true;
	}
}

void
llm_failure_raise(const LlmFailure *f)
{
	ereport(ERROR,
			(errcode(f->sqlstate), errmsg("%s", f->message),
			 f->detail ? errdetail("%s", f->detail) : 0, f->hint ? errhint("%s", f->hint) : 0));
	pg_unreachable();
}
