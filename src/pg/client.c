/*
 * pg/client.c - waiting for requests, and what ends of transactions do to them.
 *
 * Every wait is a loop of llm_traffic_advance and one sleep that the latch, the socket or a deadline
 * ends, so that answers of all callers are drained whoever waits, and a credit comes back as soon as
 * its answer is here.
 */
#include "postgres.h"

#include "pg/client.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/connection.h"
#include "pg/guc.h"
#include "pg/inflight.h"
#include "pg/quota.h"
#include "pg/shmem.h"
#include "pg/spend.h"
#include "pg/traffic.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define TIMEOUT_GRACE_MS 1000 /* after a request's timeout, for the engine to say so itself */

#define QUOTA_POLL_MS 10 /* between looks whether other backends' requests have ended */

static uint64 next_id = 1;
static TimestampTz held_since = 0; /* by a quota of requests in flight, as waits saw it; 0 = not */
static TimestampTz last_ready = 0; /* while waiting: an engine was up, though it did not greet */
static bool callbacks_registered = false;

/* ---- waiting ---- */

static void
fail_unavailable(LlmClientRequest *req, const LlmEngineStatus *status)
{
	char text[100];
	const char *why = status->message;

	if (status->state == LLM_ENGINE_READY || *why == '\0')
		why = llm_connection_refusal();
	if (*why == '\0')
		why = "The engine does not answer.";
	snprintf(text, sizeof(text), "no llm_infer engine was available for %d ms",
			 llm_guc_engine_timeout);
	llm_inflight_fail(req, LLM_E_UNAVAILABLE, text, why,
					  "The server log says more about the engine.");
}

/* Fail req when its role's quota has held what is queued for too long. The message wants the catalog. */
static void
fail_held(LlmClientRequest *req)
{
	TimestampTz now = GetCurrentTimestamp();
	int64 held_ms = (now - held_since) / 1000;

	if (held_ms >= llm_guc_engine_timeout ||
		(req->timeout_ms > 0 && (now - req->begun_us) / 1000 >= req->timeout_ms))
	{
		MemoryContext old = MemoryContextSwitchTo(req->cxt);

		llm_quota_fail_in_flight(req->submit.role, req->max_in_flight, held_ms, &req->failure);
		MemoryContextSwitchTo(old);
		llm_inflight_finish(req);
	}
}

void
llm_client_renew(LlmClientRequest *req)
{
	if (!req->counted || req->state != LLM_CLIENT_QUEUED)
		return;
	req->max_in_flight = llm_quota_in_flight(req->submit.role);
	if (held_since != 0)
		fail_held(req);
}

/* How long req may sleep when its role's quota holds it, -1 = it does not; 0 = that was too long.
 * Outside of a transaction the caller renews it in one. */
static long
check_held(LlmClientRequest *req)
{
	if (!req->held || req->state != LLM_CLIENT_QUEUED ||
		llm_connection_state() != LLM_CONNECTION_READY)
	{
		held_since = 0;
		return -1;
	}
	if (held_since == 0)
		held_since = GetCurrentTimestamp();
	if (IsTransactionState())
		llm_client_renew(req);
	return req->state == LLM_CLIENT_FINISHED ? 0 : QUOTA_POLL_MS;
}

/* Fail req when it has waited too long; give back how long it may sleep, -1 = for ever. */
static long
check_deadlines(LlmClientRequest *req)
{
	TimestampTz now;
	long sleep = check_held(req);

	/* Who is held fails for that, its timeout included. */
	if (sleep >= 0 || (llm_connection_state() == LLM_CONNECTION_READY && req->timeout_ms == 0))
		return sleep;
	now = GetCurrentTimestamp();
	if (req->timeout_ms > 0)
	{
		int64 left = req->timeout_ms - (now - req->begun_us) / 1000 +
					 (req->state == LLM_CLIENT_SENT ? TIMEOUT_GRACE_MS : 0);

		if (left <= 0)
		{
			bool credits =
				req->state == LLM_CLIENT_QUEUED && llm_connection_state() == LLM_CONNECTION_READY;
			char text[100];

			snprintf(text, sizeof(text), "request was not %s within %d ms",
					 credits ? "accepted by the engine" : "answered", req->timeout_ms);
			llm_client_end(req);
			llm_inflight_enqueue(req);
			llm_inflight_fail(req, credits ? LLM_E_BUSY : LLM_E_TIMEOUT, text, NULL, NULL);
			return 0;
		}
		sleep = (long) Min(left, 3600 * 1000L);
	}
	if (llm_connection_state() != LLM_CONNECTION_READY)
	{
		LlmEngineStatus status;
		int64 limit = (int64) llm_guc_engine_timeout * 1000;
		TimestampTz down_since = llm_traffic_down_since();

		llm_shmem_status(&status);
		/* An engine that is up but does not greet hangs: the watchdog needs its time, and the next
		 * engine has its own. */
		if (status.state == LLM_ENGINE_READY)
			last_ready = now;
		if (now - Max(down_since, last_ready) > limit || now - down_since > 3 * limit)
		{
			fail_unavailable(req, &status);
			return 0;
		}
		sleep = sleep < 0 ? LLM_TRAFFIC_RETRY_MS : Min(sleep, LLM_TRAFFIC_RETRY_MS);
	}
	return sleep;
}

