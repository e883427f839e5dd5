/*
 * The server proxy: /sandboxes/{id}/proxy/{port}/{rest…}, HTTP and upgrades, any port of a sandbox.
 * Needs no API key by design; the agent behind port 44772 asks for its own token. The path
 * remainder and the query go on byte for byte.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"
#include "net/proxy.h"
#include "net/ws.h"

#define SILENCE_MS 180000u

static const char *const drop_request[] = {
    "authorization",
    "cookie",
    "open-sandbox-api-key",
    "opensandbox-secure-access",
    "opensandbox-access-renew",
    "forwarded",
    "x-forwarded-*",
    "x-real-ip",
    NULL,
};
static const char *const drop_response[] = {"server", NULL};

static const char *const methods[] = {"GET", "POST", "PUT", "DELETE", "PATCH", NULL};

static void closed(struct ws *w, int code, const char *reason, void *ud) {
}

/* A WebSocket client cannot read an HTTP error: accept, then close with the reason. */
static void refuse_upgrade(struct h1_req *r, int code, const char *reason) {
    static const struct ws_ops ops = {.on_close = closed};
    struct ws *w;

    if (ws_accept(r, NULL, &ops, NULL, &w) == 0)
        ws_close(w, code, reason);
}

static bool is_websocket(const struct h1_req *r) {
    return h1_req_is_upgrade(r) && str_ieq(h1_req_header(r, "Upgrade"), "websocket");
}

static void on_fail(struct h1_req *r, int error, const struct err *err, void *ud) {
    struct xch *x = ud;

    if (is_websocket(r)) {
        x->req = NULL;
        refuse_upgrade(r, 1011, err_text(err));
        return;
    }
    switch (error) {
    case -ETIMEDOUT:
        xch_error(x, 504, "BACKEND_TIMEOUT", "The backend sandbox did not answer in time: %s",
                  err_text(err));
        return;
    case -EPIPE:
    case -ECONNRESET:
    case -EBADMSG:
        xch_error(x, 502, "BACKEND_RESPONSE_FAILED", "The backend sandbox gave no valid answer: %s",
                  err_text(err));
        return;
    default:
        xch_error(x, 502, "BACKEND_CONNECTION_FAILED",
                  "Could not connect to the backend sandbox %s: %s", x->id, err_text(err));
    }
}

static void on_close(void *ud) {
    struct xch *x = ud;
    x->req = NULL;
    xch_release(x);
}

/* Start of the raw remainder (at its '/', or the end) after /sandboxes/ID/proxy/PORT. */
static const char *raw_rest(const struct xch *x) {
    const char *p = h1_req_path(x->req) + (x->is_v1 ? 3 : 0);
    for (int slashes = 0; *p; p++)
        if (*p == '/' && ++slashes == 5)
            break;
    return p;
}

static void run(struct xch *x, const struct sock_addr *to, const char *id, int64_t port) {
    const char *path = h1_req_path(x->req), *rest = raw_rest(x), *query = h1_req_query(x->req);
    char host[280];

    x->id = str_printf("%.64s:%lld", id, (long long)port); /* pool key, and named in errors */
    _cleanup_free_ char *target =
        str_printf("%s%s%s%s", *rest == '/' ? "" : "/", rest, query ? "?" : "", query ? query : "");
    _cleanup_free_ char *prefix = str_ndup(path, (size_t)(rest - path));
    if (!x->id || !target || !prefix) {
        xch_error(x, 500, CODE_UNKNOWN, "out of memory");
        return;
    }
    snprintf(host, sizeof host, "%s:%lld", to->host ? to->host : "127.0.0.1", (long long)port);
    const struct h1_header *ours = xch_headers(x, NULL);
    proxy_run(x->req, &(struct proxy_opts){
                          .addr = *to,
                          .pool = x->api->pool,
                          .pool_key = x->id,
                          .target = target,
                          .host = host,
                          .drop_request = drop_request,
                          .drop_response = drop_response,
                          .add_response = ours,
                          .location_prefix = prefix,
                          .upgrades = &x->api->upgrades,
                          .silence_timeout_ms = SILENCE_MS,
                          .on_fail = on_fail,
                          .on_close = on_close,
                          .ud = x,
                      });
}

void op_proxy(struct call *c) {
    struct xch *x = c->x;
    json_t *detail = json_array();
    struct target to;
    struct err err = {0};
    bool known = false;

    for (const char *const *m = methods; *m; m++)
        known |= strcmp(*m, h1_req_method(x->req)) == 0;
    if (!known) {
        x->extra[x->n_extra++] = (struct h1_header){"Allow", "DELETE, GET, PATCH, POST, PUT"};
        json_decref(detail);
        xch_error_detail(x, 405, CODE_BAD_METHOD, "Method Not Allowed");
        return;
    }
    int64_t port = param_int("path", "port", c->m->params[1], 0, INT64_MIN, INT64_MAX, detail);
    if (json_array_size(detail) > 0) {
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    enum fault f = service_address(x->api->o.service, c->m->params[0], port, &to, &err);
    if (f && is_websocket(x->req))
        refuse_upgrade(x->req, 1011, err_text(&err));
    else if (f)
        answer_fault(x, f, &err);
    else
        run(x, &to.addr, c->m->params[0], port);
}
