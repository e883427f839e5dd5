/*
 * The HTTP server as a whole: listeners, the number of connections, time limits, draining (see
 * h1_server.h).
 *
 * Time limits: every kind has one length, so a list per kind in the order of insertion is in the
 * order of due times, and one timer, armed for the earliest, serves all connections. Nothing wakes
 * up while nothing is due.
 *
 * Work that handlers cause from outside of a connection's run is put on `deferred` and done by an
 * idle handle in the next turn of the loop. Loop thread only.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "base/log.h"
#include "base/str.h"
#include "net/h1_internal.h"

#define ACCEPTS_PER_WAKE 64
#define ACCEPT_PAUSE_MS 100

struct listener {
    struct list link;
    struct h1_server *server;
    uv_poll_t poll;
    int fd;
    char *path; /* Unix: removed at the end when it is still ours */
    dev_t dev;
    ino_t ino;
};

/* ---- time limits ---- */

static unsigned length_ms(const struct h1_server *s, enum h1_wait kind) {
    const struct h1_limits *l = &s->opts.limits;

    switch (kind) {
    case H1_WAIT_HEAD:
    case H1_WAIT_DRAIN:
        return l->header_timeout_ms;
    case H1_WAIT_BODY:
        return l->body_timeout_ms;
    case H1_WAIT_WRITE:
        return l->write_timeout_ms;
    default:
        return l->idle_timeout_ms;
    }
}

static void on_timer(uv_timer_t *t);

static void arm_timer(struct h1_server *s, uint64_t due) {
    uint64_t now = uv_now(s->loop);

    if (s->timer_due && s->timer_due <= due)
        return;
    s->timer_due = due;
    uv_timer_start(&s->timer, on_timer, due > now ? due - now : 0, 0);
}

void h1_server_wait(struct h1_server *s, struct h1_timeout *t, enum h1_wait kind) {
    list_remove(&t->link);
    t->due_ms = uv_now(s->loop) + length_ms(s, kind);
    list_append(&s->waits[kind], &t->link);
    arm_timer(s, t->due_ms);
}

static void expire(struct h1_server *s, enum h1_wait kind) {
    while (!list_is_empty(&s->waits[kind])) {
        struct h1_timeout *t = list_entry(s->waits[kind].next, struct h1_timeout, link);

        if (t->due_ms > uv_now(s->loop)) {
            arm_timer(s, t->due_ms);
            return;
        }
        list_remove(&t->link);
        h1_conn_expired(kind == H1_WAIT_WRITE ? container_of(t, struct h1_conn, write_wait)
                                              : container_of(t, struct h1_conn, wait),
                        kind);
    }
}

static void on_timer(uv_timer_t *t) {
    struct h1_server *s = container_of(t, struct h1_server, timer);

    s->timer_due = 0;
    for (int kind = 0; kind < H1_WAIT_KINDS; kind++)
        expire(s, (enum h1_wait)kind);
}

/* ---- deferred work ---- */

static void maybe_drained(struct h1_server *s) {
    void (*cb)(void *) = s->drain_cb;

    if (!s->draining || s->n_conns || !cb)
        return;
    s->drain_cb = NULL;
    uv_timer_stop(&s->grace);
    cb(s->drain_ud);
}

static void on_idle(uv_idle_t *h) {
    struct h1_server *s = container_of(h, struct h1_server, idle);
    struct list now;

    uv_idle_stop(&s->idle);
    list_init(&now);
    if (!list_is_empty(
            &s->deferred)) { /* only what is there now: later kicks wait for the next turn */
        list_append(&s->deferred, &now);
        list_remove(&s->deferred);
    }
    while (!list_is_empty(&now)) {
        struct h1_conn *c = list_entry(now.next, struct h1_conn, deferred);
        list_remove(&c->deferred);
        h1_conn_run(c);
    }
    maybe_drained(s);
}

void h1_server_defer(struct h1_server *s, struct h1_conn *c) {
    if (list_is_empty(&c->deferred))
        list_append(&s->deferred, &c->deferred);
    uv_idle_start(&s->idle, on_idle);
}

void h1_server_conn_gone(struct h1_server *s) {
    if (s->draining && !s->n_conns && !s->freed)
        uv_idle_start(&s->idle, on_idle);
}

