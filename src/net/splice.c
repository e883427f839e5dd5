/*
 * Raw splice of two streams (see splice.h).
 *
 * Owns both socks. Invariant: a side is read only while the other's queue is not above the mark, so
 * at most one read beyond SOCK_HIGH_WATER waits per direction. A peer that vanished without a word,
 * or closed both ways while the other side is silent, is found by TCP keepalive. Loop thread only.
 */
#include "net/splice.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "net/ws_relay.h"

#define LINGER_MS 2000 /* after one side broke */
#define LINGER_CLEAN_MS                                                      \
    30000 /* both ended: what is queued belongs to a reader that may be slow \
           */

struct side {
    struct sock *sock;
    struct side *other;
    struct splice *owner;
    bool has_ended;        /* its peer sends no more */
    struct ws_relay relay; /* of what comes from here; unused unless the splice is one of WebSockets
                            */
};

struct splice {
    struct side a, b;
    struct list link;
    bool is_ws;
    struct splice_set *set; /* NULL: nobody's */
    void (*done)(void *ud);
    void *ud;
};

static void set_keepalive(const struct sock *s) {
    int on = 1, idle_s = 60, interval_s = 15, count = 4, fd = sock_fd(s);

    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s,
                     sizeof idle_s); /* fails on Unix sockets */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void finish(struct splice *p, unsigned linger_ms) {
    void (*done)(void *) = p->done;
    void *ud = p->ud;

    if (p->set) {
        list_remove(&p->link);
        p->set->n--;
    }
    sock_close(p->a.sock, linger_ms);
    sock_close(p->b.sock, linger_ms);
    free(p);
    if (done)
        done(ud);
}

static ssize_t forward(void *ud, const char *data, size_t len) {
    struct side *to = ud;
    return sock_write(to->sock, data, len);
}

/* A WebSocket that ends without a word: its peer is told in its place. */
static void say_goodbye(struct side *from) {
    char frame[WS_MAX_HEADER + 2];
    size_t n = ws_relay_end(&from->relay, &from->other->relay, frame);

    if (n)
        (void)sock_write(from->other->sock, frame, n);
}

static void on_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct side *from = ud, *to = from->other;

    if (len > 0) {
        ssize_t queued = from->owner->is_ws
                             ? ws_relay_feed(&from->relay, data, (size_t)len, forward, to)
                             : sock_write(to->sock, data, (size_t)len);
        if (queued < 0)
            finish(from->owner, LINGER_MS);
        else if ((size_t)queued > SOCK_HIGH_WATER)
            sock_read_stop(s);
        return;
    }
    from->has_ended = true;
    if (from->owner->is_ws)
        say_goodbye(from);
    sock_shutdown(to->sock);
    if (len < 0 || to->has_ended)
        finish(from->owner, len < 0 ? LINGER_MS : LINGER_CLEAN_MS);
}

/* The queue of this side is low again: its source may go on. */
static void on_drain(struct sock *s, void *ud) {
    struct side *to = ud;

    if (!to->other->has_ended)
        sock_read_start(to->other->sock);
}

void splice_set_init(struct splice_set *s, size_t max) {
    *s = (struct splice_set){.max = max};
    list_init(&s->all);
}

void splice_set_close(struct splice_set *s) {
    while (!list_is_empty(&s->all))
        finish(list_entry(s->all.next, struct splice, link), 0);
}

static int run(struct sock *a, struct sock *b, bool is_ws, struct splice_set *set,
               void (*done)(void *ud), void *ud) {
    static const struct sock_ops ops = {.on_read = on_read, .on_drain = on_drain};
    struct splice *p = calloc(1, sizeof *p);

    if (!p) {
        sock_close(a, 0);
        sock_close(b, 0);
        return -ENOMEM;
    }
    *p = (struct splice){.a = {.sock = a, .other = &p->b, .owner = p},
                         .b = {.sock = b, .other = &p->a, .owner = p},
                         .is_ws = is_ws,
                         .set = set,
                         .done = done,
                         .ud = ud};
    ws_relay_init(&p->a.relay, false);
    ws_relay_init(&p->b.relay, true);
    list_init(&p->link);
    if (set) {
        list_append(&set->all, &p->link);
        set->n++;
    }
    set_keepalive(a);
    set_keepalive(b);
    sock_set_ops(a, &ops, &p->a);
    sock_set_ops(b, &ops, &p->b);
    sock_read_start(a);
    sock_read_start(b);
    return 0;
}

int splice_run(struct sock *a, struct sock *b, struct splice_set *set, void (*done)(void *ud),
               void *ud) {
    return run(a, b, false, set, done, ud);
}

int splice_run_ws(struct sock *client, struct sock *upstream, struct splice_set *set,
                  void (*done)(void *ud), void *ud) {
    return run(client, upstream, true, set, done, ud);
}
