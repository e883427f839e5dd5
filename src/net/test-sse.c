/* Event framing. */
#include "net/sse.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/test.h"
#include "net/test-h1.h"

static void on_request(struct h1_req *r, void *ud) {
    sse_start(r);
    ASSERT(sse_bare(r, "{\"a\":1}", 7) >= 0);
    ASSERT(sse_event(r, NULL, "one", 3) >= 0);
    ASSERT(sse_event(r, "tick", "l1\nl2\r\nl3\rl4\n", 13) >= 0);
    ASSERT(sse_event(r, "empty", "", 0) >= 0);
    ASSERT_INT(sse_event(r, "two\nlines", "", 0), -EINVAL);
    h1_end(r);
    ASSERT_INT(sse_bare(r, "{}", 2), -EPIPE);
}

TEST(framing) {
    static const char ask[] = "GET / HTTP/1.0\r\n\r\n",
                      body[] = "{\"a\":1}\n\n"
                               "data: one\n\n"
                               "event: tick\ndata: l1\ndata: l2\ndata: l3\ndata: l4\ndata: \n\n"
                               "event: empty\ndata: \n\n";
    struct h1_server_opts o = {.on_request = on_request};
    struct h1_server *s;
    struct h1_conn *c;
    uv_loop_t loop;
    char got[2048] = "";
    int fds[2];
    ssize_t n;

    ASSERT_OK(uv_loop_init(&loop));
    ASSERT_OK(h1_server_new(&loop, &o, &s));
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    ASSERT_OK(h1_conn_new(s, fds[1], &c));
    ASSERT(send(fds[0], ask, sizeof ask - 1, 0) > 0);
    for (int i = 0; i < 5; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    n = recv(fds[0], got, sizeof got - 1, 0);
    ASSERT(n > 0);
    ASSERT(strstr(got, "Content-Type: text/event-stream\r\n"));
    ASSERT(strstr(got, "Cache-Control: no-cache\r\n"));
    ASSERT(strstr(got, "\r\n\r\n"));
    ASSERT_STR(strstr(got, "\r\n\r\n") + 4, body);
    fd_close(fds[0]);
    h1_server_free(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&loop), 0);
}

TEST_MAIN()
