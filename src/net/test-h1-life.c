/* Lives of connections: time limits, slow and vanished clients, back-pressure, draining, listeners,
 * ten thousand idle ones. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/test.h"
#include "net/test-h1.h"

#define H "Host: x\r\n"
#define HELLO "GET /hello HTTP/1.1\r\n" H "\r\n"

static const struct h1_limits quick = {
    .header_timeout_ms = 60, .idle_timeout_ms = 120, .body_timeout_ms = 60, .write_timeout_ms = 60};

static int status_of(const struct h1_fixture *f) {
    int status = 0;

    if (f->out.len)
        sscanf(f->out.data, "HTTP/1.1 %d", &status);
    return status;
}

/* Sends `head`, then one byte of `drip` every few milliseconds until the server ends; how long it
 * bore that. */
static int64_t drip(struct h1_fixture *f, const char *head, char byte, unsigned every_ms) {
    int64_t start = clock_mono_ms();

    h1_fixture_connect(f);
    ASSERT_INT(h1_fixture_send(f, head, strlen(head)), strlen(head));
    while (!f->client_eof && clock_mono_ms() - start < 3000) {
        h1_fixture_wait(f, SIZE_MAX, every_ms);
        h1_fixture_send(f, &byte, 1);
    }
    return clock_mono_ms() - start;
}

TEST(slow_head) {
    struct h1_fixture f;
    int64_t ms;

    h1_fixture_init(&f, &quick);
    ms = drip(&f, "GET /hello HTTP/1.1\r\nX: ", 'a', 10);
    ASSERT_INT(status_of(&f), 408);
    ASSERT(strstr(f.out.data, "header_timeout_ms"));
    ASSERT(ms >= 55 && ms < 1500);
    h1_fixture_done(&f);
}

TEST(slow_second_head) {
    struct h1_fixture f;
    int64_t ms;

    h1_fixture_init(&f, &quick);
    ms = drip(&f, HELLO HELLO "GET /h", 'e', 10);
    ASSERT(strstr(f.out.data, "HTTP/1.1 408 "));
    ASSERT(ms >= 55 && ms < 1500);
    ASSERT_INT(f.completed, 2);
    h1_fixture_done(&f);
}

TEST(silent_body) {
    struct h1_fixture f;

    h1_fixture_init(&f, &quick);
    h1_fixture_connect(&f);
    static const char part[] = "POST /echo HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\nabc";
    h1_fixture_send(&f, part, sizeof part - 1);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1500));
    ASSERT_INT(status_of(&f), 408);
    ASSERT(strstr(f.out.data, "body_timeout_ms"));
    ASSERT_INT(f.completed, 0);
    h1_fixture_done(&f);
}

/* A body that keeps coming is not silent, however long it takes as a whole. */
TEST(slow_body_is_fine) {
    struct h1_fixture f;

    h1_fixture_init(&f, &quick);
    h1_fixture_connect(&f);
    static const char head[] = "POST /echo HTTP/1.1\r\n" H "Content-Length: 12\r\n\r\n";
    h1_fixture_send(&f, head, sizeof head - 1);
    for (int i = 0; i < 12; i++) {
        h1_fixture_wait(&f, f.out.len + 1, 20);
        h1_fixture_send(&f, "z", 1);
    }
    ASSERT(h1_fixture_wait(&f, 1, 1500));
    ASSERT_INT(status_of(&f), 200);
    h1_fixture_done(&f);
}

/* The unread rest of a body may trickle only as long as a head may. */
TEST(slow_drain) {
    struct h1_fixture f;
    int64_t ms;

    h1_fixture_init(&f, &quick);
    ms = drip(&f, "POST /ignore HTTP/1.1\r\n" H "Content-Length: 1000\r\n\r\n", 'a', 10);
    ASSERT_INT(status_of(&f), 200);
    ASSERT(ms >= 55 && ms < 1500);
    ASSERT_INT(f.completed, 1);
    h1_fixture_done(&f);
}

