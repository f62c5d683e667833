/* pg/traffic.c - frames of requests out, frames of answers in; see traffic.h. */
#include "postgres.h"

#include "pg/traffic.h"

#include "pg/client.h"
#include "pg/connection.h"
#include "pg/inflight.h"
#include "pg/memo/memo_key.h"
#include "pg/shmem.h"
#include "pg/spend.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "wire/frame.h"

#define SENDS_MAX 16            /* a request that was lost so often is given up */
#define UNSENT_MAX (256 * 1024) /* bytes in the send buffer before the next SUBMIT is encoded */
#define UNCOUNTED_MS 100        /* less is not taken off a timeout: the engine quotes the user's */

static TimestampTz down_since = 0; /* as llm_traffic_down_since says */
static bool receiving = false;     /* true between calls: an error (memory) has lost a frame */

TimestampTz
llm_traffic_down_since(void)
{
	return down_since;
}

void
llm_traffic_show(const char *model)
{
	LlmActivityState s;

	if (llm_inflight_empty())
		s = LLM_ACTIVITY_IDLE;
	else if (llm_connection_state() != LLM_CONNECTION_READY)
		s = LLM_ACTIVITY_CONNECTING;
	else
		s = llm_inflight_any_sent() ? LLM_ACTIVITY_ACTIVE : LLM_ACTIVITY_QUEUED;
	llm_shmem_activity_state(s, model);
}

void
llm_traffic_begin(TimestampTz now)
{
	if (llm_inflight_empty())
		down_since = 0;
	if (down_since == 0 && llm_connection_state() != LLM_CONNECTION_READY)
		down_since = now;
}

/* ---- answers ---- */

/* A deep copy of m in req's memory: packed and unpacked again is the shortest that there is. */
static void *
copy_message(LlmClientRequest *req, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8 *packed = MemoryContextAllocHuge(req->cxt, n + 1);
	ProtobufCAllocator alloc = llm_link_allocator(req->cxt);
	void *copy;

	protobuf_c_message_pack(m, packed);
	copy = protobuf_c_message_unpack(m->descriptor, &alloc, n, packed);
	pfree(packed);
	return copy;
}

static void
fail_changed(LlmClientRequest *req)
{
	llm_inflight_fail(req, LLM_E_INTERNAL, "the engine was lost and the next one gave another text",
					  "A part of the former text has been returned already.",
					  "Run the statement again.");
}

/* Put tokens on the bill of the role and of the statement. A piece of a stream counts as one when it
 * comes, so that reading nearly all of an answer and then cancelling is not free; the rest comes with
 * the end. */
static void
charge(LlmClientRequest *req, int64 prompt, int64 cached, int64 generated)
{
	if (req->usage != NULL)
		llm_usage_charge(req->usage, prompt, cached, generated);
	if (req->counted)
		llm_spend_add(prompt + generated);
	req->n_charged += generated;
}

static void
take_piece(LlmClientRequest *req, const Llm__Tokens *piece)
{
	int n_ends = req->pieces.n_ends;

	if (!llm_pieces_add(&req->pieces, req->cxt, piece->text.data, piece->text.len))
	{
		llm_traffic_cancel(req->id);
		fail_changed(req);
		return;
	}
	charge(req, 0, 0, req->pieces.n_ends - n_ends); /* what comes again is paid for */
}

static void
take_done(LlmClientRequest *req, const Llm__Done *done)
{
	LlmClientAnswer *a = &req->answer;

	if (!llm_pieces_complete(&req->pieces))
	{
		fail_changed(req);
		return;
	}
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
	a->dated = done->dated;
	if (done->has_reasoning)
	{
		a->n_reasoning = done->reasoning.len;
		a->reasoning = MemoryContextAllocHuge(req->cxt, a->n_reasoning + 1);
		memcpy(a->reasoning, done->reasoning.data, a->n_reasoning);
	}
	a->has_logprobs = req->submit.logprobs;
	if (req->submit.logprobs || req->submit.prompt_logprobs)
		a->logprobs = copy_message(req, &done->base);
	charge(req, a->prompt_tokens, a->cached_tokens, Max(a->completion_tokens - req->n_charged, 0));
	if (req->memo)
		llm_memo_key_keep(req);
	llm_inflight_finish(req);
	llm_shmem_activity_tokens(a->prompt_tokens, a->cached_tokens, a->completion_tokens);
}

static void
take_stats(LlmClientRequest *req, const Llm__StatsReply *reply)
{
	req->stats = copy_message(req, &reply->base);
	llm_inflight_finish(req);
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
			llm_inflight_grant(frame->welcome->credit_requests, frame->welcome->credit_bytes);
			down_since = 0;
			return true;
		case LLM__FRAME__BODY_CREDIT:
			llm_inflight_grant(frame->credit->requests, frame->credit->bytes);
			return true;
		case LLM__FRAME__BODY_TOKENS:
			req = llm_inflight_find(frame->tokens->id);
			if (req)
				take_piece(req, frame->tokens);
			return true;
		case LLM__FRAME__BODY_DONE:
			req = llm_inflight_find(frame->done->id);
			if (req)
				take_done(req, frame->done);
			return true;
		case LLM__FRAME__BODY_STATS_REPLY:
			req = llm_inflight_find(frame->stats_reply->id);
			if (req && req->kind == LLM_CLIENT_STATS)
				take_stats(req, frame->stats_reply);
			return true;
		case LLM__FRAME__BODY_ERROR:
			if (frame->error->id == 0)
			{
				llm_connection_refused(frame->error->text);
				return false;
			}
			req = llm_inflight_find(frame->error->id);
			if (req)
				llm_inflight_fail(req, (LlmStatus) frame->error->status, frame->error->text,
								  frame->error->detail, frame->error->hint);
			return true;
		default:
			return true; /* of a later version */
	}
}

