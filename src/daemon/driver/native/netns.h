/* Network namespaces of sandboxes: made by us, owned by the initial user namespace, never used
 * twice. */
#pragma once

#include "daemon/driver/native/stock.h"

/* Runs fn inside a network namespace on the calling thread; the thread is back in its own
 * afterwards (abort() if the kernel refuses). fn's result, or -errno when the namespace cannot be
 * entered. */
int netns_run(int netns_fd, int (*fn)(void *arg), void *arg);
/* A new namespace with lo up; descriptor or -errno. */
int netns_make(void);
/* A listening TCP socket on 0.0.0.0:port inside; descriptor or -errno. */
int netns_listen(int netns_fd, uint16_t port);
/* A TCP socket of that namespace, not connected; descriptor or -errno. */
int netns_tcp(int netns_fd);

/* Namespaces made ahead of time. */
int netns_pool_new(size_t size, struct stock **ret);
/* From the pool, or made now when it is empty; descriptor or -errno. */
int netns_pool_take(struct stock *pool);
