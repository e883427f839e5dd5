/* What the files of the test driver share. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "daemon/driver/fake/fake.h"

struct inst {
    struct list link;
    struct instance_info info;
};

struct script {
    int code;
    char text[200];
    unsigned fail_times, calls, inside, peak, waiting;
    bool held;
};

struct fake {
    struct driver d;
    struct driver_ops ops; /* of its own: fake_share() adds to it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list all;
    struct script s[FAKE_N_OPS];
    char host[64];
    uint16_t port;
    const char *prefix, *guard_token;
    struct published published;
    json_t *details;
    bool exits_in_create;
    int exit_code;
    json_t *last_spec;
    json_t *images;  /* object: reference -> true */
    json_t *volumes; /* object: name -> {"driver", "mountpoint", "createdFor"} */
    json_t *
        strays; /* object: id -> {"expiresUs", "metadata", "ossMounts": [..], "ownVolumes": [..]} */
    int64_t noted_us;
    char noted[SANDBOX_ID_MAX + 1];
    bool is_shared;
};

static inline struct fake *of(struct driver *d) {
    return container_of(d, struct fake, d);
}
struct inst *fake_find(struct fake *f, const char *id); /* lock held */
/* Takes the lock, counts, waits while held. A scripted failure is returned; the lock stays taken.
 */
int fake_enter(struct fake *f, enum fake_op op, struct err *err);
int fake_leave(struct fake *f, enum fake_op op, int r);
