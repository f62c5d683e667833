/* core/file.h - read-only files: opened below a folder, mapped, read by a bounds-checked cursor. */
#ifndef LLM_CORE_FILE_H
#define LLM_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* What tells a file from the one that takes its place: as long as all of it is equal, the bytes are
 * taken to be the same. */
typedef struct LlmFileId
{
	uint64_t dev;
	uint64_t ino;
	int64_t nbytes;
	int64_t mtime_ns;
} LlmFileId;

/* A mapped regular file. data is NULL for an empty file. */
typedef struct LlmFile
{
	int fd;              /* -1 when closed */
	const uint8_t *data; /* [len] read-only mapping */
	size_t len;
	LlmFileId id; /* when it was opened */
	int guard;    /* of the mapping (core/file_guard.h) */
} LlmFile;

/* Open and map `path`. dir NULL: any path of the caller's (command line, tests). dir not NULL: path
 * must be relative and stay below dir without symbolic links (openat2 RESOLVE_BENEATH |
 * RESOLVE_NO_SYMLINKS). Only regular files are taken; a FIFO or device never blocks. Errors:
 * LLM_E_MODEL naming the path and the reason. */
LlmStatus llm_file_open(const char *dir, const char *path, LlmFile *f, LlmError *err);
void llm_file_close(LlmFile *f);

/* Whether `path`, found by the rules of llm_file_open, is still the file that id tells. */
bool llm_file_is(const char *dir, const char *path, const LlmFileId *id);
/* Whether all that was read of an open file is what it held when it was opened: LLM_E_MODEL when somebody
 * has written to it or cut it short since, or when its storage has failed and zeroes were read instead. */
LlmStatus llm_file_check(const LlmFile *f, const char *path, LlmError *err);

/* A cursor over bytes that are not trusted. Every read checks the room left; after the first
 * failure `bad` is set and every later read returns zero, so a caller may check once per record. */
typedef struct LlmCursor
{
	const uint8_t *p;
	size_t left;
	bool bad;
} LlmCursor;

uint32_t llm_cursor_u32(LlmCursor *c); /* little-endian */
uint64_t llm_cursor_u64(LlmCursor *c);
/* Borrow n bytes; NULL and bad when fewer are left. */
const uint8_t *llm_cursor_bytes(LlmCursor *c, uint64_t n);

#endif
