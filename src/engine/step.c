/* engine/step.c - one step: time-outs, plan, forward, tokens to their requests. */
#include <string.h>

#include "engine/engine.h"
#include "engine/pinned.h"

/* ---- time ---- */

/* End the asker when its time is over; the earlier of its deadline and `next` otherwise. */
static int64_t
expire_asker(LlmEngine *e, LlmAsker *a, int64_t now, int64_t next)
{
	LlmError err;

	if (now < a->deadline)
		return a->deadline < next ? a->deadline : next;
	llm_error_set(&err, LLM_E_TIMEOUT, "the request did not end within its timeout of %d ms",
				  a->timeout_ms);
	llm_error_hint(&err, "Raise the option timeout of the call, or llm_infer.timeout.");
	llm_error_numbers(&err, (now - a->submitted) / 1000, a->timeout_ms);
	llm_engine_drop(e, a, &err);
	return next;
}

/* End every asker whose time is over; find the next deadline. */
static void
expire(LlmEngine *e)
{
	int64_t now = llm_engine_now();
	int64_t next_deadline = INT64_MAX;
	LlmReq *next;

	if (now < e->next_deadline)
		return;
	for (LlmReq *r = e->reqs.first; r != NULL; r = next)
	{
		LlmAsker *next_asker;

		next = r->next;
		for (LlmAsker *a = r->askers; a != NULL; a = next_asker)
		{
			next_asker = a->next;
			next_deadline = expire_asker(e, a, now, next_deadline);
		}
	}
	e->next_deadline = next_deadline;
}

/* ---- the batch ---- */

static LlmReq *
req_of(const LlmPlanItem *it)
{
	return it->seq->owner;
}

/* Tell who runs, when that has changed since the step before; note who runs for the first time. */
static void
announce(LlmEngine *e, const LlmPlan *plan)
{
	int64_t now = llm_engine_now();
	bool changed = plan->n_items != e->n_keys;
	LlmRequestKey *old = e->keys;

	for (int32_t i = 0; i < plan->n_items; i++)
	{
		LlmReq *r = req_of(&plan->items[i]);
		LlmRequestKey key = r->askers->key;

		e->keys_now[i] = key;
		changed = changed || old[i].client != key.client || old[i].id != key.id;
		if (r->first_step == 0)
			r->first_step = now;
	}
	e->keys = e->keys_now;
	e->keys_now = old;
	e->n_keys = plan->n_items;
	if (changed && e->events.step != NULL)
		e->events.step(e->events.arg, e->keys, e->n_keys);
}

/* What to do with each output row. */
static void
fill_rows(LlmEngine *e, const LlmPlan *plan, const LlmBatch *batch)
{
	const LlmPackOut *outputs = llm_pack_outputs(e->pack);

	for (int32_t i = 0; i < batch->n_out; i++)
	{
		const LlmReq *r = req_of(&plan->items[outputs[i].item]);
		int32_t position = outputs[i].position + 1;

		e->rows[i] =
			(LlmSampleRow){.p = r->sample,
						   .history = r->seq.tokens.ids,
						   .n_history = position,
						   .n_prompt = position < r->seq.n_prompt ? position : r->seq.n_prompt,
						   .position = position};
		if (batch->want[i] & LLM_WANT_TOKEN)
		{
			llm_choice_row(&r->choice, r->n_new, &e->rows[i]);
			e->rows[i].unscored = r->scores.answer == NULL;
			e->rows[i].n_top = e->rows[i].unscored ? 0 : r->scores.n_top;
		}
		else if (batch->want[i] & LLM_WANT_SCORE)
		{
			e->rows[i].target = &r->seq.tokens.ids[position];
			e->rows[i].n_top = r->scores.n_top;
		}
	}
}

/* Pages whose beginning goes on in another: in order, before anything is computed. */
static LlmStatus
copy_pages(LlmEngine *e, const LlmPlan *plan, LlmError *err)
{
	LlmStatus st = LLM_OK;

	for (int32_t i = 0; i < plan->n_copies && st == LLM_OK; i++)
	{
		const LlmPlanCopy *c = &plan->copies[i];

		st = llm_kv_store_copy(&e->m.store, c->group, c->from, c->to, c->n_tokens, err);
	}
	return st;
}

static LlmStatus
run(LlmEngine *e, const LlmPlan *plan, const LlmBatch *batch, LlmStepOut *out, LlmError *err)
{
	LlmDevice *dev = e->m.dev;
	LlmSampling sampling = {e->rows, batch->n_out};
	uint64_t step;
	LlmAct logits;
	LlmStatus st;

	if ((st = copy_pages(e, plan, err)) != LLM_OK ||
		(st = dev->ops->step_begin(dev, batch, err)) != LLM_OK)
		return st;
	logits = llm_model_forward(e->m.model, dev, batch);
	if (batch->n_out > 0)
		dev->ops->sample(dev, logits, &sampling);
	if ((st = dev->ops->step_end(dev, &step, err)) != LLM_OK)
		return st;
	return dev->ops->step_wait(dev, step, out, err);
}

/* ---- results ---- */

static void
call_hook(LlmEngine *e, const LlmPlan *plan, const LlmBatch *batch, const LlmStepOut *out)
{
	const LlmPackOut *outputs = llm_pack_outputs(e->pack);

	for (int32_t i = 0; i < batch->n_out; i++)
		e->hook(e->hook_arg, req_of(&plan->items[outputs[i].item])->askers->key,
				outputs[i].position, out->logits + (size_t) i * (size_t) out->ld_logits,
				llm_model_config(e->m.model)->vocab_size);
}

