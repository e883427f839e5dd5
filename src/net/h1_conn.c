/*
 * One connection of the HTTP server: the order of things.
 *
 * h1_conn_run is the only place where input is used and requests begin and end. It takes one step
 * after the other until nothing more can be done, then settles what to wait for. Everything else
 * (calls of handlers, time limits, the socket) changes flags and leads there. Handlers are
 * therefore never called from inside their own calls of h1_*, except on_close in h1_upgrade and in
 * h1_server_free.
 *
 * Invariants: at most one request exists; unused input is in `in` (outside of a run) or cur/cur_len
 * (inside). A request that is `closed` only stays to drain its body.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "net/h1_internal.h"

static void on_read(struct sock *s, const char *data, ssize_t len, void *ud);
static void on_drain(struct sock *s, void *ud);
static void on_flush(struct sock *s, void *ud);

static const struct sock_ops conn_ops = {
    .on_read = on_read, .on_drain = on_drain, .on_flush = on_flush};

static void start_wait(struct h1_conn *c, enum h1_wait kind) {
    c->wait_kind = kind;
    list_remove(&c->wait.link);
    if (kind != H1_WAIT_NONE)
        h1_server_wait(c->server, &c->wait, kind);
}

int h1_conn_new(struct h1_server *s, int fd, struct h1_conn **ret) {
    struct h1_conn *c = calloc(1, sizeof *c);
    int r;

    if (!c) {
        fd_close(fd);
        return -ENOMEM;
    }
    r = sock_open(s->loop, fd, &c->sock);
    if (r < 0) {
        free(c);
        return r;
    }
    c->server = s;
    buf_init(&c->in,
             2 * (s->opts.limits.max_target + s->opts.limits.max_headers + 4 * H1_PIPELINE_MAX));
    list_init(&c->deferred);
    list_init(&c->wait.link);
    list_init(&c->write_wait.link);
    list_append(&s->conns, &c->link);
    s->n_conns++;
    start_wait(c, H1_WAIT_IDLE);
    sock_set_ops(c->sock, &conn_ops, c);
    sock_read_start(c->sock);
    *ret = c;
    return 0;
}

static void conn_free(struct h1_conn *c) {
    struct h1_server *s = c->server;

    if (c->sock && c->ending == H1_END_RESET)
        sock_reset(c->sock);
    else if (c->sock)
        sock_close(c->sock, c->ending == H1_END_LINGER ? H1_LINGER_MS : 0);
    list_remove(&c->link);
    list_remove(&c->deferred);
    list_remove(&c->wait.link);
    list_remove(&c->write_wait.link);
    h1_req_free(c->req);
    buf_done(&c->in);
    free(c);
    s->n_conns--;
    h1_server_conn_gone(s);
}

/* ---- requests begin and end ---- */

/* The server's owner; the socket is still there, its peer can be asked. */
static void tell_done(const struct h1_conn *c) {
    const struct h1_req *r = c->req;
    const struct h1_server_opts *o = &c->server->opts;

    if (o->on_done)
        o->on_done(r, r->status, r->out_bytes, clock_mono_us() - r->start_us, o->ud);
}

static void tell_close(struct h1_conn *c, bool completed) {
    struct h1_req *r = c->req;

    r->closed = true;
    c->progress = true;
    if (r->ops.on_close)
        r->ops.on_close(r, completed, r->ud);
    buf_done(&r->collected);
    buf_done(&r->head);
}

/* Tells the handler and the server's owner; the struct stays until its body is out of the way. */
static void end_request(struct h1_conn *c, bool completed) {
    tell_done(c);
    tell_close(c, completed);
}

static void use_input(struct h1_conn *c, size_t n) {
    c->cur += n;
    c->cur_len -= n;
}

static bool refuse_input(struct h1_conn *c, int status, const char *text) {
    h1_write_fault(c, status, text);
    c->ending = H1_END_LINGER;
    return false;
}

/* Empty lines before a request are tolerated. */
static void skip_empty_lines(struct h1_conn *c) {
    while (c->scan.pos == 0 && c->cur_len >= 2 && c->cur[0] == '\r' && c->cur[1] == '\n')
        use_input(c, 2);
}

/* Returns true when a request was begun. */
static bool read_head(struct h1_conn *c) {
    struct h1_server *s = c->server;
    struct h1_fault f = {0};
    struct h1_req *r = NULL;
    size_t len = 0;
    int e;

    skip_empty_lines(c);
    if (!c->cur_len || (c->cur_len == 1 && *c->cur == '\r' && c->scan.pos == 0))
        return false;
    switch (h1_scan_head(&c->scan, &s->opts.limits, c->cur, c->cur_len, &len, &f)) {
    case H1_SCAN_MORE:
        return false;
    case H1_SCAN_FAULT:
        return refuse_input(c, f.status, f.text);
    case H1_SCAN_DONE:
        break;
    }
    e = h1_parse_head(&c->scan, c->cur, len, &r, &f);
    if (e < 0)
        return e == -EBADMSG ? refuse_input(c, f.status, f.text)
                             : refuse_input(c, 503, "out of memory");
    c->scan = (struct h1_scan){0};
    use_input(c, len);
    r->conn = c;
    r->start_us = s->opts.on_done ? clock_mono_us() : 0;
    c->req = r;
    s->opts.on_request(r, s->opts.ud);
    return true;
}

