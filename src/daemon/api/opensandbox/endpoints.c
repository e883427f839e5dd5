/*
 * Addresses of sandbox ports: a published port of the host where the driver has one, else (native
 * sandboxes, or when the client asks for it) a path of this server's proxy. Loop thread.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/api/opensandbox/bodies.h"
#include "daemon/api/opensandbox/hosts.h"

static const char *public_host(struct api *a) {
    if (!a->public_host[0])
        hosts_public(&(struct hosts_setup){.eip = a->eip,
                                           .server_host = a->server_host,
                                           .host_ip = a->host_ip,
                                           .in_container = hosts_in_container(
                                               "", (const char *const *)environ)},
                     a->public_host, sizeof a->public_host);
    return a->public_host;
}

/* "host:port" under which this server is reached; malloc'd. */
static char *public_address(struct api *a) {
    return a->proxy_address ? hosts_eip_base(a->proxy_address, a->o.port)
                            : str_printf("%s:%u", public_host(a), a->o.port);
}

struct endpoint_query {
    bool via_server, has_expires;
    int64_t port;
};

const struct param endpoint_params[] = {
    {.name = "use_server_proxy", .type = F_BOOL, .help = "An address of this server's proxy."},
    {.name = "expires",
     .type = F_INT,
     .min = INT64_MIN,
     .max = INT64_MAX,
     .is_optional = true,
     .help = "Signed addresses; refused, as no runtime here has them."},
    {0},
};

static bool read_query(struct call *c, struct endpoint_query *ret) {
    json_t *detail = json_array();

    ret->port = param_int("path", "port", c->m->params[1], 0, INT64_MIN, INT64_MAX, detail);
    json_t *in = query_read(endpoint_params, h1_req_query(c->x->req), detail);
    ret->via_server = json_bool(in, "use_server_proxy", false);
    ret->has_expires = json_object_get(in, "expires") != NULL;
    json_decref(in);
    if (json_array_size(detail) > 0) {
        xch_violations(c->x, detail);
        return false;
    }
    json_decref(detail);
    return true;
}

/* Through this server. Asked for that, clients get the name and the prefix that have just worked
 * for them; a configured public address replaces both. */
static char *through_server(struct xch *x, const struct endpoint_query *q, const char *id) {
    const char *host = h1_req_header(x->req, "Host");
    bool as_asked = host && (q->via_server || !x->api->host);
    const char *public = x->api->proxy_address;
    _cleanup_free_ char *base = public     ? hosts_eip_base(public, x->api->o.port)
                                : as_asked ? strdup(host)
                                           : public_address(x->api);
    const char *prefix = public || (q->via_server && !x->is_v1) ? "" : "/v1";

    return base ? str_printf("%s%s/sandboxes/%s/proxy/%lld", base, prefix, id, (long long)q->port)
                : NULL;
}

static char *published_address(struct api *a, const struct published *p, int64_t port) {
    const char *host = public_host(a);

    if (p->via_agent)
        return str_printf("%s:%u/proxy/%lld", host, p->host_port, (long long)port);
    return str_printf("%s:%u", host, p->host_port);
}

/* What a client must send along: the token of the guard's own API, and the agent's where the agent
 * is what it talks to. New reference; NULL when there is nothing. */
static json_t *headers_for(struct service *s, const char *id, int64_t port, bool to_agent) {
    _cleanup_free_ char *guard = port == GUARD_PORT ? service_guard_token(s, id) : NULL;
    const char *agent = to_agent ? service_get(s, id)->spec.access_token : NULL;
    json_t *h = guard || agent ? json_object() : NULL;

    if (guard)
        json_object_set_new(h, "OPENSANDBOX-EGRESS-AUTH", json_string(guard));
    if (agent)
        json_object_set_new(h, "X-EXECD-ACCESS-TOKEN", json_string(agent));
    return h;
}

void op_endpoint(struct call *c) {
    struct xch *x = c->x;
    struct endpoint_query q = {0};
    struct published p = {0};
    struct err err = {0};
    const char *id = c->m->params[0];

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
    enum fault f = service_published(x->api->o.service, id, q.port, &p, &err);
    if (f) {
        answer_fault(x, f, &err);
        return;
    }
    bool direct = p.host_port && !q.via_server;
    _cleanup_free_ char *endpoint =
        direct ? published_address(x->api, &p, q.port) : through_server(x, &q, id);
    json_t *o = endpoint ? json_pack("{s:s}", "endpoint", endpoint) : NULL;
    json_t *headers =
        headers_for(x->api->o.service, id, q.port, q.port == AGENT_PORT || (direct && p.via_agent));
    if (o && headers)
        json_object_set(o, "headers", headers);
    json_decref(headers);
    xch_json(x, 200, o);
}
