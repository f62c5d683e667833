/* core/thread.h - how threads of the engine begin. */
#ifndef LLM_CORE_THREAD_H
#define LLM_CORE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Start a thread with every signal blocked, so that all of them reach the thread that waits for them, but
 * for SIGBUS, which tells the thread that reads a file of its end (core/file_guard.h); 0, or an errno. */
static inline int
llm_thread_create(pthread_t *out, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(out, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

#endif
