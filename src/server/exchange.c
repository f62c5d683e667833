/* server/exchange.c - commands one way, frames the other. */
#include "server/exchange.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"

LlmStatus
llm_exchange_init(LlmExchange *x, LlmError *err)
{
	pthread_condattr_t attr;

	memset(x, 0, sizeof(*x));
	x->stats = calloc(1, sizeof(*x->stats));
	if (x->stats == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for statistics");
	x->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (x->event_fd < 0)
	{
		free(x->stats);
		return llm_error_set(err, LLM_E_IO, "cannot create an event descriptor: %s",
							 strerror(errno));
	}
	pthread_mutex_init(&x->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&x->wake, &attr);
	pthread_condattr_destroy(&attr);
	return LLM_OK;
}

void
llm_exchange_fini(LlmExchange *x)
{
	llm_exchange_hand_over(x);
	while (x->given.first != NULL)
	{
		LlmCommand *c = x->given.first;

		x->given.first = c->next;
		llm_command_free(c);
	}
	llm_buf_fini(&x->output);
	llm_server_stats_clear(x->stats);
	free(x->stats);
	pthread_cond_destroy(&x->wake);
	pthread_mutex_destroy(&x->mutex);
	close(x->event_fd);
}

/* Append `more` to `to`. */
static void
append(LlmCommandList *to, LlmCommandList more)
{
	if (to->first == NULL)
		*to = more;
	else if (more.first != NULL)
	{
		to->last->next = more.first;
		to->last = more.last;
	}
}

void
llm_exchange_post(LlmExchange *x, LlmCommand *c)
{
	c->next = NULL;
	append(&x->posted, (LlmCommandList){c, c});
}

void
llm_exchange_hand_over(LlmExchange *x)
{
	if (x->posted.first == NULL)
		return;
	pthread_mutex_lock(&x->mutex);
	append(&x->given, x->posted);
	pthread_cond_signal(&x->wake);
	pthread_mutex_unlock(&x->mutex);
	x->posted = (LlmCommandList){NULL, NULL};
}

void
llm_exchange_take_output(LlmExchange *x, LlmBuf *out)
{
	LlmBuf empty = *out;

	pthread_mutex_lock(&x->mutex);
	*out = x->output;
	x->output = empty;
	pthread_mutex_unlock(&x->mutex);
}

void
llm_exchange_stats(LlmExchange *x, LlmServerStats *out)
{
	pthread_mutex_lock(&x->mutex);
	llm_server_stats_copy(out, x->stats);
	pthread_mutex_unlock(&x->mutex);
}

void
llm_exchange_state(LlmExchange *x, LlmServerState *out)
{
	pthread_mutex_lock(&x->mutex);
	*out = x->state;
	pthread_mutex_unlock(&x->mutex);
}

bool
llm_exchange_busy(LlmExchange *x, uint64_t *progress)
{
	bool busy;

	*progress = atomic_load(&x->beats);
	pthread_mutex_lock(&x->mutex);
	if (x->engine != NULL)
		*progress += llm_engine_progress(x->engine);
	busy = x->working || x->given.first != NULL;
	pthread_mutex_unlock(&x->mutex);
	return busy;
}

/* Sleep on x->wake with x->mutex held; false when timeout_ms have passed. */
static bool
sleep_on_wake(LlmExchange *x, int timeout_ms)
{
	struct timespec until;

	if (timeout_ms < 0)
		return pthread_cond_wait(&x->wake, &x->mutex) == 0;
	until = llm_clock_after(CLOCK_MONOTONIC, timeout_ms);
	return pthread_cond_timedwait(&x->wake, &x->mutex, &until) == 0;
}

LlmCommand *
llm_exchange_take(LlmExchange *x, int timeout_ms)
{
	LlmCommand *c;

	atomic_fetch_add(&x->beats, 1);
	pthread_mutex_lock(&x->mutex);
	if (timeout_ms != 0)
	{
		x->working = false;
		while (x->given.first == NULL && sleep_on_wake(x, timeout_ms))
			;
		x->working = true;
	}
	c = x->given.first;
	x->given = (LlmCommandList){NULL, NULL};
	pthread_mutex_unlock(&x->mutex);
	return c;
}

static void
wake_io(LlmExchange *x)
{
	uint64_t one = 1;

	/* The counter is far from full, and a full one wakes as well. */
	if (write(x->event_fd, &one, sizeof(one)) < 0)
		return;
}

bool
llm_exchange_publish(LlmExchange *x, LlmServerStats **stats, LlmBuf *out)
{
	LlmServerStats *former;
	bool wake = false;
	bool ok = true;

	pthread_mutex_lock(&x->mutex);
	former = x->stats;
	x->stats = *stats;
	if (x->output.len == 0)
	{
		LlmBuf empty = x->output;

		wake = out->len > 0; /* else the I/O thread has been woken and has not come yet */
		x->output = *out;
		*out = empty;
	}
	else
		ok = llm_buf_append(&x->output, out->data, out->len);
	pthread_mutex_unlock(&x->mutex);
	llm_buf_clear(out);
	*stats = former;
	if (wake)
		wake_io(x);
	return ok;
}

void
llm_exchange_show_engine(LlmExchange *x, LlmEngine *e)
{
	pthread_mutex_lock(&x->mutex);
	x->engine = e;
	pthread_mutex_unlock(&x->mutex);
}

void
llm_exchange_forget_engine(LlmExchange *x, const LlmEngine *e)
{
	pthread_mutex_lock(&x->mutex);
	if (x->engine == e)
		x->engine = NULL;
	pthread_mutex_unlock(&x->mutex);
}

void
llm_exchange_set_state(LlmExchange *x, const char *message)
{
	pthread_mutex_lock(&x->mutex);
	x->state.ready = message == NULL;
	x->state.failed = message != NULL;
	snprintf(x->state.message, sizeof(x->state.message), "%s", message == NULL ? "" : message);
	x->state.version++;
	pthread_mutex_unlock(&x->mutex);
	wake_io(x);
}

void
llm_exchange_end(LlmExchange *x)
{
	atomic_store(&x->ended, true);
	wake_io(x);
}

LlmCommand *
llm_command_create(LlmCommandKind kind)
{
	LlmCommand *c = calloc(1, sizeof(*c));

	if (c != NULL)
		c->kind = kind;
	return c;
}

void
llm_command_free(LlmCommand *c)
{
	llm_ticket_free(c->ticket);
	llm_settings_free(c->settings);
	free(c);
}

void
llm_settings_free(LlmServerSettings *s)
{
	if (s == NULL)
		return;
	free(s->model_dir);
	free(s->devices);
	free(s);
}
