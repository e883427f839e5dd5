/*
 * A scripted engine for unit tests: an HTTP server on a Unix socket whose answers come from a
 * callback of the test, and a driver around it. It speaks just enough for engine.h.
 */
#pragma once

#include "daemon/driver/docker/docker_priv.h"

struct fake_request {
    char method[12];
    char path[512];  /* without version and query */
    char query[512]; /* raw */
    char *body;      /* NUL-terminated */
    size_t body_len;
    char auth[512]; /* X-Registry-Auth */
};

struct fake_answer {
    int status;       /* 0 = 404 with a message */
    struct buf body;  /* starts empty */
    const char *type; /* NULL = application/json */
};

struct fake_engine {
    void (*answer)(struct fake_engine *f, const struct fake_request *q, struct fake_answer *a);
    const char *api_version; /* "1.41" */
    void *ud;
    pthread_mutex_t lock; /* of the log and of what answer() touches: it runs under it */
    struct strv log;      /* "METHOD path?query" in order */
    /* ours */
    char path[108];
    int listener;
    pthread_t thread;
    struct conn_list *conns;
};

void fake_engine_start(struct fake_engine *f);
void fake_engine_stop(struct fake_engine *f);
/* Number of logged requests that contain the text. */
unsigned fake_engine_count(struct fake_engine *f, const char *text);
/* A driver without its watch thread, connected to the engine. */
struct docker *fake_docker_new(const struct fake_engine *f, const struct docker_config *c);
void fake_docker_free(struct docker *k);
