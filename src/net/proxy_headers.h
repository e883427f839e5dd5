/*
 * Header rules of the reverse proxy: what passes, what is dropped, what is rebuilt
 * (lifecycle.md 7.4, execd.md 1.7). Pure: headers in, headers out. Part of proxy.c.
 */
#pragma once

#include "base/str.h"
#include "net/proxy.h"

/* Headers under construction. Names and values are borrowed unless they were made here. */
struct header_set {
    struct h1_header *v; /* ended by {NULL, NULL} once anything was added */
    size_t n, cap;
    struct strv owned;
    bool failed; /* out of memory */
};
void header_set_done(struct header_set *s);

/* What a request brings along that is not in its headers. */
struct proxy_request {
    const struct h1_header *headers;
    size_t n_headers;
    const char *peer;    /* address of the client; NULL = not an address (Unix socket) */
    const char *upgrade; /* protocol to upgrade to, NULL = none */
};
/* 0 or -ENOMEM. Framing headers and Connection are left to the HTTP client, except for an upgrade.
 */
int proxy_request_headers(const struct proxy_opts *o, const struct proxy_request *in,
                          struct header_set *ret);
/* Same for the response; is_upgrade: a 101, whose Connection and Upgrade stay. Names come out in
 * lower case. */
int proxy_response_headers(const struct proxy_opts *o, const struct h1_header *headers, size_t n,
                           bool is_upgrade, struct header_set *ret);
/* The protocol that the request may be upgraded to, or NULL: one token, and not another version of
 * HTTP. */
const char *proxy_upgrade_protocol(const struct h1_header *headers, size_t n);
