/*
 * HTTP/1.1 server on libuv and llhttp (strict). What llhttp leaves to us and we check here: folded
 * headers, a missing or repeated Host, the size of the header block, the size of chunk extensions.
 * Limits answer with 431 (headers), 414 (target), 413 (body), 408 (header or body too slow).
 *
 * An exchange (struct h1_req) lives from on_request to on_close. Handlers run on the loop thread,
 * may answer at once or later, in any order across connections; pipelined requests of one
 * connection are handled strictly one after the other. Every request ends with exactly one
 * on_close, whatever happened; after it the pointer is dead. Nothing here blocks.
 */
#pragma once

#include "net/sock.h"
#include "net/url.h"

struct h1_server;
struct h1_req;

struct h1_header {
    const char *name, *value; /* values of repeated headers stay separate */
};

struct h1_limits {              /* 0 = the default in brackets */
    size_t max_target;          /* bytes of the request target [65536] */
    size_t max_headers;         /* bytes of the header block [65536] */
    unsigned max_header_count;  /* [200] */
    unsigned header_timeout_ms; /* from first byte of a request to the end of its headers [10000] */
    unsigned idle_timeout_ms;   /* keep-alive connection without a request [600000] */
    unsigned body_timeout_ms;   /* silence while a body is expected and being read [60000] */
    unsigned write_timeout_ms;  /* no progress of queued output [60000] */
    unsigned max_connections;   /* above: 503 in plain text, and close [20000] */
    size_t max_drain;           /* unread body that is drained to keep a connection [262144] */
};

struct h1_server_opts {
    struct h1_limits limits;
    /* headers are complete; must end, now or later, in a response, an abort or an upgrade */
    void (*on_request)(struct h1_req *r, void *ud);
    /* optional: headers added to every response */
    const struct h1_header *extra_headers; /* ended by {NULL, NULL} */
    /* optional: every finished exchange, for access logs and metrics (status 0 = aborted before the
     * head) */
    void (*on_done)(const struct h1_req *r, int status, uint64_t body_bytes_out,
                    int64_t duration_us, void *ud);
    void *ud;
};

int h1_server_new(uv_loop_t *loop, const struct h1_server_opts *opts, struct h1_server **ret);
/* Adds a listener. Addresses: "127.0.0.1", "::", "0.0.0.0". port 0 picks one (*ret_port may be
 * NULL). */
int h1_server_listen_tcp(struct h1_server *s, const char *addr, uint16_t port, int backlog,
                         uint16_t *ret_port, struct err *err);
/* Unix socket: an old socket file that nobody listens on is replaced; mode e.g. 0660. */
int h1_server_listen_unix(struct h1_server *s, const char *path, mode_t mode, struct err *err);
/* An inherited listening socket; owned, also on failure. */
int h1_server_listen_fd(struct h1_server *s, int fd, struct err *err);
/* Stops accepting, closes idle connections, lets requests in flight end for at most grace_ms, then
 * cuts. cb once. */
void h1_server_drain(struct h1_server *s, unsigned grace_ms, void (*cb)(void *ud), void *ud);
/* Cuts everything at once; on_close of every request has been called when it returns. Frees after
 * the loop ran once more. Not from inside on_request and the request callbacks. */
void h1_server_free(struct h1_server *s);
size_t h1_server_connections(const struct h1_server *s);

/* ---- the request ---- */
const char *h1_req_method(const struct h1_req *r); /* "GET" */
const char *h1_req_target(const struct h1_req *r); /* raw, as sent: "/a%2Fb?x=1" */
const char *h1_req_path(const struct h1_req *r);   /* raw path, without query */
const char *h1_req_query(const struct h1_req *r);  /* raw, NULL when there is no '?' */
/* The first value, whatever the name's case; NULL when absent. */
const char *h1_req_header(const struct h1_req *r, const char *name);
/* In order, names as sent; {NULL, NULL} follows the last. */
const struct h1_header *h1_req_headers(const struct h1_req *r, size_t *ret_n);
bool h1_req_is_upgrade(const struct h1_req *r); /* Connection: upgrade + an Upgrade header */
bool h1_req_is_http10(const struct h1_req *r);
/* Content-Length; -1 = chunked; 0 = no body */
int64_t h1_req_content_length(const struct h1_req *r);
void h1_req_peer(const struct h1_req *r, char *ret_addr, size_t size, int *ret_port);
struct sock *h1_req_sock(const struct h1_req *r);
uv_loop_t *h1_req_loop(const struct h1_req *r);
/* A slot for the API layer (router, request id); freed by nobody. */
void h1_req_set_data(struct h1_req *r, void *data);
void *h1_req_data(const struct h1_req *r);

