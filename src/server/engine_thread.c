/*
 * server/engine_thread.c - the loop around llm_engine_step.
 *
 * One turn: take the commands; time out what waits; admit, load and unload as models.h says; hand
 * over the answers; run one step when the engine has work; hand over again. With nothing to do it
 * sleeps in llm_exchange_take. Nothing else in this process calls the engine, apart from
 * llm_engine_progress.
 *
 * Blame. Whatever the engine may die of is marked in the journal first: the batch before its step
 * (on_step), one request before it is rendered and tokenised (admit), and those that wait for a
 * model before it is loaded (swap). A suspect is marked ALONE only while the engine works for it
 * alone; waiting beside others it stays SUSPECT, so that it is not blamed for them.
 *
 * Answers are encoded into `out` by the callbacks of the engine, without a lock. A ticket is ended
 * in the callback, unless the engine calls it from inside llm_engine_submit: then `submitting` still
 * needs it, and admit() ends it.
 */
#include "server/engine_thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "server/models.h"

#define BATCH_MAX 1024        /* sequences in a step, see llm.h */
#define STEP_FAILURES_MAX 3   /* in a row: the device is lost, a new process may find it again */
#define LOG_AGAIN_MS 60000    /* before the same failure of a load is logged again */
#define WAIT_UNCOUNTED_MS 100 /* less is not taken off a timeout, so that errors quote the user's */

struct LlmEngineThread
{
	pthread_t thread;
	LlmExchange *x;            /* borrowed */
	LlmJournalWriter *journal; /* borrowed */
	const char *fault;         /* borrowed, may be NULL */
	LlmEngine *engine;         /* owned; NULL until created, or when that failed */
	LlmError engine_error;     /* why engine is NULL */
	LlmTickets tickets;        /* all that are not ended */
	LlmModels models;          /* those that wait */
	LlmModelInfo model;        /* of models.resident */
	LlmSpec *load_failed;      /* its waiting tickets fail with load_error; one reference */
	LlmError load_error;
	char logged[1000];                /* the failure of a load that was logged last */
	int64_t logged_ms;                /* and when */
	LlmBuf out;                       /* records and frames of this turn */
	LlmTicket *submitting;            /* inside llm_engine_submit */
	bool submitting_ended;            /* and its answer has come */
	LlmTicket *batches[2][BATCH_MAX]; /* [n_batch] of the running step, and room for the next */
	int which;                        /* index of the former */
	int32_t n_batch;
	int32_t n_admitted; /* tickets in the engine */
	bool idle;          /* the engine has said that it has no work */
	bool stop;          /* leave the loop */
	bool failed;        /* and the process cannot go on */
	int step_failures;  /* in a row */
};

/* ---- answers ---- */

/* Begin a record at the end of out; its frame is encoded next. Returns its offset. */
static size_t
record_begin(LlmEngineThread *w, LlmRequestKey key, bool final)
{
	LlmOutRecord r = {key, final, 0};
	size_t at = w->out.len;

	if (!llm_buf_append(&w->out, &r, sizeof(r)))
		w->failed = w->stop = true;
	return at;
}

/* Complete it. Without memory for an answer the process ends: its clients ask the next one. */
static void
record_end(LlmEngineThread *w, size_t at, bool encoded)
{
	size_t begin = at + sizeof(LlmOutRecord);
	uint32_t nbytes;

	if (w->failed || !encoded)
	{
		if (!w->failed)
			llm_log(LLM_LOG_ERROR, "out of memory for an answer");
		w->failed = w->stop = true;
		w->out.len = at;
		return;
	}
	nbytes = (uint32_t) (w->out.len - begin);
	memcpy(w->out.data + at + offsetof(LlmOutRecord, nbytes), &nbytes, sizeof(nbytes));
}

static void
emit_error(LlmEngineThread *w, LlmRequestKey key, const LlmError *e)
{
	size_t at = record_begin(w, key, true);

	record_end(w, at, llm_codec_append_error(&w->out, key.id, e));
}

static void
emit_done(LlmEngineThread *w, LlmRequestKey key)
{
	size_t at = record_begin(w, key, true);

	record_end(w, at, llm_codec_append_done(&w->out, key.id));
}

/* Hand over what there is, and publish the counters with it. */
static void
flush(LlmEngineThread *w, LlmSpec *loading)
{
	LlmServerStats s = {.waiting = w->models.n};
	LlmSpec *spec = loading != NULL ? loading : w->models.resident;

	if (w->engine != NULL)
		llm_engine_stats(w->engine, &s.engine);
	s.loading = loading != NULL;
	s.model = w->model;
	s.spec = spec == NULL ? NULL : llm_spec_retain(spec);
	if (!llm_exchange_publish(w->x, &s, &w->out))
		w->failed = w->stop = true;
}

