/*
 * Allocation failures in the HTTP server, queries and routes: none may crash, leak, forget an
 * on_close, or let a shortened answer look whole.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "base/test.h"
#include "net/router.h"
#include "net/sse.h"
#include "net/test-h1.h"
#include "net/test-nomem.h"

static int run_head(void) {
    static const char head[] = "GET /a?b HTTP/1.1\r\nHost: x\r\nX-A: y\r\n\r\n";
    const struct h1_limits lim = {.max_target = 100, .max_headers = 100, .max_header_count = 9};
    struct h1_scan scan = {0};
    struct h1_fault f = {0};
    struct h1_req *r;
    size_t len = 0;
    int e;

    ASSERT_INT(h1_scan_head(&scan, &lim, head, sizeof head - 1, &len, &f), H1_SCAN_DONE);
    e = h1_parse_head(&scan, head, len, &r, &f);
    if (e < 0) {
        ASSERT_INT(e, -ENOMEM);
        return e;
    }
    ASSERT_STR(h1_req_header(r, "x-a"), "y");
    h1_req_free(r);
    return 0;
}

static int run_query(void) {
    struct query q;
    int e = query_parse("a=1&b=2&c=3", 11, &q);

    if (e < 0)
        return e;
    ASSERT_STR(query_get(&q, "c"), "3");
    query_done(&q);
    return 0;
}

static void no_handler(struct h1_req *r, const struct route_match *m, void *ud) {
}

static int run_route(void) {
    static const struct route table[] = {{"GET", "/{a}/b/{c...}", no_handler}, {NULL, NULL, NULL}};
    const struct route *route = NULL;
    struct route_match m;
    struct router *r;
    char *allow = NULL;
    int e = router_new(table, &r);

    if (e < 0)
        return e;
    e = router_find(r, "GET", "/x%20y/b/z/w", &route, &m, &allow) == ROUTE_OK ? 0 : -ENOMEM;
    if (e == 0)
        ASSERT_STR(m.params[0], "x y");
    route_match_done(&m);
    router_free(r);
    return e;
}

struct counts {
    unsigned requests, closes, completed;
};

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct counts *n = ud;

    n->closes++;
    n->completed += completed;
}

static void echo(struct h1_req *r, const char *data, size_t len, void *ud) {
    h1_start(r, 200, NULL, -1);
    h1_write(r, data, len);
    h1_end(r);
}

static void on_request(struct h1_req *r, void *ud) {
    static const struct h1_req_ops ops = {.on_close = on_close};
    static char big[600000];
    struct counts *n = ud;

    n->requests++;
    h1_req_set_ops(r, &ops, n);
    if (str_eq(h1_req_path(r), "/echo")) {
        h1_req_collect(r, 1000, echo, n);
    } else if (str_eq(h1_req_path(r), "/sse")) {
        sse_start(r);
        if (sse_bare(r, "{}", 2) < 0)
            h1_abort(r);
        h1_end(r);
    } else {
        h1_respond(r, 200, NULL, big, sizeof big);
    }
}

/* Sends everything in small pieces and reads to the end of the connection. Bytes received. */
static size_t converse(uv_loop_t *loop, int fd, const char *in, char *last, size_t last_size) {
    static char tmp[65536];
    size_t len = strlen(in), done = 0, got = 0;

    for (int i = 0; i < 2000; i++) {
        ssize_t n = done < len ? send(fd, in + done, MIN((size_t)7, len - done), MSG_NOSIGNAL) : 0;
        done += n > 0 ? (size_t)n : 0;
        uv_run(loop, UV_RUN_NOWAIT);
        n = recv(fd, tmp, sizeof tmp, 0);
        if (n == 0)
            break;
        if (n > 0) {
            got += (size_t)n;
            str_copy(last, last_size, "");
            memcpy(last, tmp + MAX(0, n - (ssize_t)last_size + 1), MIN((size_t)n, last_size - 1));
            last[MIN((size_t)n, last_size - 1)] = 0;
        }
    }
    return got;
}

static int run_server(void) {
    static const char in[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
        "GET /sse HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct counts n = {0};
    struct h1_server_opts o = {.on_request = on_request, .ud = &n};
    struct h1_server *s = NULL;
    struct h1_conn *c;
    char last[64] = "";
    uv_loop_t loop;
    int fds[2], r;

    ASSERT_OK(uv_loop_init(&loop));
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    r = h1_server_new(&loop, &o, &s);
    if (r == 0)
        r = h1_conn_new(s, fds[1], &c);
    else
        fd_close(fds[1]);
    if (r == 0) {
        converse(&loop, fds[0], in, last, sizeof last);
        r = n.completed == 3 && str_ends(last, "4\r\n{}\n\n\r\n0\r\n\r\n") ? 0 : -EIO;
    }
    fd_close(fds[0]);
    h1_server_free(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&loop), 0);
    ASSERT_INT(n.closes, n.requests);
    ASSERT(r == 0 || n.completed < 3 || !str_ends(last, "0\r\n\r\n"));
    return r;
}

TEST(heads) {
    nomem_exhaust(run_head, false);
}

TEST(queries) {
    nomem_exhaust(run_query, false);
}

TEST(routes) {
    nomem_exhaust(run_route, false);
}

TEST(conversations) {
    nomem_exhaust(run_server, true);
}

TEST_MAIN()
