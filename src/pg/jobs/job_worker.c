/*
 * pg/jobs/job_worker.c - the background worker that runs the jobs of one role, as that role.
 *
 * Three short transactions per batch: claim (jobs become running, their requests are made), nothing
 * while the engine generates, write (what has ended is written). Up to CALLS_MAX jobs are in flight
 * over one connection. The lease of a running job is the role's lock (job_process.h): it ends with
 * this process, however that ends.
 *
 * A row of which no call can be made (it is damaged, there is no memory for it) is tried alone, and
 * fails with that error after its attempts. What cannot be written is its own row's error too: a batch is
 * written in a subtransaction, and row by row when that fails. Any other error ends the process: the
 * requests in flight are lost with the transaction, and their jobs are queued again by whoever takes the
 * lock next.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pg/call.h"
#include "pg/compat.h"
#include "pg/func.h"
#include "pg/jobs/job_process.h"
#include "pg/jobs/job_table.h"
#include "pg/subxact.h"
#include "pg/workers.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/errcodes.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
extern PGDLLEXPORT void llm_worker_main(Datum arg);
LLM_EXPORTS_END

#define CALLS_MAX 128      /* in flight */
#define MODEL_MAX 96       /* of them to one model: the others' are never all taken */
#define CLAIM_MIN 16       /* free places before more are claimed */
#define TICK_MS 20         /* one wait for the oldest call */
#define LOOK_MS 1000       /* between looks that nothing has asked for */
#define IDLE_MS 2000       /* without a job before the end */
#define CHANNEL "llm_jobs" /* of the notifications */

typedef struct Running
{
	int64 id;
	int attempts;
	int max_attempts;
	LlmCall *call;     /* NULL = none could be made: */
	LlmFailure broken; /* why; memory of calls_cxt */
} Running;

static Running running[CALLS_MAX]; /* [n_running] in the order of claims */
static int n_running = 0;
static MemoryContext calls_cxt = NULL; /* of all calls */
static char *outage = NULL;            /* why no job can run now; NULL = they can */

static bool
has_finished(const Running *r)
{
	return r->call == NULL || llm_call_finished(r->call);
}

/* Why one that has finished has no answer; NULL = it has one. */
static const LlmFailure *
failure_of(const Running *r)
{
	return r->call == NULL ? &r->broken : llm_call_failure(r->call);
}

static void
forget(int i)
{
	if (running[i].call != NULL)
		llm_call_free(running[i].call);
	else
		pfree(running[i].broken.message);
	n_running--;
	memmove(&running[i], &running[i + 1], sizeof(Running) * (n_running - i));
}

/* ---- claiming ---- */

static bool
has_room(void)
{
	return n_running + CLAIM_MIN <= CALLS_MAX &&
		   MemoryContextMemAllocated(calls_cxt, true) < LLM_JOB_CLAIM_NBYTES;
}

/* Models that have MODEL_MAX jobs in flight, [*n] in models, which has room for as many as there can
 * be. The number of jobs that may be claimed so that no other gets more. */
static int
find_full(const char **models, int *n)
{
	const char *names[CALLS_MAX];
	int counts[CALLS_MAX];
	int n_names = 0;
	int limit = Min(MODEL_MAX, CALLS_MAX - n_running);

	for (int i = 0; i < n_running; i++)
	{
		const char *name = running[i].call ? llm_call_model(running[i].call) : NULL;
		int k = 0;

		if (name == NULL)
			continue;
		while (k < n_names && strcmp(names[k], name) != 0)
			k++;
		if (k == n_names)
			counts[n_names++] = 0;
		names[k] = name;
		counts[k]++;
	}
	*n = 0;
	for (int k = 0; k < n_names; k++)
	{
		if (counts[k] < MODEL_MAX)
			limit = Min(limit, MODEL_MAX - counts[k]);
		else
			models[(*n)++] = names[k];
	}
	return limit;
}

/* Jobs that were claimed, on their way to become calls. */
typedef struct Claimed
{
	const LlmJobClaim *claims;
	LlmCall **calls; /* a place for each */
	int from, to;    /* [from, to) of them, for a step that is tried */
	Size nbytes;     /* of the prompts of all calls that were made */
} Claimed;

