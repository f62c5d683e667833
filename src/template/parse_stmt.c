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
llm_tmpl_parser_at(const LlmParser *p, char c)
{
	return p->tok.kind == LLM_T_CHAR && p->tok.i == c;
}

bool
llm_tmpl_parser_at_word(const LlmParser *p, const char *z)
{
	return p->tok.kind == LLM_T_NAME && llm_str_eq(p->tok.str, z);
}

bool
llm_tmpl_parser_skip(LlmParser *p, char c)
{
	bool there = llm_tmpl_parser_at(p, c);

	if (there)
		llm_tmpl_parser_next(p);
	return there;
}

bool
llm_tmpl_parser_skip_word(LlmParser *p, const char *z)
{
	bool there = llm_tmpl_parser_at_word(p, z);

	if (there)
		llm_tmpl_parser_next(p);
	return there;
}

void
llm_tmpl_parser_unexpected(LlmParser *p)
{
	static const char *const words[] = {
		[LLM_T_EOF] = "the end",     [LLM_T_TEXT] = "text",      [LLM_T_VAR_BEGIN] = "{{",
		[LLM_T_VAR_END] = "}}",      [LLM_T_BLOCK_BEGIN] = "{%", [LLM_T_BLOCK_END] = "%}",
		[LLM_T_STRING] = "a string", [LLM_T_INT] = "an integer", [LLM_T_FLOAT] = "a number",
		[LLM_T_POW] = "**",          [LLM_T_FLOORDIV] = "//",    [LLM_T_EQ] = "==",
		[LLM_T_NE] = "!=",           [LLM_T_LE] = "<=",          [LLM_T_GE] = ">="};

	if (p->tok.kind == LLM_T_CHAR)
		llm_tmpl_fail(p->run, "unexpected '%c'", (char) p->tok.i);
	if (p->tok.kind == LLM_T_NAME)
		llm_tmpl_fail(p->run, "unexpected '%.*s'",
					  (int) (p->tok.str.len < 60 ? p->tok.str.len : 60), p->tok.str.p);
	llm_tmpl_fail(p->run, "unexpected %s", words[p->tok.kind]);
}

