/* Bounded log file (see logfile.h). When full, its younger half is moved to the front, at a line's
 * start. */
#include "execd/logfile.h"

#include <string.h>
#include <sys/stat.h>

#include "base/path.h"

#define COPY ((size_t)64 << 10)

void logfile_init(struct logfile *l, int fd) {
    struct stat st;

    *l = (struct logfile){.fd = fd};
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        l->size = (uint64_t)st.st_size;
}

/* Bytes to skip so that what is kept begins with a whole line. */
static uint64_t next_line(int fd, uint64_t from, char *tmp) {
    ssize_t n = pread(fd, tmp, COPY, (off_t)from);
    const char *nl = n > 0 ? memchr(tmp, '\n', (size_t)n) : NULL;
    return nl ? from + (uint64_t)(nl - tmp) + 1 : from;
}

static void drop_oldest(struct logfile *l) {
    char *tmp = malloc(COPY);
    uint64_t to = 0;

    if (!tmp)
        return;
    for (uint64_t from = next_line(l->fd, l->size - LOGFILE_MAX / 2, tmp); from < l->size;) {
        ssize_t n = pread(l->fd, tmp, COPY, (off_t)from);
        if (n <= 0 || pwrite(l->fd, tmp, (size_t)n, (off_t)to) != n)
            break;
        from += (uint64_t)n;
        to += (uint64_t)n;
    }
    if (ftruncate(l->fd, (off_t)to) == 0)
        l->size = to;
    free(tmp);
}

void logfile_append(struct logfile *l, const char *data, size_t len) {
    while (l->fd >= 0 && len > 0) {
        if (l->size + MIN(len, COPY) > LOGFILE_MAX)
            drop_oldest(l);
        if (l->size + MIN(len, COPY) > LOGFILE_MAX)
            return; /* it could not be made smaller */
        ssize_t n = pwrite(l->fd, data, MIN(len, COPY), (off_t)l->size);
        if (n <= 0)
            return;
        l->size += (uint64_t)n;
        data += n;
        len -= (size_t)n;
    }
}
