/* template/value.c - making and walking values. */
#include "template/value.h"

#include <string.h>

/* Bytes of memory allowed per byte of input, and the input that one JSON value counts for. */
#define MEMORY_PER_BYTE 32
#define JSON_VALUE_BYTES 8

LlmValue
llm_tmpl_str(LlmRun *run, LlmText text)
{
	LlmText *s = llm_tmpl_alloc(run, 1, sizeof(*s));

	*s = text;
	return (LlmValue){.kind = LLM_V_STR, .s = s};
}

LlmValue
llm_tmpl_str_borrow(LlmRun *run, LlmStr s, bool trusted)
{
	return llm_tmpl_str(run, llm_tmpl_text_borrow(run, s, trusted));
}

LlmList *
llm_tmpl_list_new(LlmRun *run, size_t cap)
{
	LlmList *list = llm_tmpl_alloc(run, 1, sizeof(*list));

	if (cap > 0)
		list->items = llm_tmpl_alloc(run, cap, sizeof(LlmValue));
	list->cap = cap;
	return list;
}

void
llm_tmpl_list_push(LlmRun *run, LlmList *list, LlmValue v)
{
	llm_tmpl_grow(run, (void **) &list->items, list->n, &list->cap, list->n + 1, sizeof(v));
	list->items[list->n++] = v;
}

LlmDict *
llm_tmpl_dict_new(LlmRun *run, size_t cap)
{
	LlmDict *dict = llm_tmpl_alloc(run, 1, sizeof(*dict));

	if (cap > 0)
		dict->entries = llm_tmpl_alloc(run, cap, sizeof(LlmEntry));
	dict->cap = cap;
	return dict;
}

LlmValue *
llm_tmpl_dict_find(LlmRun *run, const LlmDict *dict, LlmStr name)
{
	llm_tmpl_charge_items(run, dict->n);
	for (size_t i = 0; i < dict->n; i++)
	{
		LlmValue key = dict->entries[i].key;

		if (key.kind != LLM_V_STR || key.s->len != name.len)
			continue;
		llm_tmpl_charge_bytes(run, name.len);
		if (memcmp(llm_tmpl_text_data(*key.s), name.p, name.len) == 0)
			return &dict->entries[i].value;
	}
	return NULL;
}

LlmValue *
llm_tmpl_dict_get(LlmRun *run, const LlmDict *dict, LlmValue key)
{
	if (key.kind == LLM_V_STR)
		return llm_tmpl_dict_find(run, dict, (LlmStr){llm_tmpl_text_data(*key.s), key.s->len});
	llm_tmpl_charge_items(run, dict->n);
	for (size_t i = 0; i < dict->n; i++)
	{
		if (llm_tmpl_equal(run, dict->entries[i].key, key))
			return &dict->entries[i].value;
	}
	return NULL;
}

static void
dict_append(LlmRun *run, LlmDict *dict, LlmValue key, LlmValue value)
{
	llm_tmpl_grow(run, (void **) &dict->entries, dict->n, &dict->cap, dict->n + 1,
				  sizeof(LlmEntry));
	dict->entries[dict->n++] = (LlmEntry){key, value};
}

void
llm_tmpl_dict_set(LlmRun *run, LlmDict *dict, LlmValue key, LlmValue value)
{
	LlmValue *at;

	if (key.kind < LLM_V_NONE || (key.kind > LLM_V_STR && key.kind != LLM_V_TUPLE))
		llm_tmpl_fail(run, "a %s cannot be a key", llm_tmpl_kind_name(key));
	at = llm_tmpl_dict_get(run, dict, key);
	if (at != NULL)
		*at = value;
	else
		dict_append(run, dict, key, value);
}

const char *
llm_tmpl_kind_name(LlmValue v)
{
	static const char *const names[] = {"missing value", "undefined", "none",      "boolean",
										"integer",       "float",     "string",    "list",
										"tuple",         "mapping",   "namespace", "loop",
										"macro",         "function",  "method"};

	return names[v.kind];
}

void
llm_tmpl_fail_undefined(LlmRun *run, LlmValue v)
{
	if (v.name == NULL)
		llm_tmpl_fail(run, "the value is undefined");
	llm_tmpl_fail(run, "'%.*s' is undefined", LLM_TMPL_SHOWN(*v.name));
}

bool
llm_tmpl_truth(LlmValue v)
{
	switch ((LlmKind) v.kind)
	{
		case LLM_V_BOOL:
			return v.b;
		case LLM_V_INT:
			return v.i != 0;
		case LLM_V_FLOAT:
			return v.f != 0;
		case LLM_V_STR:
			return v.s->len > 0;
		case LLM_V_LIST:
		case LLM_V_TUPLE:
			return v.list->n > 0;
		case LLM_V_DICT:
			return v.dict->n > 0;
		default:
			return v.kind > LLM_V_NONE;
	}
}

bool
llm_tmpl_as_float(LlmValue v, double *f)
{
	if (v.kind == LLM_V_FLOAT)
		*f = v.f;
	else if (v.kind == LLM_V_INT)
		*f = (double) v.i;
	else if (v.kind == LLM_V_BOOL)
		*f = v.b;
	else
		return false;
	return true;
}

