/*
 * Copies a file or tree out of a sandbox. Names come from a place that is not trusted: every level
 * is opened by descriptor and without following links, every name must be one component, so that
 * nothing is ever written outside the target. Files appear whole under their name or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/path.h"
#include "client/files.h"

static int out_tree(struct transfer *t, const char *path, int dirfd, const char *name,
                    unsigned mode, unsigned depth, struct cove_error *err);

/* A failure that concerns this entry alone, and not the connection or our own disk. */
static bool is_entry_failure(const struct cove_error *err) {
    return err->http_status >= 400;
}

static int out_file(struct transfer *t, const char *path, int dirfd, const char *name,
                    unsigned mode, struct cove_error *err) {
    char tmp[64], id[33];
    id_hex32(id);
    snprintf(tmp, sizeof(tmp), ".cove-%s", id);
    _cleanup_close_ int fd =
        openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return cerr_sys(err, -errno, "cannot make a file beside %s", name);
    int r = remote_download(t, path, fd, err);
    if (r == 0 && (fchmod(fd, mode) < 0 || renameat(dirfd, tmp, dirfd, name) < 0))
        r = cerr_sys(err, -errno, "cannot write %s", name);
    if (r < 0)
        unlinkat(dirfd, tmp, 0);
    return r;
}

static int out_link(struct transfer *t, const char *path, int dirfd, const char *name,
                    struct cove_error *err) {
    const char *const argv[] = {"readlink", "-n", "--", path, NULL};
    _cleanup_free_ char *target = NULL;
    int code = 0;
    int r = remote_run(t, argv, &target, &code, err);
    if (r == -ENOENT && str_eq(err->kind, "START_FAILED")) {
        transfer_skip(t, path, "is a link, and the sandbox has no `readlink` to read it with");
        return 0;
    }
    if (r < 0)
        return r;
    if (code != 0 || !*target) {
        transfer_skip(t, path, "is a link that `readlink` in the sandbox could not read");
        return 0;
    }
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        unlinkat(dirfd, name, 0);
    if (symlinkat(target, dirfd, name) < 0)
        return cerr_sys(err, -errno, "cannot make the link %s", name);
    return 0;
}

static int out_entry(struct transfer *t, const json_t *entry, const char *dir, int dirfd,
                     unsigned depth, struct cove_error *err) {
    const char *path = json_str(entry, "path");
    const char *name = path ? child_name(dir, path) : NULL;
    struct remote_info info;
    if (!name || remote_info_parse(entry, &info) < 0)
        return cerr_set(err, -EBADMSG, "the sandbox listed \"%.200s\" as a part of %s",
                        path ? path : "", dir);
    int r = 0;
    if (info.type == 'd')
        return out_tree(t, path, dirfd, name, info.mode, depth + 1, err);
    if (info.type == 'f')
        r = out_file(t, path, dirfd, name, info.mode, err);
    else if (info.type == 'l')
        r = out_link(t, path, dirfd, name, err);
    else
        transfer_skip(t, path, "is neither a file, a directory nor a link");
    if (r < 0 && is_entry_failure(err)) {
        transfer_skip(t, path, err->message);
        return 0;
    }
    return r;
}

static int out_tree(struct transfer *t, const char *path, int dirfd, const char *name,
                    unsigned mode, unsigned depth, struct cove_error *err) {
    if (depth > COPY_MAX_DEPTH)
        return cerr_set(err, -ELOOP, "%s is nested deeper than %d directories", path,
                        COPY_MAX_DEPTH);
    _cleanup_json_ json_t *entries = NULL;
    int r = remote_list(t, path, &entries, err);
    if (r < 0 && depth > 0 && is_entry_failure(err)) {
        transfer_skip(t, path, err->message);
        return 0;
    }
    if (r < 0)
        return r;
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): every caller has a name */
    bool made = mkdirat(dirfd, name, 0700) == 0;
    if (!made && errno != EEXIST)
        return cerr_sys(err, -errno, "cannot make the directory %s", name);
    _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return cerr_set(
            err, -errno,
            "%s is in the way: it is not a directory, or a link to one, which is not followed",
            name);
    size_t i;
    json_t *entry;
    json_array_foreach(entries, i, entry) {
        r = out_entry(t, entry, path, fd, depth, err);
        if (r < 0)
            return r;
    }
    if (made && fchmod(fd, mode) < 0)
        return cerr_sys(err, -errno, "cannot set the mode of %s", name);
    return 0;
}

/* A device or pipe as target: /dev/stdout, a FIFO. */
static int out_special(struct transfer *t, const char *path, const char *local,
                       struct cove_error *err) {
    _cleanup_close_ int fd = open(local, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return cerr_sys(err, -errno, "cannot write %s", local);
    return remote_download(t, path, fd, err);
}

/* Splits the target into an open parent directory and a name in it. */
static int open_parent(const char *local, const char *own_name, int *ret_fd, char **ret_name,
                       struct cove_error *err) {
    struct stat st;
    _cleanup_free_ char *parent = NULL, *name = NULL;
    if (stat(local, &st) == 0 && S_ISDIR(st.st_mode)) {
        parent = strdup(local);
        name = strdup(own_name);
    } else {
        _cleanup_free_ char *clean = path_clean(local);
        const char *slash = clean ? strrchr(clean, '/') : NULL;
        parent =
            slash ? str_ndup(clean, slash == clean ? 1 : (size_t)(slash - clean)) : strdup(".");
        name = clean ? strdup(slash ? slash + 1 : clean) : NULL;
    }
    if (!parent || !name)
        return cerr_oom(err);
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cerr_sys(err, -errno, "cannot write to %s", parent);
    *ret_fd = fd;
    *ret_name = TAKE_PTR(name);
    return 0;
}

int cove_copy_out(struct cove_client *c, const char *sandbox_id, const char *path,
                  const char *local, const struct cove_copy_options *o, struct cove_error *err) {
    struct transfer t;
    struct cove_error own = {0};
    struct remote_info info;
    if (!err)
        err = &own;
    transfer_init(&t, c, sandbox_id, o);
    _cleanup_free_ char *clean = path_clean(path);
    if (!clean || clean[0] != '/')
        return clean ? cerr_set(err, -EINVAL, "the path in the sandbox must be absolute: \"%s\"",
                                path)
                     : cerr_oom(err);
    int r = remote_stat(&t, clean, &info, err);
    if (r < 0)
        return r == -ENOENT ? cerr_set(err, r, "there is no %s in the sandbox", clean) : r;
    if (info.type == 'o')
        return cerr_set(err, -EINVAL, "%s is neither a file, a directory nor a link", clean);

    struct stat st;
    bool exists = stat(local, &st) == 0;
    if (exists && info.type != 'd' && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return out_special(&t, clean, local, err);
    if (exists && info.type == 'd' && !S_ISDIR(st.st_mode))
        return cerr_set(err, -ENOTDIR, "%s is a file, and %s in the sandbox is a directory", local,
                        clean);
    _cleanup_close_ int parent = -1;
    _cleanup_free_ char *name = NULL;
    const char *own_name = path_base(clean);
    r = open_parent(local, *own_name ? own_name : "root", &parent, &name, err);
    if (r < 0)
        return r;
    t.total = info.type == 'f' ? info.size : 0;
    /* A link that was named itself stands for what it points to. */
    return info.type == 'd'
               ? out_tree(&t, clean, parent, name, info.mode, 0, err)
               : out_file(&t, clean, parent, name, info.type == 'l' ? 0644 : info.mode, err);
}
