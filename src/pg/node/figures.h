/* pg/node/figures.h - rows, costs and tokens that a plan with LLM Batch nodes is expected to take. */
#ifndef LLM_PG_NODE_FIGURES_H
#define LLM_PG_NODE_FIGURES_H

#include "postgres.h"

#include "nodes/plannodes.h"
#include "pg/estimate.h"

/* What the planner expected of a node before calls were taken out of it. */
typedef struct LlmFigures
{
	double rows;
	Cost startup;
	Cost total;
} LlmFigures;

extern LlmFigures llm_figures_of(const Plan *plan);

/* Spread what was expected of a node over what it has become: nodes (LLM Batch nodes, bottom first)
 * on bottom, which is the node itself (stays) or its child. The top keeps the figures of the whole. */
extern void llm_figures_spread(List *rtable, LlmFigures whole, Plan *bottom, bool stays,
							   List *nodes);

/* Quals (in plan's columns) have been taken out of plan: it gives more rows, at less cost. */
extern void llm_figures_take_out(List *rtable, Plan *plan, List *quals);

/* Cost per row of the calls in exprs, whose Vars are those of plan's expressions. */
extern Cost llm_figures_price(List *rtable, Plan *plan, List *exprs);

/* Tokens of one call (a FuncExpr) in an expression of plan; rtable is the statement's. */
extern LlmEstimate llm_figures_tokens(List *rtable, Plan *plan, const FuncExpr *call);

#endif
