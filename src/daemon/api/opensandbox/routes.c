/*
 * The way of a request through the lifecycle API: request id, CORS, API key, router, handler. Owns
 * struct api; the routes are made of the table of operations. Loop thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/api/auth.h"
#include "daemon/api/opensandbox/operations.h"
#include "daemon/telemetry/telemetry.h"

#define UPSTREAM_IDLE_MAX 32
#define UPSTREAM_IDLE_MS 30000

/* ---- struct api ---- */

static bool is_blank(const char *s) {
    return str_is_empty(s) || strspn(s, " \t") == strlen(s);
}

static char *copy_text(const char *s) {
    return is_blank(s) ? NULL : strdup(s);
}

int api_set_keys(struct api *a, const char *key, const json_t *named) {
    struct auth_keys *fresh = auth_keys_new();
    int r = fresh ? auth_keys_add(fresh, "default", key) : -ENOMEM;
    const char *name;
    const json_t *v;

    json_object_foreach((json_t *)named, name, v) {
        if (r == 0)
            r = auth_keys_add(fresh, name, json_string_value(v));
    }
    if (r < 0) {
        auth_keys_free(fresh);
        return r;
    }
    auth_keys_free(a->keys);
    a->keys = fresh;
    return 0;
}

static int make_router(enum operation_place place, struct route **ret_table, struct router **ret) {
    *ret_table = operations_routes(place);
    return *ret_table ? router_new(*ret_table, ret) : -ENOMEM;
}

