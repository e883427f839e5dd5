/* No name resolution: for static programs, which must not pull in NSS (see sock_dial.h). */
#include <errno.h>

#include "net/sock_dial.h"

int sock_resolve(uv_loop_t *loop, const char *host, uint16_t port, sock_resolve_cb cb, void *ud,
                 struct sock_resolve **ret) {
    (void)loop, (void)host, (void)port, (void)cb, (void)ud, (void)ret;
    return -ENOTSUP;
}

void sock_resolve_cancel(struct sock_resolve *r) {
    (void)r;
}
