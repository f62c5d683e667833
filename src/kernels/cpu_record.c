/* kernels/cpu_record.c - recording: each op becomes one or two phases after its shapes are checked.
 * The first failure stops recording and comes back from step_end. */
#include "kernels/cpu_state.h"

#include <inttypes.h>

static LlmCpuDevice *
self(LlmDevice *d)
{
	return (LlmCpuDevice *) d;
}

/* Note the first failure of the step. */
static void
fail(LlmCpuDevice *dev, LlmStatus code, const char *op)
{
	if (dev->status == LLM_OK)
		dev->status =
			llm_error_set(&dev->error, code,
						  "the %s op of this step has shapes or forms that do not fit", op);
}

/* The device's own view of a handle; NULL after a failure. */
static LlmCpuAct *
act(LlmCpuDevice *dev, LlmAct a)
{
	return dev->status == LLM_OK && a.slot >= 0 && a.slot < dev->n_acts ? &dev->acts[a.slot] : NULL;
}

static LlmCpuOp *
phase(LlmCpuDevice *dev, LlmCpuOpKind kind, LlmCpuOpFn run, LlmCpuAct *in, LlmCpuAct *out)
{
	LlmCpuOp *op;

	if (dev->n_ops == LLM_CPU_OPS_MAX)
	{
		/* Keep recording on the last entry: the step will not run. */
		fail(dev, LLM_E_INTERNAL, "one too many");
		dev->n_ops--;
	}
	op = &dev->ops[dev->n_ops++];
	*op = (LlmCpuOp){.kind = kind, .run = run, .in = in, .out = out};
	return op;
}

static void *
arena_take(LlmCpuDevice *dev, size_t nbytes)
{
	uint8_t *p = dev->arena + dev->arena_used;

	nbytes = (nbytes + 63) & ~(size_t) 63;
	if (nbytes > dev->arena_nbytes - dev->arena_used)
		return NULL;
	dev->arena_used += nbytes;
	return p;
}

LlmAct
llm_cpu_act_create(LlmDevice *d, int32_t forms, int32_t rows, int32_t cols)
{
	LlmCpuDevice *dev = self(d);
	LlmAct none = {-1, 0, 0, 0};
	LlmCpuAct *a;

	if (dev->status != LLM_OK || dev->batch == NULL || rows < 0 || cols < 0)
		return none;
	if (dev->n_acts == LLM_CPU_ACTS_MAX)
	{
		fail(dev, LLM_E_INTERNAL, "act_create");
		return none;
	}
	a = &dev->acts[dev->n_acts];
	*a = (LlmCpuAct){.rows = rows,
					 .cols = cols,
					 .ld = llm_cpu_act_ld(cols),
					 .n_units = (cols + LLM_Q8_UNIT - 1) / LLM_Q8_UNIT,
					 .forms = forms};
	a->f = arena_take(dev, (size_t) rows * (size_t) a->ld * sizeof(float));
	if (a->f != NULL && (forms & LLM_ACT_Q8) != 0)
		a->q = arena_take(dev, (size_t) rows * (size_t) a->n_units * sizeof(LlmQ8Unit));
	if (a->q != NULL && llm_cpu_act_n_tiles(dev, rows) > 0)
		a->tiles = arena_take(dev, (size_t) llm_cpu_act_n_tiles(dev, rows) * (size_t) a->n_units *
									   sizeof(LlmQ8Tile));
	if (a->f == NULL || ((forms & LLM_ACT_Q8) != 0 && a->q == NULL))
	{
		fail(dev, LLM_E_INTERNAL, "act_create");
		return none;
	}
	return (LlmAct){dev->n_acts++, forms, rows, cols};
}

void
llm_cpu_embed(LlmDevice *d, const LlmLinear *l, LlmAct out)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *o = act(dev, out);
	LlmCpuOp *op;

	if (o == NULL || !l->is_embedding || o->cols != l->k || o->rows != dev->batch->n_rows)
	{
		fail(dev, LLM_E_INTERNAL, "embed");
		return;
	}
	for (int32_t r = 0; r < o->rows; r++)
	{
		int32_t token = dev->batch->token[r];

		if (dev->batch->embed != NULL && dev->batch->embed[r] != NULL)
			continue;
		if (token < 0 || token >= l->n)
		{
			if (dev->status == LLM_OK)
				dev->status = llm_error_set(&dev->error, LLM_E_INVALID,
											"token %" PRId32 " is not in the model's vocabulary of "
											"%" PRId32,
											token, l->n);
			return;
		}
	}
	op = phase(dev, LLM_CPU_EMBED, llm_cpu_run_embed, NULL, o);
	op->linear = l;
	op->nbytes = (double) o->rows * (double) l->nbytes / (double) l->n;
}

