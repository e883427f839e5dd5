/*
 * Reverse proxy of one exchange: streams both bodies with back-pressure, keeps the raw target,
 * splices upgrades, removes hop-by-hop headers and those named in Connection, rebuilds
 * X-Forwarded-*. A truncated upstream answer is passed on as a truncated answer.
 */
#pragma once

#include "net/h1_client.h"
#include "net/splice.h"

struct proxy_opts {
    struct sock_addr addr;
    struct h1_pool *pool;
    const char *pool_key;
    const char *target;              /* raw path and query to ask for */
    const char *host;                /* Host to send; NULL = as received */
    const char *const *drop_request; /* more request headers to drop (lower case, NULL-terminated;
                                        trailing '*' = prefix) */
    const char *const *drop_response;
    const struct h1_header *add_request; /* ended by {NULL,NULL} */
    const struct h1_header
        *add_response; /* put on the answer, replacing the upstream's of the same name; 101 too */
    const char *location_prefix; /* put before a Location that starts with one '/'; NULL = leave */
    bool keep_forwarded;  /* extend an existing X-Forwarded-For instead of dropping client-sent ones
                           */
    bool trust_forwarded; /* the client is a proxy of ours: its X-Forwarded-For is extended whole,
                             its X-Forwarded-Proto and -Host are passed on */
    /* The request's body when it was read already (text); NULL = it is streamed. */
    const char *body;
    bool relay_ws; /* WebSockets: close codes are mapped, see splice_run_ws */
    /* A WebSocket handshake that the upstream answers with something else than 101; must answer the
     * request. NULL: its answer is passed on. */
    void (*on_refused)(struct h1_req *r, int status, void *ud);
    /* Upgraded connections: the server forgets them, so who ends has to cut them here, and their
     * number is bounded here. NULL: they end by themselves, in any number. */
    struct splice_set *upgrades;
    unsigned connect_timeout_ms; /* 0 = 10000 */
    unsigned silence_timeout_ms; /* until the response head; 0 = none */
    /* Answers a failure before the response head was sent: error as in h1_call_ops.on_end. NULL:
     * plain 502/504 text. */
    void (*on_fail)(struct h1_req *r, int error, const struct err *err, void *ud);
    void (*on_close)(void *ud); /* always once, at the very end (upgrades included); may be NULL */
    void *ud;
};
/* Takes the exchange over (its ops are replaced). All strings are copied. */
void proxy_run(struct h1_req *r, const struct proxy_opts *o);
/* Does the request ask for a WebSocket? */
bool proxy_is_websocket(const struct h1_req *r);
