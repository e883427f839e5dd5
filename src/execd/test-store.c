/* The bounded stores of output: spool, ring, log file. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/path.h"
#include "base/test.h"
#include "execd/logfile.h"
#include "execd/ring.h"
#include "execd/spool.h"

static char byte_at(uint64_t i) {
    return (char)(i * 2654435761U >> 13);
}

static void fill(char *p, uint64_t from, size_t n) {
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(from + i);
}

TEST(spool_keeps_offsets) {
    char data[5000], got[5000];
    struct spool s;
    uint64_t pos = 0, off;

    spool_init(&s);
    off = 77;
    ASSERT_INT(spool_read(&s, &off, got, 10), 0);
    ASSERT_INT(off, 0);
    for (int i = 0; i < 20; i++) { /* crosses from memory into the file */
        fill(data, pos, 4999);
        spool_append(&s, data, 4999);
        pos += 4999;
        ASSERT(s.end == pos && spool_start(&s) == 0 && spool_size(&s) == pos);
        off = pos - 3000;
        ASSERT_INT(spool_read(&s, &off, got, sizeof got), 3000);
        ASSERT(memcmp(got, data + 1999, 3000) == 0);
        off = 5;
        ASSERT_INT(spool_read(&s, &off, got, 1), 1);
        ASSERT(got[0] == byte_at(5));
    }
    ASSERT(s.fd >= 0);
    spool_done(&s);
}

TEST(spool_drops_the_oldest) {
    char *data = malloc(1 << 20), got[100];
    struct spool s;
    uint64_t pos = 0, off = 0;

    spool_init(&s);
    for (int i = 0; i < 70; i++) {
        fill(data, pos, 1 << 20);
        spool_append(&s, data, 1 << 20);
        pos += 1 << 20;
    }
    ASSERT(!s.failed && s.end == pos && spool_start(&s) == pos - s.cap);
    ASSERT_INT(spool_read(&s, &off, got, sizeof got), 100);
    ASSERT_INT(off, pos - s.cap);
    ASSERT(got[0] == byte_at(off) && got[99] == byte_at(off + 99));
    spool_done(&s);
    free(data);
}

TEST(ring_replays_from_any_offset) {
    struct ring r = {0};
    char data[7000];
    uint64_t pos = 0;

    for (int i = 0; i < 400; i++) {
        size_t n = (size_t)(i * 911 % 6999) + 1, len;
        fill(data, pos, n);
        ring_append(&r, data, n);
        pos += n;
        ASSERT(r.end == pos && r.cap <= RING_MAX);
        uint64_t from = i % 3 ? 0 : pos - n / 2;
        char *copy = ring_copy(&r, &from, 9, &len);
        ASSERT(from + len == pos && from >= ring_start(&r));
        for (size_t k = 0; k<len; k += len> 4000 ? 997 : 1)
            ASSERT(copy[9 + k] == byte_at(from + k));
        free(copy);
    }
    ASSERT_INT(r.cap, RING_MAX);
    char *big = malloc(3 << 20);
    fill(big, pos, 3 << 20);
    ring_append(&r, big, 3 << 20);
    pos += 3 << 20;
    uint64_t from = 0;
    size_t len;
    char *copy = ring_copy(&r, &from, 0, &len);
    ASSERT(len == RING_MAX && from == pos - RING_MAX &&
           memcmp(copy, big + (2 << 20), RING_MAX) == 0);
    free(copy);
    free(big);
    ring_done(&r);
}

TEST(ring_starts_small) {
    struct ring r = {0};
    ring_append(&r, "hello", 5);
    ASSERT(r.cap <= 4096);
    ring_done(&r);
}

TEST(log_file_is_bounded) {
    _cleanup_close_ int fd = memfd_create("log", MFD_CLOEXEC);
    struct logfile l;
    char line[64];
    int last = 0;

    logfile_init(&l, fd);
    for (int i = 0; i < 900000; i++) {
        int n = snprintf(line, sizeof line, "line %d\n", i);
        logfile_append(&l, line, (size_t)n);
        ASSERT(l.size <= LOGFILE_MAX);
        last = i;
    }
    _cleanup_free_ char *text = malloc(l.size + 1);
    ASSERT_INT(pread(fd, text, l.size, 0), l.size);
    text[l.size] = 0;
    int first;
    ASSERT_INT(sscanf(text, "line %d\n", &first), 1);
    snprintf(line, sizeof line, "line %d\n", last);
    ASSERT_STR(text + l.size - strlen(line), line);
    ASSERT(first > 0 && l.size > LOGFILE_MAX / 4);
}

TEST(log_file_takes_big_writes) {
    _cleanup_close_ int fd = memfd_create("log", MFD_CLOEXEC);
    char *big = calloc(1, 6 << 20);
    struct logfile l;

    logfile_init(&l, fd);
    logfile_append(&l, big, 6 << 20);
    ASSERT(l.size <= LOGFILE_MAX && l.size > LOGFILE_MAX / 4);
    logfile_init(&l, -1);
    logfile_append(&l, big, 100);
    free(big);
}

TEST_MAIN()
