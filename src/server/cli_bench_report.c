/*
 * server/cli_bench_report.c - tokens per second, and each op beside the limits of the machine.
 *
 * The roofline of an op is the time that the machine needs at least, at full bandwidth for its bytes
 * or at its peak for its operations, whichever is longer; that of a phase is the sum over its ops.
 * Fractions of a whole phase refer to its wall time, those of an op to the time from its first
 * thread's start to its last one's end. "outside" is what of the wall time no op took: planning the
 * batch, taking the tokens, detokenising. Integer products are compared with the peak of the vector
 * instruction, also where tiles do them, so that one scale serves all ISAs; attention and products
 * of float weights with the float peak.
 */
#include "server/cli_bench_report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct
{
	const char *name; /* key of the JSON report */
	size_t at;        /* of an LlmLimit in LlmMachineLimits */
} limit_fields[] = {
	{"read_bandwidth", offsetof(LlmMachineLimits, read_all)},
	{"read_bandwidth_1", offsetof(LlmMachineLimits, read_one)},
	{"read_bandwidth_weights", offsetof(LlmMachineLimits, read_weights)},
	{"int8_ops", offsetof(LlmMachineLimits, int8_ops)},
	{"amx_ops", offsetof(LlmMachineLimits, amx_ops)},
	{"f32_ops", offsetof(LlmMachineLimits, f32_ops)},
};

#define N_LIMITS (sizeof(limit_fields) / sizeof(limit_fields[0]))

static const LlmLimit *
limit_of(const LlmMachineLimits *m, size_t field)
{
	return (const LlmLimit *) ((const char *) m + limit_fields[field].at);
}

static int
median_cmp(const void *a, const void *b)
{
	double x = ((const LlmLimit *) a)->median, y = ((const LlmLimit *) b)->median;

	return x < y ? -1 : x > y;
}

LlmMachineLimits
llm_bench_limits(const LlmMachineLimits *list, size_t n)
{
	LlmMachineLimits out = {0};
	LlmLimit *one = calloc(n, sizeof(*one));

	for (size_t f = 0; one != NULL && f < N_LIMITS; f++)
	{
		LlmLimit *limit = (LlmLimit *) ((char *) &out + limit_fields[f].at);

		for (size_t i = 0; i < n; i++)
		{
			one[i] = *limit_of(&list[i], f);
			limit->best = one[i].best > limit->best ? one[i].best : limit->best;
		}
		qsort(one, n, sizeof(*one), median_cmp);
		limit->median = one[n / 2].median;
	}
	free(one);
	return out;
}

static double
fraction(double amount, double seconds, double limit)
{
	return seconds > 0 && limit > 0 ? amount / seconds / limit : 0;
}

/* What an op's operations per second are compared with. */
static double
op_peak(const LlmBenchReport *r, const char *name)
{
	static const char *const floats[] = {"F32", "F16", "BF16"};
	bool is_float = false;

	if (strcmp(name, "attention") == 0)
		return r->int8_kv ? r->limits.int8_ops.best : r->limits.f32_ops.best;
	for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
		is_float = is_float || strcmp(r->info->quantization, floats[i]) == 0;
	return is_float ? r->limits.f32_ops.best : r->limits.int8_ops.best;
}

/* Seconds that an op takes at least. */
static double
op_roofline(const LlmBenchReport *r, const LlmEngineOpStat *o)
{
	double read = fraction(o->nbytes, 1, r->limits.read_all.best);
	double multiply = fraction(o->ops, 1, op_peak(r, o->name));

	return read > multiply ? read : multiply;
}

/* An op of a phase, per repetition. */
static LlmEngineOpStat
op_mean(const LlmBenchReport *r, const LlmEngineOpStat *o)
{
	LlmEngineOpStat mean = *o;

	mean.calls /= r->reps;
	mean.seconds /= r->reps;
	mean.waited /= r->reps;
	mean.nbytes /= r->reps;
	mean.ops /= r->reps;
	return mean;
}

