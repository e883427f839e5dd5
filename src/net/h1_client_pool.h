/* Idle connections of the HTTP client. Part of it; others see h1_pool_new, _free and _drop
 * (h1_client.h). */
#pragma once

#include "net/h1_client.h"

/* Takes a living idle connection kept under key for at most max_idle_ms (0 = any age), or NULL. */
struct sock *h1_pool_take(struct h1_pool *p, const char *key, unsigned max_idle_ms);
/*
 * Gives a connection back (owned; closed when it cannot be kept). epoch: h1_pool_epoch() when its
 * call began; a drop since then means that it may lead to something that is gone.
 */
void h1_pool_put(struct h1_pool *p, const char *key, struct sock *s, uint64_t epoch);
uint64_t h1_pool_epoch(const struct h1_pool *p);
struct h1_pool *h1_pool_ref(struct h1_pool *p);
void h1_pool_unref(struct h1_pool *p);
