/*
 * pg/client.c - requests of a backend: queue, flow control, answers, cancel, resubmission.
 *
 * One function, advance(), moves everything that can move without blocking: it connects, receives
 * and hands out answers, sends what flow control allows. Every wait is a loop of advance() and one
 * sleep that the latch, the socket or a deadline ends, so that answers of all callers are drained
 * whoever waits, and a credit comes back as soon as its answer is here.
 *
 * Flow control: the engine grants a number of unanswered SUBMITs and of their bytes. The last
 * credit is kept for requests that somebody waits for: a node that holds all the others with rows
 * not yet returned must not lock out a call that those rows need.
 */
#include "postgres.h"

#include "pg/client.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/connection.h"
#include "pg/encoding.h"
#include "pg/guc.h"
#include "pg/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "wire/frame.h"

#define SENDS_MAX 16            /* a request that was lost so often is given up */
#define UNSENT_MAX (256 * 1024) /* bytes in the send buffer before the next SUBMIT is encoded */
#define TIMEOUT_GRACE_MS 1000   /* after a request's timeout, for the engine to say so itself */
#define RETRY_MS 50             /* between attempts to connect */

static dlist_head queue = DLIST_STATIC_INIT(queue); /* QUEUED, in the order to send */
static dlist_head sent = DLIST_STATIC_INIT(sent);   /* SENT, in the order of sending */
static uint32 n_sent = 0;                           /* SUBMITs in sent */
static uint64 sent_nbytes = 0;                      /* of theirs */
static uint32 credit_requests = 0;
static uint64 credit_nbytes = 0;
static uint64 next_id = 1;
static TimestampTz down_since = 0; /* waiting for an engine since; 0 = not waiting */
static TimestampTz last_ready = 0; /* while waiting: an engine was up, though it did not greet */
static bool callbacks_registered = false;

static LlmClientRequest *
request_of(dlist_node *node)
{
	return dlist_container(LlmClientRequest, node, node);
}

static bool
nothing_pending(void)
{
	return dlist_is_empty(&queue) && dlist_is_empty(&sent);
}

static void
show_activity(const char *model)
{
	LlmActivityState s;

	if (nothing_pending())
		s = LLM_ACTIVITY_IDLE;
	else if (llm_connection_state() != LLM_CONNECTION_READY)
		s = LLM_ACTIVITY_CONNECTING;
	else
		s = dlist_is_empty(&sent) ? LLM_ACTIVITY_QUEUED : LLM_ACTIVITY_ACTIVE;
	llm_shmem_activity_state(s, model);
}

/* Take req out of the list it is in; the caller sets its next state. */
static void
unlink_request(LlmClientRequest *req)
{
	if (req->state == LLM_CLIENT_SENT && req->kind == LLM_CLIENT_SUBMIT)
	{
		n_sent--;
		sent_nbytes -= req->nbytes;
	}
	dlist_delete(&req->node);
}

static void
finish(LlmClientRequest *req)
{
	unlink_request(req);
	req->state = LLM_CLIENT_FINISHED;
}

static void
fail(LlmClientRequest *req, LlmStatus status, const char *text, const char *detail,
	 const char *hint)
{
	MemoryContext old = MemoryContextSwitchTo(req->cxt);

	llm_failure_set_status(&req->failure, status, text, detail, hint);
	MemoryContextSwitchTo(old);
	finish(req);
}

/* ---- answers ---- */

static LlmClientRequest *
find_sent(uint64 id)
{
	dlist_iter iter;

	dlist_foreach(iter, &sent)
	{
		if (request_of(iter.cur)->id == id)
			return request_of(iter.cur);
	}
	return NULL;
}

static void
take_done(LlmClientRequest *req, const Llm__Done *done)
{
	LlmClientAnswer *a = &req->answer;

	a->n_text = done->has_text ? done->text.len : 0;
	a->text = MemoryContextAllocHuge(req->cxt, a->n_text + 1);
	if (a->n_text > 0)
		memcpy(a->text, done->text.data, a->n_text);
	a->n_tokens = (int) done->n_tokens;
	a->tokens = MemoryContextAllocHuge(req->cxt, (done->n_tokens + 1) * sizeof(int32));
	if (done->n_tokens > 0)
		memcpy(a->tokens, done->tokens, done->n_tokens * sizeof(int32));
	a->finish = done->has_finish ? done->finish : LLM__FINISH__FINISH_STOP;
	a->prompt_tokens = done->prompt_tokens;
	a->cached_tokens = done->cached_tokens;
	a->completion_tokens = done->completion_tokens;
	a->queue_ms = done->queue_ms;
	a->first_token_ms = done->first_token_ms;
	a->total_ms = done->total_ms;
	a->numerics_key = done->numerics_key;
	finish(req);
	llm_shmem_activity_tokens(a->prompt_tokens, a->cached_tokens, a->completion_tokens);
}