TEST(idle_connection_ends) {
    struct h1_fixture f;

    h1_fixture_init(&f, &quick);
    h1_fixture_connect(&f);
    h1_fixture_send(&f, HELLO, strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, 1, 1000));
    ASSERT(!f.client_eof);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1500));
    ASSERT_INT(h1_server_connections(f.server), 0);
    h1_fixture_done(&f);
}

/* ---- back-pressure: a handler that produces for ever, a client that does not read ---- */

struct producer {
    struct h1_req *r;
    uint64_t written, max_queued;
    unsigned closes;
    bool completed;
};

static void produce(struct h1_req *r, void *ud) {
    struct producer *p = ud;
    static char block[32768];
    ssize_t q;

    do {
        q = h1_write(r, block, sizeof block);
        if (q < 0)
            return;
        p->written += sizeof block;
        p->max_queued = MAX(p->max_queued, (uint64_t)q);
    } while ((size_t)q < SOCK_HIGH_WATER);
}

static void producer_closed(struct h1_req *r, bool completed, void *ud) {
    struct producer *p = ud;

    p->closes++;
    p->completed = completed;
}

static void start_producer(struct h1_req *r, void *ud) {
    static const struct h1_req_ops ops = {.on_drain = produce, .on_close = producer_closed};
    struct producer *p = ud;

    p->r = r;
    h1_req_set_ops(r, &ops, p);
    h1_start(r, 200, NULL, -1);
    produce(r, p);
}

/* A server with its own handler on one end of a socket pair; the other end is returned. */
static int serve_pair(uv_loop_t *loop, const struct h1_server_opts *o, struct h1_server **ret) {
    struct h1_conn *c;
    int fds[2];

    ASSERT_OK(uv_loop_init(loop));
    ASSERT_OK(h1_server_new(loop, o, ret));
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    ASSERT_OK(h1_conn_new(*ret, fds[1], &c));
    return fds[0];
}

static void end_pair(uv_loop_t *loop, struct h1_server *s, int client) {
    fd_close(client);
    h1_server_free(s);
    uv_run(loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(loop), 0);
}

static void turns(uv_loop_t *loop, int n) {
    while (n--)
        uv_run(loop, UV_RUN_NOWAIT);
}

TEST(reader_that_stops_costs_little) {
    struct producer p = {0};
    struct h1_server_opts o = {.on_request = start_producer, .ud = &p};
    struct h1_server *s;
    uv_loop_t loop;
    char sink[65536];
    uint64_t before, got = 0;
    int fd = serve_pair(&loop, &o, &s);

    ASSERT(send(fd, HELLO, strlen(HELLO), 0) > 0);
    turns(&loop, 50);
    before = p.written;
    ASSERT(p.max_queued < SOCK_HIGH_WATER + 65536);
    ASSERT(before < 4u << 20); /* the queue and the kernel's buffers, nothing more */
    turns(&loop, 50);
    ASSERT_INT(p.written, before);
    for (int i = 0; i < 2000; i++) { /* once it reads, it goes on */
        ssize_t n = recv(fd, sink, sizeof sink, 0);
        got += n > 0 ? (uint64_t)n : 0;
        turns(&loop, 1);
    }
    ASSERT(got > 8u << 20);
    ASSERT(p.max_queued < SOCK_HIGH_WATER + 65536);
    end_pair(&loop, s, fd);
    ASSERT_INT(p.closes, 1);
    ASSERT(!p.completed);
}

TEST(reader_that_stops_is_cut) {
    struct producer p = {0};
    struct h1_server_opts o = {.on_request = start_producer, .ud = &p, .limits = quick};
    struct h1_server *s;
    uv_loop_t loop;
    int64_t start = clock_mono_ms();
    int fd = serve_pair(&loop, &o, &s);

    ASSERT(send(fd, HELLO, strlen(HELLO), 0) > 0);
    while (!p.closes && clock_mono_ms() - start < 3000)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_INT(p.closes, 1);
    ASSERT(!p.completed);
    ASSERT_INT(h1_server_connections(s), 0);
    end_pair(&loop, s, fd);
}

