/*
 * pg/supervisor.c - the background worker that starts, feeds, watches and restarts the engine.
 *
 * Single-threaded, without model code, and small on purpose: a fault in here would reset the cluster.
 * It keeps the listening socket for its whole life, so that backends queue in the backlog while an
 * engine restarts instead of being refused.
 *
 * One turn of the loop: react to signals; without a child, start one when its time has come; with a
 * child, send settings and pings, read its state, forward its log lines, and kill it when it hangs.
 * Beside that it starts the launchers of durable work that are wanted (workers.h): it is the one
 * process that is always there.
 *
 * Watchdog. A PING goes out several times per engine_timeout. The engine hangs when no STATE came
 * for engine_timeout, or when it says that work is pending but its progress counter has not moved
 * for engine_timeout. Time is summed per turn with a cap per turn, so that a machine that was
 * suspended does not cost a healthy engine.
 */
#include "postgres.h"

#include "pg/supervisor.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/engine_child.h"
#include "pg/engine_log.h"
#include "pg/guc.h"
#include "pg/link.h"
#include "pg/shmem.h"
#include "pg/workers.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

LLM_EXPORTS_BEGIN
extern PGDLLEXPORT void llm_supervisor_main(Datum arg);
LLM_EXPORTS_END

#define BACKOFF_FIRST_MS 100.0  /* the first restart is immediate, the second waits this long */
#define BACKOFF_LAST_MS 10000.0 /* doubled up to this */
#define HEALTHY_MS 10000.0      /* ready for so long: the next failure is a first one */
#define FAILURES_LOGGED 3       /* in a row; of those that follow, only what is another failure */
#define BACKLOG 1024            /* clients that may queue during a restart */

typedef struct Supervisor
{
	int listen_fd;
	int journal_fd;
	LlmEngineChild child; /* pid 0 = none */
	LlmLink control;      /* to the child */
	LlmEngineLog log;     /* of the child */
	WaitEventSet *waits;  /* latch, postmaster, control, log; rebuilt when one of them changes */
	LlmEngineStatus status;
	char last_logged[LLM_MESSAGE_NBYTES]; /* the last failure */
	instr_time turn_began;
	double ping_ms;       /* since the last PING */
	double silent_ms;     /* since the last STATE */
	double stalled_ms;    /* busy without progress */
	double ready_ms;      /* this engine has been ready for */
	double restart_ms;    /* until the next start, when there is no child */
	int n_failures;       /* in a row */
	uint64 ping_seq;      /* of the last PING */
	uint64 progress;      /* of the last STATE */
	bool settings_due;    /* SETTINGS must be sent */
	double ending_ms;     /* since SIGTERM */
	double workers_ms;    /* until the next look at the launchers */
	bool end_asked;       /* SIGTERM is on its way: a user wanted a new engine, no failure */
	bool killed;          /* SIGKILL is on its way */
	const char *kill_why; /* constant text, after "it" */
} Supervisor;

static Supervisor sv;

static void
publish(LlmEngineState state, const char *message)
{
	if (sv.status.state == state && strcmp(sv.status.message, message) == 0)
		return;
	sv.status.state = state;
	strlcpy(sv.status.message, message, sizeof(sv.status.message));
	llm_shmem_publish(&sv.status);
}

/* ---- the wait set ---- */

static void
drop_waits(void)
{
	if (sv.waits)
		FreeWaitEventSet(sv.waits);
	sv.waits = NULL;
}

