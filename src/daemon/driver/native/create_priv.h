/* A create under way: shared by create.c, plan.c and warm.c. */
#pragma once

#include "daemon/driver/native/native_priv.h"

#define BINDS_MAX 64

struct create {
    struct native *n;
    const struct sandbox_spec *spec;
    struct box *box;
    struct root_plan root;
    char boot_token[33]; /* the agent's until the claim replaces it */
    int dir, listen, cgroup, log, state;
    struct cgroup_entry entry;
    int64_t parked;
    bool agent_lost; /* it ended while we worked on it */
    struct launch_result launched;
    int mount_fds[BINDS_MAX]; /* sources of the specification's mounts, O_PATH */
    size_t n_mounts;
    struct step_times times;
};

void create_init(struct create *c, struct native *n, const struct sandbox_spec *spec);
void create_done(struct create *c); /* not the box */
/* Everything up to a started agent that waits for its claim. On failure the caller tears c->box
 * down. */
int create_build(struct create *c, struct err *err);

/* plan.c: one launch, by the parked child c->parked or a fresh one. -ESRCH: the parked one is gone.
 */
int create_launch(struct create *c, struct err *err);

/* warm.c: hands the create a started sandbox that fits; its box becomes c->box's. False when none
 * does. w may be NULL. */
bool warm_take(struct warm *w, struct create *c);
/* Makes a taken one what the specification asks for: limits, names, network. */
int warm_adopt(struct create *c, struct err *err);
