/*
 * test_core.c - status, text, memory, files, threads, logs and random numbers.
 * links: core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/file.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/pool.h"
#include "core/rng.h"
#include "core/status.h"
#include "core/str.h"

/* Sanitizers abort at sizes that malloc refuses; the tests want the refusal. */
__attribute__((visibility("default"))) const char *
__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

__attribute__((visibility("default"))) const char *
__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

/* ---- status ---- */

static void
test_error_set(void **state)
{
	LlmError err;

	memset(&err, 0xff, sizeof(err));
	assert_int_equal(llm_error_set(&err, LLM_E_CONTEXT, "%d of %d", 7, 5), LLM_E_CONTEXT);
	llm_error_numbers(&err, 7, 5);
	llm_error_detail(&err, "key %s", "a.b");
	llm_error_hint(&err, "shorten it");
	assert_int_equal(err.code, LLM_E_CONTEXT);
	assert_string_equal(err.text, "7 of 5");
	assert_string_equal(err.detail, "key a.b");
	assert_string_equal(err.hint, "shorten it");
	assert_int_equal(err.got, 7);
	assert_int_equal(err.limit, 5);
	llm_error_set(&err, LLM_E_IO, "next");
	assert_string_equal(err.detail, "");
	assert_string_equal(err.hint, "");
	assert_int_equal(err.got, 0);
	assert_int_equal(llm_error_set(NULL, LLM_E_MODEL, "nobody reads it"), LLM_E_MODEL);
	llm_error_detail(NULL, "x");
	llm_error_hint(NULL, "x");
	llm_error_numbers(NULL, 1, 2);
}