void
llm_tmpl_parser_expect(LlmParser *p, char c)
{
	if (!llm_tmpl_parser_skip(p, c))
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

void
llm_tmpl_kids_push(LlmParser *p, LlmKids *kids, LlmNode *node)
{
	if (kids->cap == 0)
	{
		kids->kids = llm_tmpl_alloc(p->run, 2, sizeof(LlmNode *));
		kids->cap = 2;
	}
	llm_tmpl_grow(p->run, (void **) &kids->kids, kids->n, &kids->cap, kids->n + 1,
				  sizeof(LlmNode *));
	kids->kids[kids->n++] = node;
}

void
llm_tmpl_node_adopt(LlmNode *node, const LlmKids *kids)
{
	node->kids = kids->kids;
	node->n = (uint32_t) kids->n; /* the source is at most 1 MiB */
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
	LlmNode *node;
	LlmNode *name;
	LlmKids kids = {0};
	int line = p->tok.line;
	bool bracket = llm_tmpl_parser_skip(p, '(');

	do
	{
		name = llm_tmpl_node_new(p, LLM_N_NAME, p->tok.line);
		name->sym = llm_tmpl_parser_name(p);
		llm_tmpl_kids_push(p, &kids, name);
	} while (llm_tmpl_parser_skip(p, ',') && p->tok.kind == LLM_T_NAME &&
			 !llm_tmpl_parser_at_word(p, "in"));
	if (bracket)
		llm_tmpl_parser_expect(p, ')');
	if (kids.n == 1 && attr_too && llm_tmpl_parser_skip(p, '.'))
	{
		node = llm_tmpl_node_new(p, LLM_N_ATTR, line);
		node->sym = llm_tmpl_parser_name(p);
	}
	else if (kids.n == 1)
		return name;
	else
		node = llm_tmpl_node_new(p, LLM_N_TUPLE, line);
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

static void
parse_if(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};

	node->kind = LLM_N_IF;
	for (;;)
	{
		llm_tmpl_kids_push(p, kids, llm_tmpl_parse_tuple(p, false));
		expect_kind(p, LLM_T_BLOCK_END);
		llm_tmpl_kids_push(p, kids, parse_body(p, ends));
		if (llm_tmpl_parser_skip_word(p, "elif"))
			continue;
		if (llm_tmpl_parser_skip_word(p, "else"))
			llm_tmpl_kids_push(p, kids, parse_body_to(p, "endif"));
		else
			llm_tmpl_parser_next(p);
		return;
	}
}

static void
parse_for(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	static const char *const ends[] = {"else", "endfor", NULL};

	node->kind = LLM_N_FOR;
	node->sym = llm_tmpl_parser_sym(p, llm_str("loop"));
	llm_tmpl_kids_push(p, kids, parse_target(p, false));
	if (!llm_tmpl_parser_skip_word(p, "in"))
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_kids_push(p, kids, llm_tmpl_parse_tuple(p, false));
	llm_tmpl_kids_push(p, kids,
					   llm_tmpl_parser_skip_word(p, "if") ? llm_tmpl_parse_expr(p, true) : NULL);
	if (llm_tmpl_parser_at_word(p, "recursive"))
		llm_tmpl_fail(p->run, "recursive loops are not supported");
	expect_kind(p, LLM_T_BLOCK_END);
	p->loops++;
	llm_tmpl_kids_push(p, kids, parse_body(p, ends));
	p->loops--;
	if (llm_tmpl_parser_skip_word(p, "else"))
		llm_tmpl_kids_push(p, kids, parse_body_to(p, "endfor"));
	else
	{
		llm_tmpl_parser_next(p);
		llm_tmpl_kids_push(p, kids, NULL);
	}
}

static void
parse_set(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	LlmNode *input;

	llm_tmpl_kids_push(p, kids, parse_target(p, true));
	if (llm_tmpl_parser_skip(p, '='))
	{
		node->kind = LLM_N_SET;
		llm_tmpl_kids_push(p, kids, llm_tmpl_parse_tuple(p, true));
		return;
	}
	node->kind = LLM_N_SET_BLOCK;
	input = llm_tmpl_node_new(p, LLM_N_INPUT, node->line);
	llm_tmpl_kids_push(p, kids,
					   llm_tmpl_parser_skip(p, '|') ? llm_tmpl_parse_filters(p, input) : input);
	llm_tmpl_kids_push(p, kids, parse_captured_to(p, "endset"));
}

static void
parse_macro(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	size_t cap = 0;

	node->kind = LLM_N_MACRO;
	node->sym = llm_tmpl_parser_name(p);
	llm_tmpl_kids_push(p, kids, NULL); /* the body comes last */
	llm_tmpl_parser_expect(p, '(');
	while (!llm_tmpl_parser_at(p, ')'))
	{
		llm_tmpl_grow(p->run, (void **) &node->names, node->n_names, &cap, node->n_names + 1,
					  sizeof(*node->names));
		node->names[node->n_names++] = llm_tmpl_parser_name(p);
		if (llm_tmpl_parser_skip(p, '='))
			llm_tmpl_kids_push(p, kids, llm_tmpl_parse_expr(p, true));
		else if (kids->n > 1)
			llm_tmpl_fail(p->run, "a parameter without a default follows one with a default");
		if (!llm_tmpl_parser_at(p, ')'))
			llm_tmpl_parser_expect(p, ',');
	}
	llm_tmpl_parser_next(p);
	kids->kids[0] = parse_captured_to(p, "endmacro");
}

static void
parse_filter_block(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	node->kind = LLM_N_FILTER_BLOCK;
	llm_tmpl_kids_push(p, kids,
					   llm_tmpl_parse_filters(p, llm_tmpl_node_new(p, LLM_N_INPUT, node->line)));
	llm_tmpl_kids_push(p, kids, parse_captured_to(p, "endfilter"));
}

static void
parse_with(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	node->kind = LLM_N_SCOPE;
	llm_tmpl_kids_push(p, kids, NULL); /* the body comes last */
	while (p->tok.kind != LLM_T_BLOCK_END)
	{
		if (kids->n > 1)
			llm_tmpl_parser_expect(p, ',');
		llm_tmpl_kids_push(p, kids, parse_target(p, false));
		llm_tmpl_parser_expect(p, '=');
		llm_tmpl_kids_push(p, kids, llm_tmpl_parse_expr(p, true));
	}
	kids->kids[0] = parse_body_to(p, "endwith");
}

/* Marks what the assistant wrote, for training; renders as its body. */
static void
parse_generation(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	node->kind = LLM_N_SCOPE;
	llm_tmpl_kids_push(p, kids, parse_body_to(p, "endgeneration"));
}

static void
parse_break(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	if (p->loops == 0)
		llm_tmpl_fail(p->run, "break outside a loop");
	node->kind = LLM_N_BREAK;
}

static void
parse_continue(LlmParser *p, LlmNode *node, LlmKids *kids)
{
	if (p->loops == 0)
		llm_tmpl_fail(p->run, "continue outside a loop");
	node->kind = LLM_N_CONTINUE;
}

static const struct
{
	const char *tag;
	void (*parse)(LlmParser *p, LlmNode *node, LlmKids *kids);
} tags[] = {{"if", parse_if},
			{"for", parse_for},
			{"set", parse_set},
			{"macro", parse_macro},
			{"filter", parse_filter_block},
			{"with", parse_with},
			{"generation", parse_generation},
			{"break", parse_break},
			{"continue", parse_continue}};

/* The statement whose name is the current token, through its last "%}". */
static LlmNode *
parse_statement(LlmParser *p)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_BODY, p->tok.line);
	LlmKids kids = {0};

	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++)
	{
		if (!llm_tmpl_parser_at_word(p, tags[i].tag))
			continue;
		llm_tmpl_parser_next(p);
		tags[i].parse(p, node, &kids);
		llm_tmpl_node_adopt(node, &kids);
		expect_kind(p, LLM_T_BLOCK_END);
		return node;
	}
	if (p->tok.kind != LLM_T_NAME)
		llm_tmpl_parser_unexpected(p);
	llm_tmpl_fail(p->run, "the tag '%.*s' is not supported or not expected here",
				  (int) (p->tok.str.len < 60 ? p->tok.str.len : 60), p->tok.str.p);
}

