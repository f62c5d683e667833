/* template/methods.c - methods of strings, mappings, lists and loops. */
#include "template/builtin.h"

#include <utf8proc.h>

#include "template/access.h"
#include "template/order.h"
#include "template/print.h"

static LlmValue
m_upper(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_str(run, llm_tmpl_text_case(run, *self.s, LLM_CASE_UPPER));
}

static LlmValue
m_lower(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_str(run, llm_tmpl_text_case(run, *self.s, LLM_CASE_LOWER));
}

static LlmValue
m_title(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_str(run, llm_tmpl_text_case(run, *self.s, LLM_CASE_TITLE));
}

static LlmValue
m_capitalize(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_str(run, llm_tmpl_text_case(run, *self.s, LLM_CASE_CAPITAL));
}

static LlmValue
strip(LlmRun *run, LlmValue self, const LlmArgs *args, bool left, bool right)
{
	LlmText set;
	bool given = args->pos[0].kind != LLM_V_ABSENT && args->pos[0].kind != LLM_V_NONE;

	if (given)
		set = llm_tmpl_want_text(run, args->pos[0], "strip");
	return llm_tmpl_str(run, llm_tmpl_text_strip(run, *self.s, given ? &set : NULL, left, right));
}

static LlmValue
m_strip(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return strip(run, self, args, true, true);
}

static LlmValue
m_lstrip(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return strip(run, self, args, true, false);
}

static LlmValue
m_rstrip(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return strip(run, self, args, false, true);
}

/* Split at white space, from the left; limit < 0 means everywhere. */
static void
split_words(LlmRun *run, LlmText text, int64_t limit, LlmList *list)
{
	text = llm_tmpl_text_strip(run, text, NULL, true, limit < 0);
	while (text.len > 0)
	{
		const char *p = llm_tmpl_text_data(text);
		size_t end = 0;
		uint32_t c;

		while (end < text.len && limit != 0)
		{
			size_t len = llm_tmpl_char(p + end, text.len - end, &c);

			if (llm_tmpl_is_space(c))
				break;
			end += len;
		}
		if (limit == 0)
			end = text.len;
		limit -= limit > 0;
		llm_tmpl_charge(run, 1 + end / LLM_TMPL_BYTES_PER_STEP);
		llm_tmpl_list_push(run, list, llm_tmpl_str(run, llm_tmpl_text_sub(text, 0, end)));
		text = llm_tmpl_text_sub(text, end, text.len - end);
		text = llm_tmpl_text_strip(run, text, NULL, true, false);
	}
}

/* split(sep=none, maxsplit=-1) */
static LlmValue
m_split(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	int64_t limit =
		args->pos[1].kind == LLM_V_ABSENT ? -1 : llm_tmpl_want_int(run, args->pos[1], "split");
	LlmList *list = llm_tmpl_list_new(run, 0);
	LlmText text = *self.s, sep;
	size_t at = 0;

	if (args->pos[0].kind <= LLM_V_NONE)
	{
		split_words(run, text, limit, list);
		return llm_tmpl_list(LLM_V_LIST, list);
	}
	sep = llm_tmpl_want_text(run, args->pos[0], "split");
	if (sep.len == 0)
		llm_tmpl_fail(run, "split by an empty string");
	for (;;)
	{
		size_t hit = limit == 0 ? SIZE_MAX : llm_tmpl_text_find(run, text, at, sep);
		size_t end = hit == SIZE_MAX ? text.len : hit;

		llm_tmpl_charge(run, 1);
		llm_tmpl_list_push(run, list, llm_tmpl_str(run, llm_tmpl_text_sub(text, at, end - at)));
		if (hit == SIZE_MAX)
			return llm_tmpl_list(LLM_V_LIST, list);
		at = hit + sep.len;
		limit -= limit > 0;
	}
}

