/*
 * pg/hidden.c - count what on_error => 'null' hid, and say it once per statement.
 *
 * The WARNING is due when the executor's memory of the statement goes. Expressions that live longer
 * than their statement, such as PL/pgSQL's, are covered by the end of the transaction. A statement
 * that fails says nothing: its error is what counts.
 */
#include "postgres.h"

#include "pg/hidden.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "utils/palloc.h"

static int64 n_hidden = 0;
static char first_hidden[256];     /* the first of them */
static MemoryContext armed = NULL; /* that was noted last, while it is there */

static void
warn(void)
{
	int64 n = n_hidden;

	n_hidden = 0;
	if (n == 0)
		return;
	/* An interrupt must not leave a memory context's reset by an error. */
	HOLD_INTERRUPTS();
	ereport(WARNING, (errmsg_plural(INT64_FORMAT " llm_infer call failed and gave NULL",
									INT64_FORMAT " llm_infer calls failed and gave NULL",
									(unsigned long) n, n),
					  errdetail("First error: %s.", first_hidden)));
	RESUME_INTERRUPTS();
}

static void
memory_goes(void *arg)
{
	armed = NULL;
	if (IsTransactionState() && !IsAbortedTransactionBlockState())
		warn();
}

static void
transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		warn();
	else if (event == XACT_EVENT_ABORT)
		n_hidden = 0;
}

/* Rows of one expression need one callback, not one each. */
static void
arm(MemoryContext cxt)
{
	static bool registered = false;
	MemoryContextCallback *callback;

	if (cxt == armed)
		return;
	/* statements inside another take turns with it */
	for (callback = cxt->reset_cbs; callback != NULL; callback = callback->next)
	{
		if (callback->func == memory_goes)
		{
			armed = cxt;
			return;
		}
	}
	callback = MemoryContextAllocZero(cxt, sizeof(MemoryContextCallback));
	if (!registered)
	{
		RegisterXactCallback(transaction_ends, NULL);
		registered = true;
	}
	callback->func = memory_goes;
	MemoryContextRegisterResetCallback(cxt, callback);
	armed = cxt;
}

void
llm_hidden_note(MemoryContext cxt, const char *error)
{
	arm(cxt);
	if (n_hidden++ == 0)
		strlcpy(first_hidden, error, sizeof(first_hidden));
}
