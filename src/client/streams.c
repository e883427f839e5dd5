/*
 * See streams.h. Invariant of a sink: bytes are written in the order of sink_write(); while `held`
 * is not empty nothing is written past it. Loop thread only.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "client/streams.h"

#define SOURCE_CHUNK 32768

/*
 * Bytes written, 0 when it would wait, -errno. Without O_NONBLOCK a pipe that polls writable takes
 * PIPE_BUF bytes without waiting, and no more is promised.
 */
static ssize_t write_some(const struct sink *s, const char *data, size_t len) {
    if (!watch_is_file(s->watch)) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) <= 0)
            return 0;
        len = MIN(len, (size_t)PIPE_BUF);
    }
    ssize_t n;
    do
        n = write(s->fd, data, len);
    while (n < 0 && errno == EINTR);
    return n >= 0 ? n : errno == EAGAIN ? 0 : -errno;
}

static size_t write_ready(struct sink *s, const char *data, size_t len) {
    size_t done = 0;
    while (done < len && !s->error) {
        ssize_t n = write_some(s, data + done, len - done);
        if (n == 0)
            break;
        if (n < 0)
            s->error = (int)n;
        else
            done += (size_t)n;
    }
    return done;
}

static void sink_watch(struct sink *s) {
    bool want = s->held.len > 0 && !s->error;
    if (want && !s->watching)
        watch_start(s->watch);
    else if (!want && s->watching)
        watch_stop(s->watch);
    s->watching = want;
}

static void on_writable(struct watch *w, void *ud) {
    struct sink *s = ud;
    size_t n = write_ready(s, s->held.data, s->held.len);
    buf_consume(&s->held, s->error ? s->held.len : n);
    sink_watch(s);
    if (s->held.len == 0)
        s->on_change(s->ud);
}

int sink_open(struct sink *s, uv_loop_t *loop, int fd, void (*on_change)(void *ud), void *ud) {
    *s = (struct sink){.fd = fd, .on_change = on_change, .ud = ud, .held = BUF_INIT(SINK_MAX)};
    return fd < 0 ? 0 : watch_open(loop, fd, UV_WRITABLE, on_writable, s, &s->watch);
}

int sink_write(struct sink *s, const char *data, size_t len) {
    if (s->fd < 0 || s->error)
        return s->error;
    size_t done = s->held.len ? 0 : write_ready(s, data, len);
    if (s->error)
        return s->error;
    int r = done < len ? buf_append(&s->held, data + done, len - done) : 0;
    sink_watch(s);
    return r;
}

void sink_close(struct sink *s) {
    s->watch = watch_close(s->watch);
    buf_done(&s->held);
}

static void on_readable(struct watch *w, void *ud) {
    struct source *s = ud;
    char chunk[SOURCE_CHUNK];
    if (atomic_load(s->hold))
        return;
    ssize_t n = read(s->fd, chunk, sizeof(chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) { /* a terminal that has gone away reads EIO: an end like any other */
        s->ended = true;
        watch_stop(w);
        n = 0;
    }
    s->on_data(chunk, (size_t)n, s->ud);
}

int source_open(struct source *s, uv_loop_t *loop, int fd, const atomic_bool *hold,
                void (*on_data)(const char *, size_t, void *), void *ud) {
    *s = (struct source){.fd = fd, .hold = hold, .on_data = on_data, .ud = ud};
    return fd < 0 ? 0 : watch_open(loop, fd, UV_READABLE, on_readable, s, &s->watch);
}

void source_start(struct source *s) {
    if (s->ended)
        return;
    if (s->fd >= 0) {
        watch_start(s->watch);
        return;
    }
    s->ended = true;
    s->on_data("", 0, s->ud);
}

void source_stop(struct source *s) {
    if (s->watch)
        watch_stop(s->watch);
}

void source_close(struct source *s) {
    s->watch = watch_close(s->watch);
}
