/*
 * A driver for tests: sandboxes are entries of a list. Operations can be made to fail, or held
 * until released, so that tests decide every order without waiting for time to pass. Thread-safe.
 * It survives ops->free (a daemon that restarts finds its sandboxes again): the test ends it with
 * fake_destroy.
 */
#pragma once

#include "daemon/driver/driver.h"

enum fake_op {
    FAKE_CREATE,
    FAKE_REMOVE,
    FAKE_PAUSE,
    FAKE_RESUME,
    FAKE_LOGS,
    FAKE_RECOVER,
    FAKE_IMAGE,
    FAKE_SNAPSHOT,
    FAKE_SNAPSHOT_EXISTS,
    FAKE_SNAPSHOT_REMOVE,
    FAKE_POLICY,
    FAKE_NETWORK,
    FAKE_LATE,
    FAKE_VOLUME_OPEN,
    FAKE_VOLUME_REMOVE,
    FAKE_N_OPS
};

struct driver *fake_new(void);
void fake_destroy(struct driver *d);

/* The next `times` calls of op give this error. */
void fake_fail(struct driver *d, enum fake_op op, int code, const char *text, unsigned times);
/* Calls of op wait inside until fake_release; fake_wait_held returns when n calls wait. */
void fake_hold(struct driver *d, enum fake_op op);
void fake_release(struct driver *d, enum fake_op op);
void fake_wait_held(struct driver *d, enum fake_op op, unsigned n);
/* The sandbox's main process ends by itself. */
void fake_exit(struct driver *d, const char *id, int code);
/* As if the machine had lost it: no event. */
void fake_lose(struct driver *d, const char *id);
/* Something that no database knows. */
void fake_add_stray(struct driver *d, const char *id);
/* Where address() leads. */
void fake_set_address(struct driver *d, const char *host, uint16_t port);
/* What address() puts before paths; NULL = nothing. Borrowed. */
void fake_set_prefix(struct driver *d, const char *prefix);
/* What published() says of every port; zero = nothing is published. */
void fake_set_published(struct driver *d, struct published p);
/* Token of every sandbox's guard; NULL = no guard. Borrowed. */
void fake_set_guard(struct driver *d, const char *token);
/* What describe() gives; takes the reference. */
void fake_set_details(struct driver *d, json_t *details);
/* create reports the exit of its main process before it returns. */
void fake_exit_in_create(struct driver *d, int code);

/* Snapshot images: there when one was committed or added, until it is removed. The driver has
 * snapshots when the test sets d->rules.snapshots. */
void fake_add_image(struct driver *d, const char *image);
bool fake_has_image(struct driver *d, const char *image);

/* ---- fake_shared.c ---- */
/* From now on it is a runtime that others use too: policies, volumes, found sandboxes, and rules
 * like those of an engine. The test may change d->rules afterwards. */
void fake_share(struct driver *d);
void fake_add_volume(struct driver *d, const char *name, const char *driver,
                     const char *mountpoint); /* by another hand */
bool fake_has_volume(struct driver *d, const char *name);
/* A sandbox of another server, for found(); takes details: {"expiresUs", "metadata", "extensions",
 * "ossMounts", "ownVolumes"}, all optional. */
void fake_add_found(struct driver *d, const char *id, json_t *details);
/* Changed by another hand; no event. */
void fake_set_state(struct driver *d, const char *id, enum instance_state state);
/* An event, whatever the state is. */
void fake_report(struct driver *d, const char *id, enum instance_state state);
int64_t fake_noted_expiry(struct driver *d, const char *id); /* 0 = none */

bool fake_has(struct driver *d, const char *id);
size_t fake_count(struct driver *d);
unsigned fake_calls(struct driver *d, enum fake_op op);
unsigned fake_peak(struct driver *d, enum fake_op op); /* most calls at the same time */
/* A copy of the last created sandbox's specification as JSON; new reference. */
json_t *fake_last_spec(struct driver *d);