/* A request got its next token. */
static void
take(LlmEngine *e, LlmReq *r, const LlmSampleOut *out)
{
	LlmFinish finish;
	LlmStatus st;
	LlmError err;
	size_t safe;

	if (r->first_token == 0)
	{
		r->first_token = llm_engine_now();
		e->stats.prompt_tokens += r->seq.n_prompt;
		e->stats.cached_tokens += r->seq.n_cached;
		e->stats.copied += r->seq.n_copied;
	}
	if (r->pin)
	{
		llm_pinned_end(e, r);
		return;
	}
	if (r->seq.max_len == r->seq.n_prompt) /* only the prompt's log-probabilities are wanted */
	{
		llm_engine_end(e, r, LLM_FINISH_LENGTH, NULL);
		return;
	}
	e->stats.generated_tokens++;
	llm_scores_answer(&r->scores, r->n_new, out);
	if (llm_req_token(r, e->m.tok, out->token, &finish, &st))
	{
		if (st != LLM_OK)
			llm_error_set(&err, st, "out of memory for the text of a request");
		llm_engine_end(e, r, finish, st == LLM_OK ? NULL : &err);
		return;
	}
	safe = llm_req_safe(r);
	for (LlmAsker *a = r->askers; a != NULL; a = a->next)
		llm_engine_show(e, a, safe);
}

/* A NaN went into the item's K or V, so nothing may follow from its pages. */
static bool
is_spoiled(const LlmStepOut *out, int32_t item)
{
	return out->spoiled != NULL && out->spoiled[item] != 0;
}

static void
end_spoiled(LlmEngine *e, const LlmPlan *plan, const LlmStepOut *out)
{
	for (int32_t i = 0; i < plan->n_items; i++)
	{
		LlmError err;

		if (!is_spoiled(out, i))
			continue;
		llm_error_set(&err, LLM_E_INTERNAL, "keys or values of the attention are not numbers");
		llm_engine_end(e, req_of(&plan->items[i]), LLM_FINISH_ERROR, &err);
	}
}

/* Every output to its request; one that fails by itself ends its request alone. */
static void
take_outputs(LlmEngine *e, const LlmPlan *plan, const LlmBatch *batch, const LlmStepOut *step)
{
	const LlmPackOut *outputs = llm_pack_outputs(e->pack);
	int32_t ended = -1; /* item whose request is gone: it may have more outputs */

	for (int32_t i = 0; i < batch->n_out; i++)
	{
		const LlmSampleOut *out = &step->rows[i];
		int32_t item = outputs[i].item;
		LlmError err;

		if (item == ended || is_spoiled(step, item) ||
			(batch->want[i] & (LLM_WANT_TOKEN | LLM_WANT_SCORE)) == 0)
			continue;
		if (out->status != LLM_OK)
		{
			llm_error_set(&err, out->status, "%s", out->message);
			llm_engine_end(e, req_of(&plan->items[item]), LLM_FINISH_ERROR, &err);
			ended = item;
		}
		else if (batch->want[i] & LLM_WANT_TOKEN) /* the item's last output */
			take(e, req_of(&plan->items[item]), out);
		else
			llm_scores_prompt(&req_of(&plan->items[item])->scores, outputs[i].position + 1, out);
	}
}

/* The device failed: nothing that ran can go on. */
static void
end_running(LlmEngine *e, const LlmError *err)
{
	LlmReq *next;

	for (LlmReq *r = e->reqs.first; r != NULL; r = next)
	{
		next = r->next;
		if (r->seq.state == LLM_SEQ_RUNNING)
			llm_engine_end(e, r, LLM_FINISH_ERROR, err);
	}
}

/* Run a plan that has rows. */
static LlmStatus
execute(LlmEngine *e, const LlmPlan *plan, LlmError *err)
{
	bool hooked = e->hook != NULL;
	const LlmBatch *batch = llm_pack_fill(e->pack, plan, hooked, hooked && e->all_positions);
	LlmStepOut out = {.rows = e->outs};
	LlmError failure;
	LlmStatus st;

	announce(e, plan);
	fill_rows(e, plan, batch);
	st = run(e, plan, batch, &out, &failure);
	for (int32_t i = 0; st == LLM_OK && i < plan->n_items; i++)
		plan->items[i].seq->spoiled = is_spoiled(&out, i);
	llm_sched_done(e->sched, st == LLM_OK);
	e->stats.steps++;
	atomic_fetch_add(&e->progress, 1);
	if (st != LLM_OK)
	{
		end_running(e, &failure);
		if (err != NULL)
			*err = failure;
		return st;
	}
	if (hooked && batch->n_out > 0)
		call_hook(e, plan, batch, &out);
	take_outputs(e, plan, batch, &out);
	end_spoiled(e, plan, &out);
	return LLM_OK;
}

LlmStatus
llm_engine_step(LlmEngine *e, bool *idle, LlmError *err)
{
	LlmStatus st = LLM_OK;

	*idle = true;
	if (!e->loaded)
		return LLM_OK;
	expire(e);
	if (e->reqs.n > 0)
	{
		const LlmPlan *plan = llm_sched_next(e->sched);

		if (plan->n_rows > 0)
			st = execute(e, plan, err);
		else
		{
			LlmError failure;

			st = copy_pages(e, plan, &failure);
			llm_sched_done(e->sched, st == LLM_OK);
			if (st != LLM_OK)
				end_running(e, &failure);
			if (st != LLM_OK && err != NULL)
				*err = failure;
		}
	}
	*idle = e->reqs.n == 0;
	return st;
}