static void
make_calls(void *arg)
{
	Claimed *c = arg;
	int n = c->to - c->from;
	NullableDatum(*args)[LLM_ARG_COUNT] = palloc(sizeof(*args) * n);
	MemoryContext cxt = CurrentMemoryContext;
	Size nbytes = 0;
	LlmOwnedUser before;

	llm_job_table_enter(&before);
	for (int i = 0; i < n; i++)
		llm_job_table_read(c->claims[c->from + i].id, cxt, args[i]);
	llm_owned_leave(&before);
	for (int i = 0; i < n; i++)
	{
		c->calls[c->from + i] = llm_call_create(llm_func_of(LLM_FUNC_GENERATE_RESULT),
												LLM_ARG_COUNT, args[i], calls_cxt);
		nbytes += VARSIZE_ANY_EXHDR(DatumGetPointer(args[i][0].value));
	}
	c->nbytes += nbytes;
}

/* Try that in a context of its own, which is gone afterwards but for the error. */
static ErrorData *
try_calls(Claimed *c, int from, int to)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "llm_infer claim", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	ErrorData *error;

	c->from = from;
	c->to = to;
	error = llm_subxact_try_all(make_calls, c);
	MemoryContextSwitchTo(old);
	for (int i = from; error != NULL && i < to; i++)
	{
		if (c->calls[i] != NULL)
			llm_call_free(c->calls[i]);
		c->calls[i] = NULL;
	}
	if (error == NULL)
		MemoryContextDelete(cxt);
	return error;
}

/* Make a call of each; where that gives an error, it becomes the end of that job alone. */
static void
begin_calls(const LlmJobClaim *claims, int n, Size *nbytes)
{
	LlmCall *calls[CALLS_MAX] = {NULL};
	Claimed c = {.claims = claims, .calls = calls};
	bool one_by_one = n > 0 && try_calls(&c, 0, n) != NULL;

	for (int i = 0; i < n; i++)
	{
		ErrorData *error = one_by_one ? try_calls(&c, i, i + 1) : NULL;
		Running *r = &running[n_running++];

		r->id = claims[i].id;
		r->attempts = claims[i].attempts;
		r->max_attempts = claims[i].max_attempts;
		r->call = calls[i];
		if (error != NULL)
		{
			r->broken.sqlstate = error->sqlerrcode;
			r->broken.message = MemoryContextStrdup(calls_cxt, error->message);
		}
		else
			llm_call_begin(r->call);
	}
	*nbytes = c.nbytes;
}

/* Claim what there are places for. True when there may be more to claim at once; *cut when there may be as
 * soon as places are free. */
static bool
claim(Oid role, LlmJobPlace *place, bool *cut)
{
	const char *full[CALLS_MAX];
	int n_full;
	int limit = find_full(full, &n_full);
	int n = limit;
	Size nbytes;
	bool went_on;
	bool all; /* that was asked for */
	LlmJobClaim *claims;

	if (!llm_job_process_begin("claiming jobs"))
		return false;
	for (int i = 0; i < n_full; i++)
		place->go_on = place->go_on && strcmp(full[i], place->model) != 0;
	went_on = place->go_on;
	claims = llm_job_table_claim(role, full, n_full, place, &n);
	begin_calls(claims, n, &nbytes);
	llm_job_process_end();
	all = n == limit || nbytes >= LLM_JOB_CLAIM_NBYTES;
	/* When a model has given less than asked for, the others are looked at next. */
	*cut = all || n_full > 0 || went_on;
	place->go_on = all;
	return all || went_on;
}

/* Cancel at the engine what was cancelled in the table; what waits for a quota sees its changes. */
static void
follow_tables(void)
{
	int64 ids[CALLS_MAX];
	LlmJobHold hold[CALLS_MAX];

	if (n_running == 0 || !llm_job_process_begin("looking for changes"))
		return;
	for (int i = 0; i < n_running; i++)
		ids[i] = running[i].id;
	llm_job_table_hold(ids, n_running, false, hold);
	for (int i = 0; i < n_running; i++)
		if (running[i].call != NULL)
			llm_call_renew(running[i].call);
	llm_job_process_end();
	for (int i = n_running - 1; i >= 0; i--)
		if (hold[i] == LLM_JOB_LOST)
			forget(i);
}

/* ---- writing ---- */