/* All ops of a phase, per repetition. */
typedef struct Total
{
	LlmEngineOpStat all;
	double outside; /* seconds of the mean wall time that no op took */
	double roofline;
} Total;

static Total
phase_total(const LlmBenchReport *r, const LlmBenchPhase *p)
{
	Total t = {.all = {.name = "all"}};

	for (int i = 0; i < r->reps; i++)
		t.outside += p->seconds[i] / r->reps;
	for (int i = 0; i < p->n_ops; i++)
	{
		LlmEngineOpStat o = op_mean(r, &p->ops[i]);

		t.all.calls += o.calls;
		t.all.seconds += o.seconds;
		t.all.waited += o.waited;
		t.all.nbytes += o.nbytes;
		t.all.ops += o.ops;
		t.roofline += op_roofline(r, &o);
	}
	t.outside -= t.all.seconds;
	return t;
}

/* ---- text ---- */

static void
op_print(const LlmBenchReport *r, const LlmEngineOpStat *o, double roofline, double wall)
{
	double s = o->seconds > 0 ? o->seconds : 1e-9;

	printf("  %-14s %8lld %10.2f %6.1f%% %6.1f%%", o->name, (long long) o->calls, 1e3 * o->seconds,
		   100 * o->seconds / wall, 100 * o->waited / s);
	if (roofline > 0)
		printf(" %6.1f%%", 100 * roofline / s);
	if (o->nbytes > 0)
		printf(" %8.2f %6.1f%%", 1e-9 * o->nbytes / s,
			   100 * fraction(o->nbytes, s, r->limits.read_all.best));
	if (o->ops > 0)
		printf(" %8.1f %6.1f%%", 1e-9 * o->ops / s, 100 * fraction(o->ops, s, op_peak(r, o->name)));
	putchar('\n');
}

static void
ops_print(const LlmBenchReport *r, const LlmBenchPhase *p)
{
	Total t = phase_total(r, p);
	double wall = t.all.seconds + t.outside;

	printf("  %-14s %8s %10s %7s %7s %7s %8s %7s %8s %7s\n", "op", "calls", "ms", "time", "waited",
		   "roof", "GB/s", "bw", "Gop/s", "peak");
	for (int i = 0; i < p->n_ops; i++)
	{
		LlmEngineOpStat o = op_mean(r, &p->ops[i]);

		if (o.calls > 0)
			op_print(r, &o, op_roofline(r, &o), wall);
	}
	op_print(r, &t.all, t.roofline, wall);
	printf("  %-14s %8s %10.2f %6.1f%%\n", "outside", "", 1e3 * t.outside, 100 * t.outside / wall);
}

static void
phase_print(const LlmBenchReport *r, const LlmBenchPhase *p, bool profile)
{
	double s = p->seconds[r->reps / 2];
	Total t = phase_total(r, p);

	if (p->batch == 0)
		printf("\nprefill of %d", p->prompt);
	else
		printf("\ndecode, batch %d, depth %d", p->batch, p->prompt);
	if (p->shared > 0)
		printf(", %d shared", p->shared);
	printf(": %.1f tokens/s (%lld tokens in %.1f ms; best %.1f)\n", (double) p->tokens / s,
		   (long long) p->tokens, 1e3 * s, (double) p->tokens / p->seconds[0]);
	printf("  %.1f%% of bandwidth, %.1f%% of the int8 peak",
		   100 * fraction(t.all.nbytes, s, r->limits.read_all.best),
		   100 * fraction(t.all.ops, s, r->limits.int8_ops.best));
	if (r->limits.amx_ops.best > 0)
		printf(" (%.1f%% of that of tiles)", 100 * fraction(t.all.ops, s, r->limits.amx_ops.best));
	printf(", %.1f%% of the roofline", 100 * fraction(t.roofline, s, 1));
	putchar('\n');
	if (profile)
		ops_print(r, p);
}

