/* pg/spend.c - count the tokens of a statement, and stop it over its limit; see spend.h. */
#include "postgres.h"

#include "pg/spend.h"

#include "access/xact.h"
#include "datatype/timestamp.h"
#include "pg/guc.h"

static TimestampTz statement = 0; /* whose tokens are counted */
static int64 spent = 0;

/* Tokens of the running statement. */
static int64
spent_now(void)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();

	if (now != statement)
		spent = 0;
	statement = now;
	return spent;
}

static void
refuse(LlmFailure *f)
{
	llm_failure_set(f, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
					"token limit of the statement is used up: " INT64_FORMAT " of %d tokens", spent,
					llm_guc_max_statement_tokens);
	llm_failure_detail(f, "Prompts and answers count, also of rows that were read ahead.");
	llm_failure_hint(f, "Raise llm_infer.max_statement_tokens, or ask for less.");
}

void
llm_spend_add(int64 tokens)
{
	spent = spent_now() + tokens;
}

bool
llm_spend_admit(LlmFailure *f)
{
	/* Any request costs a token at least. */
	if (llm_guc_max_statement_tokens == 0 || spent_now() < llm_guc_max_statement_tokens)
		return true;
	refuse(f);
	return false;
}

void
llm_spend_check(void)
{
	LlmFailure f;

	if (llm_guc_max_statement_tokens == 0 || spent_now() <= llm_guc_max_statement_tokens)
		return;
	refuse(&f);
	llm_failure_raise(&f);
}
