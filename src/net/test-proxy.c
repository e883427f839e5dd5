/*
 * Reverse proxy: a proxying server between raw clients and upstreams
 * that are scripted (truncation, silence, upgrades) or our own server (bodies, events).
 */
#include "net/proxy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "base/test.h"
#include "net/test-nomem.h"
#include "net/test-peer.h"

/* ---- the fixture: a server that proxies everything ---- */

struct front {
    uv_loop_t loop;
    struct h1_server *server;
    struct h1_pool *pool;
    uint16_t port;
    struct proxy_opts o;
    unsigned started, closed, failed;
    int fail_error;
    int client;
    bool client_end;
    int client_errno; /* how it ended: 0 = cleanly */
    struct buf got;
};

static void on_proxy_close(void *ud) {
    ((struct front *)ud)->closed++;
}

static void on_front_request(struct h1_req *r, void *ud) {
    struct front *f = ud;
    char target[2048]; /* a copy that dies: proxy_run keeps its own */

    f->started++;
    snprintf(target, sizeof target, "%s", h1_req_target(r));
    f->o.target = target;
    proxy_run(r, &f->o);
    memset(target, 'x', sizeof target);
}

static void front_start(struct front *f, uint16_t upstream, bool pooled) {
    const struct h1_server_opts so = {.on_request = on_front_request, .ud = f};

    *f = (struct front){.client = -1, .got = BUF_INIT(256 << 20)};
    uv_loop_init(&f->loop);
    f->pool = pooled ? h1_pool_new(&f->loop, 4, 10000) : NULL;
    f->o = (struct proxy_opts){.addr = {.host = "127.0.0.1", .port = upstream},
                               .pool = f->pool,
                               .on_close = on_proxy_close,
                               .ud = f};
    ASSERT_OK(h1_server_new(&f->loop, &so, &f->server));
    ASSERT_OK(h1_server_listen_tcp(f->server, "127.0.0.1", 0, 64, &f->port, NULL));
}

static void front_client(struct front *f) {
    if (f->client >= 0)
        close(f->client);
    f->client = raw_connect(f->port);
    f->client_end = false;
    f->client_errno = 0;
    buf_clear(&f->got);
    buf_str(&f->got, "");
}

static void take_input(struct front *f) {
    static char in[1 << 18];
    ssize_t n;

    while (!f->client_end && (n = recv(f->client, in, sizeof in, MSG_DONTWAIT)) != -1) {
        f->client_end = n == 0;
        buf_append(&f->got, in, (size_t)n);
    }
    if (!f->client_end && errno != EAGAIN) {
        f->client_end = true;
        f->client_errno = errno;
    }
}

/* Until the client got text. */
static void front_expect(struct front *f, const char *text) {
    for (int i = 0; i < 1000; i++) {
        take_input(f);
        if (strstr(f->got.data, text))
            return;
        if (f->client_end)
            break;
        turn(&f->loop, 10);
    }
    test_fail(__FILE__, __LINE__, "expected \"%s\", got \"%.500s\"%s", text, f->got.data,
              f->client_end ? " and the end" : "");
}

static void front_expect_end(struct front *f) {
    for (int i = 0; i < 1000 && !f->client_end; i++) {
        take_input(f);
        turn(&f->loop, 10);
    }
    ASSERT(f->client_end);
}

static void front_stop(struct front *f) {
    if (f->client >= 0)
        close(f->client);
    h1_server_free(f->server);
    h1_pool_free(f->pool);
    TURN_UNTIL(&f->loop, f->closed == f->started);
    buf_done(&f->got);
    loop_done(&f->loop);
}

#define GET(target) "GET " target " HTTP/1.1\r\nHost: front\r\n\r\n"

static void answer(struct peer *p, int fd, unsigned nth) {
    while (peer_read_head(p, fd))
        peer_send(fd, p->arg);
}

static void answer_and_end(struct peer *p, int fd, unsigned nth) {
    if (peer_read_head(p, fd))
        peer_send(fd, p->arg);
    shutdown(fd, SHUT_WR);
    peer_wait_end(fd);
}