void
llm_cpu_norm(LlmDevice *d, LlmAct residual, LlmAct add, const LlmNorm *norm, LlmAct out)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *r = act(dev, residual), *o = act(dev, out);
	LlmCpuAct *a = add.cols > 0 ? act(dev, add) : NULL;
	LlmCpuOp *op;

	if (r == NULL || o == NULL || r->cols != o->cols || r->rows != o->rows ||
		(r->forms & LLM_ACT_F32) == 0 || (add.cols > 0 && a == NULL) ||
		(a != NULL && (a->cols != r->cols || a->rows != r->rows || (a->forms & LLM_ACT_F32) == 0)))
	{
		fail(dev, LLM_E_INTERNAL, "norm");
		return;
	}
	op = phase(dev, LLM_CPU_NORM, llm_cpu_run_norm, r, o);
	op->in2 = a;
	op->norm = norm;
}

/* out's float form is complete: make its int8 form when that is wanted. */
static void
quantise_phase(LlmCpuDevice *dev, LlmCpuAct *out)
{
	if ((out->forms & LLM_ACT_Q8) != 0)
		phase(dev, LLM_CPU_QUANTISE, llm_cpu_run_quantise, out, out);
}

/* Where gate | up lie between the product and the gate: one place for all layers of one shape. */
static LlmCpuAct *
gate_act(LlmCpuDevice *dev, int32_t rows, int32_t cols)
{
	if (dev->gate == NULL || dev->gate->rows != rows || dev->gate->cols != cols)
		dev->gate = act(dev, llm_cpu_act_create(&dev->base, LLM_ACT_F32, rows, cols));
	return dev->gate;
}

/* gate | up in two parts whose columns make whole units: product and gate in one phase. */
static bool
gate_fuses(const LlmLinear *l)
{
	return l->n_parts == 2 && l->parts[0].n == l->parts[1].n && l->parts[0].n % LLM_Q8_UNIT == 0;
}

void
llm_cpu_linear(LlmDevice *d, LlmAct x, const LlmLinear *l, LlmEpilogue epilogue, LlmAct out)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *in = act(dev, x), *o = act(dev, out), *y = o;
	LlmCpuOp *op;
	bool gate = epilogue == LLM_EPI_SILU_GATE, fused = gate && gate_fuses(l);

	if (in == NULL || o == NULL || in->cols != l->k || in->rows != o->rows ||
		(in->forms & l->forms) != l->forms || (gate ? 2 * o->cols : o->cols) != l->n)
	{
		fail(dev, LLM_E_INTERNAL, "linear");
		return;
	}
	if (gate && !fused)
		y = gate_act(dev, o->rows, l->n);
	if (y == NULL)
		return;
	op = phase(dev, LLM_CPU_LINEAR + l->role, fused ? llm_cpu_run_linear_gate : llm_cpu_run_linear,
			   in, y);
	op->linear = l;
	op->nbytes = (double) l->nbytes;
	op->ops = 2.0 * (double) l->k * (double) l->n * (double) o->rows;
	if (gate && !fused)
		phase(dev, LLM_CPU_GATE, llm_cpu_run_gate, y, o);
	else if (!gate)
		quantise_phase(dev, o);
}

/* The store and shapes of an attention; NULL when they do not fit together. */
static LlmKvPages *
attn_store(LlmCpuDevice *dev, const LlmAttn *a)
{
	LlmKvPages *kv;
	const LlmKvGroup *g;

	if (a->kv_group < 0 || a->kv_group >= dev->batch->n_groups)
		return NULL;
	kv = &dev->kv[a->kv_group];
	g = &kv->group;
	if (a->layer < 0 || a->layer >= g->n_layers || a->n_kv_heads != g->n_kv_heads ||
		a->head_dim != g->k_dim || a->v_dim != g->v_dim || a->n_heads < a->n_kv_heads ||
		a->n_heads % a->n_kv_heads != 0)
		return NULL;
	return kv;
}

/* Record the table of cosines and sines unless this step has it. */
static bool
rope_table_phase(LlmCpuDevice *dev, const LlmRope *rope)
{
	LlmCpuOp *op;

	if (rope == NULL || rope->n_dims == 0 || rope == dev->rope)
		return true;
	dev->rope_table =
		act(dev, llm_cpu_act_create(&dev->base, LLM_ACT_F32, dev->batch->n_rows, 2 * rope->n_dims));
	if (dev->rope_table == NULL)
		return false;
	dev->rope = rope;
	op = phase(dev, LLM_CPU_ROPE, llm_cpu_run_rope_table, NULL, dev->rope_table);
	op->rope = rope;
	return true;
}