/* Overlong texts of 1 to 4 byte characters at every offset stay valid and lose under 4 bytes. */
static void
test_error_clipping(void **state)
{
	static const char *const chars[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8d\x8e"};

	for (int c = 0; c < 4; c++)
		for (int lead = 0; lead < 5; lead++)
		{
			char text[600] = "";
			LlmError err;

			for (int i = 0; i < lead; i++)
				strcat(text, "a");
			while (strlen(text) < 500)
				strcat(text, chars[c]);
			llm_error_set(&err, LLM_E_INVALID, "%s", text);
			llm_error_detail(&err, "%s", text);
			llm_error_hint(&err, "%s", text);
			assert_in_range(strlen(err.text), 196, 199);
			assert_true(llm_utf8_valid(err.text, strlen(err.text)));
			assert_memory_equal(err.text, text, strlen(err.text));
			assert_string_equal(err.text, err.detail);
			assert_string_equal(err.text, err.hint);
		}
}

static void
test_status_names(void **state)
{
	for (int i = LLM_OK; i <= LLM_E_IO; i++)
		assert_string_not_equal(llm_status_name((LlmStatus) i), "unknown");
	assert_string_equal(llm_status_name((LlmStatus) (LLM_E_IO + 1)), "unknown");
	assert_string_equal(llm_status_name((LlmStatus) -1), "unknown");
}

/* ---- text ---- */

static void
test_buf(void **state)
{
	LlmBuf b = {0};
	char want[3000];

	assert_true(llm_buf_append(&b, NULL, 0));
	assert_string_equal(b.data, "");
	for (size_t i = 0; i < sizeof(want); i++)
	{
		want[i] = (char) ('a' + i % 26);
		assert_true(llm_buf_append(&b, &want[i], 1));
		assert_int_equal(b.data[b.len], '\0');
		assert_true(b.len < b.cap);
	}
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
	assert_false(llm_buf_reserve(&b, SIZE_MAX));
	assert_false(llm_buf_reserve(&b, SIZE_MAX - b.len - 1));
	assert_false(llm_buf_reserve(&b, SIZE_MAX / 2));
	assert_memory_equal(b.data, want, sizeof(want));
	llm_buf_clear(&b);
	assert_int_equal(b.len, 0);
	assert_string_equal(b.data, "");
	llm_buf_fini(&b);
	assert_null(b.data);
	llm_buf_clear(&b);
	llm_buf_fini(&b);
	assert_true(llm_str_eq(llm_str(NULL), ""));
	assert_true(llm_str_eq(llm_str("abc"), "abc"));
	assert_false(llm_str_eq(llm_str("abc"), "ab"));
	assert_false(llm_str_eq((LlmStr){"abc", 2}, "abc"));
}

static void
test_marked_text(void **state)
{
	LlmMarkedText m = {0};
	size_t at = 0;

	assert_true(llm_marked_append(&m, "<u>", 3, true));
	assert_true(llm_marked_append(&m, "", 0, false)); /* leaves no span */
	assert_true(llm_marked_append(&m, "\n", 1, true));
	assert_int_equal(m.n_spans, 1);
	for (int i = 0; i < 100; i++)
	{
		assert_true(llm_marked_append(&m, "hi", 2, i % 2 == 1));
		assert_int_equal(m.n_spans, i + 2);
	}
	assert_int_equal(m.text.len, 204);
	for (size_t i = 0; i < m.n_spans; i++)
	{
		assert_int_equal(m.spans[i].begin, at);
		assert_true(m.spans[i].end > at);
		assert_int_equal(m.spans[i].trusted, i % 2 == 0);
		at = m.spans[i].end;
	}
	assert_int_equal(at, m.text.len);
	llm_marked_fini(&m);
	assert_null(m.spans);
}

static void
test_tokens(void **state)
{
	LlmTokens t = {0};
	int32_t three[] = {-1, 0, INT32_MAX};

	for (int32_t i = 0; i < 1000; i++)
		assert_true(llm_tokens_push(&t, i * 3));
	assert_true(llm_tokens_append(&t, three, 3));
	assert_true(llm_tokens_append(&t, NULL, 0));
	assert_int_equal(t.len, 1003);
	assert_int_equal(t.ids[999], 2997);
	assert_int_equal(t.ids[1002], INT32_MAX);
	assert_false(llm_tokens_append(&t, three, SIZE_MAX));
	assert_false(llm_tokens_append(&t, three, SIZE_MAX / 4));
	llm_tokens_fini(&t);
	assert_int_equal(t.cap, 0);
}

/* Decode by the definition of RFC 3629: -1 when the bytes are not exactly one valid character. */
static int64_t
decode(const unsigned char *p, int n)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	int len = p[0] < 0x80         ? 1
			  : (p[0] >> 5) == 6  ? 2
			  : (p[0] >> 4) == 14 ? 3
			  : (p[0] >> 3) == 30 ? 4
								  : 0;
	uint32_t v = len == 1 ? p[0] : p[0] & (0x7Fu >> len);

	if (len != n)
		return -1;
	for (int i = 1; i < n; i++)
	{
		if ((p[i] & 0xC0) != 0x80)
			return -1;
		v = v << 6 | (p[i] & 0x3F);
	}
	return v < least[len] || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF) ? -1 : (int64_t) v;
}

static void
test_utf8(void **state)
{
	unsigned char p[4];

	for (uint32_t v = 0; v < 0x10000; v++) /* every pair of bytes, with every kind of tail */
		for (int tail = 0; tail < 4; tail++)
		{
			static const unsigned char tails[] = {0x80, 0xBF, 0x41, 0xC3};

			p[0] = (unsigned char) (v >> 8);
			p[1] = (unsigned char) v;
			p[2] = tails[tail];
			p[3] = 0x80;
			for (int n = 1; n <= 4; n++)
				if (decode(p, n) >= 0)
					assert_true(llm_utf8_valid((char *) p, (size_t) n));
				else if (n == 1 || decode(p, 1) < 0)
					assert_int_equal(llm_utf8_valid((char *) p, (size_t) n),
									 (n == 4 && decode(p, 2) >= 0 && decode(p + 2, 2) >= 0) ||
										 (n == 3 && decode(p, 2) >= 0 && decode(p + 2, 1) >= 0));
		}
	assert_true(llm_utf8_valid(NULL, 0));
	assert_false(llm_utf8_valid("\xed\xa0\x80", 3));     /* surrogate */
	assert_false(llm_utf8_valid("\xf4\x90\x80\x80", 4)); /* above U+10FFFF */
	assert_false(llm_utf8_valid("\xc0\x80", 2));         /* overlong NUL */
}

