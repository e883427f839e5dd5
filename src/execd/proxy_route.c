/* The port proxy (see proxy_route.h). The rest of the path goes on as it came, encoding included.
 */
#include "execd/proxy_route.h"

#include <stdio.h>
#include <string.h>

#include "execd/errors.h"
#include "net/proxy.h"

void proxy_route(struct agent *a, struct h1_req *r, const char *rest) {
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
    proxy_run(r, &o);
}
