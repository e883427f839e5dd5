/* The port proxy (see proxy_route.h). The rest of the path goes on as it came, encoding included.
 */
#include "execd/proxy_route.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "execd/errors.h"
#include "net/proxy.h"

/* The port this request came to: the agent itself. 0 = none (a Unix socket). */
static uint16_t own_port(const struct h1_req *r) {
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;

    if (getsockname(sock_fd(h1_req_sock(r)), (struct sockaddr *)&ss, &len) < 0)
        return 0;
    if (ss.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&ss)->sin_port);
    return ss.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&ss)->sin6_port) : 0;
}

void proxy_route(struct agent *a, struct h1_req *r, const char *rest) {
    /* the token is for us alone, and we are also who a client of our own port gets to */
    static const char *const drop[] = {"x-execd-access-token", "x-forwarded-host", NULL};
    static const struct h1_header add[] = {{"X-Forwarded-Proto", "http"}, {NULL, NULL}};
    const char *slash = strchrnul(rest, '/'), *query = h1_req_query(r);
    struct proxy_opts o = {.addr = {.host = "127.0.0.1"},
                           .pool = a->pool,
                           .drop_request = drop,
                           .add_request = add,
                           .keep_forwarded = true};
    _cleanup_free_ char *target = NULL;
    uint64_t port;

    if (str_to_u64n(rest, (size_t)(slash - rest), &port) < 0 || port == 0 || port > 65535) {
        reply_error(r, 400, ERR_BODY, "/proxy/ must be followed by a port number");
        return;
    }
    target = str_printf("%s%s%s", *slash ? slash : "/", query ? "?" : "", query ? query : "");
    if (!target) {
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    o.addr.port = (uint16_t)port;
    o.target = target;
    if (port == own_port(r))
        o.drop_request = drop + 1;
    proxy_run(r, &o);
}
