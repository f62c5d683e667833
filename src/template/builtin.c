/* template/builtin.c - binding arguments, finding definitions, and the functions. */
#include "template/builtin.h"

#include <string.h>
#include <time.h>

/* Position of a name in "a b c", or -1; *n becomes the number of names. */
static int
param_index(const char *params, LlmStr name, int *n)
{
	int found = -1;

	for (*n = 0; *params != '\0'; (*n)++)
	{
		size_t len = strcspn(params, " ");

		if (len == name.len && memcmp(params, name.p, len) == 0)
			found = *n;
		params += len;
		params += *params == ' ';
	}
	return found;
}

LlmValue
llm_tmpl_apply(LlmRun *run, const LlmDef *def, LlmValue self, const LlmArgs *args)
{
	LlmValue bound[LLM_TMPL_PARAMS_MAX] = {{0}};
	LlmArgs all = *args;
	int n;

	all.how = def->how;
	if (def->params == NULL)
		return def->fn(run, self, &all);
	param_index(def->params, (LlmStr){"", 0}, &n);
	if (args->n_pos > (size_t) n)
		llm_tmpl_fail(run, "'%s' takes %d arguments, not %zu", def->name, n, args->n_pos);
	for (size_t i = 0; i < args->n_pos; i++)
		bound[i] = args->pos[i];
	for (size_t i = 0; i < args->n_named; i++)
	{
		int at = param_index(def->params, args->names[i]->name, &n);

		if (at < 0)
			llm_tmpl_fail(run, "'%s' has no parameter '%.*s'", def->name,
						  LLM_TMPL_SHOWN(args->names[i]->name));
		bound[at] = args->named[i];
	}
	for (int i = 0; i < def->required; i++)
	{
		if (bound[i].kind == LLM_V_ABSENT)
			llm_tmpl_fail(run, "'%s' needs %d arguments", def->name, def->required);
	}
	all = (LlmArgs){.pos = bound, .n_pos = LLM_TMPL_PARAMS_MAX, .how = def->how};
	return def->fn(run, self, &all);
}

const LlmValue *
llm_tmpl_args_named(const LlmArgs *args, const char *name)
{
	for (size_t i = 0; i < args->n_named; i++)
	{
		if (llm_str_eq(args->names[i]->name, name))
			return &args->named[i];
	}
	return NULL;
}

LlmArgs
llm_tmpl_args_rest(const LlmArgs *args, size_t skip)
{
	LlmArgs rest = *args;

	if (skip > rest.n_pos)
		skip = rest.n_pos;
	if (skip > 0) /* pos is NULL when there are none */
		rest.pos += skip;
	rest.n_pos -= skip;
	return rest;
}

/* ---- finding ---- */

const LlmDef *
llm_tmpl_def_find(const LlmDef *defs, LlmStr name)
{
	for (; defs->name != NULL; defs++)
	{
		if (llm_str_eq(name, defs->name))
			return defs;
	}
	return NULL;
}

const LlmDef *
llm_tmpl_filter_find(LlmStr name)
{
	const LlmDef *def = llm_tmpl_def_find(llm_tmpl_text_filters, name);

	return def != NULL ? def : llm_tmpl_def_find(llm_tmpl_list_filters, name);
}

const LlmDef *
llm_tmpl_method_find(LlmValue self, LlmStr name)
{
	if (self.kind == LLM_V_STR)
		return llm_tmpl_def_find(llm_tmpl_str_methods, name);
	return self.kind == LLM_V_DICT ? llm_tmpl_def_find(llm_tmpl_dict_methods, name) : NULL;
}

/* ---- functions ---- */

/* range(stop) or range(start, stop, step) */
static LlmValue
fn_range(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	bool one = args->pos[1].kind == LLM_V_ABSENT;
	int64_t start = one ? 0 : llm_tmpl_want_int(run, args->pos[0], "range");
	int64_t stop = llm_tmpl_want_int(run, args->pos[one ? 0 : 1], "range");
	int64_t step =
		args->pos[2].kind == LLM_V_ABSENT ? 1 : llm_tmpl_want_int(run, args->pos[2], "range");
	LlmList *list = llm_tmpl_list_new(run, 0);
	bool trusted = args->pos[0].trusted && (one || args->pos[1].trusted) &&
				   (args->pos[2].kind == LLM_V_ABSENT || args->pos[2].trusted);

	if (step == 0)
		llm_tmpl_fail(run, "the step of a range is zero");
	for (int64_t i = start; step > 0 ? i < stop : i > stop;)
	{
		llm_tmpl_charge(run, 1);
		llm_tmpl_list_push(run, list, llm_tmpl_int(i, trusted));
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	return llm_tmpl_list(LLM_V_LIST, list);
}

/* dict(key=value, ...) and namespace(...); how: the kind */
static LlmValue
fn_dict(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmDict *dict = llm_tmpl_dict_new(run, args->n_named);

	if (args->n_pos > 0)
		llm_tmpl_fail(run, "only keywords are possible here");
	for (size_t i = 0; i < args->n_named; i++)
		llm_tmpl_dict_set(run, dict, llm_tmpl_str_borrow(run, args->names[i]->name, true),
						  args->named[i]);
	return (LlmValue){.kind = (uint8_t) args->how, .dict = dict};
}

static LlmValue
fn_raise_exception(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText text = llm_tmpl_want_text(run, args->pos[0], "raise_exception");

	llm_tmpl_raise(run, llm_tmpl_text_data(text), text.len);
}

/* strftime in UTC, one plain conversion at a time: widths could ask for any length. */
static LlmValue
fn_strftime_now(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText format = llm_tmpl_want_text(run, args->pos[0], "strftime_now");
	LlmTextBuf *buf = llm_tmpl_buf_new(run, format.len + 32);
	const char *p = llm_tmpl_text_data(format);
	time_t when = (time_t) run->now;
	struct tm tm;
	size_t at = 0;

	if (gmtime_r(&when, &tm) == NULL)
		llm_tmpl_fail(run, "the time has no date");
	run->dated = true;
	while (at < format.len)
	{
		char spec[4] = "%";
		char z[64];
		size_t len = 1, end;
		bool trusted = llm_tmpl_text_origin(format, at, &end);

		if (p[at] != '%')
		{
			llm_tmpl_buf_add_text(run, buf, llm_tmpl_text_sub(format, at++, 1));
			continue;
		}
		if (at + len < format.len && p[at + len] == '-')
			spec[len++] = '-';
		if (at + len >= format.len || p[at + len] == '\0' ||
			strchr("aAbBcdDeFHIjlmMpRSTuUwWxXyY%", p[at + len]) == NULL)
			llm_tmpl_fail(run, "a date format has an unknown conversion");
		spec[len] = p[at + len];
		at += len + 1;
		llm_tmpl_charge(run, 1);
		llm_tmpl_buf_add(run, buf, z, strftime(z, sizeof(z), spec, &tm), trusted);
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

const LlmDef llm_tmpl_functions[] = {{"range", fn_range, "start stop step", 1, 0},
									 {"dict", fn_dict, NULL, 0, LLM_V_DICT},
									 {"namespace", fn_dict, NULL, 0, LLM_V_NAMESPACE},
									 {"raise_exception", fn_raise_exception, "message", 1, 0},
									 {"strftime_now", fn_strftime_now, "format", 1, 0},
									 {0}};
