/*
 * The tree writer (see unpack.h).
 *
 * Invariants: every name is resolved from the root descriptor by openat2 with RESOLVE_IN_ROOT and
 * NO_MAGICLINKS; the last component is never followed (created O_EXCL, after what was there is
 * removed); nothing is made from a device entry; only harmless extended attributes are taken over,
 * so that a hostile archive cannot forge overlayfs's own marks.
 */
#include "oci/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/path.h"
#include "base/str.h"

#define OPAQUE_XATTR "trusted.overlay.opaque"
#define WHITEOUT_PREFIX ".wh."
#define PROGRESS_BYTES ((uint64_t)1 << 20)

struct dir_time {
    char *path;
    struct timespec mtime;
};

struct tree {
    int rootfd;
    enum tree_mode mode;
    struct tree_limits limits;
    struct tree_stats st;
    void (*progress)(const struct tree_stats *st, void *ud);
    void *progress_ud;
    uint64_t last_progress; /* st.bytes at the last report */
    int parent_fd;          /* directory of the last entry, -1 = none */
    bool parent_is_stale;
    char parent[TREE_PATH_MAX];
    struct dir_time *dirs;
    size_t n_dirs, cap_dirs, dir_names_bytes;
};

struct tree *tree_new(int rootfd, enum tree_mode mode, const struct tree_limits *limits) {
    struct tree *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->rootfd = rootfd;
    t->mode = mode;
    t->limits = *limits;
    t->parent_fd = -1;
    return t;
}

struct tree *tree_free(struct tree *t) {
    if (!t)
        return NULL;
    fd_close(t->parent_fd);
    for (size_t i = 0; i < t->n_dirs; i++)
        free(t->dirs[i].path);
    free(t->dirs);
    free(t);
    return NULL;
}

void tree_set_progress(struct tree *t, void (*fn)(const struct tree_stats *st, void *ud),
                       void *ud) {
    t->progress = fn;
    t->progress_ud = ud;
}

const struct tree_stats *tree_stats(const struct tree *t) {
    return &t->st;
}

/* Sets the error of one entry, its name quoted so that control characters cannot reach a terminal.
 */
static _printf_(4, 5) int fail(struct err *err, int code, const char *path, const char *fmt, ...) {
    _cleanup_buf_ struct buf b = BUF_INIT(8192);
    size_t n = strnlen(path, 200);
    va_list ap;

    buf_json_str(&b, path, n);
    buf_str(&b, path[n] ? "...: " : ": ");
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return err_set(err, code, "%s", b.data ? b.data : fmt);
}

static int fail_sys(struct err *err, int code, const char *path, const char *step) {
    const char *text = strerrordesc_np(-code);
    return fail(err, code, path, "%s: %s", step, text ? text : "unknown error");
}

/* "./a//b/" -> "a/b", "" = the root. Refuses "..", names and paths that are too long or too deep.
 */
static int clean_name(const char *in, char out[TREE_PATH_MAX], struct err *err) {
    const char *whole = in;
    size_t o = 0, depth = 0;

    out[0] = 0;
    for (;;) {
        in += strspn(in, "/");
        size_t l = strcspn(in, "/");
        if (l == 0)
            break;
        if (l == 2 && in[0] == '.' && in[1] == '.')
            return fail(err, -EINVAL, whole, "name with a \"..\" component");
        if (l > 255)
            return fail(err, -EINVAL, whole, "a component is longer than 255 bytes");
        if (!(l == 1 && in[0] == '.')) {
            if (o + l + 2 > TREE_PATH_MAX)
                return fail(err, -EINVAL, whole, "path is longer than 4095 bytes");
            if (++depth > TREE_DEPTH_MAX)
                return fail(err, -EINVAL, whole, "path has more than 256 components");
            if (o)
                out[o++] = '/';
            memcpy(out + o, in, l);
            o += l;
        }
        in += l;
    }
    out[o] = 0;
    return 0;
}

