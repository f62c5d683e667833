/* core/file.c - open below a folder, map, and read without running over the end. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/file_guard.h"

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Open path below dir, or the caller's own path when dir is NULL; -1 with errno. */
static int
open_path(const char *dir, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t) flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	int dirfd;
	int fd;
	int saved;

	if (dir == NULL)
		return open(path, flags);
	dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -1;
	fd = (int) syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	saved = errno;
	close(dirfd);
	errno = saved;
	return fd;
}

static LlmStatus
open_error(const char *dir, const char *path, LlmError *err)
{
	int e = errno;

	llm_error_set(err, LLM_E_MODEL, "could not open model file \"%s\": %s", path,
				  e == EXDEV   ? "it leads out of the model directory"
				  : e == ELOOP ? "symbolic links are not followed"
							   : strerror(e));
	/* where the directory lies is for superusers: the setting shows it to them alone */
	if (dir != NULL && (e == ENOENT || e == EXDEV || e == ELOOP))
		llm_error_hint(err, "Put the file below llm_infer.model_dir and give its path relative to "
							"that directory.");
	return LLM_E_MODEL;
}

static LlmFileId
id_of(const struct stat *st)
{
	return (LlmFileId){.dev = st->st_dev,
					   .ino = st->st_ino,
					   .nbytes = st->st_size,
					   .mtime_ns = (int64_t) st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
}

static bool
id_equal(LlmFileId a, LlmFileId b)
{
	return a.dev == b.dev && a.ino == b.ino && a.nbytes == b.nbytes && a.mtime_ns == b.mtime_ns;
}

LlmStatus
llm_file_open(const char *dir, const char *path, LlmFile *f, LlmError *err)
{
	struct stat st;

	*f = (LlmFile){.fd = -1};
	f->fd = open_path(dir, path, OPEN_FLAGS);
	if (f->fd < 0)
		return open_error(dir, path, err);
	if (fstat(f->fd, &st) < 0)
	{
		open_error(dir, path, err);
		llm_file_close(f);
		return LLM_E_MODEL;
	}
	if (!S_ISREG(st.st_mode))
	{
		llm_file_close(f);
		return llm_error_set(err, LLM_E_MODEL, "model file \"%s\" is not a regular file", path);
	}
	f->len = (size_t) st.st_size;
	f->id = id_of(&st);
	if (f->len > 0)
	{
		void *p = mmap(NULL, f->len, PROT_READ, MAP_PRIVATE, f->fd, 0);

		if (p == MAP_FAILED)
		{
			open_error(dir, path, err);
			llm_file_close(f);
			return LLM_E_MODEL;
		}
		f->data = p;
		f->guard = llm_file_guard_add(p, f->len);
	}
	return LLM_OK;
}

void
llm_file_close(LlmFile *f)
{
	llm_file_guard_remove(f->guard);
	if (f->data != NULL)
		munmap((void *) (uintptr_t) f->data, f->len);
	if (f->fd >= 0)
		close(f->fd);
	*f = (LlmFile){.fd = -1};
}

bool
llm_file_is(const char *dir, const char *path, const LlmFileId *id)
{
	int fd = open_path(dir, path, O_PATH | O_CLOEXEC);
	struct stat st;
	bool same = fd >= 0 && fstat(fd, &st) == 0 && id_equal(id_of(&st), *id);

	if (fd >= 0)
		close(fd);
	return same;
}

LlmStatus
llm_file_check(const LlmFile *f, const char *path, LlmError *err)
{
	struct stat st;
	bool lost = llm_file_guard_lost(f->guard), known = fstat(f->fd, &st) == 0;

	if (known && !lost && id_equal(id_of(&st), f->id))
		return LLM_OK;
	return llm_error_set(err, LLM_E_MODEL, "model file \"%.100s\" %s", path,
						 known && st.st_size < f->id.nbytes ? "was cut short while it was read"
						 : known && !id_equal(id_of(&st), f->id)
							 ? "was written to while it was read"
							 : "could not be read: its storage has failed");
}

const uint8_t *
llm_cursor_bytes(LlmCursor *c, uint64_t n)
{
	const uint8_t *p = c->p;

	if (c->bad || n > c->left)
	{
		c->bad = true;
		return NULL;
	}
	if (n > 0) /* p is NULL in an empty file */
		c->p += n;
	c->left -= (size_t) n;
	return p;
}

/* The host is little-endian (x86-64, AArch64), like the file formats read here. */
#define CURSOR_READ(name, type)                                                                    \
	type llm_cursor_##name(LlmCursor *c)                                                           \
	{                                                                                              \
		const uint8_t *p = llm_cursor_bytes(c, sizeof(type));                                      \
		type v = 0;                                                                                \
		if (p != NULL)                                                                             \
			memcpy(&v, p, sizeof(v));                                                              \
		return v;                                                                                  \
	}

CURSOR_READ(u32, uint32_t)
CURSOR_READ(u64, uint64_t)
