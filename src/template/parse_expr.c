/*
 * template/parse_expr.c - expressions, by recursive descent.
 *
 * From loosest to tightest: if-else, or, and, not, comparison, + -, ~, * / // %, **, sign, then
 * filters and tests, calls, attributes and subscripts. This is Jinja's order: ~ binds tighter than
 * +, and a sign tighter than **.
 */
#include "template/parser.h"

#define POSTFIX_MAX 64

static LlmNode *parse_unary(LlmParser *p, bool with_filter);

static const struct
{
	LlmTokenKind kind;
	char c; /* of LLM_T_CHAR */
	LlmOp op;
} operators[] = {{LLM_T_CHAR, '+', LLM_OP_ADD},
				 {LLM_T_CHAR, '-', LLM_OP_SUB},
				 {LLM_T_CHAR, '*', LLM_OP_MUL},
				 {LLM_T_CHAR, '/', LLM_OP_DIV},
				 {LLM_T_FLOORDIV, 0, LLM_OP_FLOORDIV},
				 {LLM_T_CHAR, '%', LLM_OP_MOD},
				 {LLM_T_POW, 0, LLM_OP_POW},
				 {LLM_T_EQ, 0, LLM_OP_EQ},
				 {LLM_T_NE, 0, LLM_OP_NE},
				 {LLM_T_CHAR, '<', LLM_OP_LT},
				 {LLM_T_LE, 0, LLM_OP_LE},
				 {LLM_T_CHAR, '>', LLM_OP_GT},
				 {LLM_T_GE, 0, LLM_OP_GE}};

/* The operator at the current token when it lies in [first, last]; passes it. */
static bool
skip_operator(LlmParser *p, LlmOp first, LlmOp last, uint8_t *op)
{
	for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
	{
		if (operators[i].kind != p->tok.kind || operators[i].op < first || operators[i].op > last ||
			(p->tok.kind == LLM_T_CHAR && p->tok.i != operators[i].c))
			continue;
		*op = (uint8_t) operators[i].op;
		llm_tmpl_parser_next(p);
		return true;
	}
	return false;
}

