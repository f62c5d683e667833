/* template/bounds.c - failures and memory of one parse or one rendering. */
#include "template/bounds.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "template/template.h"

_Noreturn static void
jump(LlmRun *run, LlmStatus status)
{
	run->status = status;
	longjmp(run->fail, 1);
}

void
llm_tmpl_fail(LlmRun *run, const char *fmt, ...)
{
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	what[llm_utf8_complete(what, strlen(what))] = '\0';
	jump(run, llm_error_set(run->err, LLM_E_MODEL, "template line %d: %s", run->line, what));
}

void
llm_tmpl_raise(LlmRun *run, const char *message, size_t len)
{
	int shown = len < sizeof(run->err->text) ? (int) len : (int) sizeof(run->err->text);

	llm_error_set(run->err, LLM_E_MODEL, "%.*s", shown, message);
	llm_error_detail(run->err, "raised by the chat template, line %d", run->line);
	jump(run, LLM_E_MODEL);
}

/* End the run because it wants more than `limit` of what. */
_Noreturn static void
fail_bound(LlmRun *run, int64_t limit, const char *what)
{
	llm_error_set(run->err, LLM_E_MODEL, "template line %d: more than %" PRId64 " %s", run->line,
				  limit, what);
	llm_error_numbers(run->err, limit + 1, limit);
	jump(run, LLM_E_MODEL);
}

void
llm_tmpl_fail_steps(LlmRun *run)
{
	fail_bound(run, LLM_TEMPLATE_STEPS_MAX, "steps of work");
}

void
llm_tmpl_fail_nest(LlmRun *run)
{
	fail_bound(run, run->nest_max, "levels of nesting");
}

void *
llm_tmpl_alloc(LlmRun *run, size_t n, size_t size)
{
	size_t room = run->limit > run->used ? run->limit - run->used : 0;
	void *p;

	if (size != 0 && n > room / size)
		fail_bound(run, (int64_t) run->limit, "bytes of memory");
	p = llm_arena_array(run->arena, n, size);
	if (p == NULL)
		jump(run, llm_error_set(run->err, LLM_E_MEMORY,
								"out of memory for a chat template (%zu bytes)", n * size));
	run->used += n * size + 16;
	return p;
}

void
llm_tmpl_grow(LlmRun *run, void **p, size_t n, size_t *cap, size_t need, size_t size)
{
	size_t more;
	void *q;

	if (need <= *cap)
		return;
	more = need + need / 2 + 4;
	if (more < need)
		more = need;
	q = llm_tmpl_alloc(run, more, size);
	if (n > 0)
		memcpy(q, *p, n * size);
	*p = q;
	*cap = more;
}
