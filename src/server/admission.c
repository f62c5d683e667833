/*
 * server/admission.c - from the queues of tickets to the resident models.
 *
 * Each queue is served in order of arrival as far as its model allows: a resident one takes tickets
 * at once; an UNLOAD waits until it is idle, and what is behind it waits as well. Then the first
 * queue whose model is not resident gets a load, one in a turn, so that the models that are there go
 * on between two loads:
 *
 *   - What it needs is read from the head of its file. More than the limit by itself: refused.
 *   - Idle models are closed, least recently used first, until it fits.
 *   - Where that is not enough, busy ones are told to leave, least recently used first: they get no
 *     new tickets, end those they have, and are closed. Nothing is loaded before, so that no model
 *     waits for ever, however steadily others are asked.
 *   - A model whose file has changed goes first itself: old and new weights never meet.
 *
 * A load that fails answers all that wait for it in the next turn, together with those that come in
 * meanwhile: a table of rows for a broken file is one attempt, not a thousand.
 */
#include "server/engine_thread_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"

#define LOG_AGAIN_MS 60000    /* before the same failure of a load is logged again */
#define WAIT_UNCOUNTED_MS 100 /* less is not taken off a timeout, so that errors quote the user's */

/* ---- tickets of resident models ---- */

static void
admit(LlmEngineThread *w, LlmResident *r, LlmTicket *t)
{
	int64_t now = llm_clock_ms();
	int64_t waited = now - t->arrived_ms;
	LlmStatus st;
	LlmError e;

	llm_models_remove(&w->models, t);
	t->resident = r;
	r->n_admitted++;
	r->used_ms = now;
	if (t->request.timeout_ms > 0 && waited >= WAIT_UNCOUNTED_MS)
	{
		int64_t left = t->request.timeout_ms - waited;

		t->request.timeout_ms = left < 1 ? 1 : (int32_t) left;
	}
	llm_engine_thread_lift_marks(w);
	llm_ticket_blame(t, w->journal, true);
	w->submitting = t;
	w->submitting_ended = false;
	st = llm_engine_submit(r->engine, &t->request, &e);
	w->submitting = NULL;
	llm_ticket_drop_frame(t);
	if (w->submitting_ended)
		llm_engine_thread_end(w, t);
	else if (st != LLM_OK)
		llm_engine_thread_fail(w, t, &e);
	else
	{
		llm_ticket_unblame(t, w->journal);
		r->working = true;
	}
}

/* numerics_key: of the model that is there now, 0 = none. */
static void
answer(LlmEngineThread *w, LlmTicket *t, uint64_t numerics_key)
{
	llm_outbox_done(&w->outbox, t->key, numerics_key);
	llm_engine_thread_end(w, t);
}

static void
close_resident(LlmEngineThread *w, LlmResident *r)
{
	llm_engine_thread_lift_marks(w);
	llm_residents_close(&w->residents, r);
}

/* Serve a queue until its head has to wait. */
static void
serve(LlmEngineThread *w, LlmModelQueue *q)
{
	LlmTicket *t;

	while (!w->stop && !q->failed && (t = q->head) != NULL)
	{
		LlmResident *r = llm_residents_find(&w->residents, q->spec);

		if (t->kind == LLM_TICKET_UNLOAD)
		{
			if (r != NULL && llm_resident_busy(r))
				return;
			if (r != NULL)
				close_resident(w, r);
			answer(w, t, 0);
		}
		/* Who asks for a load wants the file as it is now, whoever has looked at it before. */
		else if (r == NULL ||
				 !llm_resident_open_for_tickets(r, llm_clock_ms(), t->kind == LLM_TICKET_LOAD))
			return;
		else if (t->kind == LLM_TICKET_LOAD)
			answer(w, t, r->model.numerics_key);
		else
			admit(w, r, t);
	}
}

/* ---- loads ---- */

/* Those at the front of a queue that wait for the load. */
static bool
waits_for_load(const LlmTicket *t)
{
	return t != NULL && t->kind != LLM_TICKET_UNLOAD;
}

/* A load is work for all who wait for it; for a suspect at the head it is work for it alone. */
static void
blame_for_load(LlmEngineThread *w, LlmModelQueue *q)
{
	llm_engine_thread_lift_marks(w);
	if (q->head->alone)
	{
		llm_ticket_blame(q->head, w->journal, true);
		return;
	}
	for (LlmTicket *t = q->head; waits_for_load(t); t = t->queue_next)
		if (t->kind == LLM_TICKET_SUBMIT && !t->alone)
			llm_ticket_blame(t, w->journal, false);
}

static void
unblame_for_load(LlmEngineThread *w, LlmModelQueue *q)
{
	for (LlmTicket *t = q->head; waits_for_load(t); t = t->queue_next)
		if (t->slot >= 0)
			llm_ticket_unblame(t, w->journal);
}

/* A key or a tensor means little to a caller who does not know the file. */
static void
name_file(LlmError *e, const char *path)
{
	char former[sizeof(e->detail)];

	if (strstr(e->text, path) != NULL || strstr(e->detail, path) != NULL)
		return;
	memcpy(former, e->detail, sizeof(former));
	llm_error_detail(e, "%s%sModel file: %s", former, former[0] == '\0' ? "" : " ", path);
}

/* q->error is set: those who wait are answered in the next turn. A table of rows for a broken model
 * fails row by row: one line will do. */
