/* pg/node/guards.h - which calls of an expression can be made before it, and under what condition. */
#ifndef LLM_PG_NODE_GUARDS_H
#define LLM_PG_NODE_GUARDS_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "nodes/primnodes.h"

/* When a part of a CASE, COALESCE, AND or OR is evaluated: none of `skip` is true, then `enter` is.
 * All are expressions of the whole, by pointer: a call in them is the call there. */
typedef struct LlmGuard
{
	const struct LlmGuard *outer; /* around the whole; NULL = none */
	Expr *subject;                /* x of CASE x WHEN .., which the conditions stand for; or NULL */
	List *skip;                   /* the first n_skip count: parts of one whole share the list */
	Expr *enter;                  /* NULL = none */
	int n_skip;
} LlmGuard;

/* A part of such an expression. */
typedef struct LlmGuardPart
{
	Node *expr;
	const LlmGuard *guard; /* NULL = evaluated always */
	bool usable;           /* the guard may be evaluated once more, before the expression */
} LlmGuardPart;

/* True for a call of one of our functions. */
extern bool llm_guards_is_call(Node *node);

/* True when expr (or a list) holds a call, wherever. */
extern bool llm_guards_any_call(Node *expr);

/* True when expr holds a call that can be made before it. */
extern bool llm_guards_has_call(Node *expr);

/* True when expr, or a query in it, calls a volatile function that is not ours. */
extern bool llm_guards_others_volatile(Node *expr);

/* Below these an expression may not be evaluated, or not once per row, and no guard says when. */
extern bool llm_guards_is_barrier(Node *node);

/* True when evaluating expr a second time gives the same, each call in it being made once. */
extern bool llm_guards_repeatable(Node *expr);

/* LlmGuardParts of node in the order of evaluation, inside outer; NIL when it guards nothing. */
extern List *llm_guards_split(Node *node, const LlmGuard *outer);

/* A copy of node with the parts replaced by exprs, in llm_guards_split's order. */
extern Node *llm_guards_join(Node *node, List *exprs);

/* expr where the guard lets it be evaluated, else NULL. */
extern Expr *llm_guards_apply(const LlmGuard *guard, Expr *expr);

/* Calls (FuncExprs by pointer) in exprs whose answers decide whether others in them are made. guards: for
 * each of exprs, as far as the list goes, the LlmGuard around it, or NULL. */
extern List *llm_guards_first(List *exprs, List *guards);

#endif