/* ---- sending ---- */

/* What is left of a timeout, at least 1; 0 = none. */
static int
timeout_left(const LlmClientRequest *req)
{
	int64 waited;

	if (req->timeout_ms <= 0)
		return 0;
	waited = (GetCurrentTimestamp() - req->begun_us) / 1000;
	if (waited < UNCOUNTED_MS)
		waited = 0;
	return (int) Max(req->timeout_ms - waited, 1);
}

static bool
append_request(LlmClientRequest *req)
{
	Llm__Frame frame = LLM__FRAME__INIT;
	Llm__Load load = LLM__LOAD__INIT;
	Llm__Unload unload = LLM__UNLOAD__INIT;

	switch (req->kind)
	{
		case LLM_CLIENT_SUBMIT:
			req->submit.id = req->id;
			req->submit.model = llm_connection_model(req->model);
			req->submit.timeout_ms = timeout_left(req);
			req->submit.has_timeout_ms = req->submit.timeout_ms > 0;
			frame.body_case = LLM__FRAME__BODY_SUBMIT;
			frame.submit = &req->submit;
			break;
		case LLM_CLIENT_LOAD:
			load.id = req->id;
			load.model = llm_connection_model(req->model);
			load.spec = &req->model->spec;
			load.has_now = load.now = true;
			frame.body_case = LLM__FRAME__BODY_LOAD;
			frame.load = &load;
			break;
		case LLM_CLIENT_UNLOAD:
			unload.id = req->id;
			unload.spec = &req->model->spec;
			frame.body_case = LLM__FRAME__BODY_UNLOAD;
			frame.unload = &unload;
			break;
		case LLM_CLIENT_STATS:
			req->question.id = req->id;
			frame.body_case = LLM__FRAME__BODY_STATS;
			frame.stats = &req->question;
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
		llm_inflight_fail(req, LLM_E_CONTEXT, text, NULL, NULL);
		return;
	}
	llm_pieces_again(&req->pieces);
	llm_inflight_sent(req);
}

/* ---- moving on ---- */

/* The engine is gone: what it had not answered is sent again to the next one. */
static void
lose_connection(void)
{
	llm_connection_close();
	llm_inflight_requeue(SENDS_MAX);
	if (down_since == 0)
		down_since = GetCurrentTimestamp();
}

static void
receive(void)
{
	const Llm__Frame *frame;
	bool bad = false;
	bool alive = !receiving;

	receiving = true;
	alive = alive && llm_link_fill(llm_connection_link());
	/* What came before the end still counts. */
	while ((frame = llm_link_next(llm_connection_link(), &bad)) != NULL)
		if (!take_frame(frame))
		{
			alive = false;
			break;
		}
	receiving = false;
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

	if (llm_inflight_empty() ||
		(now >= last_attempt && now - last_attempt < LLM_TRAFFIC_RETRY_MS * 1000))
		return;
	last_attempt = now;
	(void) llm_connection_open();
}

void
llm_traffic_gather(void)
{
	LlmClientRequest *req;

	while (llm_connection_state() == LLM_CONNECTION_READY &&
		   llm_link_unsent(llm_connection_link()) <= UNSENT_MAX &&
		   (req = llm_inflight_next()) != NULL)
		send_request(req);
}

void
llm_traffic_advance(void)
{
	if (llm_connection_state() != LLM_CONNECTION_CLOSED)
		receive();
	if (llm_connection_state() == LLM_CONNECTION_CLOSED)
		reconnect();
	llm_traffic_gather();
	if (llm_connection_state() != LLM_CONNECTION_CLOSED && !llm_link_flush(llm_connection_link()))
		lose_connection();
	llm_traffic_show(NULL);
}

/* ---- cancelling ---- */

void
llm_traffic_cancel(uint64 id)
{
	Llm__Cancel cancel = LLM__CANCEL__INIT;
	Llm__Frame frame = LLM__FRAME__INIT;

	cancel.id = id;
	frame.body_case = LLM__FRAME__BODY_CANCEL;
	frame.cancel = &cancel;
	llm_link_append(llm_connection_link(), &frame);
}

/* CANCELs must not lie in the buffer while nobody looks at the socket: closing it says the same. */
void
llm_traffic_push_cancels(void)
{
	if (llm_connection_state() == LLM_CONNECTION_CLOSED)
		return;
	if (!llm_link_flush(llm_connection_link()))
		lose_connection();
	else if (llm_inflight_empty() && llm_link_unsent(llm_connection_link()) > 0)
		llm_connection_close();
}

void
llm_traffic_abort(void)
{
	if (llm_connection_state() != LLM_CONNECTION_CLOSED &&
		(llm_inflight_any_sent() || llm_link_unsent(llm_connection_link()) > 0))
		llm_connection_close();
}
