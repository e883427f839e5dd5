/*
 * Connected byte streams on the loop (see sock.h).
 *
 * Owns one descriptor and one uv_poll handle each; reads go through one buffer per thread, so an
 * idle stream costs its struct alone. Output that the kernel does not take at once waits in a list
 * of chunks.
 *
 * Invariants: `events` is what the poll handle is armed for; queued is the sum of all chunks;
 * `error` is sticky; once `closing` is set no callback is made. Used by the loop thread only.
 */
#include "net/sock.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"

#define QUEUE_MAX ((size_t)64 << 20)
#define CHUNK_MIN ((size_t)4 << 10)
#define READ_SIZE ((size_t)64 << 10)
#define READS_PER_WAKE 4
#define LAST_READS 64 /* from a broken stream: more than a kernel buffer holds */
#define IOV_BATCH 16

struct chunk {
    struct chunk *next;
    size_t off, len, cap; /* [off, len) waits */
    char data[];
};

/* Bytes given back, and the timer that delivers them from the loop. */
struct unread {
    uv_timer_t timer;
    struct sock *sock; /* NULL once the stream does not want it any more */
    size_t len;
    char data[];
};

struct sock {
    uv_poll_t poll;
    uv_loop_t *loop;
    struct sock_ops ops;
    void *ud;
    struct chunk *out_first, *out_last;
    size_t queued;
    uint64_t sent;
    struct unread *unread;
    uv_timer_t *linger; /* set while a lingering close runs */
    int fd, events, error;
    int write_error; /* output is over, input may still hold what came before */
    bool want_read : 1, eof : 1, above_high : 1, want_shutdown : 1, is_shut : 1, closing : 1;
};

static _Thread_local char read_buf[READ_SIZE];

static void on_poll(uv_poll_t *h, int status, int events);

static void rearm(struct sock *s) {
    bool reads = (s->want_read && !s->unread) || (s->closing && !s->eof);
    int events = (reads ? UV_READABLE : 0) | (s->queued ? UV_WRITABLE : 0);

    if (s->error)
        events = 0;
    if (events == s->events)
        return;
    s->events = events;
    if (events)
        uv_poll_start(&s->poll, events, on_poll);
    else
        uv_poll_stop(&s->poll);
}

int sock_open(uv_loop_t *loop, int fd, struct sock **ret) {
    struct sock *s = calloc(1, sizeof *s);
    int r;

    if (!s) {
        fd_close(fd);
        return -ENOMEM;
    }
    r = uv_poll_init(loop, &s->poll, fd);
    if (r < 0) {
        free(s);
        fd_close(fd);
        return r;
    }
    s->loop = loop;
    s->fd = fd;
    *ret = s;
    return 0;
}