/* rsplit(sep=none, maxsplit=-1); by white space only without a limit, where it is split. */
static LlmValue
m_rsplit(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmValue back[3] = {{0}, {0}, llm_tmpl_int(-1, true)};
	int64_t limit =
		args->pos[1].kind == LLM_V_ABSENT ? -1 : llm_tmpl_want_int(run, args->pos[1], "rsplit");
	LlmList *list = llm_tmpl_list_new(run, 0);
	size_t end = self.s->len;
	LlmText sep;

	if (limit < 0 && args->pos[0].kind <= LLM_V_NONE)
		return m_split(run, self, args);
	sep = llm_tmpl_want_text(run, args->pos[0], "rsplit");
	if (sep.len == 0)
		llm_tmpl_fail(run, "rsplit by an empty string");
	for (;;)
	{
		size_t hit = limit-- == 0 ? SIZE_MAX : llm_tmpl_text_rfind(run, *self.s, end, sep);
		size_t from = hit == SIZE_MAX ? 0 : hit + sep.len;

		llm_tmpl_charge(run, 1);
		llm_tmpl_list_push(run, list,
						   llm_tmpl_str(run, llm_tmpl_text_sub(*self.s, from, end - from)));
		if (hit == SIZE_MAX)
			return llm_tmpl_get_slice(run, llm_tmpl_list(LLM_V_LIST, list), back);
		end = hit;
	}
}

static LlmValue
m_splitlines(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmList *list = llm_tmpl_list_new(run, 0);
	LlmText line;
	size_t at = 0;

	while (llm_tmpl_text_line(run, *self.s, &at, &line))
		llm_tmpl_list_push(run, list, llm_tmpl_str(run, line));
	return llm_tmpl_list(LLM_V_LIST, list);
}

static bool
has_affix(LlmRun *run, LlmText text, LlmText affix, bool at_end)
{
	if (affix.len > text.len)
		return false;
	llm_tmpl_charge_bytes(run, affix.len);
	return llm_tmpl_text_eq(llm_tmpl_text_sub(text, at_end ? text.len - affix.len : 0, affix.len),
							affix);
}

/* One string or a tuple of them. */
static LlmValue
affix(LlmRun *run, LlmValue self, LlmValue what, bool at_end)
{
	if (what.kind != LLM_V_TUPLE)
		return llm_tmpl_bool(
			has_affix(run, *self.s, llm_tmpl_want_text(run, what, "startswith"), at_end));
	for (size_t i = 0; i < what.list->n; i++)
	{
		if (has_affix(run, *self.s, llm_tmpl_want_text(run, what.list->items[i], "startswith"),
					  at_end))
			return llm_tmpl_bool(true);
	}
	return llm_tmpl_bool(false);
}

static LlmValue
m_startswith(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return affix(run, self, args->pos[0], false);
}

static LlmValue
m_endswith(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return affix(run, self, args->pos[0], true);
}

static LlmValue
m_removeprefix(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText cut = llm_tmpl_want_text(run, args->pos[0], "removeprefix");

	if (!has_affix(run, *self.s, cut, false))
		return self;
	return llm_tmpl_str(run, llm_tmpl_text_sub(*self.s, cut.len, self.s->len - cut.len));
}

static LlmValue
m_removesuffix(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText cut = llm_tmpl_want_text(run, args->pos[0], "removesuffix");

	if (!has_affix(run, *self.s, cut, true))
		return self;
	return llm_tmpl_str(run, llm_tmpl_text_sub(*self.s, 0, self.s->len - cut.len));
}

/* replace(old, new, count=-1) */
static LlmValue
m_replace(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText old = llm_tmpl_want_text(run, args->pos[0], "replace");
	LlmText new = llm_tmpl_want_text(run, args->pos[1], "replace");
	int64_t count =
		args->pos[2].kind == LLM_V_ABSENT ? -1 : llm_tmpl_want_int(run, args->pos[2], "replace");

	return llm_tmpl_str(run, llm_tmpl_text_replace(run, *self.s, old, new, count));
}

