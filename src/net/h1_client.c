/*
 * HTTP/1.1 client calls (see h1_client.h).
 *
 * A call owns its dial, then its sock, until the response is complete (back to the pool), an
 * upgrade (handed over) or a failure (closed). Invariants: exactly one of dial and sock is set
 * while the call lives; the owner's callbacks are made from the loop only, never from inside
 * h1_call, _write, _end, _pause, _resume or _cancel; after `is_dead` none is made. The memory goes
 * with the timer's close callback, so it stays readable while the functions on the stack return.
 * Loop thread only.
 */
#include "net/h1_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "net/h1_client_parser.h"
#include "net/h1_client_pool.h"

#define CONNECT_TIMEOUT_MS 10000
#define MAX_PENDING \
    ((size_t)64 << 20) /* request bytes before the connection stands; writers stop far below */

struct h1_call {
    uv_loop_t *loop;
    struct h1_call_ops ops;
    void *ud;
    struct h1_pool *pool;
    char *key;
    struct sock_dial *dial;
    struct sock *sock;
    uv_timer_t timer; /* silence before the head; after it, what a resume has to deliver */
    struct h1_response response;
    struct buf pending;
    bool is_chunked, is_request_done,
        is_request_broken; /* all handed to the sock / not taken any more */
    uint64_t body_left;
    bool is_reused, has_input, has_head, is_paused, is_dead;
    bool pending_was_high;
    unsigned silence_ms;
    int failed; /* found inside an exported function, reported from the loop */
};

static void on_deferred(uv_timer_t *t);

/* ---- the end ---- */

static void on_timer_closed(uv_handle_t *h) {
    struct h1_call *c = h->data;

    h1_response_done(&c->response);
    buf_done(&c->pending);
    h1_pool_unref(c->pool);
    free(c->key);
    free(c);
}

