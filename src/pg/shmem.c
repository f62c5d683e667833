/* pg/shmem.c - the control block and the activity slots; the lock note is in the header. */
#include "postgres.h"

#include "pg/shmem.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/memo/memo_model.h"
#include "pg/memo/memo_ring.h"
#include "pg/usage.h"
#include "pg/workers.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

typedef struct LlmControl
{
	LWLock *lock;              /* guards status, supervisor, restart_requested */
	LlmEngineStatus status;    /* under lock */
	int supervisor;            /* proc number, -1 = none; under lock */
	bool restart_requested;    /* under lock */
	ConditionVariable changed; /* after a change of status */
	int n_slots;               /* constant after startup */
} LlmControl;

typedef struct LlmSlot
{
	pg_atomic_uint32 changecount; /* odd while its owner writes */
	LlmActivity activity;         /* owner writes, see changecount */
} LlmSlot;

static LlmControl *control = NULL;
static LlmSlot *slots = NULL; /* [control->n_slots] by proc number */
static LlmActivity mine;      /* this backend's row, copied to its slot */
static shmem_request_hook_type prev_request = NULL;
static shmem_startup_hook_type prev_startup = NULL;

static Size
slots_nbytes(void)
{
	return mul_size(MaxBackends, sizeof(LlmSlot));
}

static void
request_shmem(void)
{
	if (prev_request)
		prev_request();
	RequestAddinShmemSpace(add_size(MAXALIGN(sizeof(LlmControl)), MAXALIGN(slots_nbytes())));
	RequestAddinShmemSpace(llm_usage_nbytes());
	RequestAddinShmemSpace(llm_workers_nbytes());
	RequestAddinShmemSpace(llm_memo_model_nbytes());
	RequestAddinShmemSpace(llm_memo_ring_nbytes());
	RequestNamedLWLockTranche("llm_infer", 5);
}

static void
startup_shmem(void)
{
	bool found;

	if (prev_startup)
		prev_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	control = ShmemInitStruct("llm_infer control", sizeof(LlmControl), &found);
	if (!found)
	{
		memset(control, 0, sizeof(*control));
		control->lock = &GetNamedLWLockTranche("llm_infer")[0].lock;
		control->supervisor = -1;
		control->n_slots = MaxBackends;
		strlcpy(control->status.message, LLM_MESSAGE_OFF, LLM_MESSAGE_NBYTES);
		ConditionVariableInit(&control->changed);
	}
	slots = ShmemInitStruct("llm_infer activity", slots_nbytes(), &found);
	if (!found)
	{
		memset(slots, 0, slots_nbytes());
		for (int i = 0; i < control->n_slots; i++)
			pg_atomic_init_u32(&slots[i].changecount, 0);
	}
	llm_usage_startup(&GetNamedLWLockTranche("llm_infer")[1].lock);
	llm_workers_startup(&GetNamedLWLockTranche("llm_infer")[2].lock);
	llm_memo_model_startup(&GetNamedLWLockTranche("llm_infer")[4].lock);
	llm_memo_ring_startup(&GetNamedLWLockTranche("llm_infer")[3].lock);
	LWLockRelease(AddinShmemInitLock);
}

