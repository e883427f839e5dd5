/*
 * Copies a local file or tree into a sandbox: a walk by descriptors, one upload per file.
 * Directories are made writable first and get their own mode when their content is complete.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "client/files.h"

static int copy_tree(struct transfer *t, int dirfd, const char *local, const char *path,
                     unsigned depth, struct cove_error *err);

static int copy_link(struct transfer *t, int dirfd, const char *name, const char *local,
                     const char *path, struct cove_error *err) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);
    if (n < 0) {
        transfer_skip(t, local, strerror(errno));
        return 0;
    }
    target[n] = '\0';
    const char *const argv[] = {"ln", "-sfn", "--", target, path, NULL};
    _cleanup_free_ char *out = NULL;
    int code = 0;
    int r = remote_run(t, argv, &out, &code, err);
    if (r == -ENOENT && err && str_eq(err->kind, "START_FAILED")) {
        transfer_skip(t, local, "is a link, and the sandbox has no `ln` to make it with");
        return 0;
    }
    if (r == 0 && code != 0)
        transfer_skip(t, local, "is a link that `ln` in the sandbox could not make");
    return r;
}

static int copy_file(struct transfer *t, int dirfd, const char *name, const char *local,
                     const char *path, struct cove_error *err) {
    /* O_NONBLOCK: what was a file a moment ago may be a FIFO now */
    _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        transfer_skip(t, local, strerror(errno));
        return 0;
    }
    int r = remote_upload(t, fd, path, st.st_mode & 0777, err);
    return r < 0 ? cerr_wrap(err, "%s", local) : 0;
}

static int copy_entry(struct transfer *t, int dirfd, const char *name, const char *local,
                      const char *path, unsigned depth, struct cove_error *err) {
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            transfer_skip(t, local, strerror(errno));
        return 0;
    }
    if (S_ISREG(st.st_mode))
        return copy_file(t, dirfd, name, local, path, err);
    if (S_ISLNK(st.st_mode))
        return copy_link(t, dirfd, name, local, path, err);
    if (!S_ISDIR(st.st_mode)) {
        transfer_skip(t, local, "is neither a file, a directory nor a link");
        return 0;
    }
    _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        transfer_skip(t, local, strerror(errno));
        return 0;
    }
    return copy_tree(t, fd, local, path, depth + 1, err);
}

static int copy_entries(struct transfer *t, DIR *dir, const char *local, const char *path,
                        unsigned depth, struct cove_error *err) {
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e)
            return errno ? cerr_sys(err, -errno, "cannot read the directory %s", local) : 0;
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        _cleanup_free_ char *l = path_join(local, e->d_name), *p = path_join(path, e->d_name);
        if (!l || !p)
            return cerr_oom(err);
        int r = copy_entry(t, dirfd(dir), e->d_name, l, p, depth, err);
        if (r < 0)
            return r;
    }
}

static int copy_tree(struct transfer *t, int fd, const char *local, const char *path,
                     unsigned depth, struct cove_error *err) {
    struct stat st;
    if (depth > COPY_MAX_DEPTH)
        return cerr_set(err, -ELOOP, "%s is nested deeper than %d directories", local,
                        COPY_MAX_DEPTH);
    if (fstat(fd, &st) < 0)
        return cerr_sys(err, -errno, "cannot look at %s", local);
    unsigned mode = st.st_mode & 0777;
    int r = remote_mkdir(t, path, mode | 0700, err);
    if (r < 0)
        return cerr_wrap(err, "%s", path);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (!dir) {
        r = cerr_sys(err, -errno, "cannot read the directory %s", local);
        fd_close(own);
        return r;
    }
    r = copy_entries(t, dir, local, path, depth, err);
    closedir(dir);
    if (r == 0 && (mode | 0700) != mode)
        r = remote_chmod(t, path, mode, err);
    return r;
}

/* The file routes do not follow links; without a `test` in the sandbox a link counts as a file. */
static bool is_link_to_directory(struct transfer *t, const char *path) {
    const char *const argv[] = {"test", "-d", path, NULL};
    _cleanup_free_ char *out = NULL;
    int code = 1;
    return remote_run(t, argv, &out, &code, NULL) == 0 && code == 0;
}

/* As cp: into an existing directory under the source's own name. *ret is malloc'd. */
static int target_path(struct transfer *t, const char *local, const char *path, bool is_dir,
                       char **ret, struct cove_error *err) {
    struct remote_info info;
    struct cove_error probe = {0};
    int r = remote_stat(t, path, &info, &probe);
    if (r == 0 && info.type == 'l')
        info.type = is_link_to_directory(t, path) ? 'd' : 'f';
    if (r < 0 && r != -ENOENT) {
        if (err)
            *err = probe;
        return r;
    }
    if (r < 0 && !is_dir && str_ends(path, "/"))
        return cerr_set(err, -ENOENT, "there is no directory %s in the sandbox", path);
    if (r == 0 && info.type != 'd' && is_dir)
        return cerr_set(err, -ENOTDIR, "%s is a file in the sandbox, and %s is a directory", path,
                        local);
    if (r < 0 || info.type != 'd') {
        *ret = strdup(path);
        return *ret ? 0 : cerr_oom(err);
    }
    char resolved[PATH_MAX]; /* "." and "dir/" have a name of their own, too */
    const char *name = path_base(local);
    if (!*name || str_eq(name, ".") || str_eq(name, ".."))
        name = realpath(local, resolved) ? path_base(resolved) : "";
    *ret = *name ? path_join(path, name) : strdup(path);
    return *ret ? 0 : cerr_oom(err);
}

int cove_copy_in(struct cove_client *c, const char *sandbox_id, const char *local, const char *path,
                 const struct cove_copy_options *o, struct cove_error *err) {
    struct transfer t;
    struct cove_error own = {0};
    if (!err)
        err = &own;
    transfer_init(&t, c, sandbox_id, o);
    _cleanup_close_ int fd = open(local, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return cerr_sys(err, -errno, "cannot read %s", local);
    bool is_dir = S_ISDIR(st.st_mode);
    _cleanup_free_ char *target = NULL;
    int r = target_path(&t, local, path, is_dir, &target, err);
    if (r < 0)
        return r;
    if (is_dir)
        return copy_tree(&t, fd, local, target, 0, err);
    fd_set_nonblock(fd, false);
    t.total = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return remote_upload(&t, fd, target, S_ISREG(st.st_mode) ? st.st_mode & 0777 : 0644, err);
}
