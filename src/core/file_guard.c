/* core/file_guard.c - zeroes instead of SIGBUS for mapped files. */
#include "core/file_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_GUARDS 64

typedef struct Guard
{
	atomic_bool taken;
	_Atomic uintptr_t data; /* 0 until nbytes is right */
	_Atomic size_t nbytes;
	atomic_bool lost;
} Guard;

static Guard guards[N_GUARDS];
static struct sigaction former; /* what SIGBUS did before */
static size_t page_nbytes;
static pthread_mutex_t setting = PTHREAD_MUTEX_INITIALIZER;

/* Put zeroes into the mapping of g from the page of `at` on; false when that is not in it. */
static bool
replace(Guard *g, uintptr_t at)
{
	uintptr_t data = atomic_load(&g->data);
	size_t nbytes = atomic_load(&g->nbytes);
	void *p;

	/* asked twice: another mapping's size must not count */
	if (data == 0 || at < data || at - data >= nbytes || atomic_load(&g->data) != data)
		return false;
	atomic_store(&g->lost, true);
	at -= at % page_nbytes;
	p = mmap((void *) at, nbytes - (at - data), PROT_READ,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	return p != MAP_FAILED;
}

static void
on_bus_error(int signo, siginfo_t *info, void *context)
{
	int saved = errno;

	(void) context;
	if (info->si_code > 0) /* by a read, not by kill() */
		for (int i = 0; i < N_GUARDS; i++)
			if (replace(&guards[i], (uintptr_t) info->si_addr))
			{
				errno = saved;
				return;
			}
	sigaction(signo, &former, NULL);
	raise(signo);
}

/* Each time, as a host may have handlers of its own. */
static void
handler_set(void)
{
	struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO}, before;

	pthread_mutex_lock(&setting);
	page_nbytes = (size_t) sysconf(_SC_PAGESIZE);
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, NULL, &before);
	if (before.sa_sigaction != on_bus_error)
	{
		former = before;
		sigaction(SIGBUS, &action, NULL);
	}
	pthread_mutex_unlock(&setting);
}

int
llm_file_guard_add(const void *data, size_t nbytes)
{
	handler_set();
	for (int i = 0; i < N_GUARDS; i++)
		if (!atomic_exchange(&guards[i].taken, true))
		{
			atomic_store(&guards[i].lost, false);
			atomic_store(&guards[i].nbytes, nbytes);
			atomic_store(&guards[i].data, (uintptr_t) data);
			return i + 1;
		}
	return 0;
}

void
llm_file_guard_remove(int guard)
{
	if (guard == 0)
		return;
	atomic_store(&guards[guard - 1].data, 0);
	atomic_store(&guards[guard - 1].taken, false);
}

bool
llm_file_guard_lost(int guard)
{
	return guard != 0 && atomic_load(&guards[guard - 1].lost);
}