int api_new(const struct api_opts *o, struct api **ret) {
    struct api *a = calloc(1, sizeof *a);
    int r;

    if (!a)
        return -ENOMEM;
    a->o = *o;
    a->o.api_key = NULL;
    a->o.api_keys = NULL;
    splice_set_init(&a->upgrades, o->max_upgrades);
    a->eip = copy_text(o->eip);
    a->proxy_address = copy_text(str_is_empty(o->proxy_address) ? o->eip : o->proxy_address);
    a->host = str_is_empty(o->host) ? NULL : strdup(o->host);
    a->host_ip = copy_text(o->host_ip);
    a->server_host = copy_text(o->server_host ? o->server_host : o->host);
    a->pool = h1_pool_new(o->loop, UPSTREAM_IDLE_MAX, UPSTREAM_IDLE_MS);
    if (!a->pool || api_set_keys(a, o->api_key, o->api_keys) < 0) {
        r = -ENOMEM;
    } else if ((r = make_router(ON_BOTH, &a->tables[0], &a->both)) == 0 &&
               (r = make_router(ON_BARE, &a->tables[1], &a->bare)) == 0) {
        r = make_router(ON_V1, &a->tables[2], &a->v1);
    }
    if (r < 0) {
        api_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void api_free(struct api *a) {
    if (!a)
        return;
    splice_set_close(&a->upgrades);
    if (a->both)
        router_free(a->both);
    if (a->bare)
        router_free(a->bare);
    if (a->v1)
        router_free(a->v1);
    for (size_t i = 0; i < ARRAY_SIZE(a->tables); i++)
        free(a->tables[i]);
    free(a->openapi);
    if (a->pool)
        h1_pool_free(a->pool);
    auth_keys_free(a->keys);
    free(a->eip);
    free(a->proxy_address);
    free(a->host);
    free(a->host_ip);
    free(a->server_host);
    free(a);
}

/* ---- one request ---- */

static bool is_preflight(const struct h1_req *r) {
    return strcmp(h1_req_method(r), "OPTIONS") == 0 && h1_req_header(r, "Origin") &&
           h1_req_header(r, "Access-Control-Request-Method");
}

static void answer_preflight(struct xch *x) {
    const char *asked = h1_req_header(x->req, "Access-Control-Request-Headers");

    x->extra[x->n_extra++] = (struct h1_header){"Access-Control-Allow-Methods",
                                                "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"};
    x->extra[x->n_extra++] = (struct h1_header){"Access-Control-Max-Age", "600"};
    if (asked)
        x->extra[x->n_extra++] = (struct h1_header){"Access-Control-Allow-Headers", asked};
    xch_respond(x, 200, "text/plain; charset=utf-8", "OK", 2);
}

/* false: answered. The Unix socket's permissions are its authentication. */
static bool may_ask(struct xch *x) {
    const char *name;

    if (x->is_local || auth_is_exempt(h1_req_path(x->req)) ||
        (x->api->o.metrics_public && strcmp(h1_req_path(x->req), "/metrics") == 0))
        return true;
    switch (auth_check(x->api->keys, h1_req_header(x->req, "OPEN-SANDBOX-API-KEY"), &name)) {
    case AUTH_OK:
        if (name)
            str_copy(x->key_name, sizeof x->key_name, name);
        return true;
    case AUTH_MISSING:
        xch_error(x, 401, "MISSING_API_KEY",
                  "Authentication credentials are missing. Send OPEN-SANDBOX-API-KEY.");
        return false;
    default:
        xch_error(x, 401, "INVALID_API_KEY", "Authentication credentials are invalid.");
        return false;
    }
}

static enum route_result find(const struct xch *x, const char *path, const struct route **ret,
                              struct route_match *m, char **allow) {
    const struct api *a = x->api;
    enum route_result r =
        router_find(x->is_v1 ? a->v1 : a->bare, h1_req_method(x->req), path, ret, m, allow);

    return r == ROUTE_NOT_FOUND ? router_find(a->both, h1_req_method(x->req), path, ret, m, allow)
                                : r;
}

/* A path that exists without its last '/' is shown the way; true: answered. */
static bool redirect_slash(struct xch *x, const char *path) {
    const struct route *route;
    struct route_match m = {0};
    size_t n = strlen(path);
    char *allow = NULL;

    if (n < 2 || path[n - 1] != '/')
        return false;
    _cleanup_free_ char *cut = str_ndup(path, n - 1);
    enum route_result r = cut ? find(x, cut, &route, &m, &allow) : ROUTE_NOT_FOUND;
    free(allow);
    if (r != ROUTE_OK && r != ROUTE_BAD_METHOD)
        return false;
    if (r == ROUTE_OK)
        route_match_done(&m);
    const char *query = h1_req_query(x->req);
    x->extra_text =
        str_printf("%s%s%s%s", x->is_v1 ? "/v1" : "", cut, query ? "?" : "", query ? query : "");
    if (x->extra_text)
        x->extra[x->n_extra++] = (struct h1_header){"Location", x->extra_text};
    xch_empty(x, 307);
    return true;
}

static void dispatch(struct xch *x) {
    const char *path = h1_req_path(x->req);
    const struct route *route;
    struct route_match m = {0};
    char *allow = NULL;

    x->is_v1 = str_starts(path, "/v1/");
    if (x->is_v1)
        path += 3;
    switch (find(x, path, &route, &m, &allow)) {
    case ROUTE_OK:
        x->route = route->pattern;
        route->handler(x->req, &m, x);
        route_match_done(&m);
        return;
    case ROUTE_BAD_METHOD:
        x->extra_text = allow;
        x->extra[x->n_extra++] = (struct h1_header){"Allow", allow ? allow : ""};
        xch_error_detail(x, 405, CODE_BAD_METHOD, "Method Not Allowed");
        return;
    case ROUTE_BAD_PATH:
        xch_error_detail(x, 400, CODE_UNKNOWN, "The path has a bad percent escape.");
        return;
    case ROUTE_NOT_FOUND:
        if (!redirect_slash(x, path))
            xch_error_detail(x, 404, CODE_NOT_FOUND, "Not Found");
    }
}

void api_on_request(struct h1_req *r, void *ud) {
    struct xch *x = xch_new(ud, r);

    if (!x)
        return;
    xch_hold(x);
    if (is_preflight(r))
        answer_preflight(x);
    else if (may_ask(x))
        dispatch(x);
    xch_release(x);
}

void api_on_done(const struct h1_req *r, int status, uint64_t body_bytes_out, int64_t duration_us,
                 void *ud) {
    const struct xch *x = h1_req_data(r);
    char peer[64];
    int port;

    telemetry_request(h1_req_method(r), x && x->is_v1 ? "/v1" : "", x ? x->route : NULL, status,
                      duration_us, body_bytes_out);
    if (!log_is_on(LOG_INFO))
        return;
    h1_req_peer(r, peer, sizeof peer, &port);
    log_access("request", LOG_REQ(x ? x->request_id : "-"), LOG_STR("peer", peer),
               LOG_STR("method", h1_req_method(r)), LOG_STR("path", h1_req_path(r)),
               LOG_INT("status", status), LOG_INT("bytes", body_bytes_out),
               LOG_INT("us", duration_us), LOG_STR("key", x && *x->key_name ? x->key_name : "-"));
}
