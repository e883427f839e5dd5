/*
 * Pipe reader (see pump.h). Owns the descriptor and its poll handle. Invariants: on_end at most
 * once; no callback after pump_discard or pump_free; one shared read buffer, since callbacks do not
 * keep the data.
 */
#include "execd/pump.h"

#include <errno.h>
#include <sys/ioctl.h>

#include "base/path.h"

struct pump {
    uv_poll_t poll; /* first: the handle is freed as the pump */
    int fd;
    struct pump_ops ops;
    void *ud;
    size_t left; /* finishing: bytes still to deliver */
    bool paused, finishing, ended, eof, freed;
};

#define MAX_TERMINAL ((size_t)1 << 20)

static char chunk[64 << 10];

static void on_closed(uv_handle_t *h) {
    struct pump *p = h->data;
    fd_close(p->fd);
    free(p);
}

void pump_free(struct pump *p) {
    if (!p || p->freed)
        return;
    p->freed = true;
    p->ops = (struct pump_ops){0};
    uv_close((uv_handle_t *)&p->poll, on_closed);
}

static void end(struct pump *p) {
    if (p->ended)
        return;
    p->ended = true;
    uv_poll_stop(&p->poll);
    if (p->ops.on_end)
        p->ops.on_end(p, p->ud);
}

/* One read. False when there is nothing (more) to do now. */
static bool take(struct pump *p) {
    size_t want = p->finishing ? MIN(p->left, sizeof chunk) : sizeof chunk;
    ssize_t n = read(p->fd, chunk, want);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) { /* end, or EIO of a terminal whose other side is gone */
        p->eof = true;
        end(p);
        return false;
    }
    if (p->finishing)
        p->left -= (size_t)n;
    if (p->ops.on_data)
        p->ops.on_data(p, chunk, (size_t)n, p->ud);
    return true;
}

static void drain(struct pump *p) {
    while (!p->paused && !p->ended && !p->freed && p->left > 0 && take(p))
        ;
    if (!p->paused && !p->freed)
        end(p); /* left is 0, or a survivor took bytes back: nothing more was written before */
}

static void on_readable(uv_poll_t *h, int status, int events) {
    struct pump *p = h->data;

    if (p->finishing)
        drain(p);
    else
        take(p);
}

static void on_discard(uv_poll_t *h, int status, int events) {
    struct pump *p = h->data;
    ssize_t n = read(p->fd, chunk, sizeof chunk);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        pump_free(p);
}

int pump_new(uv_loop_t *loop, int fd, const struct pump_ops *ops, void *ud, struct pump **ret) {
    struct pump *p = calloc(1, sizeof *p);
    int r = p ? fd_set_nonblock(fd, true) : -ENOMEM;

    if (r == 0)
        r = uv_poll_init(loop, &p->poll, fd);
    if (r < 0) {
        fd_close(fd);
        free(p);
        return r;
    }
    p->fd = fd;
    p->poll.data = p;
    p->ops = *ops;
    p->ud = ud;
    uv_poll_start(&p->poll, UV_READABLE, on_readable);
    *ret = p;
    return 0;
}

void pump_pause(struct pump *p) {
    p->paused = true;
    if (!p->ended)
        uv_poll_stop(&p->poll);
}

void pump_resume(struct pump *p) {
    if (!p->paused)
        return;
    p->paused = false;
    if (p->ended)
        return;
    if (p->finishing)
        drain(p);
    else
        uv_poll_start(&p->poll, UV_READABLE, on_readable);
}

/*
 * How much may still come from the writer that is gone. A pipe holds it now. A terminal's part may
 * be on its way through the line discipline, where only a read finds it: so up to what a terminal
 * can buffer.
 */
static size_t bytes_left(int fd) {
    int n = 0;

    if (ioctl(fd, TIOCGPTN, &n) == 0)
        return MAX_TERMINAL;
    return ioctl(fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

void pump_finish(struct pump *p) {
    if (p->finishing || p->ended)
        return;
    p->finishing = true;
    p->left = bytes_left(p->fd);
    drain(p);
}

void pump_discard(struct pump *p) {
    if (!p || p->freed)
        return;
    if (p->eof) {
        pump_free(p);
        return;
    }
    p->ops = (struct pump_ops){0};
    p->ended = true;
    uv_poll_start(&p->poll, UV_READABLE, on_discard);
}
