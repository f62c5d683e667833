/* template/parse_stmt.c - statements, and what the two halves of the parser share. */
#include "template/parser.h"

#include <string.h>

#include "template/builtin.h"

#define NAMES_MAX 4096

void
llm_tmpl_parser_next(LlmParser *p)
{
	p->tok = p->ahead;
	if (p->tok.kind != LLM_T_EOF)
		p->ahead = llm_tmpl_lexer_next(&p->lexer);
	p->run->line = p->tok.line; /* the lexer is one token ahead */
}

bool
llm_tmpl_parser_at(const LlmParser *p, const char *z)
{
	return (p->tok.kind == LLM_T_NAME || p->tok.kind == LLM_T_OP) && llm_str_eq(p->tok.str, z);
}

bool
llm_tmpl_parser_skip(LlmParser *p, const char *z)
{
	bool there = llm_tmpl_parser_at(p, z);

	if (there)
		llm_tmpl_parser_next(p);
	return there;
}

void
llm_tmpl_parser_unexpected(LlmParser *p)
{
	if (p->tok.kind == LLM_T_EOF)
		llm_tmpl_fail(p->run, "unexpected end");
	llm_tmpl_fail(p->run, "unexpected '%.*s'", LLM_TMPL_SHOWN(p->tok.str));
}

void
llm_tmpl_parser_expect(LlmParser *p, const char *z)
{
	if (!llm_tmpl_parser_skip(p, z))
		llm_tmpl_parser_unexpected(p);
}

static void
expect_kind(LlmParser *p, LlmTokenKind kind)
{
	if (p->tok.kind != kind)
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_parser_next(p);
}

/* FNV-1a (Fowler, Noll, Vo). */
static size_t
bucket(LlmStr name)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < name.len; i++)
		h = (h ^ (unsigned char) name.p[i]) * 16777619u;
	return h % LLM_SYM_BUCKETS;
}

const LlmSym *
llm_tmpl_sym_find(const struct LlmTemplate *t, LlmStr name)
{
	for (const LlmSym *sym = t->buckets[bucket(name)]; sym != NULL; sym = sym->next)
	{
		if (sym->name.len == name.len && memcmp(sym->name.p, name.p, name.len) == 0)
			return sym;
	}
	return NULL;
}

const LlmSym *
llm_tmpl_parser_sym(LlmParser *p, LlmStr name)
{
	const LlmSym *known = llm_tmpl_sym_find(p->t, name);
	LlmSym *sym;

	if (known != NULL)
		return known;
	if (p->t->n_syms >= NAMES_MAX)
		llm_tmpl_fail(p->run, "more than %d different names", NAMES_MAX);
	sym = llm_tmpl_alloc(p->run, 1, sizeof(*sym));
	sym->name = name;
	sym->id = p->t->n_syms++;
	sym->next = p->t->buckets[bucket(name)];
	p->t->buckets[bucket(name)] = sym;
	return sym;
}

const LlmSym *
llm_tmpl_parser_name(LlmParser *p)
{
	const LlmSym *sym;

	if (p->tok.kind != LLM_T_NAME)
		llm_tmpl_parser_unexpected(p);
	sym = llm_tmpl_parser_sym(p, p->tok.str);
	llm_tmpl_parser_next(p);
	return sym;
}

LlmNode *
llm_tmpl_node_new(LlmParser *p, LlmNodeKind kind, int line)
{
	LlmNode *node = llm_tmpl_alloc(p->run, 1, sizeof(*node));

	node->kind = (uint8_t) kind;
	node->line = line;
	return node;
}

/* Room for one more pointer in an array whose capacity is the power of two from n on. */
static void *
grow(LlmParser *p, const void *array, uint32_t n)
{
	void *larger;

	if (n != 0 && (n & (n - 1)) != 0)
		return (void *) (uintptr_t) array;
	larger = llm_tmpl_alloc(p->run, n == 0 ? 1 : 2 * (size_t) n, sizeof(void *));
	if (n > 0)
		memcpy(larger, array, n * sizeof(void *));
	return larger;
}

void
llm_tmpl_node_push(LlmParser *p, LlmNode *node, LlmNode *kid)
{
	node->kids = grow(p, node->kids, node->n);
	node->kids[node->n++] = kid; /* the source is at most 1 MiB */
}

void
llm_tmpl_node_push_name(LlmParser *p, LlmNode *node, const LlmSym *name)
{
	node->names = grow(p, node->names, node->n_names);
	node->names[node->n_names++] = name;
}

static LlmNode *parse_body(LlmParser *p, const char *const *ends);

