/* template/filters_list.c - filters over lists, mappings and anything that may be missing. */
#include "template/builtin.h"

#include <string.h>

#include "template/access.h"
#include "template/order.h"
#include "template/print.h"

/* default(default_value='', boolean=false) */
static LlmValue
f_default(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	if (self.kind != LLM_V_UNDEFINED && (llm_tmpl_truth(self) || !llm_tmpl_truth(args->pos[1])))
		return self;
	return args->pos[0].kind == LLM_V_ABSENT ? llm_tmpl_cstr(run, "") : args->pos[0];
}

static LlmValue
f_length(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_int((int64_t) llm_tmpl_length(run, self), false);
}

static LlmValue
f_list(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_list(LLM_V_LIST, llm_tmpl_elements(run, self));
}

static LlmValue
f_first(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);

	return list->n == 0 ? llm_tmpl_undefined(NULL) : list->items[0];
}

static LlmValue
f_last(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);

	return list->n == 0 ? llm_tmpl_undefined(NULL) : list->items[list->n - 1];
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

/* What an element is compared by: an attribute when one is named, in lower case unless case
 * matters. */
static LlmValue
sort_key(LlmRun *run, LlmValue item, LlmValue attribute, LlmValue case_sensitive)
{
	if (attribute.kind > LLM_V_NONE)
		item = llm_tmpl_get_path(run, item, attribute);
	if (item.kind == LLM_V_STR && !llm_tmpl_truth(case_sensitive))
		item = llm_tmpl_str(run, llm_tmpl_text_case(run, *item.s, LLM_CASE_LOWER));
	return item;
}

/* The elements with their keys. */
static LlmEntry *
keyed(LlmRun *run, const LlmList *list, LlmValue attribute, LlmValue case_sensitive)
{
	LlmEntry *entries = llm_tmpl_alloc(run, list->n, sizeof(*entries));

	llm_tmpl_charge(run, list->n);
	for (size_t i = 0; i < list->n; i++)
		entries[i] =
			(LlmEntry){sort_key(run, list->items[i], attribute, case_sensitive), list->items[i]};
	return entries;
}

static LlmValue
values_of(LlmRun *run, const LlmEntry *entries, size_t n)
{
	LlmList *list = llm_tmpl_list_new(run, n);

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

/* dictsort(case_sensitive=false, by='key', reverse=false) */
static LlmValue
f_dictsort(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue items = f_items(run, self, NULL);
	LlmValue by = llm_tmpl_int(0, false);
	LlmEntry *entries;

	if (self.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, self);
	if (args->pos[1].kind != LLM_V_ABSENT)
	{
		LlmText text = llm_tmpl_want_text(run, args->pos[1], "dictsort");
		LlmStr word = {llm_tmpl_text_data(text), text.len};

		by.i = llm_str_eq(word, "value");
		if (by.i == 0 && !llm_str_eq(word, "key"))
			llm_tmpl_fail(run, "dictsort sorts by 'key' or 'value'");
	}
	entries = keyed(run, items.list, by, args->pos[0]);
	llm_tmpl_sort(run, entries, items.list->n, llm_tmpl_truth(args->pos[2]));
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

static LlmValue
extreme(LlmRun *run, LlmValue self, const LlmArgs *args, int order)
{
	const LlmList *list = llm_tmpl_elements(run, self);
	LlmEntry *entries = keyed(run, list, args->pos[1], args->pos[0]);
	size_t best = 0;

	if (list->n == 0)
		return llm_tmpl_undefined(NULL);
	for (size_t i = 1; i < list->n; i++)
	{
		if (llm_tmpl_compare(run, entries[i].key, entries[best].key) == order)
			best = i;
	}
	return entries[best].value;
}

static LlmValue
f_min(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return extreme(run, self, args, -1);
}

static LlmValue
f_max(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return extreme(run, self, args, 1);
}

/* sum(attribute=none, start=0) */
static LlmValue
f_sum(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);
	LlmValue sum = args->pos[1].kind == LLM_V_ABSENT ? llm_tmpl_int(0, true) : args->pos[1];

	for (size_t i = 0; i < list->n; i++)
	{
		LlmValue item = list->items[i];

		llm_tmpl_charge(run, 1);
		if (args->pos[0].kind > LLM_V_NONE)
			item = llm_tmpl_get_path(run, item, args->pos[0]);
		sum = llm_tmpl_math(run, LLM_OP_ADD, sum, item);
	}
	return sum;
}

/* batch(linecount, fill_with=none) */
static LlmValue
f_batch(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, self);
	int64_t size = llm_tmpl_want_int(run, args->pos[0], "batch");
	LlmList *rows = llm_tmpl_list_new(run, 0);
	LlmList *row = NULL;

	if (size < 1)
		llm_tmpl_fail(run, "batch needs a size above zero");
	for (size_t i = 0; i < list->n; i++)
	{
		llm_tmpl_charge(run, 1);
		if (i % (size_t) size == 0)
		{
			row = llm_tmpl_list_new(run, 0);
			llm_tmpl_list_push(run, rows, llm_tmpl_list(LLM_V_LIST, row));
		}
		llm_tmpl_list_push(run, row, list->items[i]);
	}
	while (row != NULL && args->pos[1].kind > LLM_V_NONE && row->n < (size_t) size)
	{
		llm_tmpl_charge(run, 1);
		llm_tmpl_list_push(run, row, args->pos[1]);
	}
	return llm_tmpl_list(LLM_V_LIST, rows);
}

const LlmDef llm_tmpl_list_filters[] = {{"default", f_default, "default_value boolean", 0},
										{"d", f_default, "default_value boolean", 0},
										{"length", f_length, "", 0},
										{"count", f_length, "", 0},
										{"list", f_list, "", 0},
										{"first", f_first, "", 0},
										{"last", f_last, "", 0},
										{"reverse", f_reverse, "", 0},
										{"items", f_items, "", 0},
										{"join", f_join, "d attribute", 0},
										{"sort", f_sort, "reverse case_sensitive attribute", 0},
										{"dictsort", f_dictsort, "case_sensitive by reverse", 0},
										{"unique", f_unique, "case_sensitive attribute", 0},
										{"min", f_min, "case_sensitive attribute", 0},
										{"max", f_max, "case_sensitive attribute", 0},
										{"sum", f_sum, "attribute start", 0},
										{"batch", f_batch, "linecount fill_with", 1}};
const size_t llm_tmpl_n_list_filters =
	sizeof(llm_tmpl_list_filters) / sizeof(llm_tmpl_list_filters[0]);
