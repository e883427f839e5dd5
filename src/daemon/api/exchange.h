/*
 * One request on its way through a dialect: request id, who asks, and the answers. An exchange
 * lives until the HTTP request is over and the last operation that holds it (xch_hold) has
 * answered; answering a request whose client has gone does nothing. Loop thread only.
 */
#pragma once

#include "base/json.h"
#include "daemon/api/api.h"
#include "daemon/api/auth.h"
#include "net/h1_client.h"
#include "net/router.h"
#include "net/splice.h"

struct api {
    struct api_opts o;
    char *eip, *host, *host_ip, *server_host; /* owned copies; NULL = none */
    char *proxy_address;                      /* public, of the proxy; eip's when not configured */
    struct auth_keys *keys;
    struct router *both, *bare, *v1;
    struct route *tables[3]; /* what the routers stand on */
    char *openapi;           /* the document, once it was asked for */
    size_t openapi_len;
    struct h1_pool *pool;
    struct splice_set upgrades; /* of the proxy */
    char public_host[256];      /* found once */
};

#define REQUEST_ID_MAX 128

struct xch {
    struct api *api;
    struct h1_req *req; /* NULL once it is over */
    char request_id[REQUEST_ID_MAX + 1];
    char key_name[AUTH_NAME_MAX + 1]; /* of the API key that was sent; "" = none was needed */
    const char *route;                /* the pattern that fits; NULL = none */
    bool is_v1;                       /* asked under /v1 */
    bool is_local;                    /* came over the Unix socket */
    bool is_operator;                 /* and from uid 0 */
    unsigned refs;
    char *memo; /* what a handler must remember (sandbox id …); freed with the exchange */
    struct h1_header extra[4]; /* of the answer; values static or living as long as the exchange */
    size_t n_extra;
    char *extra_text;         /* freed with the exchange */
    struct h1_header std[12]; /* scratch of xch_headers */
};

struct xch *xch_new(struct api *a, struct h1_req *r); /* NULL: answered already */
/* Makes the exchange the owner of the request's events again, after a handler had set its own. */
void xch_take_events(struct xch *x);
void xch_hold(struct xch *x);
void xch_release(struct xch *x);

/* Every header an answer of ours carries (request id, CORS, extra); valid until the next call. type
 * may be NULL. */
const struct h1_header *xch_headers(struct xch *x, const char *type);
void xch_respond(struct xch *x, int status, const char *type, const void *body, size_t len);
void xch_json_text(struct xch *x, int status, const char *text, size_t len);
void xch_json(struct xch *x, int status, json_t *body); /* takes the reference */
void xch_empty(struct xch *x, int status);
/* {"code","message"}; an empty message becomes a standard sentence. */
void xch_error(struct xch *x, int status, const char *code, const char *fmt, ...) _printf_(4, 5);
/* The same with FastAPI's `detail` text beside it (404 and 405 of the router). */
void xch_error_detail(struct xch *x, int status, const char *code, const char *text);
/* 422 with the list of violations; takes the reference. */
void xch_violations(struct xch *x, json_t *detail);
/* Collects the body (bounded by api_opts.max_body; 413 is answered) and hands it to cb. */
void xch_collect(struct xch *x, void (*cb)(struct xch *x, const char *data, size_t len));