static void respond_big(struct h1_req *r, void *ud) {
    static const struct h1_req_ops ops = {.on_close = producer_closed};
    static char block[4 << 20];

    h1_req_set_ops(r, &ops, ud);
    h1_respond(r, 200, NULL, block, sizeof block);
}

/* A response that was only queued is not a completed one. */
TEST(completed_means_handed_over) {
    struct producer p = {0};
    struct h1_server_opts o = {.on_request = respond_big, .ud = &p};
    struct h1_server *s;
    uv_loop_t loop;
    char sink[65536];
    int fd;

    for (int reads = 0; reads <= 1; reads++) {
        p = (struct producer){0};
        fd = serve_pair(&loop, &o, &s);
        ASSERT(send(fd, HELLO, strlen(HELLO), 0) > 0);
        turns(&loop, 5);
        ASSERT_INT(p.closes, 0);
        for (int i = 0; i < 2000 && reads; i++) {
            (void)!recv(fd, sink, sizeof sink, 0);
            turns(&loop, 1);
        }
        ASSERT_INT(p.closes, reads);
        fd = fd_close(fd);
        turns(&loop, 3);
        ASSERT_INT(p.closes, 1);
        ASSERT_INT(p.completed, reads);
        end_pair(&loop, s, fd);
    }
}

/* ---- back-pressure of uploads ---- */

struct consumer {
    struct h1_req *r;
    uint64_t got;
    bool ended, paused;
};

static void consume(struct h1_req *r, const char *data, size_t len, void *ud) {
    struct consumer *c = ud;

    ASSERT(!c->paused); /* nothing at all after a pause */
    c->got += len;
    c->paused = true;
    h1_req_body_pause(r);
}

static void consume_more(struct consumer *c) {
    c->paused = false;
    h1_req_body_resume(c->r);
}

static void consume_end(struct h1_req *r, void *ud) {
    ((struct consumer *)ud)->ended = true;
    h1_respond(r, 200, NULL, NULL, 0);
}

static void start_consumer(struct h1_req *r, void *ud) {
    static const struct h1_req_ops ops = {.on_body = consume, .on_body_end = consume_end};
    struct consumer *c = ud;

    c->r = r;
    h1_req_set_ops(r, &ops, c);
    h1_req_body_start(r, 0);
}

static void upload_paused(const char *head, const char *unit, size_t unit_len, const char *tail) {
    struct consumer c = {0};
    struct h1_server_opts o = {.on_request = start_consumer, .ud = &c};
    struct h1_server *s;
    uv_loop_t loop;
    uint64_t sent = 0, before;
    size_t at = 0;
    int fd = serve_pair(&loop, &o, &s), units = 40000;

    ASSERT(send(fd, head, strlen(head), 0) > 0);
    turns(&loop, 2);
    for (int i = 0; i < 20000 && sent < 4u << 20;
         i++) { /* as much as it takes while the handler is paused */
        ssize_t n = send(fd, unit + at, unit_len - at, MSG_NOSIGNAL);
        if (n < 0)
            break;
        at = (at + (size_t)n) % unit_len;
        units -= at == 0;
        sent += (uint64_t)n;
        turns(&loop, 1);
    }
    ASSERT(sent < 2u << 20);
    before = c.got;
    turns(&loop, 20);
    ASSERT_INT(c.got, before); /* nothing after a pause */
    while (units > 0) {
        ssize_t n = send(fd, unit + at, unit_len - at, MSG_NOSIGNAL);
        if (n > 0) {
            at = (at + (size_t)n) % unit_len;
            units -= at == 0;
        }
        consume_more(&c);
        turns(&loop, 1);
    }
    ASSERT(send(fd, tail, strlen(tail), MSG_NOSIGNAL) == (ssize_t)strlen(tail) || !*tail);
    for (int i = 0; i < 100000 && !c.ended; i++) {
        consume_more(&c);
        turns(&loop, 1);
    }
    ASSERT(c.ended);
    ASSERT_INT(c.got, 40000u * 100u);
    end_pair(&loop, s, fd);
}

