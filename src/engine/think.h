/*
 * engine/think.h - what a thinking model writes between its markers, kept out of the answer.
 *
 * A model is known to think when its chat template writes or takes away the closing marker, or when
 * its vocabulary has a token for both; the text of every other model is passed on untouched, and so
 * is that of raw prompts. Thinking stands at the beginning of an answer or nowhere:
 *
 *     MAYBE --- opening marker --> OPEN --- closing marker --> CLOSED --- first letter --> ANSWER
 *       \----- anything else, white space in front aside -----------------------------------/
 *
 * The prompt may end in an opening marker that the template wrote: then the answer begins OPEN. What
 * is OPEN when the answer ends is all thinking, however it ends. In MAYBE, text is held back until it
 * is told apart. Markers are found in the text, so tokens may cut them anywhere; a marker that is a
 * control token counts too. White space around the thinking belongs to neither part.
 */
#ifndef LLM_ENGINE_THINK_H
#define LLM_ENGINE_THINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/str.h"
#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"

/* A model's markers. Zero: it is not known to think. */
typedef struct LlmThinkMarks
{
	LlmStr open, close;        /* static text */
	int32_t open_id, close_id; /* tokens of that text, -1 = none */
} LlmThinkMarks;

/* By the source of a model's chat template and its vocabulary. */
LlmThinkMarks llm_think_marks(LlmStr template_source, const LlmTokenizer *tok);

typedef enum LlmThinkState
{
	LLM_THINK_ANSWER = 0,
	LLM_THINK_MAYBE,
	LLM_THINK_OPEN,
	LLM_THINK_CLOSED
} LlmThinkState;

/* How an answer to this rendered prompt begins. */
LlmThinkState llm_think_begin(const LlmThinkMarks *marks, const LlmMarkedText *prompt);

/* Zero-initialise: no thinking. */
typedef struct LlmThink
{
	LlmThinkMarks marks;
	LlmThinkState state;
	LlmBuf text;    /* the thinking, or in MAYBE what is held back; owned */
	size_t scanned; /* OPEN: the closing marker does not begin in text before it */
} LlmThink;

/* Room for nbytes when there may be thinking; false when memory is out. */
bool llm_think_init(LlmThink *t, const LlmThinkMarks *marks, LlmThinkState begin, size_t nbytes);
void llm_think_fini(LlmThink *t);

/* Append the characters that a token completes to the answer or to the thinking. False when memory is
 * out. */
bool llm_think_push(LlmThink *t, const LlmTokenizer *tok, LlmDetok *d, int32_t token,
					LlmBuf *answer);
/* The answer ends: what is still held back goes to it. False when memory is out. */
bool llm_think_end(LlmThink *t, LlmBuf *answer);

/* The thinking so far, p NULL when there is none; borrowed. */
LlmStr llm_think_text(const LlmThink *t);

#endif