static void
build_waits(void)
{
	sv.waits = llm_compat_wait_set(4);
	AddWaitEventToSet(sv.waits, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(sv.waits, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (sv.control.fd >= 0)
		AddWaitEventToSet(sv.waits, WL_SOCKET_READABLE, sv.control.fd, NULL, NULL);
	if (sv.log.fd >= 0)
		AddWaitEventToSet(sv.waits, WL_SOCKET_READABLE, sv.log.fd, NULL, NULL);
}

/* ---- start and end of an engine ---- */

static void
close_channels(void)
{
	drop_waits();
	llm_link_close(&sv.control);
	llm_engine_log_close(&sv.log);
}

/* The same failure of another process is the same failure. */
static const char *
without_pid(const char *why)
{
	const char *prefix = "engine process ";
	Size n = strlen(prefix);

	return strncmp(why, prefix, n) == 0 ? why + n + strspn(why + n, "0123456789") : why;
}

/* There is no engine, and why; plan the next start. */
static void
note_failure(const char *why)
{
	bool same;

	if (sv.ready_ms >= HEALTHY_MS)
		sv.n_failures = 0;
	sv.restart_ms =
		sv.n_failures == 0
			? 0
			: Min(BACKOFF_FIRST_MS * (double) (1 << Min(sv.n_failures - 1, 10)), BACKOFF_LAST_MS);
	sv.n_failures++;
	same = strcmp(without_pid(sv.last_logged), without_pid(why)) == 0;
	ereport(same && sv.n_failures > FAILURES_LOGGED ? DEBUG1 : WARNING,
			(errmsg("llm_infer: %s", why),
			 sv.restart_ms > 0
				 ? errdetail("It will be started again in %d ms.", (int) sv.restart_ms)
				 : 0));
	strlcpy(sv.last_logged, why, sizeof(sv.last_logged));
	sv.status.pid = 0;
	publish(LLM_ENGINE_DOWN, why);
}

static void
start_engine(void)
{
	char why[LLM_MESSAGE_NBYTES];

	sv.ready_ms = 0;
	if (!llm_engine_child_start(&sv.child, sv.listen_fd, sv.journal_fd, why, sizeof(why)))
	{
		note_failure(why);
		return;
	}
	llm_link_open(&sv.control, sv.child.control_fd, TopMemoryContext);
	llm_engine_log_open(&sv.log, sv.child.log_fd);
	sv.child.control_fd = sv.child.log_fd = -1;
	drop_waits();
	sv.ping_ms = sv.silent_ms = sv.stalled_ms = 0;
	sv.progress = 0;
	sv.killed = sv.end_asked = false;
	sv.settings_due = true;
	sv.status.generation++;
	sv.status.restarts = sv.status.generation - 1;
	sv.status.pid = (int) sv.child.pid;
	sv.status.started = GetCurrentTimestamp();
	sv.status.state = LLM_ENGINE_DOWN; /* so that the new pid is published in any case */
	publish(LLM_ENGINE_STARTING, "engine is starting");
	ereport(LOG, (errmsg("llm_infer: engine process %d started", sv.status.pid)));
}

static void
end_engine(const char *how)
{
	char why[LLM_MESSAGE_NBYTES];

	/* Its last words; bounded, for a grandchild may hold the pipe. */
	for (int i = 0; i < 32 && llm_engine_log_forward(&sv.log); i++)
		;
	if (sv.killed)
		snprintf(why, sizeof(why), "engine process %d was killed: it %s", sv.status.pid,
				 sv.kill_why);
	else if (sv.log.last_error[0])
		snprintf(why, sizeof(why), "%s: %s", how, sv.log.last_error);
	else
		strlcpy(why, how, sizeof(why));
	close_channels();
	if (sv.end_asked)
	{
		sv.n_failures = 0;
		sv.restart_ms = 0;
		sv.status.pid = 0;
		publish(LLM_ENGINE_DOWN, "engine is restarting");
	}
	else
		note_failure(why);
}

static void
kill_engine(const char *why)
{
	llm_engine_child_signal(&sv.child, SIGKILL);
	sv.killed = true;
	sv.kill_why = why;
}

/* A user wants a new engine: this one may end its step first. */
static void
replace_engine(void)
{
	sv.n_failures = 0;
	sv.restart_ms = 0;
	if (sv.child.pid == 0 || sv.killed || sv.end_asked)
		return;
	ereport(LOG, (errmsg("llm_infer: engine restart was requested")));
	llm_engine_child_signal(&sv.child, SIGTERM);
	sv.end_asked = true;
	sv.ending_ms = 0;
}

/* ---- control messages ---- */

static void
send_settings(void)
{
	Llm__Settings settings = LLM__SETTINGS__INIT;
	Llm__Frame frame = LLM__FRAME__INIT;

	settings.cookie = sv.status.cookie;
	settings.generation = sv.status.generation;
	settings.model_dir = llm_guc_model_dir;
	settings.devices = llm_guc_devices;
	settings.has_threads = true;
	settings.threads = llm_guc_threads;
	settings.has_kv_nbytes = true;
	settings.kv_nbytes = (int64) llm_guc_kv_cache_memory * 1024;
	settings.has_memory_limit = true;
	settings.memory_limit = (int64) llm_guc_memory_limit * 1024;
	settings.has_max_batch_tokens = true;
	settings.max_batch_tokens = llm_guc_max_batch_tokens;
	settings.has_max_running = true;
	settings.max_running = llm_guc_max_running;
	settings.has_prefix_cache = true;
	settings.prefix_cache = llm_guc_prefix_cache;
	settings.has_prefix_scope = true;
	settings.prefix_scope = (Llm__PrefixScope) llm_guc_prefix_cache_scope;
	frame.body_case = LLM__FRAME__BODY_SETTINGS;
	frame.settings = &settings;
	llm_link_append(&sv.control, &frame);
	sv.settings_due = false;
}

static double
ping_interval(void)
{
	return Max(20.0, Min(1000.0, llm_guc_engine_timeout / 5.0));
}

static void
send_ping(void)
{
	Llm__Ping ping = LLM__PING__INIT;
	Llm__Frame frame = LLM__FRAME__INIT;

	ping.seq = ++sv.ping_seq;
	frame.body_case = LLM__FRAME__BODY_PING;
	frame.ping = &ping;
	llm_link_append(&sv.control, &frame);
	sv.ping_ms = 0;
}

static void
take_state(const Llm__State *state)
{
	sv.silent_ms = 0;
	if (!state->busy || state->progress != sv.progress)
		sv.stalled_ms = 0;
	sv.progress = state->progress;
	if (state->has_ready && state->ready)
		publish(LLM_ENGINE_READY, "");
	else if (state->has_ready)
		publish(LLM_ENGINE_STARTING,
				state->message && *state->message ? state->message : "engine is starting");
}

static void
talk(void)
{
	const Llm__Frame *frame;
	bool alive;
	bool bad;

	if (sv.control.fd < 0)
		return;
	if (sv.settings_due)
		send_settings();
	/* An engine that reads nothing gets no more pings: its silence is what counts. */
	if (sv.ping_ms >= ping_interval() && llm_link_unsent(&sv.control) == 0)
		send_ping();
	alive = llm_link_flush(&sv.control);
	alive = llm_link_fill(&sv.control) && alive;
	while ((frame = llm_link_next(&sv.control, &bad)) != NULL)
		if (frame->body_case == LLM__FRAME__BODY_STATE)
			take_state(frame->state);
	if (!alive || bad)
	{
		/* It is ending, or broken: the watchdog's silence or waitpid tells which. */
		drop_waits();
		llm_link_close(&sv.control);
	}
}

/* ---- the loop ---- */

static void
watch(double elapsed)
{
	sv.ping_ms += elapsed;
	sv.silent_ms += elapsed;
	sv.stalled_ms += elapsed;
	if (sv.status.state == LLM_ENGINE_READY)
		sv.ready_ms += elapsed;
	if (sv.killed)
		return;
	if (sv.end_asked)
	{
		sv.ending_ms += elapsed;
		if (sv.ending_ms >= LLM_SUPERVISOR_END_MS)
			kill_engine("did not end");
		return;
	}
	if (Max(sv.silent_ms, sv.stalled_ms) < llm_guc_engine_timeout)
		return;
	kill_engine(sv.silent_ms >= llm_guc_engine_timeout ? "did not answer" : "made no progress");
	ereport(LOG, (errmsg("llm_infer: engine process %d %s for %d ms, killing it",
						 (int) sv.child.pid, sv.kill_why, llm_guc_engine_timeout)));
}

static void
turn_with_child(double elapsed)
{
	char how[200];
	bool log_open = sv.log.fd >= 0;
	bool killed;

	talk();
	llm_engine_log_forward(&sv.log);
	if (log_open && sv.log.fd < 0)
		drop_waits();
	if (llm_engine_child_reap(&sv.child, how, sizeof(how), &killed))
	{
		if (killed && !sv.killed)
			llm_engine_child_excuse(sv.journal_fd);
		end_engine(how);
	}
	else
		watch(elapsed);
}

static void
turn(void)
{
	instr_time now;
	double elapsed;
	bool changed = false;

	INSTR_TIME_SET_CURRENT(now);
	elapsed = INSTR_TIME_GET_MILLISEC(now) - INSTR_TIME_GET_MILLISEC(sv.turn_began);
	elapsed = Max(elapsed, 0);
	sv.turn_began = now;
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		sv.settings_due = changed = true;
	}
	/* Whoever wants a launcher sets the latch, as many others do: a look costs next to nothing. */
	sv.workers_ms = (double) llm_workers_supervise(changed);
	if (llm_shmem_take_restart_request())
		replace_engine();
	/* A turn that came late says nothing about the engine, whose answers may lie unread. */
	if (sv.child.pid != 0)
		turn_with_child(Min(elapsed, ping_interval()));
	else
		sv.restart_ms -= elapsed;
	if (sv.child.pid == 0)
	{
		if (sv.restart_ms <= 0)
			start_engine();
		/* It waits for its settings. */
		talk();
	}
}

static long
turn_timeout(void)
{
	double ms = sv.child.pid != 0 ? ping_interval() : Max(sv.restart_ms, 1.0);

	return (long) Min(ms, Max(sv.workers_ms, 1.0));
}

static void
open_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	mode_t mask;
	int rc;

	StaticAssertStmt(sizeof(LLM_SOCKET_PATH) <= sizeof(addr.sun_path), "socket path is too long");
	strlcpy(addr.sun_path, LLM_SOCKET_PATH, sizeof(addr.sun_path));
	if (unlink(LLM_SOCKET_PATH) != 0 && errno != ENOENT)
		ereport(ERROR, (errcode_for_file_access(),
						errmsg("could not remove file \"%s\": %m", LLM_SOCKET_PATH)));
	sv.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sv.listen_fd < 0)
		ereport(ERROR, (errcode_for_socket_access(), errmsg("could not create socket: %m")));
	mask = umask(S_IRWXG | S_IRWXO | S_IXUSR);
	rc = bind(sv.listen_fd, (struct sockaddr *) &addr, sizeof(addr));
	umask(mask);
	if (rc != 0 || listen(sv.listen_fd, BACKLOG) != 0)
		ereport(ERROR, (errcode_for_socket_access(),
						errmsg("could not listen on \"%s\": %m", LLM_SOCKET_PATH)));
}

