/* template/print.h - values as text: as Python prints them, and as JSON. */
#ifndef LLM_TEMPLATE_PRINT_H
#define LLM_TEMPLATE_PRINT_H

#include "template/value.h"

/* Append what Python's str() gives; undefined is empty. */
void llm_tmpl_print(LlmRun *run, LlmTextBuf *buf, LlmValue v);
/* The same as a text of its own. */
LlmText llm_tmpl_to_text(LlmRun *run, LlmValue v);

/* How lists and the like are written: settings of json.dumps, or Python's repr(). */
typedef struct LlmStyle
{
	bool json;
	bool ascii;       /* \uXXXX for everything beyond ASCII */
	bool sort_keys;   /* by key */
	bool pretty;      /* new lines and indent */
	LlmText indent;   /* once per level */
	LlmText item_sep; /* between elements */
	LlmText key_sep;  /* between key and value */
} LlmStyle;

LlmText llm_tmpl_to_json(LlmRun *run, LlmValue v, const LlmStyle *style);

#endif
