/*
 * core/pool.c - fork-join threads for kernels.
 *
 * A run is announced by one word: its number and how many threads take part. Who takes part is waited
 * for, so it sees every run; the others sleep until a run wants more threads than the one before, and
 * may miss any number of runs. Barriers inside a run are a counter and a number.
 *
 * Every wait looks at its word for SPIN_NS and then sleeps in a futex. Between runs it may be longer
 * while nobody else wants the cores: the caller has up to a few dozen us of work between two small
 * steps, and would pay for a wake-up in each. On virtual machines it takes some 50 us to wake a core
 * that sleeps, about as much as a phase of a small step; spinning for longer than that would keep a
 * core from the thread that is waited for, when other processes have brought both onto one. Only the
 * caller's thread creates, runs and frees the pool.
 */
#include "core/pool.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/clock.h"
#include "core/thread.h"

#define SPIN_NS 20000
#define SPIN_CALM_NS 60000 /* between runs, when others leave the cores alone */
#define SPIN_TURNS 32      /* looks at a word between looks at the clock */
#define MAX_THREADS 1024
#define RUN_STEP 2048 /* the word of a run: number * RUN_STEP + threads; 0 threads: quit */

/* A word that is waited for; apart from the others, since waiters read it all the time. */
typedef struct Signal
{
	_Alignas(64) _Atomic uint32_t word; /* also the futex */
	_Atomic int sleepers;               /* threads in the futex, or about to enter it */
	_Atomic int arrived;                /* at the barrier: threads inside the current one */
} Signal;

