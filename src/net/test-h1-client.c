/* HTTP client: calls against scripted servers. */
#include "net/test-call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/test.h"

TEST(simple_get) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};
    struct h1_header headers[] = {{"X-A", "1"}, {"X-A", "2"}, {0}};

    uv_loop_init(&loop);
    peer_start(&p, answer_once, OK3);
    struct h1_call_opts o = call_options(p.port, "GET", "/a%2Fb?c=d+e");
    o.headers = headers;
    call(&loop, &o, &g);
    ASSERT_INT(g.error, 0);
    ASSERT(g.status == 200 && g.length == 3 && g.heads == 1 && g.ends == 1);
    ASSERT_STR(g.body.data, "abc");
    ASSERT_STR(g.headers.data, "Content-Length=3|");
    char want[256];
    snprintf(want, sizeof want,
             "GET /a%%2Fb?c=d+e HTTP/1.1\r\nX-A: 1\r\nX-A: 2\r\nHost: 127.0.0.1:%u\r\nConnection: "
             "close\r\n\r\n",
             p.port);
    ASSERT_STR(p.head, want);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST(bad_requests_are_refused) {
    uv_loop_t loop;
    struct h1_call *c;
    struct got g = {0};
    static const struct h1_header bad[][2] = {{{"A", "x\r\nB: y"}},
                                              {{"A\r\n", "x"}},
                                              {{"", "x"}},
                                              {{"A b", "x"}},
                                              {{"Content-Length", "3"}},
                                              {{"transfer-encoding", "chunked"}},
                                              {{"Connection", "close"}},
                                              {{"A", NULL}}};
    static const char *const targets[] = {"", "/a b", "/\r\nX: y", "/\x7f", "/a\tb", NULL};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct h1_call_opts o = call_options(1, "GET", "/");
        o.headers = bad[i];
        ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        struct h1_call_opts o = call_options(1, "GET", targets[i]);
        ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    }
    struct h1_call_opts o = call_options(1, "GET /", "/");
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    o = call_options(1, "CONNECT", "/");
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    o = call_options(1, "GET", "/");
    o.addr.host = NULL;
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    o = call_options(1, NULL, "/");
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    loop_done(&loop);
}

TEST(failures) {
    static const struct {
        peer_script script;
        const char *answer;
        int error, status;
    } t[] = {
        {answer_once, "", -ECONNRESET, 0},
        {answer_then_reset, "", -ECONNRESET, 0},
        {answer_once, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", -EBADMSG, 200},
        {answer_once, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", -EBADMSG,
         200},
        {answer_once,
         "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         -EBADMSG, 0},
        {answer_once, "garbage\r\n\r\n", -EBADMSG, 0},
        {answer_once, "HTTP/1.1 200 OK\r\nContent", -EBADMSG, 0},
        {answer_once, "HTTP/1.1 200 OK\r\n\r\nuntil the end", 0, 200},
        {answer_once,
         "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", -EBADMSG,
         0},
    };
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct peer p;
        peer_start(&p, t[i].script, t[i].answer);
        struct h1_call_opts o = call_options(p.port, "GET", "/");
        call(&loop, &o, &g);
        if (g.error != t[i].error || g.status != t[i].status || g.stale)
            test_fail(__FILE__, __LINE__, "case %zu: %d (%s), status %d", i, g.error, g.text,
                      g.status);
        peer_stop(&p);
    }
    struct h1_call_opts o = call_options(1, "GET", "/"); /* nobody listens there */
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -ECONNREFUSED);
    ASSERT(strstr(g.text, "could not connect"));
    o = (struct h1_call_opts){
        .addr.unix_path = "/nowhere/cove-net2.sock", .method = "GET", .target = "/"};
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -ENOENT);
    got_reset(&g);
    loop_done(&loop);
}

static void stay_silent(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    if (p->arg)
        peer_send(fd, p->arg);
    peer_wait_end(fd);
    p->flag = 1;
}

