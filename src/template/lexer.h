/*
 * template/lexer.h - the tokens of a template, one at a time.
 *
 * White space follows the environment that Hugging Face renders with: trim_blocks (the new line
 * after a block or comment goes), lstrip_blocks (blanks before a block or comment that begins its
 * line go), keep_trailing_newline off (one new line at the end goes), '-' and '+' as in Jinja.
 */
#ifndef LLM_TEMPLATE_LEXER_H
#define LLM_TEMPLATE_LEXER_H

#include "core/str.h"
#include "template/bounds.h"

typedef enum LlmTokenKind
{
	LLM_T_EOF,
	LLM_T_TEXT,        /* str: literal text between tags */
	LLM_T_VAR_BEGIN,   /* {{ */
	LLM_T_VAR_END,     /* }} */
	LLM_T_BLOCK_BEGIN, /* {% */
	LLM_T_BLOCK_END,   /* %} */
	LLM_T_NAME,
	LLM_T_STRING, /* str: without quotes and escapes */
	LLM_T_INT,    /* i */
	LLM_T_FLOAT,  /* f */
	LLM_T_OP      /* one of ** // == != <= >= + - * / % ~ < > = | . , : ( ) [ ] { } */
} LlmTokenKind;

typedef struct LlmToken
{
	LlmTokenKind kind;
	int line;   /* where it begins, from 1 */
	LlmStr str; /* its text, borrowed from the source or the run's arena */
	int64_t i;
	double f;
} LlmToken;

typedef struct LlmLexer
{
	LlmRun *run;
	const char *src; /* [len] normalised source */
	size_t len;
	size_t pos;    /* next byte */
	int line;      /* line of pos */
	int open;      /* brackets open inside the tag */
	char mode;     /* 'd' text, 'v' inside {{ }}, 'b' inside {% %} */
	LlmToken held; /* the tag token that follows a text just returned */
	bool has_held; /* held is set */
} LlmLexer;

/* Copy the source with plain new lines and set up. The text must be valid UTF-8. */
void llm_tmpl_lexer_init(LlmLexer *lx, LlmRun *run, LlmStr source);
/* The next token; ends the run with the line for anything malformed. */
LlmToken llm_tmpl_lexer_next(LlmLexer *lx);

#endif