TEST(plain_exchange) {
    struct front f;
    struct peer p;
    char want[512], head[512];

    peer_start(&p, answer,
               "HTTP/1.1 203 Whatever\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: "
               "up\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"
               "Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello");
    front_start(&f, p.port, true);
    front_client(&f);
    for (int i = 0; i < 3; i++) {
        buf_clear(&f.got);
        peer_send(f.client, GET("/a%2Fb/%C3%A9?x=1&&y=%20+&z"));
        front_expect(&f, "hello");
        ASSERT_STR(f.got.data, "HTTP/1.1 203 Unknown\r\ndate: Thu, 01 Jan 1970 00:00:00 "
                               "GMT\r\nserver: up\r\nset-cookie: a\r\n"
                               "set-cookie: b\r\nContent-Length: 5\r\n\r\nhello");
        snprintf(want, sizeof want,
                 "GET /a%%2Fb/%%C3%%A9?x=1&&y=%%20+&z HTTP/1.1\r\nHost: front\r\nX-Forwarded-For: "
                 "127.0.0.1\r\n"
                 "X-Forwarded-Proto: http\r\nX-Forwarded-Host: front\r\n\r\n");
        peer_copy_head(&p, head, sizeof head);
        ASSERT_STR(head, want);
    }
    ASSERT(f.closed >= 2 && p.n_conns == 1); /* the upstream's connection is kept */
    front_stop(&f);
    peer_stop(&p);
}

TEST(bodiless_answers) {
    static const struct {
        const char *request, *upstream, *want;
    } t[] = {
        {"HEAD / HTTP/1.1\r\nHost: f\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
         "Content-Length: 77\r\n"},
        {GET("/"), "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 "},
        {GET("/"), "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 9\r\n\r\n",
         "etag: x\r\n"},
        {GET("/"), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "Content-Length: 0\r\n"},
        {GET("/"), "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 404 Nope\r\nContent-Length: 0\r\n\r\n",
         "HTTP/1.1 404 "},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct front f;
        struct peer p;
        peer_start(&p, answer, t[i].upstream);
        front_start(&f, p.port, true);
        front_client(&f);
        peer_send(f.client, t[i].request);
        front_expect(&f, "\r\n\r\n");
        ASSERT(strstr(f.got.data, t[i].want));
        ASSERT(str_ends(f.got.data, "\r\n\r\n"));
        buf_clear(&f.got); /* the connection is still in step */
        peer_send(f.client, t[i].request);
        front_expect(&f, "\r\n\r\n");
        front_stop(&f);
        peer_stop(&p);
    }
}

static void on_fail(struct h1_req *r, int error, const struct err *err, void *ud) {
    struct front *f = ud;
    f->failed++;
    f->fail_error = error;
    ASSERT(err->msg[0]);
    h1_respond(r, 418, NULL, "mine", 4);
}

TEST(failures_before_the_head) {
    static const struct {
        const char *upstream; /* NULL = nobody listens; "" = hangs up; "-" = stays silent */
        int error, status;
    } t[] = {
        {NULL, -ECONNREFUSED, 502},
        {"", -ECONNRESET, 502},
        {"nonsense\r\n\r\n", -EBADMSG, 502},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", -EBADMSG, 502},
        {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", -EBADMSG,
         502},
        {"HTTP/1.1 100 Continue\r\n\r\n-", -ETIMEDOUT, 504},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        for (int own = 0; own < 2; own++) {
            struct front f;
            struct peer p;
            char want[32];
            bool silent = t[i].upstream && str_ends(t[i].upstream, "-");

            peer_start(&p, silent ? answer : answer_and_end,
                       silent          ? "HTTP/1.1 100 Continue\r\n\r\n"
                       : t[i].upstream ? t[i].upstream
                                       : "");
            front_start(&f, t[i].upstream ? p.port : 1, false);
            f.o.silence_timeout_ms = 50;
            f.o.on_fail = own ? on_fail : NULL;
            front_client(&f);
            peer_send(f.client, GET("/"));
            snprintf(want, sizeof want, "HTTP/1.1 %d ", own ? 418 : t[i].status);
            front_expect(&f, want);
            if (own && (f.fail_error != t[i].error || f.failed != 1))
                test_fail(__FILE__, __LINE__, "case %zu: error %d, expected %d", i, f.fail_error,
                          t[i].error);
            front_stop(&f);
            peer_stop(&p);
        }
}

TEST(truncation_is_passed_on) {
    static const struct {
        const char *upstream, *tail;
        bool cut;
    } t[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "abc", true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "3\r\nabc\r\n", true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", "3\r\nabc\r\n",
         true},
        {"HTTP/1.1 200 OK\r\n\r\nabc", "3\r\nabc\r\n0\r\n\r\n", false}, /* ends by closing: whole */
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct front f;
        struct peer p;
        peer_start(&p, answer_and_end, t[i].upstream);
        front_start(&f, p.port, true);
        f.o.on_fail = on_fail;
        front_client(&f);
        peer_send(f.client, GET("/"));
        if (t[i].cut)
            front_expect_end(&f);
        else
            front_expect(&f, t[i].tail);
        ASSERT(str_ends(f.got.data, t[i].tail));
        ASSERT(f.failed == 0); /* the head was out */
        front_stop(&f);
        peer_stop(&p);
    }
}

