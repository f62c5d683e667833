/*
 * server/engine_thread.c - the loop around llm_engine_step.
 *
 * One turn: take the commands; time out what waits; admit, load and unload (admission.c); hand over
 * the answers; run one step of the next model that has work; hand over again. Models take turns step
 * by step. With nothing to do the thread sleeps in llm_exchange_take. Nothing else in this process
 * calls an engine, apart from llm_engine_progress.
 *
 * Blame. Whatever an engine may die of is marked in the journal first: the batch before its step, one
 * request before it is rendered and tokenised, and those that wait for a model before it is loaded.
 * A suspect is marked ALONE only while the engine works for it alone; waiting beside others, or while
 * another model has its turn, it stays SUSPECT, so that it is not blamed for them.
 * Of requests that an engine answers as one, the leader is marked: were they the cause, each comes to
 * lead in turn when it is sent again.
 *
 * Answers are encoded into `outbox` by the callbacks of the engines, without a lock. A ticket is
 * ended in the callback, unless the engine calls it from inside llm_engine_submit: then `submitting`
 * still needs it, and admit() ends it.
 */
#include "server/engine_thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "server/engine_thread_impl.h"

#define AUDIT_PERIOD_MS 1000
#define STEP_FAILURES_MAX 3 /* in a row: the device is lost, a new process may find it again */

/* ---- statistics ---- */

/* w->stats as of now. */
static void
collect(LlmEngineThread *w, LlmSpec *loading)
{
	LlmServerStats *s = w->stats;

	llm_server_stats_clear(s);
	llm_residents_stats(&w->residents, s);
	s->waiting = w->models.n;
	if (loading != NULL)
		s->models[s->n_models++] =
			(LlmModelStat){.spec = llm_spec_retain(loading), .loading = true};
}

void
llm_engine_thread_flush(LlmEngineThread *w, LlmSpec *loading)
{
	collect(w, loading);
	if (!llm_exchange_publish(w->x, &w->stats, &w->outbox.out) || w->outbox.failed)
		w->failed = w->stop = true;
}

/* Whether the rows of a salt are those of a database and role; see codec.c for what a salt is. */
static bool
may_share(uint64_t salt, uint32_t database, uint32_t role)
{
	uint32_t salt_database = (uint32_t) (salt >> 32);
	uint32_t salt_role = (uint32_t) salt;

	return (salt_database == 0 || salt_database == database) &&
		   (salt_role == 0 || salt_role == role);
}

static void
answer_stats(LlmEngineThread *w, const LlmCommand *c)
{
	LlmPrefixStat *stats = malloc(LLM_PREFIX_ROWS_MAX * sizeof(*stats));
	LlmPrefixRow *rows =
		malloc(((size_t) w->residents.n * LLM_PREFIX_ROWS_MAX + 1) * sizeof(*rows));
	int32_t n = 0;

	for (int32_t i = 0; stats != NULL && rows != NULL && i < w->residents.n; i++)
	{
		const LlmResident *r = w->residents.at[i];
		int32_t found = llm_engine_prefix_stats(r->engine, stats, LLM_PREFIX_ROWS_MAX);

		for (int32_t k = 0; k < found; k++)
			if (c->all_prefixes || may_share(stats[k].salt, c->database, c->role))
				rows[n++] = (LlmPrefixRow){r->spec, stats[k]};
	}
	collect(w, NULL);
	llm_outbox_stats(&w->outbox, c->key, w->stats, rows, n);
	free(stats);
	free(rows);
}

/* ---- tickets ---- */

void
llm_engine_thread_end(LlmEngineThread *w, LlmTicket *t)
{
	LlmResident *r = t->resident;

	if (r != NULL)
	{
		r->n_admitted--;
		if (!r->leaving) /* the order in which models leave stays as it is */
			r->used_ms = llm_clock_ms();
		llm_batch_marks_remove(&r->batch, t);
	}
	else
		llm_models_remove(&w->models, t);
	llm_journal_mark(w->journal, t->slot, LLM_JOURNAL_FREE);
	llm_tickets_remove(&w->tickets, t);
	llm_ticket_free(t);
}

void
llm_engine_thread_fail(LlmEngineThread *w, LlmTicket *t, const LlmError *e)
{
	llm_outbox_error(&w->outbox, t->key, e);
	llm_engine_thread_end(w, t);
}

void
llm_engine_thread_lift_marks(LlmEngineThread *w)
{
	if (w->marked != NULL)
		llm_batch_marks_lift(&w->marked->batch, w->journal);
	w->marked = NULL;
}

/* What a predecessor has left about this request: a suspect shall run alone, a guilty one is
 * refused. True when t has ended. */
static bool
judge(LlmEngineThread *w, LlmTicket *t)
{
	int32_t slot = llm_journal_find(w->journal, t->connection, t->key.id);
	LlmError e;

	if (slot < 0)
		return false;
	if (llm_journal_state(w->journal, slot) == LLM_JOURNAL_GUILTY)
	{
		llm_error_set(&e, LLM_E_CRASHED, "the request crashed the engine when it ran alone");
		llm_error_hint(&e, "The server log tells how the engine ended. Leave this prompt out, or "
						   "change it.");
		llm_engine_thread_fail(w, t, &e);
		return true;
	}
	t->slot = llm_journal_take(w->journal, t->connection, t->key.id);
	t->alone = t->request.alone = true;
	return false;
}

