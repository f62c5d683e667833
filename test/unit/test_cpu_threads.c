/*
 * test_cpu_threads.c - how many threads steps get beside other processes, in a world of made-up times.
 *
 * links: kernels core
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu_threads.h"

/* How a step slows down when others run, and how many threads wait for a core meanwhile. */
typedef struct World
{
	double slow_all, slow_fewer;
	double waiting_all, waiting_fewer;
} World;

static const World quiet = {1.0, 2.0, 0.01, 0.0};
static const World one_core_taken = {3.5, 2.0, 0.9, 0.02};
static const World all_cores_taken = {2.5, 4.0, 1.2, 0.4};

typedef struct Sim
{
	LlmCpuThreads t;
	double now, delay;
	double with_fewer; /* seconds of steps with fewer than all threads */
} Sim;

/* Steps of 1 and of 100 rows for about `seconds`; returns the part of time with fewer threads. */
static double
run(Sim *s, const World *w, double seconds)
{
	double begin = s->now, fewer = 0.0;

	for (int i = 0; s->now < begin + seconds; i++)
	{
		bool all = s->t.n == s->t.n_all;
		int32_t rows = i % 7 == 0 ? 100 : 1;
		double took = (rows == 1 ? 0.003 : 0.05) * (all ? w->slow_all : w->slow_fewer);

		assert_true(s->t.n >= 1 && s->t.n <= s->t.n_all);
		s->now += took;
		s->delay += took * (all ? w->waiting_all : w->waiting_fewer);
		fewer += all ? 0.0 : took;
		if (llm_cpu_threads_step(&s->t, rows, took))
			llm_cpu_threads_choose(&s->t, s->delay, s->now);
	}
	return fewer / (s->now - begin);
}

static void
test_choices(void **state)
{
	Sim s = {.now = 100.0};

	llm_cpu_threads_init(&s.t, 2);
	assert_int_equal(s.t.n, 2);
	assert_true(run(&s, &quiet, 10.0) == 0.0);
	assert_true(run(&s, &one_core_taken, 20.0) > 0.8);
	run(&s, &quiet, 5.0); /* until the core is tried again */
	assert_true(run(&s, &quiet, 10.0) == 0.0);
	assert_true(run(&s, &all_cores_taken, 20.0) < 0.2);
	assert_true(run(&s, &one_core_taken, 20.0) > 0.7);
}

/* The number follows how many threads wait. */
static void
test_many(void **state)
{
	static const World half = {4.0, 2.0, 4.2, 0.0};
	Sim s = {0};

	llm_cpu_threads_init(&s.t, 8);
	run(&s, &quiet, 1.0);
	assert_int_equal(s.t.n, 8);
	assert_true(run(&s, &half, 10.0) > 0.7);
	assert_int_equal(s.t.fewer, 4);
}

/* One thread stays one; where the system does not tell who waits, all run. */
static void
test_unknown(void **state)
{
	Sim s = {0};

	llm_cpu_threads_init(&s.t, 1);
	run(&s, &one_core_taken, 5.0);
	assert_int_equal(s.t.n, 1);
	llm_cpu_threads_init(&s.t, 2);
	for (int i = 0; i < 1000; i++)
	{
		if (llm_cpu_threads_step(&s.t, 1, 0.01))
			llm_cpu_threads_choose(&s.t, -1.0, i * 0.01);
		assert_int_equal(s.t.n, 2);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choices),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
