/*
 * A small HTTP server on a Unix socket, in threads of the test: it reads whole requests and lets
 * the test's handler answer them. /_ping it answers itself, unless the test wants to.
 */
#pragma once

#include "docker/engine.h"

struct fake_request {
    unsigned conn;  /* which connection, from 0 */
    unsigned nth;   /* request on it, from 0 */
    unsigned total; /* of all, /_ping aside, from 0 */
    const char *method, *target, *head;
    const char *body; /* without chunk framing; NUL-terminated */
    size_t body_len;
    void *ud;
};
/* Writes the answer (or not). false = close the connection. */
typedef bool (*fake_handler)(int fd, const struct fake_request *q);

struct fake *fake_start(fake_handler handler, void *ud);
void fake_stop(struct fake *f);       /* all engines are gone before */
void fake_own_ping(struct fake *f);   /* the handler gets /_ping too */
void fake_raw_bodies(struct fake *f); /* the handler is called after the head: it reads the body */
unsigned fake_requests(struct fake *f); /* seen so far, /_ping aside */
unsigned fake_connections(struct fake *f);
const char *fake_host(const struct fake *f);
struct engine *fake_engine(const struct fake *f, unsigned timeout_ms);

/* In handlers. Failures to write are ignored: clients go away. */
void fake_say(int fd, const char *text);
void fake_bytes(int fd, const void *data, size_t len);
void fake_json(int fd, int status, const char *json); /* with its length */
void fake_hang(int fd);                               /* until the client closes */