static void
test_utf8_complete(void **state)
{
	static const struct
	{
		const char *text;
		size_t complete;
	} cases[] = {
		{"", 0},
		{"abc", 3},
		{"a\xc3", 1},
		{"a\xc3\xa9", 3},
		{"a\xe2\x82", 1},
		{"\xe2\x82\xac", 3},
		{"a\xf0\x9f\x8d", 1},
		{"\xf0\x9f\x8d\x8e", 4},
		{"\xf0\x9f\x8d\x8e\xf0", 4},
		{"a\xff", 2},        /* never valid: whole, to be replaced */
		{"a\xe0\x80", 3},    /* overlong: never valid */
		{"\x80\x80\x80", 3}, /* no lead at all */
		{"\xc3\xa9\xe2", 2},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(llm_utf8_complete(cases[i].text, strlen(cases[i].text)),
						 cases[i].complete);
}

/* ---- memory ---- */

static void
test_arena(void **state)
{
	LlmArena a = {0};
	unsigned char *all[300];
	unsigned char *big;

	for (size_t i = 0; i < 300; i++)
	{
		size_t n = i * 7 + 1;

		all[i] = llm_arena_alloc(&a, n);
		assert_non_null(all[i]);
		assert_int_equal((uintptr_t) all[i] % 16, 0);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(all[i][k], 0);
		memset(all[i], (int) (i % 251 + 1), n);
	}
	big = llm_arena_alloc(&a, 1 << 20);
	memset(big, 0xEE, 1 << 20);
	for (size_t i = 0; i < 300; i++)
		for (size_t k = 0; k < i * 7 + 1; k++)
			assert_int_equal(all[i][k], i % 251 + 1);
	assert_non_null(llm_arena_alloc(&a, 0));
	assert_null(llm_arena_alloc(&a, SIZE_MAX));
	assert_null(llm_arena_alloc(&a, SIZE_MAX - 15));
	assert_null(llm_arena_array(&a, SIZE_MAX / 4, 8));
	assert_non_null(llm_arena_array(&a, SIZE_MAX, 0));
	assert_null(llm_arena_copy(&a, "x", SIZE_MAX));
	assert_string_equal(llm_arena_copy(&a, "hello", 4), "hell");
	assert_string_equal(llm_arena_copy(&a, NULL, 0), "");
	llm_arena_fini(&a);
	assert_null(a.chunks);
	llm_arena_fini(&a);
}

static void
test_block(void **state)
{
	static const size_t sizes[] = {1, 100, 4096, ((size_t) 2 << 20) - 1, (size_t) 2 << 20, 5000001};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		unsigned char *p = llm_block_create(sizes[i]);

		assert_non_null(p);
		assert_int_equal((uintptr_t) p % (sizes[i] >= (size_t) 2 << 20 ? (size_t) 2 << 20 : 64), 0);
		assert_int_equal(p[0] | p[sizes[i] / 2] | p[sizes[i] - 1], 0);
		memset(p, 1, sizes[i]);
		llm_block_free(p, sizes[i]);
	}
	assert_null(llm_block_create(0));
	assert_null(llm_block_create(SIZE_MAX));
	assert_null(llm_block_create(SIZE_MAX - ((size_t) 2 << 20)));
	llm_block_free(NULL, 0);
}

