/* What the tests of the HTTP client share: a record of what a call told, and scripts of plain
 * servers. */
#pragma once

#include "net/h1_client.h"
#include "net/test-peer.h"

struct got {
    struct h1_call *call;
    int status, error;
    int64_t length;
    struct buf headers, body;
    unsigned heads, ends, drains;
    bool stale, is_over;
    struct sock *upgraded;
    char text[512];
    void (*on_head)(struct got *g);
    void (*on_data)(struct got *g);
    void (*on_drain)(struct got *g);
};

extern const struct h1_call_ops call_ops;
void got_reset(struct got *g);
struct h1_call_opts call_options(uint16_t port, const char *method, const char *target);
/* Makes the call and turns the loop until it is over. */
void call(uv_loop_t *loop, const struct h1_call_opts *o, struct got *g);

/* Scripts; arg is the answer. */
void answer_always(struct peer *p, int fd, unsigned nth); /* every request of the connection */
void answer_once(struct peer *p, int fd, unsigned nth);   /* then ends its side */
void answer_then_reset(struct peer *p, int fd, unsigned nth);

#define OK3 "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