TEST(upload_waits_for_the_handler) {
    char unit[100], chunk[107];

    memset(unit, 'u', sizeof unit);
    upload_paused("POST / HTTP/1.1\r\n" H "Content-Length: 4000000\r\n\r\n", unit, sizeof unit, "");
    snprintf(chunk, sizeof chunk, "64\r\n%.100s\r\n",
             unit); /* the last LF is replaced by the terminator */
    chunk[105] = '\n';
    chunk[0] = '6';
    upload_paused("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", chunk, 106,
                  "0\r\n\r\n");
}

/* ---- clients that leave ---- */

TEST(client_leaves_a_stream) {
    struct h1_fixture f;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    h1_fixture_send(&f, "GET /events HTTP/1.1\r\n" H "\r\n",
                    strlen("GET /events HTTP/1.1\r\n" H "\r\n"));
    ASSERT(h1_fixture_wait(&f, 100, 1000));
    ASSERT_INT(f.closes, 0);
    f.client = fd_close(f.client);
    for (int i = 0; i < 10; i++)
        h1_fixture_turn(&f);
    ASSERT_INT(f.closes, 1);
    ASSERT_INT(f.completed, 0);
    ASSERT_INT(h1_server_connections(f.server), 0);
    h1_fixture_done(&f);
}

TEST(client_leaves_inside_the_body) {
    struct h1_fixture f;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    h1_fixture_send(&f, "POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc",
                    strlen("POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nabc"));
    h1_fixture_turn(&f);
    shutdown(f.client, SHUT_WR);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    ASSERT_INT(f.closes, 1);
    ASSERT_INT(f.completed, 0);
    h1_fixture_done(&f);
}

/* Ending one's side after the last request is no reason to get no answer. */
TEST(half_closed_client_is_answered) {
    struct h1_fixture f;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    h1_fixture_send(&f, "GET /late HTTP/1.1\r\n" H "\r\n" HELLO,
                    strlen("GET /late HTTP/1.1\r\n" H "\r\n" HELLO));
    shutdown(f.client, SHUT_WR);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    ASSERT_INT(f.completed, 2);
    strip_dates(&f.out);
    ASSERT(str_ends(f.out.data, "hello"));
    h1_fixture_done(&f);
}

/* ---- draining ---- */

static void count(void *ud) {
    ++*(unsigned *)ud;
}

TEST(drain_lets_requests_end) {
    struct h1_fixture f;
    unsigned drained = 0;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    h1_fixture_send(&f, "GET /late HTTP/1.1\r\n" H "\r\n",
                    strlen("GET /late HTTP/1.1\r\n" H "\r\n"));
    h1_fixture_turn(&f);
    ASSERT_INT(f.requests, 1);
    h1_server_drain(f.server, 2000, count, &drained);
    ASSERT_INT(drained, 0);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    ASSERT_INT(status_of(&f), 200);
    ASSERT(strstr(f.out.data, "Connection: close"));
    h1_fixture_turn(&f);
    ASSERT_INT(drained, 1);
    h1_fixture_done(&f);
}

/* A head that promised to keep the connection went out before the drain began: it ends with the
 * response all the same. */
