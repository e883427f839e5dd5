/* A server with the smallest possible handler, for wrk: bench-h1 PORT. GET / answers 5 bytes, GET
 * /big 1 MiB, POST echoes. */
#include <signal.h>
#include <stdio.h>

#include "base/str.h"
#include "net/h1_server.h"

static char big[1 << 20];

static void echo(struct h1_req *r, const char *data, size_t len, void *ud) {
    h1_respond(r, 200, NULL, data, len);
}

static void on_request(struct h1_req *r, void *ud) {
    static const struct h1_header text[] = {{"Content-Type", "text/plain"}, {NULL, NULL}};

    if (str_eq(h1_req_method(r), "POST"))
        h1_req_collect(r, 64 << 20, echo, NULL);
    else if (str_eq(h1_req_path(r), "/big"))
        h1_respond(r, 200, text, big, sizeof big);
    else
        h1_respond(r, 200, text, "hello", 5);
}

static void on_signal(uv_signal_t *h, int number) {
    uv_stop(h->loop);
}

int main(int argc, char **argv) {
    struct h1_server_opts o = {.on_request = on_request};
    struct h1_server *s;
    struct err err = {0};
    uint64_t port = 0;
    uv_signal_t sig;
    uv_loop_t *loop = uv_default_loop();

    if (argc != 2 || str_to_u64(argv[1], &port) < 0 || port > 65535) {
        fprintf(stderr, "usage: bench-h1 PORT\n");
        return 2;
    }
    if (h1_server_new(loop, &o, &s) < 0 ||
        h1_server_listen_tcp(s, "127.0.0.1", (uint16_t)port, 0, NULL, &err) < 0) {
        fprintf(stderr, "bench-h1: %s\n", err_text(&err));
        return 1;
    }
    uv_signal_init(loop, &sig);
    uv_signal_start(&sig, on_signal, SIGTERM);
    uv_run(loop, UV_RUN_DEFAULT);
    h1_server_free(s);
    uv_close((uv_handle_t *)&sig, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    return 0;
}