static void
load_failed(LlmEngineThread *w, LlmModelQueue *q)
{
	char line[sizeof(w->logged)];

	q->failed = true;
	snprintf(line, sizeof(line), "model \"%s\" cannot be loaded: %s%s%s", q->spec->spec.path,
			 q->error.text, q->error.detail[0] == '\0' ? "" : ": ", q->error.detail);
	name_file(&q->error, q->spec->spec.path);
	if (strcmp(line, w->logged) == 0 && llm_clock_ms() - w->logged_ms < LOG_AGAIN_MS)
		return;
	llm_log(LLM_LOG_WARNING, "%s", line);
	memcpy(w->logged, line, sizeof(line));
	w->logged_ms = llm_clock_ms();
}

static void
answer_failed(LlmEngineThread *w)
{
	for (LlmModelQueue *q = w->models.first; q != NULL; q = q->next)
	{
		if (!q->failed)
			continue;
		while (waits_for_load(q->head))
			llm_engine_thread_fail(w, q->head, &q->error);
		q->failed = false;
		q->needs.weight_nbytes = -1;
	}
}

/* Tell the log what was loaded, and by what rule its KV cache has its size. */
static void
log_load(const LlmModelQueue *q, const LlmResident *r, int64_t took_ms)
{
	const LlmModelInfo *m = &r->model;
	const char *path = q->spec->spec.path;

	llm_log(LLM_LOG_INFO, "model \"%s\" loaded in %lld ms: %s, %s, context %d, %lld bytes", path,
			(long long) took_ms, m->arch, m->quantization, m->context_length,
			(long long) r->nbytes);
	llm_log(LLM_LOG_INFO, "KV cache of model \"%s\": %lld pages of 64 tokens, %lld bytes each: %s",
			path, (long long) m->kv_pages, (long long) m->kv_page_nbytes, m->kv_rule);
	if (q->replaces)
		llm_log(LLM_LOG_INFO,
				"model file \"%s\": digest %016llx%016llx takes the place of "
				"%016llx%016llx",
				path, (unsigned long long) m->digest[1], (unsigned long long) m->digest[0],
				(unsigned long long) q->former[1], (unsigned long long) q->former[0]);
}

static void
load(LlmEngineThread *w, LlmModelQueue *q)
{
	int64_t begin = llm_clock_ms();
	LlmResident *r;
	LlmStatus st;

	llm_engine_thread_flush(w, q->spec);
	blame_for_load(w, q);
	st =
		llm_residents_open(&w->residents, q->spec, &w->settings->options, w->events, &r, &q->error);
	unblame_for_load(w, q);
	if (st != LLM_OK)
	{
		load_failed(w, q);
		return;
	}
	log_load(q, r, llm_clock_ms() - begin);
	q->replaces = false;
	q->needs.weight_nbytes = -1;
}

/* What a load takes; it is asked once. False when the file cannot be used, or the limit is too small
 * for it alone: q has then failed. */
static bool
know_needs(LlmEngineThread *w, LlmModelQueue *q)
{
	LlmModelNeeds *n = &q->needs;
	int64_t limit = w->residents.limit;
	int64_t least;
	LlmStatus st;

	if (n->weight_nbytes < 0)
	{
		blame_for_load(w, q);
		st = llm_engine_needs(&w->settings->options, &q->spec->spec, n, &q->error);
		unblame_for_load(w, q);
		if (st != LLM_OK)
		{
			load_failed(w, q);
			return false;
		}
	}
	least = n->weight_nbytes + n->kv_nbytes_min;
	if (least <= limit)
		return true;
	llm_error_set(&q->error, LLM_E_MODEL,
				  "the model needs %lld bytes of memory, but llm_infer.memory_limit is %lld",
				  (long long) least, (long long) limit);
	llm_error_detail(&q->error, "%lld bytes of weights and %lld bytes of KV cache.",
					 (long long) n->weight_nbytes, (long long) n->kv_nbytes_min);
	llm_error_hint(&q->error, "Raise llm_infer.memory_limit, or lower the model's context_length "
							  "or llm_infer.kv_cache_memory.");
	llm_error_numbers(&q->error, least, limit);
	load_failed(w, q);
	return false;
}

/* The resident of a queue whose model must be loaded again is gone; false while it is busy. */
static bool
close_stale(LlmEngineThread *w, LlmModelQueue *q)
{
	LlmResident *r = llm_residents_find(&w->residents, q->spec);

	if (r == NULL)
		return true;
	if (llm_resident_busy(r))
		return false;
	q->replaces = true;
	memcpy(q->former, r->model.digest, sizeof(q->former));
	close_resident(w, r);
	return true;
}

/* Whether the head of a queue waits for a load. */
static bool
wants_load(LlmEngineThread *w, const LlmModelQueue *q)
{
	LlmResident *r;

	if (q->failed || !waits_for_load(q->head))
		return false;
	r = llm_residents_find(&w->residents, q->spec);
	return r == NULL || r->stale;
}

/* Load the first model that is waited for, when there is room. */
static void
load_next(LlmEngineThread *w)
{
	for (LlmModelQueue *q = w->models.first; q != NULL; q = q->next)
	{
		int64_t nbytes;

		if (!wants_load(w, q) || !close_stale(w, q) || !know_needs(w, q))
			continue;
		nbytes = q->needs.weight_nbytes + q->needs.kv_nbytes;
		llm_engine_thread_lift_marks(w);
		if (llm_residents_make_room(&w->residents, nbytes))
		{
			load(w, q);
			serve(w, q);
			llm_residents_keep(&w->residents);
		}
		return;
	}
	llm_residents_keep(&w->residents);
}

void
llm_admission_turn(LlmEngineThread *w)
{
	answer_failed(w);
	for (LlmModelQueue *q = w->models.first; q != NULL; q = q->next)
		serve(w, q);
	if (!w->stop)
		load_next(w);
	llm_models_sweep(&w->models);
}
