/*
 * echo/echo_device.c - the device that tests run on.
 *
 * An activation is a list of row numbers of the batch: embed makes 0, 1, 2, ...; gather_rows picks;
 * every other op hands them on. rope_kv_write stores the token of each row at the row's slot, and
 * sampling walks the block table to read the whole sequence back. What it reads must be the history
 * that the caller claims, so any fault of pages, slots, copies or lengths ends in an error of the
 * row, and the reply is computed from the store, not from the history.
 *
 * Writes and reads are checked as they are recorded; the first failure is kept and given back by
 * step_end. Sampling, and with it all delays, happens in step_wait.
 */
#include "echo/echo_device.h"

#include <stdlib.h>
#include <string.h>

#include "echo/echo_impl.h"

static LlmDeviceInfo
echo_info(const LlmDevice *dev)
{
	return (LlmDeviceInfo){.kind = "echo",
						   .isa = "none",
						   .n_threads = 1,
						   .n_used = 1,
						   .kv_page_nbytes = LLM_ECHO_PAGE_NBYTES};
}

static void
echo_model_clear(LlmDevice *dev)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	free(d->acts);
	free(d->tokens);
	free(d->text);
	free(d->logits);
	free(d->store);
	llm_sampler_free(d->sampler);
	d->sampler = NULL;
	d->acts = d->tokens = d->store = NULL;
	d->text = NULL;
	d->logits = NULL;
	d->n_pages = 0;
	d->limits = (LlmDeviceLimits){0};
}

static void
echo_free(LlmDevice *dev)
{
	echo_model_clear(dev);
	free(dev);
}

static LlmStatus
echo_limits_set(LlmDevice *dev, const LlmDeviceLimits *l, LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (d->fault.fail_load)
		return llm_error_set(err, LLM_E_MODEL, "the echo model fails to load: fault fail_load");
	if (l->max_rows <= 0 || l->max_out <= 0 || l->max_pos <= 0 || l->n_acts <= 0 ||
		l->vocab_size != LLM_ECHO_VOCAB)
		return llm_error_set(err, LLM_E_INTERNAL, "limits that the echo device cannot take");
	d->act_cap = l->max_rows > l->max_out ? l->max_rows : l->max_out;
	d->acts = calloc((size_t) l->n_acts * (size_t) d->act_cap, sizeof(int32_t));
	d->tokens = calloc((size_t) l->max_pos, sizeof(int32_t));
	d->text = calloc((size_t) l->max_pos, 1);
	d->logits = calloc((size_t) l->max_out * LLM_ECHO_VOCAB, sizeof(float));
	if (d->acts == NULL || d->tokens == NULL || d->text == NULL || d->logits == NULL ||
		llm_sampler_create(LLM_ECHO_VOCAB, &d->sampler, err) != LLM_OK)
	{
		echo_model_clear(dev);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the echo device");
	}
	d->limits = *l;
	return LLM_OK;
}

static LlmStatus
echo_linear_create(LlmDevice *dev, const LlmWeightView *parts, int n_parts,
				   const LlmLinearSpec *spec, LlmLinear **out, LlmError *err)
{
	*out = NULL;
	return llm_error_set(err, LLM_E_UNSUPPORTED, "the echo device holds no weights");
}

static int32_t
echo_linear_forms(const LlmDevice *dev, const LlmLinear *linear)
{
	return LLM_ACT_F32;
}

/* ---- recording ---- */

