/* template/value.h - the values a template computes with. */
#ifndef LLM_TEMPLATE_VALUE_H
#define LLM_TEMPLATE_VALUE_H

#include <jansson.h>

#include "core/str.h"
#include "template/text.h"

typedef enum LlmKind
{
	LLM_V_ABSENT, /* no value at all: an argument that was not given */
	LLM_V_UNDEFINED,
	LLM_V_NONE,
	LLM_V_BOOL,
	LLM_V_INT,
	LLM_V_FLOAT,
	LLM_V_STR,
	LLM_V_LIST,
	LLM_V_TUPLE,
	LLM_V_DICT,
	LLM_V_NAMESPACE,
	LLM_V_LOOP,
	LLM_V_MACRO,
	LLM_V_FUNCTION,
	LLM_V_METHOD
} LlmKind;

typedef struct LlmValue
{
	uint8_t kind; /* LlmKind */
	bool trusted; /* of a number: computed from the template's own numbers only */
	union
	{
		bool b;
		int64_t i;
		double f;
		const LlmText *s;
		struct LlmList *list;           /* LIST and TUPLE */
		struct LlmDict *dict;           /* DICT and NAMESPACE */
		const struct LlmLoop *loop;     /* LOOP */
		const struct LlmMacro *macro;   /* MACRO */
		const struct LlmDef *function;  /* FUNCTION */
		const struct LlmMethod *method; /* METHOD */
		const LlmStr *name;             /* UNDEFINED: what was missing, or NULL */
	};
} LlmValue;

typedef struct LlmList
{
	LlmValue *items; /* [cap] */
	size_t n;        /* elements in use */
	size_t cap;      /* elements allocated */
} LlmList;

typedef struct LlmEntry
{
	LlmValue key;
	LlmValue value;
} LlmEntry;

/* In order of insertion; found by walking, which pays steps. */
typedef struct LlmDict
{
	LlmEntry *entries; /* [cap] */
	size_t n;          /* entries in use */
	size_t cap;        /* entries allocated */
} LlmDict;

/* A method together with the value it was taken from. */
typedef struct LlmMethod
{
	const struct LlmDef *def;
	LlmValue self;
} LlmMethod;

/* What `loop` is inside a for. */
typedef struct LlmLoop
{
	const LlmList *items; /* all elements of the loop */
	size_t i;             /* the current one, from 0 */
} LlmLoop;

LlmValue llm_tmpl_str(LlmRun *run, LlmText text);
/* The same over borrowed bytes, which must outlive the run. */
LlmValue llm_tmpl_str_borrow(LlmRun *run, LlmStr s, bool trusted);

static inline LlmValue
llm_tmpl_bool(bool b)
{
	return (LlmValue){.kind = LLM_V_BOOL, .b = b};
}

static inline LlmValue
llm_tmpl_int(int64_t i, bool trusted)
{
	return (LlmValue){.kind = LLM_V_INT, .trusted = trusted, .i = i};
}

static inline LlmValue
llm_tmpl_float(double f, bool trusted)
{
	return (LlmValue){.kind = LLM_V_FLOAT, .trusted = trusted, .f = f};
}

static inline LlmValue
llm_tmpl_none(void)
{
	return (LlmValue){.kind = LLM_V_NONE};
}

/* name: what was missing (outlives the run), or NULL. */
static inline LlmValue
llm_tmpl_undefined(const LlmStr *name)
{
	return (LlmValue){.kind = LLM_V_UNDEFINED, .name = name};
}

LlmList *llm_tmpl_list_new(LlmRun *run, size_t cap);
void llm_tmpl_list_push(LlmRun *run, LlmList *list, LlmValue v);

static inline LlmValue
llm_tmpl_list(LlmKind kind, LlmList *list)
{
	return (LlmValue){.kind = (uint8_t) kind, .list = list};
}

LlmDict *llm_tmpl_dict_new(LlmRun *run, size_t cap);
/* The value under a key, or NULL. */
LlmValue *llm_tmpl_dict_get(LlmRun *run, const LlmDict *dict, LlmValue key);
LlmValue *llm_tmpl_dict_find(LlmRun *run, const LlmDict *dict, LlmStr name);
/* Set or add. Lists, dictionaries and the like cannot be keys. */
void llm_tmpl_dict_set(LlmRun *run, LlmDict *dict, LlmValue key, LlmValue value);

/* The word for a kind in messages and errors, such as "string". */
const char *llm_tmpl_kind_name(LlmValue v);
/* End the run because v is undefined, naming what was missing. */
_Noreturn void llm_tmpl_fail_undefined(LlmRun *run, LlmValue v);

bool llm_tmpl_truth(LlmValue v);
/* Elements of a string (characters), list, tuple, dictionary (keys) or undefined (nothing). The list
 * of a LIST or TUPLE is the value's own and must not be changed. */
LlmList *llm_tmpl_elements(LlmRun *run, LlmValue v);
size_t llm_tmpl_length(LlmRun *run, LlmValue v);
/* The text of a STR; ends the run for any other kind, `what` naming the place. */
LlmText llm_tmpl_want_text(LlmRun *run, LlmValue v, const char *what);
int64_t llm_tmpl_want_int(LlmRun *run, LlmValue v, const char *what);
/* The number as a double; false when v is no number. */
bool llm_tmpl_as_float(LlmValue v, double *f);

/* Deep copy of a caller's JSON; nothing in it is trusted. Strings stay borrowed. Raises the memory
 * bound by what the input deserves. */
LlmValue llm_tmpl_from_json(LlmRun *run, const json_t *json);
/* The share of the memory bound for n bytes of input text. */
void llm_tmpl_allow_input(LlmRun *run, size_t n);

/* ---- order.c ---- */

bool llm_tmpl_equal(LlmRun *run, LlmValue a, LlmValue b);
/* -1, 0 or 1; ends the run when the two have no order. */
int llm_tmpl_compare(LlmRun *run, LlmValue a, LlmValue b);
bool llm_tmpl_contains(LlmRun *run, LlmValue container, LlmValue item);
/* Sort by key, stable. */
void llm_tmpl_sort(LlmRun *run, LlmEntry *entries, size_t n, bool descending);

#endif
