/* kernels/cpu_device.c - life of the CPU device, its weights, its KV store, its counters. */
#include "kernels/cpu_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu_state.h"

static LlmCpuDevice *
self(LlmDevice *d)
{
	return (LlmCpuDevice *) d;
}

static void
device_model_clear(LlmDevice *d)
{
	LlmCpuDevice *dev = self(d);

	llm_cpu_arena_free(dev);
	llm_weight_store_fini(&dev->weights);
	for (int g = 0; g < dev->n_groups; g++)
		llm_kv_pages_fini(&dev->kv[g]);
	dev->n_groups = 0;
}

static void
device_free(LlmDevice *d)
{
	if (d == NULL)
		return;
	device_model_clear(d);
	free(d);
}

static LlmDeviceInfo
device_info(const LlmDevice *d)
{
	const LlmCpuDevice *dev = (const LlmCpuDevice *) d;
	LlmDeviceInfo info = {.kind = "cpu",
						  .isa = dev->kernels->isa,
						  .n_threads = llm_pool_threads(dev->pool),
						  .n_used = dev->threads.n,
						  .weight_nbytes = dev->weights.nbytes};

	for (int g = 0; g < dev->n_groups; g++)
		info.kv_page_nbytes += (int64_t) dev->kv[g].page_nbytes;
	return info;
}

static LlmStatus
device_linear_create(LlmDevice *d, const LlmWeightView *parts, int n_parts,
					 const LlmLinearSpec *spec, LlmLinear **out, LlmError *err)
{
	LlmCpuDevice *dev = self(d);

	return llm_linear_create(&dev->weights, dev->pool, parts, n_parts, spec, out, err);
}

static int32_t
device_linear_forms(const LlmDevice *d, const LlmLinear *l)
{
	(void) d;
	return l->forms;
}

static LlmStatus
device_kv_create(LlmDevice *d, const LlmKvGroup *groups, int n_groups, int32_t n_pages,
				 LlmError *err)
{
	LlmCpuDevice *dev = self(d);

	if (dev->n_groups != 0 || n_groups < 1 || n_groups > LLM_KV_GROUPS_MAX)
		return llm_error_set(err, LLM_E_INTERNAL, "KV store of %d groups, %d exist", n_groups,
							 dev->n_groups);
	for (int g = 0; g < n_groups; g++)
	{
		LlmStatus status = llm_kv_pages_init(&dev->kv[g], &groups[g], n_pages, err);

		if (status != LLM_OK)
		{
			for (int i = 0; i < g; i++)
				llm_kv_pages_fini(&dev->kv[i]);
			return status;
		}
	}
	dev->n_groups = n_groups;
	return LLM_OK;
}

static int64_t
device_kv_page_nbytes(const LlmDevice *d, const LlmKvGroup *group)
{
	(void) d;
	return llm_kv_pages_page_nbytes(group);
}

static void
device_kv_copy(LlmDevice *d, int group, int32_t from, int32_t to, int32_t n_tokens)
{
	LlmKvPages *kv = &self(d)->kv[group];

	if (to > 0 && to < kv->n_pages && from >= 0 && from < kv->n_pages && from != to)
		llm_kv_pages_copy(kv, from, to, n_tokens);
}

/* Group and page numbers of an export or import; page 0 may be read only. */
static LlmStatus
pages_check(const LlmCpuDevice *dev, int group, const int32_t *pages, int n_pages, int32_t first,
			LlmError *err)
{
	if (group < 0 || group >= dev->n_groups)
		return llm_error_set(err, LLM_E_INTERNAL, "KV group %d of %d", group, dev->n_groups);
	for (int i = 0; i < n_pages; i++)
		if (pages[i] < first || pages[i] >= dev->kv[group].n_pages)
			return llm_error_set(err, LLM_E_INTERNAL, "KV page %" PRId32 " of %" PRId32, pages[i],
								 dev->kv[group].n_pages);
	return LLM_OK;
}

static size_t
page_floats(const LlmKvGroup *g)
{
	return (size_t) LLM_PAGE_TOKENS * (size_t) g->n_layers * (size_t) g->n_kv_heads *
		   (size_t) (g->k_dim + g->v_dim);
}

static LlmStatus
device_kv_export(LlmDevice *d, int group, const int32_t *pages, int n_pages, float *out,
				 LlmError *err)
{
	LlmCpuDevice *dev = self(d);
	LlmStatus status = pages_check(dev, group, pages, n_pages, 0, err);

	for (int i = 0; status == LLM_OK && i < n_pages; i++)
		llm_kv_pages_export(&dev->kv[group], pages[i],
							out + (size_t) i * page_floats(&dev->kv[group].group));
	return status;
}

static LlmStatus
device_kv_import(LlmDevice *d, int group, const int32_t *pages, int n_pages, const float *in,
				 LlmError *err)
{
	LlmCpuDevice *dev = self(d);
	LlmStatus status = pages_check(dev, group, pages, n_pages, 1, err);

	for (int i = 0; status == LLM_OK && i < n_pages; i++)
		if (!llm_kv_pages_import(&dev->kv[group], pages[i],
								 in + (size_t) i * page_floats(&dev->kv[group].group)))
			status = llm_error_set(err, LLM_E_INVALID, "KV page %" PRId32 " gets a NaN", pages[i]);
	return status;
}

