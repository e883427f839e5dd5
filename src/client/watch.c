/* See watch.h. Owns the epoll instance and its loop handle; the descriptor stays the caller's. */
#include <errno.h>
#include <sys/epoll.h>

#include "client/watch.h"

struct watch {
    uv_poll_t poll; /* on epfd */
    uv_idle_t idle; /* for descriptors that epoll refuses because they are always ready */
    int epfd;       /* -1 = always ready */
    watch_cb cb;
    void *ud;
};

static void on_poll(uv_poll_t *p, int status, int events) {
    struct watch *w = p->data;
    w->cb(w, w->ud);
}

static void on_idle(uv_idle_t *i) {
    struct watch *w = i->data;
    w->cb(w, w->ud);
}

int watch_open(uv_loop_t *loop, int fd, int events, watch_cb cb, void *ud, struct watch **ret) {
    struct watch *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->cb = cb;
    w->ud = ud;
    w->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (w->epfd < 0) {
        free(w);
        return -errno;
    }
    struct epoll_event ev = {.events = events == UV_WRITABLE ? EPOLLOUT : EPOLLIN};
    int r = epoll_ctl(w->epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
    if (r == -EPERM) {
        w->epfd = fd_close(w->epfd);
        r = uv_idle_init(loop, &w->idle);
        w->idle.data = w;
    } else if (r == 0) {
        r = uv_poll_init(loop, &w->poll, w->epfd);
        w->poll.data = w;
    }
    if (r < 0) {
        fd_close(w->epfd);
        free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void watch_start(struct watch *w) {
    if (w->epfd < 0)
        uv_idle_start(&w->idle, on_idle);
    else
        uv_poll_start(&w->poll, UV_READABLE, on_poll);
}

void watch_stop(struct watch *w) {
    if (w->epfd < 0)
        uv_idle_stop(&w->idle);
    else
        uv_poll_stop(&w->poll);
}

bool watch_is_file(const struct watch *w) {
    return w->epfd < 0;
}

static void on_closed(uv_handle_t *h) {
    free(h->data);
}

struct watch *watch_close(struct watch *w) {
    if (!w)
        return NULL;
    if (w->epfd < 0) {
        uv_close((uv_handle_t *)&w->idle, on_closed);
    } else {
        uv_close((uv_handle_t *)&w->poll, on_closed);
        fd_close(w->epfd);
    }
    return NULL;
}
