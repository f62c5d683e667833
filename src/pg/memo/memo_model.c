/* pg/memo/memo_model.c - ask the engine by a LOAD, and see when to ask again; see memo_model.h. */
#include "postgres.h"

#include "pg/memo/memo_model.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "pg/client.h"
#include "pg/guc.h"
#include "pg/shmem.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define IMPATIENT_MS 1000
#define AGAIN_MS 10000  /* after that was too short, for those who are */
#define QUESTIONS_MAX 4 /* one after the other, while the file or the engine changes */

/* What must be the same for what was told to hold: the engine and the file. All zero but the first when
 * there is no file. */
typedef struct Place
{
	uint64 generation;
	uint64 device;
	uint64 inode;
	int64 nbytes;
	int64 written_ns;
	int64 changed_ns;
} Place;

#define N_SHARED 64

/* What one process was told is good for all of the cluster, also when the model is not loaded any
 * more: an entry is overwritten in turn. */
typedef struct Told
{
	uint64 spec; /* hash of the model's options, path included */
	Place of;
	uint64 numerics; /* 0 = free */
} Told;

typedef struct Shared
{
	LWLock *lock; /* guards the others */
	int next;
	Told told[N_SHARED];
} Shared;

static Shared *shared = NULL;

/* Of a model; in its memory. */
typedef struct LlmMemoModel
{
	uint64 spec;   /* hash, as above */
	char *path;    /* of the file; NULL = it has none */
	Place told_of; /* as it was before numerics was asked for */
	uint64 numerics;
	Place asked_of;
	LlmClientRequest *question; /* LOAD, in a context of its own; NULL = none */
	TimestampTz again;          /* the impatient do not ask before */
} LlmMemoModel;

/* ---- what the cluster was told ---- */

Size
llm_memo_model_nbytes(void)
{
	return sizeof(Shared);
}

void
llm_memo_model_startup(LWLock *lock)
{
	bool found;

	shared = ShmemInitStruct("llm_infer memo models", sizeof(Shared), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(Shared));
	shared->lock = lock;
}

static bool
same_place(const Place *a, const Place *b)
{
	return memcmp(a, b, sizeof(Place)) == 0;
}

/* 0 = not told. */
static uint64
find_told(uint64 spec, const Place *of)
{
	uint64 numerics = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; numerics == 0 && i < N_SHARED; i++)
		if (shared->told[i].spec == spec && same_place(&shared->told[i].of, of))
			numerics = shared->told[i].numerics;
	LWLockRelease(shared->lock);
	return numerics;
}

static void
share_told(uint64 spec, const Place *of, uint64 numerics)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->told[shared->next] = (Told){spec, *of, numerics};
	shared->next = (shared->next + 1) % N_SHARED;
	LWLockRelease(shared->lock);
}

/* ---- what this process knows ---- */

static LlmMemoModel *
memory_of(LlmModel *model)
{
	MemoryContext old;
	LlmMemoModel *memo;

	if (model->memo != NULL)
		return model->memo;
	old = MemoryContextSwitchTo(model->cxt);
	memo = palloc0(sizeof(LlmMemoModel));
	memo->spec = hash_bytes_extended(model->key, (int) model->n_key, 0);
	if (strncmp(model->spec.path, "echo:", 5) != 0)
		memo->path = psprintf("%s/%s", llm_guc_model_dir, model->spec.path);
	MemoryContextSwitchTo(old);
	model->memo = memo; /* whole: without a path it would have no file */
	return memo;
}

static int64
nanoseconds(struct timespec t)
{
	return (int64) t.tv_sec * 1000000000 + t.tv_nsec;
}

static Place
place_now(const LlmMemoModel *memo)
{
	LlmEngineStatus status;
	Place place = {0};
	struct stat st;

	llm_shmem_status(&status);
	place.generation = status.generation;
	if (memo->path == NULL || stat(memo->path, &st) != 0)
		return place;
	place.device = st.st_dev;
	place.inode = st.st_ino;
	place.nbytes = st.st_size;
	place.written_ns = nanoseconds(st.st_mtim);
	place.changed_ns = nanoseconds(st.st_ctim);
	return place;
}

/* ---- asking ---- */

static void
drop_question(LlmMemoModel *memo)
{
	if (memo->question != NULL)
		MemoryContextDelete(memo->question->cxt);
	memo->question = NULL;
}

/* A LOAD makes the engine look at the file, whatever it has seen of it before. */
static void
ask(LlmModel *model, LlmMemoModel *memo, Place now)
{
	MemoryContext cxt =
		AllocSetContextCreate(model->cxt, "llm_infer model question", ALLOCSET_SMALL_SIZES);
	LlmClientRequest *q = MemoryContextAllocZero(cxt, sizeof(LlmClientRequest));

	drop_question(memo); /* an error has ended the wait for it */
	q->cxt = cxt;
	q->kind = LLM_CLIENT_LOAD;
	q->model = model;
	memo->question = q;
	memo->asked_of = now;
	llm_client_begin_owned(q);
}

/* Wait for the answer, at most timeout_ms (0 = any time): false when it has not come. */
static bool
await(LlmClientRequest *q, int timeout_ms)
{
	/* A load may take minutes, in which the catalogs' snapshot would hold back vacuum. */
	InvalidateCatalogSnapshot();
	if (timeout_ms > 0)
		return llm_client_wait_at_most(q, timeout_ms);
	llm_client_wait(q);
	return true;
}

static void
copy_failure(const LlmFailure *from, LlmFailure *f)
{
	f->sqlstate = from->sqlstate;
	f->message = pstrdup(from->message);
	f->detail = from->detail ? pstrdup(from->detail) : NULL;
	f->hint = from->hint ? pstrdup(from->hint) : NULL;
}

/* Take what was told of a place that is still the same. False when the model cannot answer: f is set. */
static bool
take_answer(LlmMemoModel *memo, LlmFailure *f)
{
	const LlmClientRequest *q = memo->question;
	Place now = place_now(memo);
	bool same = same_place(&memo->asked_of, &now);
	bool failed = same && q->failure.sqlstate != 0;

	if (failed)
		copy_failure(&q->failure, f);
	else if (same)
	{
		memo->numerics = q->answer.numerics_key;
		memo->told_of = now;
		share_told(memo->spec, &now, memo->numerics);
	}
	drop_question(memo);
	return !failed;
}

/* What is known of the place as it is now, 0 = nothing; the place is given out. */
static uint64
find_known(LlmMemoModel *memo, Place *now)
{
	*now = place_now(memo);
	if (memo->numerics == 0 || !same_place(&memo->told_of, now))
	{
		memo->numerics = find_told(memo->spec, now);
		memo->told_of = *now;
	}
	return memo->numerics;
}

uint64
llm_memo_model_numerics(LlmModel *model, bool patient, int timeout_ms, LlmFailure *f)
{
	LlmMemoModel *memo = memory_of(model);
	Place now;
	uint64 numerics;

	for (int i = 0; (numerics = find_known(memo, &now)) == 0 && i < QUESTIONS_MAX; i++)
	{
		if (!patient && GetCurrentTimestamp() < memo->again)
			return 0;
		ask(model, memo, now);
		if (!await(memo->question, patient ? timeout_ms : IMPATIENT_MS))
		{
			drop_question(memo);
			memo->again = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), AGAIN_MS);
			if (patient)
				llm_failure_set_status(f, LLM_E_TIMEOUT,
									   psprintf("request was not answered within %d ms",
												timeout_ms),
									   NULL, NULL);
			return 0;
		}
		if (!take_answer(memo, f))
			return 0;
	}
	return numerics;
}