static void
expire_queues(LlmEngineThread *w)
{
	LlmTicket *t;

	while ((t = llm_models_expired(&w->models, llm_clock_ms())) != NULL)
	{
		LlmError e;

		llm_error_set(&e, LLM_E_TIMEOUT, "timeout of %d ms passed while waiting for model \"%s\"",
					  t->request.timeout_ms, t->spec->spec.path);
		llm_engine_thread_fail(w, t, &e);
	}
}

/* ---- callbacks of the engines ---- */

static void
on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	LlmEngineThread *w = arg;

	if (llm_tickets_find(&w->tickets, key) != NULL)
		llm_outbox_text(&w->outbox, key, piece);
}

static void
on_done(void *arg, const LlmResult *r)
{
	LlmEngineThread *w = arg;
	LlmTicket *t = llm_tickets_find(&w->tickets, r->key);

	if (t == NULL)
		return;
	llm_outbox_result(&w->outbox, r, t->request.stream);
	if (t == w->submitting)
		w->submitting_ended = true;
	else
		llm_engine_thread_end(w, t);
}

/* The model that has its turn is w->marked. */
static void
on_step(void *arg, const LlmRequestKey *keys, int32_t n)
{
	LlmEngineThread *w = arg;

	llm_batch_marks_change(&w->marked->batch, w->journal, &w->tickets, keys, n);
}

/* ---- commands ---- */

static void
settings_refused(LlmEngineThread *w, const LlmError *e)
{
	char message[sizeof(((LlmServerState *) 0)->message)];

	if (w->settings != NULL)
	{
		llm_log(LLM_LOG_WARNING, "new settings are not in force: %s", e->text);
		return;
	}
	w->settings_error = *e;
	w->settings_error.code = LLM_E_UNAVAILABLE; /* for a caller, whose request may be right */
	snprintf(message, sizeof(message), "%s%s%s", e->text, e->detail[0] == '\0' ? "" : ": ",
			 e->detail);
	llm_log(LLM_LOG_ERROR, "the engine cannot start: %s", message);
	llm_exchange_set_state(w->x, message);
}

/* Put settings in force and take them over; those of before stay when they are wrong. */
static void
settings(LlmEngineThread *w, LlmCommand *c)
{
	LlmServerSettings *s = c->settings;
	bool first = w->settings == NULL;
	LlmEngine *probe;
	LlmError e;

	s->options.fault = w->fault;
	if (s->options.memory_limit == 0)
		s->options.memory_limit = llm_memory_total() / 2;
	if (llm_engine_create(&s->options, w->events, &probe, &e) != LLM_OK)
	{
		settings_refused(w, &e);
		return;
	}
	llm_engine_free(probe);
	llm_engine_thread_lift_marks(w);
	llm_residents_settings(&w->residents, &s->options, s->options.memory_limit);
	for (LlmModelQueue *q = w->models.first; q != NULL; q = q->next)
		q->needs.weight_nbytes = -1;
	llm_settings_free(w->settings);
	w->settings = s;
	c->settings = NULL;
	if (first)
		llm_exchange_set_state(w->x, NULL);
}

static void
ticket_arrives(LlmEngineThread *w, LlmTicket *t)
{
	LlmError e;

	t->arrived_ms = llm_clock_ms();
	llm_tickets_add(&w->tickets, t);
	if (w->settings == NULL)
	{
		llm_engine_thread_fail(w, t, &w->settings_error);
		return;
	}
	if (!llm_models_push(&w->models, t))
	{
		llm_error_set(&e, LLM_E_MEMORY, "out of memory for a request");
		llm_engine_thread_fail(w, t, &e);
	}
	else if (t->kind == LLM_TICKET_SUBMIT)
		judge(w, t);
}

static void
cancel(LlmEngineThread *w, LlmTicket *t)
{
	if (t->resident != NULL)
	{
		llm_engine_cancel(t->resident->engine, t->key);
		t->resident->working = true;
	}
	llm_engine_thread_end(w, t);
}

/* Cancel all tickets of a client. */
static void
cancel_client(LlmEngineThread *w, uint64_t client)
{
	for (int32_t i = 0; i < w->residents.n; i++)
	{
		llm_engine_cancel_client(w->residents.at[i]->engine, client);
		w->residents.at[i]->working = true;
	}
	for (int i = 0; i < LLM_TICKET_BUCKETS; i++)
		for (LlmTicket *t = w->tickets.buckets[i], *next; t != NULL; t = next)
		{
			next = t->hash_next;
			if (t->key.client == client)
				llm_engine_thread_end(w, t);
		}
}

