/* Bounded output store (see spool.h). Owns its memory or its file; loop thread only. */
#include "execd/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/path.h"

void spool_init(struct spool *s) {
    *s = (struct spool){.fd = -1};
    buf_init(&s->mem, SPOOL_MEMORY);
}

void spool_done(struct spool *s) {
    buf_done(&s->mem);
    s->fd = fd_close(s->fd);
}

static int open_file(uint64_t *ret_cap) {
    const char *dirs[] = {getenv("TMPDIR"), "/tmp", "/var/tmp"};

    *ret_cap = SPOOL_FILE;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        int fd = dirs[i] ? open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
        if (fd >= 0)
            return fd;
    }
    *ret_cap = SPOOL_MEMFD;
    return memfd_create("cove-log", MFD_CLOEXEC);
}

static int write_at(struct spool *s, const char *data, size_t len) {
    while (len > 0) {
        uint64_t pos = s->end % s->cap;
        ssize_t n = pwrite(s->fd, data, MIN(len, s->cap - pos), (off_t)pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        len -= (size_t)n;
        s->end += (uint64_t)n;
    }
    return 0;
}

static int move_to_file(struct spool *s) {
    s->fd = open_file(&s->cap);
    if (s->fd < 0)
        return -errno;
    s->end = 0;
    int r = write_at(s, s->mem.data, s->mem.len);
    buf_done(&s->mem);
    return r;
}

void spool_append(struct spool *s, const char *data, size_t len) {
    if (s->failed)
        return;
    if (s->fd < 0 && buf_append(&s->mem, data, len) == 0) {
        s->end += len;
        return;
    }
    if ((s->fd < 0 && move_to_file(s) < 0) || write_at(s, data, len) < 0)
        s->failed = true;
}

uint64_t spool_start(const struct spool *s) {
    return s->fd >= 0 && s->end > s->cap ? s->end - s->cap : 0;
}

uint64_t spool_size(const struct spool *s) {
    return s->end - spool_start(s);
}

ssize_t spool_read(const struct spool *s, uint64_t *offset, void *ret, size_t len) {
    *offset = MIN(MAX(*offset, spool_start(s)), s->end);
    len = MIN(len, s->end - *offset);
    if (len == 0)
        return 0;
    if (s->fd < 0) {
        memcpy(ret, s->mem.data + *offset, len);
        return (ssize_t)len;
    }
    uint64_t pos = *offset % s->cap;
    ssize_t n = pread(s->fd, ret, MIN(len, s->cap - pos), (off_t)pos);
    return n < 0 ? -errno : n;
}
