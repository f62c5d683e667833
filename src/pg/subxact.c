/*
 * pg/subxact.c - try a step in a subtransaction of its own; see subxact.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "pg/subxact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static bool
is_of_server(int sqlstate)
{
	int class = ERRCODE_TO_CATEGORY(sqlstate);

	return class == ERRCODE_INSUFFICIENT_RESOURCES || class == ERRCODE_OPERATOR_INTERVENTION ||
		   class == ERRCODE_SYSTEM_ERROR;
}

ErrorData *
llm_subxact_try_all(void (*step)(void *arg), void *arg)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext cxt = CurrentMemoryContext;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		step(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return error;
}

ErrorData *
llm_subxact_try(void (*step)(void *arg), void *arg)
{
	ErrorData *error = llm_subxact_try_all(step, arg);

	if (error != NULL && is_of_server(error->sqlerrcode))
		ReThrowError(error);
	return error;
}
