/* Under which uid, gid and groups a command runs (execd.md 2.7). */
#pragma once

#include "base/err.h"
#include "execd/process.h"

struct identity {
    bool given; /* a uid was asked for */
    bool set;   /* differs from the agent's own: a switch is needed */
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* owned */
    size_t n_groups;
};
#define IDENTITY_INIT \
    { .given = false }

/* uid < 0: none asked for. gid < 0: the account's primary group. */
int identity_resolve(int64_t uid, int64_t gid, struct identity *ret);
void identity_done(struct identity *id);
/* Puts it into the options of a start. The options borrow the groups. */
void identity_apply(const struct identity *id, struct process_opts *o);
