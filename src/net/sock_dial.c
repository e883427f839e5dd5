/*
 * Connecting (see sock.h): Unix sockets, numeric addresses, names, and sockets inside a network
 * namespace.
 *
 * A dial lives until its timer and its poll handle are closed; the callback is made at most once,
 * from the loop, never from within sock_dial. Addresses of a name are tried one after the other.
 * Loop thread only.
 */
#include "net/sock_dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/str.h"

#define RETRY_MS 5 /* a full backlog of a Unix socket: the kernel has nothing to wait on */

struct sock_dial {
    uv_loop_t *loop;
    uv_timer_t timer; /* the time limit */
    uv_timer_t step;  /* work that must come from the loop: first connect, reports, retries */
    uv_poll_t *poll;  /* while one connect is under way */
    struct sock_resolve *resolve;
    struct sockaddr_storage addrs[SOCK_RESOLVE_MAX];
    size_t n_addrs, next;
    int fd, netns_fd, error; /* error: what to report when no address is left */
    unsigned open_handles;
    sock_dial_cb cb; /* NULL once reported or cancelled */
    void *ud;
};

static void on_handle_closed(uv_handle_t *h) {
    struct sock_dial *d = h->data;

    if (--d->open_handles == 0)
        free(d);
}

static void on_poll_closed(uv_handle_t *h) {
    free(h);
}

static void stop_poll(struct sock_dial *d) {
    if (d->poll)
        uv_close((uv_handle_t *)TAKE_PTR(d->poll), on_poll_closed);
}

static void finish(struct sock_dial *d) {
    stop_poll(d);
    d->fd = fd_close(d->fd);
    sock_resolve_cancel(TAKE_PTR(d->resolve));
    d->netns_fd = fd_close(d->netns_fd);
    uv_close((uv_handle_t *)&d->timer, on_handle_closed);
    uv_close((uv_handle_t *)&d->step, on_handle_closed);
}

static void report(struct sock_dial *d, int error) {
    sock_dial_cb cb = TAKE_PTR(d->cb);
    struct sock *s = NULL;

    stop_poll(d);
    if (error == 0)
        error = sock_open(d->loop, TAKE_FD(d->fd), &s);
    finish(d);
    cb(error < 0 ? NULL : s, error, d->ud);
}

static void try_next(struct sock_dial *d);

static void on_step(uv_timer_t *t) {
    try_next(t->data);
}

static void later(struct sock_dial *d, unsigned ms) {
    uv_timer_start(&d->step, on_step, ms, 0);
}

static void on_timeout(uv_timer_t *t) {
    report(t->data, -ETIMEDOUT);
}

static void on_writable(uv_poll_t *h, int status, int events) {
    struct sock_dial *d = h->data;
    int e = 0;
    socklen_t len = sizeof e;

    (void)status, (void)events; /* SO_ERROR knows more */
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
        e = errno;
    if (e == 0) {
        report(d, 0);
        return;
    }
    d->error = -e;
    stop_poll(d);
    d->fd = fd_close(d->fd);
    d->next++;
    try_next(d);
}

