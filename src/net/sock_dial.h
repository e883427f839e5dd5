/*
 * Name resolution for sock_dial, in two implementations of which a library links one:
 * sock_dial_name.c (getaddrinfo on libuv's pool) and sock_dial_numeric.c (refuses names; for static
 * programs).
 */
#pragma once

#include "net/sock.h"

struct sock_resolve;
#define SOCK_RESOLVE_MAX 8
/* error 0: n addresses (n >= 1), port included; they are valid during the call. */
typedef void (*sock_resolve_cb)(int error, const struct sockaddr_storage *addrs, size_t n,
                                void *ud);
/* cb is called exactly once, later, unless cancelled. -ENOTSUP where names are not resolved. */
int sock_resolve(uv_loop_t *loop, const char *host, uint16_t port, sock_resolve_cb cb, void *ud,
                 struct sock_resolve **ret);
void sock_resolve_cancel(struct sock_resolve *r); /* no callback comes after */
