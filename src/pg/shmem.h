/*
 * pg/shmem.h - the small static shared memory: what the supervisor publishes, what backends do.
 *
 * Locks. control->lock (LWLock) guards the status, the supervisor's number and restart_requested;
 * only the supervisor writes them, except restart_requested, which anyone sets. It is held for copies
 * only. `changed` is broadcast after a change of the status. An activity slot belongs to the backend
 * with that proc number: only it writes, under its changecount (odd = being written); readers copy
 * and compare. A slot outlives its backend: it counts only while the process of that number still
 * has the slot's pid.
 */
#ifndef LLM_PG_SHMEM_H
#define LLM_PG_SHMEM_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef enum LlmEngineState
{
	LLM_ENGINE_OFF = 0,      /* no supervisor is running */
	LLM_ENGINE_DOWN = 1,     /* waiting to start again; message says why */
	LLM_ENGINE_STARTING = 2, /* the process runs, but is not ready */
	LLM_ENGINE_READY = 3
} LlmEngineState;

#define LLM_MESSAGE_NBYTES 512
#define LLM_MESSAGE_OFF "the llm_infer supervisor is not running"

/* Relative to the data directory, which is the working directory of every process: no limit of
 * sun_path applies. The prefix makes base backups skip it. */
#define LLM_SOCKET_PATH "pgsql_tmp.llm_infer.sock"

/* What the supervisor publishes; copied out whole. */
typedef struct LlmEngineStatus
{
	LlmEngineState state;
	uint32 generation;   /* counts engine starts since the server started; 0 = none yet */
	uint32 restarts;     /* starts after the first */
	int pid;             /* of the engine, 0 = none */
	TimestampTz started; /* of this generation, 0 = none yet */
	uint64 cookie;       /* what HELLO must hold; 0 = no supervisor yet */
	char message[LLM_MESSAGE_NBYTES]; /* why there is no engine; '' when ready */
} LlmEngineStatus;

typedef enum LlmActivityState
{
	LLM_ACTIVITY_IDLE = 0,
	LLM_ACTIVITY_CONNECTING = 1, /* no engine yet */
	LLM_ACTIVITY_QUEUED = 2,     /* waits for flow control */
	LLM_ACTIVITY_ACTIVE = 3      /* the engine has a request of it */
} LlmActivityState;

typedef enum LlmProgressPhase
{
	LLM_PROGRESS_NONE = 0, /* no enrichment is running */
	LLM_PROGRESS_LISTING = 1,
	LLM_PROGRESS_CLAIMING = 2,
	LLM_PROGRESS_GENERATING = 3,
	LLM_PROGRESS_WRITING = 4,
	LLM_PROGRESS_WAITING = 5 /* for rows that others have locked, or for rows to do */
} LlmProgressPhase;

/* How far a running enrichment is, in llm.stat_progress_enrich. */
typedef struct LlmProgress
{
	LlmProgressPhase phase;
	Oid relation;
	NameData target;  /* in the encoding of its database */
	int64 enrichment; /* a standing one, 0 = CALL llm_enrich */
	Oid role;         /* as whom it runs */
	int64 done;       /* rows written */
	int64 failed;
	int64 pending;   /* known to be to do, and not begun */
	int64 in_flight; /* claimed and not yet written */
	TimestampTz started;
} LlmProgress;

/* One backend's row in llm.stat_activity. */
typedef struct LlmActivity
{
	int pid; /* 0 = never used */
	Oid database;
	Oid role;                /* session user */
	char model[NAMEDATALEN]; /* of the last request, '' = none */
	LlmActivityState state;
	int64 prompt_tokens; /* of this statement */
	int64 cached_tokens;
	int64 generated_tokens;
	TimestampTz query_start;
	TimestampTz state_change;
	LlmProgress progress;
} LlmActivity;

/* Chain the request and startup hooks; while preloading only. */
extern void llm_shmem_init(void);
/* False when the library was not preloaded: nothing below may be called then. */
extern bool llm_shmem_attached(void);

/* Any process. */
extern void llm_shmem_status(LlmEngineStatus *out);
/* Sleep until the status changes or timeout_ms pass; interruptible. seen is the status last read. */
extern void llm_shmem_wait_change(const LlmEngineStatus *seen, long timeout_ms, uint32 wait_event);
/* Ask the supervisor for a new engine; false when there is no supervisor. */
extern bool llm_shmem_request_restart(void);
/* Let the supervisor look around, if there is one. Raises nothing. */
extern void llm_shmem_wake_supervisor(void);

/* The backend's own slot. */
extern void llm_shmem_activity_state(LlmActivityState state, const char *model);
extern void llm_shmem_activity_tokens(int64 prompt, int64 cached, int64 generated);
extern void llm_shmem_activity_progress(const LlmProgress *progress);
/* Copy slot i; false when no living backend uses it. *n_slots is filled always. */
extern bool llm_shmem_activity_read(int i, LlmActivity *out, int *n_slots);

/* The supervisor. */
extern void llm_shmem_publish(const LlmEngineStatus *status);
extern void llm_shmem_supervisor_attach(void); /* its latch can be set from now on */
extern void llm_shmem_supervisor_detach(void);
extern bool llm_shmem_take_restart_request(void);

#endif