const char *h1_server_date(struct h1_server *s) {
    time_t now = time(NULL);
    struct tm tm;

    if (now != s->date_at) {
        static const char days[] = "SunMonTueWedThuFriSat",
                          months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        gmtime_r(&now, &tm);
        s->date_at = now;
        snprintf(s->date, sizeof s->date, "Date: %.3s, %02u %.3s %u %02u:%02u:%02u GMT\r\n",
                 days + 3 * tm.tm_wday, (unsigned)tm.tm_mday % 100, months + 3 * tm.tm_mon,
                 (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
                 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
    }
    return s->date;
}

/* ---- listeners ---- */

static void on_acceptable(uv_poll_t *h, int status, int events);

static void serve(struct h1_server *s, int fd) {
    struct h1_conn *c;

    if (h1_conn_new(s, fd, &c) < 0)
        return;
    if (s->n_conns > s->opts.limits.max_connections)
        h1_conn_turn_away(c, "Service Unavailable: more connections than max_connections\n");
}

static void on_accept_again(uv_timer_t *t) {
    struct h1_server *s = container_of(t, struct h1_server, accept_again);

    list_foreach (it, &s->listeners)
        uv_poll_start(&list_entry(it, struct listener, link)->poll, UV_READABLE, on_acceptable);
}

/*
 * Out of descriptors: the waiting client is turned away with the spare one, or it would keep the
 * listener ready for ever. Where even that fails, accepting pauses for a moment; nothing tells when
 * a descriptor is free again.
 */
static void turn_away(struct h1_server *s, int listen_fd) {
    int fd;

    s->spare_fd = fd_close(s->spare_fd);
    fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN) {
        list_foreach (it, &s->listeners)
            uv_poll_stop(&list_entry(it, struct listener, link)->poll);
        uv_timer_start(&s->accept_again, on_accept_again, ACCEPT_PAUSE_MS, 0);
    }
    fd_close(fd);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_acceptable(uv_poll_t *h, int status, int events) {
    struct listener *l = container_of(h, struct listener, poll);
    struct h1_server *s = l->server;

    for (int i = 0; i < ACCEPTS_PER_WAKE && l->fd >= 0; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            serve(s, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            turn_away(s, l->fd);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void on_listener_closed(uv_handle_t *h) {
    struct listener *l = container_of((uv_poll_t *)h, struct listener, poll);

    free(l->path);
    free(l);
}

static void close_listener(struct listener *l) {
    struct stat st;

    list_remove(&l->link);
    uv_close((uv_handle_t *)&l->poll, on_listener_closed);
    l->fd = fd_close(l->fd);
    if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        (void)unlink(l->path);
}

static void close_listeners(struct h1_server *s) {
    uv_timer_stop(&s->accept_again);
    while (!list_is_empty(&s->listeners))
        close_listener(list_entry(s->listeners.next, struct listener, link));
}

/* Takes fd (a listening socket) and path (both owned, also on failure). */
static int add_listener(struct h1_server *s, int fd, char *path, struct err *err) {
    struct listener *l = calloc(1, sizeof *l);
    struct stat st;
    int r = l ? uv_poll_init(s->loop, &l->poll, fd) : -ENOMEM;

    if (r < 0) {
        free(l);
        free(path);
        fd_close(fd);
        return err_sys(err, r, "cannot watch the listening socket");
    }
    l->server = s;
    l->fd = fd;
    l->path = path;
    if (path && lstat(path, &st) == 0) {
        l->dev = st.st_dev;
        l->ino = st.st_ino;
    }
    list_append(&s->listeners, &l->link);
    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
    return 0;
}

/* Accepted sockets inherit these from the listener. The first does not exist, and fails, on Unix
 * sockets. */
static void inherit_options(int fd) {
    int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

int h1_server_listen_fd(struct h1_server *s, int fd, struct err *err) {
    int r, listening = 0;
    socklen_t len = sizeof listening;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 || !listening) {
        r = err_set(err, -EINVAL, "descriptor %d is not a listening socket", fd);
        fd_close(fd);
        return r;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    inherit_options(fd);
    return add_listener(s, fd, NULL, err);
}

int h1_server_listen_tcp(struct h1_server *s, const char *addr, uint16_t port, int backlog,
                         uint16_t *ret_port, struct err *err) {
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof(struct sockaddr_in);
    _cleanup_close_ int fd = -1;
    int on = 1, off = 0;

    if (uv_ip4_addr(addr, port, (struct sockaddr_in *)&ss) < 0) {
        if (uv_ip6_addr(addr, port, (struct sockaddr_in6 *)&ss) < 0)
            return err_set(err, -EINVAL, "\"%s\" is not a numeric address", addr);
        len = sizeof(struct sockaddr_in6);
    }
    fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, -errno, "cannot make a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    inherit_options(fd);
    if (ss.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, backlog > 0 ? backlog : 1024) < 0)
        return err_sys(err, -errno, "cannot listen on %s port %u", addr, (unsigned)port);
    if (ret_port && getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
        *ret_port = ntohs(ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
                                                  : ((struct sockaddr_in6 *)&ss)->sin6_port);
    return add_listener(s, TAKE_FD(fd), NULL, err);
}

/* Removes a socket file that nobody listens on. */
static int clear_old_socket(const struct sockaddr_un *un, struct err *err) {
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (lstat(un->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, -errno, "cannot look at %s", un->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, -EEXIST, "%s exists and is not a socket", un->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, -errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)un, sizeof *un) == 0 || errno != ECONNREFUSED)
        return err_set(err, -EADDRINUSE, "another program listens on %s", un->sun_path);
    if (unlink(un->sun_path) < 0 && errno != ENOENT)
        return err_sys(err, -errno, "cannot remove the old socket %s", un->sun_path);
    return 0;
}

int h1_server_listen_unix(struct h1_server *s, const char *path, mode_t mode, struct err *err) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;
    char *copy;
    int r;

    if (!str_copy(un.sun_path, sizeof un.sun_path, path))
        return err_set(err, -ENAMETOOLONG, "the socket path %s is longer than %zu bytes", path,
                       sizeof un.sun_path - 1);
    r = clear_old_socket(&un, err);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, -errno, "cannot make a socket");
    /* Until listen(2) every connect is refused: the permissions are in place before anyone can come
     * in. */
    if (bind(fd, (struct sockaddr *)&un, sizeof un) < 0 || chmod(path, mode) < 0 ||
        listen(fd, 1024) < 0)
        return err_sys(err, -errno, "cannot listen on %s", path);
    copy = str_ndup(path, strlen(path));
    if (!copy)
        return err_sys(err, -ENOMEM, "cannot listen on %s", path);
    return add_listener(s, TAKE_FD(fd), copy, err);
}

/* ---- the server ---- */

static void fill_limits(struct h1_limits *l) {
    static const struct h1_limits dflt = {65536, 65536, 200,   10000, 600000,
                                          60000, 60000, 20000, 262144};

#define FILL(member) l->member = l->member ? l->member : dflt.member
    FILL(max_target);
    FILL(max_headers);
    FILL(max_header_count);
    FILL(header_timeout_ms);
    FILL(idle_timeout_ms);
    FILL(body_timeout_ms);
    FILL(write_timeout_ms);
    FILL(max_connections);
    FILL(max_drain);
#undef FILL
}

static int render_extra(struct h1_server *s, const struct h1_header *headers) {
    _cleanup_buf_ struct buf b = BUF_INIT(65536);

    for (const struct h1_header *h = headers; h && h->name; h++) {
        if (strpbrk(h->name, "\r\n:") || strpbrk(h->value, "\r\n"))
            return -EINVAL;
        buf_printf(&b, "%s: %s\r\n", h->name, h->value);
    }
    s->extra_len = b.len;
    s->extra = buf_take(&b, NULL);
    return s->extra ? 0 : -ENOMEM;
}

int h1_server_new(uv_loop_t *loop, const struct h1_server_opts *opts, struct h1_server **ret) {
    struct h1_server *s = calloc(1, sizeof *s);
    int r;

    if (!s)
        return -ENOMEM;
    s->loop = loop;
    s->opts = *opts;
    fill_limits(&s->opts.limits);
    r = render_extra(s, opts->extra_headers);
    if (r < 0) {
        free(s);
        return r;
    }
    list_init(&s->listeners);
    list_init(&s->conns);
    list_init(&s->deferred);
    for (size_t i = 0; i < ARRAY_SIZE(s->waits); i++)
        list_init(&s->waits[i]);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uv_timer_init(loop, &s->timer);
    uv_timer_init(loop, &s->grace);
    uv_timer_init(loop, &s->accept_again);
    uv_idle_init(loop, &s->idle);
    uv_unref(
        (uv_handle_t *)&s
            ->timer); /* listeners and connections keep the loop alive, time limits alone do not */
    s->open_handles = 4;
    s->timer.data = s->grace.data = s->accept_again.data = s->idle.data = s;
    *ret = s;
    return 0;
}

static void cut_all(struct h1_server *s) {
    while (!list_is_empty(&s->conns))
        h1_conn_cut(list_entry(s->conns.next, struct h1_conn, link));
}

static void on_grace_over(uv_timer_t *t) {
    cut_all(container_of(t, struct h1_server, grace));
}

void h1_server_drain(struct h1_server *s, unsigned grace_ms, void (*cb)(void *ud), void *ud) {
    if (s->draining)
        return;
    s->draining = true;
    s->drain_cb = cb;
    s->drain_ud = ud;
    close_listeners(s);
    list_foreach_safe (it, &s->conns)
        h1_conn_close_if_idle(list_entry(it, struct h1_conn, link));
    uv_timer_start(&s->grace, on_grace_over, grace_ms, 0);
    h1_server_conn_gone(s);
}

static void on_handle_closed(uv_handle_t *h) {
    struct h1_server *s = h->data;

    if (--s->open_handles)
        return;
    buf_done(&s->scratch);
    free(s->extra);
    free(s);
}

void h1_server_free(struct h1_server *s) {
    if (!s || s->freed)
        return;
    s->freed = true;
    s->draining = true;
    close_listeners(s);
    cut_all(s);
    s->spare_fd = fd_close(s->spare_fd);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->grace, on_handle_closed);
    uv_close((uv_handle_t *)&s->accept_again, on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_handle_closed);
}

size_t h1_server_connections(const struct h1_server *s) {
    return s->n_conns;
}