static LlmStatus
echo_step_begin(LlmDevice *dev, const LlmBatch *b, LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (b->n_rows <= 0 || b->n_rows > d->limits.max_rows || b->n_out > d->limits.max_out ||
		b->n_groups != 1 || d->n_pages == 0)
		return llm_error_set(err, LLM_E_INTERNAL, "a batch of %d rows and %d outputs does not fit",
							 b->n_rows, b->n_out);
	if (b->embed != NULL)
		return llm_error_set(err, LLM_E_UNSUPPORTED, "the echo device reads tokens only");
	for (int32_t r = 0; r < b->n_rows; r++)
		if (b->token[r] < 0 || b->token[r] >= LLM_ECHO_VOCAB || b->pos[r] < 0 ||
			b->pos[r] >= d->limits.max_pos || b->row_seq[r] < 0 || b->row_seq[r] >= b->n_seqs)
			return llm_error_set(err, LLM_E_INTERNAL, "row %d holds token %d at position %d", r,
								 b->token[r], b->pos[r]);
	d->batch = *b;
	d->n_acts = 0;
	d->sampling = NULL;
	return LLM_OK;
}

static LlmAct
echo_act_create(LlmDevice *dev, int32_t forms, int32_t rows, int32_t cols)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;
	LlmAct a = {.slot = d->n_acts, .forms = forms, .rows = rows, .cols = cols};

	if (rows < 0 || rows > d->act_cap || d->n_acts >= d->limits.n_acts)
	{
		LLM_ECHO_FAIL(d, "activation %d of %d rows is over the limits", d->n_acts, rows);
		return (LlmAct){.slot = 0, .forms = forms};
	}
	d->n_acts++;
	return a;
}

static int32_t *
act_rows(LlmEchoDevice *d, LlmAct a)
{
	return d->acts + (size_t) a.slot * (size_t) d->act_cap;
}

/* The output's rows are the input's. */
static void
act_pass(LlmEchoDevice *d, LlmAct in, LlmAct out)
{
	if (in.rows != out.rows)
		LLM_ECHO_FAIL(d, "an op turns %d rows into %d", in.rows, out.rows);
	else if (in.slot != out.slot)
		memcpy(act_rows(d, out), act_rows(d, in), (size_t) in.rows * sizeof(int32_t));
}

static void
echo_embed(LlmDevice *dev, const LlmLinear *linear, LlmAct out)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (out.rows != d->batch.n_rows)
		LLM_ECHO_FAIL(d, "%d rows embedded into %d", d->batch.n_rows, out.rows);
	for (int32_t r = 0; r < out.rows; r++)
		act_rows(d, out)[r] = r;
}

static void
echo_norm(LlmDevice *dev, LlmAct residual, LlmAct add, const LlmNorm *norm, LlmAct out)
{
	act_pass((LlmEchoDevice *) dev, residual, out);
}

static void
echo_linear(LlmDevice *dev, LlmAct x, const LlmLinear *linear, LlmEpilogue epilogue, LlmAct out)
{
	act_pass((LlmEchoDevice *) dev, x, out);
}

static void
echo_attention(LlmDevice *dev, LlmAct q, const LlmAttn *attn, LlmAct out)
{
	act_pass((LlmEchoDevice *) dev, q, out);
}

static void
echo_rope_kv_write(LlmDevice *dev, LlmAct qkv, const LlmAttn *attn, LlmAct q)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;
	const LlmBatch *b = &d->batch;

	act_pass(d, qkv, q);
	for (int32_t i = 0; i < qkv.rows; i++)
	{
		int32_t r = act_rows(d, qkv)[i];
		int32_t slot = b->slot[0][r];
		int32_t page = slot / LLM_PAGE_TOKENS;
		int32_t column = b->pos[r] / LLM_PAGE_TOKENS;

		if (slot < 0 || page <= 0 || page >= d->n_pages)
			LLM_ECHO_FAIL(d, "position %d is written to slot %d outside the store", b->pos[r],
						  slot);
		else if (column >= b->table_stride ||
				 b->table[0][b->row_seq[r] * b->table_stride + column] != page ||
				 slot % LLM_PAGE_TOKENS != b->pos[r] % LLM_PAGE_TOKENS)
			LLM_ECHO_FAIL(d, "position %d is written to slot %d, not to its page", b->pos[r], slot);
		else
			d->store[slot] = b->token[r];
	}
}

