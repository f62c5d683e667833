/*
 * template/parse_primary.c - the tight end of an expression: literals, names, brackets, and what
 * may follow a value (attributes, subscripts, calls, filters, tests).
 */
#include "template/parser.h"

#include <string.h>

#include "template/builtin.h"

#define POSTFIX_MAX 64

static LlmNode *
const_node(LlmParser *p, LlmValue value)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_CONST, p->tok.line);

	node->value = value;
	return node;
}

/* Elements of a list or dictionary through the closing bracket. */
static LlmNode *
parse_elements(LlmParser *p, LlmNodeKind kind, const char *close)
{
	LlmNode *node = llm_tmpl_node_new(p, kind, p->tok.line);

	llm_tmpl_parser_next(p);
	while (!llm_tmpl_parser_skip(p, close))
	{
		llm_tmpl_node_push(p, node, llm_tmpl_parse_expr(p, true));
		if (kind == LLM_N_DICT)
		{
			llm_tmpl_parser_expect(p, ":");
			llm_tmpl_node_push(p, node, llm_tmpl_parse_expr(p, true));
		}
		if (!llm_tmpl_parser_at(p, close))
			llm_tmpl_parser_expect(p, ",");
	}
	return node;
}

static LlmNode *
parse_bracketed(LlmParser *p)
{
	LlmNode *node;

	if (llm_tmpl_parser_at(p, "{"))
		return parse_elements(p, LLM_N_DICT, "}");
	if (llm_tmpl_parser_at(p, "["))
		return parse_elements(p, LLM_N_LIST, "]");
	if (!llm_tmpl_parser_at(p, "("))
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_parser_next(p);
	if (llm_tmpl_parser_at(p, ")"))
		node = llm_tmpl_node_new(p, LLM_N_TUPLE, p->tok.line);
	else
		node = llm_tmpl_parse_tuple(p, true);
	llm_tmpl_parser_expect(p, ")");
	return node;
}

/* Adjacent string literals are one. The template's own words: trusted. */
static LlmNode *
parse_string(LlmParser *p)
{
	LlmNode *node = const_node(p, llm_tmpl_none());
	LlmText text = {0};

	for (; p->tok.kind == LLM_T_STRING; llm_tmpl_parser_next(p))
		text = llm_tmpl_text_concat(p->run, text, llm_tmpl_text_borrow(p->run, p->tok.str, true));
	/* threads will share it: nobody may append in place */
	text = llm_tmpl_text_borrow(p->run, (LlmStr){llm_tmpl_text_data(text), text.len}, true);
	node->value = llm_tmpl_str(p->run, text);
	return node;
}

LlmNode *
llm_tmpl_parse_primary(LlmParser *p)
{
	static const struct
	{
		const char *name;
		LlmValue value;
	} words[] = {{"true", {.kind = LLM_V_BOOL, .b = true}},
				 {"True", {.kind = LLM_V_BOOL, .b = true}},
				 {"false", {.kind = LLM_V_BOOL}},
				 {"False", {.kind = LLM_V_BOOL}},
				 {"none", {.kind = LLM_V_NONE}},
				 {"None", {.kind = LLM_V_NONE}}};
	LlmNode *node;

	switch (p->tok.kind)
	{
		case LLM_T_STRING:
			return parse_string(p);
		case LLM_T_INT:
			node = const_node(p, llm_tmpl_int(p->tok.i, true));
			break;
		case LLM_T_FLOAT:
			node = const_node(p, llm_tmpl_float(p->tok.f, true));
			break;
		case LLM_T_NAME:
			node = NULL;
			for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && node == NULL; i++)
			{
				if (llm_str_eq(p->tok.str, words[i].name))
					node = const_node(p, words[i].value);
			}
			if (node != NULL)
				break;
			node = llm_tmpl_node_new(p, LLM_N_NAME, p->tok.line);
			node->sym = llm_tmpl_parser_sym(p, p->tok.str);
			break;
		default:
			return parse_bracketed(p);
	}
	llm_tmpl_parser_next(p);
	return node;
}

/* "(a, b, name=c)" appended to the children; fills names. */
static void
parse_args(LlmParser *p, LlmNode *node)
{
	llm_tmpl_parser_expect(p, "(");
	while (!llm_tmpl_parser_skip(p, ")"))
	{
		if (llm_tmpl_parser_at(p, "**") || llm_tmpl_parser_at(p, "*"))
			llm_tmpl_fail(p->run, "arguments with * are not supported");
		if (p->tok.kind == LLM_T_NAME && p->ahead.kind == LLM_T_OP && llm_str_eq(p->ahead.str, "="))
		{
			const LlmSym *sym = llm_tmpl_parser_name(p);

			llm_tmpl_parser_next(p);
			llm_tmpl_node_push_name(p, node, sym);
		}
		else if (node->n_names > 0)
			llm_tmpl_fail(p->run, "a plain argument follows one with a name");
		llm_tmpl_node_push(p, node, llm_tmpl_parse_expr(p, true));
		if (!llm_tmpl_parser_at(p, ")"))
			llm_tmpl_parser_expect(p, ",");
	}
}

