/* Rotated log files (see log_file.h). The lock guards descriptor and size; it is held across
 * writes, so lines of several threads stay whole and rotation happens between two of them. */
#include "base/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"

struct log_file {
    char *path;
    uint64_t max, size; /* size: of the open file, as far as we know */
    unsigned backups;
    int fd; /* -1: it cannot be opened just now */
    pthread_mutex_t lock;
};

static int open_again(struct log_file *f) {
    struct stat st;

    fd_close(f->fd);
    f->fd = open(f->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
    if (f->fd < 0)
        return -errno;
    f->size = fstat(f->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    return 0;
}

int log_file_open(const char *path, uint64_t max_bytes, unsigned backups, struct log_file **ret,
                  struct err *err) {
    struct log_file *f = calloc(1, sizeof *f);
    const char *slash = strrchr(path, '/');
    int r = 0;

    if (!f || !(f->path = strdup(path))) {
        free(f);
        return err_set(err, -ENOMEM, "out of memory");
    }
    pthread_mutex_init(&f->lock, NULL);
    f->max = max_bytes;
    f->backups = backups;
    f->fd = -1;
    if (slash && slash > path) {
        _cleanup_free_ char *dir = str_ndup(path, (size_t)(slash - path));
        r = dir ? path_mkdirs_at(AT_FDCWD, dir, 0750) : -ENOMEM;
    }
    if (r == 0)
        r = open_again(f);
    if (r < 0) {
        log_file_close(f);
        return err_sys(err, r, "log file %s", path); /* NOLINT(clang-analyzer-unix.Malloc) */
    }
    *ret = f;
    return 0;
}

static char *numbered(const struct log_file *f, unsigned i) {
    return i ? str_printf("%s.%u", f->path, i) : strdup(f->path);
}

/* FILE.N-1 -> FILE.N … FILE -> FILE.1; what cannot be moved stays, and is written on. */
static void rotate(struct log_file *f) {
    if (f->backups == 0 && f->fd >= 0 && ftruncate(f->fd, 0) < 0)
        fd_write_full(2, "a full log file cannot be begun anew\n", 37);
    for (unsigned i = f->backups; i > 0; i--) {
        _cleanup_free_ char *from = numbered(f, i - 1), *to = numbered(f, i);
        if (from && to)
            (void)rename(from, to);
    }
    open_again(f);
    f->size = 0; /* also when it was not moved: tried again after as many bytes, not at each line */
}

void log_file_write(struct log_file *f, const char *line, size_t len) {
    int r = -EBADF;

    pthread_mutex_lock(&f->lock);
    if (f->size && f->size + len > f->max)
        rotate(f);
    if (f->fd < 0)
        open_again(f);
    if (f->fd >= 0) {
        off_t before = lseek(f->fd, 0, SEEK_END);
        r = fd_write_full(f->fd, line, len);
        if (r == 0)
            f->size += len;
        else if (before >= 0 && ftruncate(f->fd, before) < 0) /* half a line helps nobody */
            f->size += len;
    }
    pthread_mutex_unlock(&f->lock);
    if (r < 0)
        fd_write_full(2, line, len);
}

void log_file_reopen(struct log_file *f) {
    pthread_mutex_lock(&f->lock);
    open_again(f);
    pthread_mutex_unlock(&f->lock);
}

struct log_file *log_file_close(struct log_file *f) {
    if (!f)
        return NULL;
    fd_close(f->fd);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
    free(f);
    return NULL;
}