static bool feed_body(struct h1_conn *c) {
    struct h1_req *r = c->req;
    ssize_t n = h1_body_feed(r, c->cur, c->cur_len);

    if (n < 0) {
        if (r->closed)
            c->ending = H1_END_LINGER;
        else if (r->ended) /* the response stays good, the connection does not */
            c->close_after = r->body_done = true;
        else
            h1_conn_fault(c, r->fault.status, r->fault.text);
        c->cur_len = 0;
        return true;
    }
    use_input(c, (size_t)n);
    if (!r->closed)
        c->progress = true;
    return n > 0 || r->body_done;
}

/* The client has ended its side: is there still somebody to talk to? */
static bool is_left_alone(const struct h1_conn *c) {
    const struct h1_req *r = c->req;

    if (!c->eof || c->cur_len || r->ended)
        return false;
    if (!r->body_done || r->ends_with_client)
        return true; /* a truncated request, or nobody an answer is made for */
    /* A stream without a known end would go on for nobody; a plain answer may be waited for. */
    return r->started && (r->chunked || r->until_close);
}

static bool end_connection(struct h1_conn *c, enum h1_ending how) {
    c->ending = how;
    return false;
}

static bool step_request(struct h1_conn *c) {
    struct h1_req *r = c->req;

    if (!r->closed && (c->broken || r->cut)) {
        end_request(c, false);
        return end_connection(c, c->broken                       ? H1_END_NOW
                                 : r->until_close || !r->started ? H1_END_RESET
                                                                 : H1_END_LINGER);
    }
    if (!r->closed && r->ended && !sock_queued(c->sock)) {
        end_request(c, true);
        return true;
    }
    if (r->closed && (c->close_after || c->broken || (c->eof && !c->cur_len)))
        return end_connection(c, c->broken ? H1_END_NOW : H1_END_LINGER);
    if (r->closed && r->body_done) {
        h1_req_free(TAKE_PTR(c->req));
        return true;
    }
    if (c->cur_len && h1_body_is_wanted(r))
        return feed_body(c);
    if (h1_body_tell_end(r))
        return true;
    if (is_left_alone(c)) {
        c->broken = true;
        return true;
    }
    return false;
}

/* One step; false when there is nothing more to do now. */
static bool step(struct h1_conn *c) {
    if (!c->sock || c->ending != H1_STAY)
        return false;
    if (c->req)
        return step_request(c);
    if (c->broken)
        return end_connection(c, H1_END_NOW);
    if (c->close_after || c->server->draining)
        return end_connection(c, H1_END_LINGER);
    if (c->cur_len && read_head(c))
        return true;
    if (c->eof && c->ending == H1_STAY)
        return end_connection(c, H1_END_NOW);
    return false;
}

/* ---- what to wait for ---- */

static void settle_waits(struct h1_conn *c) {
    const struct h1_req *r = c->req;
    enum h1_wait kind;

    if (!r)
        kind = h1_conn_input(c) ? H1_WAIT_HEAD : H1_WAIT_IDLE;
    else if (r->closed)
        kind = H1_WAIT_DRAIN;
    else
        kind = h1_body_is_wanted(r) ? H1_WAIT_BODY : H1_WAIT_NONE;
    if (kind != c->wait_kind || (c->progress && kind != H1_WAIT_NONE))
        start_wait(c, kind);
    c->progress = false;
}

static void settle_reads(struct h1_conn *c) {
    const struct h1_req *r = c->req;
    bool want = !r || h1_body_is_wanted(r) || (r->body_done && h1_conn_input(c) < H1_PIPELINE_MAX);

    if (want && !c->eof)
        sock_read_start(c->sock);
    else
        sock_read_stop(c->sock);
}

/* Makes the input a run works on: what was kept, and the new bytes. True when it lies in `in`. */
static bool take_input(struct h1_conn *c, const char *data, size_t len) {
    bool kept = h1_conn_input(c) > 0;

    if (kept && len && buf_append(&c->in, data, len) < 0)
        c->broken = true;
    c->cur = kept ? c->in.data + c->in_used : data;
    c->cur_len = kept ? c->in.len - c->in_used : len;
    return kept;
}

/* Keeps what is left. Moved down only once half is used, so that many small steps stay cheap. */
static void keep_input(struct h1_conn *c, bool kept) {
    if (!c->cur_len) {
        buf_done(&c->in);
        c->in_used = 0;
    } else if (!kept) {
        if (buf_append(&c->in, c->cur, c->cur_len) < 0)
            h1_conn_break(c);
    } else {
        c->in_used = c->in.len - c->cur_len;
        if (c->in_used > c->in.len / 2) {
            buf_consume(&c->in, c->in_used);
            c->in_used = 0;
        }
    }
    c->cur = NULL;
    c->cur_len = 0;
}

