/* template/order.c - equality, order, membership and sorting of values. */
#include "template/value.h"

#include <string.h>

/* Order of two numbers; false when one is none. Integers are compared exactly. */
static bool
compare_numbers(LlmValue a, LlmValue b, int *order)
{
	double x, y;

	if (a.kind == LLM_V_INT && b.kind == LLM_V_INT)
	{
		*order = (a.i > b.i) - (a.i < b.i);
		return true;
	}
	if (!llm_tmpl_as_float(a, &x) || !llm_tmpl_as_float(b, &y))
		return false;
	*order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: not a number */
	return true;
}

static bool
equal_lists(LlmRun *run, const LlmList *a, const LlmList *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
	{
		if (!llm_tmpl_equal(run, a->items[i], b->items[i]))
			return false;
	}
	return true;
}

static bool
equal_dicts(LlmRun *run, const LlmDict *a, const LlmDict *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
	{
		const LlmValue *other = llm_tmpl_dict_get(run, b, a->entries[i].key);

		if (other == NULL || !llm_tmpl_equal(run, a->entries[i].value, *other))
			return false;
	}
	return true;
}

bool
llm_tmpl_equal(LlmRun *run, LlmValue a, LlmValue b)
{
	int order;
	bool equal = false;

	if (compare_numbers(a, b, &order))
		return order == 0;
	if (a.kind != b.kind)
		return false;
	if (a.kind == LLM_V_STR)
	{
		if (a.s->len != b.s->len)
			return false;
		llm_tmpl_charge_bytes(run, a.s->len);
		return llm_tmpl_text_eq(*a.s, *b.s);
	}
	llm_tmpl_enter(run);
	llm_tmpl_charge(run, 1);
	if (a.kind == LLM_V_LIST || a.kind == LLM_V_TUPLE)
		equal = a.list == b.list || equal_lists(run, a.list, b.list);
	else if (a.kind == LLM_V_DICT)
		equal = a.dict == b.dict || equal_dicts(run, a.dict, b.dict);
	else if (a.kind <= LLM_V_NONE)
		equal = true;
	else
		equal = a.method == b.method;
	llm_tmpl_leave(run);
	return equal;
}

int
llm_tmpl_compare(LlmRun *run, LlmValue a, LlmValue b)
{
	int order;

	if (compare_numbers(a, b, &order))
		return order;
	if (a.kind == LLM_V_STR && b.kind == LLM_V_STR)
	{
		/* Byte order of UTF-8 is the order of code points. */
		size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
		int c = memcmp(llm_tmpl_text_data(*a.s), llm_tmpl_text_data(*b.s), n);

		llm_tmpl_charge_bytes(run, n);
		return c != 0 ? (c > 0) - (c < 0) : (a.s->len > b.s->len) - (a.s->len < b.s->len);
	}
	if (a.kind == LLM_V_UNDEFINED || b.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, a.kind == LLM_V_UNDEFINED ? a : b);
	llm_tmpl_fail(run, "%s and %s have no order", llm_tmpl_kind_name(a), llm_tmpl_kind_name(b));
}

bool
llm_tmpl_contains(LlmRun *run, LlmValue container, LlmValue item)
{
	const LlmList *list;

	if (container.kind == LLM_V_STR)
	{
		LlmText needle = llm_tmpl_want_text(run, item, "'in' on a string");

		return llm_tmpl_text_find(run, *container.s, 0, needle) != SIZE_MAX;
	}
	if (container.kind == LLM_V_DICT)
		return llm_tmpl_dict_get(run, container.dict, item) != NULL;
	list = llm_tmpl_elements(run, container);
	llm_tmpl_charge_items(run, list->n);
	for (size_t i = 0; i < list->n; i++)
	{
		if (llm_tmpl_equal(run, list->items[i], item))
			return true;
	}
	return false;
}

/* By insertion: what templates sort is short, and the steps bound what is not. */
void
llm_tmpl_sort(LlmRun *run, LlmEntry *entries, size_t n, bool descending)
{
	for (size_t i = 1; i < n; i++)
	{
		LlmEntry e = entries[i];
		size_t at = i;

		for (; at > 0; at--)
		{
			int c = llm_tmpl_compare(run, e.key, entries[at - 1].key);

			llm_tmpl_charge(run, 1);
			if (descending ? c != 1 : c != -1)
				break;
			entries[at] = entries[at - 1];
		}
		entries[at] = e;
	}
}