TEST(silence_times_out) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    peer_start(&p, stay_silent, "HTTP/1.1 100 Continue\r\n\r\n");
    struct h1_call_opts o = call_options(p.port, "GET", "/");
    o.silence_timeout_ms = 60;
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -ETIMEDOUT);
    ASSERT(strstr(g.text, "60 ms"));
    peer_stop(&p);
    ASSERT(p.flag); /* our side was closed */

    /* a caller that is slow with the body is not the server's silence */
    peer_start(&p, stay_silent, NULL);
    o = call_options(p.port, "POST", "/");
    o.silence_timeout_ms = 60;
    o.body_length = -1;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    turn_for(&loop, 250);
    ASSERT(!g.is_over);
    h1_call_end(g.call);
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, -ETIMEDOUT);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST(connect_times_out) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), full[4];
    uv_loop_t loop;
    struct got g = {0};

    /* a full backlog drops further connects */
    ASSERT(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 0) == 0 &&
           getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(full); i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(full[i], (struct sockaddr *)&a, sizeof a);
    }
    uv_loop_init(&loop);
    struct h1_call_opts o = call_options(ntohs(a.sin_port), "GET", "/");
    o.connect_timeout_ms = 60;
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -EHOSTUNREACH);
    for (size_t i = 0; i < ARRAY_SIZE(full); i++)
        close(full[i]);
    close(fd);
    got_reset(&g);
    loop_done(&loop);
}

/* ---- bodies ---- */

/* Reads the request's head, then everything up to the last chunk or 1 MiB, slowly at first; answers
 * with the count. */
static void count_body(struct peer *p, int fd, unsigned nth) {
    static char data[1 << 16];
    size_t total = 0, want = (size_t)p->arg;
    char answer[128], count[32];
    ssize_t n;

    peer_read_head(p, fd);
    peer_await(p, 1); /* nothing is read until the test saw the client stop */
    while (total < want && (n = recv(fd, data, MIN(sizeof data, want - total), 0)) > 0)
        total += (size_t)n;
    int k = snprintf(count, sizeof count, "%zu", total);
    snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", k, count);
    peer_send(fd, answer);
    peer_wait_end(fd);
}

#define BLOCK ((size_t)32 << 10)
#define BLOCKS 512u /* 16 MiB: more than all kernel buffers on the way */

struct upload {
    struct got g;
    unsigned sent;
    size_t max_queued;
};

static void push(struct got *g) {
    struct upload *u = container_of(g, struct upload, g);
    static char block[BLOCK];

    while (u->sent < BLOCKS) {
        ssize_t queued = h1_call_write(g->call, block, sizeof block);
        ASSERT(queued >= 0);
        u->sent++;
        u->max_queued = MAX(u->max_queued, (size_t)queued);
        if ((size_t)queued > SOCK_HIGH_WATER)
            return;
    }
    h1_call_end(g->call);
}

