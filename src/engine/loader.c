/* engine/loader.c - open a model: file, tokenizer, template, device, weights, KV store. */
#include "engine/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/log.h"
#include "echo/echo_device.h"
#include "engine/file_digest.h"
#include "engine/kv_rule.h"
#include "engine/vocab_source.h"
#include "kernels/cpu_device.h"

#define ECHO_PATH "echo:"
#define KV_PAGES_MAX (1 << 24)
#define CONTEXT_MAX (1 << 20)
#define SCORE_ROWS 64 /* outputs of a step beside one per sequence: for prompts that are scored */
#define TEMPERATURE_DEFAULT 0.7f
#define TEMPERATURE_MAX 100.0f

#ifndef LLM_BUILD_ID
#define LLM_BUILD_ID LLM_VERSION
#endif

/* ---- devices ---- */

LlmStatus
llm_loader_devices(const char *list, LlmDeviceList *out, LlmError *err)
{
	const char *p = list;

	memset(out, 0, sizeof(*out));
	for (;;)
	{
		size_t n;
		LlmStr name;

		p += strspn(p, " ");
		n = strcspn(p, ",");
		name = (LlmStr){p, n};
		while (name.len > 0 && name.p[name.len - 1] == ' ')
			name.len--;
		if (llm_str_eq(name, "auto") || llm_str_eq(name, "cpu"))
			out->cpu = true;
		else if (llm_str_eq(name, "echo"))
			out->echo = true;
		else if (name.len >= 4 && memcmp(name.p, "cuda", 4) == 0)
			return llm_error_set(err, LLM_E_UNSUPPORTED, "the device \"cuda\" is not built in");
		else
		{
			llm_error_set(err, LLM_E_INVALID, "\"%.*s\" is no device",
						  (int) (name.len < 64 ? name.len : 64), name.p);
			llm_error_hint(err, "Devices are auto, or a list of cpu and echo.");
			return LLM_E_INVALID;
		}
		if (p[n] == '\0')
			return LLM_OK;
		p += n + 1;
	}
}

/* More threads than CPUs would wait for each other at every barrier, a scheduler's slice each time. */
static int32_t
threads_allowed(int32_t wanted)
{
	int32_t cpus = llm_pool_cpus();

	if (wanted <= cpus)
		return wanted;
	llm_log(LLM_LOG_WARNING, "%d threads were asked for, but only %d CPUs may be used: using %d",
			wanted, cpus, cpus);
	return cpus;
}

static LlmStatus
device_open(const LlmLoaderArgs *a, bool echo, LlmLoaded *m, LlmError *err)
{
	LlmDeviceList devices;
	LlmStatus st = llm_loader_devices(a->options->devices, &devices, err);

	if (st != LLM_OK)
		return st;
	if (echo ? !devices.echo : !devices.cpu)
	{
		llm_error_set(err, LLM_E_MODEL, "no device for \"%.100s\" among \"%.40s\"", a->spec->path,
					  a->options->devices);
		llm_error_hint(err, "Add %s to the list of devices.", echo ? "echo" : "cpu");
		return LLM_E_MODEL;
	}
	if (echo)
		return llm_echo_device_create(a->options->fault, &m->dev, err);
	if ((st = llm_pool_create(threads_allowed(a->options->threads), &m->pool, err)) != LLM_OK)
		return st;
	return llm_cpu_device_create(m->pool, a->options->isa, &m->dev, err);
}

void
llm_loader_measure(const LlmLoaded *m, int32_t threads, double seconds, LlmMachineLimits *out)
{
	LlmPool *pool = m->pool;

	memset(out, 0, sizeof(*out));
	if (pool == NULL && llm_pool_create(threads, &pool, NULL) != LLM_OK)
		return;
	llm_cpu_limits_measure(pool, m->info.device_nbytes, seconds, out);
	if (pool != m->pool)
		llm_pool_free(pool);
}

/* ---- text ---- */

/* A template that does not parse is refused here; what only shows while it runs, at its prompt. */
static LlmStatus
template_open(LlmStr source, LlmLoaded *m, LlmError *err)
{
	LlmStatus st = llm_template_parse(source, &m->tmpl, err);

	m->info.has_template = true;
	m->think = llm_think_marks(source, m->tok);
	if (st != LLM_OK)
		llm_error_hint(err, "Give the model another template by its option chat_template.");
	return st;
}

