/* Non-blocking writer (see feeder.h). Owns the descriptor and the queue. No callback after
 * feeder_free. */
#include "execd/feeder.h"

#include <errno.h>

#include "base/buf.h"
#include "base/path.h"

#define LOW ((size_t)64 << 10)
#define MAX_QUEUE ((size_t)32 << 20)

struct feeder {
    uv_poll_t poll;
    int fd;
    struct feeder_ops ops;
    void *ud;
    struct buf queue;
    bool was_high, ending;
    bool closed;   /* the descriptor is gone, the handle about to be */
    bool released; /* feeder_free was called */
    bool handle_gone;
};

static void free_if_done(struct feeder *f) {
    if (!f->released || !f->handle_gone)
        return;
    buf_done(&f->queue);
    free(f);
}

static void on_handle_closed(uv_handle_t *h) {
    struct feeder *f = h->data;
    f->handle_gone = true;
    free_if_done(f);
}

/* The other side sees the end now. The handle goes first: it must not outlive its descriptor. */
static void close_fd(struct feeder *f) {
    if (f->closed)
        return;
    f->closed = true;
    uv_close((uv_handle_t *)&f->poll, on_handle_closed);
    f->fd = fd_close(f->fd);
    buf_clear(&f->queue);
}

static void fail(struct feeder *f, int error) {
    close_fd(f);
    if (f->ops.on_error)
        f->ops.on_error(f, error, f->ud);
}

static int write_some(struct feeder *f) {
    size_t done = 0;
    int r = 0;

    while (done < f->queue.len) {
        ssize_t n = write(f->fd, f->queue.data + done, f->queue.len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            r = errno == EAGAIN ? 0 : -errno;
            break;
        }
        done += (size_t)n;
    }
    if (done > 0)
        buf_consume(&f->queue, done);
    return r;
}

static void on_writable(uv_poll_t *h, int status, int events) {
    struct feeder *f = h->data;
    int r = write_some(f);

    if (r < 0) {
        fail(f, r);
        return;
    }
    if (f->queue.len == 0 && f->ending)
        close_fd(f);
    else if (f->queue.len == 0)
        uv_poll_stop(h);
    if (f->was_high && f->queue.len < LOW) {
        f->was_high = false;
        if (f->ops.on_drain)
            f->ops.on_drain(f, f->ud);
    }
}

int feeder_new(uv_loop_t *loop, int fd, const struct feeder_ops *ops, void *ud,
               struct feeder **ret) {
    struct feeder *f = calloc(1, sizeof *f);
    int r = f ? fd_set_nonblock(fd, true) : -ENOMEM;

    if (r == 0)
        r = uv_poll_init(loop, &f->poll, fd);
    if (r < 0) {
        fd_close(fd);
        free(f);
        return r;
    }
    f->poll.data = f;
    f->fd = fd;
    f->ops = *ops;
    f->ud = ud;
    buf_init(&f->queue, MAX_QUEUE);
    *ret = f;
    return 0;
}

ssize_t feeder_write(struct feeder *f, const void *data, size_t len) {
    if (f->closed || f->ending)
        return -EPIPE;
    bool was_empty = f->queue.len == 0;
    int r = buf_append(&f->queue, data, len);
    if (r == 0 && was_empty)
        r = write_some(f);
    if (r < 0) {
        fail(f, r);
        return r;
    }
    if (f->queue.len > 0)
        uv_poll_start(&f->poll, UV_WRITABLE, on_writable);
    f->was_high |= f->queue.len > FEEDER_HIGH;
    return (ssize_t)f->queue.len;
}

void feeder_end(struct feeder *f) {
    if (f->closed || f->ending)
        return;
    f->ending = true;
    if (f->queue.len == 0)
        close_fd(f);
}

void feeder_free(struct feeder *f) {
    if (!f)
        return;
    f->ops = (struct feeder_ops){0};
    close_fd(f);
    f->released = true;
    free_if_done(f);
}