static bool
at_end_word(const LlmParser *p, const char *const *ends)
{
	for (; ends != NULL && *ends != NULL; ends++)
	{
		if (llm_tmpl_parser_at_word(p, *ends))
			return true;
	}
	return false;
}

static LlmNode *
output_node(LlmParser *p, LlmNode *expr)
{
	LlmNode *node = llm_tmpl_node_new(p, LLM_N_OUTPUT, expr->line);
	LlmKids kids = {0};

	llm_tmpl_kids_push(p, &kids, expr);
	llm_tmpl_node_adopt(node, &kids);
	return node;
}

/* Text between tags, or an expression in double braces. */
static LlmNode *
parse_output(LlmParser *p)
{
	LlmNode *expr;

	if (p->tok.kind == LLM_T_TEXT)
	{
		expr = llm_tmpl_node_new(p, LLM_N_CONST, p->tok.line);
		expr->value =
			llm_tmpl_str(p->run, llm_tmpl_text_borrow(p->run, p->tok.str.p, p->tok.str.len, true));
		llm_tmpl_parser_next(p);
		return output_node(p, expr);
	}
	llm_tmpl_parser_next(p);
	expr = llm_tmpl_parse_tuple(p, true);
	expect_kind(p, LLM_T_VAR_END);
	return output_node(p, expr);
}

/* Statements up to a tag whose name is in ends, which becomes the current token; ends NULL: up to
 * the end of the template. */
static LlmNode *
parse_body(LlmParser *p, const char *const *ends)
{
	LlmNode *body = llm_tmpl_node_new(p, LLM_N_BODY, p->tok.line);
	LlmKids kids = {0};
	int begin = p->tok.line;

	llm_tmpl_enter(p->run);
	while (p->tok.kind != LLM_T_EOF)
	{
		if (p->tok.kind != LLM_T_BLOCK_BEGIN)
		{
			llm_tmpl_kids_push(p, &kids, parse_output(p));
			continue;
		}
		llm_tmpl_parser_next(p);
		if (at_end_word(p, ends))
			break;
		llm_tmpl_kids_push(p, &kids, parse_statement(p));
	}
	if (p->tok.kind == LLM_T_EOF && ends != NULL)
	{
		while (ends[1] != NULL)
			ends++;
		llm_tmpl_fail(p->run, "'%s' is missing for the block of line %d", *ends, begin);
	}
	llm_tmpl_leave(p->run);
	llm_tmpl_node_adopt(body, &kids);
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
