/*
 * HTTP/1.1 client on the loop: streaming bodies both ways with back-pressure, keep-alive pools,
 * upgrades. No redirects, no cookies, no TLS. Loop thread only.
 */
#pragma once

#include "net/h1_server.h" /* struct h1_header */

struct h1_pool;
/* idle_max: kept idle connections per address. idle_ms: how long one is kept. */
struct h1_pool *h1_pool_new(uv_loop_t *loop, unsigned idle_max, unsigned idle_ms);
void h1_pool_free(struct h1_pool *p);

struct h1_call;
struct h1_call_ops {
    /* final response head (1xx are swallowed). length: Content-Length, or -1 */
    void (*on_response)(struct h1_call *c, int status, const struct h1_header *headers,
                        size_t n_headers, int64_t length, void *ud);
    void (*on_data)(struct h1_call *c, const char *data, size_t len, void *ud);
    /* request body output is low again */
    void (*on_drain)(struct h1_call *c, void *ud);
    /* 101 arrived: the socket is yours. The call ends (no on_end). */
    void (*on_upgrade)(struct h1_call *c, const struct h1_header *headers, size_t n_headers,
                       struct sock *s, void *ud);
    /* exactly once unless cancelled; after it the call is dead. error 0 = complete response;
     * -ETIMEDOUT = silent for too long; -ECONNRESET = dropped; -EBADMSG = not HTTP or truncated;
     * anything else = could not connect (too slow to connect is -EHOSTUNREACH). `err` has the text.
     * Never called from inside a function of this header. */
    void (*on_end)(struct h1_call *c, int error, const struct err *err, void *ud);
};

struct h1_call_opts {
    struct sock_addr addr;
    const char *pool_key; /* NULL = "unix:PATH" or "host:port"; needed with netns_fd (namespace
                             descriptors get reused) */
    struct h1_pool *pool; /* NULL = a connection of its own, closed afterwards */
    const char *method, *target;
    /* ended by {NULL,NULL}; may be NULL; Host is added when absent. Framing (Content-Length,
     * Transfer-Encoding) is ours, and so is Connection unless keep_upgrade: -EINVAL, as for
     * anything that does not fit into a header */
    const struct h1_header *headers;
    int64_t body_length; /* 0 none, > 0 exactly, -1 chunked: then h1_call_write/end */
    const void *body; /* whole body of body_length bytes, copied; NULL: streamed by h1_call_write */
    unsigned connect_timeout_ms; /* 0 = 10000 */
    unsigned
        silence_timeout_ms; /* no byte of the response head for so long: -ETIMEDOUT; 0 = none */
    bool keep_upgrade;      /* send Connection: Upgrade as given, accept 101 */
    unsigned max_idle_ms; /* take a kept connection only when idle for at most so long; 0 = any. For
                           * requests that must not be sent twice: the younger, the less likely it
                           * is being closed just now */
    bool fresh;           /* do not take a kept connection at all (the retry after a stale one) */
};
int h1_call(uv_loop_t *loop, const struct h1_call_opts *o, const struct h1_call_ops *ops, void *ud,
            struct h1_call **ret);
/* Queued bytes or -errno; valid before connect too. Above SOCK_HIGH_WATER wait for on_drain. A
 * failed write is not the end: the response may be there already; on_end follows. */
ssize_t h1_call_write(struct h1_call *c, const void *data, size_t len);
void h1_call_end(struct h1_call *c);   /* end of the streamed request body */
void h1_call_pause(struct h1_call *c); /* stop reading the response */
void h1_call_resume(struct h1_call *c);
void h1_call_cancel(struct h1_call *c); /* frees; no callback after */
/* In on_end: the connection was a reused idle one and died before any response byte (safe to retry
 * idempotent calls). */
bool h1_call_was_stale(const struct h1_call *c);
