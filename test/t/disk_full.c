/*
 * disk_full.c - preloaded into a server: the disk is full for some of its files.
 *
 * While the file that LLM_DISK_FULL names exists, files whose path contains what is in it do not grow:
 * writes beyond their end fail with ENOSPC, others work. So a test needs no file system of its own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int
is_full(int fd, off_t end)
{
	const char *flag = getenv("LLM_DISK_FULL");
	char part[256], link[64], path[PATH_MAX];
	struct stat st;
	ssize_t n;
	int f = flag == NULL ? -1 : open(flag, O_RDONLY);

	if (f < 0)
		return 0;
	n = read(f, part, sizeof(part) - 1);
	close(f);
	if (n <= 0 || fstat(fd, &st) != 0 || end <= st.st_size)
		return 0;
	part[n] = '\0';
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return 0;
	path[n] = '\0';
	return strstr(path, part) != NULL;
}

ssize_t
pwrite(int fd, const void *data, size_t n, off_t offset)
{
	static ssize_t (*real)(int, const void *, size_t, off_t) = NULL;

	if (real == NULL)
		real = (ssize_t(*)(int, const void *, size_t, off_t)) dlsym(RTLD_NEXT, "pwrite");
	if (is_full(fd, offset + (off_t) n))
	{
		errno = ENOSPC;
		return -1;
	}
	return real(fd, data, n, offset);
}
