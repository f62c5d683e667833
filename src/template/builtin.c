/* template/builtin.c - binding arguments, finding definitions, and the functions. */
#include "template/builtin.h"

#include <string.h>

#include "template/access.h"
#include "template/order.h"

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
	LlmArgs all = {.pos = bound, .n_pos = LLM_TMPL_PARAMS_MAX};
	int n;

	if (def->params == NULL)
		return def->fn(run, self, args);
	param_index(def->params, (LlmStr){"", 0}, &n);
	if (args->n_pos > (size_t) n)
		llm_tmpl_fail(run, "'%s' takes %d arguments, not %zu", def->name, n, args->n_pos);
	for (size_t i = 0; i < args->n_pos; i++)
		bound[i] = args->pos[i];
	for (size_t i = 0; i < args->n_named; i++)
	{
		LlmStr name = args->names[i]->name;
		int at = param_index(def->params, name, &n);

		if (at < 0)
			llm_tmpl_fail(run, "'%s' has no parameter '%.*s'", def->name,
						  (int) (name.len < 60 ? name.len : 60), name.p);
		bound[at] = args->named[i];
	}
	for (int i = 0; i < def->required; i++)
	{
		if (bound[i].kind == LLM_V_ABSENT)
			llm_tmpl_fail(run, "'%s' needs %d arguments", def->name, def->required);
	}
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

const LlmDef *
llm_tmpl_def_find(const LlmDef *defs, size_t n, LlmStr name)
{
	for (size_t i = 0; i < n; i++)
	{
		if (llm_str_eq(name, defs[i].name))
			return &defs[i];
	}
	return NULL;
}

const LlmDef *
llm_tmpl_filter_find(LlmStr name)
{
	const LlmDef *def = llm_tmpl_def_find(llm_tmpl_text_filters, llm_tmpl_n_text_filters, name);

	if (def == NULL)
		def = llm_tmpl_def_find(llm_tmpl_list_filters, llm_tmpl_n_list_filters, name);
	if (def == NULL)
		def = llm_tmpl_def_find(llm_tmpl_map_filters, llm_tmpl_n_map_filters, name);
	return def;
}

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

/* dict(mapping, key=value, ...) and namespace(...) */
static LlmValue
fn_dict(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmDict *dict = llm_tmpl_dict_new(run, args->n_named);

	if (args->n_pos > 1 || (args->n_pos == 1 && args->pos[0].kind != LLM_V_DICT))
		llm_tmpl_fail(run, "only one mapping and keywords are possible here");
	for (size_t i = 0; args->n_pos == 1 && i < args->pos[0].dict->n; i++)
		llm_tmpl_dict_set(run, dict, args->pos[0].dict->entries[i].key,
						  args->pos[0].dict->entries[i].value);
	for (size_t i = 0; i < args->n_named; i++)
	{
		LlmStr name = args->names[i]->name;

		llm_tmpl_dict_set(run, dict,
						  llm_tmpl_str(run, llm_tmpl_text_borrow(run, name.p, name.len, true)),
						  args->named[i]);
	}
	return (LlmValue){.kind = LLM_V_DICT, .dict = dict};
}

static LlmValue
fn_namespace(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue v = fn_dict(run, self, args);

	v.kind = LLM_V_NAMESPACE;
	return v;
}

static LlmValue
fn_raise_exception(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText text = llm_tmpl_want_text(run, args->pos[0], "raise_exception");

	llm_tmpl_raise(run, llm_tmpl_text_data(text), text.len);
}

static LlmValue
fn_strftime_now(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText format = llm_tmpl_want_text(run, args->pos[0], "strftime_now");

	return llm_tmpl_str(run, llm_tmpl_format_time(run, format, run->now));
}

const LlmDef llm_tmpl_functions[] = {{"range", fn_range, "start stop step", 1},
									 {"dict", fn_dict, NULL, 0},
									 {"namespace", fn_namespace, NULL, 0},
									 {"raise_exception", fn_raise_exception, "message", 1},
									 {"strftime_now", fn_strftime_now, "format", 1}};
const size_t llm_tmpl_n_functions = sizeof(llm_tmpl_functions) / sizeof(llm_tmpl_functions[0]);