TEST(drain_ends_a_started_response) {
    struct h1_fixture f;
    unsigned drained = 0;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    static const char head[] = "POST /stream-echo HTTP/1.1\r\n" H "Content-Length: 6\r\n\r\nabc";
    h1_fixture_send(&f, head, sizeof head - 1);
    ASSERT(h1_fixture_wait(&f, 1, 1000));
    h1_server_drain(f.server, 2000, count, &drained);
    h1_fixture_send(&f, "def" HELLO, 3 + strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    ASSERT(str_ends(f.out.data, "0\r\n\r\n"));
    h1_fixture_turn(&f);
    ASSERT_INT(drained, 1);
    ASSERT_INT(f.requests, 1);
    ASSERT_INT(f.completed, 1);
    h1_fixture_done(&f);
}

TEST(drain_cuts_after_its_time) {
    struct h1_fixture f;
    unsigned drained = 0;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    h1_fixture_send(&f, "GET /events HTTP/1.1\r\n" H "\r\n",
                    strlen("GET /events HTTP/1.1\r\n" H "\r\n"));
    h1_fixture_turn(&f);
    h1_server_drain(f.server, 50, count, &drained);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    h1_fixture_turn(&f);
    h1_fixture_turn(&f);
    ASSERT_INT(drained, 1);
    ASSERT_INT(f.completed, 0);
    h1_fixture_done(&f);
}

TEST(drain_of_nobody) {
    struct h1_fixture f;
    unsigned drained = 0;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f); /* idle */
    h1_server_drain(f.server, 1000, count, &drained);
    ASSERT_INT(drained, 0);
    h1_fixture_turn(&f);
    ASSERT_INT(drained, 1);
    ASSERT(f.client_eof);
    h1_fixture_done(&f);
}

/* ---- many idle connections ---- */

static size_t resident_bytes(void) {
    char line[256];
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    ASSERT(f && fgets(line, sizeof line, f) && sscanf(line, "%*u %lu", &pages) == 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IDLE_BYTES_MAX 20000 /* the sanitizer's own books */
#else
#define IDLE_BYTES_MAX 3072
#endif

enum { MANY = 9900 }; /* two descriptors each, in one process */

/* MANY connections that sent `ask` and got an answer; returns the bytes each of them costs. */
static size_t cost_of_many(struct h1_fixture *f, const char *ask, int *clients) {
    struct rlimit lim;
    size_t before;

    if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_max < 2 * MANY + 50)
        test_skip("cannot: the limit of open files is below 20000");
    lim.rlim_cur = lim.rlim_max;
    setrlimit(RLIMIT_NOFILE, &lim);
    test_set_timeout(60);
    h1_fixture_init(f, NULL);
    h1_fixture_connect(f);
    h1_fixture_send(f, ask, strlen(ask));
    ASSERT(h1_fixture_wait(f, 1, 1000)); /* what is allocated once is allocated */
    before = resident_bytes();
    for (int i = 0; i < MANY; i++) {
        clients[i] = f->client;
        f->client = -1;
        h1_fixture_connect(f);
        h1_fixture_send(f, ask, strlen(ask));
        ASSERT(h1_fixture_wait(f, 1, 1000));
    }
    ASSERT_INT(f->requests, MANY + 1);
    ASSERT_INT(h1_server_connections(f->server), MANY + 1);
    return (resident_bytes() - before) / MANY;
}

TEST(ten_thousand_idle_connections) {
    static int clients[MANY];
    struct h1_fixture f;
    size_t cost = cost_of_many(&f, HELLO, clients);

    printf("# %zu bytes per idle connection\n", cost);
    ASSERT(cost <= IDLE_BYTES_MAX);
    ASSERT_INT(f.completed, MANY + 1);
    h1_fixture_send(&f, HELLO, strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, f.out.len + 1, 1000)); /* still served */
    for (int i = 0; i < MANY; i++)
        fd_close(clients[i]);
    h1_fixture_done(&f);
}

TEST(ten_thousand_event_streams) {
    static int clients[MANY];
    struct h1_fixture f;
    size_t cost = cost_of_many(&f, "GET /events HTTP/1.1\r\n" H "\r\n", clients);

    printf("# %zu bytes per event stream\n", cost);
    ASSERT(cost <= IDLE_BYTES_MAX);
    for (int i = 0; i < MANY; i++)
        fd_close(clients[i]);
    for (int i = 0; i < 200 && f.closes < MANY; i++)
        h1_fixture_turn(&f);
    ASSERT_INT(f.closes, MANY); /* each was told that its client left */
    h1_fixture_done(&f);
}

TEST_MAIN()
