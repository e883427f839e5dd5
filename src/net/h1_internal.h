/*
 * Inside the HTTP server: what its files share. Who does what:
 *   h1_head.c     bytes of a request head -> struct h1_req, and every refusal that a head can earn
 *   h1_body.c     framing of the request body: lengths, chunks, collecting, draining
 *   h1_respond.c  response heads, bodies and upgrades
 *   h1_conn.c     one connection: the order of things, time limits, closing
 *   h1_server.c   listeners, limits, draining, the timer
 */
#pragma once

#include <llhttp.h>

#include "base/buf.h"
#include "base/list.h"
#include "net/h1_server.h"

#define H1_MAX_CHUNK_EXTENSIONS ((size_t)16 << 10) /* bytes in all chunk extensions of one body */
#define H1_PIPELINE_MAX \
    ((size_t)64 << 10) /* bytes of following requests kept while one is handled */
#define H1_LINGER_MS 2000

/* Why a request cannot be served: a status and the text that names the limit or the fault. */
struct h1_fault {
    int status;
    const char *text;
};

/* ---- heads ---- */
struct h1_scan { /* progress over one request head, from its first byte */
    size_t pos, line_start;
    size_t first_line; /* length of the request line, 0 = not seen whole yet */
    unsigned lines;    /* header lines */
};
enum h1_scan_result { H1_SCAN_MORE, H1_SCAN_DONE, H1_SCAN_FAULT };
/* Looks for the end of the head in data (which starts at the request's first byte). DONE: *ret_len
 * is its size. */
enum h1_scan_result h1_scan_head(struct h1_scan *scan, const struct h1_limits *lim,
                                 const char *data, size_t len, size_t *ret_len,
                                 struct h1_fault *ret_fault);

enum h1_body_mode { H1_BODY_NONE, H1_BODY_LENGTH, H1_BODY_CHUNKED };

/* Where in a trailer line the body stands. */
struct h1_trailer {
    size_t len;
    bool cr, colon;
};

struct h1_req {
    struct h1_conn *conn; /* NULL after an upgrade */
    struct h1_req_ops ops;
    void *ud, *data;
    llhttp_t parser;
    /* the request */
    const char *method, *target, *path, *query;
    struct h1_header *headers;
    size_t n_headers, max_headers;
    bool http10, is_head, keep_alive, upgrade, expect_continue, ends_with_client;
    /* its body */
    enum h1_body_mode body_mode;
    uint64_t remaining;  /* LENGTH: bytes still to come */
    uint64_t body_bytes; /* received */
    uint64_t body_limit; /* UINT64_MAX = none */
    size_t ext_bytes, trailer_bytes, frame_bytes, drained;
    bool in_trailers;
    struct h1_trailer trailer;
    bool body_started, body_paused, body_done, body_end_told, continue_due;
    bool collecting;
    struct buf collected;
    void (*collect_cb)(struct h1_req *r, const char *data, size_t len, void *ud);
    void *collect_ud;
    struct h1_fault fault; /* what the body earned; status 0 = nothing */
    /* the response */
    int status;
    bool started, ended, cut, chunked, until_close, no_body, closed;
    uint64_t out_left;  /* declared length: bytes still owed */
    uint64_t out_bytes; /* body bytes written */
    struct buf head;    /* response head waiting for the first bytes of the body */
    int64_t start_us;
};

/* Parses a complete head (len from h1_scan_head, lines of the scan). 0, or -EBADMSG with
 * *ret_fault, or -ENOMEM. */
int h1_parse_head(const struct h1_scan *scan, const char *data, size_t len, struct h1_req **ret,
                  struct h1_fault *ret_fault);
void h1_req_free(struct h1_req *r);
const char *h1_parser_reason(const llhttp_t *p); /* never NULL */

/* ---- connections ---- */
enum h1_wait {
    H1_WAIT_IDLE,
    H1_WAIT_HEAD,
    H1_WAIT_BODY,
    H1_WAIT_DRAIN,
    H1_WAIT_WRITE,
    H1_WAIT_KINDS,
    H1_WAIT_NONE
};

struct h1_timeout {
    struct list link;
    uint64_t due_ms;
};

/* How a connection is to end: not at all, answered and lingering, at once, or by a reset. */
enum h1_ending { H1_STAY, H1_END_LINGER, H1_END_NOW, H1_END_RESET };

