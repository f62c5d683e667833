/* pg/node/explain.c - what EXPLAIN says about an LLM Batch node. */
#include "postgres.h"

#include "pg/node/node.h"

#include "commands/explain.h"
#include "lib/stringinfo.h"
#include "pg/compat.h"
#include "pg/memo/memo.h"
#include "pg/node/figures.h"
#include "pg/node/shown.h"
#include "utils/ruleutils.h"

static void
explain_calls(LlmNodeState *node, List *ancestors, ExplainState *es)
{
	List *dpcontext = set_deparse_context_plan(es->deparse_cxt, node->css.ss.ps.plan, ancestors);
	bool useprefix = list_length(es->rtable) > 1 || es->verbose;
	CustomScan *cscan = (CustomScan *) node->css.ss.ps.plan;
	List *texts = NIL;
	List *calls = (List *) lsecond(cscan->custom_private);
	ListCell *lc;

	for_each_from(lc, cscan->custom_scan_tlist, node->ncols)
	{
		FuncExpr *result = (FuncExpr *) ((TargetEntry *) lfirst(lc))->expr;
		FuncExpr *call = list_nth_node(FuncExpr, calls, foreach_current_index(lc) - node->ncols);

		call = llm_node_show_call(result, call);
		texts = lappend(texts, deparse_expression((Node *) call, dpcontext, useprefix, false));
	}
	ExplainPropertyList("LLM Calls", texts, es);
}

/* What the planner expects. An answer may be shorter; rows without a prompt and prompts that have been
 * answered before cost nothing; a LIMIT right above is known. */
static void
explain_estimate(LlmNodeState *node, ExplainState *es)
{
	CustomScan *cscan = (CustomScan *) node->css.ss.ps.plan;
	double rows = outerPlan(cscan)->plan_rows;
	double requests = 0;
	LlmEstimate sum = {0, 0};
	ListCell *lc;

	if (node->bound > 0)
		rows = Min(rows, node->bound);
	foreach (lc, (List *) lsecond(cscan->custom_private))
	{
		LlmEstimate e =
			llm_figures_tokens(es->rtable, &cscan->scan.plan, lfirst_node(FuncExpr, lc));

		requests += rows;
		sum.prompt += rows * e.prompt;
		sum.generated += rows * e.generated;
	}
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		appendStringInfoSpaces(es->str, es->indent * 2);
		appendStringInfo(es->str, "LLM Estimate: requests=%.0f prompt=%.0f generated=%.0f\n",
						 requests, sum.prompt, sum.generated);
		return;
	}
	ExplainPropertyFloat("LLM Estimated Requests", NULL, requests, 0, es);
	ExplainPropertyFloat("LLM Estimated Prompt Tokens", NULL, sum.prompt, 0, es);
	ExplainPropertyFloat("LLM Estimated Generated Tokens", NULL, sum.generated, 0, es);
}

/* Without a memo there is nothing to say of it. */
static bool
shows_memo(const LlmCallUsage *u)
{
	return llm_memo_enabled() || u->remembered > 0;
}

static double
average(double sum, int64 n)
{
	return n > 0 ? sum / n : 0.0;
}

static void
explain_usage_text(const LlmNodeState *node, const LlmCallUsage *u, ExplainState *es)
{
	appendStringInfoSpaces(es->str, es->indent * 2);
	appendStringInfo(es->str, "LLM Model: %s   Requests: " INT64_FORMAT,
					 node->model[0] != '\0' ? node->model : "none", u->requests);
	if (u->distinct != u->requests)
		appendStringInfo(es->str, "   Distinct: " INT64_FORMAT, u->distinct);
	if (shows_memo(u))
		appendStringInfo(es->str, "   Memo Hits: " INT64_FORMAT, u->remembered);
	appendStringInfo(es->str, "   Peak In Flight: %d\n", node->peak);
	appendStringInfoSpaces(es->str, es->indent * 2);
	appendStringInfo(es->str,
					 "LLM Tokens: prompt=" INT64_FORMAT " cached=" INT64_FORMAT
					 " generated=" INT64_FORMAT,
					 u->prompt_tokens, u->cached_tokens, u->completion_tokens);
	if (es->timing)
		appendStringInfo(es->str, "   Queue Wait: %.1f ms avg   First Token: %.1f ms avg",
						 average(u->queue_ms, u->distinct - u->remembered),
						 average(u->first_token_ms, u->distinct - u->remembered));
	appendStringInfoChar(es->str, '\n');
}

static void
explain_usage_properties(const LlmNodeState *node, const LlmCallUsage *u, ExplainState *es)
{
	if (node->model[0] != '\0')
		ExplainPropertyText("LLM Model", node->model, es);
	ExplainPropertyInteger("LLM Requests", NULL, u->requests, es);
	ExplainPropertyInteger("LLM Distinct", NULL, u->distinct, es);
	if (shows_memo(u))
		ExplainPropertyInteger("LLM Memo Hits", NULL, u->remembered, es);
	ExplainPropertyInteger("LLM Peak In Flight", NULL, node->peak, es);
	ExplainPropertyInteger("LLM Prompt Tokens", NULL, u->prompt_tokens, es);
	ExplainPropertyInteger("LLM Cached Tokens", NULL, u->cached_tokens, es);
	ExplainPropertyInteger("LLM Generated Tokens", NULL, u->completion_tokens, es);
	if (es->timing)
	{
		int64 n_sent = u->distinct - u->remembered;

		ExplainPropertyFloat("LLM Queue Wait", "ms", average(u->queue_ms, n_sent), 3, es);
		ExplainPropertyFloat("LLM First Token", "ms", average(u->first_token_ms, n_sent), 3, es);
	}
}

void
llm_node_explain(CustomScanState *css, List *ancestors, ExplainState *es)
{
	LlmNodeState *node = (LlmNodeState *) css;
	LlmCallUsage usage;

	explain_calls(node, ancestors, es);
	if (es->costs)
		explain_estimate(node, es);
	if (!es->analyze)
		return;
	llm_node_usage(node, &usage);
	if (es->format == EXPLAIN_FORMAT_TEXT)
		explain_usage_text(node, &usage, es);
	else
		explain_usage_properties(node, &usage, es);
	if (es->verbose && usage.numerics_key != 0)
		ExplainPropertyText("LLM Numerics Key",
							psprintf("%016llx", (unsigned long long) usage.numerics_key), es);
}