struct LlmPool
{
	int n_threads;
	int n_started; /* threads created, without the caller */
	pthread_t threads[MAX_THREADS];
	int schedstat[MAX_THREADS]; /* descriptor of each thread's times on run queues; -1 = none */
	LlmPoolFn fn;               /* work of the current run; written before `run` */
	void *arg;                  /* its argument */
	int n_running;              /* threads of the current run */
	atomic_bool calm;           /* others leave the cores alone */
	Signal run;                 /* number and threads of the current run */
	Signal grown;               /* counts runs with more threads than the one before */
	Signal busy;                /* threads that have not finished the current run */
	Signal barrier;             /* barriers so far */
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

/* Wait until the word is no longer `old`, spinning for some nanoseconds; returns what it is. */
static uint32_t
signal_wait(Signal *s, uint32_t old, int64_t spin)
{
	int64_t end = 0;
	uint32_t now;

	for (int i = 1; (now = atomic_load_explicit(&s->word, memory_order_acquire)) == old; i++)
	{
		spin_pause();
		if (i % SPIN_TURNS != 0)
			continue;
		if (end == 0)
			end = llm_clock_ns() + spin;
		else if (llm_clock_ns() > end)
			break;
	}
	if (now != old)
		return now;
	/* Either the sleeper sees the new word in the futex, or who changed it sees the sleeper. */
	atomic_fetch_add(&s->sleepers, 1);
	while ((now = atomic_load(&s->word)) == old)
		syscall(SYS_futex, &s->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
	atomic_fetch_sub(&s->sleepers, 1);
	return now;
}

/* After a change of the word (memory_order_seq_cst). */
static inline void
signal_wake(Signal *s)
{
	if (atomic_load(&s->sleepers) > 0)
		syscall(SYS_futex, &s->word, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
}

/* R5: subnormals are computed and rounding is to nearest even, in every thread. */
static void
thread_set_float_mode(void)
{
#if defined(__x86_64__)
	_mm_setcsr(0x1F80);
#endif
}

/* What a thread does with the runs that it sees: take part, or sleep until it is wanted. */
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
		uint32_t grown = atomic_load(&pool->grown.word);
		int n;

		seen = signal_wait(&pool->run, seen,
						   atomic_load_explicit(&pool->calm, memory_order_relaxed) ? SPIN_CALM_NS
																				   : SPIN_NS);
		n = (int) (seen % RUN_STEP);
		if (n == 0)
			return NULL;
		if (start.tid >= n)
		{
			signal_wait(&pool->grown, grown, SPIN_NS);
			continue;
		}
		pool->fn(pool->arg, start.tid, n);
		if (atomic_fetch_sub(&pool->busy.word, 1) == 1)
			signal_wake(&pool->busy);
	}
}

/* Start thread tid by llm_thread_create; false when the system refuses. */
static bool
start_thread(LlmPool *pool, int tid)
{
	ThreadStart *start = malloc(sizeof(*start));
	int rc;

	if (start == NULL)
		return false;
	*start = (ThreadStart){pool, tid};
	rc = llm_thread_create(&pool->threads[tid], thread_main, start);
	if (rc != 0)
		free(start);
	return rc == 0;
}

/* Each thread opens its own times. */
static void
schedstat_open(void *arg, int tid, int n_threads)
{
	LlmPool *pool = arg;

	(void) n_threads;
	pool->schedstat[tid] = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

LlmStatus
llm_pool_create(int n_threads, LlmPool **out, LlmError *err)
{
	LlmPool *pool = aligned_alloc(64, sizeof(*pool));

	*out = NULL;
	if (pool == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the thread pool");
	*pool = (LlmPool){0};
	if (n_threads <= 0)
		n_threads = llm_pool_physical_cores();
	pool->n_threads = n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
	for (int tid = 0; tid < pool->n_threads; tid++)
		pool->schedstat[tid] = -1;
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
	llm_pool_run(pool, schedstat_open, pool);
	*out = pool;
	return LLM_OK;
}

/* Tell the threads of a new run: its work is written. n 0: they shall end. */
static void
announce(LlmPool *pool, int n)
{
	uint32_t old = atomic_load_explicit(&pool->run.word, memory_order_relaxed);
	bool grows = n == 0 || (uint32_t) n > old % RUN_STEP;

	atomic_store(&pool->run.word, (old / RUN_STEP + 1) * RUN_STEP + (uint32_t) n);
	signal_wake(&pool->run);
	if (!grows)
		return;
	atomic_fetch_add(&pool->grown.word, 1);
	signal_wake(&pool->grown);
}

void
llm_pool_free(LlmPool *pool)
{
	if (pool == NULL)
		return;
	announce(pool, 0);
	for (int tid = 1; tid <= pool->n_started; tid++)
		pthread_join(pool->threads[tid], NULL);
	for (int tid = 0; tid < pool->n_threads; tid++)
		if (pool->schedstat[tid] >= 0)
			close(pool->schedstat[tid]);
	free(pool);
}

int
llm_pool_threads(const LlmPool *pool)
{
	return pool->n_threads;
}

void
llm_pool_run_some(LlmPool *pool, int n, LlmPoolFn fn, void *arg)
{
	pool->fn = fn;
	pool->arg = arg;
	pool->n_running = n;
	if (n > 1)
	{
		atomic_store_explicit(&pool->busy.word, (uint32_t) n - 1, memory_order_relaxed);
		announce(pool, n);
	}
	fn(arg, 0, n);
	for (uint32_t left = n > 1 ? (uint32_t) n - 1 : 0; left > 0;)
		left = signal_wait(&pool->busy, left, SPIN_NS);
}

void
llm_pool_calm(LlmPool *pool, bool calm)
{
	atomic_store_explicit(&pool->calm, calm, memory_order_relaxed);
}

void
llm_pool_run(LlmPool *pool, LlmPoolFn fn, void *arg)
{
	llm_pool_run_some(pool, pool->n_threads, fn, arg);
}

void
llm_pool_barrier(LlmPool *pool)
{
	uint32_t barrier;

	if (pool->n_running == 1)
		return;
	barrier = atomic_load_explicit(&pool->barrier.word, memory_order_acquire);
	if (atomic_fetch_add_explicit(&pool->barrier.arrived, 1, memory_order_acq_rel) ==
		pool->n_running - 1)
	{
		atomic_store_explicit(&pool->barrier.arrived, 0, memory_order_relaxed);
		atomic_fetch_add(&pool->barrier.word, 1);
		signal_wake(&pool->barrier);
	}
	else
		signal_wait(&pool->barrier, barrier, SPIN_NS);
}

int64_t
llm_pool_delay_ns(const LlmPool *pool)
{
	int64_t sum = 0;

	for (int tid = 0; tid < pool->n_threads; tid++)
	{
		char text[64]; /* time on a core, time waiting for one, slices */
		ssize_t n = pread(pool->schedstat[tid], text, sizeof(text) - 1, 0);
		long long ran, waited;

		text[n > 0 ? n : 0] = '\0';
		if (sscanf(text, "%lld %lld", &ran, &waited) != 2)
			return -1;
		sum += waited;
	}
	return sum;
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