LlmNode *
llm_tmpl_parse_call(LlmParser *p, LlmNode *callee)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_CALL, p->tok.line);

	llm_tmpl_node_push(p, node, callee);
	parse_args(p, node);
	return node;
}

/* ".name" */
static LlmNode *
parse_attr(LlmParser *p, LlmNode *object)
{
	LlmNode *node;

	llm_tmpl_parser_next(p);
	node = llm_tmpl_node_new(p, LLM_N_ATTR, p->tok.line);
	llm_tmpl_node_push(p, node, object);
	node->sym = llm_tmpl_parser_name(p);
	/* no field is called so: whoever writes it wants out of the template */
	if (node->sym->name.len >= 2 && memcmp(node->sym->name.p, "__", 2) == 0)
		llm_tmpl_fail(p->run, "there is no access to '%.*s'", LLM_TMPL_SHOWN(node->sym->name));
	return node;
}

/* "[key]" or "[start:stop:step]" */
static LlmNode *
parse_subscript(LlmParser *p, LlmNode *object)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_ITEM, p->tok.line);
	LlmNode *part[3] = {NULL, NULL, NULL};
	int n = 0;

	llm_tmpl_parser_expect(p, "[");
	for (;;)
	{
		if (!llm_tmpl_parser_at(p, ":") && !llm_tmpl_parser_at(p, "]"))
			part[n] = llm_tmpl_parse_tuple(p, true);
		if (n == 2 || !llm_tmpl_parser_skip(p, ":"))
			break;
		node->kind = LLM_N_SLICE;
		n++;
	}
	if (node->kind == LLM_N_ITEM && part[0] == NULL)
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_parser_expect(p, "]");
	llm_tmpl_node_push(p, node, object);
	for (int i = 0; i < (node->kind == LLM_N_SLICE ? 3 : 1); i++)
		llm_tmpl_node_push(p, node, part[i]);
	return node;
}

LlmNode *
llm_tmpl_parse_postfix(LlmParser *p, LlmNode *node)
{
	for (int i = 0; i < POSTFIX_MAX; i++)
	{
		if (llm_tmpl_parser_at(p, "."))
			node = parse_attr(p, node);
		else if (llm_tmpl_parser_at(p, "["))
			node = parse_subscript(p, node);
		else if (llm_tmpl_parser_at(p, "("))
			node = llm_tmpl_parse_call(p, node);
		else
			return node;
	}
	llm_tmpl_fail(p->run, "more than %d attributes, subscripts and calls in a row", POSTFIX_MAX);
}

LlmNode *
llm_tmpl_parse_filters(LlmParser *p, LlmNode *input)
{
	for (int i = 0; i < POSTFIX_MAX; i++)
	{
		LlmNode *node = llm_tmpl_node_new(p, LLM_N_FILTER, p->tok.line);

		llm_tmpl_node_push(p, node, input);
		node->sym = llm_tmpl_parser_name(p);
		node->def = llm_tmpl_filter_find(node->sym->name);
		if (llm_tmpl_parser_at(p, "("))
			parse_args(p, node);
		input = node;
		if (!llm_tmpl_parser_skip(p, "|"))
			return node;
	}
	llm_tmpl_fail(p->run, "more than %d filters in a row", POSTFIX_MAX);
}

/* Does an argument without brackets follow a test's name? */
static bool
at_test_argument(const LlmParser *p)
{
	static const char *const words[] = {"else", "or", "and", "if", "is", "not", "in"};

	if (p->tok.kind != LLM_T_NAME)
		return p->tok.kind == LLM_T_STRING || p->tok.kind == LLM_T_INT ||
			   p->tok.kind == LLM_T_FLOAT || llm_tmpl_parser_at(p, "[") ||
			   llm_tmpl_parser_at(p, "{");
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
	{
		if (llm_tmpl_parser_at(p, words[i]))
			return false;
	}
	return true;
}

/* "is [not] name [argument]" */
LlmNode *
llm_tmpl_parse_test(LlmParser *p, LlmNode *input)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_TEST, p->tok.line);

	llm_tmpl_parser_next(p);
	node->negated = llm_tmpl_parser_skip(p, "not");
	node->sym = llm_tmpl_parser_name(p);
	node->def = llm_tmpl_test_find(node->sym->name);
	llm_tmpl_node_push(p, node, input);
	if (llm_tmpl_parser_at(p, "("))
		parse_args(p, node);
	else if (at_test_argument(p))
		llm_tmpl_node_push(p, node, llm_tmpl_parse_postfix(p, llm_tmpl_parse_primary(p)));
	return node;
}
