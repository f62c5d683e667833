/* pg/inflight.c - the queue, the sent, and the credits. */
#include "postgres.h"

#include "pg/inflight.h"

static dlist_head queue = DLIST_STATIC_INIT(queue); /* QUEUED, in the order to send */
static dlist_head sent = DLIST_STATIC_INIT(sent);   /* SENT, in the order of sending */
static uint32 n_submits = 0;                        /* SUBMITs in sent */
static uint64 submit_nbytes = 0;                    /* of theirs */
static uint32 credit_requests = 0;
static uint64 credit_nbytes = 0;

static LlmClientRequest *
request_of(dlist_node *node)
{
	return dlist_container(LlmClientRequest, node, node);
}

bool
llm_inflight_empty(void)
{
	return dlist_is_empty(&queue) && dlist_is_empty(&sent);
}

bool
llm_inflight_any_sent(void)
{
	return !dlist_is_empty(&sent);
}

void
llm_inflight_enqueue(LlmClientRequest *req)
{
	req->state = LLM_CLIENT_QUEUED;
	dlist_push_tail(&queue, &req->node);
}

void
llm_inflight_hurry(LlmClientRequest *req)
{
	if (req->urgent)
		return;
	req->urgent = true;
	if (req->state == LLM_CLIENT_QUEUED)
		dlist_move_head(&queue, &req->node);
}

static bool
may_send(const LlmClientRequest *req)
{
	if (req->kind != LLM_CLIENT_SUBMIT)
		return true;
	if (n_submits + (req->urgent ? 0 : 1) >= credit_requests)
		return false;
	return n_submits == 0 || submit_nbytes + req->nbytes <= credit_nbytes;
}

LlmClientRequest *
llm_inflight_next(void)
{
	LlmClientRequest *req;

	if (dlist_is_empty(&queue))
		return NULL;
	req = request_of(dlist_head_node(&queue));
	if (!may_send(req))
		return NULL;
	if (req->counted && req->usage == NULL)
		req->usage = llm_usage_begin(req->submit.role, req->max_in_flight);
	req->held = req->counted && req->usage == NULL;
	return req->held ? NULL : req;
}

void
llm_inflight_sent(LlmClientRequest *req)
{
	dlist_delete(&req->node);
	dlist_push_tail(&sent, &req->node);
	req->state = LLM_CLIENT_SENT;
	req->n_sent++;
	if (req->kind == LLM_CLIENT_SUBMIT)
	{
		n_submits++;
		submit_nbytes += req->nbytes;
	}
}

LlmClientRequest *
llm_inflight_find(uint64 id)
{
	dlist_iter iter;

	dlist_foreach(iter, &sent)
	{
		if (request_of(iter.cur)->id == id)
			return request_of(iter.cur);
	}
	return NULL;
}

void
llm_inflight_unlink(LlmClientRequest *req)
{
	if (req->state == LLM_CLIENT_SENT && req->kind == LLM_CLIENT_SUBMIT)
	{
		n_submits--;
		submit_nbytes -= req->nbytes;
	}
	if (req->usage != NULL)
		llm_usage_end(req->usage);
	req->usage = NULL;
	dlist_delete(&req->node);
}

void
llm_inflight_finish(LlmClientRequest *req)
{
	llm_inflight_unlink(req);
	req->state = LLM_CLIENT_FINISHED;
}

void
llm_inflight_fail(LlmClientRequest *req, LlmStatus status, const char *text, const char *detail,
				  const char *hint)
{
	MemoryContext old = MemoryContextSwitchTo(req->cxt);

	llm_failure_set_status(&req->failure, status, text, detail, hint);
	MemoryContextSwitchTo(old);
	llm_inflight_finish(req);
}

void
llm_inflight_grant(uint32 n_requests, uint64 nbytes)
{
	credit_requests = n_requests;
	credit_nbytes = nbytes;
}

void
llm_inflight_requeue(int n_sends)
{
	while (!dlist_is_empty(&sent))
	{
		LlmClientRequest *req = request_of(dlist_tail_node(&sent));

		llm_inflight_unlink(req);
		req->state = LLM_CLIENT_QUEUED;
		dlist_push_head(&queue, &req->node);
		if (req->n_sent >= n_sends)
			llm_inflight_fail(req, LLM_E_UNAVAILABLE, "the engine was lost again and again",
							  "The request is given up.", NULL);
	}
}

static void
end_subxact(dlist_head *list, bool commit, SubTransactionId mine, SubTransactionId parent,
			void (*cancel)(uint64 id))
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, list)
	{
		LlmClientRequest *req = request_of(iter.cur);

		if (req->subid != mine)
			continue;
		if (commit)
		{
			req->subid = parent;
			continue;
		}
		if (req->state == LLM_CLIENT_SENT)
			cancel(req->id);
		llm_inflight_unlink(req);
		req->state = LLM_CLIENT_DORMANT;
	}
}

void
llm_inflight_end_subxact(bool commit, SubTransactionId mine, SubTransactionId parent,
						 void (*cancel)(uint64 id))
{
	end_subxact(&queue, commit, mine, parent, cancel);
	end_subxact(&sent, commit, mine, parent, cancel);
}

static void
kill_list(dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		LlmClientRequest *req = request_of(dlist_head_node(list));

		llm_inflight_unlink(req);
		req->state = LLM_CLIENT_DEAD;
	}
}

void
llm_inflight_kill(void)
{
	kill_list(&queue);
	kill_list(&sent);
}
