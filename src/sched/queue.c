/* sched/queue.c - waiting sequences in a tree of shares: priority, tenant, client. */
#include "sched/queue.h"

#include <stdlib.h>

/* A sequence that was never admitted comes after all that were. */
static uint64_t
ticket_rank(const LlmSeq *s)
{
	return s->ticket == 0 ? UINT64_MAX : s->ticket;
}

bool
llm_sched_queue_before(const LlmSeq *a, const LlmSeq *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (ticket_rank(a) != ticket_rank(b))
		return ticket_rank(a) < ticket_rank(b);
	return a->arrival < b->arrival;
}

/* ---- the tree ---- */

/* The smallest account of the active shares in a list; UINT64_MAX when all are idle. */
static uint64_t
smallest(const LlmShare *list)
{
	uint64_t min = UINT64_MAX;

	for (; list != NULL; list = list->next)
		if (list->n_seqs > 0 && list->account < min)
			min = list->account;
	return min;
}

/* One more sequence for the share `id` below up; NULL when it is new and memory is out. */
static LlmShare *
enter(LlmShare *up, uint64_t id)
{
	LlmShare *s = up->below;
	uint64_t min;

	while (s != NULL && s->id != id)
		s = s->next;
	if (s == NULL)
	{
		if ((s = calloc(1, sizeof(*s))) == NULL)
			return NULL;
		s->id = id;
		s->up = up;
		s->next = up->below;
		up->below = s;
	}
	if (s->n_seqs == 0 && (min = smallest(up->below)) != UINT64_MAX && s->account < min)
		s->account = min;
	s->n_seqs++;
	return s;
}

static void
forget(LlmShare *s)
{
	LlmShare **link = &s->up->below;

	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
	free(s);
}

/* Forget the idle shares below up that need no memory: those not ahead of the active ones, and one
 * of too many. */
static void
forget_idle(LlmShare *up)
{
	uint64_t min = smallest(up->below);
	LlmShare *least = NULL, *next;
	int n = 0;

	for (LlmShare *s = up->below; s != NULL; s = next)
	{
		next = s->next;
		if (s->n_seqs > 0)
			continue;
		if (s->account <= min)
			forget(s);
		else if (n++ == 0 || s->account < least->account)
			least = s;
	}
	if (n > LLM_SHARES_IDLE_MAX)
		forget(least);
}

/* One sequence less for the share and those above it. */
static void
leave(LlmShare *s)
{
	for (LlmShare *up = s->up; up != NULL; s = up, up = s->up)
	{
		s->n_seqs--;
		forget_idle(up); /* may free s */
	}
}

bool
llm_sched_queue_join(LlmSchedQueue *q, LlmSeq *seq)
{
	const uint64_t path[] = {(uint64_t) (int64_t) seq->priority, seq->tenant, seq->client};
	LlmShare *at = &q->root;

	for (int i = 0; i < 3; i++)
	{
		LlmShare *s = enter(at, path[i]);

		if (s == NULL)
		{
			leave(at);
			return false;
		}
		at = s;
	}
	seq->home = at;
	q->root.n_seqs++;
	return true;
}

void
llm_sched_queue_leave(LlmSchedQueue *q, LlmSeq *seq)
{
	leave(seq->home);
	q->root.n_seqs--;
	seq->home = NULL;
}

bool
llm_sched_queue_move(LlmSchedQueue *q, LlmSeq *seq, uint64_t tenant, uint64_t client,
					 int32_t priority)
{
	LlmSeq former = *seq;

	seq->tenant = tenant;
	seq->client = client;
	seq->priority = priority;
	if (!llm_sched_queue_join(q, seq))
	{
		seq->tenant = former.tenant;
		seq->client = former.client;
		seq->priority = former.priority;
		return false;
	}
	llm_sched_queue_leave(q, &former);
	return true;
}

void
llm_sched_queue_charge(LlmSeq *seq, int32_t n)
{
	int32_t begin = seq->n_computed > seq->n_charged ? seq->n_computed : seq->n_charged;
	int32_t end = seq->n_computed + n;

	if (end <= begin)
		return;
	seq->n_charged = end;
	seq->home->account += (uint64_t) (end - begin);
	seq->home->up->account += (uint64_t) (end - begin);
}

/* ---- the waiting ---- */

static void
count_waiting(LlmShare *s, int32_t n)
{
	for (; s != NULL; s = s->up)
		s->n_waiting += n;
}

