/* pg/jobs/job_commit.c - notes of a transaction, and what its end does with them. */
#include "postgres.h"

#include "pg/jobs/job_commit.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/shmem.h"
#include "pg/workers.h"

#define NOTES_MAX 16 /* with more, the launcher is woken; workers look by themselves every second */

static struct
{
	Oid owner;
	int64 task;
} notes[NOTES_MAX]; /* [Min(n_notes, NOTES_MAX)] */
static int n_notes = 0;
static bool end_noted = false;

static void
xact_callback(XactEvent event, void *arg)
{
	int n = n_notes;
	bool ended = end_noted;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_ABORT)
		return;
	n_notes = 0;
	end_noted = false;
	if (event == XACT_EVENT_ABORT)
		return;
	for (int i = 0; i < n && n <= NOTES_MAX; i++)
		(void) llm_workers_wake(MyDatabaseId, notes[i].owner, notes[i].task);
	if (n > NOTES_MAX)
		(void) llm_workers_wake(MyDatabaseId, InvalidOid, 0);
	if (ended)
		llm_workers_finished();
}

void
llm_job_commit_note(Oid owner, int64 task, bool ended)
{
	static bool registered = false;

	if (!llm_shmem_attached())
		return; /* a cancel, without the library preloaded: nobody works */
	if (!registered)
		RegisterXactCallback(xact_callback, NULL);
	registered = true;
	end_noted = end_noted || ended;
	for (int i = 0; i < n_notes && i < NOTES_MAX; i++)
		if (notes[i].owner == owner && notes[i].task == task)
			return;
	if (n_notes < NOTES_MAX)
	{
		notes[n_notes].owner = owner;
		notes[n_notes].task = task;
	}
	n_notes = Min(n_notes + 1, NOTES_MAX + 1);
}