/* Bytes on huge pages of the mapping that p lies in. */
static size_t
huge_nbytes(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	uintptr_t begin, end;
	bool inside = false;
	size_t kib = 0;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
			inside = (uintptr_t) p >= begin && (uintptr_t) p < end;
		else if (inside && sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
			break;
	fclose(f);
	return kib << 10;
}

/* Small pages are told, and moved to huge ones as soon as the system allows it. */
static void
test_block_collapse(void **state)
{
	size_t nbytes = (size_t) 6 << 20;
	unsigned char *p;

	if (madvise(NULL, 0, 25) != 0)
		skip(); /* before Linux 6.1 */
	assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	p = llm_block_create(nbytes);
	assert_non_null(p);
	memset(p, 7, nbytes);
	assert_false(llm_block_collapse(p, nbytes - 100));
	assert_int_equal(huge_nbytes(p), 0);
	assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
	assert_true(llm_block_collapse(p, nbytes - 100));
	assert_true(huge_nbytes(p) >= nbytes);
	for (size_t i = 0; i < nbytes; i++)
		assert_int_equal(p[i], 7);
	llm_block_free(p, nbytes);
}

/* ---- files ---- */

/* A folder with: f (5 bytes), empty, sub/g, link -> f, out -> /etc, fifo. */
static char dir[] = "/tmp/llm_core_XXXXXX";

static void
put(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int
folder_make(void **state)
{
	char path[128];

	if (mkdtemp(dir) == NULL)
		return -1;
	put("f", "hello");
	put("empty", "");
	snprintf(path, sizeof(path), "%s/sub", dir);
	mkdir(path, 0700);
	put("sub/g", "below");
	snprintf(path, sizeof(path), "%s/link", dir);
	if (symlink("f", path) != 0)
		return -1;
	snprintf(path, sizeof(path), "%s/out", dir);
	if (symlink("/etc", path) != 0)
		return -1;
	snprintf(path, sizeof(path), "%s/fifo", dir);
	return mkfifo(path, 0600);
}

static int
folder_remove(void **state)
{
	static const char *const names[] = {"f", "empty", "sub/g", "link", "out", "fifo"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/sub", dir);
	rmdir(path);
	return rmdir(dir);
}

static void
test_file_open(void **state)
{
	LlmFile f;
	LlmError err;
	char path[128];

	assert_int_equal(llm_file_open(dir, "f", &f, &err), LLM_OK);
	assert_int_equal(f.len, 5);
	assert_memory_equal(f.data, "hello", 5);
	llm_file_close(&f);
	assert_int_equal(f.fd, -1);
	llm_file_close(&f);
	assert_int_equal(llm_file_open(dir, "sub/g", &f, &err), LLM_OK);
	llm_file_close(&f);
	assert_int_equal(llm_file_open(dir, "sub/../f", &f, &err), LLM_OK); /* stays below */
	llm_file_close(&f);
	assert_int_equal(llm_file_open(dir, "empty", &f, &err), LLM_OK);
	assert_int_equal(f.len, 0);
	assert_null(f.data);
	llm_file_close(&f);
	snprintf(path, sizeof(path), "%s/link", dir); /* the caller's own path may be a link */
	assert_int_equal(llm_file_open(NULL, path, &f, &err), LLM_OK);
	llm_file_close(&f);
}

/* A file that is written to, replaced or removed is another one. */
static void
test_file_is(void **state)
{
	LlmFile f;
	LlmFileId id;
	LlmError err;
	char path[128], other[128];
	int fd;

	snprintf(path, sizeof(path), "%s/changing", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "abc", 3), 3);
	assert_int_equal(llm_file_open(dir, "changing", &f, &err), LLM_OK);
	id = f.id;
	assert_int_equal(id.nbytes, 3);
	assert_int_equal(llm_file_check(&f, path, &err), LLM_OK);
	assert_true(llm_file_is(dir, "changing", &id));
	assert_true(llm_file_is(NULL, path, &id));
	assert_false(llm_file_is(dir, "f", &id));
	usleep(20000); /* longer than the file system's clock ticks */
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(llm_file_check(&f, path, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "was written to while it was read"));
	assert_false(llm_file_is(dir, "changing", &id));
	llm_file_close(&f);
	close(fd);
	assert_int_equal(llm_file_open(dir, "changing", &f, &err), LLM_OK);
	id = f.id;
	assert_int_equal(rename(path, other), 0);
	assert_false(llm_file_is(dir, "changing", &id));
	assert_true(llm_file_is(dir, "other", &id));
	/* A link in its place is not followed. */
	assert_int_equal(symlink("other", path), 0);
	assert_false(llm_file_is(dir, "changing", &id));
	assert_int_equal(llm_file_check(&f, path, &err), LLM_OK);
	llm_file_close(&f);
	unlink(path);
	unlink(other);
}

static void
test_file_refused(void **state)
{
	static const struct
	{
		const char *path, *why;
	} cases[] = {
		{"none", "No such file"},
		{"", "No such file"},
		{"../f", "leads out"},
		{"sub/../../x", "leads out"},
		{"/etc/passwd", "leads out"},
		{"link", "symbolic links"},
		{"out/passwd", "symbolic links"},
		{"fifo", "not a regular file"},
		{"sub", "not a regular file"},
		{"f/x", "Not a directory"},
	};
	LlmFile f;
	LlmError err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		assert_int_equal(llm_file_open(dir, cases[i].path, &f, &err), LLM_E_MODEL);
		assert_int_equal(f.fd, -1);
		assert_non_null(strstr(err.text, cases[i].why));
		assert_non_null(strstr(err.text, cases[i].path));
	}
	assert_int_equal(llm_file_open("/nonexistent", "f", &f, &err), LLM_E_MODEL);
	assert_int_equal(llm_file_open(NULL, "/dev/zero", &f, &err), LLM_E_MODEL);
	assert_int_equal(llm_file_open(NULL, "/", &f, &err), LLM_E_MODEL);
}

static void
test_cursor(void **state)
{
	static const uint8_t bytes[] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09,
									0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0xaa, 0xbb};
	LlmCursor c = {bytes, sizeof(bytes), false};

	assert_ptr_equal(llm_cursor_bytes(&c, 3), bytes);
	assert_int_equal(llm_cursor_u32(&c), 0x07060504);
	assert_int_equal(llm_cursor_u64(&c), 0x0f0e0d0c0b0a0908u);
	assert_int_equal(c.left, 2);
	assert_ptr_equal(llm_cursor_bytes(&c, 0), bytes + 15);
	assert_false(c.bad);
	assert_int_equal(llm_cursor_u32(&c), 0); /* two bytes are left */
	assert_true(c.bad);
	assert_int_equal(llm_cursor_u32(&c), 0); /* for good */
	assert_null(llm_cursor_bytes(&c, 1));
	c = (LlmCursor){bytes, sizeof(bytes), false};
	assert_null(llm_cursor_bytes(&c, UINT64_MAX));
	assert_true(c.bad);
	c = (LlmCursor){NULL, 0, false};
	llm_cursor_bytes(&c, 0);
	assert_false(c.bad);
	assert_int_equal(llm_cursor_u64(&c), 0);
	assert_true(c.bad);
}

