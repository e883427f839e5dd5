/* Copy of files, links and directories with mode, owner and times (see copytree.h). Other kinds are
 * -EXDEV. */
#include "execd/copytree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"

#define CHUNK ((size_t)64 << 10)
#define MAX_LEVELS 512

static int copy_bytes(int in, int out) {
    char *chunk = malloc(CHUNK);
    int n = chunk ? 0 : -ENOMEM;

    while (n == 0 && (n = fd_read_full(in, chunk, CHUNK)) > 0)
        n = fd_write_full(out, chunk, (size_t)n);
    free(chunk);
    return n;
}

static int copy_file(const char *src, const char *dest, const struct stat *st) {
    _cleanup_close_ int in = open(src, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), out = -1;
    int r;

    if (in < 0)
        return -errno;
    out = open(dest, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    r = copy_bytes(in, out);
    if (r < 0)
        return r;
    (void)!fchown(out, st->st_uid, st->st_gid);
    return fchmod(out, st->st_mode & 07777) < 0 ? -errno : 0;
}

static int copy_link(const char *src, const char *dest, const struct stat *st) {
    char target[PATH_MAX];
    ssize_t n = readlink(src, target, sizeof target - 1);

    if (n < 0)
        return -errno;
    target[n] = 0;
    if (symlink(target, dest) < 0)
        return -errno;
    (void)!lchown(dest, st->st_uid, st->st_gid);
    return 0;
}

static int copy_any(const char *src, const char *dest, unsigned depth);

static int copy_dir(const char *src, const char *dest, const struct stat *st, unsigned depth) {
    struct dirent *e;
    DIR *d;
    int r = 0;

    if (mkdir(dest, 0700) < 0)
        return -errno;
    d = opendir(src);
    if (!d)
        return -errno;
    while (r == 0 && (e = readdir(d))) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        _cleanup_free_ char *from = path_join(src, e->d_name), *to = path_join(dest, e->d_name);
        r = from && to ? copy_any(from, to, depth + 1) : -ENOMEM;
    }
    closedir(d);
    if (r < 0)
        return r;
    (void)!lchown(dest, st->st_uid, st->st_gid);
    return chmod(dest, st->st_mode & 07777) < 0 ? -errno : 0;
}

static int copy_any(const char *src, const char *dest, unsigned depth) {
    struct stat st;
    int r = -EXDEV;

    if (depth > MAX_LEVELS)
        return -ELOOP;
    if (lstat(src, &st) < 0)
        return -errno;
    if (S_ISREG(st.st_mode))
        r = copy_file(src, dest, &st);
    else if (S_ISLNK(st.st_mode))
        r = copy_link(src, dest, &st);
    else if (S_ISDIR(st.st_mode))
        r = copy_dir(src, dest, &st, depth);
    if (r == 0) {
        struct timespec times[2] = {st.st_atim, st.st_mtim};
        utimensat(AT_FDCWD, dest, times, AT_SYMLINK_NOFOLLOW);
    }
    return r;
}

int copytree_move(const char *src, const char *dest) {
    struct stat st;
    int r;

    if (lstat(dest, &st) == 0)
        return -EEXIST;
    r = copy_any(src, dest, 0);
    if (r < 0) {
        path_remove_tree_at(AT_FDCWD, dest);
        return r;
    }
    return path_remove_tree_at(AT_FDCWD, src);
}