/* ---- tickets ---- */

static void
batch_remove(LlmEngineThread *w, LlmTicket *t)
{
	LlmTicket **batch = w->batches[w->which];

	if (t->batch_index < 0)
		return;
	batch[t->batch_index] = batch[--w->n_batch];
	batch[t->batch_index]->batch_index = t->batch_index;
	t->batch_index = -1;
}

/* Forget a ticket that was answered, cancelled or closed. */
static void
ticket_end(LlmEngineThread *w, LlmTicket *t)
{
	if (t->admitted)
		w->n_admitted--;
	else
		llm_models_remove(&w->models, t);
	batch_remove(w, t);
	llm_journal_mark(w->journal, t->slot, LLM_JOURNAL_FREE);
	llm_tickets_remove(&w->tickets, t);
	llm_ticket_free(t);
}

static void
ticket_fail(LlmEngineThread *w, LlmTicket *t, const LlmError *e)
{
	emit_error(w, t->key, e);
	ticket_end(w, t);
}

/* The engine is about to work on t. */
static void
blame(LlmEngineThread *w, LlmTicket *t, bool by_itself)
{
	if (t->slot < 0)
		t->slot = llm_journal_take(w->journal, t->connection, t->key.id);
	llm_journal_mark(w->journal, t->slot,
					 t->alone && by_itself ? LLM_JOURNAL_ALONE : LLM_JOURNAL_RUNNING);
}

/* The engine has stopped working on t, which is not at its end. */
static void
unblame(LlmEngineThread *w, LlmTicket *t)
{
	llm_journal_mark(w->journal, t->slot, t->alone ? LLM_JOURNAL_SUSPECT : LLM_JOURNAL_FREE);
	if (!t->alone)
		t->slot = -1;
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
		ticket_fail(w, t, &e);
		return true;
	}
	t->slot = llm_journal_take(w->journal, t->connection, t->key.id);
	t->alone = t->request.alone = true;
	return false;
}

/* ---- callbacks of the engine ---- */

static void
on_text(void *arg, LlmRequestKey key, LlmStr piece)
{
	LlmEngineThread *w = arg;
	size_t at;

	if (llm_tickets_find(&w->tickets, key) == NULL)
		return;
	at = record_begin(w, key, false);
	record_end(w, at, llm_codec_append_tokens(&w->out, key.id, piece));
}

static void
on_done(void *arg, const LlmResult *r)
{
	LlmEngineThread *w = arg;
	LlmTicket *t = llm_tickets_find(&w->tickets, r->key);
	size_t at;

	if (t == NULL)
		return;
	at = record_begin(w, r->key, true);
	record_end(w, at, llm_codec_append_result(&w->out, r, t->request.stream));
	if (t == w->submitting)
		w->submitting_ended = true;
	else
		ticket_end(w, t);
}

static void
on_step(void *arg, const LlmRequestKey *keys, int32_t n)
{
	LlmEngineThread *w = arg;
	LlmTicket **former = w->batches[w->which];
	LlmTicket **batch = w->batches[!w->which];
	int32_t n_batch = 0;

	for (int32_t i = 0; i < w->n_batch; i++)
		former[i]->batch_index = -1;
	for (int32_t i = 0; i < n && n_batch < BATCH_MAX; i++)
	{
		LlmTicket *t = llm_tickets_find(&w->tickets, keys[i]);

		if (t == NULL)
			continue;
		blame(w, t, n == 1);
		t->batch_index = n_batch;
		batch[n_batch++] = t;
	}
	for (int32_t i = 0; i < w->n_batch; i++)
		if (former[i]->batch_index < 0)
			unblame(w, former[i]);
	w->which = !w->which;
	w->n_batch = n_batch;
}

/* ---- models ---- */

/* Submit the head of the queue. */
static void
admit(LlmEngineThread *w)
{
	LlmTicket *t = w->models.head;
	int64_t waited;
	LlmStatus st;
	LlmError e;

	llm_models_remove(&w->models, t);
	t->admitted = true;
	w->n_admitted++;
	waited = llm_clock_ms() - t->arrived_ms;
	if (t->request.timeout_ms > 0 && waited >= WAIT_UNCOUNTED_MS)
	{
		int64_t left = t->request.timeout_ms - waited;

		t->request.timeout_ms = left < 1 ? 1 : (int32_t) left;
	}
	blame(w, t, true);
	w->submitting = t;
	w->submitting_ended = false;
	st = llm_engine_submit(w->engine, &t->request, &e);
	w->submitting = NULL;
	llm_ticket_drop_frame(t);
	if (w->submitting_ended)
		ticket_end(w, t);
	else if (st != LLM_OK)
		ticket_fail(w, t, &e);
	else
	{
		unblame(w, t);
		w->idle = false;
	}
}

