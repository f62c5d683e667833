/* template/filters_map.c - filters that apply another filter or a test to every element. */
#include "template/builtin.h"

#include "template/access.h"

/* The filter or test that args->pos[at] names; fails when there is none. */
static const LlmDef *
named_def(LlmRun *run, const LlmArgs *args, size_t at, bool filter)
{
	LlmText text = llm_tmpl_want_text(run, args->pos[at], filter ? "map" : "the name of a test");
	LlmStr name = {llm_tmpl_text_data(text), text.len};
	const LlmDef *def = filter ? llm_tmpl_filter_find(name) : llm_tmpl_test_find(name);

	if (def == NULL)
		llm_tmpl_fail(run, "there is no %s named '%.*s'", filter ? "filter" : "test",
					  LLM_TMPL_SHOWN(name));
	return def;
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
		def = named_def(run, args, 0, true);
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

enum
{
	BY_ATTRIBUTE = 1, /* the first argument names what is tested */
	REJECT = 2        /* keep those for which the test does not hold */
};

/* select and reject: the elements for which a test, or plain truth, holds. */
static LlmValue
f_select(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = elements(run, self);
	LlmList *chosen = llm_tmpl_list_new(run, 0);
	bool by_attribute = (args->how & BY_ATTRIBUTE) != 0;
	bool reject = (args->how & REJECT) != 0;
	LlmArgs rest = llm_tmpl_args_rest(args, by_attribute ? 2 : 1);
	const LlmDef *def = NULL;

	if (by_attribute && args->n_pos == 0)
		llm_tmpl_fail(run, "an attribute is needed");
	if (args->n_pos > (size_t) by_attribute)
		def = named_def(run, args, by_attribute, false);
	for (size_t i = 0; i < list->n; i++)
	{
		LlmValue v = list->items[i];

		llm_tmpl_charge(run, 1);
		if (by_attribute)
			v = llm_tmpl_get_path(run, v, args->pos[0]);
		if (def != NULL)
			v = llm_tmpl_apply(run, def, v, &rest);
		if (llm_tmpl_truth(v) != reject)
			llm_tmpl_list_push(run, chosen, list->items[i]);
	}
	return llm_tmpl_list(LLM_V_LIST, chosen);
}

const LlmDef llm_tmpl_map_filters[] = {{"map", f_map, NULL, 0, 0},
									   {"select", f_select, NULL, 0, 0},
									   {"reject", f_select, NULL, 0, REJECT},
									   {"selectattr", f_select, NULL, 0, BY_ATTRIBUTE},
									   {"rejectattr", f_select, NULL, 0, BY_ATTRIBUTE | REJECT},
									   {0}};