/* A byte offset as the index of a character; SIZE_MAX as -1. */
static LlmValue
char_index(LlmRun *run, LlmText text, size_t at)
{
	if (at == SIZE_MAX)
		return llm_tmpl_int(-1, false);
	return llm_tmpl_int((int64_t) llm_tmpl_text_chars(run, llm_tmpl_text_sub(text, 0, at)), false);
}

static LlmValue
m_find(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText needle = llm_tmpl_want_text(run, args->pos[0], "find");

	return char_index(run, *self.s, llm_tmpl_text_find(run, *self.s, 0, needle));
}

static LlmValue
m_rfind(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText needle = llm_tmpl_want_text(run, args->pos[0], "rfind");

	return char_index(run, *self.s, llm_tmpl_text_rfind(run, *self.s, self.s->len, needle));
}

static LlmValue
m_count(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmText needle;
	size_t at = 0;
	int64_t n = 0;

	if (self.kind != LLM_V_STR)
	{
		llm_tmpl_charge(run, self.list->n);
		for (size_t i = 0; i < self.list->n; i++)
			n += llm_tmpl_equal(run, self.list->items[i], args->pos[0]);
		return llm_tmpl_int(n, false);
	}
	needle = llm_tmpl_want_text(run, args->pos[0], "count");
	if (needle.len == 0)
		return llm_tmpl_int((int64_t) llm_tmpl_text_chars(run, *self.s) + 1, false);
	while ((at = llm_tmpl_text_find(run, *self.s, at, needle)) != SIZE_MAX)
	{
		llm_tmpl_charge(run, 1);
		at += needle.len;
		n++;
	}
	return llm_tmpl_int(n, false);
}

static LlmValue
m_index(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmValue at;

	if (self.kind == LLM_V_STR)
	{
		at = m_find(run, self, args);
		if (at.i >= 0)
			return at;
	}
	for (size_t i = 0; self.kind != LLM_V_STR && i < self.list->n; i++)
	{
		llm_tmpl_charge(run, 1);
		if (llm_tmpl_equal(run, self.list->items[i], args->pos[0]))
			return llm_tmpl_int((int64_t) i, false);
	}
	llm_tmpl_fail(run, "index finds nothing");
}

/* The separator's own method: sep.join(list of strings). */
static LlmValue
m_join(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmList *list = llm_tmpl_elements(run, args->pos[0]);
	LlmTextBuf *buf = llm_tmpl_buf_new(run, 0);

	for (size_t i = 0; i < list->n; i++)
	{
		llm_tmpl_charge(run, 1);
		if (i > 0)
			llm_tmpl_buf_add_text(run, buf, *self.s);
		llm_tmpl_buf_add_text(run, buf, llm_tmpl_want_text(run, list->items[i], "join"));
	}
	return llm_tmpl_str(run, llm_tmpl_buf_text(buf));
}

static LlmValue
m_format(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_str(run, llm_tmpl_format_braces(run, *self.s, args));
}

/* Is the text not empty and all of its characters of one class: 'd' digits, 'a' letters, 'n' either,
 * 's' white space? */
static bool
all_of(LlmRun *run, LlmText text, char class)
{
	const char *p = llm_tmpl_text_data(text);

	llm_tmpl_charge(run, text.len / 16);
	for (size_t at = 0; at < text.len;)
	{
		uint32_t c;
		size_t len = llm_tmpl_char(p + at, text.len - at, &c);
		utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t) c);
		bool letter = cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
		bool digit = cat == UTF8PROC_CATEGORY_ND;

		if (!(class == 's'   ? llm_tmpl_is_space(c)
			  : class == 'd' ? digit
			  : class == 'a' ? letter
							 : letter || digit))
			return false;
		at += len;
	}
	return text.len > 0;
}

static LlmValue
m_isdigit(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(all_of(run, *self.s, 'd'));
}

