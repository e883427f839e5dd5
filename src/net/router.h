/*
 * One route table per API. Patterns: "/sandboxes/{id}/endpoints/{port}", "{rest...}" as the last
 * segment takes the raw remainder (slashes included, percent-encoding kept, "" allowed).
 */
#pragma once

#include "net/h1_server.h"

#define ROUTE_MAX_PARAMS 6

struct route_match {
    /* Percent-decoded, in the order of the pattern; "{rest...}" raw. Owned by the match. */
    const char *params[ROUTE_MAX_PARAMS];
    size_t n_params;
    char *storage;
};

struct route {
    const char *method; /* "GET", without HEAD; "*" = any */
    const char *pattern;
    /* m is valid during the call */
    void (*handler)(struct h1_req *r, const struct route_match *m, void *ud);
};

struct router;
/* The table (ended by {NULL}) is borrowed and outlives the router, its texts are static. Fails with
 * -EINVAL on a bad pattern. */
int router_new(const struct route *table, struct router **ret);
void router_free(struct router *r);

enum route_result { ROUTE_OK, ROUTE_NOT_FOUND, ROUTE_BAD_METHOD, ROUTE_BAD_PATH };
/*
 * Finds the route of method and raw path. ROUTE_BAD_METHOD: *ret_allow gets "GET, POST" (caller
 * frees). Literal segments win over parameters, parameters over "{rest...}".
 */
enum route_result router_find(const struct router *r, const char *method, const char *path,
                              const struct route **ret_route, struct route_match *ret_match,
                              char **ret_allow);
void route_match_done(struct route_match *m);
