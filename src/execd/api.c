/*
 * Dispatch of requests (see api.h). Every request passes three gates in this order: claimed, token,
 * route. Nothing is redirected: a superfluous slash at the end of a path is taken as absent.
 */
#include "execd/api.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "execd/errors.h"
#include "execd/handlers.h"
#include "execd/proxy_route.h"

static HANDLER(handle_ping) {
    reply_empty(r);
}

static const struct route routes[] = {
    {"GET", "/ping", handle_ping},
    {"POST", "/claim", handle_claim},
    {"POST", "/command", handle_command_run},
    {"DELETE", "/command", handle_command_stop},
    {"DELETE", "/code", handle_command_stop},
    {"GET", "/command/status/{id}", handle_command_status},
    {"GET", "/command/{id}/logs", handle_command_logs},
    {"POST", "/pty", handle_pty_create},
    {"GET", "/pty/{id}", handle_pty_status},
    {"DELETE", "/pty/{id}", handle_pty_delete},
    {"GET", "/pty/{id}/ws", handle_pty_ws},
    {"GET", "/files/info", handle_files_info},
    {"DELETE", "/files", handle_files_delete},
    {"POST", "/files/mv", handle_files_move},
    {"POST", "/files/permissions", handle_files_permissions},
    {"GET", "/files/search", handle_files_search},
    {"POST", "/files/replace", handle_files_replace},
    {"POST", "/files/upload", handle_files_upload},
    {"GET", "/files/download", handle_files_download},
    {"GET", "/directories/list", handle_dirs_list},
    {"POST", "/directories", handle_dirs_make},
    {"DELETE", "/directories", handle_dirs_remove},
    {"GET", "/metrics", handle_metrics},
    {"GET", "/metrics/watch", handle_metrics_watch},
    {"GET", "/v1/isolated/capabilities", handle_isolated_capabilities},
    {"*", "/v1/isolated/{rest...}", handle_isolated},
    {NULL, NULL, NULL},
};

static bool is_authorized(const struct agent *a, const struct h1_req *r) {
    return !a->token || str_eq_const_time(h1_req_header(r, "X-EXECD-ACCESS-TOKEN"), a->token);
}

static void dispatch(struct agent *a, struct h1_req *r, const char *path) {
    const struct route *route;
    struct route_match m = {0};
    char *allow = NULL;

    switch (router_find(a->router, h1_req_method(r), path, &route, &m, &allow)) {
    case ROUTE_OK:
        route->handler(r, &m, a);
        route_match_done(&m);
        break;
    case ROUTE_BAD_PATH:
        reply_error(r, 400, ERR_BODY, "the path is not properly encoded");
        break;
    default:
        reply_error(r, 404, "NOT_FOUND", "there is no %s %s", h1_req_method(r), path);
    }
    free(allow);
}

static void on_request(struct h1_req *r, void *ud) {
    struct agent *a = ud;
    const char *raw = h1_req_path(r);
    size_t len = strlen(raw);

    if (str_starts(raw, "/proxy/") && a->claimed && is_authorized(a, r)) {
        proxy_route(a, r, raw + strlen("/proxy/"));
        return;
    }
    while (len > 1 && raw[len - 1] == '/')
        len--;
    _cleanup_free_ char *path = str_ndup(raw, len);
    bool is_ping = str_eq(path, "/ping");
    if (!path)
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
    else if (!a->claimed && !is_ping && strcmp(path, "/claim") != 0)
        reply_error(r, 503, ERR_UNAVAILABLE, "the sandbox has not been claimed yet");
    else if (!is_ping && !is_authorized(a, r))
        reply_error(r, 401, "UNAUTHORIZED", "header X-EXECD-ACCESS-TOKEN is missing or wrong");
    else
        dispatch(a, r, path);
}

int api_new(struct agent *a, struct err *err) {
    struct h1_server_opts o = {
        .on_request = on_request, .ud = a, .limits = {.max_headers = 1 << 20}};
    int r = router_new(routes, &a->router);

    if (r == 0)
        r = h1_server_new(a->loop, &o, &a->server);
    if (r == 0 && !(a->pool = h1_pool_new(a->loop, 8, 20000)))
        r = -ENOMEM;
    return r < 0 ? err_sys(err, r, "cannot make the API") : 0;
}

void api_free(struct agent *a) {
    if (a->server)
        h1_server_free(a->server);
    h1_pool_free(a->pool);
    router_free(a->router);
    a->server = NULL;
    a->pool = NULL;
    a->router = NULL;
}