static const char *const kind_names[LLM_CPU_N_KINDS] = {
	[LLM_CPU_EMBED] = "embed",
	[LLM_CPU_NORM] = "norm",
	[LLM_CPU_LINEAR + LLM_LINEAR_OTHER] = "linear",
	[LLM_CPU_LINEAR + LLM_LINEAR_QKV] = "qkv",
	[LLM_CPU_LINEAR + LLM_LINEAR_ATTN_OUT] = "attn_out",
	[LLM_CPU_LINEAR + LLM_LINEAR_GATE_UP] = "gate_up",
	[LLM_CPU_LINEAR + LLM_LINEAR_DOWN] = "down",
	[LLM_CPU_LINEAR + LLM_LINEAR_HEAD] = "head",
	[LLM_CPU_GATE] = "gate",
	[LLM_CPU_ROPE] = "rope_kv_write",
	[LLM_CPU_ATTENTION] = "attention",
	[LLM_CPU_QUANTISE] = "quantise",
	[LLM_CPU_GATHER] = "gather_rows",
	[LLM_CPU_SAMPLE] = "sample",
	[LLM_CPU_RECORD] = "record",
};

static void
stats_reset(LlmCpuDevice *dev)
{
	for (int i = 0; i < LLM_CPU_N_KINDS; i++)
		dev->stats[i] = (LlmOpStat){.name = kind_names[i]};
	for (int t = 0; dev->scratch != NULL && t < llm_pool_threads(dev->pool); t++)
		memset(dev->scratch[t].waited, 0, sizeof(dev->scratch[t].waited));
}

static void
device_op_times(LlmDevice *d, bool on)
{
	self(d)->timed = on;
}

static int
device_op_stats(LlmDevice *d, LlmOpStat *out, int n, bool reset)
{
	LlmCpuDevice *dev = self(d);
	int n_threads = llm_pool_threads(dev->pool);

	n = n < LLM_CPU_N_KINDS ? n : LLM_CPU_N_KINDS;
	for (int i = 0; i < n; i++)
	{
		out[i] = dev->stats[i];
		for (int t = 0; dev->scratch != NULL && t < n_threads; t++)
			out[i].waited += dev->scratch[t].waited[i] / n_threads;
	}
	if (reset)
		stats_reset(dev);
	return n;
}

static const LlmDeviceOps device_ops = {
	.free = device_free,
	.info = device_info,
	.limits_set = llm_cpu_limits_set,
	.model_clear = device_model_clear,
	.linear_create = device_linear_create,
	.linear_forms = device_linear_forms,
	.kv_create = device_kv_create,
	.kv_page_nbytes = device_kv_page_nbytes,
	.kv_copy = device_kv_copy,
	.kv_export = device_kv_export,
	.kv_import = device_kv_import,
	.step_begin = llm_cpu_step_begin,
	.act_create = llm_cpu_act_create,
	.embed = llm_cpu_embed,
	.norm = llm_cpu_norm,
	.linear = llm_cpu_linear,
	.rope_kv_write = llm_cpu_rope_kv_write,
	.attention = llm_cpu_attention,
	.gather_rows = llm_cpu_gather_rows,
	.sample = llm_cpu_sample,
	.step_end = llm_cpu_step_end,
	.step_wait = llm_cpu_step_wait,
	.op_stats = device_op_stats,
	.op_times = device_op_times,
};

/* " generic avx2": names that can run here, for a message. */
static void
names_list(char *out, size_t n)
{
	const LlmKernels *all[LLM_KERNELS_MAX];
	int n_all = llm_kernels_list(all);
	size_t len = 0;

	out[0] = '\0';
	for (int i = 0; i < n_all && len < n; i++)
		len += (size_t) snprintf(out + len, n - len, " %s", all[i]->isa);
}

void
llm_cpu_device_share(LlmDevice *d, bool on)
{
	self(d)->share = on;
}

LlmStatus
llm_cpu_device_create(LlmPool *pool, const char *isa, LlmDevice **out, LlmError *err)
{
	const LlmKernels *kernels = llm_kernels_find(isa);
	LlmCpuDevice *dev;

	*out = NULL;
	if (kernels == NULL)
	{
		char names[64];

		names_list(names, sizeof(names));
		return llm_error_set(err, LLM_E_INVALID, "this machine cannot run \"%s\"; it can:%s", isa,
							 names);
	}
	dev = calloc(1, sizeof(*dev));
	if (dev == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory: %zu bytes for the CPU device",
							 sizeof(*dev));
	dev->base.ops = &device_ops;
	dev->pool = pool;
	llm_cpu_threads_init(&dev->threads, llm_pool_threads(pool));
	dev->kernels = kernels;
	dev->share = true;
	stats_reset(dev);
	*out = &dev->base;
	return LLM_OK;
}
