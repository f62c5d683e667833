/*
 * template/parse_expr.c - expressions, by recursive descent.
 *
 * From loosest to tightest: if-else, or, and, not, comparison, + -, ~, * / // %, **, sign, then
 * filters and tests, calls, attributes and subscripts; literals, names and brackets are at the core.
 * This is Jinja's order: ~ binds tighter than +, and a sign tighter than **.
 */
#include "template/parser.h"

#include <string.h>

#include "template/builtin.h"

#define POSTFIX_MAX 64

/* ---- literals, names, brackets, and what may follow a value ---- */

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

static LlmNode *
parse_primary(LlmParser *p)
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

static LlmNode *
parse_call(LlmParser *p, LlmNode *callee)
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

static LlmNode *
parse_postfix(LlmParser *p, LlmNode *node)
{
	for (int i = 0; i < POSTFIX_MAX; i++)
	{
		if (llm_tmpl_parser_at(p, "."))
			node = parse_attr(p, node);
		else if (llm_tmpl_parser_at(p, "["))
			node = parse_subscript(p, node);
		else if (llm_tmpl_parser_at(p, "("))
			node = parse_call(p, node);
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
static LlmNode *
parse_test(LlmParser *p, LlmNode *input)
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
		llm_tmpl_node_push(p, node, parse_postfix(p, parse_primary(p)));
	return node;
}

/* ---- operators ---- */

/* Operators between two operands, by how tightly they bind. */
typedef enum Level
{
	LEVEL_OR,
	LEVEL_AND,
	LEVEL_COMPARE, /* "not" stands before it */
	LEVEL_SUM,
	LEVEL_CONCAT,
	LEVEL_PRODUCT,
	LEVEL_POWER,
	LEVEL_UNARY
} Level;

static const struct
{
	const char *text;
	Level level;
	LlmOp op;
} operators[] = {{"or", LEVEL_OR, LLM_OP_OR},        {"and", LEVEL_AND, LLM_OP_AND},
				 {"==", LEVEL_COMPARE, LLM_OP_EQ},   {"!=", LEVEL_COMPARE, LLM_OP_NE},
				 {"<", LEVEL_COMPARE, LLM_OP_LT},    {"<=", LEVEL_COMPARE, LLM_OP_LE},
				 {">", LEVEL_COMPARE, LLM_OP_GT},    {">=", LEVEL_COMPARE, LLM_OP_GE},
				 {"in", LEVEL_COMPARE, LLM_OP_IN},   {"not", LEVEL_COMPARE, LLM_OP_NOT_IN},
				 {"+", LEVEL_SUM, LLM_OP_ADD},       {"-", LEVEL_SUM, LLM_OP_SUB},
				 {"~", LEVEL_CONCAT, LLM_OP_CONCAT}, {"*", LEVEL_PRODUCT, LLM_OP_MUL},
				 {"/", LEVEL_PRODUCT, LLM_OP_DIV},   {"//", LEVEL_PRODUCT, LLM_OP_FLOORDIV},
				 {"%", LEVEL_PRODUCT, LLM_OP_MOD},   {"**", LEVEL_POWER, LLM_OP_POW}};

/* Pass the operator of this level that the current token is, or begins; false when it is none. */
static bool
skip_operator(LlmParser *p, Level level, LlmOp *op)
{
	for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
	{
		if (operators[i].level != level || !llm_tmpl_parser_skip(p, operators[i].text))
			continue;
		*op = operators[i].op;
		if (*op == LLM_OP_NOT_IN && !llm_tmpl_parser_skip(p, "in"))
			llm_tmpl_parser_unexpected(p);
		return true;
	}
	return false;
}

static LlmNode *parse_unary(LlmParser *p, bool with_filter);

static LlmNode *
parse_sign(LlmParser *p)
{
	LlmNode *node =
		llm_tmpl_node_new(p, llm_tmpl_parser_at(p, "-") ? LLM_N_NEG : LLM_N_POS, p->tok.line);

	llm_tmpl_enter(p->run);
	llm_tmpl_parser_next(p);
	llm_tmpl_node_push(p, node, parse_unary(p, false));
	llm_tmpl_leave(p->run);
	return node;
}

static LlmNode *
parse_unary(LlmParser *p, bool with_filter)
{
	bool sign = llm_tmpl_parser_at(p, "-") || llm_tmpl_parser_at(p, "+");
	LlmNode *node = parse_postfix(p, sign ? parse_sign(p) : parse_primary(p));

	for (int i = 0; with_filter; i++)
	{
		if (i == POSTFIX_MAX)
			llm_tmpl_fail(p->run, "more than %d filters and tests in a row", POSTFIX_MAX);
		if (llm_tmpl_parser_skip(p, "|"))
			node = llm_tmpl_parse_filters(p, node);
		else if (llm_tmpl_parser_at(p, "is"))
			node = parse_test(p, node);
		else if (llm_tmpl_parser_at(p, "("))
			node = parse_call(p, node);
		else
			break;
	}
	return node;
}

static LlmNode *parse_level(LlmParser *p, Level level);

static LlmNode *
parse_not(LlmParser *p)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_NOT, p->tok.line);

	llm_tmpl_enter(p->run);
	llm_tmpl_parser_next(p);
	llm_tmpl_node_push(p, node, parse_level(p, LEVEL_COMPARE));
	llm_tmpl_leave(p->run);
	return node;
}

