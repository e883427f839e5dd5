/* Files and paths (see path.h). */
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/id.h"
#include "base/str.h"

#define REMOVE_DESCENT_MAX 32 /* descriptors held at a time by the removal of a tree */
#define REMOVE_DEPTH_MAX 4096 /* where directories cannot be moved */

int fd_close(int fd) {
    if (fd >= 0) {
        int saved = errno;
        close(fd);
        errno = saved;
    }
    return -1;
}

static int open2(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve) {
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
        .resolve = resolve,
    };
    for (int tries = 0; tries < 128; tries++) {
        long fd = syscall(SYS_openat2, dirfd, *path ? path : ".", &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
    return -EAGAIN;
}

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode) {
    return open2(dirfd, path, flags, mode, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

int path_open_in_root(int rootfd, const char *path, int flags, mode_t mode) {
    return open2(rootfd, path, flags, mode, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

int path_open_no_links(int dirfd, const char *path, int flags) {
    return open2(dirfd, path, flags, 0,
                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

char *path_clean(const char *path) {
    size_t n = strlen(path), o = 0;
    bool abs = path[0] == '/';
    char *out = malloc(n + 2);

    if (!out)
        return NULL;
    if (abs)
        out[o++] = '/';
    size_t floor = o; /* ".." may not remove what lies before it */
    while (*path) {
        while (*path == '/')
            path++;
        const char *e = strchrnul(path, '/');
        size_t l = (size_t)(e - path);
        if (l == 0)
            break;
        if (l == 1 && path[0] == '.') {
        } else if (l == 2 && path[0] == '.' && path[1] == '.') {
            if (o > floor) {
                while (o > floor && out[o - 1] != '/')
                    o--;
                if (o > floor)
                    o--;
            } else if (!abs) {
                if (o)
                    out[o++] = '/';
                out[o++] = '.';
                out[o++] = '.';
                floor = o;
            }
        } else {
            if (o && out[o - 1] != '/')
                out[o++] = '/';
            memcpy(out + o, path, l);
            o += l;
        }
        path = e;
    }
    if (o == 0)
        out[o++] = '.';
    out[o] = 0;
    return out;
}

char *path_join(const char *a, const char *b) {
    if (b[0] == '/' || !*a)
        return strdup(b);
    return str_printf("%s%s%s", a, str_ends(a, "/") ? "" : "/", b);
}

const char *path_base(const char *path) {
    const char *s = strrchr(path, '/');
    return s ? s + 1 : path;
}

static int mkdir_one(int dirfd, const char *path, mode_t mode) {
    struct stat st;

    if (mkdirat(dirfd, path, mode) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (fstatat(dirfd, path, &st, 0) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int path_mkdirs_at(int dirfd, const char *path, mode_t mode) {
    _cleanup_free_ char *p = strdup(path);

    if (!p)
        return -ENOMEM;
    for (char *s = p + (*p == '/'); *s; s++) {
        if (*s != '/' || s[-1] == '/')
            continue;
        *s = 0;
        int r = mkdir_one(dirfd, p, mode);
        if (r < 0)
            return r;
        *s = '/';
    }
    return str_eq(p, "/") ? 0 : mkdir_one(dirfd, p, mode);
}

/* A tree being removed: whoever filled it may have nested it without end. */
struct removal {
    int top; /* the outermost directory; deep ones are moved up into it */
    dev_t dev;
    bool moved;
};

static int remove_entry(struct removal *t, int dirfd, const char *name, unsigned depth);

/* Instead of a descent that would hold more and more descriptors. False where directories cannot be
 * moved (lower layers of an overlay). */
static bool move_up(struct removal *t, int dirfd, const char *name) {
    char rnd[33];

    id_hex32(rnd);
    if (renameat2(dirfd, name, t->top, rnd, RENAME_NOREPLACE) < 0)
        return false;
    t->moved = true;
    return true;
}

static int remove_entries(struct removal *t, int fd, unsigned depth) {
    DIR *d = fdopendir(fd);
    struct dirent *e;
    int r = 0;

    if (!d) {
        fd_close(fd);
        return -ENOMEM;
    }
    do {
        if (depth == 0)
            t->moved = false;
        rewinddir(d);
        while ((e = readdir(d))) {
            if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
                continue;
            int q = remove_entry(t, fd, e->d_name, depth + 1);
            if (q < 0 && r == 0)
                r = q;
        }
    } while (depth == 0 && t->moved);
    closedir(d);
    return r;
}

static int remove_entry(struct removal *t, int dirfd, const char *name, unsigned depth) {
    struct stat st;
    int fd, r;

    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    if (depth > REMOVE_DESCENT_MAX && move_up(t, dirfd, name))
        return 0;
    if (depth > REMOVE_DEPTH_MAX)
        return -ELOOP;
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(fd, &st) < 0 || (depth > 0 && st.st_dev != t->dev)) {
        fd_close(fd);
        return -EXDEV;
    }
    if (depth == 0)
        *t = (struct removal){.top = fd, .dev = st.st_dev};
    r = remove_entries(t, fd, depth);
    if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && r == 0)
        r = -errno;
    return r;
}

int path_remove_tree_at(int dirfd, const char *name) {
    struct removal t = {.top = -1};
    return remove_entry(&t, dirfd, name, 0);
}

int path_read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len) {
    _cleanup_buf_ struct buf b = BUF_INIT(max);
    _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    char chunk[16384];

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        int r = buf_append(&b, chunk, (size_t)n);
        if (r < 0)
            return r == -ENOBUFS ? -EFBIG : r;
    }
    *ret = buf_take(&b, ret_len);
    return *ret ? 0 : -ENOMEM;
}

int path_write_file_at(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                       bool durable) {
    const char *base = path_base(path);
    _cleanup_free_ char *dir = str_ndup(path, (size_t)(base - path)), *tmp = NULL;
    _cleanup_close_ int parent = -1, fd = -1;
    char rnd[33];
    int r;

    if (!dir)
        return -ENOMEM;
    if (!*base)
        return -EISDIR;
    parent = openat(dirfd, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    id_hex32(rnd);
    tmp = str_printf(".%.200s.%.8s", base, rnd);
    if (!tmp)
        return -ENOMEM;
    fd = openat(parent, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    r = fd_write_full(fd, data, len);
    if (r == 0 && durable && fsync(fd) < 0)
        r = -errno;
    if (r == 0 && renameat(parent, tmp, parent, base) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(parent, tmp, 0);
    else if (durable && fsync(parent) < 0)
        r = -errno;
    return r;
}

int path_write_value_at(int dirfd, const char *path, const char *value) {
    _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, value, strlen(value));
    return n < 0 ? -errno : 0;
}

int fd_read_full(int fd, void *data, size_t len) {
    char *p = data;
    size_t got = 0;
    while (got < len) {
        ssize_t n = read(fd, p + got, len - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (int)got;
}

int fd_write_full(int fd, const void *data, size_t len) {
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int change_flag(int fd, int get, int set, int flag, bool on) {
    int f = fcntl(fd, get);
    if (f < 0)
        return -errno;
    return fcntl(fd, set, on ? f | flag : f & ~flag) < 0 ? -errno : 0;
}

int fd_set_nonblock(int fd, bool on) {
    return change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on) {
    return change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}