struct h1_conn {
    struct h1_server *server;
    struct sock *sock; /* NULL once handed over */
    struct h1_req *req;
    struct list link, deferred;
    struct h1_timeout wait, write_wait;
    enum h1_wait wait_kind;
    enum h1_ending ending;
    bool running;       /* h1_conn_run is on the stack: changes are seen by it */
    bool eof;           /* the client ended its side */
    bool broken;        /* nothing can be sent any more */
    bool close_after;   /* no request is served after the present one */
    bool progress;      /* body bytes or a finished request: time limits start anew */
    uint64_t sent_mark; /* sock_sent() when the write time limit was armed */
    struct buf in;      /* bytes that came, the first in_used of them used already */
    size_t in_used;
    const char *cur; /* while running: the rest of the input */
    size_t cur_len;
    struct h1_scan scan;
};

/* Bytes that came and are not used yet. */
static inline size_t h1_conn_input(const struct h1_conn *c) {
    return c->running ? c->cur_len : c->in.len - c->in_used;
}

int h1_conn_new(struct h1_server *s, int fd, struct h1_conn **ret); /* owns fd, also on failure */
/* Ends it at once: on_close(false) of its request is called inside, the connection is freed. Not
 * while it runs. */
void h1_conn_cut(struct h1_conn *c);
/* Answers 503 as plain text and closes: for one connection too many. Frees it. */
void h1_conn_turn_away(struct h1_conn *c, const char *text);
void h1_conn_close_if_idle(struct h1_conn *c);
void h1_conn_run(
    struct h1_conn *c); /* does everything that can be done now; may free the connection */
void h1_conn_kick(
    struct h1_conn *c); /* something changed: h1_conn_run comes, never inside this call */
void h1_conn_expired(struct h1_conn *c, enum h1_wait kind); /* may free the connection */
void h1_conn_break(struct h1_conn *c); /* the stream is broken: on_close(false) follows */
/* The request in flight earned an error: answered when no response was begun, then the connection
 * is cut. */
void h1_conn_fault(struct h1_conn *c, int status, const char *text);
void h1_conn_output_changed(struct h1_conn *c);
/* Before an upgrade: gives the unused bytes back to the socket. 0 or -ENOMEM. */
int h1_conn_unread(struct h1_conn *c);
/* Ends the request of an upgraded connection; its socket is the caller's now. */
struct sock *h1_conn_detach(struct h1_conn *c);

/* Uses bytes for the request's body. Returns how many were used, or -EBADMSG with r->fault set.
 * Calls on_body. */
ssize_t h1_body_feed(struct h1_req *r, const char *data, size_t len);
bool h1_body_is_wanted(const struct h1_req *r);
/* on_body_end or the collected body, once. Returns true when something was delivered. */
bool h1_body_tell_end(struct h1_req *r);

/* Sends a response head that still waits for its first body bytes. */
void h1_flush_head(struct h1_req *r);
/* Writes a complete error response. */
void h1_write_fault(struct h1_conn *c, int status, const char *text);
void h1_write_text(struct h1_conn *c, int status, const char *type, const char *body, size_t len);

/* ---- the server ---- */
struct h1_server {
    uv_loop_t *loop;
    struct h1_server_opts opts; /* limits without zeros */
    char *extra;                /* the extra headers as they go out */
    size_t extra_len;
    struct list listeners, conns, deferred;
    uv_timer_t accept_again; /* runs while accepting is paused for want of descriptors */
    int spare_fd;            /* given up for a moment when descriptors run out */
    size_t n_conns;
    struct list waits[H1_WAIT_KINDS]; /* each in the order of due times: one constant per kind */
    uv_timer_t timer, grace;
    uint64_t timer_due; /* 0 = not armed */
    uv_idle_t idle;     /* runs while `deferred` has entries */
    unsigned open_handles;
    bool draining, freed;
    void (*drain_cb)(void *ud);
    void *drain_ud;
    struct buf scratch; /* response heads are built here */
    char date[40];
    time_t date_at;
};

void h1_server_wait(struct h1_server *s, struct h1_timeout *t,
                    enum h1_wait kind); /* (re)starts a time limit */
void h1_server_defer(struct h1_server *s, struct h1_conn *c);
void h1_server_conn_gone(struct h1_server *s);   /* after a connection left the list */
const char *h1_server_date(struct h1_server *s); /* the whole header line */
