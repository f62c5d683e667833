/*
 * test_file_guard.c - mapped files whose bytes turn out not to be there: whoever reads them gets zeroes and
 * is told afterwards; what has nothing to do with a file ends the process as ever.
 *
 * links: core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "core/pool.h"

#define PAGE 65536 /* a whole number of pages, whatever their size is */
#define N_PAGES 4

static char path[] = "/tmp/llm-test-guard-XXXXXX";
static int fd;

static const struct timespec long_ago[] = {{1000, 0}, {1000, 0}};

/* Write N_PAGES of ones, long ago. */
static void
file_write(void)
{
	static char ones[N_PAGES * PAGE];

	memset(ones, 1, sizeof(ones));
	assert_int_equal(pwrite(fd, ones, sizeof(ones), 0), sizeof(ones));
	assert_int_equal(futimens(fd, long_ago), 0);
}

static LlmFile
opened(void)
{
	LlmFile f;
	LlmError err;

	assert_int_equal(llm_file_open(NULL, path, &f, &err), LLM_OK);
	return f;
}

/* All of a file but its first page, which is there. */
static uint32_t
sum_after(const LlmFile *f)
{
	uint32_t sum = 0;

	for (size_t i = PAGE; i < f->len; i++)
		sum += f->data[i];
	return sum;
}

static void
assert_refused(const LlmFile *f, const char *why)
{
	LlmError err = {0};

	assert_int_equal(llm_file_check(f, path, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, path));
	assert_non_null(strstr(err.text, why));
}

static void
what_was_cut_off_reads_as_zeroes(void **state)
{
	LlmFile f, other;
	LlmError err;

	file_write();
	f = opened();
	other = opened();
	assert_int_equal(llm_file_check(&f, path, &err), LLM_OK);
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	assert_refused(&f, "was cut short");
	assert_int_equal(sum_after(&f), PAGE);
	assert_int_equal(f.data[PAGE - 1], 1);
	assert_refused(&f, "was cut short");
	assert_int_equal(other.data[2 * PAGE - 1], 1); /* of its own, and still there */
	llm_file_close(&f);
	assert_int_equal(sum_after(&other), PAGE);
	llm_file_close(&other);
	file_write();
	f = opened();
	assert_int_equal(sum_after(&f), (N_PAGES - 1) * PAGE);
	assert_int_equal(llm_file_check(&f, path, &err), LLM_OK);
	llm_file_close(&f);
}

/* A file that looks as it did, but could not be read meanwhile: as when a disk fails. */
static void
what_could_not_be_read_is_not_believed(void **state)
{
	LlmFile f;

	file_write();
	f = opened();
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(sum_after(&f), 0);
	assert_int_equal(ftruncate(fd, N_PAGES * PAGE), 0);
	assert_refused(&f, "was written to");
	assert_int_equal(futimens(fd, long_ago), 0);
	assert_refused(&f, "its storage has failed");
	llm_file_close(&f);
}

/* What each thread of a pool reads. */
typedef struct Readers
{
	LlmFile f;
	uint32_t sums[4];
} Readers;

static void
file_read(void *arg, int tid, int n_threads)
{
	Readers *r = arg;

	(void) n_threads;
	r->sums[tid] = sum_after(&r->f);
}

static void
threads_of_the_pool_read_on(void **state)
{
	Readers r = {.sums = {1, 1, 1, 1}};
	LlmPool *pool;
	LlmError err;

	file_write();
	r.f = opened();
	assert_int_equal(llm_pool_create(4, &pool, &err), LLM_OK);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	llm_pool_run(pool, file_read, &r);
	llm_pool_free(pool);
	for (int i = 0; i < 4; i++)
		assert_int_equal(r.sums[i], 0);
	assert_refused(&r.f, "was cut short");
	llm_file_close(&r.f);
}

typedef enum Deed
{
	READ_FILE,
	READ_OTHER, /* a mapping that nobody guards */
	KILL
} Deed;

static void
deed_do(Deed deed)
{
	LlmFile f = opened();
	volatile const uint8_t *p = f.data;

	assert_int_equal(ftruncate(fd, 0), 0);
	if (deed == READ_OTHER)
		p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	if (deed == KILL)
		raise(SIGBUS);
	else
		(void) *p;
}

/* Whether a child that does that dies of it. */
static bool
dies(Deed deed)
{
	int status = 0;
	pid_t pid;

	file_write();
	pid = fork();
	if (pid == 0)
	{
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGBUS, SIG_DFL); /* instead of cmocka's */
		alarm(20);               /* a signal that comes again and again is no end */
		deed_do(deed);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) || WTERMSIG(status) == SIGBUS);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void
other_bus_errors_end_the_process(void **state)
{
	assert_false(dies(READ_FILE));
	assert_true(dies(READ_OTHER));
	assert_true(dies(KILL));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_cut_off_reads_as_zeroes),
		cmocka_unit_test(what_could_not_be_read_is_not_believed),
		cmocka_unit_test(threads_of_the_pool_read_on),
		cmocka_unit_test(other_bus_errors_end_the_process),
	};
	int failed;

	fd = mkstemp(path);
	failed = fd < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