/* The body up to "{% end %}", all of which is passed. */
static LlmNode *
parse_body_to(LlmParser *p, const char *end)
{
	const char *const ends[] = {end, NULL};
	LlmNode *body;

	expect_kind(p, LLM_T_BLOCK_END);
	body = parse_body(p, ends);
	llm_tmpl_parser_next(p);
	return body;
}

/* The same where output is captured: a break cannot leave it. */
static LlmNode *
parse_captured_to(LlmParser *p, const char *end)
{
	int loops = p->loops;
	LlmNode *body;

	p->loops = 0;
	body = parse_body_to(p, end);
	p->loops = loops;
	return body;
}

/* What may be assigned to: a name, or names with commas. */
static LlmNode *
parse_target(LlmParser *p, bool attr_too)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_TUPLE, p->tok.line);
	bool bracket = llm_tmpl_parser_skip(p, "(");

	do
	{
		LlmNode *name = llm_tmpl_node_new(p, LLM_N_NAME, p->tok.line);

		name->sym = llm_tmpl_parser_name(p);
		llm_tmpl_node_push(p, node, name);
	} while (llm_tmpl_parser_skip(p, ",") && p->tok.kind == LLM_T_NAME &&
			 !llm_tmpl_parser_at(p, "in"));
	if (bracket)
		llm_tmpl_parser_expect(p, ")");
	if (node->n > 1)
		return node;
	if (!attr_too || !llm_tmpl_parser_skip(p, "."))
		return node->kids[0];
	node->kind = LLM_N_ATTR;
	node->sym = llm_tmpl_parser_name(p);
	return node;
}

static void
parse_if(LlmParser *p, LlmNode *node)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};

	for (;;)
	{
		llm_tmpl_node_push(p, node, llm_tmpl_parse_tuple(p, false));
		expect_kind(p, LLM_T_BLOCK_END);
		llm_tmpl_node_push(p, node, parse_body(p, ends));
		if (llm_tmpl_parser_skip(p, "elif"))
			continue;
		if (llm_tmpl_parser_skip(p, "else"))
			llm_tmpl_node_push(p, node, parse_body_to(p, "endif"));
		else
			llm_tmpl_parser_next(p);
		return;
	}
}

static void
parse_for(LlmParser *p, LlmNode *node)
{
	static const char *const ends[] = {"else", "endfor", NULL};

	node->sym = llm_tmpl_parser_sym(p, llm_str("loop"));
	llm_tmpl_node_push(p, node, parse_target(p, false));
	if (!llm_tmpl_parser_skip(p, "in"))
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_node_push(p, node, llm_tmpl_parse_tuple(p, false));
	llm_tmpl_node_push(p, node,
					   llm_tmpl_parser_skip(p, "if") ? llm_tmpl_parse_expr(p, true) : NULL);
	if (llm_tmpl_parser_at(p, "recursive"))
		llm_tmpl_fail(p->run, "recursive loops are not supported");
	expect_kind(p, LLM_T_BLOCK_END);
	p->loops++;
	llm_tmpl_node_push(p, node, parse_body(p, ends));
	p->loops--;
	if (llm_tmpl_parser_skip(p, "else"))
		llm_tmpl_node_push(p, node, parse_body_to(p, "endfor"));
	else
	{
		llm_tmpl_parser_next(p);
		llm_tmpl_node_push(p, node, NULL);
	}
}

static void
parse_set(LlmParser *p, LlmNode *node)
{
	LlmNode *input;

	llm_tmpl_node_push(p, node, parse_target(p, true));
	if (llm_tmpl_parser_skip(p, "="))
	{
		llm_tmpl_node_push(p, node, llm_tmpl_parse_tuple(p, true));
		return;
	}
	node->kind = LLM_N_SET_BLOCK;
	input = llm_tmpl_node_new(p, LLM_N_INPUT, node->line);
	llm_tmpl_node_push(p, node,
					   llm_tmpl_parser_skip(p, "|") ? llm_tmpl_parse_filters(p, input) : input);
	llm_tmpl_node_push(p, node, parse_captured_to(p, "endset"));
}

static void
parse_macro(LlmParser *p, LlmNode *node)
{
	node->sym = llm_tmpl_parser_name(p);
	llm_tmpl_node_push(p, node, NULL); /* the body comes last */
	llm_tmpl_parser_expect(p, "(");
	while (!llm_tmpl_parser_skip(p, ")"))
	{
		llm_tmpl_node_push_name(p, node, llm_tmpl_parser_name(p));
		if (llm_tmpl_parser_skip(p, "="))
			llm_tmpl_node_push(p, node, llm_tmpl_parse_expr(p, true));
		else if (node->n > 1)
			llm_tmpl_fail(p->run, "a parameter without a default follows one with a default");
		if (!llm_tmpl_parser_at(p, ")"))
			llm_tmpl_parser_expect(p, ",");
	}
	node->kids[0] = parse_captured_to(p, "endmacro");
}

