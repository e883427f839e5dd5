/* The demonstration handler and the client end for the server's tests (see test-h1.h). */
#include "net/test-h1.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/test.h"
#include "net/sse.h"

struct exchange {
    struct h1_fixture *f;
    struct h1_req *r;
    uv_timer_t timer;
    bool has_timer;
};

static void free_exchange(uv_handle_t *h) {
    free(h->data);
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct exchange *x = ud;

    x->f->closes++;
    x->f->completed += completed;
    x->r = NULL;
    if (x->has_timer)
        uv_close((uv_handle_t *)&x->timer, free_exchange);
    else
        free(x);
}

static void echo_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    h1_respond(r, 200, NULL, data, len);
}

static void stream_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    if (!h1_is_started(r))
        h1_start(r, 200, NULL, -1);
    h1_write(r, data, len);
}

static void stream_end(struct h1_req *r, void *ud) {
    if (!h1_is_started(r))
        h1_start(r, 200, NULL, -1);
    h1_end(r);
}

static void abort_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    h1_abort(r);
}

static const struct h1_req_ops plain_ops = {.on_close = on_close};
static const struct h1_req_ops stream_ops = {
    .on_body = stream_body, .on_body_end = stream_end, .on_close = on_close};
static const struct h1_req_ops abort_ops = {.on_body = abort_body, .on_close = on_close};

static void on_late(uv_timer_t *t) {
    struct exchange *x = t->data;

    if (!x->r)
        return;
    if (str_eq(h1_req_path(x->r), "/late-echo"))
        h1_req_collect(x->r, 1000, echo_body, x);
    else
        h1_respond(x->r, 200, NULL, "hello", 5);
}

static void raw_echo(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct h1_fixture *f = ud;

    if (len > 0) {
        sock_write(s, data, (size_t)len);
        return;
    }
    sock_close(s, 0);
    f->upgraded = NULL;
}

static void do_upgrade(struct h1_fixture *f, struct h1_req *r) {
    static const struct h1_header headers[] = {
        {"Connection", "Upgrade"}, {"Upgrade", "echo"}, {NULL, NULL}};
    static const struct sock_ops ops = {.on_read = raw_echo};

    f->upgraded = h1_upgrade(r, 101, headers);
    if (!f->upgraded) {
        h1_respond(r, 400, NULL, NULL, 0);
        return;
    }
    sock_set_ops(f->upgraded, &ops, f);
    sock_read_start(f->upgraded);
}

static void send_info(struct h1_req *r) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    const char *q = h1_req_query(r), *xa = h1_req_header(r, "x-a");

    buf_printf(&b, "%s|%s|%s|%s|%lld|%d|%d|%s", h1_req_method(r), h1_req_target(r), h1_req_path(r),
               q ? q : "-", (long long)h1_req_content_length(r), h1_req_is_upgrade(r),
               h1_req_is_http10(r), xa ? xa : "-");
    h1_respond(r, 200, NULL, b.data, b.len);
}

static void handle_output(struct h1_fixture *f, struct h1_req *r, const char *path) {
    if (str_eq(path, "/chunks")) {
        h1_start(r, 200, NULL, -1);
        h1_write(r, "one", 3);
        h1_write(r, "two", 3);
        h1_end(r);
    } else if (str_eq(path, "/fixed") || str_eq(path, "/short")) {
        h1_start(r, 200, NULL, 6);
        h1_write(r, "abc", 3);
        if (str_eq(path, "/fixed"))
            h1_write(r, "def", 3);
        h1_end(r);
    } else if (str_eq(path, "/over")) {
        h1_start(r, 200, NULL, 3);
        h1_write(r, "abcdef", 6);
    } else if (str_eq(path, "/events")) {
        sse_start(r);
        sse_bare(r, "{}", 2);
    } else if (str_eq(path, "/inject")) {
        const struct h1_header h[] = {
            {"X-A", "a\r\nX-B: b"}, {"Content-Length", "77"}, {NULL, NULL}};
        h1_respond(r, 200, h, "x", 1);
    } else if (str_eq(path, "/upgrade")) {
        do_upgrade(f, r);
    } else {
        h1_respond(r, 404, NULL, NULL, 0);
    }
}

