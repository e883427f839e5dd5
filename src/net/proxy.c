/*
 * Reverse proxy of one exchange (see proxy.h): joins a server request and a client call.
 *
 * Owns the call until it ends or hands its socket over, and itself until the request is closed and,
 * after an upgrade, the splice is done. Invariants: the response is paused while the client's queue
 * is high, the request body while the upstream's is; once the head went out a failure can only cut
 * the connection; on_close of the options is the last thing that happens. Loop thread only.
 */
#include "net/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "net/proxy_headers.h"
#include "net/splice.h"

/* A request that must not be sent twice takes a kept connection only when it is this young: few
 * servers end theirs within a second. */
#define MAX_IDLE_UNREPEATABLE_MS 1000

struct proxy {
    struct h1_req *req; /* NULL once closed */
    struct h1_call *call;
    struct proxy_opts o; /* all pointers are copies */
    struct strv strings;
    const char **drop_request, **drop_response;
    struct h1_header *add_request, *add_response;
    int netns_fd;
    bool is_repeatable, is_retried, is_upgrading;
};

static int start_call(struct proxy *p, struct err *err);

/* ---- beginning and end ---- */

static struct proxy *proxy_free(struct proxy *p) {
    strv_done(&p->strings);
    free(p->drop_request);
    free(p->drop_response);
    free(p->add_request);
    free(p->add_response);
    fd_close(p->netns_fd);
    free(p);
    return NULL;
}

static void done(void *ud) {
    struct proxy *p = ud;
    void (*cb)(void *) = p->o.on_close;
    void *cb_ud = p->o.ud;

    proxy_free(p);
    if (cb)
        cb(cb_ud);
}

/* Replaces *s by a copy of its own. */
static int keep(struct proxy *p, const char **s) {
    int r = 0;

    if (*s) {
        r = strv_add(&p->strings, *s);
        *s = r < 0 ? NULL : p->strings.v[p->strings.n - 1];
    }
    return r;
}

static int keep_list(struct proxy *p, const char *const *list, const char ***ret) {
    size_t n = 0;
    int r = 0;

    while (list && list[n])
        n++;
    *ret = calloc(n + 1, sizeof **ret);
    if (!*ret)
        return -ENOMEM;
    for (size_t i = 0; i < n && r == 0; i++) {
        (*ret)[i] = list[i];
        r = keep(p, &(*ret)[i]);
    }
    return r;
}

static int keep_headers(struct proxy *p, const struct h1_header *list, struct h1_header **ret) {
    size_t n = 0;
    int r = 0;

    while (list && list[n].name)
        n++;
    *ret = calloc(n + 1, sizeof **ret);
    if (!*ret)
        return -ENOMEM;
    for (size_t i = 0; i < n && r == 0; i++) {
        (*ret)[i] = list[i];
        r = keep(p, &(*ret)[i].name);
        if (r == 0)
            r = keep(p, &(*ret)[i].value);
    }
    return r;
}

/* May be sent again when a kept connection died under it: no body, and no effect that happens
 * twice. */
static bool is_repeatable(const struct h1_req *r) {
    static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"};

    if (h1_req_content_length(r) != 0)
        return false; /* one that was read already could be, but none of those is worth it */
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (str_eq(h1_req_method(r), methods[i]))
            return true;
    return false;
}

/* A retry may come when the caller's descriptor is closed. */
static int keep_netns(struct proxy *p) {
    p->netns_fd = fcntl(p->o.addr.netns_fd, F_DUPFD_CLOEXEC, 3);
    p->o.addr.netns_fd = p->netns_fd;
    return p->netns_fd < 0 ? -errno : 0;
}

static int proxy_new(struct h1_req *r, const struct proxy_opts *o, struct proxy **ret) {
    struct proxy *p = calloc(1, sizeof *p);
    int e;

    if (!p)
        return -ENOMEM;
    *p = (struct proxy){
        .req = r, .o = *o, .netns_fd = -1, .is_repeatable = o->pool && is_repeatable(r)};
    e = p->is_repeatable && o->addr.netns_fd > 0 ? keep_netns(p) : 0;
    const char **strings[] = {
        &p->o.addr.unix_path, &p->o.addr.host,       &p->o.pool_key, &p->o.target,
        &p->o.host,           &p->o.location_prefix, &p->o.body};
    for (size_t i = 0; i < ARRAY_SIZE(strings) && e == 0; i++)
        e = keep(p, strings[i]);
    if (e == 0)
        e = keep_list(p, o->drop_request, &p->drop_request);
    if (e == 0)
        e = keep_list(p, o->drop_response, &p->drop_response);
    if (e == 0)
        e = keep_headers(p, o->add_request, &p->add_request);
    if (e == 0)
        e = keep_headers(p, o->add_response, &p->add_response);
    if (e < 0) {
        proxy_free(p);
        return e;
    }
    p->o.drop_request = p->drop_request;
    p->o.drop_response = p->drop_response;
    p->o.add_request = p->add_request;
    p->o.add_response = p->add_response;
    *ret = p;
    return 0;
}