void sock_set_ops(struct sock *s, const struct sock_ops *ops, void *ud) {
    s->ops = ops ? *ops : (struct sock_ops){0};
    s->ud = ud;
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *h) {
    struct sock *s = container_of((uv_poll_t *)h, struct sock, poll);

    for (struct chunk *c = s->out_first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(s);
}

static void on_timer_closed(uv_handle_t *h) {
    free(h);
}

static void on_unread_closed(uv_handle_t *h) {
    free(container_of((uv_timer_t *)h, struct unread, timer));
}

static void drop_unread(struct sock *s) {
    if (!s->unread)
        return;
    s->unread->sock = NULL;
    uv_close((uv_handle_t *)&s->unread->timer, on_unread_closed);
    s->unread = NULL;
}

static void close_now(struct sock *s) {
    if (s->linger)
        uv_close((uv_handle_t *)TAKE_PTR(s->linger), on_timer_closed);
    drop_unread(s);
    uv_close((uv_handle_t *)&s->poll, on_closed); /* takes it out of the poll set at once */
    s->fd = fd_close(s->fd);
}

static void on_linger_end(uv_timer_t *t) {
    close_now(t->data);
}

/* One step of a lingering close: everything sent -> end our side -> wait for the peer's end. */
static void linger_step(struct sock *s) {
    if (!s->error && !s->queued && !s->is_shut) {
        s->is_shut = true;
        if (shutdown(s->fd, SHUT_WR) < 0)
            s->error = -errno;
    }
    if (s->error || (!s->queued && s->eof))
        close_now(s);
    else
        rearm(s);
}

void sock_close(struct sock *s, unsigned linger_ms) {
    if (!s || s->closing)
        return;
    s->closing = true;
    s->want_read = false;
    sock_set_ops(s, NULL, NULL);
    drop_unread(s);
    if (linger_ms && !s->error && !s->write_error) {
        s->linger = malloc(sizeof *s->linger);
        if (s->linger) {
            uv_timer_init(s->loop, s->linger);
            s->linger->data = s;
            uv_timer_start(s->linger, on_linger_end, linger_ms, 0);
            linger_step(s);
            return;
        }
    }
    close_now(s);
}

void sock_reset(struct sock *s) {
    struct linger zero = {.l_onoff = 1};

    if (!s || s->closing)
        return;
    (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &zero, sizeof zero);
    sock_close(s, 0);
}

/* The stream is broken: tells the owner (once), or ends a lingering close. */
static void fail(struct sock *s, int error) {
    if (s->error)
        return;
    s->error = error ? error : -EIO;
    s->want_read = false;
    rearm(s);
    if (s->closing)
        close_now(s);
    else if (s->ops.on_read)
        s->ops.on_read(s, NULL, s->error, s->ud);
}

static int pending_error(const struct sock *s) {
    int e = 0;
    socklen_t len = sizeof e;

    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
        return -errno;
    return -e;
}

/* ---- input ---- */

static void discard_input(struct sock *s) {
    ssize_t n;

    for (int i = 0; i < READS_PER_WAKE; i++) {
        do
            n = recv(s->fd, read_buf, sizeof read_buf, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            s->eof = true;
            if (n < 0)
                s->error = -errno;
            return;
        }
    }
}

/* Returns false when the kernel has nothing more for now, or nobody wants it. */
static bool read_once(struct sock *s) {
    ssize_t n;

    do
        n = recv(s->fd, read_buf, sizeof read_buf, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        if (errno != EAGAIN)
            fail(s, -errno);
        return false;
    }
    if (n == 0) {
        s->eof = true;
        s->want_read = false;
        rearm(s);
    }
    if (s->ops.on_read)
        s->ops.on_read(s, read_buf, n, s->ud);
    return (size_t)n == sizeof read_buf && s->want_read && !s->unread && !s->closing;
}

/* The stream is broken, but what the peer said before may still be there and is delivered first. */
static void fail_after_reading(struct sock *s, int error) {
    for (int i = 0; i < LAST_READS && s->want_read && !s->unread && !s->closing && read_once(s);
         i++)
        ;
    if (!uv_is_closing((uv_handle_t *)&s->poll))
        fail(s, error);
}

static void on_unread(uv_timer_t *t) {
    struct unread *u = container_of(t, struct unread, timer);
    struct sock *s = u->sock;

    if (!s->want_read) /* paused in between: the next read start arms the timer again */
        return;
    s->unread = NULL;
    if (s->ops.on_read)
        s->ops.on_read(s, u->data, (ssize_t)u->len, s->ud);
    uv_close((uv_handle_t *)&u->timer, on_unread_closed);
    if (s->closing)
        return;
    if (s->unread && s->want_read)
        uv_timer_start(&s->unread->timer, on_unread, 0, 0);
    rearm(s);
}

void sock_read_start(struct sock *s) {
    if (s->want_read || s->error || s->closing || (s->eof && !s->unread))
        return;
    s->want_read = true;
    if (s->unread)
        uv_timer_start(&s->unread->timer, on_unread, 0, 0);
    rearm(s);
}

void sock_read_stop(struct sock *s) {
    if (!s->want_read)
        return;
    s->want_read = false;
    rearm(s);
}

int sock_unread(struct sock *s, const char *data, size_t len) {
    struct unread *old = s->unread, *u;
    size_t old_len = old ? old->len : 0;

    if (!len)
        return 0;
    u = malloc(sizeof *u + len + old_len);
    if (!u)
        return -ENOMEM;
    memcpy(u->data, data, len);
    if (old)
        memcpy(u->data + len, old->data, old_len);
    u->len = len + old_len;
    drop_unread(s);
    u->sock = s;
    uv_timer_init(s->loop, &u->timer);
    s->unread = u;
    if (s->want_read)
        uv_timer_start(&u->timer, on_unread, 0, 0);
    rearm(s);
    return 0;
}

/* ---- output ---- */

/* Hands chunks to the kernel until it takes no more. 0, or -errno when the stream is broken. */
static int send_chunks(struct sock *s) {
    while (s->out_first) {
        struct iovec iov[IOV_BATCH];
        struct msghdr m = {.msg_iov = iov};
        ssize_t n;

        for (struct chunk *c = s->out_first; c && m.msg_iovlen < IOV_BATCH; c = c->next)
            iov[m.msg_iovlen++] = (struct iovec){c->data + c->off, c->len - c->off};
        n = sendmsg(s->fd, &m, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return errno == EAGAIN ? 0 : -errno;
        }
        s->queued -= (size_t)n;
        s->sent += (size_t)n;
        while (n > 0 && s->out_first) {
            struct chunk *c = s->out_first;
            size_t k = MIN((size_t)n, c->len - c->off);

            c->off += k;
            n -= (ssize_t)k;
            if (c->off < c->len)
                break;
            s->out_first = c->next;
            if (!c->next)
                s->out_last = NULL;
            free(c);
        }
    }
    return 0;
}

static void flush(struct sock *s) {
    int r = send_chunks(s);

    if (r < 0) {
        fail_after_reading(s, r);
        return;
    }
    if (s->closing) {
        linger_step(s);
        return;
    }
    if (!s->queued && s->want_shutdown && !s->is_shut) {
        s->is_shut = true;
        (void)shutdown(s->fd, SHUT_WR);
    }
    rearm(s);
    if (s->above_high && s->queued < SOCK_LOW_WATER) {
        s->above_high = false;
        if (s->ops.on_drain)
            s->ops.on_drain(s, s->ud);
    }
    if (!s->queued && !s->closing && s->ops.on_flush)
        s->ops.on_flush(s, s->ud);
}

static int queue_add(struct sock *s, const char *data, size_t len) {
    struct chunk *last = s->out_last;
    size_t fits = last ? MIN(len, last->cap - last->len) : 0;

    if (len > fits) { /* allocated first: a failure changes nothing */
        size_t cap = MAX(len - fits, CHUNK_MIN);
        struct chunk *c = malloc(sizeof *c + cap);
        if (!c)
            return -ENOMEM;
        *c = (struct chunk){.cap = cap, .len = len - fits};
        memcpy(c->data, data + fits, len - fits);
        if (last)
            last->next = c;
        else
            s->out_first = c;
        s->out_last = c;
    }
    if (fits) {
        memcpy(last->data + last->len, data, fits);
        last->len += fits;
    }
    s->queued += len;
    return 0;
}

/* Tries to send directly, without copying. Returns bytes taken or -errno (0 = would block). */
static ssize_t send_direct(struct sock *s, const uv_buf_t *bufs, unsigned n) {
    struct iovec iov[IOV_BATCH];
    struct msghdr m = {.msg_iov = iov};
    ssize_t r;

    for (; m.msg_iovlen < n && m.msg_iovlen < IOV_BATCH; m.msg_iovlen++)
        iov[m.msg_iovlen] = (struct iovec){bufs[m.msg_iovlen].base, bufs[m.msg_iovlen].len};
    do
        r = sendmsg(s->fd, &m, MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EAGAIN ? 0 : -errno;
    s->sent += (size_t)r;
    return r;
}

ssize_t sock_writev(struct sock *s, const uv_buf_t *bufs, unsigned n) {
    size_t total = 0;
    ssize_t taken = 0;

    if (s->error || s->write_error)
        return s->error ? s->error : s->write_error;
    if (s->closing || s->want_shutdown)
        return -EPIPE;
    for (unsigned i = 0; i < n; i++)
        total += bufs[i].len;
    if (total > QUEUE_MAX || s->queued + total > QUEUE_MAX)
        return -ENOBUFS;
    if (!s->queued && total) {
        taken = send_direct(s, bufs, n);
        if (taken < 0) {
            s->write_error =
                (int)taken; /* reading goes on: an answer may be there, and the end will come */
            return taken;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        size_t skip = MIN((size_t)taken, bufs[i].len);
        int r = 0;

        taken -= (ssize_t)skip;
        if (bufs[i].len > skip)
            r = queue_add(s, bufs[i].base + skip, bufs[i].len - skip);
        if (r < 0) { /* part of a message may be out already: nothing sane can follow it */
            s->error = r;
            rearm(s);
            return r;
        }
    }
    if (s->queued > SOCK_HIGH_WATER)
        s->above_high = true;
    rearm(s);
    return (ssize_t)s->queued;
}

ssize_t sock_write(struct sock *s, const void *data, size_t len) {
    uv_buf_t b = {.base = (char *)data, .len = len};
    return sock_writev(s, &b, 1);
}

size_t sock_queued(const struct sock *s) {
    return s->queued;
}

uint64_t sock_sent(const struct sock *s) {
    return s->sent;
}

void sock_shutdown(struct sock *s) {
    if (s->want_shutdown || s->closing)
        return;
    s->want_shutdown = true;
    if (!s->queued && !s->error && !s->write_error) {
        s->is_shut = true;
        (void)shutdown(s->fd, SHUT_WR);
    }
}

/* An error condition has stopped the poll handle. */
static void on_poll_error(struct sock *s) {
    int e = pending_error(s);

    s->events = 0;
    if (e < 0)
        fail_after_reading(s, e);
    else if (!s->closing)
        rearm(s);
    else
        fail(s, -EIO);
}

static void on_poll(uv_poll_t *h, int status, int events) {
    struct sock *s = container_of(h, struct sock, poll);

    if (status < 0) {
        on_poll_error(s);
        return;
    }
    if ((events & UV_READABLE) && s->closing) {
        discard_input(s);
        if (!s->queued || s->error) {
            linger_step(s);
            return;
        }
        rearm(s);
    }
    if ((events & UV_WRITABLE) && s->queued)
        flush(s);
    if ((events & UV_READABLE) && !s->closing && s->want_read && !s->unread)
        for (int i = 0; i < READS_PER_WAKE && read_once(s); i++)
            ;
}

/* ---- facts ---- */

int sock_fd(const struct sock *s) {
    return s->fd;
}

uv_loop_t *sock_loop(const struct sock *s) {
    return s->loop;
}

static int peer_address(const struct sock *s, struct sockaddr_storage *ret) {
    socklen_t len = sizeof *ret;

    *ret = (struct sockaddr_storage){0};
    return getpeername(s->fd, (struct sockaddr *)ret, &len) < 0 ? -errno : 0;
}

/* An IPv4 caller of a dual-stack listener is shown (and judged) as IPv4. */
static bool mapped_ipv4(const struct sockaddr_in6 *a6, struct in_addr *ret) {
    if (!IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr))
        return false;
    memcpy(ret, a6->sin6_addr.s6_addr + 12, 4);
    return true;
}

void sock_peer(const struct sock *s, char *ret_addr, size_t size, int *ret_port) {
    struct sockaddr_storage ss;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)&ss;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&ss;
    struct in_addr v4;
    char text[INET6_ADDRSTRLEN] = "unknown";
    int port = 0;

    if (peer_address(s, &ss) < 0) {
        /* gone already */
    } else if (ss.ss_family == AF_INET) {
        uv_inet_ntop(AF_INET, &a4->sin_addr, text, sizeof text);
        port = ntohs(a4->sin_port);
    } else if (ss.ss_family == AF_INET6) {
        if (mapped_ipv4(a6, &v4))
            uv_inet_ntop(AF_INET, &v4, text, sizeof text);
        else
            uv_inet_ntop(AF_INET6, &a6->sin6_addr, text, sizeof text);
        port = ntohs(a6->sin6_port);
    } else {
        str_copy(text, sizeof text, "unix");
    }
    if (ret_addr && size)
        str_copy(ret_addr, size, text);
    if (ret_port)
        *ret_port = port;
}

long sock_peer_uid(const struct sock *s) {
    struct ucred uc;
    socklen_t len = sizeof uc;
    struct sockaddr_storage ss;

    if (peer_address(s, &ss) < 0 || ss.ss_family != AF_UNIX)
        return -1;
    return getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &uc, &len) < 0 ? -1 : (long)uc.uid;
}