/* Sleep until something happens or sleep_ms pass (-1 = for ever). */
static void
sleep_once(long sleep_ms)
{
	static uint32 wait_event = 0;
	int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	pgsocket sock = PGINVALID_SOCKET;

	if (llm_connection_state() != LLM_CONNECTION_CLOSED)
	{
		sock = llm_connection_link()->fd;
		events |= WL_SOCKET_READABLE;
		if (llm_link_unsent(llm_connection_link()) > 0)
			events |= WL_SOCKET_WRITEABLE;
	}
	if (sleep_ms >= 0)
		events |= WL_TIMEOUT;
	/* Also what came while interrupts were held and somebody else has reset the latch. */
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatchOrSocket(MyLatch, events, sock, sleep_ms,
							 llm_compat_wait_event(&wait_event, "LlmInferReply"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static void
revive(LlmClientRequest *req)
{
	if (req->state == LLM_CLIENT_DORMANT)
		llm_client_begin(req);
	if (req->state == LLM_CLIENT_DEAD || req->state == LLM_CLIENT_NEW)
		elog(ERROR, "llm_infer request is waited for outside of its transaction");
}

/* What a wait may end with, beside the answer. */
typedef enum WaitFor
{
	WAIT_FOR_ANSWER,
	WAIT_FOR_SENT, /* out of the queue */
	WAIT_FOR_PIECE /* one that was not taken */
} WaitFor;

static bool
is_waited_for(const LlmClientRequest *req, WaitFor what)
{
	return req->state == LLM_CLIENT_FINISHED ||
		   (what == WAIT_FOR_SENT && req->state == LLM_CLIENT_SENT) ||
		   (what == WAIT_FOR_PIECE && llm_pieces_any(&req->pieces));
}

/* Run until what is waited for is there. False at deadline (0 = none). */
static bool
wait_for(LlmClientRequest *req, WaitFor what, TimestampTz deadline)
{
	revive(req);
	llm_inflight_hurry(req);
	if (deadline == 0)
		held_since = 0; /* short waits are parts of one */
	for (;;)
	{
		long sleep;

		llm_traffic_advance();
		if (req->counted)
			llm_spend_check();
		if (is_waited_for(req, what))
			break;
		sleep = check_deadlines(req);
		if (sleep == 0)
			continue;
		if (deadline != 0)
		{
			long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

			if (left <= 0)
				return false;
			sleep = sleep < 0 ? left : Min(sleep, left);
		}
		sleep_once(sleep);
	}
	held_since = 0;
	llm_traffic_show(NULL);
	return true;
}

/* ---- transactions ---- */

static void
subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if ((event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB) ||
		llm_inflight_empty())
		return;
	llm_inflight_end_subxact(event == SUBXACT_EVENT_COMMIT_SUB, mine, parent, llm_traffic_cancel);
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		llm_traffic_push_cancels();
		llm_traffic_show(NULL);
	}
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_ABORT && event != XACT_EVENT_PARALLEL_ABORT)
		return;
	llm_traffic_abort();
	llm_inflight_kill();
	llm_traffic_show(NULL);
}

/* before_shmem_exit: a process may end with requests in flight and without a transaction (a worker of
 * jobs does), and its role's quota must get their places back all the same. */
static void
exit_callback(int code, Datum arg)
{
	AbortOutOfAnyTransaction();
	llm_inflight_kill();
}

/* ---- public ---- */