static void
limits_print(const LlmMachineLimits *m)
{
	printf(
		"machine, best (median): read %.1f (%.1f) GB/s, one thread %.1f (%.1f); int8 %.2f (%.2f) "
		"Top/s",
		1e-9 * m->read_all.best, 1e-9 * m->read_all.median, 1e-9 * m->read_one.best,
		1e-9 * m->read_one.median, 1e-12 * m->int8_ops.best, 1e-12 * m->int8_ops.median);
	if (m->read_weights.best > 0)
		printf(", as many bytes as the weights %.1f (%.1f) GB/s", 1e-9 * m->read_weights.best,
			   1e-9 * m->read_weights.median);
	if (m->amx_ops.best > 0)
		printf(", tiles %.2f (%.2f)", 1e-12 * m->amx_ops.best, 1e-12 * m->amx_ops.median);
	printf("; f32 %.3f (%.3f)\n", 1e-12 * m->f32_ops.best, 1e-12 * m->f32_ops.median);
}

/* ---- JSON ---- */

static json_t *
phase_json(const LlmBenchReport *r, const LlmBenchPhase *p)
{
	double s = p->seconds[r->reps / 2];
	Total t = phase_total(r, p);
	json_t *ops = json_array();

	for (int i = 0; i < p->n_ops; i++)
	{
		LlmEngineOpStat o = op_mean(r, &p->ops[i]);

		if (o.calls > 0)
			json_array_append_new(ops,
								  json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "name", o.name,
											"calls", (json_int_t) o.calls, "seconds", o.seconds,
											"waited", o.waited, "bytes", o.nbytes, "ops", o.ops,
											"roofline_seconds", op_roofline(r, &o)));
	}
	return json_pack("{s:s, s:i, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}",
					 "phase", p->batch == 0 ? "prefill" : "decode", "batch",
					 p->batch == 0 ? 1 : p->batch, p->batch == 0 ? "prompt" : "depth", p->prompt,
					 "shared", p->shared, "tokens", (json_int_t) p->tokens, "seconds", s,
					 "tokens_per_second", (double) p->tokens / s, "best_tokens_per_second",
					 (double) p->tokens / p->seconds[0], "bandwidth_fraction",
					 fraction(t.all.nbytes, s, r->limits.read_all.best), "weights_fraction",
					 fraction(t.all.nbytes, s, r->limits.read_weights.best), "int8_fraction",
					 fraction(t.all.ops, s, r->limits.int8_ops.best), "roofline_fraction",
					 fraction(t.roofline, s, 1), "outside_seconds", t.outside, "ops", ops);
}

static void
json_print(const LlmBenchReport *r)
{
	const LlmModelInfo *m = r->info;
	json_t *list = json_array(), *all;

	for (size_t i = 0; i < r->n_phases; i++)
		json_array_append_new(list, phase_json(r, &r->phases[i]));
	all = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:i}", "arch", m->arch, "quantization",
					m->quantization, "parameters", (json_int_t) m->n_params, "device_bytes",
					(json_int_t) m->device_nbytes, "device", m->device, "isa", m->isa, "threads",
					r->threads);
	for (size_t f = 0; f < N_LIMITS; f++)
	{
		const LlmLimit *limit = limit_of(&r->limits, f);
		char name[40];

		snprintf(name, sizeof(name), "%s_median", limit_fields[f].name);
		json_object_set_new(all, limit_fields[f].name, json_real(limit->best));
		json_object_set_new(all, name, json_real(limit->median));
	}
	json_object_set_new(all, "phases", list);
	json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(all);
}

void
llm_bench_report_print(const LlmBenchReport *r, bool profile, bool json)
{
	const LlmModelInfo *m = r->info;

	if (json)
	{
		json_print(r);
		return;
	}
	printf("%s %s, %.1f million parameters, %.1f MB on %s %s, %d threads\n", m->arch,
		   m->quantization, (double) m->n_params * 1e-6, (double) m->device_nbytes * 1e-6,
		   m->device, m->isa, r->threads);
	limits_print(&r->limits);
	for (size_t i = 0; i < r->n_phases; i++)
		phase_print(r, &r->phases[i], profile);
}
