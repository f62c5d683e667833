/*
 * kernels/cpu_threads.h - how many threads a step gets when other processes take cores.
 *
 * Threads meet at barriers between phases, so one that waits for its core keeps all waiting.
 * Whether a step is faster without it depends on who else runs, on the step and on the scheduler, so
 * it is tried: when threads wait for cores, some steps run with all and some with fewer, what was
 * faster stays for a while, and is tried again later. The number of threads never changes a bit.
 */
#ifndef LLM_KERNELS_CPU_THREADS_H
#define LLM_KERNELS_CPU_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#define LLM_CPU_SIZES 22 /* steps by log2 of their rows */

typedef enum LlmCpuThreadsState
{
	LLM_CPU_CALM = 0, /* nobody takes cores: all threads */
	LLM_CPU_TRY_ALL,
	LLM_CPU_TRY_FEWER,
	LLM_CPU_HOLD /* what was faster */
} LlmCpuThreadsState;

typedef struct LlmCpuThreads
{
	int n_all;
	int n;     /* threads of the next step */
	int fewer; /* what is tried beside n_all */
	LlmCpuThreadsState state;
	double row_seconds[LLM_CPU_SIZES]; /* of a row in a step of that size, when calm; 0 = unknown */
	/* The current window: */
	int n_steps;
	double seconds;    /* of its steps */
	double calm;       /* what they would have taken when calm */
	double delay;      /* of the pool at its begin */
	double slowed_all; /* seconds / calm of the last window of TRY_ALL */
	bool fewer_won;    /* the last time */
	double hold;       /* seconds that a choice stays */
	double until;      /* when the present one ends */
	double told;       /* when it was logged last */
} LlmCpuThreads;

void llm_cpu_threads_init(LlmCpuThreads *t, int n_all);

/* A step of t->n threads and that many rows (> 0) has taken `seconds`. True at the end of a window;
 * llm_cpu_threads_choose comes next. */
bool llm_cpu_threads_step(LlmCpuThreads *t, int32_t rows, double seconds);

/* Set n for the steps to come. delay: seconds that all threads together have waited for cores so far,
 * negative when that is not known. now: of a monotonic clock. */
void llm_cpu_threads_choose(LlmCpuThreads *t, double delay, double now);

#endif
