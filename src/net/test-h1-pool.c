/* Kept connections of the HTTP client: reuse, limits, death while idle, staleness. */
#include "net/test-call.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/test.h"

TEST(connections_are_kept) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
    peer_start(&p, answer_always, OK3);
    struct h1_call_opts o = call_options(p.port, "GET", "/");
    o.pool = pool;
    for (int i = 0; i < 5; i++) {
        call(&loop, &o, &g);
        ASSERT_INT(g.error, 0);
        ASSERT_STR(g.body.data, "abc");
    }
    ASSERT_INT(p.n_conns, 1);
    ASSERT(!strstr(p.head, "Connection:"));
    o.fresh = true;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    turn_for(&loop, 50);
    ASSERT(!g.is_over); /* the server plays one connection at a time: a second one waits behind the
                           first */
    h1_pool_free(pool); /* closes the idle one, which ends its script */
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, 0);
    peer_stop(&p);
    ASSERT_INT(p.n_conns, 2);
    got_reset(&g);
    loop_done(&loop);
}

TEST(what_cannot_be_kept) {
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        OK3 "surplus",
    };
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
        struct peer p;
        peer_start(&p, answer_always, answers[i]);
        struct h1_call_opts o = call_options(p.port, "GET", "/");
        o.pool = pool;
        for (int k = 0; k < 2; k++) {
            call(&loop, &o, &g);
            ASSERT(g.error == 0 && strcmp(g.body.data, "abc") == 0);
        }
        h1_pool_free(pool);
        peer_stop(&p);
        ASSERT_INT(p.n_conns, 2);
    }
    got_reset(&g);
    loop_done(&loop);
}

/* Answers one request and hangs up, without having said so. arg: bytes sent before, as noise. */
static void answer_and_hang_up(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, OK3);
    if (nth == 0) /* the first connection: kept until the test says so */
        peer_await(p, 1);
    if (nth == 0 && p->arg) {
        peer_send(fd, p->arg);
        peer_wait_end(fd);
    } else if (nth == 0) {
        shutdown(fd, SHUT_RDWR);
        peer_raise(p, 2);
    }
}

TEST(dead_idle_connections_are_dropped) {
    for (int noise = 0; noise < 2; noise++) {
        uv_loop_t loop;
        struct peer p;
        struct got g = {0};

        uv_loop_init(&loop);
        struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
        peer_start(&p, answer_and_hang_up, noise ? "HTTP/1.1 408 Request Timeout\r\n\r\n" : NULL);
        struct h1_call_opts o = call_options(p.port, "GET", "/");
        o.pool = pool;
        call(&loop, &o, &g);
        ASSERT_INT(g.error, 0);
        peer_raise(&p, 1);
        if (noise)
            turn_for(&loop, 50); /* the loop sees it */
        else
            peer_await(&p, 2); /* the loop does not turn: only the look at the socket tells */
        call(&loop, &o, &g);
        ASSERT(g.error == 0 && !g.stale && g.status == 200);
        ASSERT_INT(p.n_conns, 2);
        h1_pool_free(pool);
        peer_stop(&p);
        got_reset(&g);
        loop_done(&loop);
    }
}

/* The second request of a connection is read and answered by hanging up. */
static void die_at_second(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, OK3);
    if (peer_read_head(p, fd) && p->arg)
        peer_send(fd, p->arg);
}

TEST(stale_connections_say_so) {
    for (int some = 0; some < 2; some++) {
        uv_loop_t loop;
        struct peer p;
        struct got g = {0};

        uv_loop_init(&loop);
        struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
        peer_start(&p, die_at_second, some ? "HTTP" : NULL);
        struct h1_call_opts o = call_options(p.port, "GET", "/");
        o.pool = pool;
        call(&loop, &o, &g);
        ASSERT(g.error == 0 && !g.stale);
        call(&loop, &o, &g);
        ASSERT_INT(g.error, some ? -EBADMSG : -ECONNRESET);
        ASSERT_INT(g.stale, !some); /* a byte of a response: the request was seen */
        ASSERT_INT(p.n_conns, 1);
        h1_pool_free(pool);
        peer_stop(&p);
        got_reset(&g);
        loop_done(&loop);
    }
}

static void two_at_once(uv_loop_t *loop, const struct h1_call_opts *o) {
    struct got a = {0}, b = {0};

    got_reset(&a);
    got_reset(&b);
    ASSERT_OK(h1_call(loop, o, &call_ops, &a, &a.call));
    ASSERT_OK(h1_call(loop, o, &call_ops, &b, &b.call));
    TURN_UNTIL(loop, a.is_over && b.is_over);
    ASSERT(a.error == 0 && b.error == 0);
    got_reset(&a);
    got_reset(&b);
}

/* One connection per thread would be needed for two at once; this server answers without reading
 * whole heads. */
static void serve_many(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, OK3);
    int keep = dup(fd); /* the connection outlives the script's turn; closed by the test's end */
    ASSERT(keep >= 0);
    pthread_mutex_lock(&p->lock);
    ((int *)p->arg)[nth] = keep;
    pthread_mutex_unlock(&p->lock);
}

/* What the nth connection of serve_many has: > 0 data, 0 = its end, < 0 = neither. */
static ssize_t look_at(struct peer *p, unsigned nth) {
    char c;

    pthread_mutex_lock(&p->lock);
    int fd = ((const int *)p->arg)[nth];
    pthread_mutex_unlock(&p->lock);
    return recv(fd, &c, 1, MSG_DONTWAIT);
}

TEST(pool_limits) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};
    int kept[8] = {0};

    uv_loop_init(&loop);
    struct h1_pool *pool = h1_pool_new(&loop, 1, 80);
    peer_start(&p, serve_many, kept);
    struct h1_call_opts o = call_options(p.port, "GET", "/");
    o.pool = pool;
    o.pool_key = "sandbox-1";
    two_at_once(&loop, &o);
    turn_for(&loop, 10);
    /* idle_max 1: of two only one was kept */
    int open = 0;
    for (int i = 0; i < 2; i++)
        open += look_at(&p, i) < 0;
    ASSERT_INT(open, 1);
    /* idle_ms: it goes by itself */
    turn_for(&loop, 150);
    for (int i = 0; i < 2; i++)
        ASSERT_INT(look_at(&p, i), 0);
    /* max_idle_ms: too old for this request, kept for others */
    call(&loop, &o, &g);
    turn_for(&loop, 30);
    o.max_idle_ms = 10;
    call(&loop, &o, &g);
    ASSERT_INT(p.n_conns, 4);
    /* a pool freed under a call (on a connection of its own: the kept one is too old by then) */
    turn_for(&loop, 30);
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    h1_pool_free(pool);
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, 0);
    got_reset(&g);
    peer_stop(&p);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (kept[i])
            close(kept[i]);
    loop_done(&loop);
}

TEST_MAIN()