static void upload_streamed(bool chunked) {
    uv_loop_t loop;
    struct peer p;
    struct upload u = {0};
    size_t wire = BLOCKS * (BLOCK + (chunked ? 8 : 0)) + (chunked ? 5 : 0);
    char want[32];

    uv_loop_init(&loop);
    peer_start(&p, count_body, (const void *)wire);
    struct h1_call_opts o = call_options(p.port, "POST", "/");
    o.body_length = chunked ? -1 : (int64_t)(BLOCKS * BLOCK);
    got_reset(&u.g);
    u.g.on_drain = push;
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &u.g, &u.g.call));
    push(&u.g); /* before the connection stands */
    turn_for(&loop, 100);
    ASSERT(u.sent < BLOCKS && !u.g.is_over); /* held back */
    peer_raise(&p, 1);
    TURN_UNTIL(&loop, u.g.is_over);
    ASSERT_INT(u.g.error, 0);
    snprintf(want, sizeof want, "%zu", wire);
    ASSERT_STR(u.g.body.data, want);
    ASSERT(u.max_queued <= SOCK_HIGH_WATER + BLOCK + 16);
    ASSERT(strstr(p.head,
                  chunked ? "Transfer-Encoding: chunked\r\n" : "Content-Length: 16777216\r\n"));
    got_reset(&u.g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST(upload_chunked) {
    upload_streamed(true);
}

TEST(upload_with_length) {
    upload_streamed(false);
}

TEST(whole_body_and_empty_bodies) {
    static const struct {
        const char *method;
        int64_t length;
        const char *body, *want;
    } t[] = {
        {"POST", 5, "hello", "Content-Length: 5\r\n"}, {"PUT", 0, NULL, "Content-Length: 0\r\n"},
        {"POST", 0, NULL, "Content-Length: 0\r\n"},    {"DELETE", 0, NULL, NULL},
        {"DELETE", 2, "xx", "Content-Length: 2\r\n"},
    };
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct peer p;
        peer_start(&p, answer_once, OK3);
        struct h1_call_opts o = call_options(p.port, t[i].method, "/");
        o.body_length = t[i].length;
        o.body = t[i].body;
        call(&loop, &o, &g);
        ASSERT_INT(g.error, 0);
        ASSERT(t[i].want ? strstr(p.head, t[i].want) != NULL : !strstr(p.head, "Content-Length"));
        peer_stop(&p);
    }
    got_reset(&g);
    loop_done(&loop);
}

TEST(body_length_is_kept) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    peer_start(&p, stay_silent, NULL);
    struct h1_call_opts o = call_options(p.port, "POST", "/");
    o.body_length = 3;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    ASSERT_INT(h1_call_write(g.call, "abcd", 4), -EINVAL);
    ASSERT(h1_call_write(g.call, "ab", 2) > 0);
    h1_call_end(g.call); /* too early: the server would wait for the third byte for ever */
    ASSERT(!g.is_over);  /* never from inside a call */
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, -EINVAL);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

/* Answers before the body was read, and hangs up with a reset. */
static void refuse_early(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig");
    peer_reset(fd);
}

TEST(early_answer_survives_the_reset) {
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (int i = 0; i < 20; i++) {
        struct peer p;
        static char block[1 << 16];
        peer_start(&p, refuse_early, NULL);
        struct h1_call_opts o = call_options(p.port, "POST", "/");
        o.body_length = -1;
        got_reset(&g);
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        h1_call_pause(g.call); /* the answer is not read while we go on sending */
        TURN_UNTIL(&loop, p.n_conns);
        peer_stop(&p); /* answer and reset are in our socket's buffers now */
        for (int k = 0; k < 4 && h1_call_write(g.call, block, sizeof block) >= 0; k++)
            ;
        h1_call_resume(g.call);
        TURN_UNTIL(&loop, g.is_over);
        ASSERT(g.status == 413 && g.error == 0);
    }
    got_reset(&g);
    loop_done(&loop);
}

static void pause_now(struct got *g) {
    h1_call_pause(g->call);
}

static void send_much(struct peer *p, int fd, unsigned nth) {
    static char block[BLOCK];

    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (unsigned i = 0; i < BLOCKS; i++) {
        peer_send(fd, "8000\r\n");
        peer_send_bytes(fd, block, sizeof block);
        peer_send(fd, "\r\n");
        p->flag = i;
    }
    peer_send(fd, "0\r\n\r\n");
    peer_wait_end(fd);
}

TEST(download_is_held_back) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    peer_start(&p, send_much, NULL);
    struct h1_call_opts o = call_options(p.port, "GET", "/");
    got_reset(&g);
    g.on_head = pause_now;
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    TURN_UNTIL(&loop, g.heads);
    turn_for(&loop, 100);
    ASSERT(g.body.len == 0 &&
           p.flag < BLOCKS - 1); /* nothing after the pause, and the sender stalls */
    h1_call_resume(g.call);
    TURN_UNTIL(&loop, g.is_over);
    ASSERT(g.error == 0 && g.body.len == BLOCKS * BLOCK);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

