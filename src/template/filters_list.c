/* template/filters_list.c - filters over lists, mappings and anything that may be missing, and the
 * methods of mappings. */
#include "template/builtin.h"

#include "template/access.h"
#include "template/print.h"

/* default(default_value='', boolean=false) */
static LlmValue
f_default(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	if (self.kind != LLM_V_UNDEFINED && (llm_tmpl_truth(self) || !llm_tmpl_truth(args->pos[1])))
		return self;
	return args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_str_borrow(run, llm_str(""), false)
											 : args->pos[0];
}

static LlmValue
f_length(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_int((int64_t) llm_tmpl_length(run, self), false);
}

/* list, and the method keys of mappings */
static LlmValue
f_list(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_list(LLM_V_LIST, llm_tmpl_elements(run, self));
}

/* how: 1 for the last element, 0 for the first */
static LlmValue
f_end(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);

	return list->n == 0 ? llm_tmpl_undefined(NULL) : list->items[args->how == 0 ? 0 : list->n - 1];
}

static LlmValue
f_reverse(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmValue bounds[3] = {{0}, {0}, llm_tmpl_int(-1, true)};

	if (self.kind != LLM_V_STR)
		self = llm_tmpl_list(LLM_V_LIST, llm_tmpl_elements(run, self));
	return llm_tmpl_get_slice(run, self, bounds);
}

static LlmValue
pair(LlmRun *run, LlmValue a, LlmValue b)
{
	LlmList *list = llm_tmpl_list_new(run, 2);

	llm_tmpl_list_push(run, list, a);
	llm_tmpl_list_push(run, list, b);
	return llm_tmpl_list(LLM_V_TUPLE, list);
}

static LlmValue
f_items(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmList *list = llm_tmpl_list_new(run, 0);

	if (self.kind != LLM_V_DICT && self.kind != LLM_V_UNDEFINED)
		llm_tmpl_fail(run, "items needs a mapping, not a %s", llm_tmpl_kind_name(self));
	for (size_t i = 0; self.kind == LLM_V_DICT && i < self.dict->n; i++)
		llm_tmpl_list_push(run, list,
						   pair(run, self.dict->entries[i].key, self.dict->entries[i].value));
	return llm_tmpl_list(LLM_V_LIST, list);
}

/* join(d='', attribute=none) */
static LlmValue
f_join(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);
	LlmText sep = args->pos[0].kind == LLM_V_ABSENT ? (LlmText){NULL, 0, 0}
													: llm_tmpl_to_text(run, args->pos[0]);
	LlmTextBuf *buf = llm_tmpl_buf_new(run, 0);

	for (size_t i = 0; i < list->n; i++)
	{
		LlmValue item = list->items[i];

		llm_tmpl_charge(run, 1);
		if (args->pos[1].kind > LLM_V_NONE)
			item = llm_tmpl_get_path(run, item, args->pos[1]);
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, sep);
		llm_tmpl_print(run, buf, item);
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

/* The elements with what they are compared by: an attribute when one is named, in lower case unless
 * case matters. */
static LlmEntry *
keyed(LlmRun *run, const LlmList *list, LlmValue attribute, LlmValue case_sensitive)
{
	LlmEntry *entries = llm_tmpl_alloc(run, list->n, sizeof(*entries));

	llm_tmpl_charge(run, list->n);
	for (size_t i = 0; i < list->n; i++)
	{
		LlmValue key = list->items[i];

		if (attribute.kind > LLM_V_NONE)
			key = llm_tmpl_get_path(run, key, attribute);
		if (key.kind == LLM_V_STR && !llm_tmpl_truth(case_sensitive))
			key = llm_tmpl_str(run, llm_tmpl_text_case(run, *key.s, LLM_CASE_LOWER));
		entries[i] = (LlmEntry){key, list->items[i]};
	}
	return entries;
}

/* As a list: the values of n entries. */
static LlmValue
values_of(LlmRun *run, const LlmEntry *entries, size_t n)
{
	LlmList *list = llm_tmpl_list_new(run, n);

	llm_tmpl_charge_items(run, n);
	for (size_t i = 0; i < n; i++)
		llm_tmpl_list_push(run, list, entries[i].value);
	return llm_tmpl_list(LLM_V_LIST, list);
}

/* sort(reverse=false, case_sensitive=false, attribute=none) */
static LlmValue
f_sort(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);
	LlmEntry *entries = keyed(run, list, args->pos[2], args->pos[1]);

	llm_tmpl_sort(run, entries, list->n, llm_tmpl_truth(args->pos[0]));
	return values_of(run, entries, list->n);
}

/* dictsort(case_sensitive=false): by key */
static LlmValue
f_dictsort(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue items = f_items(run, self, args);
	LlmEntry *entries = keyed(run, items.list, llm_tmpl_int(0, false), args->pos[0]);

	if (self.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, self);
	llm_tmpl_sort(run, entries, items.list->n, false);
	return values_of(run, entries, items.list->n);
}

/* unique(case_sensitive=false, attribute=none) */
static LlmValue
f_unique(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);
	LlmEntry *entries = keyed(run, list, args->pos[1], args->pos[0]);
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++)
	{
		size_t k = 0;

		llm_tmpl_charge_items(run, n);
		while (k < n && !llm_tmpl_equal(run, entries[k].key, entries[i].key))
			k++;
		if (k == n)
			entries[n++] = entries[i];
	}
	return values_of(run, entries, n);
}

/* ---- filters that apply another filter or a test to every element ---- */

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

/* ---- methods of mappings ---- */

/* get(key, default=none) */
static LlmValue
m_get(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmValue *value = llm_tmpl_dict_get(run, self.dict, args->pos[0]);

	if (value != NULL)
		return *value;
	return args->pos[1].kind == LLM_V_ABSENT ? llm_tmpl_none() : args->pos[1];
}

static LlmValue
m_values(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return values_of(run, self.dict->entries, self.dict->n);
}

const LlmDef llm_tmpl_list_filters[] = {{"default", f_default, "default_value boolean", 0, 0},
										{"d", f_default, "default_value boolean", 0, 0},
										{"length", f_length, "", 0, 0},
										{"count", f_length, "", 0, 0},
										{"list", f_list, "", 0, 0},
										{"first", f_end, "", 0, 0},
										{"last", f_end, "", 0, 1},
										{"reverse", f_reverse, "", 0, 0},
										{"items", f_items, "", 0, 0},
										{"join", f_join, "d attribute", 0, 0},
										{"sort", f_sort, "reverse case_sensitive attribute", 0, 0},
										{"dictsort", f_dictsort, "case_sensitive", 0, 0},
										{"unique", f_unique, "case_sensitive attribute", 0, 0},
										{"map", f_map, NULL, 0, 0},
										{"select", f_select, NULL, 0, 0},
										{"reject", f_select, NULL, 0, REJECT},
										{"selectattr", f_select, NULL, 0, BY_ATTRIBUTE},
										{"rejectattr", f_select, NULL, 0, BY_ATTRIBUTE | REJECT},
										{0}};

const LlmDef llm_tmpl_dict_methods[] = {{"get", m_get, "key default", 1, 0},
										{"items", f_items, "", 0, 0},
										{"keys", f_list, "", 0, 0},
										{"values", m_values, "", 0, 0},
										{0}};