static LlmList *
characters(LlmRun *run, LlmText text)
{
	LlmList *list = llm_tmpl_list_new(run, llm_tmpl_text_chars(run, text));
	size_t at = 0;

	llm_tmpl_charge_items(run, text.len);
	while (at < text.len)
	{
		uint32_t c;
		size_t len = llm_tmpl_char(llm_tmpl_text_data(text) + at, text.len - at, &c);

		llm_tmpl_list_push(run, list, llm_tmpl_str(run, llm_tmpl_text_sub(text, at, len)));
		at += len;
	}
	return list;
}

LlmList *
llm_tmpl_elements(LlmRun *run, LlmValue v)
{
	LlmList *list;

	switch ((LlmKind) v.kind)
	{
		case LLM_V_LIST:
		case LLM_V_TUPLE:
			return v.list;
		case LLM_V_STR:
			return characters(run, *v.s);
		case LLM_V_UNDEFINED:
			return llm_tmpl_list_new(run, 0);
		case LLM_V_DICT:
			list = llm_tmpl_list_new(run, v.dict->n);
			llm_tmpl_charge_items(run, v.dict->n);
			for (size_t i = 0; i < v.dict->n; i++)
				llm_tmpl_list_push(run, list, v.dict->entries[i].key);
			return list;
		default:
			llm_tmpl_fail(run, "a %s cannot be iterated", llm_tmpl_kind_name(v));
	}
}

size_t
llm_tmpl_length(LlmRun *run, LlmValue v)
{
	switch ((LlmKind) v.kind)
	{
		case LLM_V_STR:
			return llm_tmpl_text_chars(run, *v.s);
		case LLM_V_LIST:
		case LLM_V_TUPLE:
			return v.list->n;
		case LLM_V_DICT:
			return v.dict->n;
		case LLM_V_UNDEFINED:
			return 0;
		default:
			llm_tmpl_fail(run, "a %s has no length", llm_tmpl_kind_name(v));
	}
}

LlmText
llm_tmpl_want_text(LlmRun *run, LlmValue v, const char *what)
{
	if (v.kind == LLM_V_UNDEFINED)
		llm_tmpl_fail_undefined(run, v);
	if (v.kind != LLM_V_STR)
		llm_tmpl_fail(run, "%s needs a string, not a %s", what, llm_tmpl_kind_name(v));
	return *v.s;
}

int64_t
llm_tmpl_want_int(LlmRun *run, LlmValue v, const char *what)
{
	if (v.kind == LLM_V_BOOL)
		return v.b;
	if (v.kind != LLM_V_INT)
		llm_tmpl_fail(run, "%s needs an integer, not a %s", what, llm_tmpl_kind_name(v));
	return v.i;
}

void
llm_tmpl_allow_input(LlmRun *run, size_t n)
{
	run->limit += n < SIZE_MAX / MEMORY_PER_BYTE / 4 ? n * MEMORY_PER_BYTE : 0;
}

static LlmValue
dict_from_json(LlmRun *run, const json_t *json)
{
	LlmDict *dict = llm_tmpl_dict_new(run, json_object_size(json));
	json_t *object = (json_t *) (uintptr_t) json; /* the iterators of jansson take no const */

	for (void *it = json_object_iter(object); it != NULL; it = json_object_iter_next(object, it))
	{
		LlmStr key = {json_object_iter_key(it), json_object_iter_key_len(it)};

		llm_tmpl_allow_input(run, key.len + JSON_VALUE_BYTES);
		dict_append(run, dict, llm_tmpl_str_borrow(run, key, false),
					llm_tmpl_from_json(run, json_object_iter_value(it)));
	}
	return (LlmValue){.kind = LLM_V_DICT, .dict = dict};
}

static LlmValue
list_from_json(LlmRun *run, const json_t *json)
{
	LlmList *list;

	llm_tmpl_allow_input(run, json_array_size(json));
	list = llm_tmpl_list_new(run, json_array_size(json));
	for (size_t i = 0; i < json_array_size(json); i++)
		llm_tmpl_list_push(run, list, llm_tmpl_from_json(run, json_array_get(json, i)));
	return llm_tmpl_list(LLM_V_LIST, list);
}

LlmValue
llm_tmpl_from_json(LlmRun *run, const json_t *json)
{
	LlmValue v = llm_tmpl_none();

	llm_tmpl_enter(run);
	llm_tmpl_allow_input(run, JSON_VALUE_BYTES);
	if (json_is_object(json))
		v = dict_from_json(run, json);
	else if (json_is_array(json))
		v = list_from_json(run, json);
	else if (json_is_string(json))
	{
		LlmStr s = {json_string_value(json), json_string_length(json)};

		llm_tmpl_allow_input(run, s.len);
		v = llm_tmpl_str_borrow(run, s, false);
	}
	else if (json_is_integer(json))
		v = llm_tmpl_int(json_integer_value(json), false);
	else if (json_is_real(json))
		v = llm_tmpl_float(json_real_value(json), false);
	else if (json_is_boolean(json))
		v = llm_tmpl_bool(json_is_true(json));
	llm_tmpl_leave(run);
	return v;
}