/* before_shmem_exit: no engine and no socket outlive the worker, however it ends. */
static void
shut_down(int code, Datum arg)
{
	char how[200];
	bool killed;

	llm_shmem_supervisor_detach();
	llm_engine_child_signal(&sv.child, SIGKILL);
	/* A process stuck in a driver cannot be waited for: it dies when it can. */
	for (int i = 0; i < 100 && sv.child.pid != 0; i++)
		if (!llm_engine_child_reap(&sv.child, how, sizeof(how), &killed))
			pg_usleep(10000L);
	unlink(LLM_SOCKET_PATH);
	sv.status.pid = 0;
	sv.status.cookie = 0;
	publish(LLM_ENGINE_OFF, LLM_MESSAGE_OFF);
}

/* Set up everything that lives as long as the worker. */
static void
begin(void)
{
	LlmEngineStatus before;

	llm_shmem_status(&before);
	memset(&sv, 0, sizeof(sv));
	sv.control.fd = sv.log.fd = sv.listen_fd = -1;
	/* Generations go on over a restart of the worker. */
	sv.status.generation = before.generation;
	sv.status.restarts = before.restarts;
	if (!pg_strong_random(&sv.status.cookie, sizeof(sv.status.cookie)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not draw a cookie")));
	sv.status.cookie |= 1;
	sv.journal_fd = llm_engine_child_journal();
	if (sv.journal_fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create the crash journal: %m")));
	before_shmem_exit(shut_down, 0);
	open_socket();
	llm_shmem_supervisor_attach();
	INSTR_TIME_SET_CURRENT(sv.turn_began);
}

static void
handle_sigchld(SIGNAL_ARGS)
{
	int saved = errno;

	SetLatch(MyLatch);
	errno = saved;
}

void
llm_supervisor_main(Datum arg)
{
	static uint32 wait_event = 0;

	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, SIG_IGN);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGCHLD, handle_sigchld);
	BackgroundWorkerUnblockSignals();
	/* Without a connection the worker is not in pg_stat_activity and takes no barriers. */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	begin();
	for (;;)
	{
		WaitEvent event;

		CHECK_FOR_INTERRUPTS();
		turn();
		if (sv.waits == NULL)
			build_waits();
		(void) WaitEventSetWait(sv.waits, turn_timeout(), &event, 1,
								llm_compat_wait_event(&wait_event, "LlmInferSupervisor"));
		ResetLatch(MyLatch);
	}
}

void
llm_supervisor_init(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 1;
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "llm_infer");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "llm_supervisor_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "llm_infer supervisor");
	snprintf(worker.bgw_type, BGW_MAXLEN, "llm_infer supervisor");
	RegisterBackgroundWorker(&worker);
}