/* Ends the call: what it still owns goes. */
static void bury(struct h1_call *c) {
    c->is_dead = true;
    if (c->dial)
        sock_dial_cancel(TAKE_PTR(c->dial));
    if (c->sock)
        sock_close(TAKE_PTR(c->sock), 0);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

static void finish(struct h1_call *c, int error, const struct err *err) {
    bury(c);
    if (c->ops.on_end)
        c->ops.on_end(c, error, err, c->ud);
}

void h1_call_cancel(struct h1_call *c) {
    if (c && !c->is_dead)
        bury(c);
}

bool h1_call_was_stale(const struct h1_call *c) {
    return c->is_reused && !c->has_input;
}

static void complete(struct h1_call *c, size_t left_over) {
    static const struct err none = {0};
    bool keep = c->pool && c->response.keep_alive && c->is_request_done && !c->is_request_broken &&
                left_over == 0;

    if (keep)
        h1_pool_put(c->pool, c->key, TAKE_PTR(c->sock));
    finish(c, 0, &none);
}

/* ---- silence ---- */

static void on_silence(uv_timer_t *t);

/* Only what the peer owes us counts: the head once the request is out, or taking the request's
 * bytes. */
static void watch_silence(struct h1_call *c) {
    if (c->has_head || c->is_dead || c->failed || !c->sock)
        return;
    if (c->silence_ms)
        uv_timer_start(&c->timer, on_silence, c->silence_ms, 0);
}

static void on_silence(uv_timer_t *t) {
    struct h1_call *c = t->data;
    struct err err = {0};

    if (!c->is_request_done && !c->is_request_broken && sock_queued(c->sock) == 0) {
        watch_silence(c); /* we wait for our own caller */
        return;
    }
    err_set(&err, -ETIMEDOUT, "no response within %u ms", c->silence_ms);
    finish(c, err.code, &err);
}

/* ---- the response ---- */

static void upgraded(struct h1_call *c, const char *data, size_t len) {
    struct sock *s = TAKE_PTR(c->sock);
    struct err err = {0};

    sock_read_stop(s);
    sock_set_ops(s, NULL, NULL);
    if (len && sock_unread(s, data, len) < 0) {
        sock_close(s, 0);
        err_set(&err, -ECONNRESET, "out of memory at the upgrade");
        finish(c, err.code, &err);
        return;
    }
    bury(c);
    if (c->ops.on_upgrade)
        c->ops.on_upgrade(c, c->response.headers, c->response.n_headers, s, c->ud);
    else
        sock_close(s, 0);
}

static void deliver_head(struct h1_call *c) {
    struct h1_response *p = &c->response;

    c->has_head = true;
    uv_timer_stop(&c->timer);
    if (c->ops.on_response)
        c->ops.on_response(c, p->status, p->headers, p->n_headers, p->length, c->ud);
    if (!c->is_dead)
        h1_response_drop_head(p);
}

/* The owner paused: nothing more is delivered. Bytes go back to the sock, an event without bytes to
 * the timer. */
static void hold(struct h1_call *c, const char *data, size_t len) {
    sock_read_stop(c->sock);
    if (len && sock_unread(c->sock, data, len) < 0)
        c->failed = -ENOMEM;
}

/* Feeds the parser and delivers, until the bytes are used, the owner pauses or the call ends. */
static void process(struct h1_call *c, const char *data, size_t len) {
    struct err err = {0};

    while (!c->is_dead) {
        if (c->is_paused) {
            hold(c, data, len);
            return;
        }
        int r = h1_response_next(&c->response, &data, &len, &err);
        switch (r) {
        case H1_RESPONSE_MORE:
            return;
        case H1_RESPONSE_HEAD:
            deliver_head(c);
            break;
        case H1_RESPONSE_DATA:
            if (c->ops.on_data)
                c->ops.on_data(c, c->response.piece, c->response.piece_len, c->ud);
            break;
        case H1_RESPONSE_END:
            complete(c, len);
            return;
        case H1_RESPONSE_UPGRADE:
            upgraded(c, data, len);
            return;
        default:
            finish(c, r, &err);
            return;
        }
    }
}

static void on_sock_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct h1_call *c = ud;
    struct err err = {0};

    if (len > 0) {
        c->has_input = true;
        watch_silence(c);
        process(c, data, (size_t)len);
        return;
    }
    if (len < 0 && !c->response.until_close) {
        err_set(&err, -ECONNRESET, "the connection was dropped");
        finish(c, c->has_head ? -EBADMSG : -ECONNRESET, &err);
        return;
    }
    int r = len < 0 ? err_set(&err, -EBADMSG, "the connection was dropped")
                    : h1_response_eof(&c->response, &err);
    finish(c, r, &err);
}

/* From the timer: a failure found earlier, or events that were held back by a pause. */
static void on_deferred(uv_timer_t *t) {
    struct h1_call *c = t->data;
    struct err err = {0};

    if (c->failed) {
        err_sys(&err, c->failed, "the request could not be sent");
        finish(c, c->failed, &err);
        return;
    }
    process(c, "", 0);
}

void h1_call_pause(struct h1_call *c) {
    c->is_paused = true;
    if (!c->is_dead && c->sock)
        sock_read_stop(c->sock);
}

void h1_call_resume(struct h1_call *c) {
    if (!c->is_paused)
        return;
    c->is_paused = false;
    if (c->is_dead || !c->sock)
        return;
    sock_read_start(c->sock);
    if (c->has_head)
        uv_timer_start(&c->timer, on_deferred, 0, 0);
}

/* ---- the request ---- */

static void fail_later(struct h1_call *c, int error) {
    c->failed = error;
    uv_timer_start(&c->timer, on_deferred, 0, 0);
}

