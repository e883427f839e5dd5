/*
 * One blocking HTTP exchange with the server: runs the client's loop until the answer is complete.
 * Requests that may be repeated use kept connections, and are repeated once when such a connection
 * turns out to be dead; all others get a connection of their own.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "client/internal.h"

struct exchange {
    const struct transport_req *rq;
    struct transport_resp *resp;
    struct h1_call *call;
    int64_t total;
    bool done, body_ended, stale;
    int error;       /* of the connection, from on_end */
    int local_error; /* of read_body or on_body: the caller's own */
    struct err err;
};

void transport_resp_done(struct transport_resp *r) {
    buf_done(&r->body);
}

void transport_addr(const struct cove_client *c, struct sock_addr *ret) {
    *ret = (struct sock_addr){.unix_path = c->unix_path, .host = c->host, .port = c->port};
}

int transport_headers(const struct cove_client *c, const struct agent *agent,
                      const char *content_type, struct h1_header ret[TRANSPORT_HEADERS_MAX]) {
    size_t n = 0;
    ret[n++] = (struct h1_header){"User-Agent", "cove/" COVE_VERSION};
    if (c->api_key)
        ret[n++] = (struct h1_header){"OPEN-SANDBOX-API-KEY", c->api_key};
    if (content_type)
        ret[n++] = (struct h1_header){"Content-Type", content_type};
    for (size_t i = 0; agent && i < agent->names.n; i++) {
        if (n >= TRANSPORT_HEADERS_MAX - 6) /* room for the upgrade's own */
            return -E2BIG;
        ret[n++] = (struct h1_header){agent->names.v[i], agent->values.v[i]};
    }
    ret[n] = (struct h1_header){NULL, NULL};
    return (int)n;
}

static void on_response(struct h1_call *call, int status, const struct h1_header *headers,
                        size_t n_headers, int64_t length, void *ud) {
    struct exchange *x = ud;
    x->resp->status = status;
    x->total = length;
}

static void on_data(struct h1_call *call, const char *data, size_t len, void *ud) {
    struct exchange *x = ud;
    if (x->local_error)
        return;
    if (x->rq->on_body && x->resp->status / 100 == 2)
        x->local_error = x->rq->on_body(data, len, x->total, x->rq->ud);
    else
        x->local_error = buf_append(&x->resp->body, data, len);
    if (x->local_error)
        h1_call_pause(call);
}

/* Feeds the request body until the connection has enough queued. */
static void pump_body(struct exchange *x) {
    char chunk[65536];
    while (!x->done && !x->body_ended && !x->local_error && x->resp->status == 0) {
        ssize_t n = x->rq->read_body(chunk, sizeof(chunk), x->rq->ud);
        if (n < 0) {
            x->local_error = (int)n;
            return;
        }
        if (n == 0) {
            x->body_ended = true;
            h1_call_end(x->call);
            return;
        }
        ssize_t queued = h1_call_write(x->call, chunk, (size_t)n);
        if (queued < 0 || (size_t)queued > SOCK_HIGH_WATER)
            return; /* on_drain goes on; a broken connection ends in on_end */
    }
}

static void on_drain(struct h1_call *call, void *ud) {
    struct exchange *x = ud;
    if (x->rq->read_body)
        pump_body(x);
}

static void on_end(struct h1_call *call, int error, const struct err *e, void *ud) {
    struct exchange *x = ud;
    x->stale = error < 0 && h1_call_was_stale(call);
    x->call = NULL;
    x->done = true;
    x->error = error;
    if (e)
        x->err = *e;
}

static const struct h1_call_ops exchange_ops = {
    .on_response = on_response, .on_data = on_data, .on_drain = on_drain, .on_end = on_end};

static bool may_repeat(const struct transport_req *rq) {
    return !rq->read_body && !rq->on_body &&
           (str_eq(rq->method, "GET") || str_eq(rq->method, "DELETE"));
}

