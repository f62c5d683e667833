/*
 * pg/engine_child.c - fork and exec of the engine.
 *
 * A fault inside a background worker resets the whole cluster; a fault in its exec'd child does not.
 * exec detaches shared memory, so the engine can corrupt nothing. Between fork and exec only calls
 * that are safe in a copy of a PostgreSQL process are made: no ereport, no palloc, no exit handler.
 */
#include "postgres.h"

#include "pg/engine_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pg/guc.h"
#include "wire/frame.h"
#include "wire/journal.h"

#define FIRST_FREE_FD (LLM_FD_JOURNAL + 1)

/* Room above the inherited descriptors, where dup2 cannot hit one that is still needed. */
#define PARK_FD 32

typedef struct ChildFds
{
	int listen;
	int control;
	int journal;
	int log;
} ChildFds;

/* The program that will run: llm_infer.engine_path, else the one beside the library. */
static void
program_path(char out[MAXPGPATH])
{
	if (llm_guc_engine_path && *llm_guc_engine_path)
		strlcpy(out, llm_guc_engine_path, MAXPGPATH);
	else
		snprintf(out, MAXPGPATH, "%s/llm_infer_engine", pkglib_path);
}

int
llm_engine_child_journal(void)
{
	return memfd_create("llm_infer journal", MFD_CLOEXEC);
}

/* Signals as at the start of a program: PostgreSQL ignores some, and children inherit that. */
static void
child_signals(void)
{
	struct sigaction action;
	sigset_t none;

	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool
child_descriptors(const ChildFds *fds)
{
	int null_fd = open("/dev/null", O_RDWR);
	int parked[5];
	const int from[5] = {null_fd, fds->log, fds->listen, fds->control, fds->journal};

	for (int i = 0; i < 5; i++)
	{
		parked[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD, PARK_FD);
		if (parked[i] < 0)
			return false;
	}
	if (dup2(parked[0], STDIN_FILENO) < 0 || dup2(parked[0], STDOUT_FILENO) < 0 ||
		dup2(parked[1], STDERR_FILENO) < 0 || dup2(parked[2], LLM_FD_LISTEN) < 0 ||
		dup2(parked[3], LLM_FD_CONTROL) < 0 || dup2(parked[4], LLM_FD_JOURNAL) < 0)
		return false;
	return close_range(FIRST_FREE_FD, ~0U, 0) == 0;
}

/* The out-of-memory killer shall take the engine, never a backend. */
static void
child_oom_score(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY);

	if (fd < 0)
		return;
	/* Best effort: without it the engine is still the largest process. */
	if (write(fd, "900", 3) < 0)
		errno = 0;
	close(fd);
}

static _Noreturn void
child_main(const char *path, const ChildFds *fds, pid_t parent)
{
	char *argv[] = {(char *) "llm_infer_engine", (char *) "serve", NULL};
	char line[MAXPGPATH + 100];
	int n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	child_signals();
	/* A session of its own: the postmaster signals the whole group of a worker. */
	setsid();
	child_oom_score();
	if (!child_descriptors(fds))
		_exit(126);
	execv(path, argv);
	n = snprintf(line, sizeof(line), "ERROR could not execute \"%s\": %s\n", path, strerror(errno));
	if (write(STDERR_FILENO, line, Min(n, (int) sizeof(line) - 1)) < 0)
		_exit(126);
	_exit(127);
}

static bool
make_channels(int control[2], int log[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) != 0)
		return false;
	if (pipe2(log, O_CLOEXEC) != 0)
	{
		int saved = errno;

		close(control[0]);
		close(control[1]);
		errno = saved;
		return false;
	}
	fcntl(control[0], F_SETFL, O_NONBLOCK);
	fcntl(log[0], F_SETFL, O_NONBLOCK);
	return true;
}

bool
llm_engine_child_start(LlmEngineChild *child, int listen_fd, int journal_fd, char *why, Size n_why)
{
	char path[MAXPGPATH];
	int control[2];
	int log[2];
	ChildFds fds;
	sigset_t all;
	sigset_t former;
	pid_t parent = getpid();
	pid_t pid;

	program_path(path);
	if (access(path, X_OK) != 0)
	{
		snprintf(why, n_why, "engine program \"%s\" cannot be executed: %s", path, strerror(errno));
		return false;
	}
	if (!make_channels(control, log))
	{
		snprintf(why, n_why, "could not create channels to the engine: %s", strerror(errno));
		return false;
	}
	fds = (ChildFds){listen_fd, control[1], journal_fd, log[1]};
	fflush(NULL);
	/* Until the child has handlers of its own, none of this process may run in it. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &former);
	pid = fork();
	if (pid == 0)
		child_main(path, &fds, parent);
	sigprocmask(SIG_SETMASK, &former, NULL);
	close(control[1]);
	close(log[1]);
	if (pid < 0)
	{
		snprintf(why, n_why, "could not fork the engine: %s", strerror(errno));
		close(control[0]);
		close(log[0]);
		return false;
	}
	*child = (LlmEngineChild){pid, control[0], log[0]};
	return true;
}

void
llm_engine_child_signal(const LlmEngineChild *child, int signal)
{
	if (child->pid > 0)
		kill(child->pid, signal);
}

bool
llm_engine_child_reap(LlmEngineChild *child, char *how, Size n_how, bool *killed)
{
	int status = 0;
	pid_t pid;

	if (child->pid == 0)
		return false;
	do
		pid = waitpid(child->pid, &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		return false;
	if (pid < 0)
		snprintf(how, n_how, "engine process %d is gone", (int) child->pid);
	else if (WIFSIGNALED(status))
		snprintf(how, n_how, "engine process %d was terminated by signal %d: %s", (int) child->pid,
				 WTERMSIG(status), pg_strsignal(WTERMSIG(status)));
	else
		snprintf(how, n_how, "engine process %d exited with code %d", (int) child->pid,
				 WEXITSTATUS(status));
	child->pid = 0;
	*killed = pid > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	return true;
}

void
llm_engine_child_excuse(int journal_fd)
{
	uint32_t killed = 1;

	if (pwrite(journal_fd, &killed, sizeof(killed), offsetof(LlmJournal, killed)) != sizeof(killed))
		errno = 0; /* then it counts as a crash */
}