/* No engine, or a quota that is spent: no fault of the job, and others will fare the same. */
static bool
is_outage(int sqlstate)
{
	return sqlstate == ERRCODE_CONNECTION_FAILURE ||
		   sqlstate == ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
}

/* What may work another time. */
static bool
is_passing(int sqlstate)
{
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_OUT_OF_MEMORY ||
		   sqlstate == ERRCODE_QUERY_CANCELED;
}

/* The row of a call that has ended, which is locked. True when that is the job's end. */
static bool
write_end(const Running *r, Datum result)
{
	const LlmFailure *f = failure_of(r);

	if (f == NULL)
	{
		llm_job_table_done(r->id, result);
		return true;
	}
	if (r->call != NULL && is_outage(f->sqlstate))
	{
		llm_job_table_retry(r->id, 0, false, f->sqlstate, f->message);
		if (outage == NULL)
			outage = MemoryContextStrdup(TopMemoryContext, f->message);
		return false;
	}
	if ((r->call == NULL || is_passing(f->sqlstate)) && r->attempts < r->max_attempts)
	{
		llm_job_table_retry(r->id, llm_workers_backoff_ms(r->attempts), true, f->sqlstate,
							f->message);
		return false;
	}
	llm_job_table_fail(r->id, f->sqlstate, f->message);
	return true;
}

/* Calls that have ended, and what their rows say. */
typedef struct Batch
{
	int n;
	Running *ended[CALLS_MAX];
	int64 ids[CALLS_MAX];
	LlmJobHold hold[CALLS_MAX];
	Datum results[CALLS_MAX];
	bool final[CALLS_MAX]; /* it was the job's end */
} Batch;

/* Some of them, for a step that is tried. */
typedef struct Range
{
	Batch *b;
	int from, to;             /* [from, to) */
	const ErrorData *instead; /* of their ends; NULL = these */
} Range;

static void
write_rows(void *arg)
{
	const Range *r = arg;
	Batch *b = r->b;
	LlmOwnedUser before;

	llm_job_table_enter(&before);
	for (int i = r->from; i < r->to; i++)
	{
		if (b->hold[i] != LLM_JOB_OURS)
			continue;
		if (r->instead != NULL)
			llm_job_table_fail(b->ids[i], r->instead->sqlerrcode, r->instead->message);
		b->final[i] = r->instead != NULL || write_end(b->ended[i], b->results[i]);
	}
	llm_owned_leave(&before);
}

/* Write the rows [from, to) in a subtransaction; instead of their ends an error, if given. The error
 * that this gave, NULL = none; one that is not the rows' is raised. */
static ErrorData *
try_rows(Batch *b, int from, int to, const ErrorData *instead)
{
	Range r = {b, from, to, instead};
	ErrorData *error = llm_subxact_try(write_rows, &r);

	if (error != NULL &&
		(instead != NULL || ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK))
		ReThrowError(error);
	return error;
}

/* All rows at once; when that fails one by one, so that an error is its own row's. */
static void
write_batch(Batch *b)
{
	if (try_rows(b, 0, b->n, NULL) == NULL)
		return;
	for (int i = 0; i < b->n; i++)
	{
		ErrorData *error = try_rows(b, i, i + 1, NULL);

		if (error != NULL)
			(void) try_rows(b, i, i + 1, error);
	}
}

/* One notification with the ids of the jobs that ended. True when an answer was among them. */
static bool
notify(const Batch *b)
{
	StringInfoData payload;
	bool well = false;

	initStringInfo(&payload);
	for (int i = 0; i < b->n; i++)
	{
		if (b->hold[i] != LLM_JOB_OURS || !b->final[i])
			continue;
		appendStringInfo(&payload, payload.len == 0 ? INT64_FORMAT : "," INT64_FORMAT, b->ids[i]);
		well = well || failure_of(b->ended[i]) == NULL;
	}
	if (payload.len > 0)
		Async_Notify(CHANNEL, payload.data);
	return well;
}

/* Write what has ended in one transaction; those whose rows are locked by others stay. True when places
 * are free again. */
