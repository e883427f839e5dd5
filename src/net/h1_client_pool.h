/* Idle connections of the HTTP client. Part of it; others see h1_pool_new and _free
 * (h1_client.h). */
#pragma once

#include "net/h1_client.h"

/* Takes a living idle connection kept under key for at most max_idle_ms (0 = any age), or NULL. */
struct sock *h1_pool_take(struct h1_pool *p, const char *key, unsigned max_idle_ms);
/* Gives a connection back (owned; closed when it cannot be kept). */
void h1_pool_put(struct h1_pool *p, const char *key, struct sock *s);
struct h1_pool *h1_pool_ref(struct h1_pool *p);
void h1_pool_unref(struct h1_pool *p);