static ssize_t send_bytes(struct h1_call *c, const uv_buf_t *bufs, unsigned n) {
    ssize_t r = 0;

    if (c->is_dead || c->is_request_broken)
        return -EPIPE;
    if (c->sock) {
        r = sock_writev(c->sock, bufs, n);
        if (r < 0)
            c->is_request_broken =
                true; /* reading goes on: an early answer may be there, and its end will come */
        return r;
    }
    for (unsigned i = 0; i < n && r == 0; i++)
        r = buf_append(&c->pending, bufs[i].base, bufs[i].len);
    if (r < 0) {
        c->is_request_broken = true;
        fail_later(c, (int)r);
        return r;
    }
    c->pending_was_high |= c->pending.len > SOCK_HIGH_WATER;
    return (ssize_t)c->pending.len;
}

ssize_t h1_call_write(struct h1_call *c, const void *data, size_t len) {
    uv_buf_t whole = {.base = (char *)data, .len = len};
    char size[24];
    ssize_t r;

    if (c->is_request_done)
        return -EINVAL;
    if (len == 0)
        return c->sock ? (ssize_t)sock_queued(c->sock) : (ssize_t)c->pending.len;
    if (c->is_chunked) {
        int n = snprintf(size, sizeof size, "%zx\r\n", len);
        uv_buf_t chunk[3] = {uv_buf_init(size, (unsigned)n), whole, uv_buf_init((char *)"\r\n", 2)};
        r = send_bytes(c, chunk, 3);
    } else {
        if (len > c->body_left)
            return -EINVAL;
        r = send_bytes(c, &whole, 1);
        c->body_left -= len;
    }
    watch_silence(c);
    return r;
}

void h1_call_end(struct h1_call *c) {
    uv_buf_t last = uv_buf_init((char *)"0\r\n\r\n", 5);

    if (c->is_request_done || c->is_dead)
        return;
    c->is_request_done = true;
    if (c->is_chunked)
        (void)send_bytes(c, &last, 1);
    else if (c->body_left > 0 && !c->is_request_broken)
        fail_later(c, -EINVAL); /* fewer bytes than promised: the peer would wait for ever */
    watch_silence(c);
}

static void on_sock_drain(struct sock *s, void *ud) {
    struct h1_call *c = ud;

    watch_silence(c);
    if (c->ops.on_drain && !c->is_request_done)
        c->ops.on_drain(c, c->ud);
}

static void connected(struct h1_call *c, struct sock *s) {
    static const struct sock_ops ops = {.on_read = on_sock_read, .on_drain = on_sock_drain};

    c->sock = s;
    sock_set_ops(s, &ops, c);
    if (c->pending.len && sock_write(s, c->pending.data, c->pending.len) < 0)
        c->is_request_broken = true;
    buf_done(&c->pending);
    if (!c->is_paused)
        sock_read_start(s);
    watch_silence(c);
}

static void on_dialled(struct sock *s, int error, void *ud) {
    struct h1_call *c = ud;
    struct err err = {0};

    c->dial = NULL;
    if (!s) {
        /* one class of errors for "could not connect", apart from those of a connection that stood
         */
        int code = error == -ETIMEDOUT                                            ? -EHOSTUNREACH
                   : error == -ECONNRESET || error == -EPIPE || error == -EBADMSG ? -ECONNREFUSED
                                                                                  : error;
        err_sys(&err, error, "could not connect");
        finish(c, code, &err);
        return;
    }
    connected(c, s);
    /* above the mark the sock calls back itself; below it, those who were told to wait must be told
     * to go on */
    if (c->pending_was_high && sock_queued(s) <= SOCK_HIGH_WATER && c->ops.on_drain &&
        !c->is_request_done)
        c->ops.on_drain(c, c->ud);
}

/* ---- the start ---- */