static int open_socket(struct sock_dial *d, int family) {
    int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, on = 1;
    int fd = d->netns_fd >= 0 ? netns_socket(d->netns_fd, family, type) : socket(family, type, 0);

    if (fd < 0)
        return d->netns_fd >= 0 ? fd : -errno;
    if (family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static socklen_t address_size(const struct sockaddr_storage *ss) {
    return ss->ss_family == AF_UNIX    ? sizeof(struct sockaddr_un)
           : ss->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                       : sizeof(struct sockaddr_in);
}

/* Starts waiting for the connect in progress on d->fd. */
static int wait_connect(struct sock_dial *d) {
    int r;

    d->poll = malloc(sizeof *d->poll);
    if (!d->poll)
        return -ENOMEM;
    r = uv_poll_init(d->loop, d->poll, d->fd);
    if (r < 0) {
        free(TAKE_PTR(d->poll));
        return r;
    }
    d->poll->data = d;
    return uv_poll_start(d->poll, UV_WRITABLE, on_writable);
}

static void try_next(struct sock_dial *d) {
    for (; d->next < d->n_addrs; d->next++) {
        const struct sockaddr_storage *ss = &d->addrs[d->next];
        int r;

        d->fd = open_socket(d, ss->ss_family);
        if (d->fd < 0) {
            d->error = d->fd;
            continue;
        }
        do
            r = connect(d->fd, (const struct sockaddr *)ss, address_size(ss)) < 0 ? -errno : 0;
        while (r == -EINTR);
        if (r == 0) {
            report(d, 0);
            return;
        }
        if (r == -EINPROGRESS)
            r = wait_connect(d);
        if (r == 0)
            return;
        d->fd = fd_close(d->fd);
        if (r == -EAGAIN && ss->ss_family == AF_UNIX) {
            later(d, RETRY_MS);
            return;
        }
        d->error = r;
    }
    report(d, d->error);
}

static void on_resolved(int error, const struct sockaddr_storage *addrs, size_t n, void *ud) {
    struct sock_dial *d = ud;

    d->resolve = NULL;
    if (error < 0) {
        report(d, error);
        return;
    }
    memcpy(d->addrs, addrs, n * sizeof *addrs);
    d->n_addrs = n;
    try_next(d);
}

/* Fills in the address list, or starts the look-up of a name. */
static int prepare(struct sock_dial *d, const struct sock_addr *a) {
    struct sockaddr_un *un = (struct sockaddr_un *)&d->addrs[0];

    d->n_addrs = 1;
    if (a->unix_path) {
        un->sun_family = AF_UNIX;
        return str_copy(un->sun_path, sizeof un->sun_path, a->unix_path) ? 0 : -ENAMETOOLONG;
    }
    if (!a->host)
        return -EINVAL;
    if (uv_ip4_addr(a->host, a->port, (struct sockaddr_in *)&d->addrs[0]) == 0 ||
        uv_ip6_addr(a->host, a->port, (struct sockaddr_in6 *)&d->addrs[0]) == 0)
        return 0;
    d->addrs[0] = (struct sockaddr_storage){0};
    d->n_addrs = 0;
    return sock_resolve(d->loop, a->host, a->port, on_resolved, d, &d->resolve);
}

int sock_dial(uv_loop_t *loop, const struct sock_addr *addr, unsigned timeout_ms, sock_dial_cb cb,
              void *ud, struct sock_dial **ret) {
    struct sock_dial *d = calloc(1, sizeof *d);
    int r;

    if (!d)
        return -ENOMEM;
    *d = (struct sock_dial){
        .loop = loop, .fd = -1, .netns_fd = -1, .error = -EHOSTUNREACH, .cb = cb, .ud = ud};
    if (addr->netns_fd > 0 &&
        !addr->unix_path) { /* ours: the caller's may be closed before a late attempt */
        d->netns_fd = fcntl(addr->netns_fd, F_DUPFD_CLOEXEC, 3);
        if (d->netns_fd < 0) {
            r = -errno;
            free(d);
            return r;
        }
    }
    uv_timer_init(loop, &d->timer);
    uv_timer_init(loop, &d->step);
    d->timer.data = d->step.data = d;
    d->open_handles = 2;
    r = prepare(d, addr);
    if (r < 0) {
        d->cb = NULL;
        finish(d);
        return r;
    }
    if (timeout_ms)
        uv_timer_start(&d->timer, on_timeout, timeout_ms, 0);
    if (!d->resolve)
        later(d, 0);
    *ret = d;
    return 0;
}

void sock_dial_cancel(struct sock_dial *d) {
    if (!d || !d->cb)
        return;
    d->cb = NULL;
    finish(d);
}