struct h1_req_ops {
    /* streamed request body */
    void (*on_body)(struct h1_req *r, const char *data, size_t len, void *ud);
    void (*on_body_end)(struct h1_req *r, void *ud);
    void (*on_drain)(struct h1_req *r, void *ud); /* response output is low again: produce more */
    /* completed: the whole response is with the kernel; else the client left or was cut */
    void (*on_close)(struct h1_req *r, bool completed, void *ud);
    /* The request's own body earned a refusal (413 too large, 408 too slow, 400 malformed) before a
     * response was begun: must h1_respond with this status. NULL: an answer is made up. */
    void (*on_fault)(struct h1_req *r, int status, const char *text, void *ud);
};
/* Any member may be NULL. Without on_body the body is drained (bounded by max_drain). */
void h1_req_set_ops(struct h1_req *r, const struct h1_req_ops *ops, void *ud);
/*
 * Starts delivery of the body (sends "100 Continue" first when the client expects it). max_body:
 * more gives 413 and on_close, 0 = unlimited. Before this call nothing is read: that is the
 * back-pressure of a slow handler.
 */
void h1_req_body_start(struct h1_req *r, uint64_t max_body);
void h1_req_body_pause(struct h1_req *r);
void h1_req_body_resume(struct h1_req *r);
/* A client that ends its side before the response is complete ends the exchange (on_close, not
 * completed), as a proxy must have it: otherwise only streams of unknown length end so, and a plain
 * answer is still made. */
void h1_req_end_with_client(struct h1_req *r);
/* Collects the whole body, at most max bytes (413 is answered by us, cb not called). data is valid
 * during the call, NUL-terminated. Use instead of on_body; on_close may be set as usual before. */
void h1_req_collect(struct h1_req *r, size_t max,
                    void (*cb)(struct h1_req *r, const char *data, size_t len, void *ud), void *ud);

/* ---- the response: one h1_respond, or h1_start + h1_write* + h1_end ---- */
/* Content-Length and Connection are ours, and Date unless given; headers (may be NULL) end with
 * {NULL, NULL}. HEAD sends no body. */
void h1_respond(struct h1_req *r, int status, const struct h1_header *headers, const void *body,
                size_t len);
/* length -1: chunked (or until close for HTTP/1.0). */
void h1_start(struct h1_req *r, int status, const struct h1_header *headers, int64_t length);
/* Bytes queued on the connection, or -errno (gone: on_close comes). Above SOCK_HIGH_WATER wait for
 * on_drain. on_close is never called from inside h1_respond, h1_write, h1_end or h1_abort. */
ssize_t h1_write(struct h1_req *r, const void *data, size_t len);
void h1_end(struct h1_req *r);
/* The last bytes and the end in one write. */
void h1_end_with(struct h1_req *r, const void *data, size_t len);
/* Cuts the connection so that the peer sees a truncated message (RST or missing last chunk), never
 * a clean end. */
void h1_abort(struct h1_req *r);
bool h1_is_started(const struct h1_req *r);
/*
 * Upgrade: sends `status` (101) with the headers as they are and hands the socket over, unread
 * bytes included. The request ends here (on_close with completed = true, before this returns). NULL
 * on failure: the request lives on, and can be answered when nothing was sent (its body is not
 * read, a response was begun).
 */
struct sock *h1_upgrade(struct h1_req *r, int status, const struct h1_header *headers);

const char *h1_reason(int status); /* "Not Found"; "Unknown" for others */