static bool is_token(const char *s) {
    return s && *s &&
           strspn(
               s,
               "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
               strlen(s);
}

/* Neither may smuggle a line, nor a blank into the request line. */
static bool is_target(const char *s) {
    for (const char *p = s; p && *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return false;
    return s && *s;
}

static bool is_value(const char *s) {
    return s && strcspn(s, "\r\n") == strlen(s);
}

static int add_headers(const struct h1_call_opts *o, struct buf *b) {
    bool has_host = false;

    for (const struct h1_header *h = o->headers; h && h->name; h++) {
        if (!is_token(h->name) || !is_value(h->value) || str_ieq(h->name, "Content-Length") ||
            str_ieq(h->name, "Transfer-Encoding") ||
            (str_ieq(h->name, "Connection") && !o->keep_upgrade))
            return -EINVAL;
        has_host |= str_ieq(h->name, "Host");
        buf_printf(b, "%s: %s\r\n", h->name, h->value);
    }
    if (!has_host && o->addr.host)
        buf_printf(b, strchr(o->addr.host, ':') ? "Host: [%s]:%u\r\n" : "Host: %s:%u\r\n",
                   o->addr.host, o->addr.port);
    else if (!has_host)
        buf_str(b, "Host: localhost\r\n");
    return 0;
}

static int format_head(const struct h1_call_opts *o, struct buf *b) {
    bool may_have_body =
        str_eq(o->method, "POST") || str_eq(o->method, "PUT") || str_eq(o->method, "PATCH");
    int r;

    if (!is_token(o->method) || !is_target(o->target) || o->body_length < -1 ||
        (o->body && o->body_length < 0) ||
        str_eq(o->method, "CONNECT") || /* its answer has no framing */
        (!o->addr.unix_path && !o->addr.host))
        return -EINVAL;
    buf_printf(b, "%s %s HTTP/1.1\r\n", o->method, o->target);
    r = add_headers(o, b);
    if (r < 0)
        return r;
    if (o->body_length > 0 || (o->body_length == 0 && may_have_body))
        buf_printf(b, "Content-Length: %lld\r\n", (long long)o->body_length);
    else if (o->body_length < 0)
        buf_str(b, "Transfer-Encoding: chunked\r\n");
    if (!o->keep_upgrade && !o->pool)
        buf_str(b, "Connection: close\r\n");
    buf_str(b, "\r\n");
    if (o->body)
        buf_append(b, o->body, (size_t)o->body_length);
    return buf_ok(b) ? 0 : -ENOMEM;
}

static char *make_key(const struct h1_call_opts *o) {
    if (o->pool_key)
        return strdup(o->pool_key);
    if (o->addr.unix_path)
        return str_printf("unix:%s", o->addr.unix_path);
    return str_printf("%s:%u", o->addr.host, o->addr.port);
}

static int start(struct h1_call *c, const struct h1_call_opts *o) {
    struct sock *s = NULL;

    if (c->pool && !o->fresh)
        s = h1_pool_take(c->pool, c->key, o->max_idle_ms);
    if (s) {
        c->is_reused = true;
        connected(c, s);
        return 0;
    }
    return sock_dial(c->loop, &o->addr,
                     o->connect_timeout_ms ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS, on_dialled,
                     c, &c->dial);
}

int h1_call(uv_loop_t *loop, const struct h1_call_opts *o, const struct h1_call_ops *ops, void *ud,
            struct h1_call **ret) {
    struct h1_call *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return -ENOMEM;
    c->loop = loop;
    c->ops = *ops;
    c->ud = ud;
    c->silence_ms = o->silence_timeout_ms;
    c->is_chunked = o->body_length < 0;
    c->body_left = o->body_length > 0 ? (uint64_t)o->body_length : 0;
    c->is_request_done = o->body_length == 0 || o->body;
    buf_init(&c->pending, MAX_PENDING);
    h1_response_init(&c->response, str_eq(o->method, "HEAD"), o->keep_upgrade);
    uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    r = format_head(o, &c->pending);
    if (r == 0 && o->pool) {
        c->pool = h1_pool_ref(o->pool);
        c->key = make_key(o);
        r = c->key ? 0 : -ENOMEM;
    }
    if (r == 0)
        r = start(c, o);
    if (r < 0) {
        bury(c);
        return r;
    }
    *ret = c;
    return 0;
}