static void
take_stats(LlmClientRequest *req, const Llm__StatsReply *reply)
{
	size_t n = llm__stats_reply__get_packed_size(reply);
	uint8 *copy = MemoryContextAllocHuge(req->cxt, n + 1);
	ProtobufCAllocator alloc = llm_link_allocator(req->cxt);

	/* Packed and unpacked again: the shortest deep copy there is. */
	llm__stats_reply__pack(reply, copy);
	req->stats = llm__stats_reply__unpack(&alloc, n, copy);
	finish(req);
}

/* False when the connection is of no more use. */
static bool
take_frame(const Llm__Frame *frame)
{
	LlmClientRequest *req;

	switch (frame->body_case)
	{
		case LLM__FRAME__BODY_WELCOME:
			if (!llm_connection_welcome(frame->welcome))
				return false;
			credit_requests = frame->welcome->credit_requests;
			credit_nbytes = frame->welcome->credit_bytes;
			down_since = 0;
			return true;
		case LLM__FRAME__BODY_CREDIT:
			credit_requests = frame->credit->requests;
			credit_nbytes = frame->credit->bytes;
			return true;
		case LLM__FRAME__BODY_DONE:
			req = find_sent(frame->done->id);
			if (req)
				take_done(req, frame->done);
			return true;
		case LLM__FRAME__BODY_STATS_REPLY:
			req = find_sent(frame->stats_reply->id);
			if (req && req->kind == LLM_CLIENT_STATS)
				take_stats(req, frame->stats_reply);
			return true;
		case LLM__FRAME__BODY_ERROR:
			if (frame->error->id == 0)
			{
				llm_connection_refused(frame->error->text);
				return false;
			}
			req = find_sent(frame->error->id);
			if (req)
				fail(req, (LlmStatus) frame->error->status, frame->error->text,
					 frame->error->detail, frame->error->hint);
			return true;
		default:
			return true; /* of a later version, or a piece of a stream that was cancelled */
	}
}

/* ---- sending ---- */

static bool
may_send(const LlmClientRequest *req)
{
	if (llm_link_unsent(llm_connection_link()) > UNSENT_MAX)
		return false;
	if (req->kind != LLM_CLIENT_SUBMIT)
		return true;
	if (n_sent + (req->urgent ? 0 : 1) >= credit_requests)
		return false;
	return n_sent == 0 || sent_nbytes + req->nbytes <= credit_nbytes;
}

/* What is left of a timeout, at least 1; 0 = none. */
static int
timeout_left(const LlmClientRequest *req)
{
	int64 left;

	if (req->timeout_ms <= 0)
		return 0;
	left = req->timeout_ms - (GetCurrentTimestamp() - req->begun_us) / 1000;
	return (int) Max(left, 1);
}

static bool
append_request(LlmClientRequest *req)
{
	Llm__Frame frame = LLM__FRAME__INIT;
	Llm__Load load = LLM__LOAD__INIT;
	Llm__Unload unload = LLM__UNLOAD__INIT;
	Llm__StatsRequest stats = LLM__STATS_REQUEST__INIT;

	switch (req->kind)
	{
		case LLM_CLIENT_SUBMIT:
			req->submit.id = req->id;
			req->submit.model = llm_connection_model(req->spec);
			req->submit.timeout_ms = timeout_left(req);
			req->submit.has_timeout_ms = req->submit.timeout_ms > 0;
			frame.body_case = LLM__FRAME__BODY_SUBMIT;
			frame.submit = &req->submit;
			break;
		case LLM_CLIENT_LOAD:
			load.id = req->id;
			load.model = llm_connection_model(req->spec);
			load.spec = unconstify(Llm__ModelSpec *, req->spec);
			load.has_now = load.now = true;
			frame.body_case = LLM__FRAME__BODY_LOAD;
			frame.load = &load;
			break;
		case LLM_CLIENT_UNLOAD:
			unload.id = req->id;
			unload.spec = unconstify(Llm__ModelSpec *, req->spec);
			frame.body_case = LLM__FRAME__BODY_UNLOAD;
			frame.unload = &unload;
			break;
		case LLM_CLIENT_STATS:
			stats.id = req->id;
			frame.body_case = LLM__FRAME__BODY_STATS;
			frame.stats = &stats;
			break;
	}
	return llm_link_append(llm_connection_link(), &frame);
}

