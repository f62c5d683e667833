/*
 * bench_pool.c - what threads cost: a barrier, a run, and steps beside processes that take cores.
 *
 * usage: bench_pool [THREADS [STEPS]]. A step is like one of decode: 245 phases of some 10 us on
 * each thread. Busy processes are children of this one, each bound to a core.
 *
 * links: core
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/pool.h"

#define N_PHASES 245
#define STEPS_MAX 10000
#define N_BARRIERS 20000
#define N_RUNS 5000
#define BUSY_MAX 64

typedef struct Bench
{
	LlmPool *pool;
	int turns; /* of the loop that stands for the work of a phase */
	double step[STEPS_MAX];
} Bench;

static void
work(int turns)
{
	for (volatile int i = 0; i < turns; i++)
		;
}

static void
nothing(void *arg, int tid, int n_threads)
{
	(void) arg, (void) tid, (void) n_threads;
}

static void
barriers(void *arg, int tid, int n_threads)
{
	Bench *b = arg;

	(void) tid, (void) n_threads;
	for (int i = 0; i < N_BARRIERS; i++)
		llm_pool_barrier(b->pool);
}

static void
phases(void *arg, int tid, int n_threads)
{
	Bench *b = arg;

	(void) tid, (void) n_threads;
	for (int i = 0; i < N_PHASES; i++)
	{
		work(b->turns);
		llm_pool_barrier(b->pool);
	}
}

static int
double_cmp(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* Microseconds of a run of nothing, best of all; idle_us: time between runs. */
static double
run_time(Bench *b, int n, int idle_us)
{
	double *t = b->step;

	for (int i = 0; i < n; i++)
	{
		if (idle_us > 0)
			usleep((useconds_t) idle_us);
		t[i] = llm_clock_seconds();
		llm_pool_run(b->pool, nothing, b);
		t[i] = llm_clock_seconds() - t[i];
	}
	qsort(t, (size_t) n, sizeof(*t), double_cmp);
	return 1e6 * t[n / 2];
}

static void
steps_run(Bench *b, int n, int n_busy)
{
	pid_t child[BUSY_MAX];
	double all = llm_clock_seconds();

	for (int i = 0; i < n_busy; i++)
		if ((child[i] = fork()) == 0)
		{
			cpu_set_t set;

			CPU_ZERO(&set);
			CPU_SET(llm_pool_cpus() - 1 - i, &set);
			sched_setaffinity(0, sizeof(set), &set);
			for (;;)
				work(1000);
		}
	if (n_busy > 0)
		usleep(100000);
	all = llm_clock_seconds();
	for (int i = 0; i < n; i++)
	{
		b->step[i] = llm_clock_seconds();
		llm_pool_run(b->pool, phases, b);
		b->step[i] = llm_clock_seconds() - b->step[i];
	}
	all = llm_clock_seconds() - all;
	for (int i = 0; i < n_busy; i++)
	{
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	qsort(b->step, (size_t) n, sizeof(double), double_cmp);
	printf("%d busy: %d steps, ms: mean %.2f, median %.2f, 99%% %.2f, worst %.2f\n", n_busy, n,
		   1e3 * all / n, 1e3 * b->step[n / 2], 1e3 * b->step[n * 99 / 100], 1e3 * b->step[n - 1]);
	fflush(stdout);
}

/* Turns of the loop in 10 us. */
static int
calibrate(void)
{
	double best = 1.0;

	for (int i = 0; i < 50; i++)
	{
		double t = llm_clock_seconds();

		work(100000);
		t = llm_clock_seconds() - t;
		best = t < best ? t : best;
	}
	return (int) (100000 * 10e-6 / best);
}

int
main(int argc, char **argv)
{
	static Bench b;
	int threads = argc > 1 ? atoi(argv[1]) : 2, steps = argc > 2 ? atoi(argv[2]) : 500;
	double best = 1.0;
	LlmError err;

	if (threads < 1 || steps < 1 || steps > STEPS_MAX)
	{
		fprintf(stderr, "usage: bench_pool [THREADS [STEPS]]\n");
		return 2;
	}
	if (llm_pool_create(threads, &b.pool, &err) != LLM_OK)
	{
		fprintf(stderr, "bench_pool: %s\n", err.text);
		return 1;
	}
	b.turns = calibrate();
	for (int i = 0; i < 10; i++)
	{
		double t = llm_clock_seconds();

		llm_pool_run(b.pool, barriers, &b);
		t = (llm_clock_seconds() - t) / N_BARRIERS;
		best = t < best ? t : best;
	}
	printf("%d threads: barrier %.3f us, run %.2f us, run after a sleep of 1 ms %.1f us\n", threads,
		   1e6 * best, run_time(&b, N_RUNS, 0), run_time(&b, 200, 1000));
	for (int n_busy = 0; n_busy <= llm_pool_cpus() && n_busy <= BUSY_MAX; n_busy++)
		steps_run(&b, steps, n_busy);
	llm_pool_free(b.pool);
	return 0;
}
