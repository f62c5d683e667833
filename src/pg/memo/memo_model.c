/* pg/memo/memo_model.c - ask the engine by a LOAD, and see when to ask again; see memo_model.h. */
#include "postgres.h"

#include "pg/memo/memo_model.h"

#include <sys/stat.h>

#include "pg/client.h"
#include "pg/guc.h"
#include "pg/shmem.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define IMPATIENT_MS 1000
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

/* Of a model; in its memory. */
typedef struct LlmMemoModel
{
	char *path;    /* of the file; NULL = it has none */
	Place told_of; /* as it was before numerics was asked for */
	uint64 numerics;
	Place asked_of;
	LlmClientRequest *question; /* LOAD, in a context of its own; NULL = none */
} LlmMemoModel;

static LlmMemoModel *
memory_of(LlmModel *model)
{
	MemoryContext old;

	if (model->memo != NULL)
		return model->memo;
	old = MemoryContextSwitchTo(model->cxt);
	model->memo = palloc0(sizeof(LlmMemoModel));
	if (strncmp(model->spec.path, "echo:", 5) != 0)
		model->memo->path = psprintf("%s/%s", llm_guc_model_dir, model->spec.path);
	MemoryContextSwitchTo(old);
	return model->memo;
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

static bool
same_place(const Place *a, const Place *b)
{
	return memcmp(a, b, sizeof(Place)) == 0;
}

static void
drop_question(LlmMemoModel *memo)
{
	if (memo->question != NULL)
		MemoryContextDelete(memo->question->cxt);
	memo->question = NULL;
}

static bool
is_asked(const LlmMemoModel *memo)
{
	const LlmClientRequest *q = memo->question;

	return q != NULL && (q->state == LLM_CLIENT_QUEUED || q->state == LLM_CLIENT_SENT ||
						 q->state == LLM_CLIENT_FINISHED);
}

/* A LOAD makes the engine look at the file, whatever it has seen of it before. */
static void
ask(LlmModel *model, LlmMemoModel *memo, Place now)
{
	MemoryContext cxt =
		AllocSetContextCreate(model->cxt, "llm_infer model question", ALLOCSET_SMALL_SIZES);
	LlmClientRequest *q = MemoryContextAllocZero(cxt, sizeof(LlmClientRequest));

	q->cxt = cxt;
	q->kind = LLM_CLIENT_LOAD;
	q->model = model;
	memo->question = q;
	memo->asked_of = now;
	llm_client_begin_owned(q);
}

/* Wait for the answer; false when it is not here yet. */
static bool
await(LlmMemoModel *memo, int timeout_ms)
{
	LlmClientRequest *q = memo->question;

	/* A load may take minutes, in which the catalogs' snapshot would hold back vacuum. */
	if (q->state != LLM_CLIENT_FINISHED)
		InvalidateCatalogSnapshot();
	if (timeout_ms > 0)
		return q->state == LLM_CLIENT_FINISHED || llm_client_wait_at_most(q, timeout_ms);
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

/* Take what was told. False when the model cannot answer: f is set. */
static bool
take_answer(LlmMemoModel *memo, LlmFailure *f)
{
	const LlmClientRequest *q = memo->question;
	bool ok = q->failure.sqlstate == 0;

	if (ok)
	{
		memo->numerics = q->answer.numerics_key;
		memo->told_of = memo->asked_of;
	}
	else
		copy_failure(&q->failure, f);
	drop_question(memo);
	return ok;
}

uint64
llm_memo_model_numerics(LlmModel *model, bool patient, int timeout_ms, LlmFailure *f)
{
	LlmMemoModel *memo = memory_of(model);

	for (int i = 0; i < QUESTIONS_MAX; i++)
	{
		Place now = place_now(memo);
		bool asked;

		if (memo->numerics != 0 && same_place(&memo->told_of, &now))
			return memo->numerics;
		asked = is_asked(memo);
		if (!asked)
		{
			drop_question(memo);
			ask(model, memo, now);
		}
		if (!patient && asked && memo->question->state != LLM_CLIENT_FINISHED)
			return 0;
		if (!await(memo, patient ? timeout_ms : IMPATIENT_MS))
		{
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
	return 0;
}
