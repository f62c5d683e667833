/* core/clock.h - the monotonic clock, and deadlines for the waits of pthread. */
#ifndef LLM_CORE_CLOCK_H
#define LLM_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment before the process; never goes back. */
static inline int64_t
llm_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t
llm_clock_ms(void)
{
	return llm_clock_ns() / 1000000;
}

static inline double
llm_clock_seconds(void)
{
	return 1e-9 * (double) llm_clock_ns();
}

/* The time of a clock in timeout_ms (>= 0). */
static inline struct timespec
llm_clock_after(clockid_t clock, int timeout_ms)
{
	struct timespec t;
	int64_t ns;

	clock_gettime(clock, &t);
	ns = t.tv_nsec + (int64_t) timeout_ms * 1000000;
	t.tv_sec += (time_t) (ns / 1000000000);
	t.tv_nsec = (long) (ns % 1000000000);
	return t;
}

#endif