void
llm_shmem_init(void)
{
	prev_request = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_startup = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

bool
llm_shmem_attached(void)
{
	return control != NULL;
}

void
llm_shmem_status(LlmEngineStatus *out)
{
	LWLockAcquire(control->lock, LW_SHARED);
	*out = control->status;
	LWLockRelease(control->lock);
}

void
llm_shmem_wait_change(const LlmEngineStatus *seen, long timeout_ms, uint32 wait_event)
{
	LlmEngineStatus now;

	ConditionVariablePrepareToSleep(&control->changed);
	llm_shmem_status(&now);
	if (now.state == seen->state && now.generation == seen->generation &&
		now.cookie == seen->cookie)
		ConditionVariableTimedSleep(&control->changed, timeout_ms, wait_event);
	ConditionVariableCancelSleep();
}

bool
llm_shmem_request_restart(void)
{
	int supervisor;

	LWLockAcquire(control->lock, LW_EXCLUSIVE);
	supervisor = control->supervisor;
	if (supervisor >= 0)
	{
		control->restart_requested = true;
		SetLatch(&ProcGlobal->allProcs[supervisor].procLatch);
	}
	LWLockRelease(control->lock);
	return supervisor >= 0;
}

void
llm_shmem_wake_supervisor(void)
{
	LWLockAcquire(control->lock, LW_SHARED);
	if (control->supervisor >= 0)
		SetLatch(&ProcGlobal->allProcs[control->supervisor].procLatch);
	LWLockRelease(control->lock);
}

/* Copy `mine` to this backend's slot. */
static void
publish_activity(void)
{
	LlmSlot *slot;
	int i = llm_compat_proc_number();

	if (i < 0 || i >= control->n_slots)
		return;
	slot = &slots[i];
	pg_atomic_fetch_add_u32(&slot->changecount, 1);
	slot->activity = mine;
	pg_write_barrier();
	pg_atomic_fetch_add_u32(&slot->changecount, 1);
}

void
llm_shmem_activity_state(LlmActivityState state, const char *model)
{
	if (control == NULL || (mine.pid == MyProcPid && mine.state == state &&
							(model == NULL || strcmp(model, mine.model) == 0)))
		return;
	mine.pid = MyProcPid;
	mine.database = MyDatabaseId;
	mine.role = GetSessionUserId();
	if (model)
		strlcpy(mine.model, model, sizeof(mine.model));
	if (state != mine.state)
		mine.state_change = GetCurrentTimestamp();
	mine.state = state;
	if (state != LLM_ACTIVITY_IDLE && mine.query_start != GetCurrentStatementStartTimestamp())
	{
		mine.query_start = GetCurrentStatementStartTimestamp();
		mine.prompt_tokens = mine.cached_tokens = mine.generated_tokens = 0;
	}
	publish_activity();
}

void
llm_shmem_activity_tokens(int64 prompt, int64 cached, int64 generated)
{
	if (control == NULL)
		return;
	mine.prompt_tokens += prompt;
	mine.cached_tokens += cached;
	mine.generated_tokens += generated;
	publish_activity();
}

void
llm_shmem_activity_progress(const LlmProgress *progress)
{
	if (control == NULL)
		return;
	mine.pid = MyProcPid;
	mine.database = MyDatabaseId;
	mine.role = GetSessionUserId();
	mine.progress = *progress;
	publish_activity();
}

bool
llm_shmem_activity_read(int i, LlmActivity *out, int *n_slots)
{
	LlmSlot *slot;

	*n_slots = control->n_slots;
	if (i >= control->n_slots)
		return false;
	slot = &slots[i];
	for (;;)
	{
		uint32 before = pg_atomic_read_u32(&slot->changecount);

		pg_read_barrier();
		*out = slot->activity;
		pg_read_barrier();
		if (before % 2 == 0 && pg_atomic_read_u32(&slot->changecount) == before)
			break;
		CHECK_FOR_INTERRUPTS();
	}
	/* The latch: 15 leaves the pid in its place when a process has ended. */
	return out->pid != 0 && ProcGlobal->allProcs[i].procLatch.owner_pid == out->pid;
}

void
llm_shmem_publish(const LlmEngineStatus *status)
{
	LWLockAcquire(control->lock, LW_EXCLUSIVE);
	control->status = *status;
	LWLockRelease(control->lock);
	ConditionVariableBroadcast(&control->changed);
}

void
llm_shmem_supervisor_attach(void)
{
	LWLockAcquire(control->lock, LW_EXCLUSIVE);
	control->supervisor = llm_compat_proc_number();
	control->restart_requested = false;
	LWLockRelease(control->lock);
}

void
llm_shmem_supervisor_detach(void)
{
	LWLockAcquire(control->lock, LW_EXCLUSIVE);
	control->supervisor = -1;
	LWLockRelease(control->lock);
}

bool
llm_shmem_take_restart_request(void)
{
	bool requested;

	LWLockAcquire(control->lock, LW_EXCLUSIVE);
	requested = control->restart_requested;
	control->restart_requested = false;
	LWLockRelease(control->lock);
	return requested;
}
