/* pg/running.c - which plan this backend runs, and how far; see running.h. */
#include "postgres.h"

#include "pg/running.h"

#include "executor/executor.h"
#include "pg/compat.h"

/* One call of ExecutorRun. A plan may be run many times, a number of rows at a time. */
typedef struct Run
{
	EState *estate;
	bool to_end; /* forward, without a number of rows */
} Run;

static Run running = {NULL, false};
static ExecutorRun_hook_type prev_executor_run = NULL;

static void
run_plan(QueryDesc *query, ScanDirection direction, uint64 count LLM_COMPAT_ONCE_PARAM)
{
	Run outer = running;

	running.estate = query->estate;
	running.to_end = count == 0 && ScanDirectionIsForward(direction);
	PG_TRY();
	{
		if (prev_executor_run != NULL)
			prev_executor_run(query, direction, count LLM_COMPAT_ONCE_ARG);
		else
			standard_ExecutorRun(query, direction, count LLM_COMPAT_ONCE_ARG);
	}
	PG_FINALLY();
	{
		running = outer;
	}
	PG_END_TRY();
}

EState *
llm_running_plan(void)
{
	return running.estate;
}

bool
llm_running_to_end(const EState *estate)
{
	return running.estate == estate && running.to_end;
}

void
llm_running_init(void)
{
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = run_plan;
}
