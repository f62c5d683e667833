/*
 * core/pool.c - fork-join threads for kernels.
 *
 * A run is announced by a generation number. Idle threads spin on it for a few microseconds and
 * then sleep in a futex; the caller works as thread 0 and waits until the others have counted
 * themselves out. Barriers inside a run are a sense-reversing counter. Only the caller's thread
 * creates, runs and frees the pool.
 */
#include "core/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define SPIN_TURNS 4000 /* some 10-20 us of pause instructions */
#define MAX_THREADS 1024

struct LlmPool
{
	int n_threads;
	int n_started; /* threads created, without the caller */
	pthread_t threads[MAX_THREADS];
	LlmPoolFn fn;             /* work of the current run; written before generation */
	void *arg;                /* its argument */
	bool quit;                /* written before generation */
	_Atomic uint32_t gen;     /* run number; futex word of idle threads */
	_Atomic int sleepers;     /* threads inside the futex */
	_Atomic int running;      /* threads that have not finished the current run */
	_Atomic int arrived;      /* threads inside the current barrier */
	_Atomic uint32_t bar_gen; /* barrier number */
};

typedef struct ThreadStart
{
	LlmPool *pool;
	int tid;
} ThreadStart;

static inline void
spin_pause(void)
{
#if defined(__x86_64__)
	_mm_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* R5: subnormals are computed and rounding is to nearest even, in every thread. */
static void
thread_set_float_mode(void)
{
#if defined(__x86_64__)
	_mm_setcsr(0x1F80);
#endif
}

static void
wait_for_run(LlmPool *pool, uint32_t seen)
{
	for (int i = 0; i < SPIN_TURNS; i++)
	{
		if (atomic_load_explicit(&pool->gen, memory_order_acquire) != seen)
			return;
		spin_pause();
	}
	while (atomic_load_explicit(&pool->gen, memory_order_acquire) == seen)
	{
		atomic_fetch_add(&pool->sleepers, 1);
		syscall(SYS_futex, &pool->gen, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
		atomic_fetch_sub(&pool->sleepers, 1);
	}
}

static void *
thread_main(void *p)
{
	ThreadStart start = *(ThreadStart *) p;
	LlmPool *pool = start.pool;
	uint32_t seen = 0;

	free(p);
	thread_set_float_mode();
	for (;;)
	{
		wait_for_run(pool, seen);
		seen++;
		if (pool->quit)
			return NULL;
		pool->fn(pool->arg, start.tid, pool->n_threads);
		atomic_fetch_sub_explicit(&pool->running, 1, memory_order_release);
	}
}

/* Start thread tid with every signal blocked; false when the system refuses. */
static bool
start_thread(LlmPool *pool, int tid)
{
	ThreadStart *start = malloc(sizeof(*start));
	sigset_t all, old;
	int rc;

	if (start == NULL)
		return false;
	*start = (ThreadStart){pool, tid};
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&pool->threads[tid], NULL, thread_main, start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		free(start);
	return rc == 0;
}

LlmStatus
llm_pool_create(int n_threads, LlmPool **out, LlmError *err)
{
	LlmPool *pool = aligned_alloc(64, (sizeof(*pool) + 63) / 64 * 64);

	*out = NULL;
	if (pool == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the thread pool");
	*pool = (LlmPool){0};
	if (n_threads <= 0)
		n_threads = llm_pool_physical_cores();
	pool->n_threads = n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
	thread_set_float_mode();
	for (int tid = 1; tid < pool->n_threads; tid++)
	{
		if (!start_thread(pool, tid))
		{
			llm_pool_free(pool);
			return llm_error_set(err, LLM_E_MEMORY, "could not start compute thread %d of %d", tid,
								 n_threads);
		}
		pool->n_started++;
	}
	*out = pool;
	return LLM_OK;
}

static void
announce(LlmPool *pool)
{
	atomic_fetch_add_explicit(&pool->gen, 1, memory_order_seq_cst);
	if (atomic_load(&pool->sleepers) > 0)
		syscall(SYS_futex, &pool->gen, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
}

void
llm_pool_free(LlmPool *pool)
{
	if (pool == NULL)
		return;
	pool->quit = true;
	announce(pool);
	for (int tid = 1; tid <= pool->n_started; tid++)
		pthread_join(pool->threads[tid], NULL);
	free(pool);
}

int
llm_pool_threads(const LlmPool *pool)
{
	return pool->n_threads;
}

/* Spin, then give the core away between looks: the other thread may be waiting for this core. */
static inline void
spin_or_yield(int turn)
{
	if (turn < SPIN_TURNS)
		spin_pause();
	else
		sched_yield();
}

void
llm_pool_run(LlmPool *pool, LlmPoolFn fn, void *arg)
{
	if (pool->n_threads == 1)
	{
		fn(arg, 0, 1);
		return;
	}
	pool->fn = fn;
	pool->arg = arg;
	atomic_store_explicit(&pool->running, pool->n_threads - 1, memory_order_relaxed);
	announce(pool);
	fn(arg, 0, pool->n_threads);
	for (int i = 0; atomic_load_explicit(&pool->running, memory_order_acquire) > 0; i++)
		spin_or_yield(i);
}

void
llm_pool_barrier(LlmPool *pool)
{
	uint32_t bar = atomic_load_explicit(&pool->bar_gen, memory_order_acquire);

	if (pool->n_threads == 1)
		return;
	if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) == pool->n_threads - 1)
	{
		atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&pool->bar_gen, bar + 1, memory_order_release);
		return;
	}
	for (int i = 0; atomic_load_explicit(&pool->bar_gen, memory_order_acquire) == bar; i++)
		spin_or_yield(i);
}

/* A CPU counts when it is the first of its hyperthread siblings that we may run on. */
static bool
cpu_is_first_sibling(int cpu, const cpu_set_t *allowed)
{
	char path[96];
	char line[128] = "";
	FILE *f;
	int first;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
			 cpu);
	f = fopen(path, "re");
	if (f == NULL)
		return true;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	fclose(f);
	if (sscanf(line, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE)
		return true;
	return first == cpu || !CPU_ISSET(first, allowed);
}

/* Whole CPUs of the control group's quota; `none` when there is no limit to be seen. */
static int
quota_cpus(int none)
{
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	long quota, period;
	int n = none;

	if (f == NULL)
		return none;
	if (fscanf(f, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0 &&
		quota / period < none)
		n = (int) ((quota + period - 1) / period);
	fclose(f);
	return n;
}

int
llm_pool_cpus(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	n = CPU_COUNT(&set);
	return quota_cpus(n > 0 ? n : 1);
}

int
llm_pool_physical_cores(void)
{
	cpu_set_t set;
	int n = 0;
	int cpus = llm_pool_cpus();

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && cpu_is_first_sibling(cpu, &set))
			n++;
	n = n < cpus ? n : cpus;
	return n > 0 ? n : 1;
}