static void
echo_gather_rows(LlmDevice *dev, LlmAct x, LlmAct out)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (out.rows != d->batch.n_out)
	{
		LLM_ECHO_FAIL(d, "%d outputs gathered into %d rows", d->batch.n_out, out.rows);
		return;
	}
	for (int32_t i = 0; i < out.rows; i++)
	{
		int32_t r = d->batch.out_row[i];

		if (r < 0 || r >= x.rows)
			LLM_ECHO_FAIL(d, "output %d is row %d of %d", i, r, x.rows);
		else
			act_rows(d, out)[i] = act_rows(d, x)[r];
	}
}

static void
echo_sample(LlmDevice *dev, LlmAct logits, const LlmSampling *sampling)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (logits.rows != d->batch.n_out || sampling->n_out != d->batch.n_out)
		LLM_ECHO_FAIL(d, "%d rows of logits and %d to sample for %d outputs", logits.rows,
					  sampling->n_out, d->batch.n_out);
	d->out = logits;
	d->sampling = sampling;
}

static LlmStatus
echo_step_end(LlmDevice *dev, uint64_t *step, LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;
	LlmStatus status = d->error.code;

	*step = ++d->step;
	if (status != LLM_OK)
	{
		if (err != NULL)
			*err = d->error;
		d->error.code = LLM_OK;
	}
	return status;
}

static LlmStatus
echo_step_wait(LlmDevice *dev, uint64_t step, LlmStepOut *out, LlmError *err)
{
	LlmEchoDevice *d = (LlmEchoDevice *) dev;

	if (step != d->step || (d->sampling == NULL && d->batch.n_out > 0))
		return llm_error_set(err, LLM_E_INTERNAL, "step %llu has nothing to wait for",
							 (unsigned long long) step);
	llm_echo_fault_step(&d->fault, step);
	d->slow_ms = 0;
	memset(d->logits, 0, (size_t) d->batch.n_out * LLM_ECHO_VOCAB * sizeof(float));
	for (int32_t i = 0; i < d->batch.n_out; i++)
	{
		out->rows[i] = (LlmSampleOut){.token = -1};
		if ((d->batch.want[i] & (LLM_WANT_TOKEN | LLM_WANT_SCORE)) != 0)
			llm_echo_row_sample(d, act_rows(d, d->out)[i], &d->sampling->rows[i],
								d->logits + (size_t) i * LLM_ECHO_VOCAB, &out->rows[i]);
	}
	if (d->slow_ms > 0)
		llm_echo_sleep(d->slow_ms);
	out->logits = d->logits;
	out->ld_logits = LLM_ECHO_VOCAB;
	return LLM_OK;
}

static const LlmDeviceOps echo_ops = {
	.free = echo_free,
	.info = echo_info,
	.limits_set = echo_limits_set,
	.model_clear = echo_model_clear,
	.linear_create = echo_linear_create,
	.linear_forms = echo_linear_forms,
	.kv_create = llm_echo_kv_create,
	.kv_page_nbytes = llm_echo_kv_page_nbytes,
	.kv_copy = llm_echo_kv_copy,
	.kv_export = llm_echo_kv_export,
	.kv_import = llm_echo_kv_import,
	.step_begin = echo_step_begin,
	.act_create = echo_act_create,
	.embed = echo_embed,
	.norm = echo_norm,
	.linear = echo_linear,
	.rope_kv_write = echo_rope_kv_write,
	.attention = echo_attention,
	.gather_rows = echo_gather_rows,
	.sample = echo_sample,
	.step_end = echo_step_end,
	.step_wait = echo_step_wait,
};

LlmStatus
llm_echo_device_create(const char *fault, LlmDevice **out, LlmError *err)
{
	LlmEchoFault f;
	LlmStatus status = llm_echo_fault_parse(fault, &f, err);
	LlmEchoDevice *d;

	*out = NULL;
	if (status != LLM_OK)
		return status;
	if (f.crash_at_start)
		abort();
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the echo device");
	d->base.ops = &echo_ops;
	d->fault = f;
	*out = &d->base;
	return LLM_OK;
}
