/* core/status.c - fill LlmError; the only formatter of error text in the engine. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cut an overlong text back to a whole UTF-8 character: error texts quote user data. */
static void
clip_utf8(char *s, size_t cap)
{
	size_t len = strlen(s);
	size_t lead = len;
	size_t need;

	if (len + 1 < cap || len == 0)
		return;
	while (lead > 0 && ((unsigned char) s[lead - 1] & 0xC0) == 0x80)
		lead--;
	if (lead == 0)
		return;
	lead--;
	need = (unsigned char) s[lead] >= 0xF0   ? 4
		   : (unsigned char) s[lead] >= 0xE0 ? 3
		   : (unsigned char) s[lead] >= 0xC0 ? 2
											 : 1;
	if (lead + need > len)
		s[lead] = '\0';
}

LlmStatus
llm_error_set(LlmError *err, LlmStatus code, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return code;
	memset(err, 0, sizeof(*err));
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	clip_utf8(err->text, sizeof(err->text));
	return code;
}

void
llm_error_detail(LlmError *err, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(err->detail, sizeof(err->detail), fmt, ap);
	va_end(ap);
	clip_utf8(err->detail, sizeof(err->detail));
}

void
llm_error_hint(LlmError *err, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
	clip_utf8(err->hint, sizeof(err->hint));
}

void
llm_error_numbers(LlmError *err, int64_t got, int64_t limit)
{
	if (err == NULL)
		return;
	err->got = got;
	err->limit = limit;
}

const char *
llm_status_name(LlmStatus code)
{
	static const char *const names[] = {
		[LLM_OK] = "ok",
		[LLM_E_INVALID] = "invalid",
		[LLM_E_CONTEXT] = "context",
		[LLM_E_KV_MEMORY] = "kv memory",
		[LLM_E_BUSY] = "busy",
		[LLM_E_MODEL] = "model",
		[LLM_E_TIMEOUT] = "timeout",
		[LLM_E_CRASHED] = "crashed",
		[LLM_E_UNAVAILABLE] = "unavailable",
		[LLM_E_ENCODING] = "encoding",
		[LLM_E_UNSUPPORTED] = "unsupported",
		[LLM_E_CANCELLED] = "cancelled",
		[LLM_E_MEMORY] = "memory",
		[LLM_E_PROTOCOL] = "protocol",
		[LLM_E_INTERNAL] = "internal",
		[LLM_E_IO] = "io",
	};

	if ((unsigned) code >= sizeof(names) / sizeof(names[0]))
		return "unknown";
	return names[code];
}