bool proxy_is_websocket(const struct h1_req *r) {
    return h1_req_is_upgrade(r) && str_ieq(h1_req_header(r, "Upgrade"), "websocket");
}

/* ---- failures ---- */

static void answer_failure(struct h1_req *r, const struct proxy_opts *o, int error,
                           const struct err *err) {
    static const struct h1_header headers[] = {{"Content-Type", "text/plain; charset=utf-8"}, {0}};
    char text[1200];
    int status = error == -ETIMEDOUT ? 504 : error == -ENOMEM ? 503 : 502;

    if (o->on_fail) {
        o->on_fail(r, error, err, o->ud);
        return;
    }
    snprintf(text, sizeof text, "%s: %s\n", h1_reason(status), err_text(err));
    h1_respond(r, status, headers, text, strlen(text));
}

static void fail(struct proxy *p, int error, const struct err *err) {
    log_debug("proxied request failed", LOG_STR("target", p->o.addr.host),
              LOG_INT("port", p->o.addr.port), LOG_ERR(err));
    if (h1_is_started(p->req))
        h1_abort(p->req);
    else
        answer_failure(p->req, &p->o, error, err);
}

/* ---- the client's side ---- */

static void on_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    struct proxy *p = ud;
    ssize_t queued = p->call ? h1_call_write(p->call, data, len) : 0;

    /* not taken: the upstream's early answer, or its end, is on the way; until then nothing more is
     * read */
    if (queued < 0 || (size_t)queued > SOCK_HIGH_WATER)
        h1_req_body_pause(r);
}

static void on_body_end(struct h1_req *r, void *ud) {
    struct proxy *p = ud;

    if (p->call)
        h1_call_end(p->call);
}

static void on_client_drain(struct h1_req *r, void *ud) {
    struct proxy *p = ud;

    if (p->call)
        h1_call_resume(p->call);
}

static void on_client_close(struct h1_req *r, bool completed, void *ud) {
    struct proxy *p = ud;

    p->req = NULL;
    if (p->is_upgrading)
        return;
    h1_call_cancel(TAKE_PTR(p->call));
    done(p);
}

/* ---- the upstream's side ---- */

static void on_response(struct h1_call *c, int status, const struct h1_header *headers, size_t n,
                        int64_t length, void *ud) {
    struct proxy *p = ud;
    struct header_set set = {0};
    struct err err = {0};

    if (p->o.on_refused && proxy_is_websocket(p->req)) {
        h1_call_cancel(TAKE_PTR(p->call));
        p->o.on_refused(p->req, status, p->o.ud);
        return;
    }
    if (proxy_response_headers(&p->o, headers, n, false, &set) < 0) {
        h1_call_cancel(TAKE_PTR(p->call));
        err_set(&err, -ENOMEM, "out of memory");
        fail(p, -ENOMEM, &err);
        return;
    }
    h1_start(p->req, status, set.v, length);
    header_set_done(&set);
}

static void on_data(struct h1_call *c, const char *data, size_t len, void *ud) {
    struct proxy *p = ud;
    ssize_t queued = h1_write(p->req, data, len);

    if (queued < 0 ||
        (size_t)queued > SOCK_HIGH_WATER) /* < 0: the client is gone, its close is coming */
        h1_call_pause(c);
}

static void on_upstream_drain(struct h1_call *c, void *ud) {
    struct proxy *p = ud;
    h1_req_body_resume(p->req);
}