static void
parse_filter_block(LlmParser *p, LlmNode *node)
{
	llm_tmpl_node_push(p, node,
					   llm_tmpl_parse_filters(p, llm_tmpl_node_new(p, LLM_N_INPUT, node->line)));
	llm_tmpl_node_push(p, node, parse_captured_to(p, "endfilter"));
}

/* Marks what the assistant wrote, for training; renders as its body. */
static void
parse_generation(LlmParser *p, LlmNode *node)
{
	llm_tmpl_node_push(p, node, parse_body_to(p, "endgeneration"));
}

/* "break" and "continue" */
static void
parse_jump(LlmParser *p, LlmNode *node)
{
	if (p->loops == 0)
		llm_tmpl_fail(p->run, "a %s outside a loop",
					  node->kind == LLM_N_BREAK ? "break" : "continue");
}

static const struct
{
	const char *tag;
	LlmNodeKind kind; /* SET becomes SET_BLOCK when it is one */
	void (*parse)(LlmParser *p, LlmNode *node);
} tags[] = {{"if", LLM_N_IF, parse_if},
			{"for", LLM_N_FOR, parse_for},
			{"set", LLM_N_SET, parse_set},
			{"macro", LLM_N_MACRO, parse_macro},
			{"filter", LLM_N_FILTER_BLOCK, parse_filter_block},
			{"generation", LLM_N_SCOPE, parse_generation},
			{"break", LLM_N_BREAK, parse_jump},
			{"continue", LLM_N_CONTINUE, parse_jump}};

/* The statement whose name is the current token, through its last "%}". */
static LlmNode *
parse_statement(LlmParser *p)
{
	LlmNode *node;

	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++)
	{
		if (!llm_tmpl_parser_at(p, tags[i].tag))
			continue;
		node = llm_tmpl_node_new(p, tags[i].kind, p->tok.line);
		llm_tmpl_parser_next(p);
		tags[i].parse(p, node);
		expect_kind(p, LLM_T_BLOCK_END);
		return node;
	}
	if (p->tok.kind != LLM_T_NAME)
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_fail(p->run, "the tag '%.*s' is not supported or not expected here",
				  LLM_TMPL_SHOWN(p->tok.str));
}

static bool
at_end_word(const LlmParser *p, const char *const *ends)
{
	for (; ends != NULL && *ends != NULL; ends++)
	{
		if (llm_tmpl_parser_at(p, *ends))
			return true;
	}
	return false;
}

/* Text between tags, or an expression in double braces. */
static LlmNode *
parse_output(LlmParser *p)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_OUTPUT, p->tok.line);
	LlmNode *expr;

	if (p->tok.kind == LLM_T_TEXT)
	{
		expr = llm_tmpl_node_new(p, LLM_N_CONST, p->tok.line);
		expr->value = llm_tmpl_str_borrow(p->run, p->tok.str, true);
		llm_tmpl_parser_next(p);
	}
	else
	{
		llm_tmpl_parser_next(p);
		expr = llm_tmpl_parse_tuple(p, true);
		expect_kind(p, LLM_T_VAR_END);
	}
	llm_tmpl_node_push(p, node, expr);
	return node;
}

/* Statements up to a tag whose name is in ends, which becomes the current token; ends NULL: up to
 * the end of the template. */
static LlmNode *
parse_body(LlmParser *p, const char *const *ends)
{
	LlmNode *body = llm_tmpl_node_new(p, LLM_N_BODY, p->tok.line);
	int begin = p->tok.line;

	llm_tmpl_enter(p->run);
	while (p->tok.kind != LLM_T_EOF)
	{
		if (p->tok.kind != LLM_T_BLOCK_BEGIN)
		{
			llm_tmpl_node_push(p, body, parse_output(p));
			continue;
		}
		llm_tmpl_parser_next(p);
		if (at_end_word(p, ends))
			break;
		llm_tmpl_node_push(p, body, parse_statement(p));
	}
	if (p->tok.kind == LLM_T_EOF && ends != NULL)
	{
		while (ends[1] != NULL)
			ends++;
		llm_tmpl_fail(p->run, "'%s' is missing for the block of line %d", *ends, begin);
	}
	llm_tmpl_leave(p->run);
	return body;
}

void
llm_tmpl_parse(LlmRun *run, struct LlmTemplate *t, LlmStr source)
{
	LlmParser p = {.run = run, .t = t};

	llm_tmpl_lexer_init(&p.lexer, run, source);
	p.ahead = llm_tmpl_lexer_next(&p.lexer);
	llm_tmpl_parser_next(&p);
	t->root = parse_body(&p, NULL);
}