/* Ids that are never picked, and the longest token. */
static LlmStatus
tokenizer_facts(LlmLoaded *m, LlmError *err)
{
	int32_t n = llm_tokenizer_vocab_size(m->tok);
	const int32_t *end = llm_tokenizer_end_ids(m->tok, &m->n_end);
	int32_t *ids = malloc((size_t) (n + m->n_end) * sizeof(*ids));

	if (ids == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a vocabulary");
	m->banned = m->banned_memory = ids;
	for (int32_t id = 0; id < n; id++)
	{
		int32_t len = (int32_t) llm_tokenizer_piece(m->tok, id, false).len;

		m->max_piece = len > m->max_piece ? len : m->max_piece;
		if (llm_tokenizer_is_unused(m->tok, id))
			ids[m->n_banned++] = id;
	}
	memcpy(ids + m->n_banned, end, (size_t) m->n_end * sizeof(*ids));
	return LLM_OK;
}

static LlmStatus
text_open_gguf(const LlmLoaderArgs *a, const LlmGguf *g, LlmLoaded *m, LlmError *err)
{
	const char *template_key = "tokenizer.chat_template";
	const char *temp_key = "general.sampling.temp";
	LlmStr source = llm_str(a->spec->chat_template);
	LlmStatus st;

	if ((st = llm_gguf_f32(g, temp_key, false, &m->temperature, err)) != LLM_OK)
		return st;
	if (!(m->temperature >= 0.0f && m->temperature <= TEMPERATURE_MAX))
		return llm_error_set(err, LLM_E_MODEL, "key \"%s\" is %g, not 0 to %g", temp_key,
							 (double) m->temperature, (double) TEMPERATURE_MAX);
	if ((st = llm_vocab_source_gguf(g, &m->tok, err)) != LLM_OK ||
		(st = tokenizer_facts(m, err)) != LLM_OK)
		return st;
	if (a->spec->chat_template == NULL)
	{
		if ((st = llm_gguf_str(g, template_key, false, &source, err)) != LLM_OK)
			return st;
		if (!llm_gguf_has(g, template_key))
			return LLM_OK;
	}
	st = template_open(source, m, err);
	if (st != LLM_OK && a->spec->chat_template == NULL)
		llm_error_detail(err, "key \"%s\"", template_key);
	return st;
}

static LlmStatus
text_open_echo(const LlmLoaderArgs *a, LlmLoaded *m, LlmError *err)
{
	static const LlmByteVocab vocab = {LLM_ECHO_BOS, LLM_ECHO_EOS, LLM_ECHO_TURN, LLM_ECHO_VOCAB};
	const char *source = a->spec->chat_template;
	LlmStatus st;

	if ((st = llm_vocab_source_bytes(&vocab, &m->tok, err)) != LLM_OK ||
		(st = tokenizer_facts(m, err)) != LLM_OK)
		return st;
	return template_open(llm_str(source != NULL ? source : llm_vocab_source_bytes_template()), m,
						 err);
}

/* ---- memory ---- */

static LlmStatus
store_open(const LlmLoaderArgs *a, LlmDtype kv_type, LlmLoaded *m, LlmError *err)
{
	LlmKvGroup groups[LLM_KV_GROUPS_MAX];
	int n_groups = llm_model_kv_groups(m->model, kv_type, groups);
	int64_t left = a->options->memory_left - m->dev->ops->info(m->dev).weight_nbytes;
	int64_t page_nbytes = 0;
	LlmKvSize size;
	LlmStatus st;

	for (int g = 0; g < n_groups; g++)
		page_nbytes += m->dev->ops->kv_page_nbytes(m->dev, &groups[g]);
	left = left < 0 ? 0 : left;
	size = llm_kv_rule(a->options, page_nbytes, m->info.context_length,
					   a->options->memory_limit > 0 ? left : -1);
	st = llm_kv_store_create(&m->store, m->dev, groups, n_groups, size.nbytes, KV_PAGES_MAX, err);
	if (st != LLM_OK)
		return st;
	m->info.kv_pages = m->store.n_pages - 1;
	m->info.kv_page_nbytes = m->store.page_nbytes;
	snprintf(m->info.kv_rule, sizeof(m->info.kv_rule), "%s", size.why);
	return LLM_OK;
}

/* The step's sizes, fixed while the model is loaded. */
static LlmStatus
limits_open(const LlmLoaderArgs *a, LlmLoaded *m, LlmError *err)
{
	LlmDeviceLimits limits;

	m->max_rows = a->options->max_batch_tokens;
	m->max_seqs = a->options->max_running < m->max_rows ? a->options->max_running : m->max_rows;
	m->max_out = m->max_seqs + SCORE_ROWS;
	if (a->all_outputs || m->max_out > m->max_rows)
		m->max_out = m->max_rows;
	limits = llm_model_limits(m->model, m->max_rows, m->max_out);
	limits.max_seqs = m->max_seqs;
	limits.max_pos = m->info.context_length;
	return m->dev->ops->limits_set(m->dev, &limits, err);
}

/* ---- the whole ---- */

/* "f16" is the default. */
static LlmStatus
kv_type_read(const char *name, LlmDtype *out, LlmError *err)
{
	static const struct
	{
		const char *name;
		LlmDtype type;
	} types[] = {{"f16", LLM_DTYPE_F16}, {"f32", LLM_DTYPE_F32}, {"int8", LLM_DTYPE_I8}};

	*out = LLM_DTYPE_F16;
	if (name == NULL)
		return LLM_OK;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
	{
		*out = types[i].type;
		if (strcmp(name, types[i].name) == 0)
			return LLM_OK;
	}
	return llm_error_set(err, LLM_E_INVALID, "kv_type \"%.32s\" is none of f16, f32, int8", name);
}

/* What decides over bits (rule R1): build, device kind, ISA, model file, KV type. */
static uint64_t
numerics_key(const LlmModelInfo *info, const char *kind, LlmDtype kv_type)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "%s|%s|%s|%016llx%016llx|%d", LLM_BUILD_ID, kind,
					 info->isa, (unsigned long long) info->digest[0],
					 (unsigned long long) info->digest[1], (int) kv_type);

	return XXH3_64bits(text, (size_t) n < sizeof(text) ? (size_t) n : sizeof(text) - 1);
}