/* HTTP/1.0 knows the end of an unknown length by the connection's: a cut one must not look like it.
 */
TEST(old_clients_see_truncation_too) {
    static const struct {
        const char *upstream;
        int end;
    } t[] = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", ECONNRESET},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct front f;
        struct peer p;
        peer_start(&p, answer_and_end, t[i].upstream);
        front_start(&f, p.port, true);
        front_client(&f);
        peer_send(f.client, "GET / HTTP/1.0\r\nHost: f\r\n\r\n");
        front_expect_end(&f);
        ASSERT_INT(f.client_errno, t[i].end);
        ASSERT(t[i].end || str_ends(f.got.data, "\r\n\r\nabc"));
        front_stop(&f);
        peer_stop(&p);
    }
}

/* Sends one event, waits for the test to have seen it, and so on. */
static void events(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(
        fd,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (unsigned i = 1; i <= 3; i++) {
        char event[64];
        peer_await(p, i);
        int n = snprintf(event, sizeof event, "data: %u\n\n", i);
        char chunk[96];
        snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", (unsigned)n, event);
        peer_send(fd, chunk);
    }
    peer_send(fd, "0\r\n\r\n");
    peer_wait_end(fd);
}

TEST(events_come_as_they_are_sent) {
    struct front f;
    struct peer p;

    peer_start(&p, events, NULL);
    front_start(&f, p.port, false);
    front_client(&f);
    peer_send(f.client, GET("/events"));
    front_expect(&f, "\r\n\r\n"); /* the head alone, before any event */
    for (unsigned i = 1; i <= 3; i++) {
        char want[16];
        peer_raise(&p, i);
        snprintf(want, sizeof want, "data: %u\n\n", i);
        front_expect(&f, want);
    }
    front_expect(&f, "0\r\n\r\n");
    front_stop(&f);
    peer_stop(&p);
}

/* ---- clients that go away ---- */

static void hold(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    if (p->arg)
        peer_send(fd, p->arg);
    p->flag = 1;
    p->flag = peer_wait_end(fd) ? 2 : 3;
}

TEST(client_disconnect_cancels_upstream) {
    static const struct {
        const char *request, *upstream;
    } t[] = {
        {GET("/"), NULL},
        {GET("/"), "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"},
        {GET("/"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {"POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 100\r\n\r\npart", NULL},
        {"POST / HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct front f;
        struct peer p;
        peer_start(&p, hold, t[i].upstream);
        front_start(&f, p.port, true);
        front_client(&f);
        peer_send(f.client, t[i].request);
        TURN_UNTIL(&f.loop, p.flag == 1);
        turn_for(&f.loop, 20);
        ASSERT(f.closed == 0 && p.flag == 1);
        close(f.client);
        f.client = -1;
        TURN_UNTIL(&f.loop, f.closed == 1);
        TURN_UNTIL(&f.loop, p.flag == 2);
        front_stop(&f);
        peer_stop(&p);
    }
}

/* ---- big bodies ---- */

#define BIG ((size_t)64 << 20)
#define STALLED ((size_t)40 << 20) /* all kernel buffers on the way and ours hold less */

static void swallow(struct peer *p, int fd, unsigned nth) {
    static char data[1 << 18];
    size_t total = 0;
    unsigned sum = 0;
    ssize_t n;
    char text[128], count[64];

    peer_read_head(p, fd);
    peer_await(p, 1);
    while (total < BIG && (n = recv(fd, data, MIN(sizeof data, BIG - total), 0)) > 0) {
        for (ssize_t i = 0; i < n; i += 4096 - (ssize_t)((total + (size_t)i) % 4096))
            sum = sum * 31 + (unsigned char)data[i];
        total += (size_t)n;
    }
    int k = snprintf(count, sizeof count, "got %zu", total);
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", k, count);
    peer_send(fd, text);
    peer_wait_end(fd);
}

static size_t push_until_stalled(struct front *f, size_t sent) {
    static char block[1 << 18];
    unsigned idle = 0;

    while (sent < BIG && idle < 40) {
        ssize_t n =
            send(f->client, block, MIN(sizeof block, BIG - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        idle = n > 0 ? 0 : idle + 1;
        turn(&f->loop, 5);
    }
    return sent;
}

TEST(big_upload_is_held_back) {
    struct front f;
    struct peer p;

    peer_start(&p, swallow, NULL);
    front_start(&f, p.port, false);
    front_client(&f);
    peer_send(f.client, "PUT /f HTTP/1.1\r\nHost: f\r\nContent-Length: 67108864\r\n\r\n");
    size_t sent = push_until_stalled(&f, 0);
    ASSERT(sent < STALLED);
    peer_raise(&p, 1);
    while (sent < BIG)
        sent = push_until_stalled(&f, sent);
    front_expect(&f, "got 67108864");
    ASSERT(strstr(p.head, "Content-Length: 67108864\r\n"));
    front_stop(&f);
    peer_stop(&p);
}

static void pour(struct peer *p, int fd, unsigned nth) {
    static char block[1 << 18];

    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n");
    for (size_t sent = 0; sent < BIG; sent += sizeof block) {
        peer_send_bytes(fd, block, sizeof block);
        p->flag++;
    }
    peer_wait_end(fd);
}

TEST(big_download_is_held_back) {
    struct front f;
    struct peer p;
    static char in[1 << 18];
    size_t total = 0;
    unsigned before, same = 0;

    peer_start(&p, pour, NULL);
    front_start(&f, p.port, false);
    front_client(&f);
    peer_send(f.client, GET("/"));
    TURN_UNTIL(&f.loop, p.flag > 0);
    for (before = p.flag; same < 20; same = p.flag == before ? same + 1 : 0, before = p.flag)
        turn_for(&f.loop, 10);
    ASSERT(p.flag * sizeof in < STALLED);
    for (uint64_t until = uv_hrtime() + 10000000000u; total < BIG && uv_hrtime() < until;
         turn(&f.loop, 1))
        for (ssize_t n; (n = recv(f.client, in, sizeof in, MSG_DONTWAIT)) > 0;)
            total += (size_t)n;
    ASSERT(total > BIG && total < BIG + 1000); /* with the head */
    front_stop(&f);
    peer_stop(&p);
}

static void read_chunks(struct peer *p, int fd, unsigned nth) {
    char body[256];
    size_t n = 0;

    peer_read_head(p, fd);
    while (n < sizeof body - 1 && recv(fd, body + n, 1, 0) == 1) {
        body[++n] = 0;
        if (str_ends(body, "0\r\n\r\n"))
            break;
    }
    char text[512];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", n, body);
    peer_send(fd, text);
    peer_wait_end(fd);
}

TEST(chunked_upload_and_continue) {
    struct front f;
    struct peer p;

    peer_start(&p, read_chunks, NULL);
    front_start(&f, p.port, false);
    front_client(&f);
    peer_send(
        f.client,
        "POST / HTTP/1.1\r\nHost: f\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    front_expect(&f, "HTTP/1.1 100 Continue\r\n\r\n");
    peer_send(f.client, "3\r\nabc\r\n");
    turn_for(&f.loop, 20);
    peer_send(f.client, "2;ext=1\r\nde\r\n0\r\nTrailer: dropped\r\n\r\n");
    front_expect(&f, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    ASSERT(strstr(p.head, "Transfer-Encoding: chunked\r\n") && !strstr(p.head, "Expect"));
    front_stop(&f);
    peer_stop(&p);
}

static void refuse_early(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    shutdown(fd, SHUT_WR);
    peer_reset(fd);
}

TEST(early_refusal_of_an_upload) {
    struct front f;
    struct peer p;

    peer_start(&p, refuse_early, NULL);
    front_start(&f, p.port, true);
    front_client(&f);
    peer_send(f.client, "PUT /f HTTP/1.1\r\nHost: f\r\nContent-Length: 67108864\r\n\r\nxxxxxx");
    front_expect(&f, "HTTP/1.1 403 ");
    front_expect(&f, "\r\n\r\nno");
    front_stop(&f);
    peer_stop(&p);
}

/* ---- stale connections ---- */

static void die_at_second(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    if (nth == 0 && peer_read_head(p, fd))
        p->flag++;
}

TEST(stale_connection_is_retried_once) {
    static const struct {
        const char *second;
        bool retried;
    } t[] = {
        {GET("/"), true},
        {"DELETE / HTTP/1.1\r\nHost: f\r\n\r\n", true},
        {"POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 0\r\n\r\n", false},
        {"PUT / HTTP/1.1\r\nHost: f\r\nContent-Length: 1\r\n\r\nx", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct front f;
        struct peer p;
        peer_start(&p, die_at_second, NULL);
        front_start(&f, p.port, true);
        front_client(&f);
        peer_send(f.client, GET("/"));
        front_expect(&f, "\r\n\r\nok");
        buf_clear(&f.got);
        peer_send(f.client, t[i].second);
        front_expect(&f, t[i].retried ? "\r\n\r\nok" : "HTTP/1.1 502 ");
        ASSERT(p.flag == 1 && p.n_conns == (t[i].retried ? 2u : 1u));
        front_stop(&f);
        peer_stop(&p);
    }
}

/* ---- upgrades ---- */

#define UPGRADE                                                             \
    "GET /ws?x HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: " \
    "websocket\r\nSec-WebSocket-Key: k\r\n\r\n"

/* Speaks raw bytes after the 101: echoes in upper case until its peer ends, then says bye. */
static void shout(struct peer *p, int fd, unsigned nth) {
    char c;

    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
                  "websocket\r\nX-Up: 1\r\n\r\nEARLY");
    while (recv(fd, &c, 1, 0) == 1) {
        c = (char)(c >= 'a' && c <= 'z' ? c - 32 : c);
        peer_send_bytes(fd, &c, 1);
    }
    peer_send(fd, "bye");
    p->flag = 1;
}

TEST(upgrade_is_spliced) {
    struct front f;
    struct peer p;

    peer_start(&p, shout, NULL);
    front_start(&f, p.port, true);
    front_client(&f);
    peer_send(f.client, UPGRADE "first"); /* bytes on the heels of the handshake */
    front_expect(&f, "EARLY");
    front_expect(&f, "FIRST");
    ASSERT(str_starts(f.got.data, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nx-up: "
                                  "1\r\nconnection: Upgrade\r\n\r\n"));
    ASSERT(strstr(p.head, "Connection: Upgrade\r\nUpgrade: websocket\r\n") &&
           strstr(p.head, "Sec-WebSocket-Key: k\r\n"));
    peer_send(f.client, "second");
    front_expect(&f, "SECOND");
    ASSERT(f.closed == 0);
    shutdown(f.client, SHUT_WR); /* half-close: the other direction goes on */
    front_expect(&f, "bye");
    front_expect_end(&f);
    TURN_UNTIL(&f.loop, f.closed == 1);
    front_stop(&f);
    peer_stop(&p);
    ASSERT(p.flag);
}

TEST(the_owner_cuts_upgraded_connections) {
    struct splice_set set;
    struct front f;
    struct peer p;

    splice_set_init(&set, 1);
    peer_start(&p, shout, NULL);
    front_start(&f, p.port, true);
    f.o.upgrades = &set;
    front_client(&f);
    peer_send(f.client, UPGRADE "first");
    front_expect(&f, "FIRST");
    ASSERT_INT(set.n, 1);
    ASSERT(splice_set_is_full(&set) && f.closed == 0);
    splice_set_close(&set);
    ASSERT(set.n == 0 && f.closed == 1);
    front_expect_end(&f);
    front_stop(&f);
    peer_stop(&p);
}

TEST(no_more_upgraded_connections_than_allowed) {
    struct splice_set set;
    struct front f;
    struct peer p;

    splice_set_init(&set, 1);
    set.n = 1; /* as if there were one */
    peer_start(&p, shout, NULL);
    front_start(&f, p.port, true);
    f.o.upgrades = &set;
    front_client(&f);
    peer_send(f.client, UPGRADE);
    front_expect(&f, "HTTP/1.1 502 ");
    front_expect(&f, "there are 1 upgraded connections already");
    ASSERT_INT(set.n, 1);
    front_stop(&f);
    peer_stop(&p);
}

TEST(upgrade_may_be_refused) {
    struct front f;
    struct peer p;

    peer_start(&p, answer, "HTTP/1.1 401 No\r\nContent-Length: 3\r\n\r\nnot");
    front_start(&f, p.port, true);
    front_client(&f);
    peer_send(f.client, UPGRADE);
    front_expect(&f, "HTTP/1.1 401 ");
    front_expect(&f, "\r\n\r\nnot");
    peer_send(f.client, GET("/again"));
    front_expect(&f, "\r\n\r\nnotHTTP/1.1 401 ");
    front_stop(&f);
    peer_stop(&p);
}

TEST(either_side_ends_the_splice) {
    for (int client_ends = 0; client_ends < 2; client_ends++) {
        struct front f;
        struct peer p;
        peer_start(&p, client_ends ? shout : answer_and_end,
                   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
                   "websocket\r\n\r\nEARLY");
        front_start(&f, p.port, false);
        front_client(&f);
        peer_send(f.client, UPGRADE);
        front_expect(&f, "EARLY");
        if (!client_ends)
            front_expect_end(&f);
        close(f.client);
        f.client = -1;
        TURN_UNTIL(&f.loop, f.closed == 1);
        front_stop(&f);
        peer_stop(&p);
    }
}

static void pour_raw(struct peer *p, int fd, unsigned nth) {
    static char block[1 << 18];

    peer_read_head(p, fd);
    peer_send(
        fd,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    for (size_t sent = 0; sent < BIG; sent += sizeof block) {
        peer_send_bytes(fd, block, sizeof block);
        p->flag++;
    }
}

TEST(splice_is_held_back) {
    struct front f;
    struct peer p;
    static char in[1 << 18];
    size_t total = 0;
    unsigned before, same = 0;
    ssize_t n = 1;

    peer_start(&p, pour_raw, NULL);
    front_start(&f, p.port, false);
    front_client(&f);
    peer_send(f.client, UPGRADE);
    TURN_UNTIL(&f.loop, p.flag > 0);
    for (before = p.flag; same < 20; same = p.flag == before ? same + 1 : 0, before = p.flag)
        turn_for(&f.loop, 10);
    ASSERT(p.flag * sizeof in < STALLED);
    for (uint64_t until = uv_hrtime() + 10000000000u; n != 0 && uv_hrtime() < until;
         turn(&f.loop, 1)) {
        while ((n = recv(f.client, in, sizeof in, MSG_DONTWAIT)) > 0)
            total += (size_t)n;
        if (total > BIG)
            shutdown(f.client, SHUT_WR);
    }
    ASSERT(total > BIG && total < BIG + 1000);
    front_stop(&f);
    peer_stop(&p);
}

TEST(many_at_once_leave_nothing) {
    struct front f;
    struct peer p;
    int fds[40];

    peer_start(&p, answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    front_start(&f, p.port, true);
    f.o.connect_timeout_ms = 300; /* the peer serves one at a time: some are cut while they wait */
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = raw_connect(f.port);
        peer_send(fds[i], GET("/"));
        turn(&f.loop, 1);
    }
    turn_for(&f.loop, 50);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    TURN_UNTIL(&f.loop, f.closed == f.started);
    TURN_UNTIL(&f.loop, h1_server_connections(f.server) == 0);
    ASSERT_INT(f.closed, f.started);
    front_stop(&f);
    peer_stop(&p);
}

/* One exchange in which the nth allocation fails. Returns whether one did. */
static bool starved_exchange(const char *request, peer_script script, const void *arg,
                             const char *want, long n) {
    struct front f;
    struct peer p;

    peer_start(&p, script, arg);
    front_start(&f, p.port, true);
    front_client(&f);
    ASSERT_OK(buf_reserve(&f.got, 1 << 16)); /* ours do not count */
    nomem_arm(n);
    peer_send(f.client, request);
    for (int i = 0;
         i < 300 && !f.client_end && !strstr(f.got.data, want) && !strstr(f.got.data, " 50"); i++) {
        turn(&f.loop, 10);
        take_input(&f);
    }
    bool hit = nomem_disarm(), whole = strstr(f.got.data, want);
    if (!whole && !f.client_end && !strstr(f.got.data, " 50"))
        test_fail(__FILE__, __LINE__, "allocation %ld: the client was left waiting with \"%.200s\"",
                  n, f.got.data);
    ASSERT(hit || whole);
    front_stop(&f); /* every exchange is closed, nothing is left */
    peer_stop(&p);
    return hit;
}

TEST(allocation_failures) {
    static const struct {
        const char *request;
        peer_script script;
        const char *arg, *want;
    } t[] = {
        {GET("/"), answer, "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nContent-Length: 2\r\n\r\nok",
         "\r\n\r\nok"},
        {"POST / HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
         read_chunks, NULL, "0\r\n\r\n"},
        {UPGRADE "first", shout, NULL, "FIRST"},
        {GET("/"), answer, "garbage\r\n\r\n", " 502 "},
    };
    test_set_timeout(120);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        for (long n = 0; starved_exchange(t[i].request, t[i].script, t[i].arg, t[i].want, n); n++)
            ASSERT(n < 500);
}

TEST_MAIN()