int transport_fail(const struct cove_client *c, int error, const struct err *e,
                   struct cove_error *err) {
    switch (error) {
    case -ENOENT:
    case -ECONNREFUSED:
        return cerr_set(err, error, "nothing listens at %s", c->address);
    case -EACCES:
    case -EPERM:
        return cerr_set(err, -EACCES, "no permission to use %s", c->address);
    case -ETIMEDOUT:
        return cerr_set(err, error, "the server at %s does not answer", c->address);
    case -ECONNRESET:
    case -EPIPE:
        return cerr_set(err, -ECONNRESET,
                        "the server at %s closed the connection before it had answered",
                        c->address);
    default:
        return cerr_set(err, error, "the exchange with %s failed: %s", c->address,
                        e && e->msg[0] ? e->msg : strerror(-error));
    }
}

static int exchange_run(struct cove_client *c, struct exchange *x, struct cove_error *err) {
    const struct transport_req *rq = x->rq;
    struct h1_header headers[TRANSPORT_HEADERS_MAX];
    int r = transport_headers(c, rq->agent, rq->content_type, headers);
    if (r < 0)
        return cerr_set(err, r, "the server asks for too many headers");
    struct h1_call_opts o = {
        .pool = may_repeat(rq) ? c->pool : NULL,
        .method = rq->method,
        .target = rq->target,
        .headers = headers,
        .body = rq->read_body ? NULL : rq->body,
        .body_length = rq->read_body ? rq->body_length : (int64_t)rq->body_len,
        .silence_timeout_ms = rq->silence_ms == UINT_MAX ? 0
                              : rq->silence_ms           ? rq->silence_ms
                                                         : CONTROL_TIMEOUT_MS,
    };
    transport_addr(c, &o.addr);
    r = h1_call(&c->loop, &o, &exchange_ops, x, &x->call);
    if (r < 0)
        return transport_fail(c, r, NULL, err);
    if (rq->read_body)
        pump_body(x);
    while (!x->done && !x->local_error) {
        if (client_take_interrupt(c)) {
            h1_call_cancel(x->call);
            return cerr_set(err, -EINTR, "interrupted");
        }
        uv_run(&c->loop, UV_RUN_ONCE);
    }
    if (x->local_error) {
        if (!x->done)
            h1_call_cancel(x->call);
        return x->local_error == -ENOBUFS
                   ? cerr_set(err, -EFBIG, "the server's answer is longer than 64 MiB")
                   : cerr_sys(err, x->local_error, "the transfer was ended");
    }
    /* an error answer may come before a body was sent whole, and the connection break after it */
    if (x->error < 0 && !(rq->read_body && x->resp->status >= 300))
        return transport_fail(c, x->error, &x->err, err);
    return 0;
}

int transport_run(struct cove_client *c, const struct transport_req *rq, struct transport_resp *ret,
                  struct cove_error *err) {
    int r;
    for (int attempt = 0;; attempt++) {
        struct transport_resp resp = {.body = BUF_INIT(RESPONSE_MAX)};
        struct exchange x = {.rq = rq, .resp = &resp, .total = -1};
        r = exchange_run(c, &x, err);
        if (r == 0) {
            *ret = resp;
            return 0;
        }
        transport_resp_done(&resp);
        if (!x.stale || attempt > 0)
            return r;
    }
}

int transport_ok(struct cove_client *c, const struct transport_req *rq, struct transport_resp *ret,
                 const char *doing, struct cove_error *err) {
    struct transport_resp resp = {0};
    int r = transport_run(c, rq, &resp, err);
    if (r == -EINTR)
        return r;
    if (r < 0)
        return cerr_wrap(err, "cannot %s", doing), r;
    if (resp.status / 100 != 2) {
        r = cerr_from_response(err, resp.status, resp.body.data ? resp.body.data : "",
                               resp.body.len, doing);
        transport_resp_done(&resp);
        return r;
    }
    if (ret)
        *ret = resp;
    else
        transport_resp_done(&resp);
    return 0;
}

int transport_json(struct cove_client *c, const struct transport_req *rq, json_t **ret,
                   const char *doing, struct cove_error *err) {
    struct transport_resp resp = {0};
    int r = transport_ok(c, rq, &resp, doing, err);
    if (r < 0)
        return r;
    struct err e = {0};
    json_t *j = json_parse(resp.body.data ? resp.body.data : "", resp.body.len, &e);
    transport_resp_done(&resp);
    if (!j)
        return cerr_set(err, -EBADMSG, "cannot %s: the server's answer is not JSON: %s", doing,
                        err_text(&e));
    *ret = j;
    return 0;
}
