/*
 * Addresses of sandbox ports. A native sandbox has no published port: every address leads through
 * this server's proxy. The agent's port comes with the access token that clients must send along.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"

/* The address this machine uses towards the world: a UDP socket is "connected", nothing is sent. */
static bool outward_address(char *ret, size_t size) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)}, own;
    socklen_t len = sizeof own;

    to.sin_addr.s_addr = htonl(0x08080808);
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &len) < 0)
        return false;
    return inet_ntop(AF_INET, &own.sin_addr, ret, (socklen_t)size) != NULL;
}

static const char *public_host(struct api *a) {
    if (a->public_host[0])
        return a->public_host;
    bool wildcard =
        str_is_empty(a->host) || strcmp(a->host, "0.0.0.0") == 0 || strcmp(a->host, "::") == 0;
    if (!wildcard)
        snprintf(a->public_host, sizeof a->public_host, strchr(a->host, ':') ? "[%s]" : "%s",
                 a->host);
    else if (!outward_address(a->public_host, sizeof a->public_host))
        str_copy(a->public_host, sizeof a->public_host, "127.0.0.1");
    return a->public_host;
}

static bool has_port(const char *address) {
    const char *after = strrchr(address, ']');
    after = after ? after : address;
    return strchr(after, ':') || strchr(after, '/');
}

const char *public_address(struct api *a, char *buf, size_t size) {
    if (a->eip)
        snprintf(buf, size, has_port(a->eip) ? "%s" : "%s:%u", a->eip, a->o.port);
    else
        snprintf(buf, size, "%s:%u", public_host(a), a->o.port);
    return buf;
}

struct endpoint_query {
    bool via_server, has_expires;
    int64_t port;
};

static bool read_query(struct call *c, struct endpoint_query *ret) {
    struct query raw = {0};
    const char *text = h1_req_query(c->x->req);
    json_t *detail = json_array();

    query_parse(text, text ? strlen(text) : 0, &raw);
    ret->port = param_int("path", "port", c->m->params[1], 0, INT64_MIN, INT64_MAX, detail);
    ret->via_server =
        param_bool("query", "use_server_proxy", query_get(&raw, "use_server_proxy"), false, detail);
    ret->has_expires = query_get(&raw, "expires") != NULL;
    param_int("query", "expires", query_get(&raw, "expires"), 0, INT64_MIN, INT64_MAX, detail);
    query_done(&raw);
    if (json_array_size(detail) > 0) {
        xch_violations(c->x, detail);
        return false;
    }
    json_decref(detail);
    return true;
}

void op_endpoint(struct call *c) {
    struct xch *x = c->x;
    struct endpoint_query q = {0};
    struct target to;
    struct err err = {0};
    char address[300];
    const char *id = c->m->params[0], *host = h1_req_header(x->req, "Host");

    if (!read_query(c, &q))
        return;
    if (q.has_expires && q.via_server) {
        xch_error(x, 400, CODE_INVALID, "use_server_proxy cannot be combined with expires.");
        return;
    }
    if (q.has_expires) {
        xch_error(x, 400, "SANDBOX::API_NOT_SUPPORTED",
                  "Signed endpoints (expires) are not supported by this runtime.");
        return;
    }
    enum fault f = service_address(x->api->o.service, id, q.port, &to, &err);
    if (f) {
        answer_fault(x, f, &err);
        return;
    }
    /* asked through a front end, its name is the one that works for this client; without a TCP side
     * it is the only one */
    bool as_asked = (q.via_server && !x->api->eip) || !x->api->host;
    const char *base = as_asked && host ? host : public_address(x->api, address, sizeof address);
    const char *prefix = q.via_server && !x->is_v1 ? "" : "/v1";
    _cleanup_free_ char *endpoint =
        str_printf("%s%s/sandboxes/%s/proxy/%lld", base, prefix, id, (long long)q.port);
    json_t *o = endpoint ? json_pack("{s:s}", "endpoint", endpoint) : NULL;
    const char *token = service_get(x->api->o.service, id)->spec.access_token;
    if (o && q.port == AGENT_PORT && token)
        json_object_set_new(o, "headers", json_pack("{s:s}", "X-EXECD-ACCESS-TOKEN", token));
    xch_json(x, 200, o);
}
