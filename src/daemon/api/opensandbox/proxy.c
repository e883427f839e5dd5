/*
 * The server proxy: /sandboxes/{id}/proxy/{port}/{rest…}, HTTP and upgrades, any port of a sandbox.
 * Needs no API key by design; the agent behind port 44772 asks for its own token. The path
 * remainder and the query go on byte for byte.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cidr.h"
#include "base/log.h"
#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/opensandbox/hosts.h"
#include "daemon/api/schema.h"
#include "daemon/sandbox/access.h"
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
/* In a browser all sandboxes are one origin with us: an answer of one must not speak for the others
 * (take over their pages, wipe their data, have their addresses reported, pin the host to TLS). */
static const char *const drop_response[] = {
    "server",
    "service-worker-allowed",
    "clear-site-data",
    "nel",
    "report-to",
    "strict-transport-security",
    NULL,
};

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

static void on_fail(struct h1_req *r, int error, const struct err *err, void *ud) {
    struct xch *x = ud;

    if (proxy_is_websocket(r)) {
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
                  "Could not connect to the backend sandbox %s: %s", x->extra_text, err_text(err));
    }
}

/* The backend answered the handshake with something else. */
static void on_refused(struct h1_req *r, int status, void *ud) {
    struct xch *x = ud;
    char reason[100];

    snprintf(reason, sizeof reason, "The backend refused the handshake: HTTP %d %s.", status,
             h1_reason(status));
    x->req = NULL;
    refuse_upgrade(r, 1008, reason);
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

bool relay_resolve(struct xch *x, const char *id, int64_t port, struct target *ret) {
    struct err err = {0};
    enum fault f = service_address(x->api->o.service, id, port, ret, &err);

    if (f && proxy_is_websocket(x->req))
        refuse_upgrade(x->req, 1011, err_text(&err));
    else if (f)
        answer_fault(x, f, &err);
    else if (!str_eq(h1_req_header(x->req, "OpenSandbox-Access-Renew"), "skip"))
        service_accessed(x->api->o.service, id);
    return !f;
}

static bool is_trusted(const struct xch *x) {
    char peer[64];
    int port = 0;

    h1_req_peer(x->req, peer, sizeof peer, &port);
    return port && cidr_list_has(x->api->o.trusted_proxies, peer);
}

/* Headers of the request that do not go on, with one more list. */
static const char **drop_list(const char *const *more, const char *ret[32]) {
    size_t n = 0;

    for (const char *const *d = drop_request; *d; d++)
        ret[n++] = *d;
    for (; more && *more && n < 31; more++)
        ret[n++] = *more;
    ret[n] = NULL;
    return ret;
}

void relay_run(struct xch *x, const struct target *to, const struct relay *r) {
    const char *query = h1_req_query(x->req), *before = to->path_prefix ? to->path_prefix : "";
    const char *drop[32], *at = to->addr.host ? to->addr.host : "127.0.0.1";
    const struct sandbox *sb = service_get(x->api->o.service, r->id);
    int64_t port = to->path_prefix ? to->addr.port : r->port;
    struct h1_header add[4] = {0};
    size_t n_add = 0;

    for (const struct h1_header *h = r->add; h && h->name; h++)
        add[n_add++] = *h;
    if (to->path_prefix && sb && sb->spec.access_token && r->port != AGENT_PORT) /* the agent is on
        the way and asks for its token; it does not pass it on */
        add[n_add++] = (struct h1_header){"X-EXECD-ACCESS-TOKEN", sb->spec.access_token};
    x->memo = str_printf("%.64s:%lld", r->id, (long long)r->port); /* pool key */
    x->extra_text = str_printf("%s:%lld", at, (long long)port);    /* Host, and named in errors */
    _cleanup_free_ char *target = str_printf("%s%s%s%s%s", before, *r->rest == '/' ? "" : "/",
                                             r->rest, query ? "?" : "", query ? query : "");
    if (!x->memo || !x->extra_text || !target) {
        xch_error(x, 500, CODE_UNKNOWN, "out of memory");
        return;
    }
    const struct h1_header *ours = xch_headers(x, NULL);
    proxy_run(x->req, &(struct proxy_opts){
                          .addr = to->addr,
                          .pool = x->api->pool,
                          .pool_key = x->memo,
                          .target = target,
                          .host = x->extra_text,
                          .drop_request = drop_list(r->drop_more, drop),
                          .drop_response = drop_response,
                          .add_request = add,
                          .add_response = ours,
                          .location_prefix = r->prefix,
                          .trust_forwarded = is_trusted(x),
                          .body = r->body,
                          .relay_ws = true,
                          .on_refused = on_refused,
                          .upgrades = &x->api->upgrades,
                          .silence_timeout_ms = SILENCE_MS,
                          .on_fail = on_fail,
                          .on_close = on_close,
                          .ud = x,
                      });
}

/* What stands before the port's own paths for the client: the way it came, or the one of the public
 * address. malloc'd. */
static char *prefix_of(const struct xch *x, const char *rest) {
    const char *path = h1_req_path(x->req);
    size_t n;

    if (!x->api->proxy_address)
        return str_ndup(path, (size_t)(rest - path));
    const char *eip = hosts_eip_path(x->api->proxy_address, &n);
    path += x->is_v1 ? 3 : 0;
    return str_printf("%.*s%.*s", (int)n, eip, (int)(rest - path), path);
}

/* The header of a WebSocket on a request that is no handshake. */
static bool is_bad_upgrade(const struct h1_req *r) {
    return str_ieq(h1_req_header(r, "Upgrade"), "websocket") &&
           (!h1_req_is_upgrade(r) || strcmp(h1_req_method(r), "GET") != 0 ||
            h1_req_content_length(r) != 0);
}

void op_proxy(struct call *c) {
    struct xch *x = c->x;
    json_t *detail = json_array();
    struct target to;
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
    if (is_bad_upgrade(x->req)) {
        xch_error(x, 400, CODE_UNKNOWN,
                  "A WebSocket handshake is a GET without a body, with Connection: Upgrade.");
        return;
    }
    if (!relay_resolve(x, c->m->params[0], port, &to))
        return;
    const char *rest = raw_rest(x);
    _cleanup_free_ char *prefix = prefix_of(x, rest);
    if (prefix)
        relay_run(
            x, &to,
            &(struct relay){.id = c->m->params[0], .port = port, .rest = rest, .prefix = prefix});
    else
        xch_error(x, 500, CODE_UNKNOWN, "out of memory");
}