/* ---- threads ---- */

enum
{
	ROUNDS = 50
};

typedef struct Work
{
	LlmPool *pool;
	int n_threads;
	atomic_int calls;
	atomic_int seen[8]; /* by tid */
	int cell[8];        /* written between barriers */
	atomic_int wrong;
	atomic_int open_signals;
} Work;

static void
work_run(void *arg, int tid, int n_threads)
{
	Work *w = arg;
	sigset_t set;

	atomic_fetch_add(&w->calls, 1);
	atomic_fetch_add(&w->seen[tid], 1);
	if (tid == 0)
		w->n_threads = n_threads;
	if (tid > 0 && pthread_sigmask(SIG_BLOCK, NULL, &set) == 0)
		atomic_fetch_add(&w->open_signals, sigismember(&set, SIGTERM) == 0);
	for (int round = 0; round < ROUNDS; round++)
	{
		w->cell[tid] = round * 100 + tid;
		llm_pool_barrier(w->pool);
		for (int t = 0; t < n_threads; t++)
			if (w->cell[t] != round * 100 + t)
				atomic_fetch_add(&w->wrong, 1);
		llm_pool_barrier(w->pool);
	}
}

static void
test_pool(void **state)
{
	for (int n = 1; n <= 4; n++)
	{
		LlmPool *pool;
		LlmError err;
		static Work w;

		memset(&w, 0, sizeof(w));
		assert_int_equal(llm_pool_create(n, &pool, &err), LLM_OK);
		assert_int_equal(llm_pool_threads(pool), n);
		w.pool = pool;
		for (int i = 0; i < 20; i++)
		{
			if (i == 10)
				usleep(2000); /* long enough to fall asleep */
			llm_pool_run(pool, work_run, &w);
			assert_int_equal(w.n_threads, n);
		}
		assert_int_equal(w.calls, 20 * n);
		for (int t = 0; t < n; t++)
			assert_int_equal(w.seen[t], 20);
		for (int i = 0; i < 300; i++) /* any number after any other, awake and asleep */
		{
			int some = 1 + i * 7 % 11 % n;

			if (i % 50 == 0)
				usleep(1000);
			w.calls = 0;
			llm_pool_run_some(pool, some, work_run, &w);
			assert_int_equal(w.n_threads, some);
			assert_int_equal(w.calls, some);
		}
		assert_true(llm_pool_delay_ns(pool) >= -1);
		assert_int_equal(w.wrong, 0);
		assert_int_equal(w.open_signals, 0);
		llm_pool_free(pool);
	}
	llm_pool_free(NULL);
	assert_true(llm_pool_physical_cores() >= 1);
	assert_true(llm_pool_cpus() >= llm_pool_physical_cores());
}

