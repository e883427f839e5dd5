/* Upload targets (see target.h). Owns the descriptor and the temporary name. */
#include "execd/target.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/path.h"

static char *temp_name(const char *path) {
    const char *slash = strrchr(path, '/');
    char id[33];

    id_hex32(id);
    return str_printf("%.*s/.cove-upload-%s", (int)(slash ? slash - path : 0), path, id);
}

static int open_in_place(struct target *t, struct err *err) {
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0777);
    return t->fd < 0 ? err_sys(err, -errno, "%s", t->path) : 0;
}

/* What the file has now stays as it is, since to its readers it is the same file. */
static int keep_attributes(int fd, const struct stat *st) {
    if ((st->st_uid != geteuid() || st->st_gid != getegid()) &&
        fchown(fd, st->st_uid, st->st_gid) < 0)
        return -errno;
    return fchmod(fd, st->st_mode & 07777) < 0 ? -errno : 0;
}

int target_open(struct target *t, const char *path, const struct perm *perm, struct err *err) {
    struct stat st;
    int r = perm_make_parents(perm, path, err);

    if (r < 0)
        return r;
    t->path = strdup(path);
    if (!t->path)
        return err_set(err, -ENOMEM, "out of memory");
    bool exists = lstat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR, "%s is a directory", path);
    if (exists && (!S_ISREG(st.st_mode) || st.st_nlink != 1))
        return open_in_place(t, err);
    t->temp = temp_name(path);
    if (!t->temp)
        return err_set(err, -ENOMEM, "out of memory");
    t->fd = open(t->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0777);
    if (t->fd >= 0 && (!exists || keep_attributes(t->fd, &st) == 0))
        return 0;
    if (t->fd >= 0)
        unlink(t->temp);
    t->fd = fd_close(t->fd);
    free(TAKE_PTR(t->temp));
    return open_in_place(t, err); /* the directory is not ours, or the owner could not be kept */
}

int target_write(struct target *t, const char *data, size_t len, struct err *err) {
    int r = fd_write_full(t->fd, data, len);
    return r < 0 ? err_sys(err, r, "%s", t->path) : 0;
}

static int copy_over(struct target *t, struct err *err) {
    char chunk[32 << 10];
    int from = TAKE_FD(t->fd), r = open_in_place(t, err);
    off_t pos = 0;

    while (r == 0) {
        ssize_t n = pread(from, chunk, sizeof chunk, pos);
        if (n <= 0) {
            r = n < 0 ? err_sys(err, -errno, "%s", t->path) : 0;
            break;
        }
        r = target_write(t, chunk, (size_t)n, err);
        pos += n;
    }
    fd_close(from);
    unlink(t->temp);
    return r;
}

int target_commit(struct target *t, const struct perm *perm, struct err *err) {
    int r = perm_apply_fd(perm, t->fd, err);

    if (r < 0 || !t->temp)
        return r < 0 ? err_wrap(err, "%s", t->path) : 0;
    if (rename(t->temp, t->path) < 0) {
        if (errno != EBUSY && errno != EXDEV)
            return err_sys(err, -errno, "%s", t->path);
        r = copy_over(t, err);
    }
    if (r == 0)
        free(TAKE_PTR(t->temp));
    return r;
}

void target_done(struct target *t) {
    if (t->temp)
        unlink(t->temp);
    t->fd = fd_close(t->fd);
    free(t->temp);
    free(t->path);
    *t = (struct target)TARGET_INIT;
}
