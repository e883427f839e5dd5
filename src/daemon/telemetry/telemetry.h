/*
 * What the daemon counts about itself. One set per process, from its start; nothing here waits.
 * Everything belongs to the loop thread, except telemetry_engine_call, which any thread may call.
 * Series come into being when they are first counted; their number is bounded, what is beyond is
 * counted as "other".
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

/* One finished HTTP request. route: the pattern's text, with static storage; NULL = none fits.
 * prefix: what stands before it, static too ("/v1"). */
void telemetry_request(const char *method, const char *prefix, const char *route, int status,
                       int64_t duration_us, uint64_t body_bytes);

/* One create, from the request to the outcome. */
void telemetry_create(bool ok, int64_t duration_us);
/* A part of a successful one; name has static storage. */
void telemetry_create_step(const char *name, int64_t duration_us);

enum telemetry_op {
    TELEMETRY_DELETE,
    TELEMETRY_EXPIRE,
    TELEMETRY_PAUSE,
    TELEMETRY_RESUME,
    TELEMETRY_RENEW,
    TELEMETRY_PATCH,
    N_TELEMETRY_OPS
};
void telemetry_op(enum telemetry_op op, bool ok);

/* A create as an SDK tells of it; user_agent may be NULL. */
void telemetry_sdk_create(const char *user_agent, bool ok, int64_t duration_ms);

/* A call to the Docker Engine: result < 0 = failed. Any thread. */
void telemetry_engine_call(const char *method, const char *path, int result, int64_t duration_us);

/* What is so now, filled by who asks. */
struct telemetry_now {
    const char *driver;
    const char *const *states; /* names, n_states of them */
    const size_t *sandboxes;   /* by state */
    size_t n_states;
    unsigned workers, workers_max, workers_idle;
    size_t jobs_waiting;
    size_t connections; /* upgraded, through the proxy */
};
/* The text format of Prometheus. */
int telemetry_write(struct buf *out, const struct telemetry_now *now);
#define TELEMETRY_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The body of an OTLP/HTTP export (JSON): what SDKs tell of creates, and requests. resource: texts
 * by name, borrowed. NULL on -ENOMEM. */
json_t *telemetry_otlp(const json_t *resource);

void telemetry_reset(void); /* for tests: nothing was counted yet */