static void
send_request(LlmClientRequest *req)
{
	if (!append_request(req))
	{
		char text[100];

		snprintf(text, sizeof(text), "request of %zu bytes is over the limit of %u bytes",
				 req->nbytes, LLM_FRAME_MAX);
		fail(req, LLM_E_CONTEXT, text, NULL, NULL);
		return;
	}
	dlist_delete(&req->node);
	dlist_push_tail(&sent, &req->node);
	req->state = LLM_CLIENT_SENT;
	req->n_sent++;
	if (req->kind == LLM_CLIENT_SUBMIT)
	{
		n_sent++;
		sent_nbytes += req->nbytes;
	}
}

/* ---- moving on ---- */

/* The engine is gone: what it had not answered goes back to the head of the queue, in order. */
static void
lose_connection(void)
{
	llm_connection_close();
	while (!dlist_is_empty(&sent))
	{
		LlmClientRequest *req = request_of(dlist_tail_node(&sent));

		unlink_request(req);
		req->state = LLM_CLIENT_QUEUED;
		dlist_push_head(&queue, &req->node);
		if (req->n_sent >= SENDS_MAX)
			fail(req, LLM_E_UNAVAILABLE, "the engine was lost again and again",
				 "The request is given up.", NULL);
	}
	if (down_since == 0)
		down_since = GetCurrentTimestamp();
}

static void
receive(void)
{
	const Llm__Frame *frame;
	bool bad;
	bool alive = llm_link_fill(llm_connection_link());

	/* What came before the end still counts. */
	while ((frame = llm_link_next(llm_connection_link(), &bad)) != NULL)
		if (!take_frame(frame))
		{
			alive = false;
			break;
		}
	if (!alive || bad)
		lose_connection();
}

/* Connect when there is something to send. A connection that is accepted and closed at once must
 * not become a busy loop. */
static void
reconnect(void)
{
	static TimestampTz last_attempt = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (nothing_pending() || (now >= last_attempt && now - last_attempt < RETRY_MS * 1000))
		return;
	last_attempt = now;
	(void) llm_connection_open();
}

static void
advance(void)
{
	if (llm_connection_state() != LLM_CONNECTION_CLOSED)
		receive();
	if (llm_connection_state() == LLM_CONNECTION_CLOSED)
		reconnect();
	while (llm_connection_state() == LLM_CONNECTION_READY && !dlist_is_empty(&queue))
	{
		LlmClientRequest *req = request_of(dlist_head_node(&queue));

		if (!may_send(req))
			break;
		send_request(req);
	}
	if (llm_connection_state() != LLM_CONNECTION_CLOSED && !llm_link_flush(llm_connection_link()))
		lose_connection();
	show_activity(NULL);
}

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
	fail(req, LLM_E_UNAVAILABLE, text, why, "The server log says more about the engine.");
}