static void on_upgrade(struct h1_call *c, const struct h1_header *headers, size_t n,
                       struct sock *upstream, void *ud) {
    struct proxy *p = ud;
    struct header_set set = {0};
    struct sock *client = NULL;
    struct err err = {0};

    p->call = NULL;
    if (p->o.upgrades && splice_set_is_full(p->o.upgrades)) {
        sock_close(upstream, 0);
        err_set(&err, -EUSERS, "there are %zu upgraded connections already, which is the limit",
                p->o.upgrades->n);
        fail(p, err.code, &err);
        return;
    }
    bool is_ws = p->o.relay_ws && proxy_is_websocket(p->req);
    p->is_upgrading = true; /* the request is closed inside h1_upgrade */
    if (proxy_response_headers(&p->o, headers, n, true, &set) == 0)
        client = h1_upgrade(p->req, 101, set.v);
    header_set_done(&set);
    if (client &&
        (is_ws ? splice_run_ws : splice_run)(client, upstream, p->o.upgrades, done, p) == 0)
        return;
    if (!client)
        sock_close(upstream, 0);
    p->is_upgrading = false;
    if (!p->req) {
        done(p);
        return;
    }
    err_set(&err, -ECONNRESET, "the upgrade could not be passed on");
    fail(p, err.code, &err); /* our on_close follows */
}

static void on_end(struct h1_call *c, int error, const struct err *err, void *ud) {
    struct proxy *p = ud;
    struct err why = {0};
    bool retry = error < 0 && p->is_repeatable && !p->is_retried && h1_call_was_stale(c);

    p->call = NULL;
    if (error == 0) {
        h1_end(p->req);
        return;
    }
    if (retry) {
        p->is_retried = true;
        error = start_call(p, &why);
        if (error == 0)
            return;
        err = &why;
    }
    fail(p, error, err);
}

/* ---- start ---- */

static int start_call(struct proxy *p, struct err *err) {
    static const struct h1_call_ops ops = {.on_response = on_response,
                                           .on_data = on_data,
                                           .on_drain = on_upstream_drain,
                                           .on_upgrade = on_upgrade,
                                           .on_end = on_end};
    struct proxy_request in = {0};
    struct header_set set = {0};
    char peer[64];
    int port = 0, r;

    h1_req_peer(p->req, peer, sizeof peer, &port);
    in.headers = h1_req_headers(p->req, &in.n_headers);
    in.peer = port ? peer : NULL; /* a Unix socket has no address to tell */
    if (h1_req_is_upgrade(p->req) && h1_req_content_length(p->req) == 0)
        in.upgrade = proxy_upgrade_protocol(in.headers, in.n_headers);
    r = proxy_request_headers(&p->o, &in, &set);
    if (r < 0)
        return err_set(err, r, "out of memory");
    const struct h1_call_opts co = {.addr = p->o.addr,
                                    .pool_key = p->o.pool_key,
                                    .pool = p->o.pool,
                                    .method = h1_req_method(p->req),
                                    .target = p->o.target,
                                    .headers = set.v,
                                    .body = p->o.body,
                                    .body_length = p->o.body ? (int64_t)strlen(p->o.body)
                                                             : h1_req_content_length(p->req),
                                    .connect_timeout_ms = p->o.connect_timeout_ms,
                                    .silence_timeout_ms = p->o.silence_timeout_ms,
                                    .keep_upgrade = in.upgrade != NULL,
                                    .max_idle_ms = p->is_repeatable ? 0 : MAX_IDLE_UNREPEATABLE_MS,
                                    .fresh = p->is_retried};
    r = h1_call(h1_req_loop(p->req), &co, &ops, p, &p->call);
    header_set_done(&set);
    return r < 0 ? err_sys(err, r, "could not ask the upstream") : 0;
}

void proxy_run(struct h1_req *r, const struct proxy_opts *o) {
    static const struct h1_req_ops ops = {.on_body = on_body,
                                          .on_body_end = on_body_end,
                                          .on_drain = on_client_drain,
                                          .on_close = on_client_close};
    struct proxy *p = NULL;
    struct err err = {0};
    int e = proxy_new(r, o, &p);

    if (e < 0) {
        err_sys(&err, e, "could not start the proxy");
        answer_failure(r, o, e, &err);
        if (o->on_close)
            o->on_close(o->ud);
        return;
    }
    h1_req_set_ops(r, &ops, p);
    h1_req_end_with_client(r);
    e = start_call(p, &err);
    if (e < 0) {
        fail(p, e, &err);
        return;
    }
    if (!p->o.body && h1_req_content_length(r) != 0)
        h1_req_body_start(r, 0);
}
