/* server/crash_marks.c - marks who is in the batch, in memory that outlives this process. */
#include "server/crash_marks.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

static uint32_t
state_load(const LlmJournalEntry *e)
{
	return __atomic_load_n(&e->state, __ATOMIC_ACQUIRE);
}

static void
state_store(LlmJournalEntry *e, uint32_t state)
{
	__atomic_store_n(&e->state, state, __ATOMIC_RELEASE);
}

/* What an entry that the predecessor left becomes. */
static uint32_t
state_inherited(LlmJournalEntry *e, bool killed)
{
	switch (state_load(e))
	{
		case LLM_JOURNAL_RUNNING:
		case LLM_JOURNAL_SUSPECT:
			return LLM_JOURNAL_SUSPECT;
		case LLM_JOURNAL_ALONE:
			return killed && ++e->kills < LLM_JOURNAL_KILLS ? LLM_JOURNAL_SUSPECT
															: LLM_JOURNAL_GUILTY;
		case LLM_JOURNAL_GUILTY:
			return LLM_JOURNAL_GUILTY;
		default:
			return LLM_JOURNAL_FREE;
	}
}

/* Read the predecessor's entries: blame, and note which slots are free. */
static void
inherit(LlmJournalWriter *j)
{
	bool killed = j->map->killed != 0;
	int suspects = 0, guilty = 0;

	j->map->killed = 0;
	for (int i = LLM_JOURNAL_ENTRIES - 1; i >= 0; i--)
	{
		LlmJournalEntry *e = &j->map->entries[i];
		uint32_t state = state_inherited(e, killed);

		state_store(e, state);
		suspects += state == LLM_JOURNAL_SUSPECT;
		guilty += state == LLM_JOURNAL_GUILTY;
		if (state == LLM_JOURNAL_FREE)
			j->free_slots[j->n_free++] = (int16_t) i;
		else
		{
			j->blamed[j->n_blamed++] = (int16_t) i;
			if (e->stamp > j->stamp)
				j->stamp = e->stamp;
		}
	}
	j->stamp++;
	if (suspects > 0 || guilty > 0)
		llm_log(LLM_LOG_WARNING, "crash journal: %d requests will run alone, %d are refused",
				suspects, guilty);
}

LlmStatus
llm_journal_open(LlmJournalWriter *j, int fd, LlmError *err)
{
	struct stat st;
	void *p;

	memset(j, 0, sizeof(*j));
	if (fstat(fd, &st) != 0)
		return llm_error_set(err, LLM_E_IO, "no crash journal at descriptor %d: %s", fd,
							 strerror(errno));
	if (st.st_size < (off_t) sizeof(LlmJournal) && ftruncate(fd, sizeof(LlmJournal)) != 0)
		return llm_error_set(err, LLM_E_IO, "cannot size the crash journal: %s", strerror(errno));
	p = mmap(NULL, sizeof(LlmJournal), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return llm_error_set(err, LLM_E_IO, "cannot map the crash journal: %s", strerror(errno));
	j->map = p;
	if (j->map->magic != LLM_JOURNAL_MAGIC || j->map->n_entries != LLM_JOURNAL_ENTRIES)
	{
		memset(j->map, 0, sizeof(LlmJournal));
		j->map->n_entries = LLM_JOURNAL_ENTRIES;
		j->map->magic = LLM_JOURNAL_MAGIC;
	}
	inherit(j);
	return LLM_OK;
}

void
llm_journal_pardon(LlmJournalWriter *j)
{
	for (int i = 0; i < LLM_JOURNAL_ENTRIES; i++)
	{
		LlmJournalEntry *e = &j->map->entries[i];

		if (state_load(e) == LLM_JOURNAL_RUNNING)
			state_store(e, LLM_JOURNAL_FREE);
		else if (state_load(e) == LLM_JOURNAL_ALONE)
			state_store(e, LLM_JOURNAL_SUSPECT);
	}
}

void
llm_journal_close(LlmJournalWriter *j)
{
	if (j->map == NULL)
		return;
	llm_journal_pardon(j);
	munmap(j->map, sizeof(LlmJournal));
	j->map = NULL;
}

int32_t
llm_journal_find(const LlmJournalWriter *j, uint64_t connection, uint64_t id)
{
	for (int32_t i = 0; i < j->n_blamed; i++)
	{
		const LlmJournalEntry *e = &j->map->entries[j->blamed[i]];

		if (e->id == id && e->connection == connection)
			return j->blamed[i];
	}
	return -1;
}

uint32_t
llm_journal_state(const LlmJournalWriter *j, int32_t slot)
{
	return state_load(&j->map->entries[slot]);
}

/* Take slot off the list of blamed ones, if it is there. */
static void
acquit(LlmJournalWriter *j, int32_t slot)
{
	for (int32_t i = 0; i < j->n_blamed; i++)
		if (j->blamed[i] == slot)
		{
			j->blamed[i] = j->blamed[--j->n_blamed];
			return;
		}
}

/* Free the oldest entry that belongs to no request of this engine: this engine's stamp is on those
 * that do. */
static void
evict(LlmJournalWriter *j)
{
	int32_t oldest = -1;

	for (int32_t i = 0; i < j->n_blamed; i++)
	{
		const LlmJournalEntry *e = &j->map->entries[j->blamed[i]];

		if (e->stamp < j->stamp && (oldest < 0 || e->stamp < j->map->entries[oldest].stamp))
			oldest = j->blamed[i];
	}
	if (oldest >= 0)
		llm_journal_mark(j, oldest, LLM_JOURNAL_FREE);
}

int32_t
llm_journal_take(LlmJournalWriter *j, uint64_t connection, uint64_t id)
{
	LlmJournalEntry *e;
	int32_t slot = llm_journal_find(j, connection, id);

	if (slot < 0)
	{
		if (j->n_free == 0)
			evict(j);
		if (j->n_free == 0)
			return -1;
		slot = j->free_slots[--j->n_free];
		j->map->entries[slot].kills = 0;
	}
	e = &j->map->entries[slot];
	e->connection = connection;
	e->id = id;
	e->stamp = j->stamp;
	return slot;
}

void
llm_journal_mark(LlmJournalWriter *j, int32_t slot, uint32_t state)
{
	if (slot < 0)
		return;
	state_store(&j->map->entries[slot], state);
	if (state == LLM_JOURNAL_FREE)
	{
		acquit(j, slot);
		j->free_slots[j->n_free++] = (int16_t) slot;
	}
}

void
llm_journal_forget(LlmJournalWriter *j, uint64_t connection)
{
	for (int32_t i = j->n_blamed - 1; i >= 0; i--)
	{
		int32_t slot = j->blamed[i];

		if (j->map->entries[slot].connection == connection)
			llm_journal_mark(j, slot, LLM_JOURNAL_FREE);
	}
}