static void on_request(struct h1_req *r, void *ud) {
    struct h1_fixture *f = ud;
    struct exchange *x = calloc(1, sizeof *x);
    const char *path = h1_req_path(r);

    ASSERT(x);
    *x = (struct exchange){.f = f, .r = r};
    f->requests++;
    h1_req_set_ops(r, &plain_ops, x);
    if (str_starts(path, "/late")) {
        x->has_timer = true;
        uv_timer_init(&f->loop, &x->timer);
        x->timer.data = x;
        uv_timer_start(&x->timer, on_late, 1, 0);
    } else if (str_eq(path, "/hello") || str_eq(path, "/ignore")) {
        h1_respond(r, 200, NULL, "hello", 5);
    } else if (str_eq(path, "/empty")) {
        h1_respond(r, 200, NULL, NULL, 0);
    } else if (str_eq(path, "/204") || str_eq(path, "/304")) {
        h1_respond(r, path[1] == '2' ? 204 : 304, NULL, NULL, 0);
    } else if (str_eq(path, "/echo") || str_eq(path, "/nothing")) {
        h1_req_collect(r, path[1] == 'e' ? 1000 : 0, echo_body, x);
    } else if (str_eq(path, "/stream-echo") || str_eq(path, "/abort-late")) {
        h1_req_set_ops(r, path[1] == 's' ? &stream_ops : &abort_ops, x);
        h1_req_body_start(r, 0);
    } else if (str_eq(path, "/abort")) {
        h1_abort(r);
    } else if (str_eq(path, "/info")) {
        send_info(r);
    } else {
        handle_output(f, r, path);
    }
}

void h1_fixture_init(struct h1_fixture *f, const struct h1_limits *limits) {
    struct h1_server_opts o = {.on_request = on_request, .ud = f};

    *f = (struct h1_fixture){.client = -1};
    if (limits)
        o.limits = *limits;
    ASSERT_OK(uv_loop_init(&f->loop));
    ASSERT_OK(h1_server_new(&f->loop, &o, &f->server));
}

void h1_fixture_connect(struct h1_fixture *f) {
    struct h1_conn *c;
    int fds[2];

    f->client = fd_close(f->client);
    buf_clear(&f->out);
    f->client_eof = false;
    f->client_errno = 0;
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    f->client = fds[0];
    ASSERT_OK(h1_conn_new(f->server, fds[1], &c));
}

void h1_fixture_done(struct h1_fixture *f) {
    f->client = fd_close(f->client);
    h1_fixture_turn(f);
    h1_server_free(f->server);
    if (f->upgraded)
        sock_close(f->upgraded, 0);
    for (int i = 0; i < 1000 && uv_run(&f->loop, UV_RUN_NOWAIT); i++)
        ;
    ASSERT_INT(f->closes, f->requests);
    buf_done(&f->out);
    uv_run(&f->loop, UV_RUN_DEFAULT); /* lingering closes */
    ASSERT_INT(uv_loop_close(&f->loop), 0);
}

size_t h1_fixture_send(struct h1_fixture *f, const char *data, size_t len) {
    ssize_t n = send(f->client, data, len, MSG_NOSIGNAL);
    return n > 0 ? (size_t)n : 0;
}

static void receive(struct h1_fixture *f) {
    char tmp[16384];
    ssize_t n;

    while (f->client >= 0 && !f->client_eof && (n = recv(f->client, tmp, sizeof tmp, 0)) != 0) {
        if (n < 0) {
            if (errno != EAGAIN) {
                f->client_errno = errno;
                f->client_eof = true;
            }
            return;
        }
        ASSERT_OK(buf_append(&f->out, tmp, (size_t)n));
    }
    if (f->client >= 0)
        f->client_eof = true;
}

void h1_fixture_turn(struct h1_fixture *f) {
    uv_run(&f->loop, UV_RUN_NOWAIT);
    receive(f);
}

bool h1_fixture_wait(struct h1_fixture *f, size_t n, unsigned limit_ms) {
    int64_t end = clock_mono_ms() + limit_ms;

    for (;;) {
        struct pollfd p[2] = {{.fd = f->client, .events = POLLIN},
                              {.fd = uv_backend_fd(&f->loop), .events = POLLIN}};
        int timeout;

        h1_fixture_turn(f);
        if (f->client_eof || f->out.len >= n)
            return n != SIZE_MAX || f->client_eof;
        if (clock_mono_ms() >= end)
            return false;
        timeout = uv_backend_timeout(&f->loop);
        poll(p, 2, timeout < 0 || timeout > 20 ? 20 : timeout);
    }
}

void strip_dates(struct buf *b) {
    char *p = b->data, *end;

    while (p && (p = strstr(p, "Date: ")) && (end = strstr(p, "\r\n"))) {
        size_t n = (size_t)(end + 2 - p);
        memmove(p, end + 2, b->len - (size_t)(end + 2 - b->data) + 1);
        b->len -= n;
    }
}

/* libuv opens two descriptors for the whole process with its first loop: before the tests count
 * theirs. */
static __attribute__((constructor)) void warm_up(void) {
    uv_loop_t loop;

    if (uv_loop_init(&loop) == 0)
        uv_loop_close(&loop);
}
