/* template/filters_map.c - filters that apply another filter or a test to every element. */
#include "template/builtin.h"

#include "template/access.h"

static LlmStr
word(LlmRun *run, LlmValue v, const char *what)
{
	LlmText text = llm_tmpl_want_text(run, v, what);

	return (LlmStr){llm_tmpl_text_data(text), text.len};
}

/* As in Jinja, none, false and zero count as empty here. */
static LlmList *
elements(LlmRun *run, LlmValue v)
{
	return llm_tmpl_truth(v) ? llm_tmpl_elements(run, v) : llm_tmpl_list_new(run, 0);
}

/* map('filter', args...) or map(attribute='name', default=...) */
static LlmValue
f_map(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = elements(run, self);
	const LlmValue *attribute = llm_tmpl_args_named(args, "attribute");
	const LlmValue *fallback = llm_tmpl_args_named(args, "default");
	LlmList *mapped = llm_tmpl_list_new(run, list->n);
	LlmArgs rest = llm_tmpl_args_rest(args, 1);
	const LlmDef *def = NULL;

	if (attribute == NULL && args->n_pos == 0)
		llm_tmpl_fail(run, "map needs a filter or an attribute");
	if (attribute == NULL)
	{
		LlmStr name = word(run, args->pos[0], "map");

		def = llm_tmpl_filter_find(name);
		if (def == NULL)
			llm_tmpl_fail(run, "there is no filter named '%.*s'",
						  (int) (name.len < 60 ? name.len : 60), name.p);
	}
	for (size_t i = 0; i < list->n; i++)
	{
		LlmValue item = list->items[i];

		llm_tmpl_charge(run, 1);
		if (def != NULL)
		{
			llm_tmpl_enter(run); /* map('map', 'map', ...) comes back here */
			item = llm_tmpl_apply(run, def, item, &rest);
			llm_tmpl_leave(run);
		}
		else
			item = llm_tmpl_get_path(run, item, *attribute);
		if (def == NULL && item.kind == LLM_V_UNDEFINED && fallback != NULL)
			item = *fallback;
		llm_tmpl_list_push(run, mapped, item);
	}
	return llm_tmpl_list(LLM_V_LIST, mapped);
}

/* The elements (by attribute: whose attribute) for which the test, or plain truth, is `wanted`. */
static LlmValue
choose(LlmRun *run, LlmValue self, const LlmArgs *args, bool by_attribute, bool wanted)
{
	const LlmList *list = elements(run, self);
	LlmList *chosen = llm_tmpl_list_new(run, 0);
	LlmArgs rest = llm_tmpl_args_rest(args, by_attribute ? 1 : 0);
	const LlmDef *def = NULL;

	if (by_attribute && args->n_pos == 0)
		llm_tmpl_fail(run, "an attribute is needed");
	if (rest.n_pos > 0)
	{
		LlmStr name = word(run, rest.pos[0], "the name of a test");

		def = llm_tmpl_test_find(name);
		if (def == NULL)
			llm_tmpl_fail(run, "there is no test named '%.*s'",
						  (int) (name.len < 60 ? name.len : 60), name.p);
		rest = llm_tmpl_args_rest(&rest, 1);
	}
	for (size_t i = 0; i < list->n; i++)
	{
		LlmValue v = list->items[i];

		llm_tmpl_charge(run, 1);
		if (by_attribute)
			v = llm_tmpl_get_path(run, v, args->pos[0]);
		if (def != NULL)
			v = llm_tmpl_apply(run, def, v, &rest);
		if (llm_tmpl_truth(v) == wanted)
			llm_tmpl_list_push(run, chosen, list->items[i]);
	}
	return llm_tmpl_list(LLM_V_LIST, chosen);
}

static LlmValue
f_select(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return choose(run, self, args, false, true);
}

static LlmValue
f_reject(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return choose(run, self, args, false, false);
}

static LlmValue
f_selectattr(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return choose(run, self, args, true, true);
}

static LlmValue
f_rejectattr(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return choose(run, self, args, true, false);
}

const LlmDef llm_tmpl_map_filters[] = {{"map", f_map, NULL, 0},
									   {"select", f_select, NULL, 0},
									   {"reject", f_reject, NULL, 0},
									   {"selectattr", f_selectattr, NULL, 0},
									   {"rejectattr", f_rejectattr, NULL, 0}};
const size_t llm_tmpl_n_map_filters =
	sizeof(llm_tmpl_map_filters) / sizeof(llm_tmpl_map_filters[0]);
