/* Replacement (see replace.h). The old content is in memory once; the new one is written through a
 * small buffer. */
#include "execd/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/path.h"

#define WRITE_SIZE ((size_t)256 << 10)

static uint64_t count(const char *data, size_t len, const char *old, size_t old_len) {
    const char *p = data, *hit;
    uint64_t n = 0;

    while ((hit = memmem(p, len - (size_t)(p - data), old, old_len))) {
        n++;
        p = hit + old_len;
    }
    return n;
}

static int put(int fd, struct buf *b, const char *data, size_t len) {
    int r = 0;

    if (b->len + len > WRITE_SIZE) {
        r = fd_write_full(fd, b->data, b->len);
        buf_clear(b);
    }
    if (r == 0)
        r = len > WRITE_SIZE ? fd_write_full(fd, data, len) : buf_append(b, data, len);
    return r;
}

static int rewrite(int fd, const char *data, size_t len, const char *old, const char *new) {
    _cleanup_buf_ struct buf b = BUF_INIT(2 * WRITE_SIZE);
    const char *p = data, *end = data + len, *hit;
    size_t old_len = strlen(old), new_len = strlen(new);
    int r = 0;

    while (r == 0 && (hit = memmem(p, (size_t)(end - p), old, old_len))) {
        r = put(fd, &b, p, (size_t)(hit - p));
        if (r == 0)
            r = put(fd, &b, new, new_len);
        p = hit + old_len;
    }
    if (r == 0)
        r = put(fd, &b, p, (size_t)(end - p));
    if (r == 0 && b.len)
        r = fd_write_full(fd, b.data, b.len);
    off_t size = r == 0 ? lseek(fd, 0, SEEK_CUR) : -1;
    if (r == 0 && (size < 0 || ftruncate(fd, size) < 0))
        r = -errno;
    return r;
}

int replace_in_file(const char *path, const char *old, const char *new, uint64_t *ret,
                    struct err *err) {
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    _cleanup_free_ char *data = NULL;
    struct stat st;
    int n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, -errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "%s is not a regular file", path);
    if ((uint64_t)st.st_size > REPLACE_MAX_FILE)
        return err_set(err, -EFBIG, "%s is larger than the limit of %llu bytes for a replacement",
                       path, (unsigned long long)REPLACE_MAX_FILE);
    data = malloc((size_t)st.st_size + 1);
    if (!data)
        return err_set(err, -ENOMEM, "out of memory");
    n = fd_read_full(fd, data, (size_t)st.st_size);
    if (n < 0)
        return err_sys(err, n, "%s", path);
    *ret = count(data, (size_t)n, old, strlen(old));
    if (*ret == 0)
        return 0;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(err, -errno, "%s", path);
    int r = rewrite(fd, data, (size_t)n, old, new);
    return r < 0 ? err_sys(err, r, "%s", path) : 0;
}