static void
command(LlmEngineThread *w, LlmCommand *c)
{
	LlmTicket *t;

	switch (c->kind)
	{
		case LLM_COMMAND_SETTINGS:
			settings(w, c);
			break;
		case LLM_COMMAND_TICKET:
			t = c->ticket;
			c->ticket = NULL;
			ticket_arrives(w, t);
			break;
		case LLM_COMMAND_CANCEL:
			t = llm_tickets_find(&w->tickets, c->key);
			if (t != NULL)
				cancel(w, t);
			break;
		case LLM_COMMAND_CLOSE:
			cancel_client(w, c->key.client);
			if (c->last)
				llm_journal_forget(w->journal, c->connection);
			break;
		case LLM_COMMAND_STATS:
			answer_stats(w, c);
			break;
		case LLM_COMMAND_STOP:
			w->stop = true;
			break;
	}
}

/* ---- the loop ---- */

/* What a model without work holds must add up. If it does not, neither cache nor answers can be trusted
 * any more, but those of a new process can. */
static void
audit_idle(LlmEngineThread *w, const LlmResident *r)
{
	int64_t now = llm_clock_ms();
	LlmError e;

	if (now < w->audit_due_ms)
		return;
	w->audit_due_ms = now + AUDIT_PERIOD_MS;
	if (llm_engine_audit(r->engine, &e))
		return;
	llm_log(LLM_LOG_ERROR, "the state of model \"%s\" is broken, the engine ends: %s",
			r->spec->spec.path, e.text);
	w->failed = w->stop = true;
}

static void
step(LlmEngineThread *w, LlmResident *r)
{
	LlmError e;
	bool idle;

	if (w->marked != r)
		llm_engine_thread_lift_marks(w);
	w->marked = r;
	llm_batch_marks_put(&r->batch, w->journal);
	llm_exchange_show_engine(w->x, r->engine);
	if (llm_engine_step(r->engine, &idle, &e) == LLM_OK)
		w->step_failures = 0;
	else
	{
		llm_log(LLM_LOG_ERROR, "a step of model \"%s\" has failed: %s", r->spec->spec.path, e.text);
		if (++w->step_failures >= STEP_FAILURES_MAX)
		{
			llm_log(LLM_LOG_ERROR, "%d steps in a row have failed: the engine ends",
					w->step_failures);
			w->failed = w->stop = true;
		}
	}
	r->working = !idle;
	if (idle)
		audit_idle(w, r);
}

static bool
has_work(const LlmEngineThread *w)
{
	for (int32_t i = 0; i < w->residents.n; i++)
		if (w->residents.at[i]->working)
			return true;
	return w->models.n > 0;
}

static void *
engine_main(void *arg)
{
	LlmEngineThread *w = arg;

	while (!w->stop)
	{
		LlmCommand *c = llm_exchange_take(w->x, has_work(w) ? 0 : -1);
		LlmResident *r;

		while (c != NULL)
		{
			LlmCommand *next = c->next;

			command(w, c);
			llm_command_free(c);
			c = next;
		}
		expire_queues(w);
		llm_admission_turn(w);
		llm_engine_thread_flush(w, NULL);
		r = w->stop ? NULL : llm_residents_next(&w->residents);
		if (r == NULL)
			continue;
		step(w, r);
		if (r->outdated && !llm_resident_busy(r))
		{
			llm_engine_thread_lift_marks(w);
			llm_residents_tidy(&w->residents);
		}
		llm_engine_thread_flush(w, NULL);
	}
	for (int i = 0; i < LLM_TICKET_BUCKETS; i++)
		while (w->tickets.buckets[i] != NULL)
			cancel(w, w->tickets.buckets[i]);
	if (w->failed)
		llm_exchange_end(w->x);
	return NULL;
}

LlmStatus
llm_engine_thread_start(LlmExchange *x, LlmJournalWriter *journal, const char *fault,
						LlmEngineThread **out, LlmError *err)
{
	LlmEngineThread *w = calloc(1, sizeof(*w));
	int rc;

	if (w == NULL || (w->stats = calloc(1, sizeof(*w->stats))) == NULL)
	{
		free(w);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the engine thread");
	}
	w->x = w->residents.exchange = x;
	w->journal = journal;
	w->fault = fault;
	w->events = (LlmEngineEvents){w, on_text, on_done, on_step};
	llm_error_set(&w->settings_error, LLM_E_UNAVAILABLE, "the engine has no settings yet");
	rc = pthread_create(&w->thread, NULL, engine_main, w);
	if (rc != 0)
	{
		free(w->stats);
		free(w);
		return llm_error_set(err, LLM_E_MEMORY, "cannot start the engine thread: %s", strerror(rc));
	}
	*out = w;
	return LLM_OK;
}

bool
llm_engine_thread_join(LlmEngineThread *w, int timeout_ms)
{
	struct timespec until = llm_clock_after(CLOCK_REALTIME, timeout_ms);

	if (pthread_timedjoin_np(w->thread, NULL, &until) != 0)
		return false;
	llm_residents_fini(&w->residents);
	llm_models_sweep(&w->models);
	llm_settings_free(w->settings);
	llm_server_stats_clear(w->stats);
	free(w->stats);
	llm_buf_fini(&w->outbox.out);
	free(w);
	return true;
}
