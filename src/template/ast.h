/*
 * template/ast.h - the tree of a parsed template. Read-only after the parse, so that any number of
 * threads may render it; all of it lies in the template's arena.
 *
 * Chains of one operator level are one node with many children, so a long sum is not a deep tree.
 */
#ifndef LLM_TEMPLATE_AST_H
#define LLM_TEMPLATE_AST_H

#include "template/value.h"

typedef enum LlmNodeKind
{
	/* expressions: children in order */
	LLM_N_CONST,   /* value */
	LLM_N_NAME,    /* sym */
	LLM_N_INPUT,   /* what a filter or set block has captured */
	LLM_N_LIST,    /* elements */
	LLM_N_TUPLE,   /* elements; as a target: targets */
	LLM_N_DICT,    /* key, value, key, value, ... */
	LLM_N_ATTR,    /* object; sym. As a target: of a namespace */
	LLM_N_ITEM,    /* object, key */
	LLM_N_SLICE,   /* object, start, stop, step (each may be NULL) */
	LLM_N_CALL,    /* callee, arguments; names */
	LLM_N_FILTER,  /* input, arguments; names, sym, def */
	LLM_N_TEST,    /* input, arguments; names, sym, def, negated */
	LLM_N_NOT,     /* operand */
	LLM_N_NEG,     /* operand */
	LLM_N_POS,     /* operand */
	LLM_N_MATH,    /* operands, each but the first with its op, from the left */
	LLM_N_CONCAT,  /* operands of ~ */
	LLM_N_AND,     /* operands */
	LLM_N_OR,      /* operands */
	LLM_N_COMPARE, /* operands, each but the first with its op, chained as in Python */
	LLM_N_COND,    /* test, then, else (may be NULL) */
	/* statements */
	LLM_N_BODY,         /* statements */
	LLM_N_OUTPUT,       /* expression */
	LLM_N_IF,           /* test, body, test, body, ..., [body] */
	LLM_N_FOR,          /* target, iterable, filter or NULL, body, else body or NULL; sym = loop */
	LLM_N_SET,          /* target, expression */
	LLM_N_SET_BLOCK,    /* target, expression over INPUT, body */
	LLM_N_FILTER_BLOCK, /* expression over INPUT, body */
	LLM_N_MACRO,        /* body, defaults of the last parameters; sym, names = parameters */
	LLM_N_SCOPE,        /* body */
	LLM_N_BREAK,
	LLM_N_CONTINUE
} LlmNodeKind;

typedef enum LlmOp
{
	LLM_OP_ADD,
	LLM_OP_SUB,
	LLM_OP_MUL,
	LLM_OP_DIV,
	LLM_OP_FLOORDIV,
	LLM_OP_MOD,
	LLM_OP_POW,
	LLM_OP_EQ,
	LLM_OP_NE,
	LLM_OP_LT,
	LLM_OP_LE,
	LLM_OP_GT,
	LLM_OP_GE,
	LLM_OP_IN,
	LLM_OP_NOT_IN,
	LLM_OP_CONCAT,
	LLM_OP_AND,
	LLM_OP_OR
} LlmOp;

/* A name that the template uses; equal names are one symbol. */
typedef struct LlmSym
{
	LlmStr name;
	uint32_t id;         /* index of its global variable */
	struct LlmSym *next; /* in its hash bucket */
} LlmSym;

typedef struct LlmNode
{
	uint8_t kind;             /* LlmNodeKind */
	uint8_t op;               /* LlmOp between it and the operand before it */
	bool negated;             /* TEST: is not */
	int line;                 /* from 1 */
	uint32_t n;               /* children */
	uint32_t n_names;         /* names in use */
	struct LlmNode **kids;    /* [n] */
	const LlmSym **names;     /* [n_names] keywords of the last arguments, or parameters */
	const LlmSym *sym;        /* see the kinds */
	const struct LlmDef *def; /* the filter or test, NULL when there is none of that name */
	LlmValue value;           /* CONST */
} LlmNode;

#define LLM_SYM_BUCKETS 256

struct LlmTemplate
{
	LlmArena arena;                   /* owns everything, the template itself excepted */
	LlmNode *root;                    /* BODY */
	LlmSym *buckets[LLM_SYM_BUCKETS]; /* all symbols, by hash of the name */
	uint32_t n_syms;                  /* symbols */
};

/* The symbol of a name, or NULL when the template never mentions it. */
const LlmSym *llm_tmpl_sym_find(const struct LlmTemplate *t, LlmStr name);

#endif