static void
info_fill(LlmLoaded *m, LlmDtype kv_type)
{
	const LlmModelConfig *c = llm_model_config(m->model);
	LlmDeviceInfo d = m->dev->ops->info(m->dev);

	snprintf(m->info.arch, sizeof(m->info.arch), "%s", c->arch);
	snprintf(m->info.quantization, sizeof(m->info.quantization), "%s", c->quantization);
	snprintf(m->info.isa, sizeof(m->info.isa), "%s", d.isa);
	snprintf(m->info.device, sizeof(m->info.device), "%s", d.kind);
	m->info.n_params = c->n_params;
	m->info.nbytes = c->file_nbytes;
	m->info.device_nbytes = d.weight_nbytes;
	m->info.kv_nbytes_per_token = llm_kv_store_token_nbytes(&m->store);
	m->info.vocab_size = llm_tokenizer_vocab_size(m->tok);
	m->info.numerics_key = numerics_key(&m->info, d.kind, kv_type);
}

static void
model_progress(void *arg, int64_t nbytes_done)
{
	const LlmLoaderArgs *a = arg;

	a->progress(a->arg);
}

/* Weights, or the echo model; the context in force. */
static LlmStatus
model_open(const LlmLoaderArgs *a, const LlmGguf *g, LlmLoaded *m, LlmError *err)
{
	int32_t wanted = a->spec->context_length;
	LlmStatus st;

	if (wanted < 0 || wanted > CONTEXT_MAX)
		return llm_error_set(err, LLM_E_INVALID, "context_length is %d, not 0 to %d", wanted,
							 CONTEXT_MAX);
	if (g == NULL)
		st = llm_model_create_echo(m->dev, wanted, &m->model, err);
	else
		st = llm_model_create(g, m->dev, model_progress, (void *) a, &m->model, err);
	if (st != LLM_OK)
	{
		m->model = NULL;
		return st;
	}
	m->info.context_length = llm_model_config(m->model)->context_length;
	if (wanted > 0 && wanted < m->info.context_length)
		m->info.context_length = wanted;
	return LLM_OK;
}

/* Device, and tokenizer, template and weights of a file, beside its digest. */
static LlmStatus
file_open(const LlmLoaderArgs *a, const LlmGguf *g, LlmLoaded *m, LlmError *err)
{
	LlmModelConfig config;
	LlmFileDigest digest;
	LlmStatus st;

	if ((st = llm_model_config_read(g, &config, err)) != LLM_OK ||
		(st = device_open(a, false, m, err)) != LLM_OK ||
		(st = llm_file_digest_begin(&digest, g, a->progress, a->arg, err)) != LLM_OK)
		return st;
	if ((st = text_open_gguf(a, g, m, err)) == LLM_OK && (st = model_open(a, g, m, err)) == LLM_OK)
		return llm_file_digest_end(&digest, m->info.digest, err);
	llm_file_digest_stop(&digest);
	return st;
}