/* The tickets at the front of the queue that wait for spec to be loaded. */
static bool
waits_for(const LlmTicket *t, const LlmSpec *spec)
{
	return t != NULL && t->kind != LLM_TICKET_UNLOAD && llm_spec_equal(t->spec, spec);
}

/* Loading is work for all who wait for it; for a suspect at the head it is work for it alone. */
static void
blame_for_load(LlmEngineThread *w, const LlmSpec *spec)
{
	LlmTicket *head = w->models.head;

	if (head->alone)
	{
		blame(w, head, true);
		return;
	}
	for (LlmTicket *t = head; waits_for(t, spec); t = t->queue_next)
		if (t->kind == LLM_TICKET_SUBMIT && !t->alone)
			blame(w, t, false);
}

static void
unblame_for_load(LlmEngineThread *w, const LlmSpec *spec)
{
	for (LlmTicket *t = w->models.head; waits_for(t, spec); t = t->queue_next)
		if (t->slot >= 0)
			unblame(w, t);
}

/* A table of rows for a broken model fails row by row: one line will do. */
static void
log_load_failure(LlmEngineThread *w, const LlmSpec *spec)
{
	char line[sizeof(w->logged)];

	snprintf(line, sizeof(line), "model \"%s\" cannot be loaded: %s%s%s", spec->spec.path,
			 w->load_error.text, w->load_error.detail[0] == '\0' ? "" : ": ", w->load_error.detail);
	if (strcmp(line, w->logged) == 0 && llm_clock_ms() - w->logged_ms < LOG_AGAIN_MS)
		return;
	llm_log(LLM_LOG_WARNING, "%s", line);
	memcpy(w->logged, line, sizeof(line));
	w->logged_ms = llm_clock_ms();
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

/* Load the model of the head. The tickets that fail with it are failed in the next turn, together
 * with those that come in meanwhile. */
static void
swap(LlmEngineThread *w)
{
	LlmSpec *spec = llm_spec_retain(w->models.head->spec);
	int64_t begin = llm_clock_ms();
	LlmStatus st;

	llm_models_promote(&w->models, spec);
	flush(w, spec);
	blame_for_load(w, spec);
	llm_models_set_resident(&w->models, NULL);
	memset(&w->model, 0, sizeof(w->model));
	st = llm_engine_load(w->engine, &spec->spec, &w->load_error);
	unblame_for_load(w, spec);
	if (st == LLM_OK)
	{
		llm_models_set_resident(&w->models, spec);
		llm_engine_model(w->engine, &w->model);
		llm_log(LLM_LOG_INFO, "model \"%s\" loaded in %lld ms: %s, %s, context %d", spec->spec.path,
				(long long) (llm_clock_ms() - begin), w->model.arch, w->model.quantization,
				w->model.context_length);
		llm_spec_release(spec);
		return;
	}
	log_load_failure(w, spec);
	name_file(&w->load_error, spec->spec.path);
	w->load_failed = spec;
}

static void
fail_load(LlmEngineThread *w)
{
	if (w->load_failed == NULL)
		return;
	llm_models_promote(&w->models, w->load_failed);
	while (waits_for(w->models.head, w->load_failed))
		ticket_fail(w, w->models.head, &w->load_error);
	llm_spec_release(w->load_failed);
	w->load_failed = NULL;
}

static void
answer_head(LlmEngineThread *w)
{
	emit_done(w, w->models.head->key);
	ticket_end(w, w->models.head);
}

/* Serve the queue as far as it goes now. */
static void
serve_queue(LlmEngineThread *w)
{
	while (!w->stop && w->load_failed == NULL)
	{
		switch (llm_models_next(&w->models, w->idle && w->n_admitted == 0))
		{
			case LLM_MODELS_NOTHING:
				return;
			case LLM_MODELS_ADMIT:
				admit(w);
				break;
			case LLM_MODELS_ANSWER:
				answer_head(w);
				break;
			case LLM_MODELS_SWAP:
				swap(w);
				break;
			case LLM_MODELS_UNLOAD:
				llm_engine_unload(w->engine);
				llm_models_set_resident(&w->models, NULL);
				memset(&w->model, 0, sizeof(w->model));
				answer_head(w);
				break;
		}
	}
}

static void
expire_queue(LlmEngineThread *w)
{
	LlmTicket *t;

	while ((t = llm_models_expired(&w->models, llm_clock_ms())) != NULL)
	{
		LlmError e;

		llm_error_set(&e, LLM_E_TIMEOUT, "timeout of %d ms passed while waiting for model \"%s\"",
					  t->request.timeout_ms, t->spec->spec.path);
		ticket_fail(w, t, &e);
	}
}

/* ---- commands ---- */

static void
settings(LlmEngineThread *w, LlmServerSettings *s)
{
	LlmEngineEvents events = {w, on_text, on_done, on_step};
	char message[sizeof(((LlmServerState *) 0)->message)];
	LlmError e;

	if (w->engine != NULL)
	{
		if (llm_engine_settings(w->engine, &s->options, &e) != LLM_OK)
			llm_log(LLM_LOG_WARNING, "new settings are not in force: %s", e.text);
		return;
	}
	s->options.fault = w->fault;
	if (llm_engine_create(&s->options, events, &w->engine, &w->engine_error) == LLM_OK)
	{
		atomic_store(&w->x->engine, w->engine);
		llm_exchange_set_state(w->x, NULL);
		return;
	}
	w->engine = NULL;
	w->engine_error.code = LLM_E_UNAVAILABLE; /* for a caller, whose request may be right */
	snprintf(message, sizeof(message), "%s%s%s", w->engine_error.text,
			 w->engine_error.detail[0] == '\0' ? "" : ": ", w->engine_error.detail);
	llm_log(LLM_LOG_ERROR, "the engine cannot start: %s", message);
	llm_exchange_set_state(w->x, message);
}

static void
ticket_arrives(LlmEngineThread *w, LlmTicket *t)
{
	t->arrived_ms = llm_clock_ms();
	llm_tickets_add(&w->tickets, t);
	llm_models_push(&w->models, t);
	if (w->engine == NULL)
		ticket_fail(w, t, &w->engine_error);
	else if (t->kind == LLM_TICKET_SUBMIT)
		judge(w, t);
}

static void
cancel(LlmEngineThread *w, LlmTicket *t)
{
	if (t->admitted)
	{
		llm_engine_cancel(w->engine, t->key);
		w->idle = false;
	}
	ticket_end(w, t);
}

/* Cancel all tickets of a client. */
static void
cancel_client(LlmEngineThread *w, uint64_t client)
{
	if (w->engine != NULL)
	{
		llm_engine_cancel_client(w->engine, client);
		w->idle = false;
	}
	for (int i = 0; i < LLM_TICKET_BUCKETS; i++)
		for (LlmTicket *t = w->tickets.buckets[i], *next; t != NULL; t = next)
		{
			next = t->hash_next;
			if (t->key.client == client)
				ticket_end(w, t);
		}
}

static void
command(LlmEngineThread *w, LlmCommand *c)
{
	LlmTicket *t;

	switch (c->kind)
	{
		case LLM_COMMAND_SETTINGS:
			settings(w, c->settings);
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
		case LLM_COMMAND_STOP:
			w->stop = true;
			break;
	}
}

/* ---- the loop ---- */

static void
step(LlmEngineThread *w)
{
	LlmError e;

	if (llm_engine_step(w->engine, &w->idle, &e) == LLM_OK)
	{
		w->step_failures = 0;
		return;
	}
	llm_log(LLM_LOG_ERROR, "a step has failed: %s", e.text);
	if (++w->step_failures >= STEP_FAILURES_MAX)
	{
		llm_log(LLM_LOG_ERROR, "%d steps in a row have failed: the engine ends", w->step_failures);
		w->failed = w->stop = true;
	}
}

/* How long the thread may sleep for commands. */
static int
sleep_ms(const LlmEngineThread *w)
{
	if (w->engine == NULL)
		return -1;
	if (!w->idle || w->models.n > 0 || w->load_failed != NULL)
		return 0;
	return llm_engine_next_timeout_ms(w->engine);
}

static void *
engine_main(void *arg)
{
	LlmEngineThread *w = arg;

	while (!w->stop)
	{
		LlmCommand *c = llm_exchange_take(w->x, sleep_ms(w));

		while (c != NULL)
		{
			LlmCommand *next = c->next;

			command(w, c);
			llm_command_free(c);
			c = next;
		}
		fail_load(w);
		expire_queue(w);
		serve_queue(w);
		flush(w, NULL);
		if (w->stop || w->engine == NULL || w->idle)
			continue;
		step(w);
		flush(w, NULL);
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

	if (w == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the engine thread");
	w->x = x;
	w->journal = journal;
	w->fault = fault;
	w->idle = true;
	rc = pthread_create(&w->thread, NULL, engine_main, w);
	if (rc != 0)
	{
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
	atomic_store(&w->x->engine, NULL);
	llm_engine_free(w->engine);
	llm_models_set_resident(&w->models, NULL);
	llm_spec_release(w->load_failed);
	llm_buf_fini(&w->out);
	free(w);
	return true;
}