/* Operands of the next level with operators of this one between them, as one node; one operand
 * alone is itself. */
static LlmNode *
parse_level(LlmParser *p, Level level)
{
	static const LlmNodeKind kinds[] = {
		[LEVEL_OR] = LLM_N_OR,     [LEVEL_AND] = LLM_N_AND,       [LEVEL_COMPARE] = LLM_N_COMPARE,
		[LEVEL_SUM] = LLM_N_MATH,  [LEVEL_CONCAT] = LLM_N_CONCAT, [LEVEL_PRODUCT] = LLM_N_MATH,
		[LEVEL_POWER] = LLM_N_MATH};
	int line = p->tok.line;
	LlmNode *node = NULL, *kid;
	LlmOp op;

	if (level == LEVEL_UNARY)
		return parse_unary(p, true);
	if (level == LEVEL_COMPARE && llm_tmpl_parser_at(p, "not"))
		return parse_not(p);
	kid = parse_level(p, level + 1);
	while (skip_operator(p, level, &op))
	{
		if (node == NULL)
		{
			node = llm_tmpl_node_new(p, kinds[level], line);
			llm_tmpl_node_push(p, node, kid);
		}
		kid = parse_level(p, level + 1);
		kid->op = (uint8_t) op;
		llm_tmpl_node_push(p, node, kid);
	}
	return node == NULL ? kid : node;
}

LlmNode *
llm_tmpl_parse_expr(LlmParser *p, bool with_cond)
{
	LlmNode *node;

	llm_tmpl_enter(p->run);
	node = parse_level(p, LEVEL_OR);
	for (int i = 0; with_cond && llm_tmpl_parser_at(p, "if"); i++)
	{
		LlmNode *cond = llm_tmpl_node_new(p, LLM_N_COND, p->tok.line);

		if (i == POSTFIX_MAX)
			llm_tmpl_fail(p->run, "more than %d conditions in a row", POSTFIX_MAX);
		llm_tmpl_parser_next(p);
		llm_tmpl_node_push(p, cond, parse_level(p, LEVEL_OR));
		llm_tmpl_node_push(p, cond, node);
		llm_tmpl_node_push(p, cond,
						   llm_tmpl_parser_skip(p, "else") ? llm_tmpl_parse_expr(p, true) : NULL);
		node = cond;
	}
	llm_tmpl_leave(p->run);
	return node;
}

/* Does the current token end a tuple without brackets? */
static bool
at_tuple_end(const LlmParser *p)
{
	return p->tok.kind == LLM_T_VAR_END || p->tok.kind == LLM_T_BLOCK_END ||
		   llm_tmpl_parser_at(p, ")") || llm_tmpl_parser_at(p, "]") || llm_tmpl_parser_at(p, "=") ||
		   llm_tmpl_parser_at(p, "in");
}

LlmNode *
llm_tmpl_parse_tuple(LlmParser *p, bool with_cond)
{
	int line = p->tok.line;
	LlmNode *node = llm_tmpl_parse_expr(p, with_cond);
	LlmNode *tuple;

	if (!llm_tmpl_parser_at(p, ","))
		return node;
	tuple = llm_tmpl_node_new(p, LLM_N_TUPLE, line);
	llm_tmpl_node_push(p, tuple, node);
	while (llm_tmpl_parser_skip(p, ",") && !at_tuple_end(p))
		llm_tmpl_node_push(p, tuple, llm_tmpl_parse_expr(p, with_cond));
	return tuple;
}