static LlmValue
m_isalpha(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(all_of(run, *self.s, 'a'));
}

static LlmValue
m_isalnum(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(all_of(run, *self.s, 'n'));
}

static LlmValue
m_isspace(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_bool(all_of(run, *self.s, 's'));
}

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
m_items(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	const LlmArgs none = {0};

	return llm_tmpl_apply(run, llm_tmpl_filter_find(llm_str("items")), self, &none);
}

static LlmValue
m_keys(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	return llm_tmpl_list(LLM_V_LIST, llm_tmpl_elements(run, self));
}

static LlmValue
m_values(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	LlmList *list = llm_tmpl_list_new(run, self.dict->n);

	llm_tmpl_charge_items(run, self.dict->n);
	for (size_t i = 0; i < self.dict->n; i++)
		llm_tmpl_list_push(run, list, self.dict->entries[i].value);
	return llm_tmpl_list(LLM_V_LIST, list);
}

static LlmValue
m_cycle(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	if (args->n_pos == 0)
		llm_tmpl_fail(run, "cycle needs something to cycle through");
	return args->pos[self.loop->i % args->n_pos];
}

/* loop.changed(value): is it another one than at the last call? */
static LlmValue
m_changed(LlmRun *run, LlmValue self, const LlmArgs *args)
{
	bool same = self.loop->changed->kind != LLM_V_ABSENT &&
				llm_tmpl_equal(run, *self.loop->changed, args->pos[0]);

	*self.loop->changed = args->pos[0];
	return llm_tmpl_bool(!same);
}

static const LlmDef string_methods[] = {{"upper", m_upper, "", 0},
										{"lower", m_lower, "", 0},
										{"title", m_title, "", 0},
										{"capitalize", m_capitalize, "", 0},
										{"strip", m_strip, "chars", 0},
										{"lstrip", m_lstrip, "chars", 0},
										{"rstrip", m_rstrip, "chars", 0},
										{"split", m_split, "sep maxsplit", 0},
										{"rsplit", m_rsplit, "sep maxsplit", 0},
										{"splitlines", m_splitlines, "", 0},
										{"startswith", m_startswith, "prefix", 1},
										{"endswith", m_endswith, "suffix", 1},
										{"removeprefix", m_removeprefix, "prefix", 1},
										{"removesuffix", m_removesuffix, "suffix", 1},
										{"replace", m_replace, "old new count", 2},
										{"find", m_find, "sub", 1},
										{"rfind", m_rfind, "sub", 1},
										{"index", m_index, "sub", 1},
										{"count", m_count, "sub", 1},
										{"join", m_join, "iterable", 1},
										{"format", m_format, NULL, 0},
										{"isdigit", m_isdigit, "", 0},
										{"isalpha", m_isalpha, "", 0},
										{"isalnum", m_isalnum, "", 0},
										{"isspace", m_isspace, "", 0}};
static const LlmDef dict_methods[] = {{"get", m_get, "key default", 1},
									  {"items", m_items, "", 0},
									  {"keys", m_keys, "", 0},
									  {"values", m_values, "", 0}};
static const LlmDef list_methods[] = {{"index", m_index, "value", 1},
									  {"count", m_count, "value", 1}};
static const LlmDef loop_methods[] = {{"cycle", m_cycle, NULL, 0},
									  {"changed", m_changed, "value", 1}};

const LlmDef *
llm_tmpl_method_find(LlmValue self, LlmStr name)
{
#define FIND(table) llm_tmpl_def_find(table, sizeof(table) / sizeof((table)[0]), name)
	switch ((LlmKind) self.kind)
	{
		case LLM_V_STR:
			return FIND(string_methods);
		case LLM_V_DICT:
			return FIND(dict_methods);
		case LLM_V_LIST:
		case LLM_V_TUPLE:
			return FIND(list_methods);
		case LLM_V_LOOP:
			return FIND(loop_methods);
		default:
			return NULL;
	}
#undef FIND
}
