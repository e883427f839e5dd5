/* Calls that record what they are told (see test-call.h). */
#include "net/test-call.h"

#include <sys/socket.h>

#include "base/str.h"
#include "base/test.h"

static void on_response(struct h1_call *c, int status, const struct h1_header *headers, size_t n,
                        int64_t length, void *ud) {
    struct got *g = ud;
    g->heads++;
    g->status = status;
    g->length = length;
    for (size_t i = 0; i < n; i++)
        buf_printf(&g->headers, "%s=%s|", headers[i].name, headers[i].value);
    ASSERT(headers[n].name == NULL);
    if (g->on_head)
        g->on_head(g);
}

static void on_data(struct h1_call *c, const char *data, size_t len, void *ud) {
    struct got *g = ud;
    ASSERT(len > 0 && !g->is_over);
    buf_append(&g->body, data, len);
    if (g->on_data)
        g->on_data(g);
}

static void on_drain(struct h1_call *c, void *ud) {
    struct got *g = ud;
    g->drains++;
    if (g->on_drain)
        g->on_drain(g);
}

static void on_upgrade(struct h1_call *c, const struct h1_header *headers, size_t n, struct sock *s,
                       void *ud) {
    struct got *g = ud;
    g->upgraded = s;
    g->is_over = true;
}

static void on_end(struct h1_call *c, int error, const struct err *err, void *ud) {
    struct got *g = ud;
    g->ends++;
    g->error = error;
    g->stale = h1_call_was_stale(c);
    g->is_over = true;
    str_copy(g->text, sizeof g->text, err->msg);
    ASSERT((error == 0) == (err->msg[0] == 0));
}

const struct h1_call_ops call_ops = {on_response, on_data, on_drain, on_upgrade, on_end};

void got_reset(struct got *g) {
    buf_done(&g->headers);
    buf_done(&g->body);
    *g = (struct got){.body = BUF_INIT(64 << 20), .headers = BUF_INIT(1 << 20)};
}

struct h1_call_opts call_options(uint16_t port, const char *method, const char *target) {
    return (struct h1_call_opts){
        .addr = {.host = "127.0.0.1", .port = port}, .method = method, .target = target};
}

void call(uv_loop_t *loop, const struct h1_call_opts *o, struct got *g) {
    got_reset(g);
    ASSERT_OK(h1_call(loop, o, &call_ops, g, &g->call));
    TURN_UNTIL(loop, g->is_over);
}

void answer_always(struct peer *p, int fd, unsigned nth) {
    while (peer_read_head(p, fd))
        peer_send(fd, p->arg);
}

void answer_once(struct peer *p, int fd, unsigned nth) {
    if (peer_read_head(p, fd))
        peer_send(fd, p->arg);
    shutdown(fd, SHUT_WR);
    peer_wait_end(fd);
}

void answer_then_reset(struct peer *p, int fd, unsigned nth) {
    if (peer_read_head(p, fd))
        peer_send(fd, p->arg);
    peer_reset(fd);
}
