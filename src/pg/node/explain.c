/* pg/node/explain.c - what EXPLAIN says about an LLM Batch node. */
#include "postgres.h"

#include "pg/node/node.h"

#include "catalog/pg_proc.h"
#include "commands/explain.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "nodes/nodeFuncs.h"
#include "pg/compat.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

/* Names of the function's input arguments, or NULL. */
static char **
argument_names(Oid funcid, int *n)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	Oid *types;
	char **names;
	char *modes;

	*n = 0;
	if (!HeapTupleIsValid(tuple))
		return NULL;
	*n = get_func_arg_info(tuple, &types, &names, &modes);
	ReleaseSysCache(tuple);
	return names;
}

/* A call as a user would write it: defaulted arguments left out, later ones by name. */
static char *
call_text(const LlmNodeCall *call, List *dpcontext, bool useprefix)
{
	StringInfoData buf;
	int nnames;
	char **names = argument_names(call->expr->funcid, &nnames);
	ListCell *lc;
	bool skipped = false;
	bool first = true;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s(", llm_func_name(call->func));
	foreach (lc, call->expr->args)
	{
		Node *arg = (Node *) lfirst(lc);
		int i = foreach_current_index(lc);

		if (i > 0 && IsA(arg, Const) && ((Const *) arg)->constisnull)
		{
			skipped = true;
			continue;
		}
		if (!first)
			appendStringInfoString(&buf, ", ");
		if (skipped && names != NULL && i < nnames)
			appendStringInfo(&buf, "%s => ", names[i]);
		appendStringInfoString(&buf, deparse_expression(arg, dpcontext, useprefix, false));
		first = false;
	}
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

static void
explain_calls(LlmNodeState *node, List *ancestors, ExplainState *es)
{
	List *dpcontext = set_deparse_context_plan(es->deparse_cxt, node->css.ss.ps.plan, ancestors);
	bool useprefix = list_length(es->rtable) > 1 || es->verbose;
	List *texts = NIL;
	int i;

	for (i = 0; i < node->ncalls; i++)
		texts = lappend(texts, call_text(&node->calls[i], dpcontext, useprefix));
	ExplainPropertyList("LLM Calls", texts, es);
}

static double
average(double sum, int64 n)
{
	return n > 0 ? sum / n : 0.0;
}

static void
explain_usage_text(const LlmNodeState *node, ExplainState *es)
{
	const LlmCallUsage *u = &node->usage;

	appendStringInfoSpaces(es->str, es->indent * 2);
	appendStringInfo(es->str, "LLM Model: %s   Requests: " INT64_FORMAT "   Peak In Flight: %d\n",
					 node->model != NULL ? node->model : "none", u->requests, node->peak);
	appendStringInfoSpaces(es->str, es->indent * 2);
	appendStringInfo(es->str,
					 "LLM Tokens: prompt=" INT64_FORMAT " cached=" INT64_FORMAT
					 " generated=" INT64_FORMAT,
					 u->prompt_tokens, u->cached_tokens, u->completion_tokens);
	if (es->timing)
		appendStringInfo(es->str, "   Queue Wait: %.1f ms avg   First Token: %.1f ms avg",
						 average(u->queue_ms, u->requests),
						 average(u->first_token_ms, u->requests));
	appendStringInfoChar(es->str, '\n');
}

static void
explain_usage_properties(const LlmNodeState *node, ExplainState *es)
{
	const LlmCallUsage *u = &node->usage;

	if (node->model != NULL)
		ExplainPropertyText("LLM Model", node->model, es);
	ExplainPropertyInteger("LLM Requests", NULL, u->requests, es);
	ExplainPropertyInteger("LLM Peak In Flight", NULL, node->peak, es);
	ExplainPropertyInteger("LLM Prompt Tokens", NULL, u->prompt_tokens, es);
	ExplainPropertyInteger("LLM Cached Tokens", NULL, u->cached_tokens, es);
	ExplainPropertyInteger("LLM Generated Tokens", NULL, u->completion_tokens, es);
	if (es->timing)
	{
		ExplainPropertyFloat("LLM Queue Wait", "ms", average(u->queue_ms, u->requests), 3, es);
		ExplainPropertyFloat("LLM First Token", "ms", average(u->first_token_ms, u->requests), 3,
							 es);
	}
}

void
llm_node_explain(CustomScanState *css, List *ancestors, ExplainState *es)
{
	LlmNodeState *node = (LlmNodeState *) css;

	explain_calls(node, ancestors, es);
	if (!es->analyze)
		return;
	if (es->format == EXPLAIN_FORMAT_TEXT)
		explain_usage_text(node, es);
	else
		explain_usage_properties(node, es);
	if (es->verbose && node->usage.numerics_key != 0)
		ExplainPropertyText("LLM Numerics Key",
							psprintf("%016llx", (unsigned long long) node->usage.numerics_key), es);
}
