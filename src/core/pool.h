/* core/pool.h - the engine's compute threads: one call, every thread, then a barrier. */
#ifndef LLM_CORE_POOL_H
#define LLM_CORE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

typedef struct LlmPool LlmPool;

/* Work of one thread: tid in 0..n_threads-1. The caller's own thread is tid 0. */
typedef void (*LlmPoolFn)(void *arg, int tid, int n_threads);

/* Start n_threads - 1 threads with signals blocked (core/thread.h) and default MXCSR (no FTZ, no DAZ, round to
 * nearest). n_threads 0 = physical cores available to this process. */
LlmStatus llm_pool_create(int n_threads, LlmPool **out, LlmError *err);
void llm_pool_free(LlmPool *pool);
int llm_pool_threads(const LlmPool *pool);

/* Run fn on all threads and return when all have returned. Only the creating thread may call. */
void llm_pool_run(LlmPool *pool, LlmPoolFn fn, void *arg);
/* The same on threads 0..n-1 alone, 1 <= n <= threads; the others sleep. */
void llm_pool_run_some(LlmPool *pool, int n, LlmPoolFn fn, void *arg);

/* Inside fn: wait until every thread of the run has arrived here. Spins for some microseconds, then
 * sleeps: with other processes on the cores, spinning takes time from whom one waits for. */
void llm_pool_barrier(LlmPool *pool);

/* Tell whether other processes leave the cores alone; false at first. Threads then spin for longer between
 * runs. Only the creating thread may call. */
void llm_pool_calm(LlmPool *pool, bool calm);

/* Nanoseconds that the threads together have waited for a core that others had, since each began; -1
 * where the system does not tell. About 0.3 us per thread. */
int64_t llm_pool_delay_ns(const LlmPool *pool);

/* CPUs that this process may keep busy: its affinity mask, and the quota of its control group where
 * one is visible (cgroup v2 cpu.max, rounded up). At least 1. */
int llm_pool_cpus(void);
/* Of these, physical cores: hyperthread siblings count once. */
int llm_pool_physical_cores(void);

#endif