static bool
write_ended(void)
{
	static Batch b;
	bool well;
	int n_before = n_running;

	b.n = 0;
	for (int i = 0; i < n_running; i++)
	{
		if (!has_finished(&running[i]))
			continue;
		b.ids[b.n] = running[i].id;
		b.ended[b.n++] = &running[i];
	}
	if (b.n == 0 || !llm_job_process_begin("writing results"))
		return false;
	llm_job_table_hold(b.ids, b.n, true, b.hold);
	for (int i = 0; i < b.n; i++)
	{
		bool isnull;
		bool failed;

		if (b.hold[i] == LLM_JOB_OURS && failure_of(b.ended[i]) == NULL)
			b.results[i] = llm_call_result(b.ended[i]->call, &isnull, &failed);
	}
	write_batch(&b);
	well = notify(&b);
	llm_job_process_end();
	llm_workers_finished();
	if (well)
		llm_workers_well();
	for (int i = b.n - 1; i >= 0; i--)
		if (b.hold[i] != LLM_JOB_NOT_NOW)
			forget((int) (b.ended[i] - running));
	return n_running < n_before;
}

/* ---- the loop ---- */

/* Wait for the oldest call that has not ended; those of rows that others hold wait as well. */
static void
wait_for_calls(void)
{
	for (int i = 0; i < n_running; i++)
	{
		if (has_finished(&running[i]))
			continue;
		(void) llm_call_wait_at_most(running[i].call, TICK_MS);
		return;
	}
	llm_job_process_sleep(TICK_MS);
}

static void
work(Oid role)
{
	TimestampTz looked = 0;
	TimestampTz busy = GetCurrentTimestamp();
	bool more = true; /* there may be jobs to claim */
	bool cut = false; /* there may be when places are free */
	LlmJobPlace place = {0};

	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		bool claiming = outage == NULL && !llm_workers_must_yield();

		llm_job_process_check();
		if (llm_workers_take_wake() || now >= TimestampTzPlusMilliseconds(looked, LOOK_MS))
		{
			follow_tables();
			looked = now;
			more = true;
			place.go_on = false;
		}
		if (claiming && more && has_room())
			more = claim(role, &place, &cut);
		if (n_running > 0)
		{
			wait_for_calls();
			more = (write_ended() && cut) || more;
			busy = now;
		}
		else if (!claiming || now >= TimestampTzPlusMilliseconds(busy, IDLE_MS))
			break;
		else
			llm_job_process_sleep(LOOK_MS);
	}
}

/* An error of the server's state, like a full disk, is no fault of the jobs: those in work are given back without
 * counting that they lost their worker. When that cannot be written it is counted. */
static void
give_back(const ErrorData *error)
{
	int64 ids[CALLS_MAX];
	LlmJobHold hold[CALLS_MAX];
	LlmOwnedUser before;

	llm_workers_end_paused(error->message);
	if (!llm_job_process_begin("giving jobs back"))
		return;
	for (int i = 0; i < n_running; i++)
		ids[i] = running[i].id;
	llm_job_table_hold(ids, n_running, true, hold);
	llm_job_table_enter(&before);
	for (int i = 0; i < n_running; i++)
		if (hold[i] == LLM_JOB_OURS)
			llm_job_table_retry(ids[i], 0, false, error->sqlerrcode, error->message);
	llm_owned_leave(&before);
	llm_job_process_end();
}

void
llm_worker_main(Datum arg)
{
	Oid role;
	int64 task;

	llm_job_process_connect(DatumGetObjectId(arg), &role, &task);
	calls_cxt = AllocSetContextCreate(TopMemoryContext, "llm_infer jobs", ALLOCSET_DEFAULT_SIZES);
	while (!llm_job_process_begin("taking over"))
		llm_job_process_sleep(LOOK_MS);
	(void) llm_job_process_lock_role(role, true);
	llm_job_table_release(role);
	llm_job_process_end();
	PG_TRY();
	{
		work(role);
	}
	PG_CATCH();
	{
		ErrorData *error;
		int category;

		MemoryContextSwitchTo(TopMemoryContext);
		error = CopyErrorData();
		category = ERRCODE_TO_CATEGORY(error->sqlerrcode);
		if (category != ERRCODE_INSUFFICIENT_RESOURCES && category != ERRCODE_SYSTEM_ERROR)
			PG_RE_THROW();
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		give_back(error);
	}
	PG_END_TRY();
	if (outage != NULL)
		llm_workers_end_paused(outage);
	proc_exit(0);
}
