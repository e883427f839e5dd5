/* Network namespaces of sandboxes: made by us, owned by the initial user namespace, never used
 * twice. */
#pragma once

#include "base/err.h"

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

/* For threads that work in the background: as much processor time as others, but waking them does
 * not take it away from whoever woke them. */
void thread_is_background(void);

/* Namespaces made ahead of time by a thread of its own. */
struct netns_pool;
int netns_pool_new(size_t size, struct netns_pool **ret);
struct netns_pool *netns_pool_free(struct netns_pool *p); /* returns NULL */
/* From the pool, or made now when it is empty; descriptor or -errno. */
int netns_pool_take(struct netns_pool *p);
/* Wakes the thread that fills it; callers do so when what they took it for is done, so as not to
 * compete with it. */
void netns_pool_refill(struct netns_pool *p);