static LlmNode *
node_with(LlmParser *p, LlmNodeKind kind, int line, LlmNode *kid)
{
	LlmNode *node = llm_tmpl_node_new(p, kind, line);
	LlmKids kids = {0};

	llm_tmpl_kids_push(p, &kids, kid);
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

static LlmNode *
parse_sign(LlmParser *p)
{
	LlmNode *node;
	int line = p->tok.line;
	LlmNodeKind kind = llm_tmpl_parser_at(p, '-') ? LLM_N_NEG : LLM_N_POS;

	llm_tmpl_enter(p->run);
	llm_tmpl_parser_next(p);
	node = node_with(p, kind, line, parse_unary(p, false));
	llm_tmpl_leave(p->run);
	return node;
}

static LlmNode *
parse_unary(LlmParser *p, bool with_filter)
{
	bool sign = llm_tmpl_parser_at(p, '-') || llm_tmpl_parser_at(p, '+');
	LlmNode *node = llm_tmpl_parse_postfix(p, sign ? parse_sign(p) : llm_tmpl_parse_primary(p));

	for (int i = 0; with_filter; i++)
	{
		if (i == POSTFIX_MAX)
			llm_tmpl_fail(p->run, "more than %d filters and tests in a row", POSTFIX_MAX);
		if (llm_tmpl_parser_skip(p, '|'))
			node = llm_tmpl_parse_filters(p, node);
		else if (llm_tmpl_parser_at_word(p, "is"))
			node = llm_tmpl_parse_test(p, node);
		else if (llm_tmpl_parser_at(p, '('))
			node = llm_tmpl_parse_call(p, node);
		else
			break;
	}
	return node;
}

static LlmNode *parse_concat(LlmParser *p);

/* One level of left-associative arithmetic: level 0 is + -, 1 is * / // %, 2 is **. */
static LlmNode *
parse_math(LlmParser *p, int level)
{
	static const LlmOp first[] = {LLM_OP_ADD, LLM_OP_MUL, LLM_OP_POW};
	static const LlmOp last[] = {LLM_OP_SUB, LLM_OP_MOD, LLM_OP_POW};
	LlmNode *node = NULL;
	LlmKids kids = {0};
	uint8_t *ops = NULL;
	size_t cap = 0;
	uint8_t op = 0;
	int line = p->tok.line;

	for (;;)
	{
		llm_tmpl_kids_push(p, &kids,
						   level == 0   ? parse_concat(p)
						   : level == 1 ? parse_math(p, 2)
										: parse_unary(p, true));
		if (!skip_operator(p, first[level], last[level], &op))
			break;
		llm_tmpl_grow(p->run, (void **) &ops, kids.n - 1, &cap, kids.n, 1);
		ops[kids.n - 1] = op;
	}
	if (kids.n == 1)
		return kids.kids[0];
	node = llm_tmpl_node_new(p, LLM_N_MATH, line);
	node->ops = ops;
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

static LlmNode *
parse_concat(LlmParser *p)
{
	LlmNode *node;
	LlmKids kids = {0};
	int line = p->tok.line;

	do
		llm_tmpl_kids_push(p, &kids, parse_math(p, 1));
	while (llm_tmpl_parser_skip(p, '~'));
	if (kids.n == 1)
		return kids.kids[0];
	node = llm_tmpl_node_new(p, LLM_N_CONCAT, line);
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

static bool
skip_comparison(LlmParser *p, uint8_t *op)
{
	if (skip_operator(p, LLM_OP_EQ, LLM_OP_GE, op))
		return true;
	if (llm_tmpl_parser_skip_word(p, "in"))
		*op = LLM_OP_IN;
	else if (llm_tmpl_parser_at_word(p, "not") && p->ahead.kind == LLM_T_NAME &&
			 llm_str_eq(p->ahead.str, "in"))
	{
		llm_tmpl_parser_next(p);
		llm_tmpl_parser_next(p);
		*op = LLM_OP_NOT_IN;
	}
	else
		return false;
	return true;
}

static LlmNode *
parse_compare(LlmParser *p)
{
	LlmNode *node;
	LlmKids kids = {0};
	uint8_t *ops = NULL;
	size_t cap = 0;
	uint8_t op = 0;
	int line = p->tok.line;

	for (;;)
	{
		llm_tmpl_kids_push(p, &kids, parse_math(p, 0));
		if (!skip_comparison(p, &op))
			break;
		llm_tmpl_grow(p->run, (void **) &ops, kids.n - 1, &cap, kids.n, 1);
		ops[kids.n - 1] = op;
	}
	if (kids.n == 1)
		return kids.kids[0];
	node = llm_tmpl_node_new(p, LLM_N_COMPARE, line);
	node->ops = ops;
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

static LlmNode *
parse_not(LlmParser *p)
{
	int line = p->tok.line;
	LlmNode *node;

	if (!llm_tmpl_parser_skip_word(p, "not"))
		return parse_compare(p);
	llm_tmpl_enter(p->run);
	node = node_with(p, LLM_N_NOT, line, parse_not(p));
	llm_tmpl_leave(p->run);
	return node;
}

/* A chain of "and", or of "or" over such chains. */
static LlmNode *
parse_logic(LlmParser *p, LlmNodeKind kind)
{
	LlmNode *node;
	LlmKids kids = {0};
	int line = p->tok.line;

	do
		llm_tmpl_kids_push(p, &kids, kind == LLM_N_OR ? parse_logic(p, LLM_N_AND) : parse_not(p));
	while (llm_tmpl_parser_skip_word(p, kind == LLM_N_OR ? "or" : "and"));
	if (kids.n == 1)
		return kids.kids[0];
	node = llm_tmpl_node_new(p, kind, line);
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

LlmNode *
llm_tmpl_parse_expr(LlmParser *p, bool with_cond)
{
	LlmNode *node;

	llm_tmpl_enter(p->run);
	node = parse_logic(p, LLM_N_OR);
	for (int i = 0; with_cond && llm_tmpl_parser_at_word(p, "if"); i++)
	{
		LlmNode *cond = llm_tmpl_node_new(p, LLM_N_COND, p->tok.line);
		LlmKids kids = {0};

		if (i == POSTFIX_MAX)
			llm_tmpl_fail(p->run, "more than %d conditions in a row", POSTFIX_MAX);
		llm_tmpl_parser_next(p);
		llm_tmpl_kids_push(p, &kids, parse_logic(p, LLM_N_OR));
		llm_tmpl_kids_push(p, &kids, node);
		llm_tmpl_kids_push(p, &kids,
						   llm_tmpl_parser_skip_word(p, "else") ? llm_tmpl_parse_expr(p, true)
																: NULL);
		llm_tmpl_node_adopt(cond, &kids);
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
		   llm_tmpl_parser_at(p, ')') || llm_tmpl_parser_at(p, ']') || llm_tmpl_parser_at(p, '=') ||
		   llm_tmpl_parser_at_word(p, "in");
}

LlmNode *
llm_tmpl_parse_tuple(LlmParser *p, bool with_cond)
{
	LlmNode *node;
	LlmKids kids = {0};
	int line = p->tok.line;

	llm_tmpl_kids_push(p, &kids, llm_tmpl_parse_expr(p, with_cond));
	if (!llm_tmpl_parser_at(p, ','))
		return kids.kids[0];
	while (llm_tmpl_parser_skip(p, ',') && !at_tuple_end(p))
		llm_tmpl_kids_push(p, &kids, llm_tmpl_parse_expr(p, with_cond));
	node = llm_tmpl_node_new(p, LLM_N_TUPLE, line);
	llm_tmpl_node_adopt(node, &kids);
	return node;
}