static void
subnormal_run(void *arg, int tid, int n_threads)
{
	volatile float tiny = 0x1p-140f, two = 2.0f, three = 3.0f;

	/* Neither flushed to zero on output nor read as zero, and rounded to nearest. */
	if (tiny * two != 0x1p-139f || tiny == 0.0f || 1.0f / three != 0x1.555556p-2f)
		atomic_fetch_add((atomic_int *) arg, 1);
}

static void
test_pool_float_mode(void **state)
{
	LlmPool *pool;
	LlmError err;
	atomic_int wrong = 0;

	assert_int_equal(llm_pool_create(3, &pool, &err), LLM_OK);
	llm_pool_run(pool, subnormal_run, &wrong);
	assert_int_equal(wrong, 0);
	llm_pool_free(pool);
}

/* ---- logs ---- */

static void
test_log(void **state)
{
	char long_text[3000];
	char got[4096];
	int fds[2];
	int saved = dup(STDERR_FILENO);
	ssize_t n;

	memset(long_text, 'y', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	llm_log(LLM_LOG_INFO, "one %d", 1);
	llm_log(LLM_LOG_WARNING, "two\nERROR lines");
	llm_log(LLM_LOG_ERROR, "%s", long_text);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	n = read(fds[0], got, sizeof(got) - 1);
	close(fds[0]);
	assert_true(n > 0);
	got[n] = '\0';
	assert_memory_equal(got, "INFO one 1\nWARNING two ERROR lines\nERROR yyy", 44);
	assert_in_range(n, 35 + 990, 35 + 1000);
	assert_int_equal(got[n - 1], '\n');
}

/* ---- random numbers ---- */

static void
test_rng(void **state)
{
	int count[16] = {0};

	/* Philox4x32-10 with counter and key 0: published known answer. */
	assert_int_equal(llm_rng_u32(0, 0, 0), 0x6627e8d5u);
	for (uint32_t id = 0; id < 160000; id++)
	{
		float u = llm_rng_uniform(12345, 7, id);

		assert_true(u > 0.0f && u < 1.0f);
		count[(int) (u * 16)]++;
	}
	for (int i = 0; i < 16; i++)
		assert_in_range(count[i], 9500, 10500);
	assert_int_not_equal(llm_rng_u32(1, 0, 0), llm_rng_u32((uint64_t) 1 << 32, 0, 0));
	assert_int_not_equal(llm_rng_u32(1, 2, 3), llm_rng_u32(1, 3, 2));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_error_set),
		cmocka_unit_test(test_error_clipping),
		cmocka_unit_test(test_status_names),
		cmocka_unit_test(test_buf),
		cmocka_unit_test(test_marked_text),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_utf8_complete),
		cmocka_unit_test(test_arena),
		cmocka_unit_test(test_block),
		cmocka_unit_test(test_block_collapse),
		cmocka_unit_test(test_file_open),
		cmocka_unit_test(test_file_is),
		cmocka_unit_test(test_file_refused),
		cmocka_unit_test(test_cursor),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_pool_float_mode),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_rng),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
