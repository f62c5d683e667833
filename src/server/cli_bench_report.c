/* server/cli_bench_report.c - tokens per second, and each op beside the limits of the machine. */
#include "server/cli_bench_report.h"

#include <jansson.h>
#include <stdio.h>

static double
fraction(double amount, double seconds, double limit)
{
	return seconds > 0 && limit > 0 ? amount / seconds / limit : 0;
}

/* All ops of a phase in one, per repetition, with the wall time of the phase. */
static LlmEngineOpStat
phase_total(const LlmBenchReport *r, const LlmBenchPhase *p)
{
	LlmEngineOpStat t = {.name = "all", .seconds = p->seconds[r->reps / 2]};

	for (int i = 0; i < p->n_ops; i++)
	{
		t.calls += p->ops[i].calls;
		t.nbytes += p->ops[i].nbytes / (double) r->reps;
		t.ops += p->ops[i].ops / (double) r->reps;
	}
	return t;
}

static void
phase_print(const LlmBenchReport *r, const LlmBenchPhase *p, bool profile)
{
	LlmEngineOpStat t = phase_total(r, p);

	printf("\n%s, batch %d: %.1f tokens/s (%lld tokens in %.1f ms; best %.1f)\n", p->name, p->batch,
		   (double) p->tokens / t.seconds, (long long) p->tokens, 1e3 * t.seconds,
		   (double) p->tokens / p->seconds[0]);
	printf("  %.1f%% of bandwidth, %.1f%% of the int8 peak\n",
		   100 * fraction(t.nbytes, t.seconds, r->limits.read_bandwidth),
		   100 * fraction(t.ops, t.seconds, r->limits.int8_ops));
	if (!profile)
		return;
	if (p->n_ops > 0)
		printf("  %-20s %9s %10s %7s %9s %7s %9s %7s\n", "op", "calls", "ms", "time", "GB/s", "bw",
			   "Gop/s", "peak");
	for (int i = 0; i < p->n_ops; i++)
	{
		const LlmEngineOpStat *o = &p->ops[i];
		double s = o->seconds > 0 ? o->seconds : 1e-9;

		if (o->calls == 0)
			continue;
		printf("  %-20s %9lld %10.2f %6.1f%% %9.2f %6.1f%% %9.1f %6.1f%%\n", o->name,
			   (long long) (o->calls / r->reps), 1e3 * o->seconds / (double) r->reps,
			   100 * o->seconds / (double) r->reps / t.seconds, 1e-9 * o->nbytes / s,
			   100 * fraction(o->nbytes, s, r->limits.read_bandwidth), 1e-9 * o->ops / s,
			   100 * fraction(o->ops, s, r->limits.int8_ops));
	}
}

static json_t *
phase_json(const LlmBenchReport *r, const LlmBenchPhase *p)
{
	LlmEngineOpStat t = phase_total(r, p);
	json_t *ops = json_array();

	for (int i = 0; i < p->n_ops; i++)
	{
		const LlmEngineOpStat *o = &p->ops[i];
		double reps = (double) r->reps;

		json_array_append_new(ops, json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", o->name, "calls",
											 (json_int_t) (o->calls / r->reps), "seconds",
											 o->seconds / reps, "bytes", o->nbytes / reps, "ops",
											 o->ops / reps));
	}
	return json_pack("{s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "phase", p->name, "batch",
					 p->batch, "tokens", (json_int_t) p->tokens, "seconds", t.seconds,
					 "tokens_per_second", (double) p->tokens / t.seconds, "best_tokens_per_second",
					 (double) p->tokens / p->seconds[0], "bandwidth_fraction",
					 fraction(t.nbytes, t.seconds, r->limits.read_bandwidth), "int8_fraction",
					 fraction(t.ops, t.seconds, r->limits.int8_ops), "ops", ops);
}

void
llm_bench_report_print(const LlmBenchReport *r, bool profile, bool json)
{
	const LlmModelInfo *m = r->info;
	json_t *list, *all;

	if (!json)
	{
		printf("%s %s, %.1f million parameters, %.1f MB on %s %s, %d threads\n", m->arch,
			   m->quantization, (double) m->n_params * 1e-6, (double) m->device_nbytes * 1e-6,
			   m->device, m->isa, r->threads);
		printf("machine: %.1f GB/s read, %.2f int8 Top/s, %.3f f32 Top/s\n",
			   1e-9 * r->limits.read_bandwidth, 1e-12 * r->limits.int8_ops,
			   1e-12 * r->limits.f32_ops);
		for (size_t i = 0; i < r->n_phases; i++)
			phase_print(r, &r->phases[i], profile);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < r->n_phases; i++)
		json_array_append_new(list, phase_json(r, &r->phases[i]));
	all = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:i, s:f, s:f, s:f, s:o}", "arch", m->arch,
					"quantization", m->quantization, "parameters", (json_int_t) m->n_params,
					"device_bytes", (json_int_t) m->device_nbytes, "device", m->device, "isa",
					m->isa, "threads", r->threads, "read_bandwidth", r->limits.read_bandwidth,
					"int8_ops", r->limits.int8_ops, "f32_ops", r->limits.f32_ops, "phases", list);
	json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(all);
}
