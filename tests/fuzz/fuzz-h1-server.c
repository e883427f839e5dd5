/*
 * The HTTP server's input. The first byte chooses how the rest is cut into reads; the bytes go
 * through a socket pair to a server whose handler tries everything a handler may do. Checked
 * besides memory: every request is closed exactly once, and what a conversation is answered does
 * not depend on the cuts.
 */
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "net/h1_internal.h"
#include "net/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)            \
    do {                      \
        if (!(cond))          \
            __builtin_trap(); \
    } while (0)

struct run {
    unsigned requests, closes;
    struct buf out; /* the statuses and bodies that were answered */
};

static void on_close(struct h1_req *r, bool completed, void *ud) {
    ((struct run *)ud)->closes++;
}

static void echo(struct h1_req *r, const char *data, size_t len, void *ud) {
    h1_respond(r, 200, NULL, data, len);
}

static void stream(struct h1_req *r, const char *data, size_t len, void *ud) {
    if (!h1_is_started(r))
        h1_start(r, 200, NULL,
                 0x100000); /* one head, never a clean end: no chunk borders in the answer */
    h1_write(r, data, len);
}

static void stream_end(struct h1_req *r, void *ud) {
    if (!h1_is_started(r))
        h1_respond(r, 204, NULL, NULL, 0);
    else
        h1_end(r);
}

static void pause_then_go(struct h1_req *r, const char *data, size_t len, void *ud) {
    h1_req_body_pause(r);
    h1_req_body_resume(r);
}

static void no_handler(struct h1_req *r, const struct route_match *m, void *ud) {
}

static size_t route(const char *method, const char *path) {
    static const struct route table[] = {
        {"GET", "/{a}", no_handler},
        {"*", "/{a}/b/{c}", no_handler},
        {"POST", "/{a}/{rest...}", no_handler},
        {NULL, NULL, NULL},
    };
    static struct router *router;
    const struct route *found;
    struct route_match m;
    char *allow = NULL;
    size_t sum = 0;

    MUST(router || router_new(table, &router) == 0);
    if (router_find(router, method, path, &found, &m, &allow) == ROUTE_OK)
        for (size_t i = 0; i < m.n_params; i++)
            sum += strlen(m.params[i]);
    route_match_done(&m);
    free(allow);
    return sum;
}

/* Touches everything that was parsed, so that the sanitizers see it. */
static size_t touch(struct h1_req *r) {
    size_t n, sum = strlen(h1_req_method(r)) + strlen(h1_req_target(r)) + strlen(h1_req_path(r));
    const struct h1_header *h = h1_req_headers(r, &n);
    struct query q;

    MUST(h1_req_path(r)[0] == '/' || strcmp(h1_req_path(r), "*") == 0);
    for (size_t i = 0; i < n; i++) {
        MUST(h[i].name[0] && !strpbrk(h[i].name, "\r\n: ") && !strpbrk(h[i].value, "\r\n"));
        sum += strlen(h[i].name) + strlen(h[i].value);
    }
    sum += route(h1_req_method(r), h1_req_path(r));
    if (query_parse(h1_req_query(r), h1_req_query(r) ? strlen(h1_req_query(r)) : 0, &q) == 0) {
        sum += q.keys.n;
        query_done(&q);
    }
    return sum;
}

static void on_request(struct h1_req *r, void *ud) {
    static const struct h1_req_ops plain = {.on_close = on_close};
    static const struct h1_req_ops streaming = {
        .on_body = stream, .on_body_end = stream_end, .on_close = on_close};
    static const struct h1_req_ops pausing = {
        .on_body = pause_then_go, .on_body_end = stream_end, .on_close = on_close};
    struct run *run = ud;

    run->requests++;
    (void)touch(r);
    h1_req_set_ops(r, &plain, run);
    switch (h1_req_path(r)[1]) {
    case 'c':
        h1_req_collect(r, 64, echo, run);
        break;
    case 's':
        h1_req_set_ops(r, &streaming, run);
        h1_req_body_start(r, 0);
        break;
    case 'p':
        h1_req_set_ops(r, &pausing, run);
        h1_req_body_start(r, 100);
        break;
    case 'a':
        h1_abort(r);
        break;
    case 'k':
        h1_start(r, 200, NULL, -1);
        h1_write(r, "k", 1);
        h1_end(r);
        break;
    default:
        h1_respond(r, 200, NULL, h1_req_path(r), strlen(h1_req_path(r)));
    }
}

static void receive(int fd, struct buf *out) {
    char tmp[4096];
    ssize_t n;

    while ((n = recv(fd, tmp, sizeof tmp, 0)) > 0)
        buf_append(out, tmp, (size_t)n);
}

static void converse(struct run *run, const uint8_t *data, size_t size, size_t piece) {
    static const struct h1_limits limits = {
        .max_target = 200, .max_headers = 600, .max_header_count = 20, .max_drain = 200};
    struct h1_server_opts o = {.limits = limits, .on_request = on_request, .ud = run};
    struct h1_server *s;
    struct h1_conn *c;
    uv_loop_t loop;
    int fds[2];

    MUST(uv_loop_init(&loop) == 0);
    MUST(h1_server_new(&loop, &o, &s) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    MUST(h1_conn_new(s, fds[1], &c) == 0);
    for (size_t done = 0; done < size;) {
        size_t n = MIN(piece, size - done);
        if (send(fds[0], data + done, n, MSG_NOSIGNAL) < 0)
            break;
        done += n;
        uv_run(&loop, UV_RUN_NOWAIT);
        receive(fds[0], &run->out);
    }
    for (int i = 0; i < 3; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        receive(fds[0], &run->out);
    }
    fd_close(fds[0]);
    uv_run(&loop, UV_RUN_NOWAIT);
    h1_server_free(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    MUST(uv_loop_close(&loop) == 0);
    MUST(run->closes == run->requests);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run whole = {0}, cut = {0};
    time_t start;

    if (size < 2 || size > 8192)
        return 0;
    start = time(NULL);
    converse(&whole, data + 1, size - 1, 65536);
    converse(&cut, data + 1, size - 1, 1 + data[0] % 16u);
    MUST(whole.requests == cut.requests);
    if (time(NULL) == start) /* else the Date headers differ */
        MUST(whole.out.len == cut.out.len &&
             (!whole.out.len || memcmp(whole.out.data, cut.out.data, whole.out.len) == 0));
    buf_done(&whole.out);
    buf_done(&cut.out);
    return 0;
}