static void
push_preempted(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmSeq *after = NULL;

	for (LlmSeq *s = q->preempted; s != NULL && llm_sched_queue_before(s, seq); s = s->next)
		after = s;
	seq->prev = after;
	seq->next = after == NULL ? q->preempted : after->next;
	if (after == NULL)
		q->preempted = seq;
	else
		after->next = seq;
	if (seq->next != NULL)
		seq->next->prev = seq;
}

void
llm_sched_queue_push(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmShare *c = seq->home;
	LlmSeq *after = c->tail; /* new sequences go to the end: search from there */

	q->n_waiting++;
	if (seq->ticket != 0)
	{
		push_preempted(q, seq);
		return;
	}
	while (after != NULL && after->arrival > seq->arrival)
		after = after->prev;
	seq->prev = after;
	seq->next = after == NULL ? c->head : after->next;
	if (after == NULL)
		c->head = seq;
	else
		after->next = seq;
	if (seq->next == NULL)
		c->tail = seq;
	else
		seq->next->prev = seq;
	count_waiting(c, 1);
}

void
llm_sched_queue_unlink(LlmSchedQueue *q, LlmSeq *seq)
{
	LlmShare *c = seq->home;
	bool again = seq->ticket != 0;

	if (seq->prev != NULL)
		seq->prev->next = seq->next;
	else if (again)
		q->preempted = seq->next;
	else
		c->head = seq->next;
	if (seq->next != NULL)
		seq->next->prev = seq->prev;
	else if (!again)
		c->tail = seq->prev;
	seq->prev = seq->next = NULL;
	q->n_waiting--;
	if (!again)
		count_waiting(c, -1);
}

/* The first come of the smallest accounts below s, which has somebody waiting. */
static LlmSeq *
first_of(const LlmShare *s)
{
	const LlmShare *best = NULL;

	if (s->below == NULL)
		return s->head;
	for (const LlmShare *c = s->below; c != NULL; c = c->next)
		if (c->n_waiting > 0 &&
			(best == NULL || c->account < best->account ||
			 (c->account == best->account && first_of(c)->arrival < first_of(best)->arrival)))
			best = c;
	return first_of(best);
}

LlmSeq *
llm_sched_queue_best(const LlmSchedQueue *q)
{
	const LlmShare *top = NULL;

	for (const LlmShare *p = q->root.below; p != NULL; p = p->next)
		if (p->n_waiting > 0 && (top == NULL || (int64_t) p->id > (int64_t) top->id))
			top = p;
	if (top == NULL || (q->preempted != NULL && q->preempted->priority >= (int64_t) top->id))
		return q->preempted;
	return first_of(top);
}

/* ---- watching ---- */

static void
visit_share(const LlmShare *s, void (*see)(void *arg, LlmSeq *seq), void *arg)
{
	for (LlmSeq *seq = s->head; seq != NULL; seq = seq->next)
		see(arg, seq);
	for (const LlmShare *c = s->below; c != NULL; c = c->next)
		if (c->n_waiting > 0)
			visit_share(c, see, arg);
}

void
llm_sched_queue_visit(const LlmSchedQueue *q, void (*see)(void *arg, LlmSeq *seq), void *arg)
{
	for (LlmSeq *seq = q->preempted; seq != NULL; seq = seq->next)
		see(arg, seq);
	visit_share(&q->root, see, arg);
}

static bool
audit_waiting(const LlmSeq *seq, bool again)
{
	return seq->state == LLM_SEQ_WAITING && seq->n_pages == 0 && seq->n_computed == 0 &&
		   (seq->ticket != 0) == again && (seq->next == NULL || seq->next->prev == seq);
}

/* True when the counts of s are those of what is below it. */
static bool
audit_share(const LlmShare *s)
{
	int32_t n_seqs = 0, n_waiting = 0;

	for (const LlmShare *c = s->below; c != NULL; c = c->next)
	{
		n_seqs += c->n_seqs;
		n_waiting += c->n_waiting;
		if (c->up != s || !audit_share(c))
			return false;
	}
	for (const LlmSeq *seq = s->head; seq != NULL; seq = seq->next, n_waiting++)
		if (seq->home != s || !audit_waiting(seq, false))
			return false;
	return n_waiting == s->n_waiting && (s->below == NULL || n_seqs == s->n_seqs);
}

bool
llm_sched_queue_audit(const LlmSchedQueue *q)
{
	int32_t n = q->root.n_waiting;

	for (const LlmSeq *seq = q->preempted; seq != NULL; seq = seq->next, n++)
		if (!audit_waiting(seq, true) ||
			(seq->next != NULL && llm_sched_queue_before(seq->next, seq)))
			return false;
	return n == q->n_waiting && audit_share(&q->root);
}
