/* Name resolution on libuv's thread pool (see sock_dial.h). A cancelled look-up lives on until the
 * pool is done with it. */
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "net/sock_dial.h"

struct sock_resolve {
    uv_getaddrinfo_t req;
    sock_resolve_cb cb; /* NULL once cancelled */
    void *ud;
    uint16_t port;
};

static int errno_of(int uv_error) {
    switch (uv_error) {
    case UV_EAI_AGAIN:
        return -EAGAIN;
    case UV_EAI_MEMORY:
        return -ENOMEM;
    default:
        return -EHOSTUNREACH;
    }
}

static size_t addresses(const struct addrinfo *list, uint16_t port, struct sockaddr_storage *ret) {
    size_t n = 0;

    for (const struct addrinfo *a = list; a && n < SOCK_RESOLVE_MAX; a = a->ai_next) {
        struct sockaddr_storage *ss = &ret[n];

        if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || a->ai_addrlen > sizeof *ss)
            continue;
        *ss = (struct sockaddr_storage){0};
        memcpy(ss, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET)
            ((struct sockaddr_in *)ss)->sin_port = htons(port);
        else
            ((struct sockaddr_in6 *)ss)->sin6_port = htons(port);
        n++;
    }
    return n;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list) {
    struct sock_resolve *r = container_of(req, struct sock_resolve, req);
    struct sockaddr_storage addrs[SOCK_RESOLVE_MAX];
    size_t n = status == 0 ? addresses(list, r->port, addrs) : 0;

    uv_freeaddrinfo(list);
    if (r->cb)
        r->cb(n ? 0 : status < 0 ? errno_of(status) : -EHOSTUNREACH, addrs, n, r->ud);
    free(r);
}

int sock_resolve(uv_loop_t *loop, const char *host, uint16_t port, sock_resolve_cb cb, void *ud,
                 struct sock_resolve **ret) {
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct sock_resolve *r = calloc(1, sizeof *r);
    int e;

    if (!r)
        return -ENOMEM;
    r->cb = cb;
    r->ud = ud;
    r->port = port;
    e = uv_getaddrinfo(loop, &r->req, on_resolved, host, NULL, &hints);
    if (e < 0) {
        free(r);
        return e == UV_ENOMEM ? -ENOMEM : -EINVAL;
    }
    *ret = r;
    return 0;
}

void sock_resolve_cancel(struct sock_resolve *r) {
    if (!r)
        return;
    r->cb = NULL;
    (void)uv_cancel((uv_req_t *)&r->req);
}