/* Pausing after every piece, resuming from outside: every event comes once, the end too. */
TEST(pause_at_every_piece) {
    static const char *const answers[] = {OK3,
                                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                                          "chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n",
                                          "HTTP/1.1 200 OK\r\n\r\nabc"};
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct peer p;
        unsigned resumes = 0;
        peer_start(&p, answer_once, answers[i]);
        struct h1_call_opts o = call_options(p.port, "GET", "/");
        got_reset(&g);
        g.on_head = g.on_data = pause_now;
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        while (!g.is_over) {
            size_t before = g.body.len + g.heads;
            turn_for(&loop, 10);
            ASSERT(g.is_over || g.body.len + g.heads - before <= 3);
            if (!g.is_over)
                h1_call_resume(g.call);
            ASSERT(++resumes < 100);
        }
        ASSERT_INT(g.error, 0);
        ASSERT_STR(g.body.data, "abc");
        peer_stop(&p);
    }
    got_reset(&g);
    loop_done(&loop);
}

TEST(cancel_at_any_moment) {
    uv_loop_t loop;
    struct got g = {0};
    struct peer p;

    uv_loop_init(&loop);
    peer_start(&p, answer_always, OK3);
    for (int turns = 0; turns < 8; turns++) {
        struct h1_call_opts o = call_options(p.port, "POST", "/");
        o.body_length = -1;
        got_reset(&g);
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        h1_call_write(g.call, "x", 1);
        for (int i = 0; i < turns && !g.is_over; i++)
            turn(&loop, 1);
        if (g.is_over)
            break;
        h1_call_cancel(g.call);
        unsigned heads = g.heads;
        size_t body = g.body.len;
        turn_for(&loop, 10);
        ASSERT(!g.ends && g.heads == heads && g.body.len == body);
    }
    got_reset(&g);
    h1_call_cancel(NULL);
    peer_stop(&p);
    loop_done(&loop);
}

static void cancel_now(struct got *g) {
    h1_call_cancel(g->call);
    g->is_over = true;
}

TEST(cancel_inside_callbacks) {
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (int i = 0; i < 2; i++) {
        struct peer p;
        peer_start(&p, answer_once, OK3);
        struct h1_call_opts o = call_options(p.port, "GET", "/");
        got_reset(&g);
        if (i == 0)
            g.on_head = cancel_now;
        else
            g.on_data = cancel_now;
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        TURN_UNTIL(&loop, g.is_over);
        turn_for(&loop, 20);
        ASSERT(g.heads == 1 && g.ends == 0);
        peer_stop(&p);
    }
    got_reset(&g);
    loop_done(&loop);
}

/* ---- upgrades ---- */

static void switch_protocols(struct peer *p, int fd, unsigned nth) {
    char c[16] = {0};

    peer_read_head(p, fd);
    peer_send(
        fd,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly");
    if (recv(fd, c, sizeof c - 1, 0) > 0)
        peer_send(fd, c);
    peer_wait_end(fd);
}

struct raw {
    struct buf in;
};

static void on_raw_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct raw *r = ud;
    if (len > 0)
        buf_append(&r->in, data, (size_t)len);
}

TEST(upgrade_hands_the_socket_over) {
    static const struct sock_ops raw_ops = {.on_read = on_raw_read};
    struct h1_header headers[] = {{"Connection", "Upgrade"}, {"Upgrade", "echo"}, {0}};
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};
    struct raw raw = {0};

    uv_loop_init(&loop);
    peer_start(&p, switch_protocols, NULL);
    struct h1_call_opts o = call_options(p.port, "GET", "/");
    o.headers = headers;
    o.keep_upgrade = true;
    call(&loop, &o, &g);
    ASSERT(g.upgraded && g.ends == 0 && g.heads == 0);
    sock_set_ops(g.upgraded, &raw_ops, &raw);
    ASSERT(sock_write(g.upgraded, "-ping", 5) >= 0);
    sock_read_start(g.upgraded);
    TURN_UNTIL(&loop, raw.in.len >= 10);
    ASSERT_STR(raw.in.data, "early-ping");
    sock_close(g.upgraded, 0);
    buf_done(&raw.in);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST_MAIN()
