/* template/parser.h - from tokens to the tree. */
#ifndef LLM_TEMPLATE_PARSER_H
#define LLM_TEMPLATE_PARSER_H

#include "template/ast.h"
#include "template/lexer.h"

typedef struct LlmParser
{
	LlmRun *run;
	struct LlmTemplate *t; /* gains nodes and symbols */
	LlmLexer lexer;
	LlmToken tok;   /* the current token */
	LlmToken ahead; /* the one after it */
	int loops;      /* for statements around, within the current macro or captured block */
} LlmParser;

/* Fill t->root from the source; ends the run on errors. */
void llm_tmpl_parse(LlmRun *run, struct LlmTemplate *t, LlmStr source);

/* The rest is shared by the two halves of the parser. */
void llm_tmpl_parser_next(LlmParser *p);
bool llm_tmpl_parser_at(const LlmParser *p, const char *z); /* at this name or operator? */
bool llm_tmpl_parser_skip(LlmParser *p, const char *z);     /* pass it when there */
void llm_tmpl_parser_expect(LlmParser *p, const char *z);
const LlmSym *llm_tmpl_parser_name(LlmParser *p); /* a name is needed */
const LlmSym *llm_tmpl_parser_sym(LlmParser *p, LlmStr name);
_Noreturn void llm_tmpl_parser_unexpected(LlmParser *p);

LlmNode *llm_tmpl_node_new(LlmParser *p, LlmNodeKind kind, int line);
/* One more child; NULL stands for a part that is not there. */
void llm_tmpl_node_push(LlmParser *p, LlmNode *node, LlmNode *kid);
/* One more name. */
void llm_tmpl_node_push_name(LlmParser *p, LlmNode *node, const LlmSym *name);

/* One expression; with_cond: "a if b else c" is allowed. */
LlmNode *llm_tmpl_parse_expr(LlmParser *p, bool with_cond);
/* The same, or a tuple without brackets. */
LlmNode *llm_tmpl_parse_tuple(LlmParser *p, bool with_cond);
/* "name(args) | name ..." after the first bar, applied to input. */
LlmNode *llm_tmpl_parse_filters(LlmParser *p, LlmNode *input);

#endif
