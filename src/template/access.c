/* template/access.c - attributes, subscripts and slices. */
#include "template/access.h"

#include <string.h>

static LlmValue
loop_field(LlmRun *run, const LlmLoop *loop, const LlmStr *name)
{
	int64_t n = (int64_t) loop->items->n;
	int64_t i = (int64_t) loop->i;
	const struct
	{
		const char *name;
		int64_t value;
	} counts[] = {{"index", i + 1},
				  {"index0", i},
				  {"revindex", n - i},
				  {"revindex0", n - i - 1},
				  {"length", n}};

	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
	{
		if (llm_str_eq(*name, counts[k].name))
			return llm_tmpl_int(counts[k].value, true);
	}
	if (llm_str_eq(*name, "first"))
		return llm_tmpl_bool(i == 0);
	if (llm_str_eq(*name, "last"))
		return llm_tmpl_bool(i == n - 1);
	if (llm_str_eq(*name, "previtem") && i > 0)
		return loop->items->items[i - 1];
	if (llm_str_eq(*name, "nextitem") && i < n - 1)
		return loop->items->items[i + 1];
	return llm_tmpl_undefined(name);
}

LlmValue
llm_tmpl_get_attr(LlmRun *run, LlmValue object, const LlmStr *name)
{
	const LlmDef *def;
	LlmMethod *method;
	LlmValue *field;

	if (object.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, object);
	if (name->len >= 2 && name->p[0] == '_' && name->p[1] == '_')
		llm_tmpl_fail(run, "there is no access to '%.*s'", LLM_TMPL_SHOWN(*name));
	def = llm_tmpl_method_find(object, *name);
	if (def != NULL)
	{
		method = llm_tmpl_alloc(run, 1, sizeof(*method));
		*method = (LlmMethod){def, object};
		return (LlmValue){.kind = LLM_V_METHOD, .method = method};
	}
	if (object.kind == LLM_V_LOOP)
		return loop_field(run, object.loop, name);
	if (object.kind == LLM_V_DICT || object.kind == LLM_V_NAMESPACE)
	{
		field = llm_tmpl_dict_find(run, object.dict, *name);
		if (field != NULL)
			return *field;
	}
	return llm_tmpl_undefined(name);
}

/* The character or element at an index that may count from the end. */
static LlmValue
at_index(LlmRun *run, LlmValue object, int64_t i)
{
	int64_t n = (int64_t) llm_tmpl_length(run, object);
	size_t at, end;

	if (i < 0)
		i += n;
	if (i < 0 || i >= n)
		return llm_tmpl_undefined(NULL);
	if (object.kind != LLM_V_STR)
		return object.list->items[i];
	at = llm_tmpl_text_offset(run, *object.s, (size_t) i);
	end = at + llm_tmpl_text_offset(run, llm_tmpl_text_sub(*object.s, at, object.s->len - at), 1);
	return llm_tmpl_str(run, llm_tmpl_text_sub(*object.s, at, end - at));
}

LlmValue
llm_tmpl_get_item(LlmRun *run, LlmValue object, LlmValue key)
{
	bool number = key.kind == LLM_V_INT || key.kind == LLM_V_BOOL;
	LlmValue *field;
	LlmStr *name;

	if (object.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, object);
	if (number &&
		(object.kind == LLM_V_LIST || object.kind == LLM_V_TUPLE || object.kind == LLM_V_STR))
		return at_index(run, object, key.kind == LLM_V_INT ? key.i : key.b);
	if (object.kind == LLM_V_DICT)
	{
		field = llm_tmpl_dict_get(run, object.dict, key);
		if (field != NULL)
			return *field;
	}
	if (key.kind != LLM_V_STR)
		return llm_tmpl_undefined(NULL);
	name = llm_tmpl_alloc(run, 1, sizeof(*name)); /* an undefined value remembers it */
	*name = (LlmStr){llm_tmpl_text_data(*key.s), key.s->len};
	return llm_tmpl_get_attr(run, object, name);
}

LlmValue
llm_tmpl_get_path(LlmRun *run, LlmValue object, LlmValue path)
{
	LlmText dot = llm_tmpl_text_borrow(run, llm_str("."), false);
	size_t at = 0;
	LlmText text;

	if (path.kind != LLM_V_STR)
		return llm_tmpl_get_item(run, object, path);
	text = *path.s;
	do
	{
		size_t hit = llm_tmpl_text_find(run, text, at, dot);
		size_t end = hit == SIZE_MAX ? text.len : hit;

		object = llm_tmpl_get_item(run, object,
								   llm_tmpl_str(run, llm_tmpl_text_sub(text, at, end - at)));
		at = end + 1;
	} while (at <= text.len);
	return object;
}

/* A bound of a slice over n elements, clipped as Python does. */
static int64_t
clip(LlmRun *run, LlmValue bound, int64_t n, int64_t step, int64_t fallback)
{
	int64_t i;

	if (bound.kind <= LLM_V_NONE)
		return fallback;
	i = llm_tmpl_want_int(run, bound, "a slice");
	if (i < 0)
		i = i < -n ? -1 : i + n;
	if (step > 0)
		return i < 0 ? 0 : i > n ? n : i;
	return i < 0 ? -1 : i >= n ? n - 1 : i;
}

LlmValue
llm_tmpl_get_slice(LlmRun *run, LlmValue object, const LlmValue bounds[3])
{
	int64_t n, step, start, stop;
	const LlmList *all;
	LlmList *list;
	LlmTextBuf *buf;

	if (object.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, object);
	if (object.kind != LLM_V_STR && object.kind != LLM_V_LIST && object.kind != LLM_V_TUPLE)
		llm_tmpl_fail(run, "a %s cannot be sliced", llm_tmpl_kind_name(object));
	n = (int64_t) llm_tmpl_length(run, object);
	step = bounds[2].kind <= LLM_V_NONE ? 1 : llm_tmpl_want_int(run, bounds[2], "a slice");
	if (step == 0)
		llm_tmpl_fail(run, "the step of a slice is zero");
	step = step > n ? n + 1 : step < -n ? -n - 1 : step; /* the sums below cannot overflow */
	start = clip(run, bounds[0], n, step, step > 0 ? 0 : n - 1);
	stop = clip(run, bounds[1], n, step, step > 0 ? n : -1);
	if (object.kind == LLM_V_STR && step == 1)
	{
		size_t from = llm_tmpl_text_offset(run, *object.s, (size_t) start);
		size_t to = llm_tmpl_text_offset(run, *object.s, (size_t) stop);

		return llm_tmpl_str(run, llm_tmpl_text_sub(*object.s, from, to > from ? to - from : 0));
	}
	all = llm_tmpl_elements(run, object);
	list = llm_tmpl_list_new(run, 0);
	llm_tmpl_charge_items(run, (size_t) n);
	for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
		llm_tmpl_list_push(run, list, all->items[i]);
	if (object.kind != LLM_V_STR)
		return llm_tmpl_list((LlmKind) object.kind, list);
	buf = llm_tmpl_buf_new(run, object.s->len);
	for (size_t i = 0; i < list->n; i++)
		llm_tmpl_buf_add_text(run, buf, *list->items[i].s);
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}
