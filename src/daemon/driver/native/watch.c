/*
 * Learns when a sandbox's main process ends by itself: one thread sleeps in epoll on the pidfds of
 * all. It marks the sandbox as exited, writes that down and tells the service. Sandboxes are
 * identified by a copy of their id, looked up under the driver's lock, so a removal at the same
 * moment is harmless.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "daemon/driver/native/native_priv.h"

struct watch {
    struct native *n;
    int epoll, stop;
    pthread_t thread;
};

/* The running sandbox with that process descriptor. Under the lock. */
static struct box *find_by_pidfd(struct native *n, int pidfd) {
    size_t at = 0;
    const char *id;
    void *value;

    while (map_next(n->boxes, &at, &id, &value)) {
        struct box *b = value;
        if (b->pidfd == pidfd && b->state == BOX_RUNNING)
            return b;
    }
    return NULL;
}

static void on_end(struct watch *w, int pidfd) {
    struct native *n = w->n;
    struct instance_info info;

    epoll_ctl(w->epoll, EPOLL_CTL_DEL, pidfd, NULL);
    pthread_mutex_lock(&n->lock);
    struct box *b = find_by_pidfd(n, pidfd);
    if (b) {
        box_read_exit(n, b);
        b->state = BOX_EXITED;
        b->paused = false;
        (void)box_record_write(n, b);
        box_info(b, &info);
    }
    pthread_mutex_unlock(&n->lock);
    if (!b)
        return;
    log_debug("sandbox ended", LOG_STR("sandbox", info.id), LOG_INT("exit_code", info.exit_code));
    if (n->driver.events.on_change)
        n->driver.events.on_change(&info, n->driver.events.ud);
}

static void *run(void *arg) {
    struct watch *w = arg;
    struct epoll_event ev[32];

    for (;;) {
        int k = epoll_wait(w->epoll, ev, ARRAY_SIZE(ev), -1);
        if (k < 0 && errno != EINTR)
            return NULL;
        for (int i = 0; i < k; i++) {
            if (ev[i].data.fd == w->stop)
                return NULL;
            on_end(w, ev[i].data.fd);
        }
    }
}

static int add(struct watch *w, int fd) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

int watch_new(struct native *n, struct watch **ret) {
    struct watch *w = calloc(1, sizeof *w);
    int r;

    if (!w)
        return -ENOMEM;
    w->n = n;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = w->epoll < 0 || w->stop < 0 ? -errno : add(w, w->stop);
    if (r == 0)
        r = -pthread_create(&w->thread, NULL, run, w);
    if (r < 0) {
        fd_close(w->epoll);
        fd_close(w->stop);
        free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct watch *watch_free(struct watch *w) {
    if (!w)
        return NULL;
    eventfd_write(w->stop, 1);
    pthread_join(w->thread, NULL);
    fd_close(w->epoll);
    fd_close(w->stop);
    free(w);
    return NULL;
}

int watch_add(struct watch *w, const struct box *b) {
    return add(w, b->pidfd);
}

void watch_remove(struct watch *w, const struct box *b) {
    if (b->pidfd >= 0)
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, b->pidfd, NULL);
}
