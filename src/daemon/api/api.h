/*
 * The API server: what stands between the HTTP server and the dialects. One struct api per daemon;
 * loop thread only.
 */
#pragma once

#include "daemon/sandbox/service.h"
#include "net/h1_server.h"

struct api;

struct api_opts {
    uv_loop_t *loop;
    struct service
        *service;          /* borrowed; is closed before api_free (its last answers need the API) */
    struct images *images; /* borrowed; NULL = images cannot be managed here */
    const char *api_key;   /* NULL or blank = none; copied; secret */
    const json_t *api_keys;    /* more of them: name -> key; NULL = none; copied; secret */
    const char *eip;           /* configured public host, used as it is; NULL = none */
    const char *proxy_address; /* the same for addresses of the proxy; NULL = eip */
    const char *host_ip; /* docker.host_ip: of the machine, when this server runs in a container;
                            NULL = none */
    const char *host;    /* listening address of the TCP side, "" = no TCP side */
    const char *server_host; /* as configured, whether or not the TCP side is open; NULL = host */
    uint16_t port;
    const char *const *trusted_proxies; /* whose X-Forwarded-* headers are believed, addresses and
                                           networks; NULL-terminated, borrowed; NULL = nobody's */
    size_t max_body;                    /* control bodies; 0 = 1 MiB */
    bool metrics_public;                /* GET /metrics needs no key */
    size_t max_upgrades; /* upgraded connections through the proxy at a time; 0 = no limit */
};

int api_new(const struct api_opts *o, struct api **ret);
void api_free(struct api *a); /* all exchanges and operations are over */
/* For the HTTP server. ud = struct api. */
void api_on_request(struct h1_req *r, void *ud);
void api_on_done(const struct h1_req *r, int status, uint64_t body_bytes_out, int64_t duration_us,
                 void *ud);
/* All keys anew: takes effect with the next request. On failure the old ones stay. */
int api_set_keys(struct api *a, const char *key, const json_t *named);
