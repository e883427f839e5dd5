/*
 * Files and paths. Paths given by others are resolved by openat2 and used by descriptor, never
 * checked and used again by name. Every function returns 0 / a descriptor or a negative errno.
 */
#pragma once

#include "base/buf.h"
#include "base/macros.h"

/* openat2 with RESOLVE_BENEATH|NO_MAGICLINKS: escapes are -EXDEV. O_CLOEXEC is added. Retries
 * EAGAIN. */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode);
/* openat2 with RESOLVE_IN_ROOT|NO_MAGICLINKS: absolute names and ".." stay inside. "" means the
 * root itself. */
int path_open_in_root(int rootfd, const char *path, int flags, mode_t mode);

/* openat2 below dirfd with no symbolic link anywhere on the way (-ELOOP): the name is the file's
 * real one. */
int path_open_no_links(int dirfd, const char *path, int flags);

/* Lexical clean-up of an absolute or relative path ("a//b/./c/.." -> "a/b"); malloc'd, NULL on
 * -ENOMEM. */
char *path_clean(const char *path);
char *path_join(const char *a,
                const char *b);          /* exactly one '/' between; b absolute -> b; malloc'd */
const char *path_base(const char *path); /* last component, "" for "/" and trailing slashes */

/* mkdir -p below dirfd (AT_FDCWD allowed), each new level with `mode`. 0 also when it exists as a
 * directory. */
int path_mkdirs_at(int dirfd, const char *path, mode_t mode);
/* rm -rf of dirfd/name without following links or crossing into other mounts; -ENOENT is success.
 * Any depth with few descriptors: deep directories are moved up within the tree. */
int path_remove_tree_at(int dirfd, const char *name);

/* Whole file, at most max bytes (-EFBIG). NUL-terminated for convenience. Caller frees *ret. */
int path_read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len);
/* Temporary name in the same directory, write, [fsync,] rename, [fsync of the directory]. */
int path_write_file_at(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                       bool durable);
/* write(2) of a short value into an existing file (proc, sysfs, cgroup files). */
int path_write_value_at(int dirfd, const char *path, const char *value);

int fd_read_full(int fd, void *buf, size_t len); /* bytes read (short only at EOF) or -errno */
int fd_write_full(int fd, const void *buf, size_t len); /* 0 or -errno */
int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);