/* Remember which file was read. */
static LlmStatus
file_note(const LlmLoaderArgs *a, const LlmGguf *g, LlmLoaded *m, LlmError *err)
{
	if (g == NULL)
		return LLM_OK;
	m->file = llm_gguf_file(g)->id;
	m->path = strdup(a->spec->path);
	if (m->path == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a model");
	return LLM_OK;
}

/* An error says which file it is about. */
static void
name_file(LlmError *err, const char *path)
{
	if (err != NULL && err->detail[0] == '\0' && strstr(err->text, path) == NULL)
		llm_error_detail(err, "File: %s", path);
}

LlmStatus
llm_loader_open(const LlmLoaderArgs *a, LlmLoaded *out, LlmError *err)
{
	LlmLoaded m = {.temperature = TEMPERATURE_DEFAULT};
	LlmGguf *g = NULL;
	LlmDtype kv_type;
	LlmStatus st;

	memset(out, 0, sizeof(*out));
	if ((st = kv_type_read(a->spec->kv_type, &kv_type, err)) != LLM_OK)
		return st;
	if (strcmp(a->spec->path, ECHO_PATH) == 0)
	{
		if ((st = device_open(a, true, &m, err)) == LLM_OK &&
			(st = text_open_echo(a, &m, err)) == LLM_OK)
			st = model_open(a, NULL, &m, err);
	}
	else if ((st = llm_gguf_open(a->options->model_dir, a->spec->path, &g, err)) == LLM_OK)
		st = llm_gguf_check(g, a->spec->path, file_open(a, g, &m, err), err);
	if (st == LLM_OK && (st = file_note(a, g, &m, err)) == LLM_OK &&
		(st = store_open(a, kv_type, &m, err)) == LLM_OK &&
		(st = limits_open(a, &m, err)) == LLM_OK)
		info_fill(&m, kv_type);
	if (g != NULL)
		llm_gguf_close(g);
	if (st == LLM_OK)
		*out = m;
	else
	{
		name_file(err, a->spec->path);
		llm_loader_close(&m);
	}
	return st;
}

/* Bytes of a page of 64 tokens, before there is a device to ask: keys and values as they are. */
static int64_t
page_nbytes_of(const LlmModelConfig *c, LlmDtype kv_type)
{
	int64_t vector = 2 * (int64_t) c->head_dim;

	if (kv_type == LLM_DTYPE_F32)
		vector = 4 * (int64_t) c->head_dim;
	else if (kv_type == LLM_DTYPE_I8)
		vector = c->head_dim + (int64_t) sizeof(float); /* and its scale */
	return LLM_PAGE_TOKENS * 2 * vector * c->n_layers * c->n_kv_heads;
}

LlmStatus
llm_loader_needs(const LlmEngineOptions *o, const LlmModelSpec *spec, LlmModelNeeds *out,
				 LlmError *err)
{
	LlmGguf *g = NULL;
	LlmModelConfig c = {.context_length = spec->context_length > 0 ? spec->context_length : 4096,
						.n_layers = 1,
						.n_kv_heads = 1,
						.head_dim = 1};
	LlmDtype kv_type;
	LlmKvSize size;
	LlmStatus st;

	memset(out, 0, sizeof(*out));
	if ((st = kv_type_read(spec->kv_type, &kv_type, err)) != LLM_OK)
		return st;
	if (strcmp(spec->path, ECHO_PATH) != 0)
	{
		if ((st = llm_gguf_open(o->model_dir, spec->path, &g, err)) == LLM_OK)
			st = llm_gguf_check(g, spec->path, llm_model_config_read(g, &c, err), err);
		out->weight_nbytes = c.file_nbytes;
		llm_gguf_close(g);
		if (st != LLM_OK)
		{
			name_file(err, spec->path);
			return st;
		}
	}
	if (spec->context_length > 0 && spec->context_length < c.context_length)
		c.context_length = spec->context_length;
	size = llm_kv_rule(o, page_nbytes_of(&c, kv_type), c.context_length, -1);
	out->kv_nbytes = size.nbytes;
	out->kv_nbytes_min = llm_kv_rule_least(o, page_nbytes_of(&c, kv_type), c.context_length, size);
	return LLM_OK;
}

void
llm_loader_close(LlmLoaded *m)
{
	if (m->dev != NULL)
		m->dev->ops->model_clear(m->dev);
	if (m->model != NULL)
		llm_model_free(m->model);
	if (m->dev != NULL)
		m->dev->ops->free(m->dev);
	if (m->pool != NULL)
		llm_pool_free(m->pool);
	if (m->tok != NULL)
		llm_tokenizer_free(m->tok);
	if (m->tmpl != NULL)
		llm_template_free(m->tmpl);
	free(m->banned_memory);
	free(m->path);
	memset(m, 0, sizeof(*m));
}