void
llm_cpu_rope_kv_write(LlmDevice *d, LlmAct qkv, const LlmAttn *attn, LlmAct q)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *in = act(dev, qkv), *out = act(dev, q);
	LlmKvPages *kv = in != NULL ? attn_store(dev, attn) : NULL;
	const LlmRope *rope = attn->rope;
	LlmCpuOp *op;

	if (in == NULL || out == NULL || kv == NULL || in->rows != dev->batch->n_rows ||
		out->rows != in->rows || (in->forms & out->forms & LLM_ACT_F32) == 0 ||
		in->cols !=
			(attn->n_heads + attn->n_kv_heads) * attn->head_dim + attn->n_kv_heads * attn->v_dim ||
		out->cols != attn->n_heads * attn->head_dim ||
		(rope != NULL &&
		 (rope->n_dims < 0 || rope->n_dims % 2 != 0 || rope->n_dims > attn->head_dim ||
		  2 * rope->n_dims > dev->limits.max_cols)))
	{
		fail(dev, LLM_E_INTERNAL, "rope_kv_write");
		return;
	}
	if (!rope_table_phase(dev, rope))
		return;
	op = phase(dev, LLM_CPU_ROPE, llm_cpu_run_rope, in, out);
	op->in2 = rope != NULL && rope->n_dims > 0 ? dev->rope_table : NULL;
	op->rope = rope;
	op->attn = *attn;
	op->kv = kv;
}

/* Bytes of KV and operations of one attention. */
static void
attention_count(const LlmCpuDevice *dev, LlmCpuOp *op)
{
	const LlmBatch *b = dev->batch;
	double visible = 0.0, read = 0.0;

	for (int32_t i = op->block0; i < op->block0 + op->n_blocks; i++)
	{
		const LlmCpuBlock *block = &dev->blocks[i];

		for (int32_t k = block->run0; k < block->run0 + block->n_runs; k++)
		{
			const LlmCpuRun *run = &dev->runs[k];

			for (int32_t r = run->row0; r < run->row0 + run->n_rows; r++)
				visible += (double) (b->pos[r] + 1);
			if (run->row0 + run->n_rows == b->q_start[run->seq + 1])
				read += (double) b->kv_len[run->seq];
		}
		read -= (double) (block->n_runs - 1) * (double) block->n_shared[op->attn.kv_group] *
				LLM_PAGE_TOKENS;
	}
	op->nbytes = read * (double) op->kv->layer_nbytes / LLM_PAGE_TOKENS;
	op->ops =
		2.0 * visible * (double) op->attn.n_heads * (double) (op->attn.head_dim + op->attn.v_dim);
}

void
llm_cpu_attention(LlmDevice *d, LlmAct q, const LlmAttn *attn, LlmAct out)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *in = act(dev, q), *o = act(dev, out);
	LlmKvPages *kv = in != NULL ? attn_store(dev, attn) : NULL;
	LlmCpuOp *op;

	if (in == NULL || o == NULL || kv == NULL || in->rows != dev->batch->n_rows ||
		o->rows != in->rows || (in->forms & LLM_ACT_F32) == 0 ||
		in->cols != attn->n_heads * attn->head_dim || o->cols != attn->n_heads * attn->v_dim ||
		!(attn->scale >= 0.0f) ||
		LLM_CPU_BLOCK_ROWS * (attn->n_heads / attn->n_kv_heads) > dev->max_q ||
		LLM_CPU_BLOCK_ROWS * (attn->n_heads / attn->n_kv_heads) * kv->v_stride > dev->max_o)
	{
		fail(dev, LLM_E_INTERNAL, "attention");
		return;
	}
	op = phase(dev, LLM_CPU_ATTENTION, llm_cpu_run_attention, in, o);
	op->attn = *attn;
	op->kv = kv;
	op->n_blocks = dev->n_blocks;
	if (attn->wanted_only && !dev->all_wanted)
	{
		op->block0 = dev->n_blocks;
		op->n_blocks = dev->n_wanted_blocks;
	}
	llm_cpu_attention_share(dev, op);
	attention_count(dev, op);
	if (attn->v_dim % LLM_Q8_UNIT != 0) /* else each head quantises its own units */
		quantise_phase(dev, o);
}

void
llm_cpu_gather_rows(LlmDevice *d, LlmAct x, LlmAct out)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *in = act(dev, x), *o = act(dev, out);

	if (in == NULL || o == NULL || in->cols != o->cols || in->rows != dev->batch->n_rows ||
		o->rows != dev->batch->n_out || (in->forms & o->forms) != o->forms)
	{
		fail(dev, LLM_E_INTERNAL, "gather_rows");
		return;
	}
	phase(dev, LLM_CPU_GATHER, llm_cpu_run_gather, in, o);
}

void
llm_cpu_sample(LlmDevice *d, LlmAct logits, const LlmSampling *sampling)
{
	LlmCpuDevice *dev = self(d);
	LlmCpuAct *in = act(dev, logits);
	LlmCpuOp *op;

	if (dev->batch->n_out == 0)
		return;
	if (in == NULL || in->cols != dev->limits.vocab_size || in->rows != dev->batch->n_out ||
		(in->forms & LLM_ACT_F32) == 0 || sampling->n_out != in->rows)
	{
		fail(dev, LLM_E_INTERNAL, "sample");
		return;
	}
	dev->logits = in;
	op = phase(dev, LLM_CPU_SAMPLE, llm_cpu_run_sample, in, NULL);
	op->sampling = sampling;
}