static void run(struct h1_conn *c, const char *data, size_t len) {
    bool kept = take_input(c, data, len);

    c->running = true;
    while (step(c))
        ;
    c->running = false;
    if (!c->sock || c->ending != H1_STAY) {
        conn_free(c);
        return;
    }
    keep_input(c, kept);
    if (c->req)
        h1_flush_head(c->req);
    settle_waits(c);
    settle_reads(c);
}

void h1_conn_run(struct h1_conn *c) {
    run(c, NULL, 0);
}

void h1_conn_kick(struct h1_conn *c) {
    if (c && !c->running)
        h1_server_defer(c->server, c);
}

/* ---- the socket ---- */

static void on_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct h1_conn *c = ud;

    if (len < 0)
        c->broken = true;
    else if (len == 0)
        c->eof = true;
    run(c, data, len > 0 ? (size_t)len : 0);
}

static void on_drain(struct sock *s, void *ud) {
    struct h1_conn *c = ud;
    struct h1_req *r = c->req;

    if (r && !r->closed && !r->ended && !r->cut && r->ops.on_drain)
        r->ops.on_drain(r, r->ud);
}

static void on_flush(struct sock *s, void *ud) {
    h1_conn_run(ud);
}

void h1_conn_output_changed(struct h1_conn *c) {
    if (!sock_queued(c->sock) || !list_is_empty(&c->write_wait.link))
        return;
    c->sent_mark = sock_sent(c->sock);
    h1_server_wait(c->server, &c->write_wait, H1_WAIT_WRITE);
}

/* ---- ends ---- */

void h1_conn_break(struct h1_conn *c) {
    c->broken = true;
    h1_conn_kick(c);
}

void h1_conn_fault(struct h1_conn *c, int status, const char *text) {
    struct h1_req *r = c->req;

    if (!r->started && r->ops.on_fault) {
        c->close_after = true;
        r->ops.on_fault(r, status, text, r->ud);
        if (r->ended) {
            r->body_done = true; /* nobody reads the rest */
            h1_conn_kick(c);
            return;
        }
    }
    if (!r->started) {
        r->started = true;
        r->status = status;
        h1_write_fault(c, status, text);
    }
    r->cut = true;
    h1_conn_kick(c);
}

void h1_conn_cut(struct h1_conn *c) {
    if (c->req && !c->req->closed)
        end_request(c, false);
    c->ending = H1_END_NOW;
    conn_free(c);
}

/* Answers with an error and closes; for a connection without a request in flight. Frees it. */
static void h1_conn_refuse(struct h1_conn *c, int status, const char *text) {
    h1_write_fault(c, status, text);
    c->ending = H1_END_LINGER;
    conn_free(c);
}

void h1_conn_turn_away(struct h1_conn *c, const char *text) {
    h1_write_text(c, 503, "text/plain; charset=utf-8", text, strlen(text));
    c->ending = H1_END_LINGER;
    conn_free(c);
}

void h1_conn_close_if_idle(struct h1_conn *c) {
    if (c->req)
        return;
    c->ending = h1_conn_input(c) ? H1_END_LINGER : H1_END_NOW;
    conn_free(c);
}

void h1_conn_expired(struct h1_conn *c, enum h1_wait kind) {
    struct h1_req *r = c->req;

    switch (kind) {
    case H1_WAIT_HEAD:
        h1_conn_refuse(c, 408, "the request head took longer than header_timeout_ms");
        break;
    case H1_WAIT_BODY:
        c->wait_kind = H1_WAIT_NONE;
        h1_conn_fault(c, 408, "the request body paused longer than body_timeout_ms");
        break;
    case H1_WAIT_WRITE:
        if (sock_queued(c->sock) && sock_sent(c->sock) == c->sent_mark)
            h1_conn_cut(c);
        else
            h1_conn_output_changed(c);
        break;
    default: /* idle, or a body that does not end */
        c->ending = r ? H1_END_LINGER : H1_END_NOW;
        conn_free(c);
    }
}

int h1_conn_unread(struct h1_conn *c) {
    size_t len = h1_conn_input(c);
    const char *rest = c->running ? c->cur : len ? c->in.data + c->in_used : NULL;

    sock_read_stop(c->sock);
    return sock_unread(c->sock, rest, len);
}

struct sock *h1_conn_detach(struct h1_conn *c) {
    tell_done(c);
    struct sock *s = TAKE_PTR(c->sock);
    sock_set_ops(s, NULL, NULL);
    tell_close(c, true);
    h1_req_free(TAKE_PTR(c->req));
    if (!c->running)
        conn_free(c);
    return s;
}