static bool is_whiteout(const struct stat *st) {
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static int set_opaque(int fd) {
    return fsetxattr(fd, OPAQUE_XATTR, "y", 1, 0) < 0 ? -errno : 0;
}

/* Makes directory `name` in pfd; a whiteout of the same name was made by this layer and turns into
 * "opaque". */
static int make_dir(struct tree *t, int pfd, const char *name) {
    struct stat st;

    if (mkdirat(pfd, name, 0755) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (fstatat(pfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (t->mode != TREE_LAYER || !is_whiteout(&st))
        return 0; /* a directory or a link to one; the caller's open tells */
    if (unlinkat(pfd, name, 0) < 0 || mkdirat(pfd, name, 0755) < 0)
        return -errno;
    _cleanup_close_ int fd = openat(pfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : set_opaque(fd);
}

/* Opens directory `path` below the root, making what is missing. The path is cut and mended in
 * place meanwhile. */
static int open_dir_making(struct tree *t, char *path) {
    int fd = path_open_in_root(t->rootfd, path, O_RDONLY | O_DIRECTORY, 0);

    if (fd != -ENOENT && fd != -ENOTDIR)
        return fd;
    fd = path_open_in_root(t->rootfd, "", O_RDONLY | O_DIRECTORY, 0);
    for (char *p = path; fd >= 0 && *p;) {
        size_t l = strcspn(p, "/");
        char end = p[l];
        p[l] = 0;
        int r = make_dir(t, fd, p);
        fd_close(fd);
        fd = r < 0 ? r : path_open_in_root(t->rootfd, path, O_RDONLY | O_DIRECTORY, 0);
        p[l] = end;
        p += l + (end == '/');
    }
    return fd;
}

static void forget_parent(struct tree *t) {
    t->parent_fd = fd_close(t->parent_fd);
}

/* Directory of `path`: a descriptor that the tree keeps. *ret_base points into path. */
static int open_parent(struct tree *t, const char *path, const char **ret_base, struct err *err) {
    const char *base = path_base(path);
    size_t l = base > path ? (size_t)(base - path) - 1 : 0;
    char dir[TREE_PATH_MAX];

    memcpy(dir, path, l);
    dir[l] = 0;
    *ret_base = base;
    if (t->parent_fd >= 0 && !t->parent_is_stale && str_eq(dir, t->parent))
        return t->parent_fd;
    forget_parent(t);
    int fd = open_dir_making(t, dir);
    if (fd < 0)
        return fail_sys(err, fd == -ENOTDIR || fd == -ELOOP || fd == -ENOENT ? -EINVAL : fd, path,
                        "its directory");
    t->parent_fd = fd;
    t->parent_is_stale = false;
    memcpy(t->parent, dir, l + 1);
    return fd;
}

/* Removes whatever has this name. The cached parent may have been reached through it: not to be
 * used for the next entry. */
static int remove_old(struct tree *t, int pfd, const char *base, const char *path,
                      struct err *err) {
    int r = 0;

    if (unlinkat(pfd, base, 0) < 0) {
        if (errno == ENOENT)
            return 0;
        r = path_remove_tree_at(pfd, base);
    }
    t->parent_is_stale = true;
    return r < 0 ? fail_sys(err, r, path, "replacing an earlier entry") : 0;
}

/* user.* is data; security.capability belongs to the file. Everything else could be read as a mark
 * by the kernel. */
static bool xattr_is_allowed(const char *name) {
    if (str_starts(name, "user.overlay."))
        return false;
    return (str_starts(name, "user.") && name[5]) || str_eq(name, "security.capability");
}

static int set_xattrs(struct tree *t, int fd, const struct entry *e, struct err *err) {
    const char *name;
    const void *value;
    size_t len;

    if (!e->xattr || t->mode == TREE_ARCHIVE)
        return 0;
    while (e->xattr(e->ud, &name, &value, &len)) {
        if (!name || !xattr_is_allowed(name)) {
            t->st.skipped_xattrs++;
            continue;
        }
        if (fsetxattr(fd, name, value, len, 0) == 0)
            continue;
        if (errno == ENOTSUP)
            t->st.skipped_xattrs++;
        else if (errno == ERANGE || errno == E2BIG || errno == EINVAL || errno == EPERM)
            return fail_sys(err, -EINVAL, e->path, "extended attribute");
        else
            return fail_sys(err, -errno, e->path, "extended attribute");
    }
    return 0;
}

static void times_of(const struct entry *e, struct timespec ts[2]) {
    ts[0] = e->mtime;
    if (ts[0].tv_nsec < 0 || ts[0].tv_nsec > 999999999)
        ts[0].tv_nsec = 0;
    ts[1] = ts[0];
}

static int remember_dir(struct tree *t, const char *path, const struct entry *e, struct err *err) {
    size_t bytes = strlen(path) + 1 + sizeof *t->dirs;
    struct timespec ts[2];

    if (t->dir_names_bytes + bytes > TREE_DIR_NAMES_MAX)
        return fail(err, -E2BIG, path, "the names of all directories take more than 256 MiB");
    if (t->n_dirs == t->cap_dirs) {
        size_t cap = t->cap_dirs ? 2 * t->cap_dirs : 256;
        struct dir_time *d = reallocarray(t->dirs, cap, sizeof *d);
        if (!d)
            return err_set(err, -ENOMEM, "out of memory");
        t->dirs = d;
        t->cap_dirs = cap;
    }
    times_of(e, ts);
    t->dirs[t->n_dirs] = (struct dir_time){.path = strdup(path), .mtime = ts[1]};
    if (!t->dirs[t->n_dirs].path)
        return err_set(err, -ENOMEM, "out of memory");
    t->n_dirs++;
    t->dir_names_bytes += bytes;
    return 0;
}

/* Owner, attributes, then mode: a change of owner clears setuid and capabilities. */
static int set_metadata(struct tree *t, int fd, const struct entry *e, struct err *err) {
    bool ours = t->mode == TREE_ARCHIVE;

    if (!ours && fchown(fd, (uid_t)e->uid, (gid_t)e->gid) < 0)
        return fail_sys(err, -errno, e->path, "owner");
    int r = set_xattrs(t, fd, e, err);
    if (r < 0)
        return r;
    mode_t mode = ours ? (e->type == ENTRY_DIR ? 0700 : 0600) : e->perm & 07777;
    if (fchmod(fd, mode) < 0)
        return fail_sys(err, -errno, e->path, "mode");
    return 0;
}

static int add_root(struct tree *t, const struct entry *e, struct err *err) {
    if (e->type != ENTRY_DIR)
        return fail(err, -EINVAL, e->path, "the root entry is not a directory");
    if (t->mode == TREE_ARCHIVE)
        return 0;
    int r = set_metadata(t, t->rootfd, e, err);
    return r < 0 ? r : remember_dir(t, "", e, err);
}

/* ".wh.NAME" of a layer. The mark is a 0:0 character device, or "opaque" when this layer has the
 * name as a directory. */
static int add_whiteout(struct tree *t, int pfd, const char *base, const struct entry *e,
                        struct err *err) {
    struct stat st;
    int r = 0;

    if (str_eq(base, ".wh..wh..opq")) {
        r = set_opaque(pfd);
        t->st.whiteouts++;
        return r < 0 ? fail_sys(err, r, e->path, "opaque mark") : 0;
    }
    if (str_starts(base, ".wh..wh."))
        return 0; /* book-keeping of aufs */
    base += strlen(WHITEOUT_PREFIX);
    if (!*base || str_eq(base, ".") || str_eq(base, ".."))
        return fail(err, -EINVAL, e->path, "whiteout without a name");
    t->st.whiteouts++;
    if (fstatat(pfd, base, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (mknodat(pfd, base, S_IFCHR, makedev(0, 0)) < 0)
            return fail_sys(err, -errno, e->path, "whiteout");
    } else if (S_ISDIR(st.st_mode)) {
        _cleanup_close_ int fd = openat(pfd, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = fd < 0 ? -errno : set_opaque(fd);
    }
    return r < 0 ? fail_sys(err, r, e->path, "opaque mark") : 0;
}

static int add_dir(struct tree *t, int pfd, const char *base, const char *path,
                   const struct entry *e, struct err *err) {
    struct stat st;
    int r;

    if (fstatat(pfd, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
        !(t->mode == TREE_LAYER && is_whiteout(&st))) {
        r = remove_old(t, pfd, base, e->path, err);
        if (r < 0)
            return r;
    }
    r = make_dir(t, pfd, base);
    if (r < 0)
        return fail_sys(err, r, e->path, "directory");
    _cleanup_close_ int fd = openat(pfd, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_sys(err, -errno, e->path, "directory");
    r = set_metadata(t, fd, e, err);
    return r < 0 ? r : remember_dir(t, path, e, err);
}

static int add_hardlink(struct tree *t, int pfd, const char *base, const char *path,
                        const struct entry *e, struct err *err) {
    char target[TREE_PATH_MAX];
    struct stat st;
    int r = clean_name(e->link, target, err);

    if (r < 0)
        return err_wrap(err, "hard link target");
    if (!*target)
        return fail(err, -EINVAL, e->path, "hard link to the root");
    if (str_eq(target, path))
        return fail(err, -EINVAL, e->path, "hard link to itself");
    char *name = (char *)path_base(target);
    if (name > target)
        name[-1] = 0;
    _cleanup_close_ int tfd =
        path_open_in_root(t->rootfd, name > target ? target : "", O_RDONLY | O_DIRECTORY, 0);
    if (tfd < 0 || fstatat(tfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -EINVAL, e->path, "hard link to a file that is not in this layer");
    if (S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode))
        return fail(err, -EINVAL, e->path, "hard link to something that is no file");
    /* The target may be reached under another name than ours: linking over itself must not remove
     * it. */
    struct stat old;
    if (fstatat(pfd, base, &old, AT_SYMLINK_NOFOLLOW) == 0) {
        if (old.st_ino == st.st_ino && old.st_dev == st.st_dev)
            return 0;
        r = remove_old(t, pfd, base, e->path, err);
        if (r < 0)
            return r;
    }
    if (linkat(tfd, name, pfd, base, 0) < 0)
        return fail_sys(err, errno == ENOENT ? -EINVAL : -errno, e->path, "hard link");
    return 0;
}

static void report(struct tree *t) {
    if (t->progress)
        t->progress(&t->st, t->progress_ud);
    t->last_progress = t->st.bytes;
}

static int copy_content(struct tree *t, int fd, const struct entry *e, struct err *err) {
    const void *data;
    uint64_t off, end = 0;
    size_t len;
    int r;

    while ((r = e->data(e->ud, &data, &len, &off, err)) > 0) {
        if (off > INT64_MAX - len)
            return fail(err, -EINVAL, e->path, "impossible offset");
        t->st.bytes += len;
        if (t->st.bytes > t->limits.bytes || off + len > t->limits.bytes)
            return fail(err, -E2BIG, e->path,
                        "the files are larger than the limit of %llu bytes for one layer",
                        (unsigned long long)t->limits.bytes);
        end = MAX(end, off + len);
        for (const char *p = data; len;) {
            ssize_t w = pwrite(fd, p, len, (off_t)off);
            if (w < 0 && errno == EINTR)
                continue;
            if (w < 0)
                return fail_sys(err, -errno, e->path, "write");
            p += w;
            len -= (size_t)w;
            off += (uint64_t)w;
        }
        if (t->st.bytes - t->last_progress >= PROGRESS_BYTES)
            report(t);
    }
    if (r < 0)
        return r;
    /* A hole at the end of a sparse file. */
    if (e->size > end && ftruncate(fd, (off_t)e->size) < 0)
        return fail_sys(err, -errno, e->path, "size");
    return 0;
}

static int add_file(struct tree *t, int pfd, const char *base, const struct entry *e,
                    struct err *err) {
    struct timespec ts[2];

    if (e->size > t->limits.bytes)
        return fail(err, -E2BIG, e->path,
                    "the file is larger than the limit of %llu bytes for one layer",
                    (unsigned long long)t->limits.bytes);
    _cleanup_close_ int fd =
        openat(pfd, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_sys(err, -errno, e->path, "create");
    int r = copy_content(t, fd, e, err);
    if (r == 0)
        r = set_metadata(t, fd, e, err);
    times_of(e, ts);
    if (r == 0 && futimens(fd, ts) < 0)
        r = fail_sys(err, -errno, e->path, "time");
    return r;
}

static int add_special(struct tree *t, int pfd, const char *base, const struct entry *e,
                       struct err *err) {
    struct timespec ts[2];
    int r;

    if (e->type == ENTRY_SYMLINK)
        r = str_is_empty(e->link) ? -EINVAL : symlinkat(e->link, pfd, base) < 0 ? -errno : 0;
    else
        r = mkfifoat(pfd, base, 0600) < 0 ? -errno : 0;
    if (r < 0)
        return fail_sys(err, r == -ENAMETOOLONG ? -EINVAL : r, e->path, "create");
    if (t->mode == TREE_ARCHIVE)
        return 0;
    if (fchownat(pfd, base, (uid_t)e->uid, (gid_t)e->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_sys(err, -errno, e->path, "owner");
    if (e->type == ENTRY_FIFO && fchmodat(pfd, base, e->perm & 07777, 0) < 0)
        return fail_sys(err, -errno, e->path, "mode");
    times_of(e, ts);
    if (utimensat(pfd, base, ts, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_sys(err, -errno, e->path, "time");
    return 0;
}

/* In a layer no directory may be called like a whiteout: 1 = drop the entry (aufs), 0 = fine. */
static int check_whiteout_parents(const char *path, struct err *err) {
    for (const char *p = path, *e; (e = strchr(p, '/')); p = e + 1) {
        if (str_starts(p, ".wh..wh."))
            return 1;
        if (str_starts(p, WHITEOUT_PREFIX))
            return fail(err, -EINVAL, path, "a whiteout as directory");
    }
    return 0;
}

/* Entries of which nothing is made: counted, not refused, since ordinary images have them. */
static bool is_dropped(struct tree *t, const struct entry *e) {
    if (e->type == ENTRY_DEVICE)
        t->st.skipped_devices++;
    else if (e->type == ENTRY_SOCKET)
        t->st.skipped_sockets++;
    else
        return t->mode == TREE_ARCHIVE && e->type == ENTRY_FIFO;
    return true;
}

static int check_entry(struct tree *t, const struct entry *e, char path[TREE_PATH_MAX],
                       struct err *err) {
    path[0] = 0;
    if (++t->st.entries > t->limits.entries)
        return err_set(err, -E2BIG, "more than %llu entries in one layer",
                       (unsigned long long)t->limits.entries);
    if (!e->path)
        return err_set(err, -EINVAL, "entry %llu has no readable name",
                       (unsigned long long)t->st.entries);
    if (e->uid < 0 || e->uid >= UINT32_MAX || e->gid < 0 || e->gid >= UINT32_MAX)
        return fail(err, -EINVAL, e->path, "owner is no 32-bit id");
    return clean_name(e->path, path, err);
}

int tree_add(struct tree *t, const struct entry *e, struct err *err) {
    char path[TREE_PATH_MAX];
    const char *base;
    int r = check_entry(t, e, path, err);

    if (r < 0 || is_dropped(t, e))
        return r;
    if (!*path)
        return add_root(t, e, err);
    if (t->mode == TREE_LAYER) {
        r = check_whiteout_parents(path, err);
        if (r != 0)
            return MIN(r, 0);
    }
    int pfd = open_parent(t, path, &base, err);
    if (pfd < 0)
        return pfd;
    report(t);
    if (t->mode == TREE_LAYER && str_starts(base, WHITEOUT_PREFIX))
        return add_whiteout(t, pfd, base, e, err);
    if (e->type == ENTRY_DIR)
        return add_dir(t, pfd, base, path, e, err);
    if (e->type == ENTRY_HARDLINK)
        return add_hardlink(t, pfd, base, path, e, err);
    r = remove_old(t, pfd, base, e->path, err);
    if (r < 0)
        return r;
    return e->type == ENTRY_FILE ? add_file(t, pfd, base, e, err)
                                 : add_special(t, pfd, base, e, err);
}

int tree_finish(struct tree *t, struct err *err) {
    forget_parent(t);
    for (size_t i = 0; i < t->n_dirs; i++) {
        const struct timespec ts[2] = {t->dirs[i].mtime, t->dirs[i].mtime};
        _cleanup_close_ int fd =
            path_open_in_root(t->rootfd, t->dirs[i].path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        if (fd < 0)
            continue; /* replaced by a later entry */
        if (t->mode != TREE_ARCHIVE && futimens(fd, ts) < 0)
            return fail_sys(err, -errno, t->dirs[i].path, "time");
    }
    report(t);
    return 0;
}