bool
llm_client_available(LlmFailure *f)
{
	if (llm_shmem_attached())
		return true;
	llm_failure_set(f, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					"llm_infer was not loaded at server start");
	llm_failure_hint(f, "Add shared_preload_libraries = 'llm_infer' to postgresql.conf and restart "
						"the server.");
	return false;
}

/* True for requests that compute: they count in the usage and the quota of their role. */
static bool
costs_tokens(const LlmClientRequest *req)
{
	return req->kind == LLM_CLIENT_SUBMIT && req->submit.kind != LLM__KIND__TOKENIZE &&
		   req->submit.kind != LLM__KIND__DETOKENIZE && req->submit.kind != LLM__KIND__UNPIN;
}

/* False when the role's tokens or the statement's are spent: then req is FINISHED. */
static bool
admit(LlmClientRequest *req)
{
	MemoryContext old = MemoryContextSwitchTo(req->cxt);
	bool ok = llm_quota_admit(req->submit.role, &req->max_in_flight, &req->failure) &&
			  llm_spend_admit(&req->failure);

	MemoryContextSwitchTo(old);
	if (!ok)
		req->state = LLM_CLIENT_FINISHED;
	return ok;
}

void
llm_client_begin(LlmClientRequest *req)
{
	Assert(llm_shmem_attached());
	if (!callbacks_registered)
	{
		RegisterXactCallback(xact_callback, NULL);
		RegisterSubXactCallback(subxact_callback, NULL);
		before_shmem_exit(exit_callback, 0);
		callbacks_registered = true;
	}
	if (llm_inflight_empty())
		held_since = 0;
	req->begun_us = GetCurrentTimestamp();
	llm_traffic_begin(req->begun_us);
	req->id = next_id++;
	req->subid = GetCurrentSubTransactionId();
	req->nbytes = req->kind == LLM_CLIENT_SUBMIT ? llm__submit__get_packed_size(&req->submit) : 0;
	req->n_sent = 0;
	req->urgent = false;
	req->held = false;
	req->n_charged = 0;
	req->counted = costs_tokens(req);
	if (!req->counted || admit(req))
		llm_inflight_enqueue(req);
	llm_traffic_show(req->model ? req->model->name : NULL);
}

static void
end_owned(void *arg)
{
	llm_client_end(arg);
}

void
llm_client_begin_owned(LlmClientRequest *req)
{
	req->callback.func = end_owned;
	req->callback.arg = req;
	MemoryContextRegisterResetCallback(req->cxt, &req->callback);
	llm_client_begin(req);
}

bool
llm_client_send(LlmClientRequest *req)
{
	revive(req);
	llm_traffic_gather();
	if (req->state == LLM_CLIENT_QUEUED)
		llm_traffic_advance();
	while (llm_connection_state() != LLM_CONNECTION_READY && req->state == LLM_CLIENT_QUEUED)
	{
		long sleep = check_deadlines(req);

		if (sleep != 0)
			sleep_once(sleep);
		llm_traffic_advance();
	}
	return req->state != LLM_CLIENT_QUEUED;
}

void
llm_client_wait_sent(LlmClientRequest *req)
{
	(void) wait_for(req, WAIT_FOR_SENT, 0);
}

void
llm_client_wait(LlmClientRequest *req)
{
	(void) wait_for(req, WAIT_FOR_ANSWER, 0);
}

void
llm_client_wait_piece(LlmClientRequest *req)
{
	if (!is_waited_for(req, WAIT_FOR_PIECE))
		(void) wait_for(req, WAIT_FOR_PIECE, 0);
}

bool
llm_client_wait_at_most(LlmClientRequest *req, int timeout_ms)
{
	return wait_for(req, WAIT_FOR_ANSWER,
					TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms));
}

void
llm_client_poll(void)
{
	llm_traffic_advance();
}

void
llm_client_end(LlmClientRequest *req)
{
	bool was_sent = req->state == LLM_CLIENT_SENT;

	if (was_sent || req->state == LLM_CLIENT_QUEUED)
	{
		llm_inflight_unlink(req);
		if (was_sent && llm_connection_state() == LLM_CONNECTION_READY)
		{
			llm_traffic_cancel(req->id);
			llm_traffic_push_cancels();
		}
		llm_traffic_show(NULL);
	}
	req->state = LLM_CLIENT_NEW;
}