/* Fail req when it has waited too long; give back how long it may sleep, -1 = for ever. */
static long
check_deadlines(LlmClientRequest *req)
{
	TimestampTz now;
	long sleep = -1;

	if (llm_connection_state() == LLM_CONNECTION_READY && req->timeout_ms == 0)
		return -1;
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
			dlist_push_tail(&queue, &req->node);
			req->state = LLM_CLIENT_QUEUED;
			fail(req, credits ? LLM_E_BUSY : LLM_E_TIMEOUT, text, NULL, NULL);
			return 0;
		}
		sleep = (long) Min(left, 3600 * 1000L);
	}
	if (llm_connection_state() != LLM_CONNECTION_READY)
	{
		LlmEngineStatus status;
		int64 limit = (int64) llm_guc_engine_timeout * 1000;

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
		sleep = sleep < 0 ? RETRY_MS : Min(sleep, RETRY_MS);
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

/* Somebody waits for req: it goes before all that nobody waits for yet. */
static void
make_urgent(LlmClientRequest *req)
{
	if (req->urgent)
		return;
	req->urgent = true;
	if (req->state == LLM_CLIENT_QUEUED)
		dlist_move_head(&queue, &req->node);
}

/* Run until req has left the queue (and, with answered, has its answer). False at deadline (0 =
 * none). */
static bool
wait_for(LlmClientRequest *req, bool answered, TimestampTz deadline)
{
	revive(req);
	make_urgent(req);
	for (;;)
	{
		long sleep;

		advance();
		if (req->state == LLM_CLIENT_FINISHED || (!answered && req->state == LLM_CLIENT_SENT))
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
	show_activity(NULL);
	return true;
}

/* ---- transactions ---- */

static void
append_cancel(uint64 id)
{
	Llm__Cancel cancel = LLM__CANCEL__INIT;
	Llm__Frame frame = LLM__FRAME__INIT;

	cancel.id = id;
	frame.body_case = LLM__FRAME__BODY_CANCEL;
	frame.cancel = &cancel;
	llm_link_append(llm_connection_link(), &frame);
}

/* CANCELs must not lie in the buffer while nobody looks at the socket: closing it says the same. */
static void
push_cancels(void)
{
	if (llm_connection_state() == LLM_CONNECTION_CLOSED)
		return;
	if (!llm_link_flush(llm_connection_link()))
		lose_connection();
	else if (nothing_pending() && llm_link_unsent(llm_connection_link()) > 0)
		llm_connection_close();
}

static void
end_subxact(dlist_head *list, SubXactEvent event, SubTransactionId mine, SubTransactionId parent)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, list)
	{
		LlmClientRequest *req = request_of(iter.cur);

		if (req->subid != mine)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			req->subid = parent;
		else
		{
			if (req->state == LLM_CLIENT_SENT)
				append_cancel(req->id);
			unlink_request(req);
			req->state = LLM_CLIENT_DORMANT;
		}
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if ((event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB) ||
		nothing_pending())
		return;
	end_subxact(&queue, event, mine, parent);
	end_subxact(&sent, event, mine, parent);
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		push_cancels();
		show_activity(NULL);
	}
}

static void
kill_list(dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		LlmClientRequest *req = request_of(dlist_head_node(list));

		unlink_request(req);
		req->state = LLM_CLIENT_DEAD;
	}
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_ABORT && event != XACT_EVENT_PARALLEL_ABORT)
		return;
	if (!dlist_is_empty(&sent) || llm_link_unsent(llm_connection_link()) > 0)
		llm_connection_close();
	kill_list(&queue);
	kill_list(&sent);
	show_activity(NULL);
}

/* ---- public ---- */

void
llm_client_begin(LlmClientRequest *req)
{
	Assert(llm_shmem_attached());
	if (!callbacks_registered)
	{
		RegisterXactCallback(xact_callback, NULL);
		RegisterSubXactCallback(subxact_callback, NULL);
		callbacks_registered = true;
	}
	if (nothing_pending())
		down_since = 0;
	req->begun_us = GetCurrentTimestamp();
	if (down_since == 0 && llm_connection_state() != LLM_CONNECTION_READY)
		down_since = req->begun_us;
	req->id = next_id++;
	req->subid = GetCurrentSubTransactionId();
	req->nbytes =
		req->submit.prompt.len + req->submit.system.len + req->submit.n_tokens * sizeof(int32);
	req->n_sent = 0;
	req->urgent = false;
	req->state = LLM_CLIENT_QUEUED;
	dlist_push_tail(&queue, &req->node);
	show_activity(req->model_name);
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
	advance();
	while (llm_connection_state() != LLM_CONNECTION_READY && req->state == LLM_CLIENT_QUEUED)
	{
		long sleep = check_deadlines(req);

		if (sleep != 0)
			sleep_once(sleep);
		advance();
	}
	return req->state != LLM_CLIENT_QUEUED;
}

void
llm_client_wait_sent(LlmClientRequest *req)
{
	(void) wait_for(req, false, 0);
}

void
llm_client_wait(LlmClientRequest *req)
{
	(void) wait_for(req, true, 0);
}

bool
llm_client_wait_at_most(LlmClientRequest *req, int timeout_ms)
{
	return wait_for(req, true, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms));
}

void
llm_client_poll(void)
{
	advance();
}

void
llm_client_end(LlmClientRequest *req)
{
	bool was_sent = req->state == LLM_CLIENT_SENT;

	if (was_sent || req->state == LLM_CLIENT_QUEUED)
	{
		unlink_request(req);
		if (was_sent && llm_connection_state() == LLM_CONNECTION_READY)
		{
			append_cancel(req->id);
			push_cancels();
		}
		show_activity(NULL);
	}
	req->state = LLM_CLIENT_NEW;
}
