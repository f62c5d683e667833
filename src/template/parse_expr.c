/*
 * template/parse_expr.c - expressions, by recursive descent.
 *
 * From loosest to tightest: if-else, or, and, not, comparison, + -, ~, * / // %, **, sign, then
 * filters and tests, calls, attributes and subscripts. This is Jinja's order: ~ binds tighter than
 * +, and a sign tighter than **.
 */
#include "template/parser.h"

#define POSTFIX_MAX 64

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
	LlmNode *node = llm_tmpl_parse_postfix(p, sign ? parse_sign(p) : llm_tmpl_parse_primary(p));

	for (int i = 0; with_filter; i++)
	{
		if (i == POSTFIX_MAX)
			llm_tmpl_fail(p->run, "more than %d filters and tests in a row", POSTFIX_MAX);
		if (llm_tmpl_parser_skip(p, "|"))
			node = llm_tmpl_parse_filters(p, node);
		else if (llm_tmpl_parser_at(p, "is"))
			node = llm_tmpl_parse_test(p, node);
		else if (llm_tmpl_parser_at(p, "("))
			node = llm_tmpl_parse_call(p, node);
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
